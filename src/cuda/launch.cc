#include "cuda/launch.h"

#include <cinttypes>
#include <limits>

namespace heed::cuda {

using core::Status;

Status PrepareKernel(const CallContext& context, const KernelKey& key, const LaunchShape& shape) {
  Function function = nullptr;
  return GetFunction(context, key, shape.shared_bytes, &function);
}

namespace {

// Code for older architectures does not wait for the kernel in front of it.
bool CanChain(const Driver& driver, Function function) {
  constexpr int kLeastArch = 90;
  int arch = 0;
  return driver.launch_kernel_ex != nullptr && driver.version >= kMinChainingVersion &&
         driver.function_get_attribute(&arch, FunctionAttribute::kPtxVersion, function) ==
             kSuccess &&
         arch >= kLeastArch;
}

}  // namespace

Status LaunchKernel(const CallContext& context, const KernelKey& key, const LaunchShape& shape,
                    const void* args) {
  if (shape.num_ctas == 0) return {};
  if (shape.num_ctas > std::numeric_limits<std::int32_t>::max()) {
    return core::Unsupported(
        core::Format("%" PRId64 " tiles: a CUDA launch has at most 2147483647", shape.num_ctas));
  }
  Function function = nullptr;
  HEED_RETURN_IF_ERROR(GetFunction(context, key, shape.shared_bytes, &function));
  void* parameters[] = {const_cast<void*>(args)};
  const Driver& driver = context.driver();
  if (shape.is_chained && CanChain(driver, function)) {
    LaunchAttribute chained;
    chained.id = kProgrammaticSerialization;
    chained.value.flag = 1;
    LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(shape.num_ctas);
    config.block[0] = static_cast<unsigned>(shape.num_threads);
    config.shared_bytes = static_cast<unsigned>(shape.shared_bytes);
    config.stream = context.stream();
    config.attributes = &chained;
    config.num_attributes = 1;
    return CheckResult(driver, driver.launch_kernel_ex(&config, function, parameters, nullptr),
                       "cuLaunchKernelEx");
  }
  return CheckResult(driver,
                     driver.launch_kernel(function, static_cast<unsigned>(shape.num_ctas), 1, 1,
                                          static_cast<unsigned>(shape.num_threads), 1, 1,
                                          static_cast<unsigned>(shape.shared_bytes),
                                          context.stream(), parameters, nullptr),
                     "cuLaunchKernel");
}

}  // namespace heed::cuda
