/* Calls on tensors in the program's own buffers give the bits that the same calls give on host
 * tensors, in every type and layout, and write nothing beside. Prints markers to stderr between
 * which own_device_test.sh sees that nothing was read back.
 *
 * own_buffers LIBRARY     LIBRARY = the file of wgpu-native that this program is linked to */
#define _GNU_SOURCE
#include <stdlib.h>

#include "own_gpu.h"

static const heed_dtype_t kBf16 = {HEED_DTYPE_BFLOAT, 16, 1};
static const heed_dtype_t kBool = {HEED_DTYPE_BOOL, 8, 1};

/* How a tensor lies in its memory: dense; rows with gaps between and an odd first element; heads
 * outermost (axes 1 and 2 swapped). */
typedef enum Layout { kDense, kGaps, kHeadsFirst } Layout;

enum { kMaxTensors = 16 };

typedef struct Mine {
  heed_tensor_t tensor; /* as the call gets it, on one side or the other */
  int64_t shape[4], strides[4];
  unsigned char* host;
  WGPUBuffer buffer;
  size_t size_bytes;
} Mine;

typedef struct Case {
  const Gpu* gpu;
  Mine mine[kMaxTensors];
  int count;
  unsigned seed;
} Case;

static unsigned Next(Case* c) {
  c->seed = c->seed * 1664525u + 1013904223u;
  return c->seed >> 8;
}

/* Numbers of magnitude 0.25 to 1, of either sign; bool: 3 of 4 are 1. */
static void FillElements(Case* c, Mine* mine) {
  const int bytes = mine->tensor.dtype.bits / 8;
  for (size_t at = 0; at + (size_t)bytes <= mine->size_bytes; at += (size_t)bytes) {
    const unsigned number = Next(c), sign = number >> 23 & 1;
    uint32_t word = sign << 31 | (0x3E800000u + (number & 0xFFFFFFu));
    uint16_t half = (uint16_t)(word >> 16);
    if (mine->tensor.dtype.code == HEED_DTYPE_FLOAT) {
      half = (uint16_t)(sign << 15 | (0x3400u + (number & 0x7FFu)));
    }
    const unsigned char flag = number % 4 != 0;
    memcpy(mine->host + at,
           bytes == 4   ? (void*)&word
           : bytes == 2 ? (void*)&half
                        : (void*)&flag,
           (size_t)bytes);
  }
}

static heed_tensor_t* Add(Case* c, heed_dtype_t dtype, Layout layout, int rank,
                          const int64_t* shape) {
  Mine* mine = &c->mine[c->count++];
  memset(mine, 0, sizeof(*mine));
  memcpy(mine->shape, shape, (size_t)rank * sizeof(int64_t));
  int64_t pitch = 1;
  for (int axis = rank; axis-- > 0;) {
    mine->strides[axis] = pitch;
    pitch *= shape[axis];
    if (layout == kGaps && axis == rank - 1) pitch += 3;
  }
  if (layout == kHeadsFirst) {
    mine->strides[1] = shape[3];
    mine->strides[2] = shape[1] * shape[3];
  }
  const size_t elem_bytes = dtype.bits / 8, offset = layout == kGaps ? 3 * elem_bytes : 0;
  mine->size_bytes = ((size_t)pitch * elem_bytes + offset + 7) / 4 * 4;
  mine->host = malloc(mine->size_bytes);
  mine->tensor = TensorOf(NULL, kCpu, dtype, rank, mine->shape);
  mine->tensor.strides = layout == kDense ? NULL : mine->strides;
  mine->tensor.byte_offset = offset;
  FillElements(c, mine);
  return &mine->tensor;
}

static heed_tensor_t* AddIndices(Case* c, int rank, const int64_t* shape, const int32_t* values) {
  heed_tensor_t* tensor = Add(c, kI32, kDense, rank, shape);
  size_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= (size_t)shape[axis];
  memcpy(c->mine[c->count - 1].host, values, count * sizeof(int32_t));
  return tensor;
}

