// The kernel of `rocade-emulator bench`: steps like those of an attention kernel, on LDS that its waves fill
// in turns. Its results mean nothing; it is free of races and reads nothing that was not written.
// Freestanding: no HIP headers.
typedef __bf16 bf16x4 __attribute__((ext_vector_type(4)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));

#define DEVICE __attribute__((device))

constexpr int kItems = 256, kChunks = 8; // work items; 16-byte pieces of a tile that each of them moves

DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// 32 x 32 += 32 x 16 times 16 x 32.
DEVICE f32x16 multiply(bf16x8 a, bf16x8 b, f32x16 c) {
#ifdef __gfx950__
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0);
#else
  i16x4 halves[4];
  __builtin_memcpy(halves, &a, 16);
  __builtin_memcpy(halves + 2, &b, 16);
  c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(halves[0], halves[2], c, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(halves[1], halves[3], c, 0, 0, 0);
#endif
}

DEVICE bf16x8 narrow(const f32x16& x, int first) {
  bf16x8 out;
  for (int k = 0; k < 8; ++k)
    out[k] = static_cast<__bf16>(x[first + k]);
  return out;
}

extern "C" __attribute__((global)) void bench(const bf16x8* in, float* out, int steps) {
  static __attribute__((shared)) bf16x8 tile[kItems * kChunks];
  int item = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x();
  bf16x8 query = in[item];
  f32x16 sum = {};
  float largest = -1e30f, total = 0;
  for (int step = 0; step < steps; ++step) {
    for (int k = 0; k < kChunks; ++k)
      tile[k * kItems + item] = in[k * kItems + (item + step) % kItems];
    barrier();
    f32x16 scores = {};
    for (int k = 0; k < kChunks; ++k)
      scores = multiply(query, tile[k * kItems + (item ^ 64)], scores);
    float top = largest;
    for (int k = 0; k < 16; ++k)
      top = __builtin_fmaxf(top, scores[k]);
    float scale = __builtin_amdgcn_exp2f(largest - top);
    total *= scale;
    for (int k = 0; k < 16; ++k) {
      scores[k] = __builtin_amdgcn_exp2f(scores[k] - top);
      total += scores[k];
      sum[k] *= scale;
    }
    largest = top;
    for (int k = 0; k < kChunks; ++k)
      sum = multiply(narrow(scores, k % 2 * 8), tile[k * kItems + (item ^ 128)], sum);
    barrier();
  }
  for (int k = 0; k < 16; ++k)
    out[(group * 16 + k) * kItems + item] = sum[k] + total;
}
