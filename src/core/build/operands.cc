#include "core/build/operands.h"

#include <cinttypes>

#include "core/build/views.h"

namespace heed::core {
namespace {

constexpr AxisNames kDenseKeys = {4, {"batch", "kv_len", "num_kv_heads", "head_dim"}};
constexpr AxisNames kPackedKeys = {3, {"total_kv", "num_kv_heads", "head_dim"}};
constexpr AxisNames kPagedKeys = {4, {"num_pages", "page_slots", "num_kv_heads", "head_dim"}};
constexpr AxisNames kDenseValues = {4, {"batch", "kv_len", "num_kv_heads", "head_dim_v"}};
constexpr AxisNames kPackedValues = {3, {"total_kv", "num_kv_heads", "head_dim_v"}};
constexpr AxisNames kPagedValues = {4, {"num_pages", "page_slots", "num_kv_heads", "head_dim_v"}};

struct KvAxes {
  const AxisNames& keys;
  const AxisNames& values;
};

KvAxes KvAxesOf(const ForwardArgs& args) {
  if (args.is_paged()) return {kPagedKeys, kPagedValues};
  if (args.kv_packing() == Packing::kPacked) return {kPackedKeys, kPackedValues};
  return {kDenseKeys, kDenseValues};
}

int HeadAxis(const TensorInfo& info) { return info.rank - 2; }
int DimAxis(const TensorInfo& info) { return info.rank - 1; }
std::int64_t Extent(const TensorInfo& info, int axis) {
  return info.shape[static_cast<std::size_t>(axis)];
}

// q, k and v are integers exactly when the call says how to read them.
Status CheckInt8DTypes(const Operands& operands, heed_backend_t backend) {
  for (const TensorInfo* info : {&operands.q, &operands.k, &operands.v}) {
    HEED_RETURN_IF_ERROR(RequireDType(*info, {DType::kI8}));
  }
  if (backend == HEED_BACKEND_REFERENCE && operands.o.dtype == DType::kF64) {
    return operands.lse.present() ? RequireDType(operands.lse, {DType::kF64}) : Status();
  }
  HEED_RETURN_IF_ERROR(RequireDType(operands.o, {DType::kF32, DType::kF16, DType::kBF16}));
  return operands.lse.present() ? RequireDType(operands.lse, {DType::kF32}) : Status();
}

Status CheckDTypes(const ForwardArgs& args, const Operands& operands, heed_backend_t backend) {
  if (args.is_int8()) return CheckInt8DTypes(operands, backend);
  if (operands.q.dtype == DType::kI8) {
    return InvalidArgument("int8 = NULL: is required when q.dtype is i8");
  }
  if (operands.q.dtype == DType::kF64 && backend != HEED_BACKEND_REFERENCE) {
    return InvalidArgument(
        "q.dtype = f64: only the reference backend takes it, when exec.backend names it");
  }
  HEED_RETURN_IF_ERROR(
      RequireDType(operands.q, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}));
  HEED_RETURN_IF_ERROR(RequireSameDType(operands.k, operands.q));
  HEED_RETURN_IF_ERROR(RequireSameDType(operands.v, operands.q));
  HEED_RETURN_IF_ERROR(RequireSameDType(operands.o, operands.q));
  if (!operands.lse.present()) return {};
  if (operands.q.dtype == DType::kF64) return RequireDType(operands.lse, {DType::kF64});
  // Half lse is there for flash_attention_v2.h.
  if (backend == HEED_BACKEND_CUDA && operands.lse.rank == 3) {
    return RequireDType(operands.lse, {DType::kF32, DType::kF16});
  }
  return RequireDType(operands.lse, {DType::kF32});
}

Status CheckHeads(const TensorInfo& q, const TensorInfo& k) {
  const std::int64_t num_q_heads = Extent(q, HeadAxis(q));
  const std::int64_t num_kv_heads = Extent(k, HeadAxis(k));
  if (num_kv_heads == 0 ? num_q_heads == 0 : num_q_heads > 0 && num_q_heads % num_kv_heads == 0) {
    return {};
  }
  return InvalidArgument(k.AxisText(HeadAxis(k)) + ": must divide " + q.AxisText(HeadAxis(q)));
}

Status CheckHeadDims(const Operands& operands) {
  for (const TensorInfo* info : {&operands.q, &operands.v}) {
    if (Extent(*info, DimAxis(*info)) == 0) {
      return InvalidArgument(info->AxisText(DimAxis(*info)) + ": must be at least 1");
    }
  }
  HEED_RETURN_IF_ERROR(
      RequireSameAxis(operands.k, DimAxis(operands.k), operands.q, DimAxis(operands.q)));
  return RequireSameAxis(operands.o, DimAxis(operands.o), operands.v, DimAxis(operands.v));
}

// v pairs with k, o and lse pair with q, on every axis but the head dim.
Status CheckPairs(const Operands& operands) {
  for (int axis = 0; axis < DimAxis(operands.k); ++axis) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(operands.v, axis, operands.k, axis));
  }
  for (int axis = 0; axis < DimAxis(operands.q); ++axis) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(operands.o, axis, operands.q, axis));
  }
  const TensorInfo& lse = operands.lse;
  if (!lse.present()) return {};
  HEED_RETURN_IF_ERROR(RequireSameAxis(lse, lse.rank - 2, operands.q, HeadAxis(operands.q)));
  HEED_RETURN_IF_ERROR(RequireSameAxis(lse, lse.rank - 1, operands.q, lse.rank - 2));
  return lse.rank == 3 ? RequireSameAxis(lse, 0, operands.q, 0) : Status();
}

