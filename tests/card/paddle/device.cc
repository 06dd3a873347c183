// A device of Paddle's, `npu`, whose memory is the host's and which has always finished: the plugin that Paddle's build
// for CPUs loads from the folder CUSTOM_DEVICE_ROOT. To Paddle it is an accelerator, on which it casts automatically; its
// kernels are in kernels.cc.
#include <cstdlib>
#include <cstring>

#include "paddle/phi/backends/device_ext.h"

void add_collectives(C_DeviceInterface& own);
void add_kernels();

namespace {

C_Status done() { return C_SUCCESS; }
C_Status of_device(const C_Device) { return C_SUCCESS; }
C_Status of_stream(const C_Device, C_Stream) { return C_SUCCESS; }
C_Status of_event(const C_Device, C_Event) { return C_SUCCESS; }
C_Status of_both(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }

template <typename Handle>
C_Status create(const C_Device, Handle* handle) {
  *handle = static_cast<Handle>(std::malloc(1));
  return C_SUCCESS;
}

template <typename Handle>
C_Status destroy(const C_Device, Handle handle) {
  std::free(handle);
  return C_SUCCESS;
}

C_Status call_back(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}

C_Status allocate(const C_Device, void** memory, size_t size) {
  *memory = std::aligned_alloc(64, (size + 63) / 64 * 64);
  return *memory ? C_SUCCESS : C_FAILED;
}

C_Status release(const C_Device, void* memory, size_t) {
  std::free(memory);
  return C_SUCCESS;
}

C_Status fill(const C_Device, void* memory, unsigned char value, size_t size) {
  std::memset(memory, value, size);
  return C_SUCCESS;
}

C_Status copy(const C_Device, void* to, const void* from, size_t size) {
  std::memcpy(to, from, size);
  return C_SUCCESS;
}

C_Status copy_async(const C_Device device, C_Stream, void* to, const void* from, size_t size) {
  return copy(device, to, from, size);
}

C_Status copy_between(const C_Device to_device, const C_Device, void* to, const void* from, size_t size) {
  return copy(to_device, to, from, size);
}

C_Status memory_of(const C_Device, size_t* total, size_t* free) {
  *total = *free = size_t{8} << 30;
  return C_SUCCESS;
}

C_Status smallest_chunk(const C_Device, size_t* size) {
  *size = 512;
  return C_SUCCESS;
}

C_Status version(const C_Device, size_t* number) {
  *number = 1;
  return C_SUCCESS;
}

C_Status yes(const C_Device, bool* answer) {
  *answer = true;
  return C_SUCCESS;
}

size_t count() {
  const char* devices = std::getenv("CARD_DEVICES");
  return devices ? std::atoi(devices) : 1;
}

C_Status device_count(size_t* number) {
  *number = count();
  return C_SUCCESS;
}

C_Status device_list(size_t* devices) {
  for (size_t i = 0; i < count(); ++i) devices[i] = i;
  return C_SUCCESS;
}

thread_local int current = 0;

C_Status set_device(const C_Device device) {
  current = device->id;
  return C_SUCCESS;
}

C_Status get_device(const C_Device device) {
  device->id = current;
  return C_SUCCESS;
}

}  // namespace

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  params->device_type = const_cast<char*>("npu");
  params->sub_device_type = const_cast<char*>("host");
  C_DeviceInterface& own = *params->interface;
  std::memset(static_cast<void*>(&own), 0, sizeof own);
  own.size = sizeof own;
  own.initialize = own.finalize = done;
  own.init_device = own.deinit_device = own.synchronize_device = of_device;
  own.set_device = set_device;
  own.get_device = get_device;
  own.create_stream = create;
  own.destroy_stream = destroy;
  own.query_stream = own.synchronize_stream = of_stream;
  own.stream_add_callback = call_back;
  own.create_event = create;
  own.destroy_event = destroy;
  own.query_event = own.synchronize_event = of_event;
  own.record_event = own.stream_wait_event = of_both;
  own.device_memory_allocate = own.host_memory_allocate = own.unified_memory_allocate = allocate;
  own.device_memory_deallocate = own.host_memory_deallocate = own.unified_memory_deallocate = release;
  own.device_memory_set = fill;
  own.memory_copy_h2d = own.memory_copy_d2h = own.memory_copy_d2d = copy;
  own.async_memory_copy_h2d = own.async_memory_copy_d2h = own.async_memory_copy_d2d = copy_async;
  own.memory_copy_p2p = copy_between;
  own.get_device_count = device_count;
  own.get_device_list = device_list;
  own.device_memory_stats = memory_of;
  own.device_min_chunk_size = smallest_chunk;
  own.get_compute_capability = own.get_runtime_version = own.get_driver_version = version;
  own.is_float16_supported = own.is_bfloat16_supported = yes;
  add_collectives(own);
  add_kernels();
}
