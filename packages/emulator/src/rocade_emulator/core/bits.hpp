// A fixed set of register numbers with range tests of a few words, so that a check costs nanoseconds.
#pragma once

#include "types.hpp"

namespace emu {

template <int N> struct BitSet {
  static constexpr int kWords = (N + 63) / 64;
  u64 words[kWords] = {};

  // Whether some bit, or every bit of this set, is in the other.
  bool meets(const BitSet& other) const {
    u64 common = 0;
    for (int w = 0; w < kWords; ++w)
      common |= words[w] & other.words[w];
    return common;
  }
  bool within(const BitSet& other) const {
    u64 beyond = 0;
    for (int w = 0; w < kWords; ++w)
      beyond |= words[w] & ~other.words[w];
    return !beyond;
  }
  void add(const BitSet& other) {
    for (int w = 0; w < kWords; ++w)
      words[w] |= other.words[w];
  }

  bool test(int i) const { return words[i >> 6] >> (i & 63) & 1; }
  void set(int i) { words[i >> 6] |= u64{1} << (i & 63); }
  void clear(int i) { words[i >> 6] &= ~(u64{1} << (i & 63)); }

  // Bits of word `w` that belong to the range [first, first + count).
  static u64 mask(int w, int first, int count) {
    int lo = first - w * 64, hi = lo + count;
    if (hi <= 0 || lo >= 64)
      return 0;
    u64 below = hi >= 64 ? ~u64{0} : (u64{1} << hi) - 1;
    return lo <= 0 ? below : below & ~((u64{1} << lo) - 1);
  }
  bool any(int first, int count) const {
    for (int w = first >> 6; w <= (first + count - 1) >> 6; ++w)
      if (words[w] & mask(w, first, count))
        return true;
    return false;
  }
  bool all(int first, int count) const {
    for (int w = first >> 6; w <= (first + count - 1) >> 6; ++w) {
      u64 m = mask(w, first, count);
      if ((words[w] & m) != m)
        return false;
    }
    return true;
  }
  void set(int first, int count) {
    for (int w = first >> 6; w <= (first + count - 1) >> 6; ++w)
      words[w] |= mask(w, first, count);
  }
  void clear(int first, int count) {
    for (int w = first >> 6; w <= (first + count - 1) >> 6; ++w)
      words[w] &= ~mask(w, first, count);
  }
};

} // namespace emu
