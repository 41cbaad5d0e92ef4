// Stands for libcuda and libamdhip64 in tests: does nothing on a device, and writes down every call.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace {
std::mutex lock;
std::string calls;             // one line a call
std::string fail_name;         // this function fails ...
int fail_code = 0;             // ... with this code ...
int fail_times = 0;            // ... so often
bool recording = true;         // off while launches are timed
thread_local int current = 0;  // HIP device, or 1 + CUDA device of the context
unsigned char block[4096];     // what the last launch's argument pointed to
unsigned char config[56 + 72]; // the last launch's CUlaunchConfig, and the attribute that it points to
int devices = 2;
thread_local int capture_mode = 0; // global, as in every new thread
int version = 12080;               // of CUDA

int enter(const char* name, const std::string& rest) {
  if (!recording)
    return 0;
  std::lock_guard<std::mutex> hold(lock);
  calls += std::string(name) + " " + rest + "\n";
  if (fail_times > 0 && fail_name == name) {
    --fail_times;
    return fail_code;
  }
  return 0;
}

std::string number(long long value) { return std::to_string(value); }

int launch(const char* name, void* handle, const unsigned* size, void* stream, void** params, void** extra) {
  if (recording) {
    std::memcpy(block, params[0], 32);
    char text[200];
    std::snprintf(
        text, sizeof text, "%llx grid %u %u %u block %u %u %u lds %u stream %llx extra %d current %d",
        static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(handle)), size[0], size[1], size[2],
        size[3], size[4], size[5], size[6],
        static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(stream)), extra != nullptr, current);
    return enter(name, text);
  }
  return 0;
}
} // namespace

#define API extern "C" __attribute__((visibility("default")))

API const char* stub_calls() { return calls.c_str(); }
API void stub_reset() {
  calls.clear();
  fail_times = 0;
  recording = true;
  devices = 2;
  version = 12080;
}
API void stub_fail(const char* name, int code, int times) {
  fail_name = name;
  fail_code = code;
  fail_times = times;
}
API void stub_record(int on) { recording = on; }
API void stub_devices(int count) { devices = count; }
API void stub_version(int value) { version = value; }
API void stub_current(int value) { current = value; }
API const unsigned char* stub_config() { return config; }
API const unsigned char* stub_block() { return block; }

#ifdef STUB_CUDA
#define EXCHANGE cuThreadExchangeStreamCaptureMode
#else
#define EXCHANGE hipThreadExchangeStreamCaptureMode
#endif
API int EXCHANGE(int* mode) {
  const int given = *mode;
  const int code = enter("ThreadExchangeStreamCaptureMode", number(given));
  if (code)
    return code;
  *mode = capture_mode;
  capture_mode = given;
  return 0;
}

#ifdef STUB_CUDA
API int cuInit(unsigned flags) { return enter("cuInit", number(flags)); }
API int cuGetErrorName(int code, const char** text) {
  *text = code == 218 ? "CUDA_ERROR_INVALID_PTX" : code == 1 ? "CUDA_ERROR_INVALID_VALUE" : nullptr;
  return *text ? 0 : 1;
}
API int cuGetErrorString(int code, const char** text) {
  *text = code == 218 ? "a PTX JIT compilation failed" : code == 1 ? "invalid argument" : nullptr;
  return *text ? 0 : 1;
}
API int cuDriverGetVersion(int* value) { return *value = version, 0; }
API int cuDeviceGetCount(int* count) { return *count = devices, 0; }
API int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 10;
  return ordinal < devices ? enter("cuDeviceGet", number(ordinal)) : 101;
}
API int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Stub %d", device);
  return 0;
}
API int cuDeviceGetAttribute(int* value, int number, int) { return *value = 1000 + number, 0; }
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(0xc000 + device));
  return enter("cuDevicePrimaryCtxRetain", number(device));
}
API int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(current));
  return 0;
}
API int cuCtxSetCurrent(void* context) {
  current = static_cast<int>(reinterpret_cast<uintptr_t>(context));
  return enter("cuCtxSetCurrent", number(current));
}
API int cuCtxPushCurrent_v2(void* context) {
  return enter("cuCtxPushCurrent", number(static_cast<long long>(reinterpret_cast<uintptr_t>(context))));
}
API int cuCtxPopCurrent_v2(void** context) { return *context = nullptr, enter("cuCtxPopCurrent", ""); }
API int cuModuleLoadDataEx(void** module, const char* image, unsigned count, const int* options,
                           void** values) {
  *module = reinterpret_cast<void*>(0x1000);
  const int code = enter("cuModuleLoadDataEx", image);
  if (code && count == 2 && options[0] == 5 && options[1] == 6)
    std::snprintf(static_cast<char*>(values[0]), reinterpret_cast<uintptr_t>(values[1]),
                  "ptxas: line 3 is wrong");
  return code;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(module) + 0xf);
  return enter("cuModuleGetFunction", name);
}
API int cuFuncSetAttribute(void*, int attribute, int value) {
  return enter("cuFuncSetAttribute", number(attribute) + " " + number(value));
}
API int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned lds, void* stream, void** params, void** extra) {
  const unsigned size[] = {gx, gy, gz, bx, by, bz, lds};
  return launch("cuLaunchKernel", f, size, stream, params, extra);
}
#ifndef STUB_OLD
API int cuLaunchKernelEx(const unsigned char* given, void* f, void** params, void** extra) {
  unsigned size[7];
  void *stream, *attributes;
  std::memcpy(size, given, sizeof size);
  std::memcpy(&stream, given + 32, sizeof stream);
  std::memcpy(&attributes, given + 40, sizeof attributes);
  std::memcpy(config, given, 56);
  std::memcpy(config + 56, attributes, 72);
  return launch("cuLaunchKernelEx", f, size, stream, params, extra);
}
#endif
#else
API int hipInit(unsigned flags) { return enter("hipInit", number(flags)); }
API const char* hipGetErrorName(int code) { return code == 209 ? "hipErrorNoBinaryForGpu" : nullptr; }
API const char* hipGetErrorString(int code) {
  return code == 209 ? "no kernel image is available for execution on the device" : nullptr;
}
API int hipRuntimeGetVersion(int* version) { return *version = 70'200'123, 0; }
API int hipGetDeviceCount(int* count) { return *count = devices, 0; }
API int hipGetDevice(int* device) { return *device = current, 0; }
API int hipSetDevice(int device) {
  if (device >= devices)
    return 101;
  current = device;
  return enter("hipSetDevice", number(device));
}
API int hipDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Stub %d", device);
  return 0;
}
API int hipDeviceGetAttribute(int* value, int number, int) { return *value = 1000 + number, 0; }
API int hipDeviceGetPCIBusId(char* place, int size, int device) {
  std::snprintf(place, static_cast<size_t>(size), "0000:0%d:00.0", device);
  return 0;
}
API int hipModuleLoadData(void** module, const char* image) {
  *module = reinterpret_cast<void*>(0x1000);
  return enter("hipModuleLoadData", image + (" current " + number(current)));
}
API int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(module) + 0xf);
  return enter("hipModuleGetFunction", name);
}
API int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                              unsigned bz, unsigned lds, void* stream, void** params, void** extra) {
  const unsigned size[] = {gx, gy, gz, bx, by, bz, lds};
  return launch("hipModuleLaunchKernel", f, size, stream, params, extra);
}
#endif
