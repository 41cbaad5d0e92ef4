// Runs a function of a foreign library, and turns a C++ exception that leaves it into text.
#pragma once

#include "text.hpp"

namespace rocade::aiter {

// False when an exception came out of `body`; everything on the way to it was destroyed as it should be.
// What no guard can catch: AITER's macros that abort, faults on the GPU.
bool run_guarded(void (*body)(void* context), void* context, const Text& text);

} // namespace rocade::aiter
