// Small kernels for the emulator's tests, one group of instructions each. Freestanding: no HIP headers.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Float16 f16;
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));

#define KERNEL extern "C" __attribute__((global))
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))

DEVICE u32 lane_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 index(u32 block) { return group_x() * block + lane_x(); }
DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Integers of all widths, signed and unsigned, with carries, shifts, bit fields and division.
KERNEL void integers(const u64* a, const u64* b, u64* out, int n) {
  u32 i = index(256);
  if (i >= static_cast<u32>(n)) return;
  u64 x = a[i], y = b[i];
  u32 lo = static_cast<u32>(x), hi = static_cast<u32>(y >> 32) | 1;
  u64 r = x * y + (x >> (y & 63)) - (y << (x & 31));
  r ^= static_cast<u64>(lo / hi) << 32 | lo % hi;
  r += static_cast<u64>(static_cast<long long>(x) / static_cast<long long>(hi));
  r ^= static_cast<u64>(__builtin_popcountll(x) + __builtin_clz(hi)) << 20;
  r += static_cast<u64>(static_cast<short>(lo) * static_cast<short>(hi)) + (__builtin_bitreverse32(lo) >> 7);
  out[i] = r;
}

// Float arithmetic with IEEE division and square root; double, too.
KERNEL void floats(const float* a, const float* b, float* out, double* wide, int n) {
  u32 i = index(256);
  if (i >= static_cast<u32>(n)) return;
  float x = a[i], y = b[i];
  out[i] = __builtin_sqrtf(__builtin_fabsf(x)) / y + __builtin_floorf(x * 3) + __builtin_fminf(x, y);
  double d = x, e = y;
  wide[i] = __builtin_sqrt(__builtin_fabs(d)) / e + __builtin_fma(d, e, d);
}

// Transposes 32x32 tiles through LDS: each wave reads what others wrote.
KERNEL void transpose(const float* in, float* out, int n) {
  SHARED static float tile[32][33];
  u32 x = lane_x() % 32, y = lane_x() / 32, tiles = static_cast<u32>(n) / 32;
  u32 bx = group_x() % tiles * 32, by = group_x() / tiles * 32;
  for (u32 k = 0; k < 32; k += 8) tile[y + k][x] = in[(by + y + k) * static_cast<u32>(n) + bx + x];
  barrier();
  for (u32 k = 0; k < 32; k += 8) out[(bx + y + k) * static_cast<u32>(n) + by + x] = tile[x][y + k];
}

// Sums 256 values: across lanes by ds_bpermute, across waves through LDS.
KERNEL void block_sum(const float* in, float* out) {
  SHARED static float partial[4];
  float sum = in[index(256)];
  for (u32 step = 32; step; step /= 2) {
    int other = static_cast<int>((lane_x() ^ step) * 4);
    sum += __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(other, __builtin_bit_cast(int, sum)));
  }
  if (lane_x() % 64 == 0) partial[lane_x() / 64] = sum;
  barrier();
  if (lane_x() == 0) out[group_x()] = partial[0] + partial[1] + partial[2] + partial[3];
}

// A table in private memory, indexed by data: scratch.
KERNEL void scratch(const int* in, int* out, int n) {
  volatile int table[37];
  u32 i = index(64);
  for (int k = 0; k < 37; ++k) table[k] = k * k + static_cast<int>(i);
  if (i < static_cast<u32>(n)) out[i] = table[static_cast<u32>(in[i]) % 37];
}

// 16x16 blocks of a[m, 16] b[16, n] by one wave with v_mfma_f32_16x16x16f16.
KERNEL void mfma_16(const f16* a, const f16* b, float* out) {
  u32 l = lane_x(), m = l % 16, k = l / 16 * 4;
  f16x4 va, vb;
  for (u32 j = 0; j < 4; ++j) va[j] = a[m * 16 + k + j], vb[j] = b[(k + j) * 16 + m];
  f32x4 c = {0, 0, 0, 0};
  c = __builtin_amdgcn_mfma_f32_16x16x16f16(va, vb, c, 0, 0, 0);
  for (u32 j = 0; j < 4; ++j) out[(k + j) * 16 + m] = c[j];
}

// The same with 32x32x8.
KERNEL void mfma_32(const f16* a, const f16* b, float* out) {
  u32 l = lane_x(), m = l % 32, k = l / 32 * 4;
  f16x4 va, vb;
  for (u32 j = 0; j < 4; ++j) va[j] = a[m * 8 + k + j], vb[j] = b[(k + j) * 32 + m];
  f32x16 c = {};
  c = __builtin_amdgcn_mfma_f32_32x32x8f16(va, vb, c, 0, 0, 0);
  for (u32 j = 0; j < 16; ++j) out[(8 * (j / 4) + k + j % 4) * 32 + m] = c[j];
}

// Each workgroup waits for the one before it: ends only when workgroups make progress together.
KERNEL void relay(u32* flags, u32* order) {
  if (lane_x() != 0) return;
  u32 g = group_x();
  while (g && __hip_atomic_load(&flags[g - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) __builtin_amdgcn_s_sleep(1);
  order[g] = g ? order[g - 1] + g : 1;
  __hip_atomic_store(&flags[g], 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

// Waits for a later workgroup: with all of them resident it ends, else it never does.
KERNEL void wait_for_last(u32* flags, u32 count) {
  if (lane_x() != 0) return;
  __hip_atomic_store(&flags[group_x()], 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
  while (__hip_atomic_load(&flags[count - 1], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) __builtin_amdgcn_s_sleep(1);
}

// Reads one element at a 64-bit offset.
KERNEL void far_copy(const float* in, float* out, u64 from, u64 to) {
  if (lane_x() == 0) out[to] = in[from];
}

// Copies rows of a strided view; `extra` columns too many is an off-by-one in waiting.
KERNEL void copy_rows(const float* in, float* out, u32 cols, u32 stride, u32 extra) {
  for (u32 c = lane_x(); c < cols + extra; c += 64) out[group_x() * stride + c] = in[group_x() * stride + c];
}

DEVICE u32 generation = 5;  // a variable of the code object, reached through its address

KERNEL void count_launches(u32* out) {
  if (lane_x() == 0) out[0] = ++generation;
}

struct Many {
  const float* in;
  float scale;
  int offset;
};

// A structure by value with a pointer inside.
KERNEL void by_value(Many m, float* out) { out[lane_x()] = m.in[lane_x()] * m.scale + static_cast<float>(m.offset); }

// The shape of the launch as hidden arguments (0 to 11) and the dispatch packet (12 to 17) tell it.
KERNEL void launch_shape(u32* out) {
  if (lane_x() || __builtin_amdgcn_workitem_id_y() || __builtin_amdgcn_workitem_id_z() || group_x()) return;
  auto hidden = (const u32*)__builtin_amdgcn_implicitarg_ptr();
  auto halves = reinterpret_cast<const unsigned short*>(hidden);
  for (u32 k = 0; k < 3; ++k) out[k] = hidden[k];           // block counts
  for (u32 k = 0; k < 6; ++k) out[3 + k] = halves[6 + k];   // group sizes, remainders
  out[9] = halves[32];                                      // dimensions of the grid
  auto packet = (const u32*)__builtin_amdgcn_dispatch_ptr();
  out[10] = packet[1] & 0xffff;
  out[11] = packet[1] >> 16;
  for (u32 k = 0; k < 3; ++k) out[12 + k] = packet[3 + k];  // work items of the grid
}
