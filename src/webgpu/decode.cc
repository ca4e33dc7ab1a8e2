// Decode: tokens are appended (from the host to caches in buffers) and queries rotated on the host,
// then every part of a sequence's keys is a unit of the forward shader's variant for few rows, and
// parts are merged in ascending order.
#include <algorithm>
#include <vector>

#include "core/decode_append.h"
#include "core/decode_split.h"
#include "device/split.h"
#include "webgpu/appended_rows.h"
#include "webgpu/backend.h"
#include "webgpu/binding_limit.h"
#include "webgpu/forward_run.h"

namespace heed::webgpu {
namespace {

using core::Status;

// q in fp32 [B, Snew, Hq, D], rotated where the call rotates.
std::vector<float> RotatedQueries(const core::DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  std::vector<float> queries(
      static_cast<std::size_t>(shape.batch * shape.max_q_len * shape.num_q_heads * shape.head_dim));
  for (std::int64_t kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
    core::RotateQueries(problem, kv_head, queries.data());
  }
  return queries;
}

// The attention of a decode call over rows of its caches.
core::ForwardProblem ProblemOf(const core::DecodeProblem& decode, float* queries) {
  core::ForwardProblem problem = decode.attention;
  const core::Shape& shape = problem.shape;
  problem.q = {queries, core::DType::kF32, shape.max_q_len * shape.num_q_heads * shape.head_dim,
               shape.num_q_heads * shape.head_dim, shape.head_dim};
  problem.k = decode.k.rows;
  problem.v = decode.v.rows;
  // Where keys are is SequenceOf's to say.
  problem.kv_packing = core::Packing::kDense;
  problem.seqused_kv = decode.lengths;
  return problem;
}

core::Sequence SequenceOf(const core::DecodeProblem& decode, std::int64_t batch) {
  const core::DecodeSequence source = decode.SequenceAt(batch);
  core::Sequence sequence;
  sequence.q_batch = batch;
  sequence.q_slots = sequence.q_len = decode.attention.shape.max_q_len;
  sequence.kv_batch = source.cache_row;
  sequence.kv_slots = sequence.kv_len = source.kv_len;
  return sequence;
}

// Results of one part are written by the shader and others rounded on the host, which differs where
// there are sinks: under fixed_split it must not depend on the rest of the batch which.
bool HasPartials(const core::DecodeProblem& decode, const core::DecodeTasks& tasks,
                 const UnitChunks& chunks) {
  if (decode.attention.exec.fixed_split || tasks.max_parts() > 1) return true;
  for (std::int64_t batch = 0; batch < decode.attention.shape.batch; ++batch) {
    const device::KeyRange keys = decode.KeysOfAny(decode.SequenceAt(batch));
    if (keys.end - keys.begin > chunks.keys) return true;
  }
  return false;
}

Status RunSequence(const core::DecodeProblem& decode, std::int64_t batch, std::int64_t num_parts,
                   Device* device, ForwardRun* run) {
  const device::KeyRange keys = decode.KeysOfAny(decode.SequenceAt(batch));
  Unit unit;
  unit.batch = batch;
  unit.sequence = SequenceOf(decode, batch);
  for (unit.kv_head = 0; unit.kv_head < decode.attention.shape.num_kv_heads; ++unit.kv_head) {
    for (std::int64_t part = 0; part < num_parts; ++part) {
      const device::KeyRange range =
          device::SplitKeys(keys, core::kDecodeBlockKeys, num_parts, part);
      if (part > 0 && range.begin >= range.end) continue;
      HEED_RETURN_IF_ERROR(run->RunKeys(device, unit, range));
    }
  }
  return {};
}

// Before anything is read; what follows on the device comes after it.
Status Append(const core::DecodeProblem& decode, const DirectBuffers* buffers,
              std::uint64_t max_binding_bytes, Device* device) {
  if (!decode.appends()) return {};
  if (buffers != nullptr && buffers->Find(decode.k.rows.data) != nullptr) {
    return device->Deliver({}, AppendedRows(decode, max_binding_bytes),
                           {buffers, &decode.attention.exec});
  }
  for (std::int64_t head = 0; head < decode.attention.shape.num_kv_heads; ++head) {
    core::AppendHead(decode, head);
  }
  return {};
}

}  // namespace

Status Decode(const core::DecodeProblem& decode, const DirectBuffers* buffers, Action action) {
  std::shared_ptr<Device> device;
  HEED_RETURN_IF_ERROR(FindDevice(decode.attention.exec.device, &device));
  UnitLimits limits;
  HEED_RETURN_IF_ERROR(ReadLimits(*device, &limits));
  core::ForwardProblem problem = ProblemOf(decode, nullptr);
  UnitChunks chunks;
  HEED_RETURN_IF_ERROR(ChooseUnitChunks(problem, UnitPass::kForward, limits, &chunks));
  const KeyRows keys(problem, decode);
  if (action == Action::kPrepare) {
    // Lengths need not be there yet.
    for (const bool has_partials : {false, true}) {
      chunks.has_partials = has_partials;
      ForwardRun run(problem, chunks, keys, limits.max_binding_bytes, buffers);
      HEED_RETURN_IF_ERROR(run.ChooseShader(device.get()));
      HEED_RETURN_IF_ERROR(run.Prepare(device.get()));
    }
    return {};
  }
  HEED_RETURN_IF_ERROR(Append(decode, buffers, limits.max_binding_bytes, device.get()));
  if (problem.shape.total_q_rows == 0) return {};
  const core::DecodeTasks tasks(decode);
  chunks.has_partials = HasPartials(decode, tasks, chunks);
  std::vector<float> queries = RotatedQueries(decode);
  problem.q.data = queries.data();
  ForwardRun run(problem, chunks, keys, limits.max_binding_bytes, buffers);
  HEED_RETURN_IF_ERROR(run.ChooseShader(device.get()));
  for (std::int64_t batch = 0; batch < problem.shape.batch; ++batch) {
    HEED_RETURN_IF_ERROR(RunSequence(decode, batch, tasks.num_parts(batch), device.get(), &run));
  }
  return run.Finish(device.get());
}

}  // namespace heed::webgpu
