// Repeats launches of GPU kernels. Once a call has been checked and launched from Python, calls with tensors
// of the same layout need no more than their addresses written into a copy of the argument block.
//
// Tensors come as Python objects. They are read through DLPack's exchange table, a C interface of the tensor
// library, so nothing here is compiled against Python or that library. Callers hold Python's lock.
#include <unordered_map>
#include <vector>

#include "tensors.hpp"

namespace {

using namespace rk;

constexpr size_t kMostRecipes = 4096;

struct Recipe {
  rk_launch launch;
  std::vector<char> block;
  std::vector<Place> places;
};

struct Table {
  Read read;
  std::unordered_map<std::string, Recipe> recipes;
};

bool make_key(std::string& key, int64_t op, const Tensor* tensors, int64_t count) {
  put(key, &op, sizeof op);
  return add_layouts(key, tensors, count);
}

int32_t replay(Table& table, int64_t op, void* stream, void* const* objects, int64_t count) {
  Tensor tensors[kMostTensors];
  thread_local std::string key; // its memory serves every call of this thread
  key.clear();
  if (!read_all(table.read, objects, count, tensors) || !make_key(key, op, tensors, count))
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
    const uint64_t at = address(place, tensors);
    std::memcpy(block + place.offset, &at, sizeof at);
  }
  void* params[] = {block};
  const rk_queue queued = {l.launch, l.function, l.grid_x, l.grid_y,
                           l.grid_z, l.block,    l.lds,    reinterpret_cast<int64_t>(stream),
                           params,   l.early};
  const int32_t code = rk_queue_launch(&queued);
  return code == 0 ? RK_REPLAYED : RK_NOT_REPLAYED; // the caller's own way tells what is wrong
}

} // namespace

int64_t rk_replay_launch_size() { return sizeof(rk_launch); }

void* rk_replay_create(void* read) { return new Table{reinterpret_cast<Read>(read), {}}; }

void rk_replay_free(void* table) { delete static_cast<Table*>(table); }

void rk_replay_forget(void* table) { static_cast<Table*>(table)->recipes.clear(); }

int32_t rk_replay_learn(void* table, const rk_launch* launch, void* const* objects) {
  Table& to = *static_cast<Table*>(table);
  Tensor tensors[kMostTensors];
  std::string key;
  if (launch->tensors > kMostTensors || launch->block_bytes > kMostBytes ||
      !read_all(to.read, objects, launch->tensors, tensors) ||
      !make_key(key, launch->op, tensors, launch->tensors))
    return RK_NOT_REPLAYED;
  if (!holds(*launch, tensors))
    return RK_NOT_REPLAYED;
  Recipe recipe{*launch, {}, {}};
  recipe.block.assign(launch->block_at, launch->block_at + launch->block_bytes);
  for (int64_t i = 0; i < launch->places; ++i) {
    const int64_t* at = launch->places_at + 3 * i;
    recipe.places.push_back({at[0], at[1], at[2]});
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
