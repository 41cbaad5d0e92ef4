// The C ABI: handles around Program and Launch, with every exception turned into an error text.
#include "abi.h"

#include <cmath>
#include <cstring>
#include <exception>
#include <vector>

#include "decode/decode.hpp"
#include "group.hpp"
#include "launch.hpp"
#include "run.hpp"
#include "table.hpp"
#include "text.hpp"

struct emu_program {
  emu::Program program;
  std::vector<emu::u32> text;
};
struct emu_launch {
  const emu_program* program;
  emu::Memory memory;
  emu::Launch launch;
};

namespace {

using namespace emu;

int tell(char* error, size_t size, const std::string& what) {
  if (size) {
    std::strncpy(error, what.c_str(), size - 1);
    error[size - 1] = 0;
  }
  return 1;
}

Target target_of(int t) { return t == EMU_GFX950 ? Target::Gfx950 : Target::Gfx942; }

void apply(Launch& launch, const emu_config& c) {
  std::memcpy(launch.grid, c.grid, sizeof(launch.grid));
  std::memcpy(launch.block, c.block, sizeof(launch.block));
  Options& o = launch.options;
  o.checks = c.checks;
  o.schedule = static_cast<Schedule>(c.schedule);
  o.quantum = std::max(1u, c.quantum);
  o.seed = c.seed;
  o.resident = std::max(1u, c.resident);
  o.threads = std::max(1u, c.threads);
  o.step_limit = c.step_limit;
  o.max_reports = c.max_reports ? c.max_reports : o.max_reports;
}

} // namespace

