// NVIDIA's share of device.hpp: ids, barrier, shuffle, fast math, streaming accesses. Warps of 32 lanes.
#pragma once

/// Declares a kernel whose blocks have exactly `threads` threads.
#define ROCADE_KERNEL(threads) extern "C" __attribute__((global)) __attribute__((launch_bounds(threads))) void

/// In front of a kernel's argument struct: it is read where the launch put it, not copied to the stack.
#define ROCADE_ARGUMENT const __attribute__((grid_constant))

namespace rocade {

ROCADE_DEVICE u32 thread_id() { return static_cast<u32>(__nvvm_read_ptx_sreg_tid_x()); }
ROCADE_DEVICE u32 block_x() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_x()); }
ROCADE_DEVICE u32 block_y() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_y()); }
ROCADE_DEVICE u32 block_z() { return static_cast<u32>(__nvvm_read_ptx_sreg_ctaid_z()); }

/// All threads of the block have reached this place, and see each other's LDS and global writes.
ROCADE_DEVICE void barrier() { __syncthreads(); }

ROCADE_DEVICE u32 shuffle(u32 x, u32 lane) {
  return static_cast<u32>(
      __nvvm_shfl_sync_idx_i32(0xffffffffu, static_cast<int>(x), static_cast<int>(lane), 31));
}

/// The same address, about which the compiler knows nothing any more: it does not keep a loop's addresses in
/// registers that it could compute.
template <class T> ROCADE_DEVICE T* opaque(T* x) {
  asm("" : "+l"(x));
  return x;
}
/// `x`; see the AMD one. This compiler does not join accesses unless they are aligned.
ROCADE_DEVICE u32 opaque(u32 x) { return x; }

/// A value that all lanes of the warp have anyway.
ROCADE_DEVICE u32 uniform(u32 x) { return x; }

/// The least and the greatest value of the lanes that must stay together to shuffle: the warp, but for
/// threads that have ended.
ROCADE_DEVICE u32 least_together(u32 x) {
  return static_cast<u32>(__nvvm_redux_sync_umin(static_cast<int>(x), -1));
}
ROCADE_DEVICE u32 greatest_together(u32 x) {
  return static_cast<u32>(__nvvm_redux_sync_umax(static_cast<int>(x), -1));
}

/// 2^x within 2 ulp and 1/x within 1 ulp; subnormals are 0. exp2(-inf) is 0.
ROCADE_DEVICE float exp2(float x) { return __nvvm_ex2_approx_ftz_f(x); }
ROCADE_DEVICE float reciprocal(float x) { return __nvvm_rcp_approx_ftz_f(x); }
/// log2 of a normal number within 2^-22 (absolute between 1/2 and 2). See log2_exact where that matters.
ROCADE_DEVICE float log2(float x) { return __nvvm_lg2_approx_ftz_f(x); }

/// Loads and stores of memory that is touched once. The back end has no such hint for 16 bytes, so that is
/// written out; volatile, so that loads stay together and in front of the stores that follow them.
template <class T> ROCADE_DEVICE T load_streaming(const T* address) {
  if constexpr (sizeof(T) == 16) {
    typedef u32 Words __attribute__((ext_vector_type(4)));
    u32 a, b, c, d;
    asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(address));
    return __builtin_bit_cast(T, (Words{a, b, c, d}));
  } else {
    return __builtin_nontemporal_load(address);
  }
}
template <class T> ROCADE_DEVICE void store_streaming(T* address, T value) {
  __builtin_nontemporal_store(value, address);
}

} // namespace rocade
