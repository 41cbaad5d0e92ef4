// Repeats launches of GPU kernels. Once a call has been checked and launched from Python, calls with tensors
// of the same layout need no more than their addresses written into a copy of the argument block.
//
// Tensors come as Python objects. They are read through DLPack's exchange table, a C interface of the tensor
// library, so nothing here is compiled against Python or that library. Callers hold Python's lock.
#include "rocade_replay.h"

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

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

// cuLaunchKernel and hipModuleLaunchKernel.
using Launch = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned lds, void* stream, void** params,
                       void** extra);

constexpr int64_t kMostTensors = 8;
constexpr int64_t kMostBytes = 1024; // of an argument block
constexpr size_t kMostRecipes = 4096;
constexpr uint64_t kAlignment = 16; // what kernels ask about an address

struct Place {
  int64_t offset, tensor, delta; // the address of a tensor, plus delta bytes, stands at offset of the block
};

struct Recipe {
  rk_launch launch;
  std::vector<char> block;
  std::vector<Place> places;
};

struct Table {
  Read read;
  std::unordered_map<std::string, Recipe> recipes;
};

uint64_t address(const Tensor& t) { return reinterpret_cast<uint64_t>(t.data) + t.byte_offset; }

void put(std::string& key, const void* bytes, size_t count) {
  key.append(static_cast<const char*>(bytes), count);
}

// Everything about tensors that checks, geometry and arguments depend on, but for where they are.
bool make_key(std::string& key, int64_t op, const Tensor* tensors, int64_t count) {
  put(key, &op, sizeof op);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& t = tensors[i];
    if (address(t) == 0 || t.strides == nullptr)
      return false;
    const int32_t facts[] = {t.device_type, t.device_id, t.dims, t.code << 24 | t.bits << 16 | t.lanes,
                             static_cast<int32_t>(address(t) % kAlignment)};
    put(key, facts, sizeof facts);
    put(key, t.shape, sizeof(int64_t) * static_cast<size_t>(t.dims));
    put(key, t.strides, sizeof(int64_t) * static_cast<size_t>(t.dims));
  }
  return true;
}

struct Extent {
  uint64_t first, end;
};

Extent extent(const Tensor& t) {
  uint64_t reach = 0;
  for (int32_t d = 0; d < t.dims; ++d) {
    if (t.shape[d] == 0)
      return {0, 0};
    reach += static_cast<uint64_t>((t.shape[d] - 1) * t.strides[d]);
  }
  return {address(t), address(t) + (reach + 1) * (t.bits * t.lanes / 8u)};
}

// Whether a tensor that is written may share memory with another one.
bool overlaps(const Tensor* tensors, int64_t count, int64_t written) {
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

bool read_all(const Table& table, void* const* objects, int64_t count, Tensor* tensors) {
  for (int64_t i = 0; i < count; ++i)
    if (table.read(objects[i], &tensors[i]) != 0)
      return false;
  return true;
}

int32_t replay(Table& table, int64_t op, void* stream, void* const* objects, int64_t count) {
  Tensor tensors[kMostTensors];
  thread_local std::string key; // its memory serves every call of this thread
  key.clear();
  if (!read_all(table, objects, count, tensors) || !make_key(key, op, tensors, count))
    return RK_NOT_REPLAYED;
  const auto found = table.recipes.find(key);
  if (found == table.recipes.end())
    return RK_NOT_REPLAYED;
  const Recipe& recipe = found->second;
  const rk_launch& l = recipe.launch;
  if (overlaps(tensors, count, l.written))
    return RK_NOT_REPLAYED;
  alignas(16) char block[kMostBytes];
  std::memcpy(block, recipe.block.data(), recipe.block.size());
  for (const Place& place : recipe.places) {
    const uint64_t at = address(tensors[place.tensor]) + static_cast<uint64_t>(place.delta);
    std::memcpy(block + place.offset, &at, sizeof at);
  }
  void* params[] = {block};
  const rk_queue queued = {l.launch, l.function, l.grid_x, l.grid_y,
                           l.grid_z, l.block,    l.lds,    reinterpret_cast<int64_t>(stream),
                           params};
  const int32_t code = rk_queue_launch(&queued);
  return code == 0 ? RK_REPLAYED : RK_NOT_REPLAYED; // the caller's own way tells what is wrong
}

} // namespace

