// A tile of keys as row pointers, whatever holds them: pages, dense rows, or several levels one after the
// other.
#pragma once
#include "mask.hpp"

namespace rk::RK_ISA_NAMESPACE {

// `count` keys from global position `first`. Pointers are to KV head 0; null where the page lies outside the
// pool.
template <int Capacity> struct KeyTile {
  const char* k[Capacity];
  const char* v[Capacity];
  int64_t k_head[Capacity]; // bytes from one head to the next; levels may differ
  int64_t v_head[Capacity];
  int32_t first;
  int count;
  bool holes;
};

// Where the keys of one node are. Strides are bytes.
struct NodeReader {
  const rk_level_tensors& tensors;
  const Node& node;
  int64_t page_size;
  int64_t element_size;

  NodeReader(const Run& run, const Node& n, int64_t size)
      : tensors(run.args->levels[n.level]), node(n), page_size(run.plan->levels[n.level].page_size),
        element_size(size) {}

  template <int Capacity> void read(KeyTile<Capacity>& tile, int at, int32_t local, int count) const {
    if (page_size == 0)
      read_rows(tile, at, 0, node.first_entry + local, count, tensors.pool);
    else
      read_pages(tile, at, local, count);
  }

private:
  // Rows row, row + 1, ... of one page (or of the dense tensor), null from `limit` on.
  template <int Capacity>
  void read_rows(KeyTile<Capacity>& tile, int at, int64_t page, int64_t row, int count, int64_t limit) const {
    const char* k = static_cast<const char*>(tensors.k);
    const char* v = static_cast<const char*>(tensors.v);
    for (int j = 0; j < count; ++j, ++row) {
      const bool valid = row < limit;
      tile.k[at + j] =
          valid ? k + (page * tensors.k_stride[0] + row * tensors.k_stride[1]) * element_size : nullptr;
      tile.v[at + j] =
          valid ? v + (page * tensors.v_stride[0] + row * tensors.v_stride[1]) * element_size : nullptr;
      tile.k_head[at + j] = tensors.k_stride[2] * element_size;
      tile.v_head[at + j] = tensors.v_stride[2] * element_size;
      tile.holes |= !valid;
    }
  }

  template <int Capacity> void read_pages(KeyTile<Capacity>& tile, int at, int32_t local, int count) const {
    int64_t entry = node.first_entry + local / page_size;
    int64_t slot = local % page_size;
    for (int done = 0; done < count; ++entry, slot = 0) {
      const int64_t left = page_size - slot;
      const int n = left < count - done ? static_cast<int>(left) : count - done;
      const int64_t page = entry < tensors.num_indices ? tensors.indices[entry] : -1;
      const bool valid = page >= 0 && page < tensors.pool;
      read_rows(tile, at + done, page, slot, n, valid ? page_size : 0);
      done += n;
    }
  }
};

// Fills the tile with keys [first, first + count); `node` holds the last of them, its ancestors the ones
// before.
template <int Capacity>
void read_tile(const Run& run, const Node* node, int32_t first, int count, int64_t element_size,
               KeyTile<Capacity>& tile) {
  tile.first = first;
  tile.count = count;
  tile.holes = false;
  for (int end = count; end > 0;) {
    int begin = node->offset - first;
    if (begin < 0)
      begin = 0;
    if (begin < end) {
      NodeReader(run, *node, element_size).read(tile, begin, first + begin - node->offset, end - begin);
      end = begin;
    }
    if (end > 0)
      node = &run.plan->nodes[node->parent];
  }
}

} // namespace rk::RK_ISA_NAMESPACE
