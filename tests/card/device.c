// A GPU without hardware, as the libraries that PyTorch's CUDA build is linked with: runtime, driver, cuBLAS, cuDNN, NCCL.
// Kernels compute nothing, so numbers are meaningless. Allocations, copies, captures and collectives are those of a
// device that has always finished: work is done, and counted, when it is submitted. tests/card/build.py adds functions
// that return 0 for everything that is not here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, BAD_LAUNCH = 9, BUSY = 46, CAPTURED = 900 };  // of both APIs, by and large

// ---- Settings, from the environment
static int capability;       // CARD_CAPABILITY, such as 90
static size_t total_memory;  // CARD_MIB, of each device
static int devices;          // CARD_DEVICES

// ---- Counters, by kind and name
struct counter {
  const char *name;
  long count, bytes;
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *counters;
static long since = -1;  // calls of cuDNN and cuBLAS since the last collective of more than 1 MiB; -1 if there was none

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct counter *)a)->name, ((const struct counter *)b)->name);
}

void card_count(const char *kind, const char *what, size_t bytes) {
  char name[4096];
  snprintf(name, sizeof name, "%s %s", kind, what);
  pthread_mutex_lock(&mutex);
  struct counter key = {name}, **found = tfind(&key, &counters, by_name);
  if (!found) {
    struct counter *made = calloc(1, sizeof *made);
    made->name = strdup(name);
    found = tsearch(made, &counters, by_name);
  }
  (*found)->count++;
  (*found)->bytes += bytes;
  since += since >= 0 && !strcmp(kind, "call");
  pthread_mutex_unlock(&mutex);
}

static void tell(const void *node, VISIT order, void *visit) {
  struct counter *counter = *(struct counter **)node;
  if ((order != postorder && order != leaf) || !counter->count) return;
  ((void (*)(const char *, long, long))visit)(counter->name, counter->count, counter->bytes);
  counter->count = counter->bytes = 0;
}

// Pass every counter to a function and begin anew.
void card_read(void (*visit)(const char *, long, long)) {
  pthread_mutex_lock(&mutex);
  twalk_r(counters, tell, visit);
  since = -1;
  pthread_mutex_unlock(&mutex);
}

// ---- Memory: three spans of addresses. The host cannot touch those of the device; its content is in the shadow.
#define SPAN (1ull << 40)
#define PAGE (2ull << 20)
enum { DEVICE, SHADOW, PINNED, SPANS };
static char *base;
static size_t next[SPANS], sizes[SPANS][SPAN / PAGE];
static _Atomic size_t used;

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("CARD_CAPABILITY"), *mib = getenv("CARD_MIB"), *number = getenv("CARD_DEVICES");
  capability = text ? atoi(text) : 90;
  total_memory = (mib ? atol(mib) : 81559) << 20;
  devices = number ? atoi(number) : 1;
  base = mmap(NULL, SPANS * SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) perror("three terabytes of addresses"), abort();
  mprotect(base + SPAN, 2 * SPAN, PROT_READ | PROT_WRITE);
}

static int span_of(const void *p) {
  size_t at = (char *)p - base;
  return at < SPANS * SPAN ? (int)(at / SPAN) : -1;
}

static int on_device(const void *p) { return span_of(p) == DEVICE; }
static void *content(const void *p) { return (char *)p + (on_device(p) ? SPAN : 0); }

static int reserve(size_t size) {
  size = (size + PAGE - 1) / PAGE * PAGE;
  int fits = used + size <= total_memory;
  if (fits) used += size;
  return fits;
}

// Take addresses, which are never used again: there is a terabyte of them.
static int take(int span, void **p, size_t size) {
  size = (size + PAGE - 1) / PAGE * PAGE;
  pthread_mutex_lock(&mutex);
  *p = base + span * SPAN + next[span];
  sizes[span][next[span] / PAGE] = size;
  next[span] += size;
  pthread_mutex_unlock(&mutex);
  return SUCCESS;
}

