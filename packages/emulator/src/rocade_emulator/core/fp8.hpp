// 8-bit floats of both targets: FNUZ on gfx942 (bias 8 / 16, one NaN at 0x80), OCP on gfx950 (bias 7 / 15).
// The flavour is a property of the running target, so these read it from the thread that executes.
#pragma once

#include "meaning.hpp"

namespace emu {

struct fp8 {
  u8 bits;
};
struct bf8 {
  u8 bits;
};

// Set by the launcher before a wave runs on this thread: true for OCP encodings.
extern thread_local bool t_fp8_ocp;

// Decoded value of each byte, by [ocp][is_bf8].
extern const f32 (&fp8_table(bool ocp, bool is_bf8))[256];

inline f32 fp8_to_float(u32 byte) { return fp8_table(t_fp8_ocp, false)[byte & 0xff]; }
inline f32 bf8_to_float(u32 byte) { return fp8_table(t_fp8_ocp, true)[byte & 0xff]; }

// Rounds to nearest even and saturates to the largest finite value; NaN stays NaN. `noise` (stochastic
// rounding) is added below the kept bits instead of rounding when `stochastic`.
u8 float_to_fp8(f64 value, bool is_bf8, bool stochastic = false, u32 noise = 0);

} // namespace emu
