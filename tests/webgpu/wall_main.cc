// webgpu_wall [L [ROUNDS]]: what whole calls of heed_forward take by the wall clock, on tensors of
// the host and on ones in the caller's own buffers, beside the time that moving the same bytes to
// the device and back takes. JSON on stdout. Run by hand (docs/kernels/webgpu.md).
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "heed/heed_webgpu.h"
#include "webgpu/interface.h"

namespace heed::test {
namespace {

using webgpu::BufferHandle;

constexpr std::int64_t kHeads = 16;
constexpr std::uint64_t kStorage =
    webgpu::kUsageStorage | webgpu::kUsageCopySource | webgpu::kUsageCopyTarget;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "webgpu_wall: %s\n", what);
  std::exit(1);
}

void Require(bool is_true, const char* what) {
  if (!is_true) Fail(what);
}

void Check(heed_status_t status) { Require(status == HEED_OK, heed_last_error()); }

// The program's own device, by the library that HEED_WEBGPU_LIBRARY names.
class Gpu {
  template <class T>
  struct Member;
  template <class T>
  struct Member<T webgpu::Functions::*> {
    using Type = T;
  };
  template <auto kMember>
  auto Function(const char* name) const {
    void* symbol = dlsym(library_, name);
    Require(symbol != nullptr, name);
    return reinterpret_cast<typename Member<decltype(kMember)>::Type>(symbol);
  }

 public:
  Gpu() : path_(std::getenv("HEED_WEBGPU_LIBRARY") ? std::getenv("HEED_WEBGPU_LIBRARY") : "") {
    library_ = dlopen(path_.c_str(), RTLD_NOW);
    Require(library_ != nullptr, "HEED_WEBGPU_LIBRARY must name libwgpu_native");
    const webgpu::InstanceExtras extras;
    webgpu::InstanceDescriptor descriptor;
    descriptor.next = &extras.chain;
    const auto instance =
        Function<&webgpu::Functions::create_instance>("wgpuCreateInstance")(&descriptor);
    Require(instance != nullptr, "no instance");
    const auto enumerate =
        Function<&webgpu::Functions::enumerate_adapters>("wgpuInstanceEnumerateAdapters");
    std::vector<webgpu::AdapterHandle> adapters(enumerate(instance, nullptr, nullptr));
    enumerate(instance, nullptr, adapters.data());
    Require(!adapters.empty(), "no adapter");
    const auto read = Function<&webgpu::Functions::adapter_get_info>("wgpuAdapterGetInfo");
    adapter_ = adapters[0];
    for (webgpu::AdapterHandle adapter : adapters) {
      webgpu::AdapterInfo info;
      read(adapter, &info);
      if (info.adapter_type == webgpu::kAdapterDiscrete) adapter_ = adapter;
    }
    webgpu::AdapterInfo info;
    read(adapter_, &info);
    name_.assign(info.device.data, info.device.length);
    const webgpu::DeviceDescriptor device_descriptor;
    const auto on_device = [](std::uint32_t, webgpu::DeviceHandle device, webgpu::StringView,
                              void* first,
                              void*) { *static_cast<webgpu::DeviceHandle*>(first) = device; };
    Function<&webgpu::Functions::request_device>("wgpuAdapterRequestDevice")(
        adapter_, &device_descriptor,
        {nullptr, webgpu::kCallbackSpontaneous, on_device, &device_, nullptr});
    Require(device_ != nullptr, "no device");
    queue_ = Function<&webgpu::Functions::get_queue>("wgpuDeviceGetQueue")(device_);
  }

  heed_device_t Open() const {
    heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
    args.library = path_.c_str();
    args.adapter = adapter_;
    args.device = device_;
    args.queue = queue_;
    heed_device_t device;
    Check(heed_webgpu_open_device(&args, &device));
    return device;
  }

  BufferHandle Create(std::uint64_t size_bytes, std::uint64_t usage, bool is_mapped = false) const {
    webgpu::BufferDescriptor descriptor;
    descriptor.size_bytes = size_bytes;
    descriptor.usage = usage;
    descriptor.mapped_at_creation = is_mapped ? 1 : 0;
    return Function<&webgpu::Functions::create_buffer>("wgpuDeviceCreateBuffer")(device_,
                                                                                 &descriptor);
  }
  BufferHandle Upload(const std::vector<std::uint32_t>& words) const {
    BufferHandle buffer = Create(words.size() * 4, kStorage);
    Function<&webgpu::Functions::write_buffer>("wgpuQueueWriteBuffer")(
        queue_, buffer, 0, words.data(), words.size() * 4);
    return buffer;
  }
  void Copy(BufferHandle from, BufferHandle to, std::uint64_t size_bytes) const {
    const auto encoder = Function<&webgpu::Functions::create_encoder>(
        "wgpuDeviceCreateCommandEncoder")(device_, nullptr);
    Function<&webgpu::Functions::copy_buffer>("wgpuCommandEncoderCopyBufferToBuffer")(
        encoder, from, 0, to, 0, size_bytes);
    const auto commands =
        Function<&webgpu::Functions::finish>("wgpuCommandEncoderFinish")(encoder, nullptr);
    Function<&webgpu::Functions::submit>("wgpuQueueSubmit")(queue_, 1, &commands);
    Function<&webgpu::Functions::release_commands>("wgpuCommandBufferRelease")(commands);
    Function<&webgpu::Functions::release_encoder>("wgpuCommandEncoderRelease")(encoder);
  }
  void Unmap(BufferHandle buffer) const {
    Function<&webgpu::Functions::unmap_buffer>("wgpuBufferUnmap")(buffer);
  }
  void Release(BufferHandle buffer) const {
    Function<&webgpu::Functions::release_buffer>("wgpuBufferRelease")(buffer);
  }
  void Wait() const { Function<&webgpu::Functions::poll>("wgpuDevicePoll")(device_, 1, nullptr); }
  const std::string& name() const { return name_; }

