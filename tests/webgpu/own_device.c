/* A program that makes its own WebGPU device through webgpu.h and has the library compute on it:
 * tensors in its buffers, several in one, next to data that must stay; lifetimes; bad input.
 *
 * own_device LIBRARY     LIBRARY = the file of wgpu-native that this program is linked to */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "own_gpu.h"

static double LargestDifference(const float* a, const float* b, size_t count) {
  double largest = 0.0;
  for (size_t at = 0; at < count; ++at) {
    const double difference = fabs((double)a[at] - (double)b[at]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/* q [1, 9, 4, 16], k and v [1, 21, 2, 16]. */
enum { kSq = 9, kSkv = 21, kHq = 4, kHkv = 2, kD = 16 };
enum { kQElems = kSq * kHq * kD, kKvElems = kSkv * kHkv * kD, kLseElems = kHq * kSq };
static int64_t q_shape[] = {1, kSq, kHq, kD};
static int64_t kv_shape[] = {1, kSkv, kHkv, kD};
static int64_t lse_shape[] = {1, kHq, kSq};

typedef struct Attention {
  heed_tensor_t q, k, v, o, lse;
  heed_score_args_t score;
  heed_exec_args_t exec;
  heed_forward_args_t args;
} Attention;

/* Tensors on a device without data. attention stays where it is. */
static void InitAttention(Attention* attention, heed_device_t device) {
  const heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  const heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  const heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  attention->q = TensorOf(NULL, device, kF32, 4, q_shape);
  attention->k = TensorOf(NULL, device, kF32, 4, kv_shape);
  attention->v = TensorOf(NULL, device, kF32, 4, kv_shape);
  attention->o = TensorOf(NULL, device, kF32, 4, q_shape);
  attention->lse = TensorOf(NULL, device, kF32, 3, lse_shape);
  attention->score = score;
  attention->score.causal = HEED_CAUSAL_ON;
  attention->exec = exec;
  attention->args = args;
  attention->args.q = &attention->q;
  attention->args.k = &attention->k;
  attention->args.v = &attention->v;
  attention->args.o = &attention->o;
  attention->args.lse = &attention->lse;
  attention->args.score = &attention->score;
  attention->args.exec = &attention->exec;
}

/* Inputs and expected results, by the oracle on the host. */
typedef struct Expected {
  float q[kQElems], k[kKvElems], v[kKvElems], o[kQElems], lse[kLseElems];
  float d_o[kQElems], dq[kQElems], dk[kKvElems], dv[kKvElems];
} Expected;

static Expected expected;

static void ComputeExpected(void) {
  FillRandom(expected.q, kQElems, 1);
  FillRandom(expected.k, kKvElems, 2);
  FillRandom(expected.v, kKvElems, 3);
  FillRandom(expected.d_o, kQElems, 4);
  Attention host;
  InitAttention(&host, kCpu);
  host.exec.backend = HEED_BACKEND_REFERENCE;
  host.q.data = expected.q;
  host.k.data = expected.k;
  host.v.data = expected.v;
  host.o.data = expected.o;
  host.lse.data = expected.lse;
  CHECK(heed_forward(&host.args) == HEED_OK);
  heed_tensor_t d_o = TensorOf(expected.d_o, kCpu, kF32, 4, q_shape);
  heed_tensor_t dq = TensorOf(expected.dq, kCpu, kF32, 4, q_shape);
  heed_tensor_t dk = TensorOf(expected.dk, kCpu, kF32, 4, kv_shape);
  heed_tensor_t dv = TensorOf(expected.dv, kCpu, kF32, 4, kv_shape);
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &host.args;
  backward.d_o = &d_o;
  backward.dq = &dq;
  backward.dk = &dk;
  backward.dv = &dv;
  backward.exec = &host.exec;
  CHECK(heed_backward(&backward) == HEED_OK);
}

/* o and lse stand in one buffer with words before, between and behind them that must stay. */
enum { kMargin = 8, kOutElems = kQElems + kLseElems + 3 * kMargin };
enum { kLseAt = kQElems + 2 * kMargin };

static void TestForwardAndBackward(const Gpu* gpu, heed_device_t device) {
  float out[kOutElems], result[kOutElems];
  FillRandom(out, kOutElems, 5);
  Attention call;
  InitAttention(&call, device);
  WGPUBuffer q = Upload(gpu, expected.q, sizeof(expected.q));
  WGPUBuffer k = Upload(gpu, expected.k, sizeof(expected.k));
  WGPUBuffer v = Upload(gpu, expected.v, sizeof(expected.v));
  WGPUBuffer results = Upload(gpu, out, sizeof(out));
  CHECK(heed_prepare(HEED_OP_FORWARD, &call.args) == HEED_OK);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  CHECK(heed_plan(HEED_OP_FORWARD, &call.args, &plan) == HEED_OK);
  CHECK(strncmp(plan.kernel_id, "webgpu.wgsl.forward.f32", 23) == 0);
  call.q.data = q;
  call.k.data = k;
  call.v.data = v;
  call.o.data = results;
  call.o.byte_offset = kMargin * sizeof(float);
  call.lse.data = results;
  call.lse.byte_offset = kLseAt * sizeof(float);
  CHECK(heed_forward(&call.args) == HEED_OK);
  Download(gpu, results, result, sizeof(result));
  CHECK(LargestDifference(result + kMargin, expected.o, kQElems) < 1e-5);
  CHECK(LargestDifference(result + kLseAt, expected.lse, kLseElems) < 1e-5);
  CHECK(memcmp(result, out, kMargin * sizeof(float)) == 0);
  CHECK(memcmp(result + kMargin + kQElems, out + kMargin + kQElems, kMargin * sizeof(float)) == 0);
  CHECK(memcmp(result + kLseAt + kLseElems, out + kLseAt + kLseElems, kMargin * sizeof(float)) ==
        0);

  WGPUBuffer d_o_buffer = Upload(gpu, expected.d_o, sizeof(expected.d_o));
  WGPUBuffer dq_buffer = MakeBuffer(gpu, sizeof(expected.dq), kAll);
  WGPUBuffer dkv_buffer = MakeBuffer(gpu, sizeof(expected.dk) + sizeof(expected.dv), kAll);
  heed_tensor_t d_o = TensorOf(d_o_buffer, device, kF32, 4, q_shape);
  heed_tensor_t dq = TensorOf(dq_buffer, device, kF32, 4, q_shape);
  heed_tensor_t dk = TensorOf(dkv_buffer, device, kF32, 4, kv_shape);
  heed_tensor_t dv = TensorOf(dkv_buffer, device, kF32, 4, kv_shape);
  dv.byte_offset = sizeof(expected.dk);
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &call.args;
  backward.d_o = &d_o;
  backward.dq = &dq;
  backward.dk = &dk;
  backward.dv = &dv;
  CHECK(heed_backward(&backward) == HEED_OK);
  float dq_result[kQElems], dkv_result[2 * kKvElems];
  Download(gpu, dq_buffer, dq_result, sizeof(dq_result));
  Download(gpu, dkv_buffer, dkv_result, sizeof(dkv_result));
  CHECK(LargestDifference(dq_result, expected.dq, kQElems) < 1e-5);
  CHECK(LargestDifference(dkv_result, expected.dk, kKvElems) < 1e-5);
  CHECK(LargestDifference(dkv_result + kKvElems, expected.dv, kKvElems) < 1e-5);
  dv.byte_offset = sizeof(expected.dk) + sizeof(float);
  CHECK_REFUSED(heed_backward(&backward), HEED_INVALID_ARGUMENT,
                "dv.byte_offset = 2692: the tensor's 2688 bytes run past the buffer's 5376");
  dv.byte_offset = 0;
  CHECK_REFUSED(heed_backward(&backward), HEED_INVALID_ARGUMENT,
                "dk: an output must not overlap dv");
  WGPUBuffer all[] = {q, k, v, results, d_o_buffer, dq_buffer, dkv_buffer};
  for (size_t at = 0; at < sizeof(all) / sizeof(all[0]); ++at) wgpuBufferRelease(all[at]);
}

/* fp16 elements at odd places of a word, packed sequences whose lengths are in a buffer. */
static void TestPackedHalves(const Gpu* gpu, heed_device_t device) {
  enum { kTokens = 7, kHeadDim = 5, kElems = kTokens * kHeadDim, kWords = (kElems + 3) / 2 };
  const uint16_t one = 0x3C00, untouched = 0x1234;
  uint16_t in[2 * kWords], out[2 * kWords];
  for (size_t at = 0; at < 2 * kWords; ++at) {
    in[at] = one;
    out[at] = untouched;
  }
  const int32_t offsets[] = {0, 3, 7};
  WGPUBuffer in_buffer = Upload(gpu, in, sizeof(in));
  WGPUBuffer out_buffer = Upload(gpu, out, sizeof(out));
  WGPUBuffer offsets_buffer = Upload(gpu, offsets, sizeof(offsets));
  int64_t shape[] = {kTokens, 1, kHeadDim}, offsets_shape[] = {3};
  heed_tensor_t rows = TensorOf(in_buffer, device, kF16, 3, shape);
  rows.byte_offset = sizeof(uint16_t);
  heed_tensor_t o = TensorOf(out_buffer, device, kF16, 3, shape);
  o.byte_offset = sizeof(uint16_t);
  heed_tensor_t cu_seqlens = TensorOf(offsets_buffer, device, kI32, 1, offsets_shape);
  heed_varlen_args_t varlen = HEED_VARLEN_ARGS_INIT;
  varlen.cu_seqlens_q = &cu_seqlens;
  varlen.cu_seqlens_kv = &cu_seqlens;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = args.k = args.v = &rows;
  args.o = &o;
  args.varlen = &varlen;
  CHECK(heed_forward(&args) == HEED_OK);
  Download(gpu, out_buffer, out, sizeof(out));
  CHECK(out[0] == untouched);
  for (size_t at = 1; at <= kElems; ++at) CHECK(out[at] == one);
  CHECK(out[kElems + 1] == untouched);
  rows.byte_offset = 1;
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT,
                "q.byte_offset = 1: must be a multiple of the 2 bytes of f16");
  rows.byte_offset = sizeof(uint16_t);
  const int32_t bad_offsets[] = {0, 8, 7};
  wgpuQueueWriteBuffer(gpu->queue, offsets_buffer, 0, bad_offsets, sizeof(bad_offsets));
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT, "varlen.cu_seqlens_q[1] = 8");
  wgpuBufferRelease(in_buffer);
  wgpuBufferRelease(out_buffer);
  wgpuBufferRelease(offsets_buffer);
}

/* A token is appended to a cache in one buffer: its row changes, and no other. */
static void TestDecode(const Gpu* gpu, heed_device_t device) {
  enum { kSlots = 12, kLength = 10, kHeadDim = 8, kCache = kSlots * kHeadDim };
  float caches[2 * kCache], appended[2 * kCache], token[3 * kHeadDim], o[kHeadDim];
  float host_o[kHeadDim];
  FillRandom(caches, 2 * kCache, 6);
  FillRandom(token, 3 * kHeadDim, 7);
  memcpy(appended, caches, sizeof(caches));
  const int32_t length = kLength;
  int64_t token_shape[] = {1, 1, 1, kHeadDim}, cache_shape[] = {1, kSlots, 1, kHeadDim};
  int64_t length_shape[] = {1};
  WGPUBuffer cache_buffer = Upload(gpu, caches, sizeof(caches));
  WGPUBuffer token_buffer = Upload(gpu, token, sizeof(token));
  WGPUBuffer length_buffer = Upload(gpu, &length, sizeof(length));
  WGPUBuffer o_buffer = MakeBuffer(gpu, sizeof(o), kAll);
  for (int is_on_host = 0; is_on_host < 2; ++is_on_host) {
    const heed_device_t home = is_on_host ? kCpu : device;
    void* caches_at = is_on_host ? (void*)appended : (void*)cache_buffer;
    void* tokens_at = is_on_host ? (void*)token : (void*)token_buffer;
    heed_tensor_t q = TensorOf(tokens_at, home, kF32, 4, token_shape);
    heed_tensor_t k_new = q, v_new = q;
    k_new.byte_offset = kHeadDim * sizeof(float);
    v_new.byte_offset = 2 * kHeadDim * sizeof(float);
    heed_tensor_t k_cache = TensorOf(caches_at, home, kF32, 4, cache_shape);
    heed_tensor_t v_cache = k_cache;
    v_cache.byte_offset = kCache * sizeof(float);
    heed_tensor_t lengths =
        TensorOf(is_on_host ? (void*)&length : (void*)length_buffer, home, kI32, 1, length_shape);
    heed_tensor_t out =
        TensorOf(is_on_host ? (void*)host_o : (void*)o_buffer, home, kF32, 4, token_shape);
    heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
    exec.backend = is_on_host ? HEED_BACKEND_REFERENCE : HEED_BACKEND_WEBGPU;
    heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
    args.q = &q;
    args.k_cache = &k_cache;
    args.v_cache = &v_cache;
    args.k_new = &k_new;
    args.v_new = &v_new;
    args.o = &out;
    args.cache_lengths = &lengths;
    args.exec = &exec;
    CHECK(heed_decode(&args) == HEED_OK);
  }
  Download(gpu, o_buffer, o, sizeof(o));
  Download(gpu, cache_buffer, caches, sizeof(caches));
  CHECK(LargestDifference(o, host_o, kHeadDim) < 1e-5);
  CHECK(memcmp(caches, appended, sizeof(caches)) == 0);
  CHECK(memcmp(caches + kLength * kHeadDim, token + kHeadDim, kHeadDim * sizeof(float)) == 0);
  wgpuBufferRelease(cache_buffer);
  wgpuBufferRelease(token_buffer);
  wgpuBufferRelease(length_buffer);
  wgpuBufferRelease(o_buffer);
}

/* What a buffer or a call may not be; o keeps what it had. */
static void TestBadBuffers(const Gpu* gpu, heed_device_t device) {
  Attention call;
  InitAttention(&call, device);
  const WGPUBuffer q = MakeBuffer(gpu, sizeof(expected.q), kInput);
  const WGPUBuffer kv = MakeBuffer(gpu, sizeof(expected.k), kInput);
  float before[kQElems], after[kQElems];
  FillRandom(before, kQElems, 8);
  const WGPUBuffer o = Upload(gpu, before, sizeof(before));
  call.q.data = q;
  call.k.data = call.v.data = kv;
  call.o.data = o;
  call.args.lse = NULL;

  const WGPUBuffer bad_usages[] = {
      MakeBuffer(gpu, sizeof(expected.q), WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst),
      MakeBuffer(gpu, sizeof(expected.q), WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst)};
  const char* const missing[] = {
      "q.data: the buffer's usage 0xc must have WGPUBufferUsage_Storage",
      "q.data: the buffer's usage 0x88 must have WGPUBufferUsage_CopySrc"};
  for (int at = 0; at < 2; ++at) {
    call.q.data = bad_usages[at];
    CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, missing[at]);
    wgpuBufferRelease(bad_usages[at]);
  }
  call.q.data = q;
  call.o.data = q;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT,
                "o.data: the buffer's usage 0x84 must have WGPUBufferUsage_CopyDst");
  call.o.data = o;
  const WGPUBuffer small = MakeBuffer(gpu, sizeof(expected.q) - 4, kInput);
  call.q.data = small;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT,
                "q.byte_offset = 0: the tensor's 2304 bytes run past the buffer's 2300");
  call.q.data = q;
  call.q.byte_offset = UINT64_MAX - 3;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT,
                "q.byte_offset = 18446744073709551612: the tensor's 2304 bytes run past");
  call.q.byte_offset = 0;
  const WGPUBuffer destroyed = MakeBuffer(gpu, sizeof(expected.q), kInput);
  wgpuBufferDestroy(destroyed);
  call.q.data = destroyed;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT,
                "q.data: the buffer cannot be used: ");
  call.q.data = NULL;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "q.data = NULL: is required");
  call.q.data = q;
  call.v.device = kCpu;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "v.device = cpu: must be webgpu:");
  call.v.device = device;
  call.q.ndim = 9;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "q.ndim = 9: must be from 1 to 5");
  call.q.ndim = 4;
  call.exec.stream = &call;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "exec.stream: must be NULL");
  call.exec.stream = NULL;
  call.exec.backend = HEED_BACKEND_CPU;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT,
                "exec.backend = 1: cannot read tensors on webgpu:");
  call.exec.backend = (heed_backend_t)77;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "exec.backend = 77");
  call.exec.backend = HEED_BACKEND_WEBGPU;
  call.score.softcap = -1.0;
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "score.softcap = -1");
  Download(gpu, o, after, sizeof(after));
  CHECK(memcmp(before, after, sizeof(before)) == 0);
  call.score.softcap = 0.0;
  CHECK(heed_forward(&call.args) == HEED_OK);

  heed_combine_args_t combine = HEED_COMBINE_ARGS_INIT;
  int64_t part_shape[] = {2, 1, 1, 1, 4}, part_lse_shape[] = {2, 1, 1, 1}, o_shape[] = {1, 1, 1, 4};
  heed_tensor_t parts = TensorOf(q, device, kF32, 5, part_shape);
  heed_tensor_t part_lse = TensorOf(kv, device, kF32, 4, part_lse_shape);
  heed_tensor_t combined = TensorOf(o, device, kF32, 4, o_shape);
  combine.o_partial = &parts;
  combine.lse_partial = &part_lse;
  combine.o = &combined;
  CHECK(heed_combine(&combine) != HEED_OK);
  const WGPUBuffer all[] = {q, kv, o, small, destroyed};
  for (size_t at = 0; at < sizeof(all) / sizeof(all[0]); ++at) wgpuBufferRelease(all[at]);
}