static void UploadAll(Case* c) {
  for (int at = 0; at < c->count; ++at) {
    c->mine[at].buffer = Upload(c->gpu, c->mine[at].host, c->mine[at].size_bytes);
  }
}

static void PutOn(Case* c, heed_device_t device) {
  for (int at = 0; at < c->count; ++at) {
    const int is_host = device.device_type == HEED_DEVICE_CPU;
    c->mine[at].tensor.data = is_host ? (void*)c->mine[at].host : (void*)c->mine[at].buffer;
    c->mine[at].tensor.device = device;
  }
}

/* Every byte of every tensor is the same on both sides. */
static void CompareAndRelease(Case* c, const char* name) {
  for (int at = 0; at < c->count; ++at) {
    unsigned char* bytes = malloc(c->mine[at].size_bytes);
    Download(c->gpu, c->mine[at].buffer, bytes, c->mine[at].size_bytes);
    if (memcmp(bytes, c->mine[at].host, c->mine[at].size_bytes) != 0) {
      printf("%s: tensor %d differs\n", name, at);
      ++num_failures;
    }
    free(bytes);
    free(c->mine[at].host);
    wgpuBufferRelease(c->mine[at].buffer);
  }
  c->count = 0;
}

typedef struct Spec {
  const char* name;
  heed_dtype_t dtype;
  Layout layout;
  int64_t sq, skv, hq, hkv, d, dv;
  int has_bias, has_mask, is_packed, is_paged;
} Spec;

enum { kBatch = 2, kPageSlots = 8 };