static void give(void *p) {
  if (span_of(p) < 0) return;
  pthread_mutex_lock(&mutex);
  size_t *size = &sizes[span_of(p)][((char *)p - base) % SPAN / PAGE];
  if (on_device(p)) used -= *size;
  madvise(content(p), *size, MADV_DONTNEED);
  *size = 0;
  pthread_mutex_unlock(&mutex);
}

// ---- Errors
static __thread int last_error;
static int fail(int error) { return error ? last_error = error : error; }
int cudaPeekAtLastError(void) { return last_error; }
int cudaGetLastError(void) {
  int error = last_error;
  last_error = SUCCESS;
  return error;
}
const char *cudaGetErrorString(int error) {
  switch (error) {
    case OUT_OF_MEMORY: return "out of memory";
    case BUSY: return "a second device of the process";
    case CAPTURED: return "not permitted in a capture";
    default: return "invalid";
  }
}
const char *cudaGetErrorName(int error) { return error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaError"; }
int cuGetErrorString(int error, const char **text) { return *text = cudaGetErrorString(error), SUCCESS; }

// ---- The device of a thread, and that of the process: to have used another, if only by mistake, is an error
static __thread int current;
static _Atomic int opened = -1;
static int use(int device) {
  int none = -1;
  return atomic_compare_exchange_strong(&opened, &none, device) || none == device ? SUCCESS : fail(BUSY);
}
int cudaGetDeviceCount(int *number) { return *number = devices, SUCCESS; }
int cudaGetDevice(int *device) { return *device = current, SUCCESS; }
int cudaSetDevice(int device) { return device < devices ? use(current = device) : fail(INVALID); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  return *flags = 0, *active = device == opened, SUCCESS;
}

// ---- Streams, events and graphs
struct stream {
  int priority;
  unsigned long capture;  // that it is or was part of
};
struct event {
  unsigned long capture;
  double ms;
};
static struct stream default_stream;
static unsigned long capture, captures, nodes;  // number of the running capture, of all so far, and its operations
static __thread int captures_here, mode;        // of this thread
enum { RELAXED = 2 };

static struct stream *stream_of(struct stream *s) { return (uintptr_t)s <= 2 ? &default_stream : s; }
static int is_capturing(struct stream *s) { return capture && stream_of(s)->capture == capture; }

static int wait(const char *name) {
  card_count("wait", name, 0);
  return captures_here && mode != RELAXED ? fail(CAPTURED) : SUCCESS;
}

int cudaStreamCreateWithPriority(struct stream **s, unsigned flags, int priority) {
  *s = calloc(1, sizeof **s);
  (*s)->priority = priority;
  return use(current);
}
int cudaStreamGetPriority(struct stream *s, int *priority) { return *priority = stream_of(s)->priority, SUCCESS; }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
int cudaStreamSynchronize(struct stream *s) { return wait("cudaStreamSynchronize"); }
int cudaDeviceSynchronize(void) { return wait("cudaDeviceSynchronize"); }
int cudaStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
  if (capture && e->capture == capture) stream_of(s)->capture = capture;
  return SUCCESS;
}
int cudaLaunchHostFunc(struct stream *s, void (*function)(void *), void *data) { return function(data), SUCCESS; }

int cudaEventCreateWithFlags(struct event **e, unsigned flags) {
  *e = calloc(1, sizeof **e);
  return SUCCESS;
}
int cudaEventCreate(struct event **e) { return cudaEventCreateWithFlags(e, 0); }
int cudaEventDestroy(struct event *e) { return free(e), SUCCESS; }
int cudaEventRecordWithFlags(struct event *e, struct stream *s, unsigned flags) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *e = (struct event){stream_of(s)->capture, 1e3 * now.tv_sec + 1e-6 * now.tv_nsec};
  return SUCCESS;
}
int cudaEventRecord(struct event *e, struct stream *s) { return cudaEventRecordWithFlags(e, s, 0); }
int cudaEventSynchronize(struct event *e) { return wait("cudaEventSynchronize"); }
int cudaEventElapsedTime(float *ms, struct event *from, struct event *to) {
  *ms = to->ms > from->ms ? to->ms - from->ms : 1e-3;
  return SUCCESS;
}

