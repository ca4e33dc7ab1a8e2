#include "core/build/decode_cache.h"

#include <algorithm>
#include <cinttypes>
#include <limits>
#include <utility>
#include <vector>

#include "core/build/kv_format.h"
#include "core/build/lengths.h"
#include "core/build/paging.h"
#include "core/build/views.h"

namespace heed::core {
namespace {

constexpr AxisNames kCache = {4, {"cache_batch", "slots", "num_kv_heads", "head_dim"}};
constexpr AxisNames kPool = {4, {"num_pages", "page_slots", "num_kv_heads", "head_dim"}};
constexpr AxisNames kScales = {4, {"cache_batch", "slots", "num_kv_heads", "groups"}};
constexpr AxisNames kPerSequence = {1, {"batch"}};
constexpr AxisNames kRotary = {2, {"rows", "rotary_dim / 2"}};

Status CheckCacheRows(const DecodeArgs& args, const TensorInfo& cache, const TensorInfo& q,
                      const TensorInfo& rows) {
  if (args.quant.format != HEED_KV_PLAIN) {
    return CheckKvPayload(cache, args.quant.format, args.quant.layout, rows.shape[3]);
  }
  HEED_RETURN_IF_ERROR(RequireSameDType(cache, q));
  HEED_RETURN_IF_ERROR(RequireSameAxis(cache, 3, rows, 3));
  return RequireContiguousRows(cache);
}

Status ReadScales(const DecodeArgs& args, const CacheOperands& operands, TensorReader* reader,
                  DecodeProblem* problem) {
  struct Scales {
    const char* name;
    const heed_tensor_t* tensor;
    const TensorInfo* payload;
    std::int64_t head_dim;
    KvCacheView* view;
  };
  const Scales both[] = {
      {"quant.k_scales", args.quant.k_scales, &operands.k_cache, operands.q.shape[3], &problem->k},
      {"quant.v_scales", args.quant.v_scales, &operands.v_cache, operands.o.shape[3], &problem->v}};
  const bool has_scales = args.quant.format != HEED_KV_PLAIN && !HasInlineScales(args.quant.format);
  for (const Scales& scales : both) {
    if (!has_scales && scales.tensor != nullptr) {
      return InvalidArgument(
          Format("%s: must be NULL for a format without scales of its own", scales.name));
    }
    if (!has_scales) continue;
    TensorInfo info;
    HEED_RETURN_IF_ERROR(args.appends()
                             ? reader->RequiredOutput(scales.name, scales.tensor, kScales, &info)
                             : reader->Required(scales.name, scales.tensor, kScales, &info));
    HEED_RETURN_IF_ERROR(CheckKvScales(info, *scales.payload, scales.head_dim));
    SetKvScales(info, scales.view);
  }
  return {};
}

// Host values of one index array, each in [0, limit].
struct EntryRule {
  const char* name;
  std::int64_t limit;
  const char* limit_text;
};

Status CheckEntry(const EntryRule& rule, std::int64_t index, std::int64_t value) {
  if (value >= 0 && value <= rule.limit) return {};
  return InvalidArgument(Format("%s[%" PRId64 "] = %" PRId64 ": must be from 0 to %" PRId64 " (%s)",
                                rule.name, index, value, rule.limit, rule.limit_text));
}

struct IndexArrays {
  TensorInfo lengths, batch_index, leftpad;
};

Status ReadIndexArrays(const DecodeArgs& args, const CacheOperands& operands, TensorReader* reader,
                       IndexArrays* arrays) {
  const heed_decode_args_t& call = args.call;
  if (call.cache_lengths == nullptr) {
    return InvalidArgument("cache_lengths = NULL: is required");
  }
  if (args.is_paged() && call.cache_batch_index != nullptr) {
    return InvalidArgument(
        "cache_batch_index: must be NULL with paging, where paging.block_table says where a "
        "sequence lives");
  }
  HEED_RETURN_IF_ERROR(
      ReadIndices("cache_lengths", call.cache_lengths, kPerSequence, reader, &arrays->lengths));
  HEED_RETURN_IF_ERROR(ReadIndices("cache_batch_index", call.cache_batch_index, kPerSequence,
                                   reader, &arrays->batch_index));
  HEED_RETURN_IF_ERROR(
      ReadIndices("cache_leftpad", call.cache_leftpad, kPerSequence, reader, &arrays->leftpad));
  for (const TensorInfo* info : {&arrays->lengths, &arrays->batch_index, &arrays->leftpad}) {
    if (info->present()) HEED_RETURN_IF_ERROR(RequireSameAxis(*info, 0, operands.q, 0));
  }
  return {};
}

// Without an index, sequence b lives in cache row b.
Status CheckCacheBatch(const DecodeArgs& args, const CacheOperands& operands) {
  if (args.is_paged() || args.call.cache_batch_index != nullptr) return {};
  if (operands.k_cache.shape[0] >= operands.q.shape[0]) return {};
  return InvalidArgument(operands.k_cache.AxisText(0) + ": must be at least " +
                         operands.q.AxisText(0) + " without cache_batch_index");
}

Status CheckEntries(const IndexArrays& arrays, const CacheOperands& operands,
                    std::int64_t room_rows) {
  const IndexView lengths = IndexViewOf(arrays.lengths);
  const IndexView batch_index = IndexViewOf(arrays.batch_index);
  const IndexView leftpad = IndexViewOf(arrays.leftpad);
  for (std::int64_t b = 0; b < operands.q.shape[0]; ++b) {
    const std::int64_t length = lengths.At(b);
    HEED_RETURN_IF_ERROR(
        CheckEntry({"cache_lengths", room_rows, "slots less appended tokens"}, b, length));
    if (batch_index.present()) {
      const std::int64_t last_row = operands.k_cache.shape[0] - 1;
      HEED_RETURN_IF_ERROR(
          CheckEntry({"cache_batch_index", last_row, "last row of k_cache"}, b, batch_index.At(b)));
    }
    if (leftpad.present()) {
      HEED_RETURN_IF_ERROR(
          CheckEntry({"cache_leftpad", length, "the sequence's cache length"}, b, leftpad.At(b)));
    }
  }
  return {};
}

// Two sequences of one cache row that both append would write each other's keys.
Status CheckRowsDiffer(const IndexArrays& arrays, const CacheOperands& operands) {
  const IndexView batch_index = IndexViewOf(arrays.batch_index);
  if (!batch_index.present()) return {};
  std::vector<std::pair<std::int64_t, std::int64_t>> owners;  // cache row, sequence
  for (std::int64_t b = 0; b < operands.q.shape[0]; ++b) owners.emplace_back(batch_index.At(b), b);
  std::sort(owners.begin(), owners.end());
  const auto twice =
      std::adjacent_find(owners.begin(), owners.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice == owners.end()) return {};
  return InvalidArgument(Format("cache_batch_index[%" PRId64 "] = %" PRId64
                                ": must differ from cache_batch_index[%" PRId64
                                "] where k_new is given",
                                twice[1].second, twice->first, twice->second));
}

Status CheckPages(const CacheOperands& operands, const std::vector<std::int32_t>& total_rows,
                  const CacheFacts& facts) {
  if (!facts.block_table.present()) return {};
  return CheckBlockTableEntries(facts.block_table, {total_rows.data(), 1, true},
                                operands.q.shape[0], operands.k_cache);
}

}  // namespace

Status ReadCache(const DecodeArgs& args, TensorReader* reader, CacheOperands* operands,
                 DecodeProblem* problem) {
  const AxisNames& axes = args.is_paged() ? kPool : kCache;
  TensorInfo& k_cache = operands->k_cache;
  TensorInfo& v_cache = operands->v_cache;
  // Caches that are only read may share memory: MLA's values are columns of its keys.
  const auto read = args.appends() ? &TensorReader::RequiredOutput : &TensorReader::Required;
  HEED_RETURN_IF_ERROR((reader->*read)("k_cache", args.call.k_cache, axes, &k_cache));
  HEED_RETURN_IF_ERROR((reader->*read)("v_cache", args.call.v_cache, axes, &v_cache));
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(v_cache, axis, k_cache, axis));
  }
  HEED_RETURN_IF_ERROR(CheckCacheRows(args, k_cache, operands->q, operands->q));
  HEED_RETURN_IF_ERROR(CheckCacheRows(args, v_cache, operands->q, operands->o));
  problem->k = MakeKvCacheView(k_cache, args.quant.format, args.quant.layout, operands->q.shape[3]);
  problem->v = MakeKvCacheView(v_cache, args.quant.format, args.quant.layout, operands->o.shape[3]);
  return ReadScales(args, *operands, reader, problem);
}

