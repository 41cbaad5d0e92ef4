// Scalar types of a lane, named as the ISA manuals name them. No behaviour lives here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace emu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f32 = float;
using f64 = double;

inline constexpr int kLanes = 64;       // gfx9 runs wave64 only
inline constexpr u32 kMaxItems = 1024;  // work items of a workgroup: 16 waves
inline constexpr int kVectorRegs = 512; // v0..v255, then a0..a255 at 256: one file, split by accum_offset
inline constexpr int kScalarRegs = 128; // s0..s105, vcc, ttmp, m0, exec by their operand code
inline constexpr int kAccBase = 256;    // index of a0
inline constexpr int kXnackMask = 104;
inline constexpr int kVccLo = 106;
inline constexpr int kTrapTemp = 108;
inline constexpr int kM0 = 124;
inline constexpr int kExecLo = 126;

// Upper halves of FLAT addresses that mean LDS and private memory: beyond every address of a host process.
inline constexpr u32 kSharedAperture = 0x10000;
inline constexpr u32 kPrivateAperture = 0x20000;

// One register of all lanes, in lane order.
using Row = u32[kLanes];

} // namespace emu