int cudaStreamBeginCapture(struct stream *s, int how) {
  stream_of(s)->capture = capture = ++captures;
  nodes = 0;
  captures_here = how != RELAXED;
  return SUCCESS;
}
int cudaStreamEndCapture(struct stream *s, void **graph) {
  *graph = calloc(1, sizeof nodes);
  *(unsigned long *)*graph = nodes;
  capture = captures_here = 0;
  card_count("graph", "captured", 0);
  return SUCCESS;
}
int cudaStreamIsCapturing(struct stream *s, int *status) { return *status = is_capturing(s), SUCCESS; }
int cudaStreamGetCaptureInfo(struct stream *s, int *status, unsigned long *id, void **graph, void **dependencies,
                             void **edges, size_t *number) {
  *status = is_capturing(s);
  if (id) *id = stream_of(s)->capture;
  if (graph) *graph = NULL;
  if (dependencies) *dependencies = NULL;
  if (number) *number = 0;
  return SUCCESS;
}
int cudaThreadExchangeStreamCaptureMode(int *other) {
  int old = mode;
  mode = *other;
  *other = old;
  return SUCCESS;
}
int cudaGraphInstantiateWithFlags(void **executable, void *graph, unsigned long flags) {
  return *executable = graph, SUCCESS;
}
int cudaGraphGetNodes(unsigned long *graph, void **list, size_t *number) { return *number = *graph, SUCCESS; }
int cudaGraphLaunch(void *executable, struct stream *s) { return card_count("graph", "launched", 0), SUCCESS; }

// ---- Allocations and copies
int cudaMalloc(void **p, size_t size) {
  card_count("memory", "cudaMalloc", size);
  return use(current) ?: fail(reserve(size) ? take(DEVICE, p, size) : OUT_OF_MEMORY);
}
int cudaFree(void *p) {
  if (p && wait("cudaFree")) return CAPTURED;
  return give(p), SUCCESS;
}
int cudaHostAlloc(void **p, size_t size, unsigned flags) {
  card_count("memory", "cudaHostAlloc", size);
  return use(current) ?: take(PINNED, p, size);
}
int cudaFreeHost(void *p) { return give(p), SUCCESS; }
int cudaMemGetInfo(size_t *free, size_t *total) { return *total = total_memory, *free = total_memory - used, SUCCESS; }

// Expandable segments: addresses apart from memory
int cuMemAddressReserve(void **p, size_t size, size_t alignment, void *wanted, unsigned long flags) {
  return take(DEVICE, p, size);
}
int cuMemCreate(size_t **handle, size_t size, const void *properties, unsigned long flags) {
  if (!reserve(size)) return OUT_OF_MEMORY;
  card_count("memory", "cuMemCreate", size);
  *handle = malloc(sizeof size);
  **handle = size;
  return SUCCESS;
}
int cuMemRelease(size_t *handle) { return used -= *handle, free(handle), SUCCESS; }

