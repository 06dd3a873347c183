// Kernels of the device of device.cc, in fp64, fp32, fp16 and bf16: operands are widened, Paddle's own fp32 kernel of a CPU
// computes, and results are rounded to 16 bits, as on a GPU that adds up in fp32.
//
// What is not listed at the end, Paddle computes with its kernels of a CPU, and copies operands and results. Listed are:
// what a CPU lacks in 16 bits; what changes a view in place, because those copies would not reach its tensor; and
// multiply_grad, for which Paddle would copy an operand that is not there.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/common/bfloat16.h"
#include "paddle/phi/common/float16.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_factory.h"
#include "paddle/phi/core/kernel_registry.h"
#include "paddle/phi/core/platform/device_context.h"
#include "paddle/phi/kernels/activation_grad_kernel.h"
#include "paddle/phi/kernels/activation_kernel.h"
#include "paddle/phi/kernels/assign_kernel.h"
#include "paddle/phi/kernels/batch_norm_grad_kernel.h"
#include "paddle/phi/kernels/batch_norm_kernel.h"
#include "paddle/phi/kernels/concat_grad_kernel.h"
#include "paddle/phi/kernels/conv_grad_kernel.h"
#include "paddle/phi/kernels/conv_kernel.h"
#include "paddle/phi/kernels/elementwise_add_grad_kernel.h"
#include "paddle/phi/kernels/elementwise_add_kernel.h"
#include "paddle/phi/kernels/elementwise_multiply_grad_kernel.h"
#include "paddle/phi/kernels/elementwise_multiply_kernel.h"
#include "paddle/phi/kernels/elementwise_subtract_kernel.h"
#include "paddle/phi/kernels/fill_kernel.h"
#include "paddle/phi/kernels/matmul_grad_kernel.h"
#include "paddle/phi/kernels/matmul_kernel.h"
#include "paddle/phi/kernels/pool_grad_kernel.h"
#include "paddle/phi/kernels/pool_kernel.h"
#include "paddle/phi/kernels/prelu_grad_kernel.h"
#include "paddle/phi/kernels/prelu_kernel.h"
#include "paddle/phi/kernels/reduce_mean_grad_kernel.h"
#include "paddle/phi/kernels/reduce_mean_kernel.h"
#include "paddle/phi/kernels/sgd_kernel.h"
#include "paddle/phi/kernels/where_kernel.h"

using phi::CPUContext;
using phi::DataType;
using phi::DenseTensor;
using phi::CustomContext;
using phi::dtype::bfloat16;
using phi::dtype::float16;

