// NVIDIA's share of device.hpp: ids, barrier, shuffle, fast math, streaming accesses. Warps of 32 lanes.
#pragma once

/// Declares a kernel whose blocks have exactly `threads` threads, of which `blocks` are to fit a
/// multiprocessor. Without that number ptxas saves registers by loading late, one load after the other.
#define ROCADE_KERNEL(threads, blocks)                                                                       \
  extern "C" __attribute__((global)) __attribute__((launch_bounds(threads, blocks))) void

/// In front of a kernel's argument struct: it is read where the launch put it, not copied to the stack.
#define ROCADE_ARGUMENT const __attribute__((grid_constant))

namespace rocade {

ROCADE_DEVICE u32 thread_id() { return static_cast<u32>(__nvvm_read_ptx_sreg_tid_x()); }
ROCADE_DEVICE u32 block_x() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_x()); }
ROCADE_DEVICE u32 block_y() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_y()); }
ROCADE_DEVICE u32 block_z() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_z()); }

/// All threads of the block have reached this place, and see each other's LDS and global writes.
ROCADE_DEVICE void barrier() { __syncthreads(); }

/// The kernel behind this one may start where it can: it waits by itself. Only if the launch allows it.
ROCADE_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// The kernel in front of this one has ended, and what it wrote is there. Nothing that it writes, or that
/// others wrote since it began, may be read before.
ROCADE_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The threads of the warp that have not ended have reached this place.
ROCADE_DEVICE void wave_barrier() { __nvvm_bar_warp_sync(0xffffffffu); }

/// `x`; barriers order the loads before them by themselves.
ROCADE_DEVICE float arrived(float x) { return x; }

/// `x`, whose computation the compiler leaves in front of this place. It would move what only a branch needs
/// into the branch, where nothing is left to hide its latency behind.
ROCADE_DEVICE float made_here(float x) {
  asm volatile("" : "+f"(x));
  return x;
}

ROCADE_DEVICE u32 shuffle(u32 x, u32 lane) {
  return static_cast<u32>(
      __nvvm_shfl_sync_idx_i32(0xffffffffu, static_cast<int>(x), static_cast<int>(lane), 31));
}

/// The value of the lane whose number differs in the bits of `mask`.
ROCADE_DEVICE u32 shuffle_xor(u32 x, u32 mask) {
  return static_cast<u32>(
      __nvvm_shfl_sync_bfly_i32(0xffffffffu, static_cast<int>(x), static_cast<int>(mask), 31));
}

/// `x`; see the AMD one. This compiler does not join accesses unless they are aligned.
ROCADE_DEVICE u32 opaque(u32 x) { return x; }

/// A value that all lanes of the warp have anyway.
ROCADE_DEVICE u32 uniform(u32 x) { return x; }

/// 2^x within 2 ulp and 1/x within 1 ulp; subnormals are 0. exp2(-inf) is 0.
ROCADE_DEVICE float exp2(float x) { return __nvvm_ex2_approx_ftz_f(x); }
ROCADE_DEVICE float reciprocal(float x) { return __nvvm_rcp_approx_ftz_f(x); }
/// log2 of a normal number within 2^-22 (absolute between 1/2 and 2). See log2_sum.hpp where that matters.
ROCADE_DEVICE float log2(float x) { return __nvvm_lg2_approx_ftz_f(x); }

/// Whether one lane loads a value that its neighbours need, too, and hands it on. Here every lane loads it:
/// the warp's loads of one sector are one request, and there is nothing to wait for.
inline constexpr bool kHandOn = false;

/// Loads and stores of memory that is touched once. Measured on an H200, no cache hint is as fast as none
/// (with L1::no_allocate a merge of large states takes 7 % longer). 16 bytes are written out as volatile, so
/// that loads stay together and in front of what needs their values.
template <class T> ROCADE_DEVICE T load_streaming(const T* address) {
  if constexpr (sizeof(T) == 16) {
    typedef u32 Words __attribute__((ext_vector_type(4)));
    u32 a, b, c, d;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(address));
    return __builtin_bit_cast(T, (Words{a, b, c, d}));
  } else {
    return *address;
  }
}
template <class T> ROCADE_DEVICE void store_streaming(T* address, T value) { *address = value; }

} // namespace rocade