static void* FindByLinker(void* context, const char* name) { return dlsym(context, name); }

static void* FindNothing(void* context, const char* name) {
  (void)context, (void)name;
  return NULL;
}

static void TestOpening(const Gpu* gpu, const char* library) {
  heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
  heed_device_t device = {HEED_DEVICE_CPU, 0};
  CHECK_REFUSED(heed_webgpu_open_device(NULL, &device), HEED_INVALID_ARGUMENT, "args = NULL");
  CHECK_REFUSED(heed_webgpu_open_device(&args, NULL), HEED_INVALID_ARGUMENT, "device = NULL");
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                "args.adapter = NULL");
  args.adapter = gpu->adapter;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                "args.device = NULL");
  args.device = gpu->device;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                "args.queue = NULL");
  args.queue = gpu->queue;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                "args.library = NULL: exactly one of");
  args.library = library;
  args.get_proc_address = FindNothing;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT, "exactly one of");
  args.library = NULL;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_UNAVAILABLE,
                "args.get_proc_address is not wgpu-native: it has no wgpuGetVersion");
  args.get_proc_address = NULL;
  args.library = "/nonexistent/libwgpu_native.so";
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_UNAVAILABLE, "/nonexistent/");
  args.library = library;
  args.proc_context = &args;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                "args.proc_context: must be NULL");
  args.proc_context = NULL;
  args.struct_size = 8;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT, "struct_size");
  CHECK(device.device_type == HEED_DEVICE_CPU);
  CHECK_REFUSED(heed_webgpu_close_device(device), HEED_INVALID_ARGUMENT,
                "device = cpu: heed_webgpu_open_device gave no such device");
}

