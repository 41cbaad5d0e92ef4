// The C ABI of launch replay: GPU launches that Python made once, made again by one native call.
//
// It lies in the same library as the CPU kernels and shares nothing with them. Structs hold only 8-byte
// fields.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RK_API
#define RK_API __attribute__((visibility("default")))
#endif

enum rk_replay_status { RK_REPLAYED = 0, RK_NOT_REPLAYED = 1 };

// A launch as it was made for a call's tensors.
typedef struct rk_launch {
  int64_t op;       // the caller's number for the kind of call
  int64_t function; // the driver's handle of the kernel
  int64_t launch;   // address of cuLaunchKernel or hipModuleLaunchKernel
  int64_t early;    // as in rk_queue
  int64_t grid_x, grid_y, grid_z, block, lds;
  const char* block_at; // the argument block
  int64_t block_bytes;
  const int64_t* places_at; // [places][3]: byte of the block, tensor, bytes added to its address
  int64_t places;
  int64_t tensors;
  int64_t written; // bit i: tensor i is written, so it must not share memory with another one
} rk_launch;

// A launch of a call that makes several, whose numbers change from call to call.
typedef struct rk_step {
  rk_launch launch;     // `op` is not used; all steps of a call have its tensors, and what is written of them
  int64_t scale_at;     // byte of the block where the call's scale stands as a float; -1: nowhere
  int64_t out_scale_at; // the same of its second number
} rk_step;

// One launch with everything it needs, for a caller to whom passing eleven arguments is dear.
typedef struct rk_queue {
  int64_t launch;   // address of cuLaunchKernel or hipModuleLaunchKernel
  int64_t function; // the driver's handle of the kernel
  int64_t grid_x, grid_y, grid_z, block, lds;
  int64_t stream; // the driver's handle
  void** params;
  int64_t early; // address of cuLaunchKernelEx: it may start before what is in front of it has ended; 0: not
} rk_queue;

RK_API int32_t rk_queue_launch(const rk_queue* launch); // what the driver returns

RK_API int64_t rk_replay_launch_size(void); // of rk_launch, for callers to compare

// `read` is dltensor_from_py_object_no_sync of DLPack's exchange table. A table belongs to the threads that
// hold Python's lock. Objects are Python tensors; stream is the driver's handle.
RK_API void* rk_replay_create(void* read);
RK_API void rk_replay_free(void* table);
RK_API void rk_replay_forget(void* table);
RK_API int32_t rk_replay_learn(void* table, const rk_launch* launch, void* const* objects);
RK_API int32_t rk_replay_4(void* table, int64_t op, void* stream, void*, void*, void*, void*);
RK_API int32_t rk_replay_6(void* table, int64_t op, void* stream, void*, void*, void*, void*, void*, void*);
RK_API int32_t rk_replay_7(void* table, int64_t op, void* stream, void*, void*, void*, void*, void*, void*,
                           void*);
RK_API int32_t rk_replay_8(void* table, int64_t op, void* stream, void*, void*, void*, void*, void*, void*,
                           void*, void*);

// The calls of one owner. Learning fails when it knows as many layouts as it keeps.
RK_API int64_t rk_calls_step_size(void); // of rk_step, for callers to compare
RK_API void* rk_calls_create(void* read);
RK_API void rk_calls_free(void* calls);
RK_API int32_t rk_calls_learn(void* calls, const rk_step* steps, int64_t count, void* const* objects);
RK_API int32_t rk_calls_3(void* calls, void* stream, double scale, double out_scale, void*, void*, void*);
RK_API int32_t rk_calls_4(void* calls, void* stream, double scale, double out_scale, void*, void*, void*,
                          void*);
RK_API int32_t rk_calls_5(void* calls, void* stream, double scale, double out_scale, void*, void*, void*,
                          void*, void*);
RK_API int32_t rk_calls_6(void* calls, void* stream, double scale, double out_scale, void*, void*, void*,
                          void*, void*, void*);
RK_API int32_t rk_calls_7(void* calls, void* stream, double scale, double out_scale, void*, void*, void*,
                          void*, void*, void*, void*);

#ifdef __cplusplus
}
#endif
