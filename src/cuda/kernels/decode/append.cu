// Appends new keys and values to a cache, with rotary embedding of keys and queries, and clears the
// counters that the attention kernel after it merges by.
// Grid: kAppendWarps rows a CTA, one warp each: for every sequence and new token the KV heads of K,
// those of V, and with rotary the heads of q.
// Workload: reads and writes every new row once.
#include "heed_traits.h"
//
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/decode/keys.cuh"
#include "cuda/kernels/decode/quantize_row.cuh"
#include "cuda/kernels/ptx/chain.cuh"

namespace heed::cuda {
namespace {

using Element = ElementOf<Traits::kElement>::Type;
using Storage = Element::Storage;
constexpr CacheFormat kFormat = DecodeDecodeVariant(Traits::kVariant).format;

struct Angle {
  double cos, sin;
};

__device__ __forceinline__ Angle AngleAt(const RotaryArg& rotary, i64 position, i32 pair) {
  const i64 cos_at = position * rotary.cos_row_elems + pair * rotary.cos_pair_elems;
  const i64 sin_at = position * rotary.sin_row_elems + pair * rotary.sin_pair_elems;
  if (rotary.is_fp32) {
    return Angle{static_cast<const float*>(rotary.cos)[cos_at],
                 static_cast<const float*>(rotary.sin)[sin_at]};
  }
  return Angle{Element::ToF32(static_cast<const Storage*>(rotary.cos)[cos_at]),
               Element::ToF32(static_cast<const Storage*>(rotary.sin)[sin_at])};
}

// Element d of a row, rotated. Each pair is computed in double precision without contraction and
// rounded to fp32 once, as on every backend, so that the cache has the same bits.
__device__ __forceinline__ float RotatedAt(const RotaryArg& rotary, const Storage* row,
                                           i64 position, i32 d) {
  const float own = Element::ToF32(row[d]);
  if (rotary.cos == nullptr || d >= 2 * rotary.num_pairs) return own;
  const i32 pair = rotary.is_half_split ? d % rotary.num_pairs : d / 2;
  const bool is_first = rotary.is_half_split ? d < rotary.num_pairs : d % 2 == 0;
  const i32 distance = rotary.is_half_split ? rotary.num_pairs : 1;
  const double other = Element::ToF32(row[is_first ? d + distance : d - distance]);
  const Angle angle = AngleAt(rotary, position, pair);
  const double product = __dmul_rn(own, angle.cos);
  const double cross = __dmul_rn(other, angle.sin);
  return static_cast<float>(is_first ? __dsub_rn(product, cross) : __dadd_rn(cross, product));
}

__device__ __forceinline__ const Storage* SourceRow(const RowsArg& rows, i64 batch, i64 token,
                                                    i64 head) {
  return static_cast<const Storage*>(rows.data) +
         device::RowOffsetElems(rows.strides, batch, token, head);
}

// Place of an appended token; page < 0: nowhere.
__device__ __forceinline__ KeyPlace PlaceOfNew(const DecodeAppendArgs& args,
                                               const SequenceKeys& keys, i64 batch, i32 key) {
  if (key >= args.lengths.capacity_rows) return KeyPlace{-1, 0};
  if constexpr (Traits::kPaged) {
    return PlaceOfKey(args.problem.paging, TableEntryOfKey(args.problem.paging, batch, key), key,
                      args.problem.errors);
  }
  return KeyPlace{keys.cache_row, key};
}

struct NewRow {
  i64 batch;
  i32 token;
  i32 head;
  i64 position;
};

__device__ void AppendRow(const DecodeAppendArgs& args, const SequenceKeys& keys, const NewRow& row,
                          const RowsArg& source, const KvCacheArg& cache, i32 head_dim,
                          const RotaryArg& rotary) {
  const i32 key = keys.kv_len - args.lengths.new_rows + row.token;
  const KeyPlace place = PlaceOfNew(args, keys, row.batch, key);
  if (place.page < 0) return;
  const Storage* values = SourceRow(source, row.batch, row.token, row.head);
  if constexpr (kFormat != CacheFormat::kPlain) {
    StoreQuantizedRow<kFormat>(cache, place, row.head, head_dim,
                               [&](i32 d) { return RotatedAt(rotary, values, row.position, d); });
    return;
  }
  auto* target = static_cast<Storage*>(cache.rows.data) +
                 device::RowOffsetElems(cache.rows.strides, place.page, place.slot, row.head);
  for (i32 d = threadIdx.x % 32; d < head_dim; d += 32) {
    target[d] = rotary.cos == nullptr
                    ? values[d]
                    : Element::FromF32(RotatedAt(rotary, values, row.position, d));
  }
}

__device__ void RotateQuery(const DecodeAppendArgs& args, const NewRow& row) {
  const Storage* values = SourceRow(args.q, row.batch, row.token, row.head);
  auto* target = static_cast<Storage*>(args.rotated_q.data) +
                 device::RowOffsetElems(args.rotated_q.strides, row.batch, row.token, row.head);
  for (i32 d = threadIdx.x % 32; d < args.problem.head_dim; d += 32) {
    target[d] = Element::FromF32(RotatedAt(args.rotary, values, row.position, d));
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kAppendWarps * 32)
    heed_decode_append(const __grid_constant__ DecodeAppendArgs args) {
  ptx::WaitForPreviousKernel();
  ptx::LetNextKernelStart();
  const i64 thread = i64{blockIdx.x} * (kAppendWarps * 32) + threadIdx.x;
  for (i64 at = thread; at < args.num_arrivals; at += i64{gridDim.x} * (kAppendWarps * 32)) {
    args.arrivals[at] = 0;
  }
  if (args.k_new.data == nullptr) return;
  const i32 num_kv_heads = args.problem.num_kv_heads;
  const i32 num_rotated = args.rotary.cos != nullptr ? args.problem.num_q_heads : 0;
  const i32 rows_per_token = 2 * num_kv_heads + num_rotated;
  const i64 num_tokens = args.problem.lengths.max_q_len;
  const i64 item = thread / 32;
  const i64 token = item / rows_per_token;
  i32 head = static_cast<i32>(item % rows_per_token);
  NewRow row{token / num_tokens, static_cast<i32>(token % num_tokens), 0, 0};
  if (row.batch >= args.problem.batch) return;
  const SequenceKeys keys = KeysOfSequence(args.lengths, row.batch);
  row.position = keys.kv_len - args.lengths.new_rows + row.token;
  if (args.rotary.cos != nullptr && row.position >= args.rotary.num_rows) {
    if (head == 0 && threadIdx.x % 32 == 0) {
      atomicAdd(&args.problem.errors->num_bad_lengths, 1u);
    }
    row.position = args.rotary.num_rows - 1;
    if (row.position < 0) return;
  }
  if (head < num_kv_heads) {
    row.head = head;
    return AppendRow(args, keys, row, args.k_new, args.k, args.problem.head_dim, args.rotary);
  }
  head -= num_kv_heads;
  if (head < num_kv_heads) {
    row.head = head;
    return AppendRow(args, keys, row, args.v_new, args.v, args.problem.head_dim_v, RotaryArg{});
  }
  row.head = head - num_kv_heads;
  RotateQuery(args, row);
}

}  // namespace heed::cuda