struct pointer_attributes {
  int type, device;  // 0 pageable, 1 pinned, 2 device
  void *device_pointer, *host_pointer;
  long reserved[8];
};
int cudaPointerGetAttributes(struct pointer_attributes *a, const void *p) {
  static const int types[] = {[DEVICE] = 2, [PINNED] = 1};
  int span = span_of(p);
  *a = (struct pointer_attributes){span < 0 ? 0 : types[span], span < 0 ? -2 : opened};
  if (span >= 0) a->device_pointer = (void *)p;
  if (span != DEVICE) a->host_pointer = (void *)p;
  return SUCCESS;
}
int cuPointerGetAttribute(void *value, int attribute, const void *p) {
  if (span_of(p) < 0) return INVALID;
  memcpy(value, &p, sizeof p);  // Triton asks for the address
  return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, struct stream *s) {
  static const char *names[] = {[DEVICE] = "device", [PINNED] = "pinned"};
  const char *source = span_of(from) < 0 ? "pageable" : names[span_of(from)];
  const char *target = span_of(to) < 0 ? "pageable" : names[span_of(to)];
  char name[64];
  snprintf(name, sizeof name, "%s to %s", source, target);
  card_count("copy", name, size);
  if (is_capturing(s)) {
    nodes++;
    return strstr(name, "pageable") ? fail(CAPTURED) : SUCCESS;
  }
  memmove(content(to), content(from), size);
  return use(current);
}
int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  return wait("cudaMemcpy") || cudaMemcpyAsync(to, from, size, kind, NULL);
}
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                      int kind, struct stream *s) {
  for (size_t i = 0; i < height; i++)
    cudaMemcpyAsync((char *)to + i * to_pitch, (char *)from + i * from_pitch, width, kind, s);
  return SUCCESS;
}
int cudaMemsetAsync(void *p, int value, size_t size, struct stream *s) {
  card_count("memset", "", size);
  if (is_capturing(s)) nodes++;
  else memset(content(p), value, size);
  return SUCCESS;
}
int cudaMemset(void *p, int value, size_t size) { return cudaMemsetAsync(p, value, size, NULL); }

// ---- The device
struct properties {  // of CUDA 13
  char name[256], uuid[16], luid[8];
  unsigned mask;
  size_t total_memory, shared_per_block;
  int registers_per_block, warp;
  size_t pitch;
  int threads_per_block, block[3], grid[3];
  size_t constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch;
  int processors, integrated, maps_host, textures[39];
  size_t surface_alignment;
  int concurrent, ecc, bus, slot, domain, tcc, copy_engines, unified_addressing, bus_width, l2_bytes, l2_persisting;
  int threads_per_processor, priorities, l1[2];
  size_t shared_per_processor;
  int registers_per_processor, other[8], cooperative;
  size_t shared_per_block_most;
  int tables[2], blocks_per_processor, policy;
  size_t shared_reserved;
  int rest[75];
};
int cudaGetDeviceProperties(struct properties *p, int device) {
  int shared = capability >= 90 ? 233472 : capability >= 80 ? 167936 : 98304;
  *p = (struct properties){"A card without hardware",
                           .total_memory = total_memory,
                           .shared_per_block = 49152,
                           .registers_per_block = 65536,
                           .warp = 32,
                           .threads_per_block = 1024,
                           .block = {1024, 1024, 64},
                           .grid = {2147483647, 65535, 65535},
                           .constant_memory = 65536,
                           .major = capability / 10,
                           .minor = capability % 10,
                           .texture_alignment = 512,
                           .processors = capability >= 90 ? 132 : 80,
                           .maps_host = 1,
                           .concurrent = 1,
                           .copy_engines = 3,
                           .unified_addressing = 1,
                           .bus_width = 5120,
                           .l2_bytes = 50 << 20,
                           .threads_per_processor = 2048,
                           .priorities = 1,
                           .shared_per_processor = shared,
                           .registers_per_processor = 65536,
                           .cooperative = 1,
                           .shared_per_block_most = shared - (capability >= 80 ? 1024 : 0),
                           .blocks_per_processor = 32};
  return SUCCESS;
}
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  struct properties p;
  cudaGetDeviceProperties(&p, device);
  const int values[128] = {[1] = 1024, [2] = 1024, [3] = 1024, [4] = 64, [5] = p.grid[0], [6] = 65535, [7] = 65535,
                           [8] = 49152, [10] = 32, [12] = 65536, [13] = 1980000, [16] = p.processors, [36] = 2619000,
                           [37] = p.bus_width, [38] = p.l2_bytes, [39] = 2048, [41] = 1, [75] = p.major,
                           [76] = p.minor, [81] = p.shared_per_processor, [82] = 65536, [95] = 1,
                           [97] = p.shared_per_block_most, [102] = 1, [106] = 32};
  *value = attribute < 128 ? values[attribute] : 0;
  return SUCCESS;
}
int cudaDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cudaRuntimeGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cudaDeviceGetPCIBusId(char *text, int size, int device) {
  return snprintf(text, size, "0000:%02x:00.0", device + 1), SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *number) { return *number = devices, SUCCESS; }
