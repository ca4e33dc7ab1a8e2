// Backward pass: units of work, packed into dispatches, and their gradients added up.
#include <algorithm>
#include <cmath>
#include <optional>

#include "webgpu/backend.h"
#include "webgpu/backward_slice.h"
#include "webgpu/binding_limit.h"
#include "webgpu/crew.h"
#include "webgpu/gradient_sums.h"
#include "webgpu/row_terms.h"
#include "webgpu/shader_source.h"
#include "webgpu/unit_walk.h"

namespace heed::webgpu {
namespace {

using core::Status;

class BackwardRun {
 public:
  BackwardRun(const core::BackwardProblem& problem, Device* device, const UnitChunks& chunks,
              std::uint64_t max_binding_bytes, const DirectBuffers* buffers)
      : problem_(problem),
        device_(device),
        chunks_(chunks),
        max_binding_bytes_(max_binding_bytes),
        ends_{buffers, &problem.forward.exec},
        dq_(QuerySums(problem.forward)),
        dk_(KeySums(problem.forward, problem.forward.shape.head_dim)),
        dv_(KeySums(problem.forward, problem.forward.shape.head_dim_v)),
        d_bias_(problem.d_bias, problem.d_bias_shape) {
    StartSlice();
    shader_ = BackwardShader(problem.forward.dtype(), slice_->columns());
  }

  Status Prepare() { return device_->Prepare(shader_); }

  Status Run() {
    HEED_RETURN_IF_ERROR(VisitHeads(problem_.forward, [&](const Unit& head) {
      return VisitUnits(chunks_, head, {0, head.sequence.kv_len},
                        [&](const Unit& unit) { return RunUnit(unit); });
    }));
    HEED_RETURN_IF_ERROR(Flush());
    std::vector<PackedRows> made;
    const core::ExecOptions& exec = problem_.forward.exec;
    dq_.PackFor(problem_.dq, max_binding_bytes_, exec, &made);
    dk_.PackFor(problem_.dk, max_binding_bytes_, exec, &made);
    dv_.PackFor(problem_.dv, max_binding_bytes_, exec, &made);
    HEED_RETURN_IF_ERROR(device_->Deliver({}, made, ends_));
    if (d_bias_.present()) d_bias_.StoreTo(problem_.d_bias);
    if (problem_.d_sinks.present()) StoreSinkGradients();
    return {};
  }

 private:
  void StartSlice() { slice_.emplace(problem_, chunks_, max_binding_bytes_); }

  // Without keys all gradients are 0, as they begin.
  Status RunUnit(const Unit& unit) {
    if (unit.num_keys == 0) return {};
    if (!slice_->empty() && !slice_->Fits(unit)) HEED_RETURN_IF_ERROR(Flush());
    slice_->Add(unit);
    return {};
  }

  Status Flush() {
    if (slice_->empty()) return {};
    Dispatch* dispatch = slice_->Finish();
    dispatch->ends = ends_;
    HEED_RETURN_IF_ERROR(device_->Run(shader_, dispatch));
    for (std::size_t at = 0; at < slice_->units().size(); ++at) AddUnit(at);
    StartSlice();
    return {};
  }