/* Not its own: the queue of another device of the instance, and of one of another instance. */
static void TestForeignQueues(const Gpu* gpu, const char* library) {
  heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
  args.library = library;
  args.adapter = gpu->adapter;
  args.device = gpu->device;
  WGPUAdapter adapter = NULL;
  WGPUDevice sibling = NULL;
  WGPURequestAdapterCallbackInfo on_adapter;
  memset(&on_adapter, 0, sizeof(on_adapter));
  on_adapter.mode = WGPUCallbackMode_AllowSpontaneous;
  on_adapter.callback = OnAdapter;
  on_adapter.userdata1 = &adapter;
  wgpuInstanceRequestAdapter(gpu->instance, NULL, on_adapter);
  WGPURequestDeviceCallbackInfo on_device;
  memset(&on_device, 0, sizeof(on_device));
  on_device.mode = WGPUCallbackMode_AllowSpontaneous;
  on_device.callback = OnDevice;
  on_device.userdata1 = &sibling;
  wgpuAdapterRequestDevice(adapter, NULL, on_device);
  const Gpu stranger = MakeGpu();
  WGPUQueue queues[] = {wgpuDeviceGetQueue(sibling), stranger.queue};
  for (int other = 0; other < 2; ++other) {
    args.queue = queues[other];
    heed_device_t device;
    CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_INVALID_ARGUMENT,
                  "args.queue: must be the queue of args.device");
  }
  wgpuQueueRelease(queues[0]);
  wgpuDeviceRelease(sibling);
  wgpuAdapterRelease(adapter);
}

