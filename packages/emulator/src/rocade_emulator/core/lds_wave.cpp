// LDS accesses of a whole wave: the same rules as lds.cpp, as comparisons of tag words without a branch a
// cell.
#include <algorithm>
#include <cstring>

#include "lds.hpp"

namespace emu {
namespace {

// All lanes inside LDS and aligned.
bool fit(const Wave& w, const u32* addresses, u64 lanes, u32 bytes) {
  std::size_t size = w.group->lds.size();
  if (size < bytes)
    return false;
  u32 limit = static_cast<u32>(size) - bytes, low_bits = std::min(bytes, 4u) - 1, wrong = 0;
  if (lanes == w.exec()) {
    for (int l = 0; l < kLanes; ++l)
      wrong |= w.exec_row[l] & ((addresses[l] > limit ? 1u : 0u) | (addresses[l] & low_bits));
  } else {
    for (u64 m = lanes; m; m &= m - 1) {
      u32 address = addresses[std::countr_zero(m)];
      wrong |= (address > limit) | (address & low_bits);
    }
  }
  return !wrong;
}

template <int kCount> struct WordsOf {
  typedef i64 type __attribute__((vector_size(8 * kCount), aligned(8), may_alias));
};
template <> struct WordsOf<1> {
  using type = i64;
};

// The cells of one access as a vector of tag words.
template <u32 kBytes> struct Cells {
  static constexpr int count = kBytes < 4 ? 1 : kBytes / 4;
  static constexpr int at_once = count == 3 ? 1 : count;
  using Words = typename WordsOf<at_once>::type;

  // Which bytes of its cell a narrow access reaches; wide ones reach all.
  static i64 bytes_at(u32 address) { return kBytes >= 4 ? 15 : i64{(1 << kBytes) - 1} << (address & 3); }
  static bool any(const Words& words) {
    i64 all[at_once], any = 0;
    std::memcpy(all, &words, sizeof(all));
    for (i64 word : all)
      any |= word;
    return any != 0;
  }
  // Masks of all ones where it is so.
  static void above(const Words& words, i64 limit, Words& out) {
    if constexpr (at_once == 1)
      out = -i64{words > limit};
    else
      out = words > limit;
  }
  // Unsafe, and by others than this wave alone.
  static void by_others(const Words& words, i64 unsafe, i64 self, Words& bad) {
    if constexpr (at_once == 1)
      bad |= -i64{words > unsafe && (words & LdsTag::kWaves) != self};
    else
      bad |= (words > unsafe) & ((words & LdsTag::kWaves) != self);
  }
};

// What tag words are compared with.
struct Bounds {
  i64 unsafe, epoch, self, made; // made: word of this operation, without its bytes
  explicit Bounds(const Wave& w)
      : unsafe(LdsTag::before(w.group->safe)), epoch(LdsTag::before(w.group->epoch_begin)),
        self(1 << w.number),
        made(
            LdsTag{.sequence = w.group->sequence, .waves = static_cast<u16>(self), .last = w.number}.word()) {
  }
};

// Calls f(words of the writers, words of the readers, byte mask) for the cells of all lanes, some at a time.
template <u32 kBytes, class F> inline void each_cells(Group& g, const u32* addresses, u64 lanes, F&& f) {
  using C = Cells<kBytes>;
  for (u64 m = lanes; m; m &= m - 1) {
    u32 address = addresses[std::countr_zero(m)];
    for (int k = 0; k < C::count; k += C::at_once)
      f(reinterpret_cast<typename C::Words&>(g.lds_writes[address / 4 + static_cast<u32>(k)]),
        reinterpret_cast<typename C::Words&>(g.lds_reads[address / 4 + static_cast<u32>(k)]),
        C::bytes_at(address));
  }
}

template <u32 kBytes> bool try_read(const Wave& w, const u32* addresses) {
  using C = Cells<kBytes>;
  using Words = typename C::Words;
  const Bounds b(w);
  Words bad = {};
  each_cells<kBytes>(*w.group, addresses, w.exec(), [&](Words& written, Words& read, i64 bytes) {
    bad |= ~written & (bytes << LdsTag::kDefined);
    C::by_others(written, b.unsafe, b.self, bad);
    Words kept;
    C::above(read, b.epoch, kept);
    kept &= read & (LdsTag::kWaves | 15 << LdsTag::kBytes);
    read = kept | (b.made | bytes << LdsTag::kBytes); // to do this again lane by lane changes nothing
  });
  return !C::any(bad);
}

template <u32 kBytes> bool may_write(const Wave& w, const u32* addresses, u64 lanes) {
  using C = Cells<kBytes>;
  using Words = typename C::Words;
  const Bounds b(w);
  Words bad = {};
  each_cells<kBytes>(*w.group, addresses, lanes, [&](Words& written, Words& read, i64) {
    C::by_others(written, b.unsafe, b.self, bad);
    C::by_others(read, b.unsafe, b.self, bad);
  });
  return !C::any(bad);
}

// The second look, when the first one stopped at `safe`: a wave that lags behind holds that back for all.
// What counts for a cell is how far the wave is that touched it last.
class Closer {
public:
  explicit Closer(const Wave& w) : self_(1 << w.number), epoch_(LdsTag::before(w.group->epoch_begin)) {
    const Group& g = *w.group;
    for (const auto& other : g.waves) {
      bool waits = other->state != WaveState::Done && other->lgkm.size();
      u32 over = waits ? std::min(g.epoch_begin, other->lgkm.front().sequence) : g.epoch_begin;
      over_[other->number] = LdsTag::before(over);
    }
  }
  bool safe(i64 word) const {
    bool landed = word >> LdsTag::kLanded & 1;
    return word <= (landed ? epoch_ : over_[word >> LdsTag::kLast & 15]) || (word & LdsTag::kWaves) == self_;
  }

private:
  i64 self_, epoch_;
  i64 over_[16] = {};
};

template <u32 kBytes> bool look_closer(const Wave& w, const u32* addresses, u64 lanes, bool write) {
  const Group& g = *w.group;
  const Closer closer(w);
  for (u64 m = lanes; m; m &= m - 1) {
    u32 address = addresses[std::countr_zero(m)];
    i64 needed = write ? 0 : Cells<kBytes>::bytes_at(address) << LdsTag::kDefined;
    for (u32 cell = address / 4; cell < address / 4 + Cells<kBytes>::count; ++cell) {
      i64 written = g.lds_writes[cell];
      if ((written & needed) != needed || !closer.safe(written))
        return false;
      if (write && !closer.safe(g.lds_reads[cell]))
        return false;
    }
  }
  return true;
}

} // namespace

template <u32 kBytes> bool read_lds(const Wave& w, const u32* addresses) {
  if (!fit(w, addresses, w.exec(), kBytes) || near_staged(w, addresses, w.exec(), kBytes))
    return false;
  return try_read<kBytes>(w, addresses) || look_closer<kBytes>(w, addresses, w.exec(), false);
}

template <u32 kBytes> bool write_lds(const Wave& w, const u32* addresses, u64 lanes, bool landed) {
  if (!fit(w, addresses, lanes, kBytes) || (!landed && near_staged(w, addresses, lanes, kBytes)))
    return false;
  Group& g = *w.group;
  if (!may_write<kBytes>(w, addresses, lanes) && !look_closer<kBytes>(w, addresses, lanes, true))
    return false;
  using C = Cells<kBytes>;
  using Words = typename C::Words;
  const Bounds b(w);
  const i64 made = b.made | i64{landed} << LdsTag::kLanded;
  each_cells<kBytes>(g, addresses, lanes, [&](Words& written, Words&, i64 bytes) {
    Words kept = {}; // what stays of bytes beside those written
    if constexpr (kBytes < 4) {
      C::above(written, b.epoch, kept);
      kept = ((kept & 15 << LdsTag::kBytes) | 15 << LdsTag::kDefined) & written;
    }
    written = kept | (made | bytes << LdsTag::kBytes | bytes << LdsTag::kDefined);
  });
  return true;
}

#define INSTANCES(bytes)                                                                                     \
  template bool read_lds<bytes>(const Wave&, const u32*);                                                    \
  template bool write_lds<bytes>(const Wave&, const u32*, u64, bool);
INSTANCES(1)
INSTANCES(2)
INSTANCES(4)
INSTANCES(8)
INSTANCES(12)
INSTANCES(16)
#undef INSTANCES

} // namespace emu
