// Who runs next: workgroups in residence on a host thread, their waves in turns, deadlock and step limits.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "abi.h"
#include "fp8.hpp"
#include "group.hpp"
#include "run.hpp"
#include "text.hpp"

namespace emu {
namespace {

constexpr u32 kStepBatch = 4096; // steps between looks at the shared limit and stop flag

// User SGPRs in hardware order, then workgroup ids.
void start_scalars(Wave& w, const Entry& e, const u32* group) {
  int at = 0;
  auto put = [&](u32 value) {
    w.s_written.set(at);
    w.s[at++] = value;
  };
  auto put64 = [&](u64 value) {
    put(static_cast<u32>(value));
    put(static_cast<u32>(value >> 32));
  };
  if (e.user_sgprs & EMU_SGPR_DISPATCH_PTR)
    put64(e.dispatch_packet);
  if (e.user_sgprs & EMU_SGPR_QUEUE_PTR)
    put64(0);
  if (e.user_sgprs & EMU_SGPR_KERNARG_PTR)
    put64(e.kernarg);
  if (e.user_sgprs & EMU_SGPR_DISPATCH_ID)
    put64(0);
  if (e.user_sgprs & EMU_SGPR_PRIVATE_SIZE)
    put(e.scratch_bytes);
  for (u32 k = 0; k < e.kernarg_preload; ++k) {
    u32 value;
    std::memcpy(&value, reinterpret_cast<const u8*>(e.kernarg) + 4 * k, 4);
    put(value);
  }
  for (int d = 0; d < 3; ++d)
    if (e.workgroup_ids >> d & 1)
      put(group[d]);
}

// Work-item ids packed into v0 by 10 bits; partial last waves start with fewer lanes.
void start_lanes(Wave& w, const Entry& e, const u32* block) {
  u32 items = block[0] * block[1] * block[2];
  u64 exec = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    u32 item = w.number * kLanes + l;
    if (item < items)
      exec |= u64{1} << l;
    u32 x = item % block[0], y = item / block[0] % block[1], z = item / (block[0] * block[1]);
    w.v[0][l] = x | (e.workitem_ids >= 1 ? y << 10 : 0) | (e.workitem_ids >= 2 ? z << 20 : 0);
  }
  w.set_exec(exec);
  w.written[0] = ~u64{0};
  w.whole.set(0);
  w.s_written.set(kExecLo, 2);
  w.s_written.set(kVccLo, 2); // carry-ins of dead lanes and vccz read it; its value is 0 at the start
  w.s_written.set(kM0);
}

// Waves of a thread that may run now, in order.
struct Resident {
  std::vector<std::unique_ptr<Group>> groups;
};

std::string where_waves_are(const Resident& r) {
  std::string out;
  for (const auto& g : r.groups)
    for (const auto& w : g->waves) {
      if (w->state == WaveState::Done)
        continue;
      bool waits = w->state == WaveState::AtBarrier; // its pc is behind the barrier
      const Inst& i = w->program->insts[w->pc - waits];
      char line[160];
      std::snprintf(line, sizeof(line), "\n  workgroup (%u, %u, %u) wave %u: %s, pc 0x%x %s", g->id[0],
                    g->id[1], g->id[2], w->number, waits ? "at a barrier" : "running", i.pc,
                    text_of(i).c_str());
      out += line;
    }
  return out;
}

class Runner {
public:
  Runner(Launch& launch, const Entry& entry, std::atomic<u64>& next, u64 total)
      : launch_(launch), entry_(entry), next_(next), total_(total), random_(launch.options.seed) {
    executed_.resize(launch.program->insts.size());
    t_fp8_ocp = launch.program->target == Target::Gfx950;
  }

  void run() {
    while (!launch_.stop) {
      refill();
      if (resident_.groups.empty())
        break;
      if (!round())
        throw std::runtime_error("deadlock: no wave can run" + where_waves_are(resident_));
      retire();
    }
    flush_steps();
  }

  // Give the launch what was counted, after a run that ended in an error too.
  void publish() {
    for (const auto& g : resident_.groups)
      collect(*g);
    for (std::size_t k = 0; k < executed_.size(); ++k)
      count_issue(counters_, launch_.program->target, launch_.program->insts[k], executed_[k]);
    std::lock_guard hold(launch_.lock);
    launch_.counters.add(counters_);
  }

private:
  void refill() {
    while (resident_.groups.size() < launch_.options.resident) {
      u64 number = next_.fetch_add(1);
      if (number >= total_)
        return;
      resident_.groups.push_back(make_group(launch_, entry_, number));
    }
  }

  // One turn for every wave that can run; false when none can.
  bool round() {
    bool ran = false;
    for (auto& g : resident_.groups)
      for (std::size_t k = 0; k < g->waves.size(); ++k) {
        Wave& w = *pick(*g, k);
        if (w.state != WaveState::Running)
          continue; // random: not one wave of the group runs
        turn(w);
        ran = true;
        if (launch_.stop)
          return true;
      }
    return ran;
  }