/* The library holds on to the device that the program has let go of; closed devices are refused. */
static void TestLifetimes(const char* library) {
  Gpu gpu = MakeGpu();
  heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
  args.library = library;
  args.adapter = gpu.adapter;
  args.device = gpu.device;
  args.queue = gpu.queue;
  heed_device_t first, second;
  CHECK(heed_webgpu_open_device(&args, &first) == HEED_OK);
  CHECK(heed_webgpu_open_device(&args, &second) == HEED_OK);
  CHECK(first.device_id != second.device_id);
  CHECK(heed_webgpu_close_device(first) == HEED_OK);
  CHECK_REFUSED(heed_webgpu_close_device(first), HEED_INVALID_ARGUMENT, "or it was closed");
  TestPackedHalves(&gpu, second);
  Attention call;
  InitAttention(&call, first);
  CHECK_REFUSED(heed_forward(&call.args), HEED_INVALID_ARGUMENT, "or it was closed");
  CHECK_REFUSED(heed_prepare(HEED_OP_FORWARD, &call.args), HEED_INVALID_ARGUMENT,
                "or it was closed");

  InitAttention(&call, second);
  const WGPUBuffer q = MakeBuffer(&gpu, sizeof(expected.q), kAll);
  const WGPUBuffer kv = MakeBuffer(&gpu, sizeof(expected.k), kInput);
  const WGPUBuffer o = MakeBuffer(&gpu, sizeof(expected.o), kAll);
  call.q.data = q;
  call.k.data = call.v.data = kv;
  call.o.data = o;
  call.args.lse = NULL;
  WGPUDevice raw_device = gpu.device;
  wgpuDeviceAddRef(raw_device);
  wgpuQueueRelease(gpu.queue);
  wgpuDeviceRelease(gpu.device);
  wgpuAdapterRelease(gpu.adapter);
  wgpuInstanceRelease(gpu.instance);
  CHECK(heed_forward(&call.args) == HEED_OK);
  /* A device that was destroyed is an error of the call, and cannot be opened again. */
  wgpuDeviceDestroy(raw_device);
  CHECK_REFUSED(heed_forward(&call.args), HEED_DEVICE_ERROR, "lost");
  CHECK(heed_webgpu_close_device(second) == HEED_OK);
  wgpuBufferRelease(q);
  wgpuBufferRelease(kv);
  wgpuBufferRelease(o);
  wgpuDeviceRelease(raw_device);
}