static void TestForward(const Gpu* gpu, heed_device_t device, const Spec* s, int shows_reading) {
  Case c;
  memset(&c, 0, sizeof(c));
  c.gpu = gpu;
  c.seed = 17;
  const heed_score_args_t no_score = HEED_SCORE_ARGS_INIT;
  const heed_varlen_args_t no_varlen = HEED_VARLEN_ARGS_INIT;
  const heed_paging_args_t no_paging = HEED_PAGING_ARGS_INIT;
  const heed_exec_args_t no_exec = HEED_EXEC_ARGS_INIT;
  heed_score_args_t score = no_score;
  heed_varlen_args_t varlen = no_varlen;
  heed_paging_args_t paging = no_paging;
  heed_exec_args_t exec = no_exec;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  const int rank = s->is_packed ? 3 : 4, skip = s->is_packed ? 1 : 0;
  const int64_t pages = (s->skv + kPageSlots - 1) / kPageSlots;
  int64_t q_shape[] = {kBatch, s->sq, s->hq, s->d}, o_shape[] = {kBatch, s->sq, s->hq, s->dv};
  int64_t k_shape[] = {kBatch, s->skv, s->hkv, s->d}, v_shape[] = {kBatch, s->skv, s->hkv, s->dv};
  int64_t lse_shape[] = {kBatch, s->hq, s->sq};
  if (s->is_packed) lse_shape[1] = s->hq;
  if (s->is_paged) {
    k_shape[0] = v_shape[0] = 2 * pages + 1;
    k_shape[1] = v_shape[1] = kPageSlots;
  }
  args.q = Add(&c, s->dtype, s->layout, rank, q_shape + skip);
  args.k = Add(&c, s->dtype, s->layout, s->is_paged ? 4 : rank, k_shape + (s->is_paged ? 0 : skip));
  args.v = Add(&c, s->dtype, s->layout, s->is_paged ? 4 : rank, v_shape + (s->is_paged ? 0 : skip));
  args.o = Add(&c, s->dtype, s->layout, rank, o_shape + skip);
  args.lse =
      Add(&c, kF32, s->layout == kHeadsFirst ? kDense : s->layout, rank - 1, lse_shape + skip);
  if (s->has_bias) {
    const int64_t bias_shape[] = {1, s->hq, s->sq, s->skv};
    score.bias = Add(&c, s->has_bias == 2 ? s->dtype : kF32, kGaps, 4, bias_shape);
  }
  if (s->has_mask) {
    const int64_t mask_shape[] = {kBatch, 1, s->sq, s->skv};
    score.mask = Add(&c, kBool, kDense, 4, mask_shape);
  }
  /* Packed: two sequences and a few rows of each that take no part. */
  const int64_t three[] = {3}, two[] = {2}, table_shape[] = {2, pages};
  const int32_t q_offsets[] = {0, (int32_t)(s->sq / 3), (int32_t)s->sq};
  const int32_t kv_offsets[] = {0, (int32_t)(s->skv / 2), (int32_t)s->skv};
  const int32_t q_used[] = {(int32_t)(s->sq / 3), (int32_t)(s->sq / 2)};
  const int32_t kv_used[] = {(int32_t)(s->skv - 3), (int32_t)(s->skv / 2)};
  int32_t table[64];
  for (int at = 0; s->is_paged && at < 2 * pages; ++at)
    table[at] = (int32_t)((at * 5 + 3) % (2 * pages + 1));
  if (s->is_packed) {
    varlen.cu_seqlens_q = AddIndices(&c, 1, three, q_offsets);
    varlen.cu_seqlens_kv = AddIndices(&c, 1, three, kv_offsets);
    varlen.seqused_q = AddIndices(&c, 1, two, q_used);
  }
  if (s->is_paged) {
    varlen.seqused_kv = AddIndices(&c, 1, two, kv_used);
    paging.block_table = AddIndices(&c, 2, table_shape, table);
    args.paging = &paging;
  }
  if (s->is_packed || s->is_paged) args.varlen = &varlen;
  score.causal = HEED_CAUSAL_ON;
  args.score = &score;
  exec.backend = HEED_BACKEND_WEBGPU;
  args.exec = &exec;
  UploadAll(&c);
  PutOn(&c, kCpu);
  CHECK(heed_forward(&args) == HEED_OK);
  PutOn(&c, device);
  if (shows_reading) fprintf(stderr, "own_buffers: begin %s\n", s->name);
  CHECK(heed_forward(&args) == HEED_OK);
  if (shows_reading) fprintf(stderr, "own_buffers: end\n");
  CompareAndRelease(&c, s->name);
}

/* A token is appended to each sequence of a cache, contiguous or paged, and attended to. */
static void TestDecode(const Gpu* gpu, heed_device_t device, const Spec* s) {
  Case c;
  memset(&c, 0, sizeof(c));
  c.gpu = gpu;
  c.seed = 23;
  const int64_t pages = s->skv / kPageSlots;
  int64_t q_shape[] = {kBatch, s->sq, s->hq, s->d}, o_shape[] = {kBatch, s->sq, s->hq, s->dv};
  int64_t new_k[] = {kBatch, s->sq, s->hkv, s->d}, new_v[] = {kBatch, s->sq, s->hkv, s->dv};
  int64_t k_shape[] = {kBatch, s->skv, s->hkv, s->d}, v_shape[] = {kBatch, s->skv, s->hkv, s->dv};
  int64_t lse_shape[] = {kBatch, s->hq, s->sq};
  if (s->is_paged) {
    k_shape[0] = v_shape[0] = 2 * pages + 1;
    k_shape[1] = v_shape[1] = kPageSlots;
  }
  const heed_paging_args_t no_paging = HEED_PAGING_ARGS_INIT;
  heed_paging_args_t paging = no_paging;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
  args.q = Add(&c, s->dtype, kGaps, 4, q_shape);
  args.k_cache = Add(&c, s->dtype, s->layout, 4, k_shape);
  args.v_cache = Add(&c, s->dtype, s->layout, 4, v_shape);
  args.k_new = Add(&c, s->dtype, kDense, 4, new_k);
  args.v_new = Add(&c, s->dtype, kGaps, 4, new_v);
  args.o = Add(&c, s->dtype, s->layout, 4, o_shape);
  args.lse = Add(&c, kF32, kGaps, 3, lse_shape);
  const int64_t two[] = {2}, table_shape[] = {2, pages};
  const int32_t lengths[] = {(int32_t)(s->skv - s->sq), 5};
  int32_t table[64];
  for (int at = 0; s->is_paged && at < 2 * pages; ++at)
    table[at] = (int32_t)((at * 5 + 3) % (2 * pages + 1));
  args.cache_lengths = AddIndices(&c, 1, two, lengths);
  if (s->is_paged) {
    paging.block_table = AddIndices(&c, 2, table_shape, table);
    args.paging = &paging;
  }
  exec.backend = HEED_BACKEND_WEBGPU;
  args.exec = &exec;
  UploadAll(&c);
  PutOn(&c, kCpu);
  CHECK(heed_decode(&args) == HEED_OK);
  PutOn(&c, device);
  CHECK(heed_decode(&args) == HEED_OK);
  CompareAndRelease(&c, s->name);
}

