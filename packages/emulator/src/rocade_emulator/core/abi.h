// The C ABI of the emulator core.
/* Everything is plain data; strings are UTF-8 and owned by the handle they came from.
 * A function that can fail returns 0 on success and fills `error` (truncated to `error_size`) otherwise. */
#ifndef ROCADE_EMULATOR_ABI_H
#define ROCADE_EMULATOR_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define EMU_ABI_VERSION 4

enum { EMU_GFX942 = 0, EMU_GFX950 = 1 };

typedef struct emu_program emu_program;
typedef struct emu_launch emu_launch;

int emu_abi_version(void);

/* Decode a text section. `text` stays where it is until the program is destroyed: pc-relative code computes
 * with its address, and may reach data that a loader put beside it. With `strict` nonzero the whole section
 * must decode; else undecodable words are errors only when a wave runs into them. */
int emu_program_create(int target, const void* text, size_t bytes, int strict, emu_program** out, char* error,
                       size_t error_size);
void emu_program_destroy(emu_program*);
size_t emu_program_count(const emu_program*);
/* Text of instruction `index` ("v_add_f32 v1, v2, v3"), its byte offset and its size. */
int emu_program_inst(const emu_program*, size_t index, char* text, size_t text_size, uint32_t* pc,
                     uint32_t* size);
/* Replace the instruction at byte offset `pc` by s_nop 0 words (fault injection). */
int emu_program_erase(emu_program*, uint32_t pc);

/* The instruction table, for tests and documents. Returns 0 past the end. */
int emu_table_row(size_t index, const char** mnemonic, int* format, int* opcode, int* target);
/* Operand types of a row of the table as numbers of `Type` (inst.hpp): dst, dst2 and five sources. */
int emu_table_types(size_t index, uint8_t types[7]);

typedef struct emu_range {
  uint64_t address, bytes;
  uint32_t writable, undefined;
  uint32_t element,
      dims; /* strided view: element size in bytes and dims by falling stride; 0 dims = all bytes */
  uint64_t sizes[8], strides[8];
  uint64_t origin; /* start of the allocation that it is part of, 0: of its own. Taken as aligned like a
                      GPU's, whatever its address here is */
} emu_range;

typedef struct emu_config {
  uint32_t grid[3], block[3]; /* workgroups, and work items in one */
  uint64_t kernarg; /* address of the kernel argument block; its range is registered by the caller */
  uint32_t entry;   /* byte offset of the first instruction */
  uint32_t lds_bytes;
  uint32_t scratch_bytes;              /* private memory of one lane */
  uint32_t vgprs, sgprs, accum_offset; /* as allocated; what is beyond is reported (0 vgprs: nothing).
                                          accum_offset 0: no AGPRs */
  /* User SGPRs in hardware order; a bit each: dispatch_ptr, queue_ptr, kernarg_ptr, dispatch_id,
   * private_segment_size. */
  uint32_t user_sgprs;      /* EMU_SGPR_* bits */
  uint32_t kernarg_preload; /* dwords preloaded after them */
  uint32_t workgroup_ids;   /* bits x, y, z */
  uint32_t workitem_ids;    /* 0: x, 1: x y, 2: x y z, packed in v0 by 10 bits */
  uint64_t dispatch_packet; /* address given as dispatch_ptr */
  uint32_t checks;          /* EMU_CHECK_* bits */
  uint32_t schedule;        /* 0 round robin, 1 run to barrier, 2 seeded random */
  uint32_t quantum;
  uint64_t seed;
  uint32_t resident, threads;
  uint64_t step_limit;
  uint32_t max_reports;
} emu_config;

enum {
  EMU_SGPR_DISPATCH_PTR = 1,
  EMU_SGPR_QUEUE_PTR = 2,
  EMU_SGPR_KERNARG_PTR = 4,
  EMU_SGPR_DISPATCH_ID = 8,
  EMU_SGPR_PRIVATE_SIZE = 16
};
enum {
  EMU_CHECK_WAITS = 1,
  EMU_CHECK_RACES = 2,
  EMU_CHECK_BOUNDS = 4,
  EMU_CHECK_UNINITIALISED = 8,
  EMU_CHECK_HAZARDS = 16,
  EMU_CHECK_ALIGNMENT = 32
};

typedef struct emu_report {
  uint32_t check, severity; /* severity 0 info, 1 error */
  uint32_t pc;
  uint32_t group[3];
  uint32_t wave;
  int32_t lane;
  uint64_t address;
  uint64_t count;
  char text[160];
} emu_report;

typedef struct emu_counters {
  uint64_t instructions;
  uint64_t by_unit[10]; /* salu smem valu trans mfma lds vmem branch message other */
  uint64_t mfma_cycles, valu_cycles, trans_cycles, salu_cycles;
  uint64_t lds_cycles, lds_ideal_cycles;
  uint64_t bytes_read, bytes_written, bytes_arguments;
  uint64_t cache_lines, cache_lines_ideal;
  uint64_t waves, groups;
} emu_counters;

int emu_launch_create(const emu_program*, emu_launch** out);
void emu_launch_destroy(emu_launch*);
int emu_launch_add_range(emu_launch*, const emu_range*);
/* Runs to the end. Returns 0 when every wave reached s_endpgm, 1 when the run stopped (error says why:
 * unknown instruction, step limit, deadlock with each wave's pc). Reports and counters are valid in both
 * cases. */
int emu_launch_run(emu_launch*, const emu_config*, char* error, size_t error_size);
size_t emu_launch_reports(const emu_launch*, emu_report* out, size_t capacity);
void emu_launch_counters(const emu_launch*, emu_counters* out);
/* Instructions executed so far, from another thread (progress). */
uint64_t emu_launch_steps(const emu_launch*);
/* Ends a run early, from another thread. */
void emu_launch_stop(emu_launch*);

/* One executed instruction and what it left in its destination: `count` registers from `first` on, vector
 * ones
 * (`kind` 1) as rows of 64 lanes, scalar ones (`kind` 2) as words; `kind` 0 is none. A load's data is shown
 * already. */
typedef struct emu_trace {
  uint32_t group[3], wave, pc;
  uint32_t kind, first, count;
  uint64_t exec; /* before the instruction */
  const uint32_t* values;
} emu_trace;
typedef void (*emu_trace_fn)(void* user, const emu_trace*);
/* Called after every instruction of the next run, from whichever thread ran it. */
void emu_launch_trace(emu_launch*, emu_trace_fn, void* user);

/* A plain loop of 64-lane fused multiply-adds, the yardstick of speed figures: returns operations done. */
uint64_t emu_yardstick(uint64_t iterations);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