  // Rows of a unit go to different sums, but for d_bias and pages.
  void AddUnit(std::size_t at) {
    const core::ForwardProblem& forward = problem_.forward;
    const core::Shape& shape = forward.shape;
    const Unit& unit = slice_->units()[at];
    Crew queries(unit.num_queries, [&](std::int64_t query) {
      const std::int64_t row = unit.sequence.q_begin + unit.first_query + query;
      for (std::int64_t head = 0; head < shape.group; ++head) {
        const std::int64_t q_head = unit.kv_head * shape.group + head;
        dq_.Add(dq_.view().OffsetElems(unit.sequence.q_batch, row, q_head),
                slice_->QueryGradient(at, query, head));
      }
    });
    queries.Run(&forward.exec, unit.num_queries * shape.group * shape.head_dim);
    if (d_bias_.present()) {
      for (std::int64_t query = 0; query < unit.num_queries; ++query) {
        for (std::int64_t head = 0; head < shape.group; ++head) AddScoreGradients(at, query, head);
      }
    }
    Crew keys(unit.num_keys, [&](std::int64_t key) {
      const auto offset_elems = [&](const RowSums& sums) {
        return forward.KvOffsetElems(sums.view(), unit.sequence, unit.batch, unit.first_key + key,
                                     unit.kv_head);
      };
      dk_.Add(offset_elems(dk_), slice_->KeyGradient(at, key));
      dv_.Add(offset_elems(dv_), slice_->ValueGradient(at, key));
    });
    // Several tokens of a sequence may share a slot of a page, which is then summed in order.
    const std::int64_t num_words =
        forward.block_table.present() ? 0 : unit.num_keys * (shape.head_dim + shape.head_dim_v);
    keys.Run(&forward.exec, num_words);
  }

  // The shader writes dS where diagonals let a tile see something, so no other place is read.
  void AddScoreGradients(std::size_t at, std::int64_t query, std::int64_t head) {
    const core::ForwardProblem& forward = problem_.forward;
    const Unit& unit = slice_->units()[at];
    const device::KeyRange range = device::VisibleKeys(
        forward.score.window, unit.first_query + query, unit.sequence.q_len, unit.sequence.kv_len);
    const std::int64_t first = std::max<std::int64_t>(range.begin, unit.first_key);
    const std::int64_t end = std::min<std::int64_t>(range.end, unit.first_key + unit.num_keys);
    if (first >= end) return;
    d_bias_.Add(
        {unit.batch, unit.kv_head * forward.shape.group + head, unit.first_query + query, first},
        end - first, slice_->ScoreGradient(at, query, head) + (first - unit.first_key));
  }

  // d_sink = sum over rows of p_sink * (d_lse - delta). A sink of -inf has no weight, even where
  // lse is -inf, too.
  void StoreSinkGradients() {
    const core::ForwardProblem& forward = problem_.forward;
    for (std::int64_t head = 0; head < forward.shape.num_q_heads; ++head) {
      const auto sink = static_cast<double>(forward.score.sinks.At(0, head));
      double sum = 0.0;
      for (std::int64_t batch = 0; batch < forward.shape.batch; ++batch) {
        const core::Sequence sequence = forward.SequenceAt(batch);
        for (std::int64_t query = 0; query < sequence.q_len; ++query) {
          const RowTerms terms = ComputeRowTerms(problem_, sequence, batch, query, head);
          const double p_sink = std::isinf(sink) && sink < 0.0 ? 0.0 : std::exp(sink - terms.lse);
          sum += p_sink * (terms.d_lse - terms.o_dot_d_o);
        }
      }
      problem_.d_sinks.data[head * problem_.d_sinks.head_stride_elems] = static_cast<float>(sum);
    }
  }

  const core::BackwardProblem& problem_;
  Device* device_;
  const UnitChunks& chunks_;
  std::uint64_t max_binding_bytes_;
  RowEnds ends_;
  Shader shader_;
  std::optional<BackwardSlice> slice_;
  RowSums dq_, dk_, dv_;
  ScoreSums d_bias_;
};

}  // namespace

Status Backward(const core::BackwardProblem& problem, const DirectBuffers* buffers, Action action) {
  std::shared_ptr<Device> device;
  HEED_RETURN_IF_ERROR(FindDevice(problem.forward.exec.device, &device));
  UnitLimits limits;
  HEED_RETURN_IF_ERROR(ReadLimits(*device, &limits));
  UnitChunks chunks;
  const UnitPass pass =
      problem.d_bias.present() ? UnitPass::kBackwardWithBias : UnitPass::kBackward;
  HEED_RETURN_IF_ERROR(ChooseUnitChunks(problem.forward, pass, limits, &chunks));
  BackwardRun run(problem, device.get(), chunks, limits.max_binding_bytes, buffers);
  return action == Action::kPrepare ? run.Prepare() : run.Run();
}

}  // namespace heed::webgpu
