// The guard, made of the Itanium C++ ABI alone: no try and no catch.
//
// A catch clause of ours would belong to the C++ library that our compiler linked into us, while the
// exception is one of libstdc++, thrown by the system's unwinder. A second unwinder, even one of the same
// project, reads the context of the first as its own. So a frame of a few instructions stands between: its
// personality routine, which any unwinder calls with the same arguments, accepts every exception and jumps
// out.
#include "guard.hpp"

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <type_traits>

#ifdef __x86_64__ // the one machine that AITER's libraries exist for

namespace {

// What every exception begins with.
struct Exception {
  uint64_t kind;
  void (*cleanup)(int reason, Exception*);
  uint64_t of_unwinder[2];
};
constexpr uint64_t kGnuCxx = 0x474e5543432b2b00; // "GNUCC++": the object follows
constexpr uint64_t kGnuCxxAgain = kGnuCxx | 1;   // thrown by std::rethrow_exception: the object is elsewhere
constexpr int kCaughtElsewhere = 1;              // _URC_FOREIGN_EXCEPTION_CAUGHT

// Actions and answers of a personality routine.
constexpr int kSearchPhase = 1, kHandlerFrame = 4, kForcedUnwind = 8;
constexpr int kHandlerFound = 6, kContinueUnwind = 8;

struct Guard {
  jmp_buf back;
  Exception* caught;
  Guard* outer;
};
thread_local Guard* innermost = nullptr;

// std::type_info, and the class derived from it that describes a class with one base at offset 0.
struct TypeInfo {
  void** table;
  const char* name; // mangled
};
struct OneBase : TypeInfo {
  const TypeInfo* base;
};

// Functions of the libstdc++ that the thrower uses.
struct Runtime {
  void* (*begin_catch)(Exception*);
  void (*end_catch)();
  TypeInfo* (*current_type)();
  char* (*demangle)(const char* name, char*, size_t*, int* status);
  void** one_base_table; // the virtual table of OneBase, from its header on

  bool load() {
    void* library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr)
      return false;
    const auto find = [&](auto& to, const char* name) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
    };
    find(begin_catch, "__cxa_begin_catch");
    find(end_catch, "__cxa_end_catch");
    find(current_type, "__cxa_current_exception_type");
    find(demangle, "__cxa_demangle");
    find(one_base_table, "_ZTVN10__cxxabiv120__si_class_type_infoE");
    return begin_catch && end_catch && current_type && demangle && one_base_table;
  }
};

// Whether a type is std::exception, or derives from it without a second base anywhere on the way.
bool is_std_exception(const TypeInfo* type, void** one_base_table) {
  while (std::strcmp(type->name, "St9exception") != 0) {
    if (type->table != one_base_table + 2)
      return false;
    type = static_cast<const OneBase*>(type)->base;
  }
  return true;
}

// Names the exception, and destroys it.
void describe(Exception* exception, const rocade::aiter::Text& text) {
  Runtime runtime;
  if ((exception->kind != kGnuCxx && exception->kind != kGnuCxxAgain) || !runtime.load()) {
    text.write("an exception that is not one of libstdc++");
    if (exception->cleanup != nullptr)
      exception->cleanup(kCaughtElsewhere, exception);
    return;
  }
  runtime.begin_catch(exception);
  const TypeInfo* type = runtime.current_type();
  int status = 0;
  const char* mangled = type->name + (*type->name == '*'); // which says that no other library means it
  char* name = runtime.demangle(mangled, nullptr, nullptr, &status);
  const char* what = "";
  if (exception->kind == kGnuCxx && is_std_exception(type, runtime.one_base_table)) {
    void* object = exception + 1;
    void** table = *static_cast<void***>(object);
    what = reinterpret_cast<const char* (*)(void*)>(table[2])(object); // after the two destructors
  }
  text.write("%s%s%s", name != nullptr ? name : mangled, *what ? ": " : "", what);
  std::free(name);
  runtime.end_catch();
}

} // namespace

extern "C" {

// Calls body(context) from a frame that accepts every exception.
__attribute__((visibility("hidden"))) void rk_aiter_frame(void (*body)(void*), void* context);

__attribute__((visibility("hidden"))) int rk_aiter_personality(int, int actions, uint64_t,
                                                               Exception* exception, void*) {
  if (actions & kForcedUnwind) // the thread is being cancelled
    return kContinueUnwind;
  if (actions & kSearchPhase)
    return kHandlerFound;
  if (!(actions & kHandlerFrame))
    return kContinueUnwind;
  // Second phase: every frame below has been cleaned up, and the unwinder holds nothing that needs it.
  innermost->caught = exception;
  _longjmp(innermost->back, 1);
}
}

asm(R"(
.text
.p2align 4
.globl rk_aiter_frame
.hidden rk_aiter_frame
.type rk_aiter_frame, @function
rk_aiter_frame:
  .cfi_startproc
  .cfi_personality 0x1b, rk_aiter_personality
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov %rdi, %rax
  mov %rsi, %rdi
  call *%rax
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
.size rk_aiter_frame, .-rk_aiter_frame
)");

bool rocade::aiter::run_guarded(void (*body)(void* context), void* context, const Text& text) {
  Guard guard;
  guard.caught = nullptr;
  guard.outer = innermost;
  innermost = &guard;
  if (_setjmp(guard.back) == 0)
    rk_aiter_frame(body, context);
  Guard* mine = innermost; // what changed since _setjmp is read from memory that it knows nothing of
  innermost = mine->outer;
  if (mine->caught == nullptr)
    return true;
  describe(mine->caught, text);
  return false;
}

#else

bool rocade::aiter::run_guarded(void (*body)(void* context), void* context, const Text&) {
  body(context);
  return true;
}

#endif
