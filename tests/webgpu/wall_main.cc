// webgpu_wall [L [ROUNDS [CALLS [OP]]]]: what whole calls take by the wall clock, on tensors of the
// host and on ones in the caller's own buffers, beside the time that moving the same bytes to the
// device and back takes. CALLS: before one wait. OP: forward, decode or backward alone. JSON on
// stdout. Run by hand (docs/kernels/webgpu.md).
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "heed/heed_webgpu.h"
#include "webgpu/interface.h"

namespace heed::test {
namespace {

using webgpu::BufferHandle;

constexpr std::int64_t kHeads = 16;
int num_calls = 8;
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

// Tensors of one shape and type on the host and in buffers.
struct Tensors {
  Tensors(const Gpu& gpu, std::vector<std::int64_t> dims, bool is_half, std::uint32_t seed)
      : shape(std::move(dims)) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    words = Words(static_cast<std::size_t>(count / (is_half ? 2 : 1)), is_half, seed);
    buffer = gpu.Upload(words);
    dtype = {HEED_DTYPE_FLOAT, static_cast<std::uint8_t>(is_half ? 16 : 32), 1};
    Put(heed_device_t{HEED_DEVICE_CPU, 0});
  }
  void Put(heed_device_t device) {
    void* data = device.device_type == HEED_DEVICE_CPU ? static_cast<void*>(words.data()) : buffer;
    tensor = {data,    device, static_cast<std::int32_t>(shape.size()), dtype, shape.data(),
              nullptr, 0};
  }
  std::uint64_t bytes() const { return words.size() * 4; }

