#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/operands.h"
#include "core/build/tensor_reader.h"
#include "core/build/views.h"

namespace heed::core {
namespace {

constexpr AxisNames kPartRows = {5, {"parts", "batch", "q_len", "num_q_heads", "head_dim_v"}};
constexpr AxisNames kPartLse = {4, {"parts", "batch", "num_q_heads", "q_len"}};
constexpr AxisNames kSinks = {1, {"num_q_heads"}};

struct CombineTensors {
  TensorInfo o_partial, lse_partial, sinks, o, lse;
};

Status ReadTensors(const heed_combine_args_t& args, TensorReader* reader, CombineTensors* tensors) {
  HEED_RETURN_IF_ERROR(
      reader->Required("lse_partial", args.lse_partial, kPartLse, &tensors->lse_partial));
  HEED_RETURN_IF_ERROR(reader->Optional("sinks", args.sinks, kSinks, &tensors->sinks));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("o", args.o, kDenseValueRows, &tensors->o));
  return reader->OptionalOutput("lse", args.lse, kDenseLse, &tensors->lse);
}

Status CheckDTypes(const CombineTensors& tensors) {
  HEED_RETURN_IF_ERROR(RequireDType(tensors.o_partial, {DType::kF32}));
  HEED_RETURN_IF_ERROR(RequireDType(tensors.lse_partial, {DType::kF32}));
  HEED_RETURN_IF_ERROR(RequireDType(tensors.o, {DType::kF32, DType::kF16, DType::kBF16}));
  if (tensors.sinks.present()) HEED_RETURN_IF_ERROR(RequireDType(tensors.sinks, {DType::kF32}));
  return tensors.lse.present() ? RequireDType(tensors.lse, {DType::kF32}) : Status();
}

// Axes of `info` paired with those of o_partial [parts, batch, q_len, num_q_heads, head_dim_v].
Status CheckAxes(const TensorInfo& info, const TensorInfo& o_partial,
                 std::initializer_list<int> partial_axes) {
  int axis = 0;
  for (const int partial_axis : partial_axes) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(info, axis++, o_partial, partial_axis));
  }
  return {};
}

Status CheckShapes(const CombineTensors& tensors) {
  const TensorInfo& o_partial = tensors.o_partial;
  for (const int axis : {0, 4}) {
    if (o_partial.shape[static_cast<std::size_t>(axis)] < 1) {
      return InvalidArgument(o_partial.AxisText(axis) + ": must be at least 1");
    }
  }
  HEED_RETURN_IF_ERROR(CheckAxes(tensors.lse_partial, o_partial, {0, 1, 3, 2}));
  HEED_RETURN_IF_ERROR(CheckAxes(tensors.o, o_partial, {1, 2, 3, 4}));
  if (tensors.sinks.present()) HEED_RETURN_IF_ERROR(CheckAxes(tensors.sinks, o_partial, {3}));
  if (tensors.lse.present()) {
    HEED_RETURN_IF_ERROR(CheckAxes(tensors.lse, o_partial, {1, 3, 2}));
  }
  HEED_RETURN_IF_ERROR(RequireContiguousRows(o_partial));
  return RequireContiguousRows(tensors.o);
}

void FillProblem(const CombineTensors& tensors, CombineProblem* problem) {
  const TensorInfo& o_partial = tensors.o_partial;
  const TensorInfo& lse_partial = tensors.lse_partial;
  problem->num_parts = o_partial.shape[0];
  problem->batch = o_partial.shape[1];
  problem->q_len = o_partial.shape[2];
  problem->num_q_heads = o_partial.shape[3];
  problem->head_dim_v = o_partial.shape[4];
  problem->o_partial = {o_partial.data, o_partial.dtype, o_partial.stride_elems[1],
                        o_partial.stride_elems[2], o_partial.stride_elems[3]};
  problem->o_part_stride_elems = o_partial.stride_elems[0];
  problem->lse_partial = {lse_partial.data, lse_partial.dtype, lse_partial.stride_elems[1],
                          lse_partial.stride_elems[2], lse_partial.stride_elems[3]};
  problem->lse_part_stride_elems = lse_partial.stride_elems[0];
  problem->sinks = HeadViewOf(tensors.sinks);
  problem->o = RowsViewOf(tensors.o);
  problem->lse = LseViewOf(tensors.lse);
}

}  // namespace

Status BuildCombineProblem(const heed_combine_args_t* args, Purpose purpose,
                           CombineProblem* problem) {
  *problem = CombineProblem{};
  heed_combine_args_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  TensorReader reader(purpose);
  CombineTensors tensors;
  HEED_RETURN_IF_ERROR(reader.Required("o_partial", read.o_partial, kPartRows, &tensors.o_partial));
  HEED_RETURN_IF_ERROR(BuildExec(read.exec, Op::kCombine, reader.home_device(), &problem->exec));
  HEED_RETURN_IF_ERROR(ReadTensors(read, &reader, &tensors));
  HEED_RETURN_IF_ERROR(CheckDTypes(tensors));
  HEED_RETURN_IF_ERROR(CheckShapes(tensors));
  FillProblem(tensors, problem);
  return reader.CheckOverlaps(problem->exec.workspace, problem->exec.workspace_bytes);
}

}  // namespace heed::core