static void TestDestroyedBeforeOpening(const char* library) {
  Gpu gpu = MakeGpu();
  wgpuDeviceDestroy(gpu.device);
  heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
  args.library = library;
  args.adapter = gpu.adapter;
  args.device = gpu.device;
  args.queue = gpu.queue;
  heed_device_t device;
  CHECK_REFUSED(heed_webgpu_open_device(&args, &device), HEED_DEVICE_ERROR, "lost");
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Gpu gpu = MakeGpu();
  if (gpu.queue == NULL) {
    printf("own_device: no adapter\n");
    return 1;
  }
  ComputeExpected();
  TestOpening(&gpu, argv[1]);
  TestForeignQueues(&gpu, argv[1]);
  heed_webgpu_device_args_t args = HEED_WEBGPU_DEVICE_ARGS_INIT;
  args.get_proc_address = FindByLinker;
  args.proc_context = RTLD_DEFAULT;
  args.adapter = gpu.adapter;
  args.device = gpu.device;
  args.queue = gpu.queue;
  heed_device_t device;
  CHECK(heed_webgpu_open_device(&args, &device) == HEED_OK);
  if (num_failures == 0) {
    TestForwardAndBackward(&gpu, device);
    TestPackedHalves(&gpu, device);
    TestDecode(&gpu, device);
    TestBadBuffers(&gpu, device);
    CHECK(heed_webgpu_close_device(device) == HEED_OK);
    TestLifetimes(argv[1]);
    TestDestroyedBeforeOpening(argv[1]);
  }
  CHECK(num_uncaptured == 0);
  printf("own_device: %d failures\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
