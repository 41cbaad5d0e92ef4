// A small thread pool: parked workers that spin briefly, one job at a time, alive again after fork.
#pragma once
#include <stdint.h>

namespace rk {

// Called with the index of a piece of work and the slot (0 is the caller) that runs it.
using Work = void (*)(void* context, int64_t index, int slot);

// Runs work(context, i, slot) for every i in [0, count) on up to `threads` threads, the caller being one of
// them. Pieces are handed out in order. When another thread's job is running, the caller does all of its own
// work alone.
void parallel_for(int64_t threads, int64_t count, Work work, void* context);

// The calling thread's scratch memory, 64-byte aligned, kept for its next call; null when memory is short.
void* thread_scratch(int64_t bytes);

} // namespace rk