 private:
  std::string path_, name_;
  void* library_ = nullptr;
  webgpu::AdapterHandle adapter_ = nullptr;
  webgpu::DeviceHandle device_ = nullptr;
  webgpu::QueueHandle queue_ = nullptr;
};

template <class Body>
double MedianMilliseconds(int rounds, Body body) {
  std::vector<double> times;
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    if (round >= 0) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Small fp32 numbers, or pairs of fp16 ones.
std::vector<std::uint32_t> Words(std::size_t count, bool is_half, std::uint32_t seed) {
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t& word : words) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f;
    std::memcpy(&word, &value, 4);
    // 1.0 to 1.99 in both halves.
    if (is_half) word = 0x3C003C00u | (seed & 0x01FF01FFu);
  }
  return words;
}

struct Call {
  Call(std::int64_t len, std::int64_t dim, heed_dtype_t dtype, heed_device_t device)
      : shape{1, len, kHeads, dim} {
    for (heed_tensor_t* tensor : {&q, &k, &v, &o}) {
      *tensor = {nullptr, device, 4, dtype, shape, nullptr, 0};
    }
    args.q = &q;
    args.k = &k;
    args.v = &v;
    args.o = &o;
    args.exec = &exec;
    exec.backend = HEED_BACKEND_WEBGPU;
  }
  std::int64_t shape[4];
  heed_tensor_t q, k, v, o;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
};

void Measure(const Gpu& gpu, heed_device_t device, std::int64_t len, std::int64_t dim, bool is_half,
             int rounds) {
  const heed_dtype_t dtype = {HEED_DTYPE_FLOAT, static_cast<std::uint8_t>(is_half ? 16 : 32), 1};
  const auto count = static_cast<std::size_t>(len * kHeads * dim / (is_half ? 2 : 1));
  std::vector<std::uint32_t> words[4];
  Call host(len, dim, dtype, {HEED_DEVICE_CPU, 0}), own(len, dim, dtype, device);
  heed_tensor_t* host_tensors[] = {&host.q, &host.k, &host.v, &host.o};
  heed_tensor_t* own_tensors[] = {&own.q, &own.k, &own.v, &own.o};
  for (std::uint32_t at = 0; at < 4; ++at) {
    words[at] = Words(count, is_half, at);
    host_tensors[at]->data = words[at].data();
    own_tensors[at]->data = gpu.Upload(words[at]);
  }
  const double host_ms = MedianMilliseconds(rounds, [&] { Check(heed_forward(&host.args)); });
  const double own_ms = MedianMilliseconds(rounds, [&] {
    Check(heed_forward(&own.args));
    gpu.Wait();
  });
  constexpr int kCalls = 8;
  const double pipelined_ms = MedianMilliseconds(rounds,
                                                 [&] {
                                                   for (int call = 0; call < kCalls; ++call) {
                                                     Check(heed_forward(&own.args));
                                                   }
                                                   gpu.Wait();
                                                 }) /
                              kCalls;
  const std::uint64_t bytes = count * 4;
  BufferHandle up = gpu.Create(3 * bytes, webgpu::kUsageMapWrite | webgpu::kUsageCopySource, true);
  gpu.Unmap(up);
  BufferHandle down = gpu.Create(bytes, webgpu::kUsageMapRead | webgpu::kUsageCopyTarget);
  BufferHandle there = gpu.Create(3 * bytes, kStorage);
  const double transfer_ms = MedianMilliseconds(rounds, [&] {
    gpu.Copy(up, there, 3 * bytes);
    gpu.Copy(there, down, bytes);
    gpu.Wait();
  });
  std::printf(
      "  {\"L\": %lld, \"D\": %lld, \"heads\": %lld, \"dtype\": \"%s\", \"rounds\": %d, "
      "\"host_ms\": %.3f, \"own_buffers_ms\": %.3f, \"own_buffers_pipelined_ms\": %.3f, "
      "\"transfer_ms\": %.3f}",
      static_cast<long long>(len), static_cast<long long>(dim), static_cast<long long>(kHeads),
      is_half ? "f16" : "f32", rounds, host_ms, own_ms, pipelined_ms, transfer_ms);
  for (BufferHandle buffer : {up, down, there}) gpu.Release(buffer);
  for (const heed_tensor_t* tensor : own_tensors) {
    gpu.Release(static_cast<BufferHandle>(tensor->data));
  }
}

}  // namespace
}  // namespace heed::test

int main(int argc, char** argv) {
  const std::int64_t len = argc > 1 ? std::atoll(argv[1]) : 4096;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  heed::test::Require(len > 0 && len <= 4096 && rounds > 0, "L must be up to 4096, ROUNDS above 0");
  const heed::test::Gpu gpu;
  const heed_device_t device = gpu.Open();
  std::printf("{\"adapter\": \"%s\", \"results\": [\n", gpu.name().c_str());
  for (const bool is_half : {false, true}) {
    for (const std::int64_t dim : {64, 128}) {
      heed::test::Measure(gpu, device, len, dim, is_half, rounds);
      std::printf(is_half && dim == 128 ? "\n" : ",\n");
    }
  }
  std::printf("]}\n");
}
