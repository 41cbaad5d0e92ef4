// Opens AITER's libraries and calls their functions in the layout of their version.
#include "rocade_aiter.h"

#include "fill.hpp"
#include "guard.hpp"
#include "mha_batch_prefill_0_1_10.hpp"
#include "mha_batch_prefill_0_1_11.hpp"
#include "mha_batch_prefill_0_1_7.hpp"
#include "mha_fwd_0_1_10.hpp"
#include "mha_fwd_0_1_10_post1.hpp"
#include "mha_fwd_0_1_7.hpp"

#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace {
using namespace rocade::aiter;

// One call while it is made.
template <typename Version> struct Call {
  typename Version::Function function;
  const rk_aiter_call& call;
  typename Version::Args args;
  StreamConfig stream;
  float result;
};

template <typename Version> void make(void* context) {
  auto& c = *static_cast<Call<Version>*>(context);
  c.result = Version::call(c.function, c.args, c.stream, c.call);
}

// What a version's arguments cannot say; null when they can.
template <typename Version> const char* not_expressible(const rk_aiter_call& call) {
  if constexpr (requires(typename Version::Args a) { a.num_total_pages; })
    if constexpr (!requires(typename Version::Args a) { a.page_block_size; })
      if (call.page_size != 1)
        return "this version of AITER has pages of one token only";
  return nullptr;
}

template <typename Version> int32_t run(void* function, const rk_aiter_call& call, const Text& text) {
  if (const char* why = not_expressible<Version>(call)) {
    text.write("%s", why);
    return RK_AITER_NOT_EXPRESSIBLE;
  }
  Call<Version> c{
      reinterpret_cast<typename Version::Function>(function), call, {}, {pointer(call.stream)}, 0};
  Narrow narrow;
  if constexpr (requires { c.args.num_total_pages; })
    fill_paged(c.args, call, narrow);
  else
    fill_forward(c.args, call, narrow);
  if (narrow.name() != nullptr) {
    text.write("%s is %lld, which AITER's 32 bits do not hold", narrow.name(),
               static_cast<long long>(narrow.value()));
    return RK_AITER_NOT_EXPRESSIBLE;
  }
  if (!run_guarded(make<Version>, &c, text))
    return RK_AITER_THREW;
  return c.result >= 0 ? RK_AITER_OK : RK_AITER_NO_KERNEL; // it is a time; below 0 nothing was launched
}

struct Layout {
  const char* name;
  int64_t bytes;
  int32_t (*run)(void* function, const rk_aiter_call&, const Text&);
};
template <typename Version>
constexpr Layout kLayout{Version::kName, sizeof(typename Version::Args), run<Version>};
constexpr Layout kLayouts[] = {
    kLayout<MhaFwd_0_1_7>,          kLayout<MhaFwd_0_1_10>,          kLayout<MhaFwd_0_1_10_post1>,
    kLayout<MhaBatchPrefill_0_1_7>, kLayout<MhaBatchPrefill_0_1_10>, kLayout<MhaBatchPrefill_0_1_11>,
};

const Layout* find_layout(const char* name) {
  for (const Layout& layout : kLayouts)
    if (std::strcmp(layout.name, name) == 0)
      return &layout;
  return nullptr;
}

// A function of an open library. Never closed: its kernels may be running.
struct Loaded {
  void* function;
  const Layout* layout;
};

std::mutex opening;
std::map<std::string, std::unique_ptr<Loaded>> opened; // by path, symbol and layout

int32_t open_new(const char* path, const char* symbol, const Layout* layout, std::unique_ptr<Loaded>& loaded,
                 const Text& text) {
  // Local, since all libraries of a family export the same symbol. Lazy, since functions that we do not call
  // may need another torch than the one in this process.
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    text.write("%s", dlerror());
    return RK_AITER_NOT_LOADED;
  }
  void* function = dlsym(library, symbol);
  if (function == nullptr) {
    text.write("it does not export %s", symbol);
    dlclose(library);
    return RK_AITER_NOT_LOADED;
  }
  loaded.reset(new Loaded{function, layout});
  return RK_AITER_OK;
}

} // namespace

int64_t rk_aiter_call_size() { return sizeof(rk_aiter_call); }

int64_t rk_aiter_layout_size(const char* layout) {
  const Layout* found = find_layout(layout);
  return found != nullptr ? found->bytes : 0;
}

int32_t rk_aiter_open(const char* path, const char* symbol, const char* layout, int64_t* handle, char* text,
                      int64_t text_bytes) {
  const Layout* found = find_layout(layout);
  if (found == nullptr) {
    Text{text, text_bytes}.write("there is no layout %s", layout);
    return RK_AITER_NOT_LOADED;
  }
  const std::string key = std::string(path) + '\n' + symbol + '\n' + layout;
  const std::lock_guard<std::mutex> hold(opening);
  std::unique_ptr<Loaded>& loaded = opened[key];
  if (loaded == nullptr)
    if (const int32_t status = open_new(path, symbol, found, loaded, {text, text_bytes}))
      return status;
  *handle = reinterpret_cast<int64_t>(loaded.get());
  return RK_AITER_OK;
}

int32_t rk_aiter_run(int64_t handle, const rk_aiter_call* call, char* text, int64_t text_bytes) {
  const auto* loaded = reinterpret_cast<const Loaded*>(handle);
  return loaded->layout->run(loaded->function, *call, {text, text_bytes});
}
