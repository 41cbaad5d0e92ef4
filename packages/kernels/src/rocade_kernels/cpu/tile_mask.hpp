// Applies visibility to a tile of logits, and says which tiles need it at all.
#pragma once
#include "key_tile.hpp"
#include "state.hpp"

namespace rk::RK_ISA_NAMESPACE {

// What the rows of one unit may see of its keys.
class UnitMask {
public:
  UnitMask(const Run& run, const Unit& unit)
      : shape_(run.plan->shape), positions_(run.plan->row_position.data()),
        keys_{unit.key_begin, unit.key_end}, custom_{nullptr, 0}, first_row_(0) {
    const Node& node = run.plan->nodes[unit.node];
    if (shape_.mask == RK_MASK_CUSTOM)
      custom_ = {run.args->mask_bits + node.mask_byte, node.kv_len}, first_row_ = node.row_begin;
  }

  KeyRange range(int64_t row) const { return visible_keys(shape_, positions_[row], keys_); }

  // True when the row sees every key of the tile, so that nothing has to be hidden.
  template <int Capacity> bool sees_all(int64_t row, const KeyTile<Capacity>& tile) const {
    const KeyRange seen = range(row);
    return custom_.bits == nullptr && !tile.holes && seen.begin <= tile.first &&
           seen.end >= tile.first + tile.count;
  }

  template <int Capacity> bool sees_none(int64_t row, const KeyTile<Capacity>& tile) const {
    const KeyRange seen = range(row);
    return seen.begin >= seen.end || seen.end <= tile.first || seen.begin >= tile.first + tile.count;
  }

  // Puts -inf at what the row does not see of the tile, and beyond its last key up to `padded`.
  template <int Capacity> void hide(int64_t row, const KeyTile<Capacity>& tile, float* s, int padded) const {
    const KeyRange seen = range(row);
    const int begin = clamp(seen.begin - tile.first, 0, tile.count);
    const int end = clamp(seen.end - tile.first, begin, tile.count);
    for (int j = 0; j < begin; ++j)
      s[j] = kNegativeInfinity;
    for (int j = end; j < padded; ++j)
      s[j] = kNegativeInfinity;
    if (tile.holes)
      for (int j = begin; j < end; ++j)
        if (tile.k[j] == nullptr)
          s[j] = kNegativeInfinity;
    if (custom_.bits != nullptr)
      for (int j = begin; j < end; ++j)
        if (!custom_.sees(row - first_row_, tile.first + j))
          s[j] = kNegativeInfinity;
  }

private:
  const Shape& shape_;
  const int32_t* positions_;
  KeyRange keys_;
  CustomMask custom_;
  int64_t first_row_;
};

} // namespace rk::RK_ISA_NAMESPACE