/* Results in place and what the host reads may not share memory either. */
static void TestOverlap(const Gpu* gpu, heed_device_t device) {
  float values[256];
  FillRandom(values, 256, 3);
  WGPUBuffer buffer = Upload(gpu, values, sizeof(values));
  int64_t shape[] = {1, 2, 1, 16}, mask_shape[] = {1, 1, 2, 2};
  heed_tensor_t q = TensorOf(buffer, device, kF32, 4, shape), o = q;
  heed_tensor_t mask = TensorOf(buffer, device, kBool, 4, mask_shape);
  o.byte_offset = 512;
  mask.byte_offset = 520;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  score.mask = &mask;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = args.k = args.v = &q;
  args.o = &o;
  args.score = &score;
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT,
                "o: an output must not overlap score.mask");
  mask.byte_offset = 1020;
  CHECK(heed_forward(&args) == HEED_OK);
  o.byte_offset = 64;
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT, "o: an output must not overlap q");
  wgpuBufferRelease(buffer);
}

/* Keys that lie further apart than one binding reaches. */
static void TestHugeBuffer(const Gpu* gpu, heed_device_t device) {
  enum { kKeys = 4, kHeadDim = 16, kStep = 12 << 20, kElems = 3 * kStep + kHeadDim };
  float q[2 * kHeadDim], keys[kKeys * kHeadDim], o[2 * kHeadDim], host_o[2 * kHeadDim];
  FillRandom(q, 2 * kHeadDim, 5);
  FillRandom(keys, kKeys * kHeadDim, 6);
  int64_t q_shape[] = {1, 2, 1, kHeadDim}, k_shape[] = {1, kKeys, 1, kHeadDim};
  int64_t far_apart[] = {(int64_t)kElems, kStep, kHeadDim, 1};
  WGPUBuffer k_buffer = MakeBuffer(gpu, (size_t)kElems * 4, kAll);
  for (size_t key = 0; key < kKeys; ++key) {
    wgpuQueueWriteBuffer(gpu->queue, k_buffer, key * kStep * 4, keys + key * kHeadDim,
                         kHeadDim * 4);
  }
  WGPUBuffer q_buffer = Upload(gpu, q, sizeof(q)), o_buffer = Upload(gpu, q, sizeof(q));
  for (int is_host = 0; is_host < 2; ++is_host) {
    const heed_device_t home = is_host ? kCpu : device;
    heed_tensor_t q_tensor = TensorOf(is_host ? (void*)q : (void*)q_buffer, home, kF32, 4, q_shape);
    heed_tensor_t k = TensorOf(is_host ? (void*)keys : (void*)k_buffer, home, kF32, 4, k_shape);
    heed_tensor_t out = TensorOf(is_host ? (void*)host_o : (void*)o_buffer, home, kF32, 4, q_shape);
    if (!is_host) k.strides = far_apart;
    heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
    exec.backend = HEED_BACKEND_WEBGPU;
    heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
    args.q = &q_tensor;
    args.k = args.v = &k;
    args.o = &out;
    args.exec = &exec;
    CHECK(heed_forward(&args) == HEED_OK);
  }
  Download(gpu, o_buffer, o, sizeof(o));
  CHECK(memcmp(o, host_o, sizeof(o)) == 0);
  wgpuBufferRelease(k_buffer);
  wgpuBufferRelease(q_buffer);
  wgpuBufferRelease(o_buffer);
}

