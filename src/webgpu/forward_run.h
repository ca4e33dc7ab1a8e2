// Units of a forward or decode call, packed into dispatches, run, and their results put together.
#ifndef HEED_WEBGPU_FORWARD_RUN_H_
#define HEED_WEBGPU_FORWARD_RUN_H_

#include <memory>
#include <vector>

#include "webgpu/forward_slice.h"
#include "webgpu/output.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {

class ForwardRun {
 public:
  // problem, chunks and keys live longer, and what is in buffers.
  ForwardRun(const core::ForwardProblem& problem, const UnitChunks& chunks, const KeyRows& keys,
             std::uint64_t max_binding_bytes, const DirectBuffers* buffers);

  // The shader with features that the device has, checked. First of all.
  core::Status ChooseShader(Device* device);
  core::Status Prepare(Device* device) { return device->Prepare(shader_); }
  // All queries of a unit from VisitHeads against some of its sequence's keys; [0, 0) without keys.
  core::Status RunKeys(Device* device, const Unit& unit, device::KeyRange keys);
  // Writes o and lse; nothing was written before.
  core::Status Finish(Device* device);

 private:
  void StartSlice();
  core::Status RunUnit(Device* device, const Unit& unit);
  core::Status Flush(Device* device);

  const core::ForwardProblem& problem_;
  const UnitChunks& chunks_;
  const KeyRows& keys_;
  std::uint64_t max_binding_bytes_;
  RowEnds ends_;
  std::unique_ptr<ForwardSlice> slice_;
  // Results of whole rows, kept until every dispatch has run.
  std::vector<std::unique_ptr<ForwardSlice>> done_;
  ForwardOutput output_;
  ForwardVariant variant_;
  Shader shader_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_FORWARD_RUN_H_