  // The wave of turn k; a random one, the next that can run from a drawn place on.
  Wave* pick(Group& g, std::size_t k) {
    std::size_t count = g.waves.size();
    if (launch_.options.schedule != Schedule::Random)
      return g.waves[k].get();
    k = random_() % count;
    for (std::size_t tries = 1; tries < count && g.waves[k]->state != WaveState::Running; ++tries)
      k = (k + 1) % count;
    return g.waves[k].get();
  }

  u64 quantum() {
    switch (launch_.options.schedule) {
    case Schedule::RunToBarrier:
      return kRunToBarrier;
    case Schedule::Random:
      return 1 + random_() % launch_.options.quantum;
    default:
      return launch_.options.quantum;
    }
  }

  void turn(Wave& w) {
    u64 left = quantum();
    w.yields = false;
    while (left-- && w.state == WaveState::Running && !w.yields) {
      step(w, launch_, executed_.data());
      if (++pending_steps_ >= kStepBatch)
        flush_steps();
      if (launch_.stop)
        return;
    }
  }

  void flush_steps() {
    u64 sum = launch_.steps += pending_steps_;
    pending_steps_ = 0;
    u64 limit = launch_.options.step_limit;
    if (limit && sum > limit && !launch_.stop)
      throw std::runtime_error("step limit of " + std::to_string(limit) + " reached" +
                               where_waves_are(resident_));
  }

  void retire() {
    std::erase_if(resident_.groups, [&](auto& g) {
      if (g->live)
        return false;
      collect(*g);
      return true;
    });
  }

  void collect(const Group& g) {
    counters_.bytes_read += g.bytes_read;
    counters_.bytes_written += g.bytes_written;
    counters_.bytes_arguments += g.bytes_arguments;
    counters_.lds_cycles += g.lds_cycles;
    counters_.lds_ideal_cycles += g.lds_ideal_cycles;
    counters_.cache_lines += g.cache_lines;
    counters_.cache_lines_ideal += g.cache_lines_ideal;
    counters_.waves += g.waves.size();
    ++counters_.groups;
  }

  // A wave that spins on another workgroup must not hold its thread for ever, so even "to the barrier" ends.
  static constexpr u64 kRunToBarrier = 1u << 20;

  Launch& launch_;
  const Entry& entry_;
  std::atomic<u64>& next_;
  u64 total_;
  std::mt19937_64 random_;
  Resident resident_;
  Counters counters_;
  std::vector<u64> executed_; // by instruction index
  u64 pending_steps_ = 0;
};

} // namespace

std::unique_ptr<Group> make_group(Launch& launch, const Entry& entry, u64 number) {
  auto g = std::make_unique<Group>();
  g->launch = &launch;
  g->id[0] = static_cast<u32>(number % launch.grid[0]);
  g->id[1] = static_cast<u32>(number / launch.grid[0] % launch.grid[1]);
  g->id[2] = static_cast<u32>(number / launch.grid[0] / launch.grid[1]);
  g->lds.resize(entry.lds_bytes);
  g->lds_writes.resize((entry.lds_bytes + 3) / 4);
  g->lds_reads.resize((entry.lds_bytes + 3) / 4);
  u32 items = launch.block[0] * launch.block[1] * launch.block[2];
  u32 waves = (items + kLanes - 1) / kLanes;
  g->scratch.resize(u64{entry.scratch_bytes} * kLanes * waves);
  if (launch.checks(kCheckUninitialised))
    g->scratch_defined.resize((g->scratch.size() + 7) / 8);
  for (u32 k = 0; k < waves; ++k) {
    auto w = std::make_unique<Wave>(); // value-initialised: every register starts as 0 and unwritten
    w->number = static_cast<u8>(k);
    w->group = g.get();
    w->program = launch.program;
    w->pc = entry.pc;
    w->scratch = entry.scratch_bytes ? g->scratch.data() + u64{entry.scratch_bytes} * kLanes * k : nullptr;
    w->scratch_bytes = entry.scratch_bytes;
    start_scalars(*w, entry, g->id);
    start_lanes(*w, entry, launch.block);
    g->waves.push_back(std::move(w));
  }
  g->live = waves;
  return g;
}

bool run_grid(Launch& launch, const Entry& entry) {
  std::atomic<u64> next{0};
  u64 total = u64{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  auto guarded = [&launch](auto&& action) {
    try {
      action();
    } catch (const std::exception& e) {
      std::lock_guard hold(launch.lock);
      if (launch.error.empty())
        launch.error = e.what();
      launch.stop = true;
    }
  };
  auto work = [&] {
    guarded([&] {
      Runner runner(launch, entry, next, total);
      guarded([&] { runner.run(); });
      runner.publish();
    });
  };
  std::vector<std::thread> threads;
  guarded([&] { // the system may not have as many threads
    for (u64 t = 1; t < std::min<u64>(launch.options.threads, total); ++t)
      threads.emplace_back(work);
  });
  work();
  for (auto& t : threads)
    t.join();
  return launch.error.empty();
}

} // namespace emu