namespace {

const CPUContext& cpu() {
  return *static_cast<const CPUContext*>(phi::DeviceContextPool::Instance().Get(phi::CPUPlace()));
}

phi::Backend device() { return phi::TransToPhiBackend(phi::CustomPlace("npu", 0)); }

void set_device(phi::Kernel& kernel) {
  for (auto& each : kernel.mutable_args_def()->input_defs()) each.SetBackend(device());
  for (auto& each : kernel.mutable_args_def()->output_defs()) each.SetBackend(device());
}

template <typename From, typename To>
void convert(const DenseTensor& from, void* to) {
  const From* first = from.data<From>();
  std::transform(first, first + from.numel(), static_cast<To*>(to), [](From x) { return static_cast<To>(static_cast<float>(x)); });
}

bool is_wide(const DenseTensor& x) { return x.dtype() != DataType::FLOAT16 && x.dtype() != DataType::BFLOAT16; }

// The same memory as that of a CPU.
DenseTensor on_host(const DenseTensor& x) {
  auto& memory = x.Holder();
  return {std::make_shared<phi::Allocation>(memory->ptr(), memory->size(), phi::CPUPlace()), x.meta()};
}

DenseTensor widened(const DenseTensor& x) {
  if (!x.valid()) return x;
  if (x.initialized() && is_wide(x)) return on_host(x);
  DenseTensor wide;
  wide.Resize(x.dims());
  void* to = cpu().Alloc(&wide, x.dtype() == DataType::FLOAT64 ? x.dtype() : DataType::FLOAT32);
  if (!x.initialized()) std::memset(to, 0, x.numel() * phi::SizeOf(wide.dtype()));  // absent, yet a kernel may read it
  else if (x.dtype() == DataType::FLOAT16) convert<float16, float>(x, to);
  else convert<bfloat16, float>(x, to);
  return wide;
}

// An argument of a kernel while that in fp32 runs: an attribute, operands, or results.
template <typename Arg>
struct Held {
  Arg value;
  explicit Held(Arg x) : value(x) {}
  Arg get() { return value; }
  void finish(const CustomContext&, DataType) {}
};

template <>
struct Held<const DenseTensor&> {
  DenseTensor wide;
  explicit Held(const DenseTensor& x) : wide(widened(x)) {}
  const DenseTensor& get() { return wide; }
  void finish(const CustomContext&, DataType) {}
};

template <>
struct Held<const paddle::optional<DenseTensor>&> {
  paddle::optional<DenseTensor> wide;
  explicit Held(const paddle::optional<DenseTensor>& x) {
    if (x) wide = paddle::make_optional<DenseTensor>(widened(*x));
  }
  const paddle::optional<DenseTensor>& get() { return wide; }
  void finish(const CustomContext&, DataType) {}
};

template <>
struct Held<DenseTensor*> {
  DenseTensor* out;
  DenseTensor wide;
  explicit Held(DenseTensor* x) : out(x) {
    if (out && out->initialized() && is_wide(*out)) wide = on_host(*out);  // to be changed in place
    else if (out) wide.Resize(out->dims());
  }
  DenseTensor* get() { return out ? &wide : nullptr; }
  void finish(const CustomContext& context, DataType type) {
    if (!out || !wide.initialized() || (out->initialized() && out->data() == wide.data())) return;
    out->Resize(wide.dims());
    if (wide.dtype() != DataType::FLOAT32) type = wide.dtype();
    void* to = context.Alloc(out, type);
    if (type == DataType::FLOAT16) convert<float, float16>(wide, to);
    else if (type == DataType::BFLOAT16) convert<float, bfloat16>(wide, to);
    else std::memcpy(to, wide.data(), wide.numel() * phi::SizeOf(type));
  }
};

template <>
struct Held<const std::vector<const DenseTensor*>&> {
  std::vector<DenseTensor> wide;
  std::vector<const DenseTensor*> all;
  explicit Held(const std::vector<const DenseTensor*>& x) {
    for (auto each : x) wide.push_back(widened(*each));
    for (auto& each : wide) all.push_back(&each);
  }
  const std::vector<const DenseTensor*>& get() { return all; }
  void finish(const CustomContext&, DataType) {}
};

template <>
struct Held<std::vector<DenseTensor*>> {
  std::vector<Held<DenseTensor*>> results;
  explicit Held(const std::vector<DenseTensor*>& x) : results(x.begin(), x.end()) {}
  std::vector<DenseTensor*> get() {
    std::vector<DenseTensor*> all;
    for (auto& each : results) all.push_back(each.get());
    return all;
  }
  void finish(const CustomContext& context, DataType type) {
    for (auto& each : results) each.finish(context, type);
  }
};

// number: makes kernels with the same arguments different types, since each keeps the function that computes.
template <typename Function, int number>
struct Wrapped;

template <int number, typename... Args>
struct Wrapped<void (*)(const CPUContext&, Args...), number> {
  using Function = void (*)(const CPUContext&, Args...);
  static inline Function computes, computes_in_fp64;
  static inline int rounded;  // so many results are of 16 bits, those that follow stay fp32

