// Tensors of another library as replay sees them, read through DLPack's exchange table, and what a layout is.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "rocade_replay.h"

namespace rk {

// DLTensor of DLPack 1.x.
struct Tensor {
  void* data;
  int32_t device_type, device_id, dims;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
using Read = int (*)(void* python_object, Tensor* out);

constexpr int64_t kMostTensors = 8;
constexpr int64_t kMostBytes = 1024;      // of an argument block
constexpr uint64_t kAddressMultiple = 16; // what kernels ask about an address

struct Place {
  int64_t offset, tensor, delta; // the address of a tensor, plus delta bytes, stands at offset of the block
};

inline uint64_t address(const Tensor& t) { return reinterpret_cast<uint64_t>(t.data) + t.byte_offset; }

inline uint64_t address(const Place& place, const Tensor* tensors) {
  return address(tensors[place.tensor]) + static_cast<uint64_t>(place.delta);
}

inline void put(std::string& key, const void* bytes, size_t count) {
  key.append(static_cast<const char*>(bytes), count);
}

// Adds everything about tensors that checks, geometry and arguments depend on, but for where they are.
inline bool add_layouts(std::string& key, const Tensor* tensors, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& t = tensors[i];
    if (address(t) == 0 || t.strides == nullptr)
      return false;
    const int32_t facts[] = {t.device_type, t.device_id, t.dims, t.code << 24 | t.bits << 16 | t.lanes,
                             static_cast<int32_t>(address(t) % kAddressMultiple)};
    put(key, facts, sizeof facts);
    put(key, t.shape, sizeof(int64_t) * static_cast<size_t>(t.dims));
    put(key, t.strides, sizeof(int64_t) * static_cast<size_t>(t.dims));
  }
  return true;
}

struct Extent {
  uint64_t first, end;
};

inline Extent extent(const Tensor& t) {
  uint64_t reach = 0;
  for (int32_t d = 0; d < t.dims; ++d) {
    if (t.shape[d] == 0)
      return {0, 0};
    reach += static_cast<uint64_t>((t.shape[d] - 1) * t.strides[d]);
  }
  return {address(t), address(t) + (reach + 1) * (t.bits * t.lanes / 8u)};
}

// Whether a tensor that is written may share memory with another one.
inline bool overlaps(const Tensor* tensors, int64_t count, int64_t written) {
  Extent extents[kMostTensors];
  for (int64_t i = 0; i < count; ++i)
    extents[i] = extent(tensors[i]);
  for (int64_t i = 0; i < count; ++i) {
    if ((written >> i & 1) == 0)
      continue;
    for (int64_t j = 0; j < count; ++j)
      if (i != j && extents[i].first < extents[j].end && extents[j].first < extents[i].end)
        return true;
  }
  return false;
}

inline bool read_all(Read read, void* const* objects, int64_t count, Tensor* tensors) {
  for (int64_t i = 0; i < count; ++i)
    if (read(objects[i], &tensors[i]) != 0)
      return false;
  return true;
}

// Whether a launch was made with the addresses of these very tensors, at these places. A converted copy was
// launched where it was not, and nothing can be repeated.
inline bool holds(const rk_launch& launch, const Tensor* tensors) {
  for (int64_t i = 0; i < launch.places; ++i) {
    const int64_t* at = launch.places_at + 3 * i;
    const Place place = {at[0], at[1], at[2]};
    uint64_t told;
    if (place.tensor < 0 || place.tensor >= launch.tensors || place.offset < 0 ||
        place.offset + static_cast<int64_t>(sizeof told) > launch.block_bytes)
      return false;
    std::memcpy(&told, launch.block_at + place.offset, sizeof told);
    if (told != address(place, tensors))
      return false;
  }
  return true;
}

} // namespace rk