/* Gradients go where rows have gaps, and nowhere else, however many threads add them up. */
static void TestBackward(const Gpu* gpu, heed_device_t device, const Spec* s) {
  Case c;
  memset(&c, 0, sizeof(c));
  c.gpu = gpu;
  c.seed = 29;
  const int64_t q_shape[] = {kBatch, s->sq, s->hq, s->d}, o_shape[] = {kBatch, s->sq, s->hq, s->dv};
  const int64_t k_shape[] = {kBatch, s->skv, s->hkv, s->d};
  const int64_t v_shape[] = {kBatch, s->skv, s->hkv, s->dv};
  const int64_t lse_shape[] = {kBatch, s->hq, s->sq};
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t forward = HEED_FORWARD_ARGS_INIT;
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
  exec.backend = HEED_BACKEND_WEBGPU;
  forward.q = Add(&c, s->dtype, s->layout, 4, q_shape);
  forward.k = Add(&c, s->dtype, s->layout, 4, k_shape);
  forward.v = Add(&c, s->dtype, s->layout, 4, v_shape);
  forward.o = Add(&c, s->dtype, kDense, 4, o_shape);
  forward.lse = Add(&c, kF32, kDense, 3, lse_shape);
  args.d_o = Add(&c, s->dtype, s->layout, 4, o_shape);
  args.dq = Add(&c, s->dtype, s->layout, 4, q_shape);
  args.dk = Add(&c, s->dtype, s->layout, 4, k_shape);
  args.dv = Add(&c, s->dtype, s->layout, 4, v_shape);
  args.forward = &forward;
  args.exec = forward.exec = &exec;
  PutOn(&c, kCpu);
  CHECK(heed_forward(&forward) == HEED_OK);
  UploadAll(&c);
  exec.num_threads = 1;
  CHECK(heed_backward(&args) == HEED_OK);
  PutOn(&c, device);
  exec.num_threads = 4;
  CHECK(heed_backward(&args) == HEED_OK);
  CompareAndRelease(&c, s->name);
}

