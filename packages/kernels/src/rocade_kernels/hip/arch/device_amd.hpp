// AMD's share of device.hpp: ids, barrier, shuffle, fast math, streaming accesses. Waves of 64 lanes.
#pragma once

/// Declares a kernel whose blocks have exactly `threads` threads. `blocks` is for NVIDIA.
#define ROCADE_KERNEL(threads, blocks)                                                                       \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void

/// In front of a kernel's argument struct: it is read where the launch put it, not copied to the stack.
#define ROCADE_ARGUMENT const

namespace rocade {

ROCADE_DEVICE u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
ROCADE_DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
ROCADE_DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
ROCADE_DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }

/// All threads of the block have reached this place, and see each other's LDS and global writes.
ROCADE_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  // The fence waits for LDS by itself, but clang 22 loses that wait where a loop has several ways in (the
  // emulator found it).
  asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/// Kernels of a stream run one after the other.
ROCADE_DEVICE void let_next_start() {}
ROCADE_DEVICE void wait_for_previous() {}

/// The lanes of the wave have reached this place; they always do so together.
ROCADE_DEVICE void wave_barrier() { __builtin_amdgcn_wave_barrier(); }

/// `x`, which the wave has from memory by now: it waits here if it must.
ROCADE_DEVICE float arrived(float x) {
  asm volatile("" : "+v"(x));
  return x;
}

/// `x`; see the NVIDIA one. Here waves that have no such lane skip the computation.
ROCADE_DEVICE float made_here(float x) { return x; }

ROCADE_DEVICE u32 shuffle(u32 x, u32 lane) {
  return static_cast<u32>(__builtin_amdgcn_ds_bpermute(static_cast<int>(lane * 4), static_cast<int>(x)));
}

/// The value of the lane whose number differs in the bits of `mask`.
ROCADE_DEVICE u32 shuffle_xor(u32 x, u32 mask) { return shuffle(x, thread_id() % kWave ^ mask); }

/// `x`, about which the compiler knows nothing any more. Neighbouring accesses at such offsets stay apart:
/// the compiler would join them into wide ones that are not aligned.
ROCADE_DEVICE u32 opaque(u32 x) {
  asm("" : "+v"(x));
  return x;
}

/// A value that all lanes of the wave have anyway, in a scalar register.
ROCADE_DEVICE u32 uniform(u32 x) {
  return static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<int>(x)));
}

/// 2^x and 1/x within 1 ulp; subnormal results may be 0. exp2(-inf) is 0.
ROCADE_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
ROCADE_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
/// log2 of a normal number: within 1 ulp here, within 2^-22 on NVIDIA. See log2_sum.hpp where that matters.
ROCADE_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }

/// Whether one lane loads a value that its neighbours need, too, and hands it on by a shuffle.
inline constexpr bool kHandOn = true;

/// Loads and stores of memory that is touched once: they leave caches to others.
template <class T> ROCADE_DEVICE T load_streaming(const T* address) {
  return __builtin_nontemporal_load(address);
}
template <class T> ROCADE_DEVICE void store_streaming(T* address, T value) {
  __builtin_nontemporal_store(value, address);
}

} // namespace rocade