Status CheckCacheLengths(const DecodeArgs& args, const CacheOperands& operands,
                         TensorReader* reader, CacheFacts* facts, DecodeProblem* problem) {
  const std::int64_t batch = operands.q.shape[0];
  IndexArrays arrays;
  HEED_RETURN_IF_ERROR(ReadIndexArrays(args, operands, reader, &arrays));
  HEED_RETURN_IF_ERROR(CheckCacheBatch(args, operands));
  problem->lengths = IndexViewOf(arrays.lengths);
  problem->batch_index = IndexViewOf(arrays.batch_index);
  problem->leftpad = IndexViewOf(arrays.leftpad);
  std::int64_t capacity_rows = operands.k_cache.shape[1];
  if (args.is_paged()) {
    ForwardArgs paged = {};
    paged.paging = args.paging;
    Operands pools;
    pools.k = operands.k_cache;
    ForwardProblem tables;
    tables.shape.batch = batch;
    HEED_RETURN_IF_ERROR(ReadBlockTable(paged, pools, reader, &tables));
    facts->block_table = tables.block_table;
    capacity_rows = CapacityRows(facts->block_table);
  }
  problem->capacity_rows = capacity_rows;
  problem->num_cache_rows = operands.k_cache.shape[0];
  const std::int64_t appended_rows = args.appends() ? operands.q.shape[1] : 0;
  if (appended_rows > capacity_rows && batch > 0) {
    return InvalidArgument(operands.q.AxisText(1) + Format(": must not exceed the %" PRId64
                                                           " slots of a sequence's cache",
                                                           capacity_rows));
  }
  if (!IsHostDevice(reader->home_device())) return {};
  HEED_RETURN_IF_ERROR(CheckEntries(arrays, operands, capacity_rows - appended_rows));
  if (args.appends()) HEED_RETURN_IF_ERROR(CheckRowsDiffer(arrays, operands));
  std::vector<std::int32_t> total_rows;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t rows = IndexViewOf(arrays.lengths).At(b) + appended_rows;
    facts->longest_rows = std::max(facts->longest_rows, rows);
    total_rows.push_back(static_cast<std::int32_t>(
        std::min<std::int64_t>(rows, std::numeric_limits<std::int32_t>::max())));
  }
  return CheckPages(operands, total_rows, *facts);
}