/* A call that is wrong in itself is refused for that, and not for its buffers. */
static void TestOrderOfChecks(const Gpu* gpu, heed_device_t device) {
  WGPUBuffer small = MakeBuffer(gpu, 4, kAll);
  int64_t shape[] = {1, 2, 1, 16};
  heed_tensor_t q = TensorOf(small, device, kF32, 4, shape), k = q, o = q;
  k.dtype = kF16;
  heed_forward_args_t args = HEED_FORWARD_ARGS_INIT;
  args.q = &q;
  args.k = args.v = &k;
  args.o = &o;
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT, "k.dtype = f16");
  k.dtype = kF32;
  CHECK_REFUSED(heed_forward(&args), HEED_INVALID_ARGUMENT,
                "q.byte_offset = 0: the tensor's 128 bytes run past the buffer's 4");
  wgpuBufferRelease(small);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Gpu gpu = MakeGpu();
  heed_webgpu_device_args_t open = HEED_WEBGPU_DEVICE_ARGS_INIT;
  open.library = argv[1];
  open.adapter = gpu.adapter;
  open.device = gpu.device;
  open.queue = gpu.queue;
  heed_device_t device;
  CHECK(heed_webgpu_open_device(&open, &device) == HEED_OK);
  if (num_failures != 0) return 1;
  const Spec specs[] = {
      {"dense f32", kF32, kDense, 70, 70, 4, 2, 16, 16, 0, 0, 0, 0},
      {"gaps f32", kF32, kGaps, 21, 33, 4, 1, 20, 9, 1, 0, 0, 0},
      {"heads first f32, bias, mask", kF32, kHeadsFirst, 21, 33, 2, 2, 16, 16, 1, 1, 0, 0},
      {"packed f32", kF32, kGaps, 30, 40, 4, 2, 16, 16, 0, 0, 1, 0},
      {"paged f32", kF32, kGaps, 9, 33, 4, 2, 16, 12, 0, 1, 0, 1},
      {"gaps f16", kF16, kGaps, 21, 33, 4, 2, 17, 9, 2, 0, 0, 0},
      {"dense f16", kF16, kDense, 21, 33, 4, 2, 16, 16, 1, 1, 0, 0},
      {"packed f16", kF16, kHeadsFirst, 30, 40, 4, 2, 16, 16, 0, 0, 0, 0},
      {"packed odd f16", kF16, kGaps, 30, 40, 3, 1, 5, 7, 0, 0, 1, 0},
      {"gaps bf16", kBf16, kGaps, 21, 33, 4, 2, 16, 9, 2, 0, 0, 0},
      {"paged bf16", kBf16, kDense, 9, 33, 4, 2, 17, 11, 0, 0, 0, 1},
  };
  for (size_t at = 0; at < sizeof(specs) / sizeof(specs[0]); ++at) {
    /* Arrays of lengths and masks are read. */
    const Spec* s = &specs[at];
    TestForward(&gpu, device, s, !s->has_mask && !s->is_packed && !s->is_paged);
  }
  const Spec decodes[] = {
      {"decode f32", kF32, kGaps, 1, 48, 4, 2, 16, 12, 0, 0, 0, 0},
      {"decode f16, paged", kF16, kGaps, 2, 48, 4, 2, 17, 9, 0, 0, 0, 1},
      {"decode bf16, many keys", kBf16, kHeadsFirst, 1, 640, 2, 1, 16, 16, 0, 0, 0, 0},
  };
  for (size_t at = 0; at < sizeof(decodes) / sizeof(decodes[0]); ++at) {
    TestDecode(&gpu, device, &decodes[at]);
  }
  /* Bindings so small that tensors take several windows, and keys several parts. */
  setenv("HEED_WEBGPU_MAX_BINDING_BYTES", "4096", 1);
  const Spec few = {"windows f32", kF32, kGaps, 9, 33, 2, 1, 64, 64, 0, 0, 0, 0};
  const Spec few_halves = {"windows f16", kF16, kGaps, 9, 33, 2, 1, 65, 65, 2, 0, 0, 0};
  const Spec few_tokens = {"windows of decode f16", kF16, kGaps, 2, 48, 2, 1, 65, 9, 0, 0, 0, 1};
  TestForward(&gpu, device, &few, 0);
  TestForward(&gpu, device, &few_halves, 0);
  TestDecode(&gpu, device, &few_tokens);
  unsetenv("HEED_WEBGPU_MAX_BINDING_BYTES");
  TestBackward(&gpu, device, &specs[1]);
  TestBackward(&gpu, device, &specs[5]);
  const Spec large = {"many rows f32", kF32, kGaps, 260, 40, 8, 1, 64, 64, 0, 0, 0, 0};
  TestForward(&gpu, device, &large, 0);
  TestBackward(&gpu, device, &large);
  TestHugeBuffer(&gpu, device);
  TestOverlap(&gpu, device);
  TestOrderOfChecks(&gpu, device);
  CHECK(heed_webgpu_close_device(device) == HEED_OK);
  CHECK(num_uncaptured == 0);
  printf("own_buffers: %d failures\n", num_failures);
  return num_failures == 0 ? 0 : 1;
}