extern "C" {

int emu_abi_version(void) { return EMU_ABI_VERSION; }

int emu_program_create(int target, const void* text, size_t bytes, int strict, emu_program** out, char* error,
                       size_t error_size) {
  try {
    auto p = new emu_program;
    p->text.resize(bytes / 4);
    std::memcpy(p->text.data(), text, bytes / 4 * 4);
    p->program = decode_text(p->text, target_of(target), strict);
    p->program.base = reinterpret_cast<u64>(text);
    *out = p;
    return 0;
  } catch (const DecodeError& e) {
    char where[32];
    std::snprintf(where, sizeof(where), "pc 0x%x: ", e.pc);
    return tell(error, error_size, where + e.what);
  } catch (const std::exception& e) {
    return tell(error, error_size, e.what());
  }
}
void emu_program_destroy(emu_program* p) { delete p; }
size_t emu_program_count(const emu_program* p) { return p->program.insts.size(); }

int emu_program_inst(const emu_program* p, size_t index, char* text, size_t text_size, uint32_t* pc,
                     uint32_t* size) {
  if (index >= p->program.insts.size())
    return 1;
  const Inst& i = p->program.insts[index];
  tell(text, text_size, text_of(i));
  *pc = i.pc;
  *size = i.size;
  return 0;
}

int emu_program_erase(emu_program* p, uint32_t pc) {
  i32 index = p->program.index_at(pc);
  if (index < 0)
    return 1;
  Inst nop = decode_one(std::vector<u32>{0xbf800000u}, 0, p->program.target); // s_nop 0
  Inst& old = p->program.insts[static_cast<size_t>(index)];
  nop.pc = old.pc;
  nop.size = old.size;
  nop.hazards.states = 0; // as if it were not there
  nop.next = old.next;
  old = nop;
  return 0;
}

int emu_table_row(size_t index, const char** mnemonic, int* format, int* opcode, int* target) {
  auto rows = all_ops();
  if (index >= rows.size())
    return 1;
  *mnemonic = rows[index].mnemonic;
  *format = static_cast<int>(rows[index].format);
  *opcode = rows[index].opcode;
  *target = static_cast<int>(rows[index].target);
  return 0;
}

int emu_table_types(size_t index, uint8_t types[7]) {
  auto rows = all_ops();
  if (index >= rows.size())
    return 1;
  const OpInfo& row = rows[index];
  types[0] = static_cast<u8>(row.dst);
  types[1] = static_cast<u8>(row.dst2);
  for (int k = 0; k < kSources; ++k)
    types[2 + k] = static_cast<u8>(row.src[k]);
  return 0;
}

int emu_launch_create(const emu_program* p, emu_launch** out) try {
  auto l = new emu_launch{p, {}, {}};
  l->launch.program = &p->program;
  l->launch.memory = &l->memory;
  *out = l;
  return 0;
} catch (const std::exception&) {
  return 1;
}
void emu_launch_destroy(emu_launch* l) { delete l; }

int emu_launch_add_range(emu_launch* l, const emu_range* r) try {
  Range range;
  range.begin = r->address;
  range.end = r->address + r->bytes;
  range.writable = r->writable;
  range.origin = r->origin ? r->origin : r->address;
  range.element = r->dims ? r->element : 0;
  range.sizes.assign(r->sizes, r->sizes + r->dims);
  range.strides.assign(r->strides, r->strides + r->dims);
  if (r->undefined)
    range.defined = sparse_bytes(r->bytes / 8 + 1);
  l->memory.add(std::move(range));
  return 0;
} catch (const std::exception&) { // no memory to remember what is defined
  return 1;
}

int emu_launch_run(emu_launch* l, const emu_config* c, char* error, size_t error_size) try {
  apply(l->launch, *c);
  if (u64{c->block[0]} * c->block[1] > kMaxItems ||
      u64{c->block[0]} * c->block[1] * c->block[2] - 1 >= kMaxItems)
    return tell(error, error_size, "a workgroup has 1 to " + std::to_string(kMaxItems) + " work items");
  i32 index = l->program->program.index_at(c->entry);
  if (index < 0) {
    const auto& bad = l->program->program.undecoded;
    auto why = bad.find(c->entry);
    return tell(error, error_size,
                "the entry is no instruction" + (why == bad.end() ? "" : ": " + why->second));
  }
  Entry entry{static_cast<u32>(index), c->kernarg,         c->dispatch_packet,
              c->user_sgprs,           c->kernarg_preload, c->workgroup_ids,
              c->workitem_ids,         c->lds_bytes,       c->scratch_bytes};
  l->memory.mark_arguments(c->kernarg);
  l->memory.mark_arguments(c->dispatch_packet);
  find_beyond(l->launch, {c->vgprs, c->accum_offset, c->sgprs});
  if (run_grid(l->launch, entry))
    return 0;
  return tell(error, error_size, l->launch.error);
} catch (const std::exception& e) {
  return tell(error, error_size, e.what());
}

size_t emu_launch_reports(const emu_launch* l, emu_report* out, size_t capacity) {
  const auto& reports = l->launch.reports;
  for (size_t k = 0; k < reports.size() && k < capacity; ++k) {
    const Report& r = reports[k];
    emu_report& o = out[k];
    o = {static_cast<u32>(r.check),
         static_cast<u32>(r.severity),
         r.pc,
         {r.group[0], r.group[1], r.group[2]},
         r.wave,
         r.lane,
         r.address,
         r.count,
         {}};
    std::memcpy(o.text, r.text, sizeof(o.text));
  }
  return reports.size();
}

void emu_launch_counters(const emu_launch* l, emu_counters* out) {
  static_assert(sizeof(emu_counters) == sizeof(Counters));
  std::memcpy(out, &l->launch.counters, sizeof(*out));
}

uint64_t emu_launch_steps(const emu_launch* l) { return l->launch.steps.load(); }
void emu_launch_stop(emu_launch* l) { l->launch.stop = true; }

void emu_launch_trace(emu_launch* l, emu_trace_fn f, void* user) {
  l->launch.trace = [f, user](const Wave& w, const Inst& i, u64 exec) {
    const u32* g = w.group->id;
    emu_trace t{{g[0], g[1], g[2]}, w.number, i.pc, 0, i.dst.index, i.dst.count, exec, nullptr};
    if (i.dst.kind == Kind::Vector)
      t.kind = 1, t.values = w.v[i.dst.index];
    if (i.dst.kind == Kind::Scalar)
      t.kind = 2, t.values = w.s + i.dst.index;
    f(user, &t);
  };
}

uint64_t emu_yardstick(uint64_t iterations) {
  alignas(64) static thread_local f32 a[kLanes], b[kLanes], c[kLanes];
  for (uint64_t k = 0; k < iterations; ++k) {
    for (int l = 0; l < kLanes; ++l)
      c[l] = std::fma(a[l], b[l], c[l]);
    __asm__ volatile("" : : "r"(c) : "memory"); // keep every iteration
  }
  return iterations;
}

} // extern "C"