  std::vector<std::int64_t> shape;
  std::vector<std::uint32_t> words;
  BufferHandle buffer = nullptr;
  heed_dtype_t dtype = {};
  heed_tensor_t tensor = {};
};

struct Times {
  double host_ms = 0.0, own_ms = 0.0, pipelined_ms = 0.0, transfer_ms = 0.0;
};

// call(): one call of the library on what `all` holds.
template <class Call>
Times Measure(const Gpu& gpu, heed_device_t device, const std::vector<Tensors*>& all,
              std::uint64_t bytes_up, int rounds, Call call) {
  Times times;
  times.host_ms = MedianMilliseconds(rounds, [&] { Check(call()); });
  for (Tensors* tensors : all) tensors->Put(device);
  times.own_ms = MedianMilliseconds(rounds, [&] {
    Check(call());
    gpu.Wait();
  });
  times.pipelined_ms = MedianMilliseconds(rounds,
                                          [&] {
                                            for (int at = 0; at < num_calls; ++at) Check(call());
                                            gpu.Wait();
                                          }) /
                       num_calls;
  std::uint64_t total = 0;
  for (const Tensors* tensors : all) total += tensors->bytes();
  const std::uint64_t bytes_down = total - bytes_up;
  BufferHandle up = gpu.Create(bytes_up, webgpu::kUsageMapWrite | webgpu::kUsageCopySource, true);
  gpu.Unmap(up);
  BufferHandle down = gpu.Create(bytes_down, webgpu::kUsageMapRead | webgpu::kUsageCopyTarget);
  BufferHandle there = gpu.Create(std::max(bytes_up, bytes_down), kStorage);
  times.transfer_ms = MedianMilliseconds(rounds, [&] {
    gpu.Copy(up, there, bytes_up);
    gpu.Copy(there, down, bytes_down);
    gpu.Wait();
  });
  for (BufferHandle buffer : {up, down, there}) gpu.Release(buffer);
  for (const Tensors* tensors : all) gpu.Release(tensors->buffer);
  return times;
}

void Print(const char* op, const char* shape, bool is_half, const Times& times) {
  static bool is_first = true;
  std::printf(
      "%s  {\"op\": \"%s\", %s, \"dtype\": \"%s\", \"host_ms\": %.3f, "
      "\"own_buffers_ms\": %.3f, \"own_buffers_pipelined_ms\": %.3f, "
      "\"transfer_ms\": %.3f}",
      is_first ? "" : ",\n", op, shape, is_half ? "f16" : "f32", times.host_ms, times.own_ms,
      times.pipelined_ms, times.transfer_ms);
  std::fflush(stdout);
  is_first = false;
}

std::string ShapeText(std::int64_t len, std::int64_t dim) {
  return "\"L\": " + std::to_string(len) + ", \"D\": " + std::to_string(dim) + ", \"heads\": 16";
}

void MeasureForward(const Gpu& gpu, heed_device_t device, std::int64_t len, std::int64_t dim,
                    bool is_half, int rounds) {
  const std::vector<std::int64_t> shape = {1, len, kHeads, dim};
  Tensors q(gpu, shape, is_half, 1), k(gpu, shape, is_half, 2), v(gpu, shape, is_half, 3),
      o(gpu, shape, is_half, 4);
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_WEBGPU;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = &q.tensor;
  args.k = &k.tensor;
  args.v = &v.tensor;
  args.o = &o.tensor;
  args.exec = &exec;
  Print("forward", ShapeText(len, dim).c_str(), is_half,
        Measure(gpu, device, {&q, &k, &v, &o}, 3 * q.bytes(), rounds,
                [&] { return heed_forward(&args); }));
}

// What lse and o hold does not change the time.
void MeasureBackward(const Gpu& gpu, heed_device_t device, std::int64_t len, std::int64_t dim,
                     int rounds) {
  const std::vector<std::int64_t> shape = {1, len, kHeads, dim};
  Tensors q(gpu, shape, false, 1), k(gpu, shape, false, 2), v(gpu, shape, false, 3),
      o(gpu, shape, false, 4), lse(gpu, {1, kHeads, len}, false, 5), d_o(gpu, shape, false, 6),
      dq(gpu, shape, false, 7), dk(gpu, shape, false, 8), dv(gpu, shape, false, 9);
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_WEBGPU;
  heed_forward_args_t forward = HEED_FORWARD_ARGS_INIT;
  forward.q = &q.tensor;
  forward.k = &k.tensor;
  forward.v = &v.tensor;
  forward.o = &o.tensor;
  forward.lse = &lse.tensor;
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
  args.forward = &forward;
  args.d_o = &d_o.tensor;
  args.dq = &dq.tensor;
  args.dk = &dk.tensor;
  args.dv = &dv.tensor;
  args.exec = &exec;
  Print("backward", ShapeText(len, dim).c_str(), false,
        Measure(gpu, device, {&q, &k, &v, &o, &lse, &d_o, &dq, &dk, &dv},
                5 * q.bytes() + lse.bytes(), rounds, [&] { return heed_backward(&args); }));
}

// One token for each of 8 sequences of `len` keys, 32 query heads on 8 KV heads.
void MeasureDecode(const Gpu& gpu, heed_device_t device, std::int64_t len, int rounds) {
  constexpr std::int64_t kBatch = 8, kQHeads = 32, kKvHeads = 8, kDim = 128;
  Tensors q(gpu, {kBatch, 1, kQHeads, kDim}, true, 1),
      k(gpu, {kBatch, len, kKvHeads, kDim}, true, 2),
      v(gpu, {kBatch, len, kKvHeads, kDim}, true, 3), o(gpu, {kBatch, 1, kQHeads, kDim}, true, 4),
      lengths(gpu, {kBatch}, false, 5);
  lengths.dtype = {HEED_DTYPE_INT, 32, 1};
  lengths.words.assign(kBatch, static_cast<std::uint32_t>(len));
  gpu.Release(lengths.buffer);
  lengths.buffer = gpu.Upload(lengths.words);
  lengths.Put({HEED_DEVICE_CPU, 0});
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_WEBGPU;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
  args.q = &q.tensor;
  args.k_cache = &k.tensor;
  args.v_cache = &v.tensor;
  args.o = &o.tensor;
  args.cache_lengths = &lengths.tensor;
  args.exec = &exec;
  const std::string shape =
      "\"B\": 8, \"keys\": " + std::to_string(len) + ", \"D\": 128, \"heads\": 32, \"kv_heads\": 8";
  Print(
      "decode", shape.c_str(), true,
      Measure(gpu, device, {&q, &k, &v, &lengths, &o}, q.bytes() + 2 * k.bytes() + lengths.bytes(),
              rounds, [&] { return heed_decode(&args); }));
}

}  // namespace
}  // namespace heed::test

int main(int argc, char** argv) {
  const std::int64_t len = argc > 1 ? std::atoll(argv[1]) : 4096;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (argc > 3) heed::test::num_calls = std::atoi(argv[3]);
  heed::test::Require(heed::test::num_calls > 0, "CALLS must be above 0");
  heed::test::Require(len > 0 && len <= 4096 && rounds > 0, "L must be up to 4096, ROUNDS above 0");
  const heed::test::Gpu gpu;
  const heed_device_t device = gpu.Open();
  std::printf("{\"adapter\": \"%s\", \"rounds\": %d, \"results\": [\n", gpu.name().c_str(), rounds);
  const std::string op = argc > 4 ? argv[4] : "";
  for (const bool is_half : {false, true}) {
    for (const std::int64_t dim : {64, 128}) {
      if (!op.empty() && op != "forward") continue;
      heed::test::MeasureForward(gpu, device, len, dim, is_half, rounds);
    }
  }
  if (op.empty() || op == "decode") heed::test::MeasureDecode(gpu, device, len, rounds);
  if (op.empty() || op == "backward") heed::test::MeasureBackward(gpu, device, len, 64, rounds);
  std::printf("\n]}\n");
}
