// The thread pool. See pool.hpp for what it promises.
#include "pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include <atomic>

namespace rk {
namespace {

constexpr int kMaxWorkers = 255;
// A worker spins this many pauses (about 20 us) after a job before it parks: long enough for the two phases
// of a run, short enough not to take a core from the caller's other thread pools.
constexpr int kSpins = 1000;
constexpr int kClosed = 1 << 30;
constexpr int64_t kAlign = 64;

struct Job {
  Work work = nullptr;
  void* context = nullptr;
  int64_t count = 0;
  int admitted = 0; // slots 1..admitted take part
  std::atomic<int64_t> next{0};
};

struct Pool {
  pthread_mutex_t callers = PTHREAD_MUTEX_INITIALIZER; // held by the thread whose job is running
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;   // guards parking
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  pthread_cond_t done = PTHREAD_COND_INITIALIZER;
  std::atomic<uint64_t> ticket{0}; // number of the newest job
  std::atomic<int> gate{kClosed};  // workers inside the job, plus kClosed while nobody may enter
  int workers = 0;
  int parked = 0;
  bool caller_parked = false;
  Job job;
};

Pool pool;

struct Team {
  std::atomic<TeamParallel> parallel{nullptr};
  std::atomic<TeamNumber> number{nullptr};
};
Team team;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void drain(Job& job, int slot) {
  for (;;) {
    const int64_t i = job.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= job.count)
      return;
    job.work(job.context, i, slot);
  }
}

void team_member(void* job) { drain(*static_cast<Job*>(job), team.number.load(std::memory_order_relaxed)()); }

uint64_t wait_for_job(uint64_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const uint64_t now = pool.ticket.load(std::memory_order_acquire);
    if (now != seen)
      return now;
    pause();
  }
  pthread_mutex_lock(&pool.mutex);
  ++pool.parked;
  uint64_t now;
  while ((now = pool.ticket.load(std::memory_order_acquire)) == seen)
    pthread_cond_wait(&pool.wake, &pool.mutex);
  --pool.parked;
  pthread_mutex_unlock(&pool.mutex);
  return now;
}

// A worker that wakes late finds the gate closed and leaves, so the caller never waits for a thread to wake
// up.
void take_part(int slot) {
  const bool open = (pool.gate.fetch_add(1, std::memory_order_acquire) & kClosed) == 0;
  if (open && slot <= pool.job.admitted)
    drain(pool.job, slot);
  if (pool.gate.fetch_sub(1, std::memory_order_acq_rel) != kClosed + 1)
    return;
  pthread_mutex_lock(&pool.mutex);
  if (pool.caller_parked)
    pthread_cond_signal(&pool.done);
  pthread_mutex_unlock(&pool.mutex);
}

struct Start {
  int slot;
  uint64_t seen;
};

void* worker_main(void* argument) {
  Start start = *static_cast<Start*>(argument);
  free(argument);
  for (uint64_t seen = start.seen;;) {
    seen = wait_for_job(seen);
    take_part(start.slot);
  }
  return nullptr;
}

// Starts workers until there are `wanted`; fewer when the system refuses a thread.
void grow(int wanted) {
  while (pool.workers < wanted) {
    Start* start = static_cast<Start*>(malloc(sizeof(Start)));
    if (start == nullptr)
      return;
    *start = {pool.workers + 1, pool.ticket.load(std::memory_order_relaxed)};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, worker_main, start) != 0) {
      free(start);
      return;
    }
    pthread_detach(thread);
    ++pool.workers;
  }
}

void open_gate() {
  pthread_mutex_lock(&pool.mutex);
  pool.gate.fetch_and(~kClosed, std::memory_order_release);
  pool.ticket.fetch_add(1, std::memory_order_release);
  if (pool.parked > 0)
    pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.mutex);
}

void close_gate() {
  pool.gate.fetch_or(kClosed, std::memory_order_acq_rel);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (pool.gate.load(std::memory_order_acquire) == kClosed)
      return;
    pause();
  }
  pthread_mutex_lock(&pool.mutex);
  pool.caller_parked = true;
  while (pool.gate.load(std::memory_order_acquire) != kClosed)
    pthread_cond_wait(&pool.done, &pool.mutex);
  pool.caller_parked = false;
  pthread_mutex_unlock(&pool.mutex);
}

// Fork waits for the running job, then the child starts with no workers. A child's locks are new: the threads
// that could have unlocked them do not exist there.
void before_fork() { pthread_mutex_lock(&pool.callers); }
void after_fork_parent() { pthread_mutex_unlock(&pool.callers); }
void after_fork_child() {
  pool.callers = PTHREAD_MUTEX_INITIALIZER;
  pool.mutex = PTHREAD_MUTEX_INITIALIZER;
  pool.wake = PTHREAD_COND_INITIALIZER;
  pool.done = PTHREAD_COND_INITIALIZER;
  pool.gate.store(kClosed);
  pool.workers = pool.parked = 0;
  pool.caller_parked = false;
  use_team(nullptr, nullptr);
}

pthread_key_t scratch_key;

struct Scratch {
  int64_t bytes; // usable bytes that follow this header's 64
};

void free_scratch(void* memory) { free(memory); }

__attribute__((constructor)) void register_handlers() {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  pthread_key_create(&scratch_key, free_scratch);
}

} // namespace

void use_team(TeamParallel parallel, TeamNumber number) {
  const bool usable = parallel != nullptr && number != nullptr;
  team.number.store(number, std::memory_order_relaxed);
  team.parallel.store(usable ? parallel : nullptr, std::memory_order_release);
}

void parallel_for(int64_t threads, int64_t count, Work work, void* context) {
  int64_t admitted = (threads < count ? threads : count) - 1;
  if (admitted > kMaxWorkers)
    admitted = kMaxWorkers;
  const TeamParallel parallel = team.parallel.load(std::memory_order_acquire);
  if (admitted > 0 && parallel != nullptr) {
    Job job;
    job.work = work;
    job.context = context;
    job.count = count;
    parallel(team_member, &job, static_cast<unsigned>(admitted + 1), 0);
    return;
  }
  if (admitted <= 0 || pthread_mutex_trylock(&pool.callers) != 0) {
    for (int64_t i = 0; i < count; ++i)
      work(context, i, 0);
    return;
  }
  grow(static_cast<int>(admitted));
  if (admitted > pool.workers)
    admitted = pool.workers;
  pool.job.work = work;
  pool.job.context = context;
  pool.job.count = count;
  pool.job.next.store(0, std::memory_order_relaxed);
  pool.job.admitted = static_cast<int>(admitted);
  open_gate();
  drain(pool.job, 0);
  close_gate();
  pthread_mutex_unlock(&pool.callers);
}

void* thread_scratch(int64_t bytes) {
  Scratch* held = static_cast<Scratch*>(pthread_getspecific(scratch_key));
  if (held == nullptr || held->bytes < bytes) {
    free(held);
    const int64_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
    held = static_cast<Scratch*>(aligned_alloc(kAlign, static_cast<size_t>(rounded + kAlign)));
    pthread_setspecific(scratch_key, held);
    if (held == nullptr)
      return nullptr;
    held->bytes = rounded;
  }
  return reinterpret_cast<char*>(held) + kAlign;
}

} // namespace rk