  // Paddle calls a kernel with the arguments of that in fp32.
  template <DataType type>
  static void call(const CustomContext& context, Args... args) {
    std::tuple<Held<Args>...> held{Held<Args>(args)...};
    Function own = type == DataType::FLOAT64 ? computes_in_fp64 : computes;
    std::apply([&](auto&... each) { own(cpu(), each.get()...); }, held);
    int results = 0;
    auto type_of = [&](bool is_result) { return is_result && results++ >= rounded ? DataType::FLOAT32 : type; };
    std::apply([&](auto&... each) { (each.finish(context, type_of(std::is_same_v<decltype(each), Held<DenseTensor*>&>)), ...); }, held);
  }

  static void add(const char* name, int rounded_results) {
    auto& kernels = phi::KernelFactory::Instance().kernels()[name];
    const phi::Kernel own = kernels.at({phi::Backend::CPU, phi::DataLayout::ALL_LAYOUT, DataType::FLOAT32});
    const phi::Kernel in_fp64 = kernels.at({phi::Backend::CPU, phi::DataLayout::ALL_LAYOUT, DataType::FLOAT64});
    computes = own.GetVariadicKernelFn<Function>();
    computes_in_fp64 = in_fp64.GetVariadicKernelFn<Function>();
    rounded = rounded_results;
    add<DataType::FLOAT64>(kernels, in_fp64);
    add<DataType::FLOAT32>(kernels, own);
    add<DataType::FLOAT16>(kernels, own);
    add<DataType::BFLOAT16>(kernels, own);
  }

  template <DataType type>
  static void add(phi::KernelKeyMap& kernels, const phi::Kernel& own) {
    auto of_graphs = &phi::KernelImpl<decltype(&call<type>), &call<type>>::Compute;
    phi::Kernel kernel(of_graphs, reinterpret_cast<void*>(&call<type>));
    *kernel.mutable_args_def() = own.args_def();
    set_device(kernel);
    kernels[{device(), phi::DataLayout::ALL_LAYOUT, type}] = kernel;
  }
};

// Views are made without the context of a CPU, and copied with its part that all devices have.
void add_views() {
  for (auto& [name, kernels] : phi::KernelFactory::Instance().kernels()) {
    bool copies = name == "contiguous" || name == "strided_copy";
    phi::KernelKeyMap found;
    for (auto& [key, own] : kernels) {
      if (key.backend() != phi::Backend::CPU || (!copies && key.layout() != phi::DataLayout::STRIDED)) continue;
      set_device(found[{device(), key.layout(), key.dtype()}] = own);
    }
    kernels.insert(found.begin(), found.end());
  }
}

}  // namespace

#define ADD(name, Kernel, rounded) Wrapped<decltype(&phi::Kernel<float, CPUContext>), __COUNTER__>::add(name, rounded)

void add_kernels() {
  const int all = 99;
  add_views();
  ADD("add", AddKernel, all);
  ADD("add_grad", AddGradKernel, all);
  Wrapped<decltype(&phi::AssignKernel<CPUContext>), __COUNTER__>::add("assign", all);
  ADD("batch_norm", BatchNormKernel, 1);
  ADD("batch_norm_grad", BatchNormGradKernel, 1);
  ADD("concat_grad", ConcatGradKernel, all);
  ADD("conv2d", ConvKernel, all);
  ADD("conv2d_grad", ConvGradKernel, all);
  ADD("fill", FillKernel, all);
  ADD("matmul", MatmulKernel, all);
  ADD("matmul_grad", MatmulGradKernel, all);
  ADD("mean", MeanKernel, all);
  ADD("mean_grad", ReduceMeanGradKernel, all);
  ADD("multiply", MultiplyKernel, all);
  ADD("multiply_grad", MultiplyGradKernel, all);
  ADD("pool2d", Pool2dKernel, all);
  ADD("pool2d_grad", Pool2dGradKernel, all);
  ADD("prelu", PReluKernel, all);
  ADD("prelu_grad", PReluGradKernel, all);
  ADD("relu", ReluKernel, all);
  ADD("relu_grad", ReluGradKernel, all);
  ADD("subtract", SubtractKernel, all);
  ADD("where", WhereKernel, all);
  ADD("sgd", SGDDenseKernel, all);
}