Status CheckRotary(const DecodeArgs& args, const CacheOperands& operands, const CacheFacts& facts,
                   TensorReader* reader, DecodeProblem* problem) {
  if (args.call.rotary_cos == nullptr) return {};
  TensorInfo cos, sin;
  HEED_RETURN_IF_ERROR(reader->Required("rotary_cos", args.call.rotary_cos, kRotary, &cos));
  HEED_RETURN_IF_ERROR(reader->Required("rotary_sin", args.call.rotary_sin, kRotary, &sin));
  HEED_RETURN_IF_ERROR(RequireDType(cos, {DType::kF32, operands.q.dtype}));
  HEED_RETURN_IF_ERROR(RequireSameDType(sin, cos));
  for (const int axis : {0, 1}) HEED_RETURN_IF_ERROR(RequireSameAxis(sin, axis, cos, axis));
  if (cos.shape[1] > operands.q.shape[3] / 2) {
    return InvalidArgument(cos.AxisText(1) + ": must be at most half of " + operands.q.AxisText(3));
  }
  if (cos.shape[0] < facts.longest_rows) {
    return InvalidArgument(
        cos.AxisText(0) +
        Format(": must be at least the longest sequence, %" PRId64 " tokens", facts.longest_rows));
  }
  if (!args.appends()) {
    return InvalidArgument("rotary_cos: must be NULL without k_new, whose positions it is for");
  }
  problem->rotary = {RowsView{cos.data, cos.dtype, 0, cos.stride_elems[0], 0},
                     RowsView{sin.data, sin.dtype, 0, sin.stride_elems[0], 0},
                     {cos.stride_elems[1], sin.stride_elems[1]},
                     cos.shape[0],
                     cos.shape[1],
                     args.call.rotary_layout};
  return {};
}

}  // namespace heed::core
