// Collectives of the device among processes of a host, in memory that they share: each rank has a slot in it.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "paddle/phi/backends/device_ext.h"
#include "paddle/phi/common/bfloat16.h"
#include "paddle/phi/common/float16.h"

namespace {

constexpr size_t SLOT = size_t{1} << 28, NAME = 64;  // bytes of a rank, of which those that are used take memory

struct Shared {
  std::atomic<size_t> arrivals;
  alignas(64) char slots[];
};

size_t bytes_of(C_DataType type) {
  switch (type) {
    case C_DataType::FLOAT64: case C_DataType::INT64: case C_DataType::UINT64: return 8;
    case C_DataType::FLOAT32: case C_DataType::INT32: case C_DataType::UINT32: return 4;
    case C_DataType::FLOAT16: case C_DataType::BFLOAT16: case C_DataType::INT16: case C_DataType::UINT16: return 2;
    default: return 1;
  }
}

}  // namespace

struct C_CCLComm_st {
  Shared* shared;
  size_t rank, ranks, barriers;

  char* slot(size_t rank) { return shared->slots + rank * SLOT; }
  void wait() {
    shared->arrivals += 1;
    for (++barriers; shared->arrivals < barriers * ranks;) sched_yield();
  }
};

namespace {

C_Status id_size(size_t* size) {
  *size = NAME;
  return C_SUCCESS;
}

C_Status make_id(C_CCLRootId* id) {
  static int number = 0;
  std::snprintf(static_cast<char*>(id->data), NAME, "/npu-%d-%d", getpid(), number++);
  return C_SUCCESS;
}

C_Status join(size_t ranks, C_CCLRootId* id, size_t rank, C_CCLComm* comm) {
  const char* name = static_cast<const char*>(id->data);
  size_t size = sizeof(Shared) + ranks * SLOT;
  int file = shm_open(name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, size)) return C_FAILED;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return C_FAILED;
  *comm = new C_CCLComm_st{static_cast<Shared*>(memory), rank, ranks, 0};
  (*comm)->wait();
  shm_unlink(name);
  return C_SUCCESS;
}

C_Status leave(C_CCLComm comm) {
  munmap(comm->shared, sizeof(Shared) + comm->ranks * SLOT);
  delete comm;
  return C_SUCCESS;
}

// The processes write what they send, wait, read what they need, and wait until all have read.
template <typename Read>
C_Status exchange(C_CCLComm comm, const void* sent, size_t size, Read read) {
  if (size > SLOT) return C_FAILED;
  if (sent) std::memcpy(comm->slot(comm->rank), sent, size);
  comm->wait();
  read();
  comm->wait();
  return C_SUCCESS;
}

template <typename Element, typename Sum>
void reduce(C_CCLComm comm, void* received, size_t count, C_CCLReduceOp op) {
  Element* out = static_cast<Element*>(received);
  for (size_t i = 0; i < count; ++i) {
    Sum total = static_cast<Sum>(reinterpret_cast<Element*>(comm->slot(0))[i]);
    for (size_t rank = 1; rank < comm->ranks; ++rank) {
      Sum next = static_cast<Sum>(reinterpret_cast<Element*>(comm->slot(rank))[i]);
      total = op == MAX ? std::max(total, next) : op == MIN ? std::min(total, next) : total + next;
    }
    out[i] = static_cast<Element>(op == AVG ? total / static_cast<Sum>(comm->ranks) : total);
  }
}

C_Status all_reduce(void* sent, void* received, size_t count, C_DataType type, C_CCLReduceOp op, C_CCLComm comm, C_Stream) {
  if (op == PRODUCT) return C_FAILED;
  return exchange(comm, sent, count * bytes_of(type), [&] {
    switch (type) {
      case C_DataType::FLOAT64: return reduce<double, double>(comm, received, count, op);
      case C_DataType::FLOAT32: return reduce<float, float>(comm, received, count, op);
      case C_DataType::FLOAT16: return reduce<phi::dtype::float16, float>(comm, received, count, op);
      case C_DataType::BFLOAT16: return reduce<phi::dtype::bfloat16, float>(comm, received, count, op);
      case C_DataType::INT64: return reduce<int64_t, int64_t>(comm, received, count, op);
      case C_DataType::INT32: return reduce<int32_t, int32_t>(comm, received, count, op);
      default: return reduce<uint8_t, int32_t>(comm, received, count, op);
    }
  });
}

C_Status broadcast(void* data, size_t count, C_DataType type, size_t root, C_CCLComm comm, C_Stream) {
  size_t size = count * bytes_of(type);
  return exchange(comm, comm->rank == root ? data : nullptr, size, [&] { std::memcpy(data, comm->slot(root), size); });
}

C_Status all_gather(void* sent, void* received, size_t count, C_DataType type, C_CCLComm comm, C_Stream) {
  size_t size = count * bytes_of(type);
  return exchange(comm, sent, size, [&] {
    for (size_t rank = 0; rank < comm->ranks; ++rank)
      std::memcpy(static_cast<char*>(received) + rank * size, comm->slot(rank), size);
  });
}

C_Status done() { return C_SUCCESS; }

}  // namespace

void add_collectives(C_DeviceInterface& own) {
  own.xccl_get_unique_id_size = id_size;
  own.xccl_get_unique_id = make_id;
  own.xccl_comm_init_rank = join;
  own.xccl_destroy_comm = leave;
  own.xccl_all_reduce = all_reduce;
  own.xccl_broadcast = broadcast;
  own.xccl_all_gather = all_gather;
  own.xccl_group_start = own.xccl_group_end = done;
}
