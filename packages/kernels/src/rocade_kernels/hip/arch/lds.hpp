// LDS: copies into it, and reads of matrix operands.
#pragma once
#if defined(__AMDGCN__)
#include "lds_amd.hpp"
#else
#include "lds_nvidia.hpp"
#endif
