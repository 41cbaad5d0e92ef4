// Threads of a run: those of an OpenMP runtime that the process has anyway, or a small pool of our own with
// parked workers that spin briefly, one job at a time, alive again after fork.
#pragma once
#include <stdint.h>

namespace rk {

// Called with the index of a piece of work and the slot (0 is the caller) that runs it.
using Work = void (*)(void* context, int64_t index, int slot);

// Runs work(context, i, slot) for every i in [0, count) on up to `threads` threads, the caller being one of
// them. Pieces are handed out in order. When another thread's job is running, the caller does all of its own
// work alone.
void parallel_for(int64_t threads, int64_t count, Work work, void* context);

// Entry points of an OpenMP runtime, as compilers call them: run `body(data)` on a team of `threads`, and the
// calling thread's number in its team. Both null: our own pool.
using TeamParallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
using TeamNumber = int (*)();

// From now on `parallel_for` runs on that runtime's teams. PyTorch's operators leave their OpenMP workers
// spinning for milliseconds; a second pool would have to share the cores with them, while a team takes them
// up at once. A child of fork goes back to our own pool, since OpenMP runtimes do not survive fork.
void use_team(TeamParallel parallel, TeamNumber number);

// The calling thread's scratch memory, 64-byte aligned, kept for its next call; null when memory is short.
void* thread_scratch(int64_t bytes);

} // namespace rk