int cuDeviceGet(int *device, int index) { return *device = index, SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return cudaDeviceGetAttribute(value, attribute, 0); }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &default_stream, SUCCESS; }
int cuCtxGetCurrent(void **context) { return *context = &default_stream, SUCCESS; }

// ---- Kernels
typedef struct {
  unsigned x, y, z;
} dim3;
struct kernel {
  const void *host;
  const char *name;
};
static void *kernels;
static int by_host(const void *a, const void *b) {
  const void *x = ((const struct kernel *)a)->host, *y = ((const struct kernel *)b)->host;
  return (x > y) - (x < y);
}
static __thread struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;

void __cudaRegisterFunction(void **module, const void *host, char *device, const char *name) {
  struct kernel *kernel = malloc(sizeof *kernel);
  *kernel = (struct kernel){host, name};
  pthread_mutex_lock(&mutex);
  tsearch(kernel, &kernels, by_host);
  pthread_mutex_unlock(&mutex);
}
char __cudaInitModule(void **module) { return 1; }
void **__cudaRegisterFatBinary(void *binary) { return calloc(1, 64); }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *s) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = s;
  return SUCCESS;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **s) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *s = pushed.stream;
  return SUCCESS;
}
int __cudaGetKernel(const void **kernel, const void *host) { return *kernel = host, SUCCESS; }

static int launch(const char *name, struct stream *s) {
  card_count("kernel", name, 0);
  nodes += is_capturing(s);
  return use(current);
}
int cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, struct stream *s) {
  if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || block.x * block.y * block.z - 1 > 1023)
    return fail(BAD_LAUNCH);
  struct kernel key = {host}, **found = tfind(&key, &kernels, by_host);
  return launch(found ? (*found)->name : "?", s);
}
int cudaLaunchCooperativeKernel(const void *host, dim3 g, dim3 b, void **arguments, size_t shared, struct stream *s) {
  return cudaLaunchKernel(host, g, b, arguments, shared, s);
}
int __cudaLaunchKernel(const void *kernel, dim3 g, dim3 b, void **arguments, size_t shared, struct stream *s) {
  return cudaLaunchKernel(kernel, g, b, arguments, shared, s);
}
struct launch_config {
  dim3 grid, block;
  size_t shared;
  struct stream *stream;
};
int cudaLaunchKernelExC(const struct launch_config *c, const void *host, void **arguments) {
  return cudaLaunchKernel(host, c->grid, c->block, arguments, c->shared, c->stream);
}
struct function_attributes {
  size_t shared, constant, local;
  int threads_per_block, registers, ptx, binary, cache, shared_most, others[7 + 16];
};
int cudaFuncGetAttributes(struct function_attributes *a, const void *host) {
  *a = (struct function_attributes){.threads_per_block = 1024, .registers = 32, .ptx = capability,
                                    .binary = capability, .shared_most = 49152};
  return SUCCESS;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int size, size_t shared) {
  return *blocks = size > 128 ? 2048 / size : 16, SUCCESS;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int size, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, host, size, shared);
}

// Kernels of Triton
int cuModuleGetFunction(const char **function, void *module, const char *name) {
  return *function = strdup(name), SUCCESS;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  const int values[] = {[0] = 1024, [4] = 32};  // threads per block, registers
  *value = attribute <= 4 ? values[attribute] : 0;
  return SUCCESS;
}
struct driver_config {
  unsigned grid[3], block[3], shared;
  struct stream *stream;
};
int cuLaunchKernelEx(const struct driver_config *c, const char *function, void **arguments, void **more) {
  return launch(function, c->stream);
}
int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, struct stream *s, void **arguments, void **more) {
  return launch(function, s);
}
int cuOccupancyMaxActiveClusters(int *clusters) { return *clusters = 16, SUCCESS; }