// Rows of a packed or dense operand.
std::int64_t NumRows(const TensorInfo& info) {
  return info.rank == 3 ? Extent(info, 0) : Extent(info, 0) * Extent(info, 1);
}

void FillShape(const ForwardArgs& args, const Operands& operands, Shape* shape) {
  const TensorInfo& q = operands.q;
  shape->num_q_heads = Extent(q, HeadAxis(q));
  shape->num_kv_heads = Extent(operands.k, HeadAxis(operands.k));
  shape->group = shape->num_kv_heads == 0 ? 1 : shape->num_q_heads / shape->num_kv_heads;
  shape->head_dim = Extent(q, DimAxis(q));
  shape->head_dim_v = Extent(operands.v, DimAxis(operands.v));
  shape->total_q_rows = NumRows(q);
  shape->total_kv_rows = args.is_paged() ? 0 : NumRows(operands.k);
}

}  // namespace

Status ReadQuery(const ForwardArgs& args, TensorReader* reader, Operands* operands) {
  const bool is_packed = args.q_packing() == Packing::kPacked;
  return reader->Required("q", args.call.q, is_packed ? kPackedRows : kDenseRows, &operands->q);
}

Status ReadOtherOperands(const ForwardArgs& args, ResultRole role, TensorReader* reader,
                         Operands* operands) {
  const KvAxes axes = KvAxesOf(args);
  HEED_RETURN_IF_ERROR(reader->Required("k", args.call.k, axes.keys, &operands->k));
  HEED_RETURN_IF_ERROR(reader->Required("v", args.call.v, axes.values, &operands->v));
  const bool is_packed = args.q_packing() == Packing::kPacked;
  const AxisNames& o_axes = is_packed ? kPackedValueRows : kDenseValueRows;
  const AxisNames& lse_axes = is_packed ? kPackedLse : kDenseLse;
  if (role == ResultRole::kInput) {
    HEED_RETURN_IF_ERROR(reader->Required("o", args.call.o, o_axes, &operands->o));
    return reader->Required("lse", args.call.lse, lse_axes, &operands->lse);
  }
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("o", args.call.o, o_axes, &operands->o));
  return reader->OptionalOutput("lse", args.call.lse, lse_axes, &operands->lse);
}

Status BuildOperands(const ForwardArgs& args, const Operands& operands, ForwardProblem* problem) {
  HEED_RETURN_IF_ERROR(CheckDTypes(args, operands, problem->exec.backend));
  for (const TensorInfo* info : {&operands.q, &operands.k, &operands.v, &operands.o}) {
    HEED_RETURN_IF_ERROR(RequireContiguousRows(*info));
  }
  HEED_RETURN_IF_ERROR(CheckHeadDims(operands));
  HEED_RETURN_IF_ERROR(CheckHeads(operands.q, operands.k));
  HEED_RETURN_IF_ERROR(CheckPairs(operands));
  FillShape(args, operands, &problem->shape);
  problem->q = RowsViewOf(operands.q);
  problem->k = RowsViewOf(operands.k);
  problem->v = RowsViewOf(operands.v);
  problem->o = RowsViewOf(operands.o);
  problem->lse = LseViewOf(operands.lse);
  problem->q_packing = args.q_packing();
  problem->kv_packing = args.kv_packing();
  return {};
}

}  // namespace heed::core
