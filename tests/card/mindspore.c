// The GPU of device.c for MindSpore: CUDA 11 and cuDNN 8 where they differ, and what it asks beyond PyTorch.
#define cudaGetDeviceProperties properties_of_13
#define cudaMemcpyAsync card_copy
#include "device.c"
#undef cudaGetDeviceProperties
#undef cudaMemcpyAsync
#include <stddef.h>

int cuInit(unsigned flags) { return SUCCESS; }
int cuDeviceGetCount(int *number) { return cudaGetDeviceCount(number); }
int cudaGetDeviceProperties(struct properties *p, int device) {
  struct properties all;
  properties_of_13(&all, device);
  all.integrated = all.processors;  // there is a field more before it
  memset(p, 0, 712);
  memcpy(p, &all, offsetof(struct properties, maps_host));
  return SUCCESS;
}

// What kernels would have computed is not copied: only what was copied to the same place before.
struct place {
  const void *at;
  size_t size;
};
static void *places;
static int by_place(const void *a, const void *b) { return memcmp(a, b, sizeof(void *)); }
static size_t *size_at(const void *p) {
  struct place key = {p}, **found = tsearch(&key, &places, by_place);
  if (*found == &key) *(*found = malloc(sizeof key)) = key;
  return &(*found)->size;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, struct stream *s) {
  pthread_mutex_lock(&mutex);
  int is_known = !on_device(from) || *size_at(from) == size;
  if (is_known && on_device(to)) *size_at(to) = size;
  pthread_mutex_unlock(&mutex);
  if (is_known) return card_copy(to, from, size, kind, s);
  if (!on_device(to)) memset(to, 0, size);
  return SUCCESS;
}

int cudnnGetReductionIndicesSize(void *h, void *how, void *x, void *y, size_t *size) { return *size = 0, SUCCESS; }
int cudnnGetReductionWorkspaceSize(void *h, void *how, void *x, void *y, size_t *size) { return *size = 0, SUCCESS; }

// Descriptors of tensors hold the number of bytes.
static int set(size_t *x, int type, int number, const int *shape) {
  static const int widths[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8};
  *x = widths[type];
  for (int i = 0; i < number; i++) *x *= shape[i];
  return SUCCESS;
}
int cudnnSetTensor4dDescriptor(size_t *x, int format, int type, int n, int c, int h, int w) {
  return set(x, type, 4, (int[]){n, c, h, w});
}
int cudnnSetTensorNdDescriptor(size_t *x, int type, int number, const int *shape) {
  return set(x, type, number, shape);
}
int cudnnSetTensorNdDescriptorEx(size_t *x, int format, int type, int number, const int *shape) {
  return set(x, type, number, shape);
}
int cudnnGetTensorSizeInBytes(size_t *x, size_t *size) { return *size = *x, SUCCESS; }

struct algorithm {
  int number, status;
  float ms;
  size_t memory;
  int others[5];
};
static int algorithm(void *h, void *a, void *b, void *convolution, void *c, int wanted, int *found,
                     struct algorithm *best) {
  *best = (struct algorithm){1};
  return *found = 1, SUCCESS;
}

// Gradients are marked until they are read: a convolution that adds its own needs one.
static const char MARK[] = "gradient";
static void mark(void *gradient) {
  if (gradient) memcpy(content(gradient), MARK, sizeof MARK);
}
int cudnnBatchNormalizationBackwardEx(void *h, int mode, int operations, void *a, void *b, void *c, void *d, void *xs,
                                      void *x, void *ys, void *y, void *dys, void *dy, void *dzs, void *dz, void *dxs,
                                      void *dx) {
  memset(content(dy), 0, sizeof MARK);
  mark(dz);
  return SUCCESS;
}
int cudnnConvolutionBackwardData(void *h, void *alpha, void *ws, void *w, void *dys, void *dy, void *convolution,
                                 int algorithm, void *space, size_t size, float *beta, void *dxs, void *dx) {
  if (*beta && memcmp(content(dx), MARK, sizeof MARK)) return fprintf(stderr, "a gradient is lost\n"), INVALID;
  memset(content(dy), 0, sizeof MARK);
  mark(dx);
  return SUCCESS;
}
