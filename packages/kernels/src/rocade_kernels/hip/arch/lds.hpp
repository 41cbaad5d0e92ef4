// LDS: copies into it, and reads of matrix operands.
#pragma once

namespace rocade {

/// How columns of a tile in LDS become operands, whose elements are neighbours in a column: rows are read and
/// transposed in registers, or reads transpose 4 rows at a time, or matrices of 8 x 8.
enum class Transpose { in_registers, quads, matrices };

} // namespace rocade

#if defined(__AMDGCN__)
#include "lds_amd.hpp"
#else
#include "lds_nvidia.hpp"
#endif
