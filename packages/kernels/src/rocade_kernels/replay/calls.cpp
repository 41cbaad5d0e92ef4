// Repeats a call that makes several launches, one after another, with two numbers that change from call to
// call. What is learned belongs to one owner, a plan, and goes away with it.
#include <cmath>
#include <vector>

#include "tensors.hpp"

namespace {

using namespace rk;

// Layouts that one owner may meet: its layers mostly have one and the same.
constexpr size_t kMostLayouts = 8;

struct Step {
  rk_step made;
  std::vector<char> block;
  std::vector<Place> places;
};

struct Recipe {
  std::string key;
  int64_t written;
  std::vector<Step> steps;
};

struct Calls {
  Read read;
  std::vector<Recipe> recipes;
};

void put_float(char* block, int64_t at, float value) {
  if (at >= 0)
    std::memcpy(block + at, &value, sizeof value);
}

bool is_float_place(int64_t at, int64_t bytes) {
  return at == -1 || (at >= 0 && at + static_cast<int64_t>(sizeof(float)) <= bytes);
}

int32_t queue(const Step& step, const Tensor* tensors, void* stream, float scale, float out_scale) {
  const rk_launch& l = step.made.launch;
  alignas(16) char block[kMostBytes];
  std::memcpy(block, step.block.data(), step.block.size());
  for (const Place& place : step.places) {
    const uint64_t at = address(place, tensors);
    std::memcpy(block + place.offset, &at, sizeof at);
  }
  put_float(block, step.made.scale_at, scale);
  put_float(block, step.made.out_scale_at, out_scale);
  void* params[] = {block};
  const rk_queue queued = {l.launch, l.function, l.grid_x, l.grid_y,
                           l.grid_z, l.block,    l.lds,    reinterpret_cast<int64_t>(stream),
                           params,   l.early};
  return rk_queue_launch(&queued);
}

int32_t repeat(const Calls& calls, void* stream, double scale, double out_scale, void* const* objects,
               int64_t count) {
  Tensor tensors[kMostTensors];
  thread_local std::string key; // its memory serves every call of this thread
  key.clear();
  const float scales[] = {static_cast<float>(scale), static_cast<float>(out_scale)};
  if (!std::isfinite(scales[0]) || !std::isfinite(scales[1]) ||
      !read_all(calls.read, objects, count, tensors) || !add_layouts(key, tensors, count))
    return RK_NOT_REPLAYED;
  for (const Recipe& recipe : calls.recipes) {
    if (recipe.key != key)
      continue;
    if (overlaps(tensors, count, recipe.written))
      return RK_NOT_REPLAYED;
    // A launch that fails leaves the whole call to the caller's own way, which makes it again from the start.
    for (const Step& step : recipe.steps)
      if (queue(step, tensors, stream, scales[0], scales[1]) != 0)
        return RK_NOT_REPLAYED;
    return RK_REPLAYED;
  }
  return RK_NOT_REPLAYED;
}

} // namespace

int64_t rk_calls_step_size() { return sizeof(rk_step); }

void* rk_calls_create(void* read) { return new Calls{reinterpret_cast<Read>(read), {}}; }

void rk_calls_free(void* calls) { delete static_cast<Calls*>(calls); }

int32_t rk_calls_learn(void* calls, const rk_step* steps, int64_t count, void* const* objects) {
  Calls& to = *static_cast<Calls*>(calls);
  Tensor tensors[kMostTensors];
  Recipe recipe;
  if (count < 1 || to.recipes.size() >= kMostLayouts)
    return RK_NOT_REPLAYED;
  const int64_t number = steps[0].launch.tensors;
  recipe.written = steps[0].launch.written;
  if (number < 1 || number > kMostTensors || !read_all(to.read, objects, number, tensors) ||
      !add_layouts(recipe.key, tensors, number))
    return RK_NOT_REPLAYED;
  for (int64_t i = 0; i < count; ++i) {
    const rk_step& made = steps[i];
    const rk_launch& l = made.launch;
    if (l.tensors != number || l.block_bytes > kMostBytes || !is_float_place(made.scale_at, l.block_bytes) ||
        !is_float_place(made.out_scale_at, l.block_bytes) || !holds(l, tensors))
      return RK_NOT_REPLAYED;
    Step step{made, {l.block_at, l.block_at + l.block_bytes}, {}};
    for (int64_t p = 0; p < l.places; ++p)
      step.places.push_back({l.places_at[3 * p], l.places_at[3 * p + 1], l.places_at[3 * p + 2]});
    recipe.steps.push_back(std::move(step));
  }
  for (const Recipe& known : to.recipes)
    if (known.key == recipe.key)
      return RK_NOT_REPLAYED; // it was not repeated for another reason, such as memory that is shared
  to.recipes.push_back(std::move(recipe));
  return RK_REPLAYED;
}

#define RK_CALLS *static_cast<const Calls*>(calls), stream, scale, out_scale

int32_t rk_calls_3(void* calls, void* stream, double scale, double out_scale, void* a, void* b, void* c) {
  void* const objects[] = {a, b, c};
  return repeat(RK_CALLS, objects, 3);
}

int32_t rk_calls_4(void* calls, void* stream, double scale, double out_scale, void* a, void* b, void* c,
                   void* d) {
  void* const objects[] = {a, b, c, d};
  return repeat(RK_CALLS, objects, 4);
}

int32_t rk_calls_5(void* calls, void* stream, double scale, double out_scale, void* a, void* b, void* c,
                   void* d, void* e) {
  void* const objects[] = {a, b, c, d, e};
  return repeat(RK_CALLS, objects, 5);
}

int32_t rk_calls_6(void* calls, void* stream, double scale, double out_scale, void* a, void* b, void* c,
                   void* d, void* e, void* f) {
  void* const objects[] = {a, b, c, d, e, f};
  return repeat(RK_CALLS, objects, 6);
}

int32_t rk_calls_7(void* calls, void* stream, double scale, double out_scale, void* a, void* b, void* c,
                   void* d, void* e, void* f, void* g) {
  void* const objects[] = {a, b, c, d, e, f, g};
  return repeat(RK_CALLS, objects, 7);
}
