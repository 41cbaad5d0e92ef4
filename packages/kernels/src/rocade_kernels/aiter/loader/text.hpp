// What a function of the C ABI tells its caller in words.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace rocade::aiter {

struct Text {
  char* at;
  int64_t bytes;

  __attribute__((format(printf, 2, 3))) void write(const char* format, ...) const {
    if (bytes <= 0)
      return;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(at, static_cast<size_t>(bytes), format, arguments);
    va_end(arguments);
  }
};

} // namespace rocade::aiter