static int nothing(void) { return SUCCESS; }
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long flags,
                                     int *result) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (!*function) *function = (void *)nothing;
  if (result) *result = SUCCESS;
  return SUCCESS;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, int *result) {
  return cudaGetDriverEntryPointByVersion(name, function, version, flags, result);
}

// ---- cuBLAS and cuDNN: handles, and one engine for every convolution
static int handle(void **h) { return *h = calloc(1, 256), SUCCESS; }
int cublasCreate_v2(void **h) { return handle(h); }
int cublasGetMathMode(void *h, int *value) { return *value = 0, SUCCESS; }
int cublasLtMatmulDescCreate(void **h) { return handle(h); }
int cublasLtMatrixLayoutCreate(void **h) { return handle(h); }
int cublasLtMatmulPreferenceCreate(void **h) { return handle(h); }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, void *results, int *number) {
  memset(results, 0, 64);
  return *number = 1, SUCCESS;
}
int cudnnCreate(void **h) { return handle(h); }
size_t cudnnGetVersion(void) { return 92400; }
int cudnnGetProperty(int part, int *value) { return *value = (int[]){9, 24, 0}[part], SUCCESS; }
const char *cudnnGetErrorString(int error) { return "invalid"; }
int cudnnCreateTensorDescriptor(void **h) { return handle(h); }
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *h, int mode, int ops, void *x, void *z, void *y,
                                                             void *scale, void *activation, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *h, int mode, int ops, void *x, void *y, void *dy, void *dz,
                                                      void *dx, void *scale, void *activation, size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *h, int mode, int ops, void *activation, void *x,
                                                         size_t *size) {
  return *size = 0, SUCCESS;
}
int cudnnBackendCreateDescriptor(int type, void **h) { return handle(h); }
int cudnnBackendGetAttribute(void *h, int name, int type, long wanted, long *number, void *values) {
  enum { INT64 = 3, DESCRIPTOR = 15 };
  if (number) *number = type == DESCRIPTOR || type == INT64;
  if (values && type == INT64) *(long *)values = 0;
  return SUCCESS;
}

// ---- NCCL: every rank has what this one has
int ncclGetVersion(int *version) { return *version = 23007, SUCCESS; }
int ncclCommInitRankConfig(int **c, int size) {
  *c = malloc(sizeof size);
  **c = size;
  return SUCCESS;
}
int ncclCommGetAsyncError(int *c, int *error) { return *error = SUCCESS, SUCCESS; }
const char *ncclGetErrorString(int error) { return "invalid"; }
const char *ncclGetLastError(int *c) { return ""; }

static int collective(const char *name, const void *from, void *to, size_t number, int type, int parts) {
  static const int widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  size_t size = number * widths[type];
  card_count("nccl", name, size);
  if (size >> 20) {
    if (since > 0) card_count("between", "collectives", since);
    since = 0;
  }
  for (int i = 0; i < parts; i++) memmove((char *)content(to) + i * size, content(from), size);
  return SUCCESS;
}
int ncclAllReduce(const void *from, void *to, size_t number, int type, int operation, int *c, void *s) {
  return collective("AllReduce", from, to, number, type, 1);
}
int ncclBroadcast(const void *from, void *to, size_t number, int type, int root, int *c, void *s) {
  return collective("Broadcast", from, to, number, type, 1);
}
int ncclAllGather(const void *from, void *to, size_t number, int type, int *c, void *s) {
  return collective("AllGather", from, to, number, type, *c);
}
int ncclReduceScatter(const void *from, void *to, size_t number, int type, int operation, int *c, void *s) {
  return collective("ReduceScatter", from, to, number, type, 1);
}
