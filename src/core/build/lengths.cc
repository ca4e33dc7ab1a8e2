#include "core/build/lengths.h"

#include <algorithm>
#include <cinttypes>

#include "core/build/paging.h"
#include "core/build/views.h"

namespace heed::core {
namespace {

constexpr AxisNames kOffsets = {1, {"batch + 1"}};
constexpr AxisNames kLengths = {1, {"batch"}};

// The q or the kv half of varlen.
struct Side {
  const TensorInfo* rows;        // q or k
  const heed_tensor_t* offsets;  // cu_seqlens or null
  const char* offsets_name;
  const heed_tensor_t* used;  // seqused or null
  const char* used_name;
  std::int64_t max_seqlen;
  const char* max_seqlen_name;
  bool has_pool = false;  // paged
};

Side QSide(const ForwardArgs& args, const Operands& operands) {
  return {&operands.q,           args.varlen.cu_seqlens_q, "varlen.cu_seqlens_q",
          args.varlen.seqused_q, "varlen.seqused_q",       args.varlen.max_seqlen_q,
          "varlen.max_seqlen_q"};
}

Side KvSide(const ForwardArgs& args, const Operands& operands) {
  return {&operands.k,
          args.varlen.cu_seqlens_kv,
          "varlen.cu_seqlens_kv",
          args.varlen.seqused_kv,
          "varlen.seqused_kv",
          args.varlen.max_seqlen_kv,
          "varlen.max_seqlen_kv",
          args.is_paged()};
}

Status RequireAtLeast(const char* name, std::int64_t index, std::int64_t value,
                      std::int64_t minimum) {
  if (value >= minimum) return {};
  return InvalidArgument(Format("%s[%" PRId64 "] = %" PRId64 ": must be at least %" PRId64, name,
                                index, value, minimum));
}

// Not below 0, never decreasing, and never past the rows of the tensor.
Status CheckOffsets(const Side& side, const IndexView& offsets, std::int64_t batch) {
  std::int64_t previous = 0;
  for (std::int64_t index = 0; index <= batch; ++index) {
    const std::int64_t value = offsets.At(index);
    HEED_RETURN_IF_ERROR(RequireAtLeast(side.offsets_name, index, value, previous));
    if (value > side.rows->shape[0]) {
      return InvalidArgument(Format("%s[%" PRId64 "] = %" PRId64 ": must not exceed %s",
                                    side.offsets_name, index, value,
                                    side.rows->AxisText(0).c_str()));
    }
    previous = value;
  }
  return {};
}

Status CheckUsed(const char* name, std::int64_t index, std::int64_t value, std::int64_t slots) {
  HEED_RETURN_IF_ERROR(RequireAtLeast(name, index, value, 0));
  if (value <= slots) return {};
  return InvalidArgument(Format("%s[%" PRId64 "] = %" PRId64
                                ": must not exceed the sequence's %" PRId64 " rows",
                                name, index, value, slots));
}

// What one side gives: the views, the longest sequence by slots and by rows that take part.
struct SideLengths {
  IndexView offsets;
  IndexView used;
  std::int64_t max_slots = 0;
  std::int64_t longest_rows = 0;
};

// dense_slots = rows of every sequence when there are no offsets.
Status CheckHostLengths(const Side& side, std::int64_t batch, std::int64_t dense_slots,
                        SideLengths* lengths) {
  if (lengths->offsets.present()) {
    HEED_RETURN_IF_ERROR(CheckOffsets(side, lengths->offsets, batch));
  }
  lengths->max_slots = lengths->offsets.present() ? 0 : dense_slots;
  // Without arrays all sequences are alike, and an empty tensor may have any number of them.
  const bool has_arrays = lengths->offsets.present() || lengths->used.present();
  const std::int64_t num_distinct = has_arrays ? batch : std::min<std::int64_t>(batch, 1);
  for (std::int64_t index = 0; index < num_distinct; ++index) {
    const std::int64_t slots =
        lengths->offsets.present()
            ? std::int64_t{lengths->offsets.At(index + 1)} - lengths->offsets.At(index)
            : dense_slots;
    const std::int64_t rows = lengths->used.present() ? lengths->used.At(index) : slots;
    HEED_RETURN_IF_ERROR(CheckUsed(side.used_name, index, rows, slots));
    lengths->max_slots = std::max(lengths->max_slots, slots);
    lengths->longest_rows = std::max(lengths->longest_rows, rows);
  }
  if (side.max_seqlen != 0 && side.max_seqlen < lengths->longest_rows) {
    return InvalidArgument(Format("%s = %" PRId64
                                  ": must not be below the longest sequence, %" PRId64 " rows",
                                  side.max_seqlen_name, side.max_seqlen, lengths->longest_rows));
  }
  return {};
}

Status BoundDeviceLengths(const Side& side, std::int64_t dense_slots, SideLengths* lengths) {
  if (lengths->offsets.present() && side.max_seqlen == 0) {
    return InvalidArgument(Format("%s = 0: is required when %s is on a device",
                                  side.max_seqlen_name, side.offsets_name));
  }
  // No packed sequence is longer than the tensor, whatever bound the caller gives.
  lengths->max_slots =
      lengths->offsets.present() ? std::min(side.max_seqlen, side.rows->shape[0]) : dense_slots;
  // A pool holds more than a sequence may have, so the caller's bound counts; kernels keep to it.
  const bool is_bounded = side.has_pool && side.max_seqlen != 0;
  lengths->longest_rows =
      is_bounded ? std::min(side.max_seqlen, lengths->max_slots) : lengths->max_slots;
  return {};
}

Status BuildSide(const Side& side, std::int64_t dense_slots, TensorReader* reader,
                 std::int64_t batch, SideLengths* lengths) {
  if (side.max_seqlen < 0) {
    return InvalidArgument(
        Format("%s = %" PRId64 ": must not be negative", side.max_seqlen_name, side.max_seqlen));
  }
  TensorInfo offsets;
  TensorInfo used;
  HEED_RETURN_IF_ERROR(ReadIndices(side.offsets_name, side.offsets, kOffsets, reader, &offsets));
  HEED_RETURN_IF_ERROR(ReadIndices(side.used_name, side.used, kLengths, reader, &used));
  if (offsets.present() && offsets.shape[0] != batch + 1) {
    return InvalidArgument(offsets.AxisText(0) + Format(": must be %" PRId64, batch + 1));
  }
  if (used.present() && used.shape[0] != batch) {
    return InvalidArgument(used.AxisText(0) + Format(": must be %" PRId64, batch));
  }
  lengths->offsets = IndexViewOf(offsets);
  lengths->used = IndexViewOf(used);
  if (IsHostDevice(reader->home_device())) {
    return CheckHostLengths(side, batch, dense_slots, lengths);
  }
  return BoundDeviceLengths(side, dense_slots, lengths);
}

// cu_seqlens_q counts the batch when q is packed.
Status FindBatch(const ForwardArgs& args, const Operands& operands, std::int64_t* batch) {
  if (args.q_packing() == Packing::kDense) {
    *batch = operands.q.shape[0];
    return {};
  }
  const heed_tensor_t& offsets = *args.varlen.cu_seqlens_q;
  if (offsets.ndim != 1 || offsets.shape == nullptr) {
    return InvalidArgument(
        Format("varlen.cu_seqlens_q.ndim = %d: must be 1 [batch + 1]", offsets.ndim));
  }
  if (offsets.shape[0] < 1) {
    return InvalidArgument(Format("varlen.cu_seqlens_q.shape[0] (batch + 1) = %" PRId64
                                  ": must be at least 1",
                                  offsets.shape[0]));
  }
  *batch = offsets.shape[0] - 1;
  return {};
}

Status CheckDenseKvBatch(const ForwardArgs& args, const Operands& operands, std::int64_t batch) {
  if (args.is_paged() || args.kv_packing() == Packing::kPacked) return {};
  if (operands.k.shape[0] == batch) return {};
  const std::string wanted = args.q_packing() == Packing::kDense
                                 ? operands.q.AxisText(0)
                                 : Format("the batch of varlen.cu_seqlens_q = %" PRId64, batch);
  return InvalidArgument(operands.k.AxisText(0) + ": must equal " + wanted);
}

}  // namespace

Status ReadIndices(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                   TensorReader* reader, TensorInfo* info) {
  HEED_RETURN_IF_ERROR(reader->Optional(name, tensor, axes, info));
  if (!info->present()) return {};
  HEED_RETURN_IF_ERROR(RequireDType(*info, {DType::kI32}));
  if (info->data == nullptr && !info->empty() && IsHostDevice(info->device)) {
    return InvalidArgument(Format("%s.data = NULL: the plan reads host lengths", name));
  }
  return {};
}

Status BuildLengths(const ForwardArgs& args, const Operands& operands, TensorReader* reader,
                    ForwardProblem* problem, LongestRows* longest) {
  Shape& shape = problem->shape;
  HEED_RETURN_IF_ERROR(FindBatch(args, operands, &shape.batch));
  HEED_RETURN_IF_ERROR(CheckDenseKvBatch(args, operands, shape.batch));

  SideLengths q_lengths;
  HEED_RETURN_IF_ERROR(
      BuildSide(QSide(args, operands), operands.q.shape[1], reader, shape.batch, &q_lengths));
  std::int64_t kv_dense_slots = operands.k.shape[1];
  if (args.is_paged()) {
    HEED_RETURN_IF_ERROR(ReadBlockTable(args, operands, reader, problem));
    kv_dense_slots = CapacityRows(problem->block_table);
  }
  SideLengths kv_lengths;
  HEED_RETURN_IF_ERROR(
      BuildSide(KvSide(args, operands), kv_dense_slots, reader, shape.batch, &kv_lengths));

  problem->cu_seqlens_q = q_lengths.offsets;
  problem->cu_seqlens_kv = kv_lengths.offsets;
  problem->seqused_q = q_lengths.used;
  problem->seqused_kv = kv_lengths.used;
  shape.max_q_len = q_lengths.max_slots;
  shape.max_kv_len = args.is_paged() ? kv_lengths.longest_rows : kv_lengths.max_slots;
  *longest = {q_lengths.longest_rows, kv_lengths.longest_rows};
  if (args.is_paged() && IsHostDevice(reader->home_device())) {
    return CheckBlockTableEntries(problem->block_table, problem->seqused_kv, shape.batch,
                                  operands.k);
  }
  return {};
}

}  // namespace heed::core