int32_t rk_queue_launch(const rk_queue* q) {
  const auto launch = reinterpret_cast<Launch>(q->launch);
  const auto u = [](int64_t x) { return static_cast<unsigned>(x); };
  return launch(reinterpret_cast<void*>(q->function), u(q->grid_x), u(q->grid_y), u(q->grid_z), u(q->block),
                1, 1, u(q->lds), reinterpret_cast<void*>(q->stream), q->params, nullptr);
}

int64_t rk_replay_launch_size() { return sizeof(rk_launch); }

void* rk_replay_create(void* read) { return new Table{reinterpret_cast<Read>(read), {}}; }

void rk_replay_free(void* table) { delete static_cast<Table*>(table); }

void rk_replay_forget(void* table) { static_cast<Table*>(table)->recipes.clear(); }

int32_t rk_replay_learn(void* table, const rk_launch* launch, void* const* objects) {
  Table& to = *static_cast<Table*>(table);
  Tensor tensors[kMostTensors];
  std::string key;
  if (launch->tensors > kMostTensors || launch->block_bytes > kMostBytes ||
      !read_all(to, objects, launch->tensors, tensors) ||
      !make_key(key, launch->op, tensors, launch->tensors))
    return RK_NOT_REPLAYED;
  Recipe recipe{*launch, {}, {}};
  recipe.block.assign(launch->block_at, launch->block_at + launch->block_bytes);
  for (int64_t i = 0; i < launch->places; ++i) {
    const Place place = {launch->places_at[3 * i], launch->places_at[3 * i + 1],
                         launch->places_at[3 * i + 2]};
    uint64_t told;
    if (place.tensor < 0 || place.tensor >= launch->tensors || place.offset < 0 ||
        place.offset + static_cast<int64_t>(sizeof told) > launch->block_bytes)
      return RK_NOT_REPLAYED;
    std::memcpy(&told, recipe.block.data() + place.offset, sizeof told);
    // A converted copy was launched, not the caller's own tensor: nothing to repeat.
    if (told != address(tensors[place.tensor]) + static_cast<uint64_t>(place.delta))
      return RK_NOT_REPLAYED;
    recipe.places.push_back(place);
  }
  if (to.recipes.size() >= kMostRecipes)
    to.recipes.clear();
  to.recipes.insert_or_assign(key, std::move(recipe));
  return RK_REPLAYED;
}

#define RK_TABLE *static_cast<Table*>(table)

int32_t rk_replay_4(void* table, int64_t op, void* stream, void* a, void* b, void* c, void* d) {
  void* const objects[] = {a, b, c, d};
  return replay(RK_TABLE, op, stream, objects, 4);
}

int32_t rk_replay_6(void* table, int64_t op, void* stream, void* a, void* b, void* c, void* d, void* e,
                    void* f) {
  void* const objects[] = {a, b, c, d, e, f};
  return replay(RK_TABLE, op, stream, objects, 6);
}

int32_t rk_replay_7(void* table, int64_t op, void* stream, void* a, void* b, void* c, void* d, void* e,
                    void* f, void* g) {
  void* const objects[] = {a, b, c, d, e, f, g};
  return replay(RK_TABLE, op, stream, objects, 7);
}

int32_t rk_replay_8(void* table, int64_t op, void* stream, void* a, void* b, void* c, void* d, void* e,
                    void* f, void* g, void* h) {
  void* const objects[] = {a, b, c, d, e, f, g, h};
  return replay(RK_TABLE, op, stream, objects, 8);
}
