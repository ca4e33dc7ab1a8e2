#include "device/dropout.h"
#include "reference/element.h"
#include "reference/reference.h"

namespace heed::reference {
namespace {

void WriteHead(const core::DropoutMaskProblem& problem, std::int64_t batch, std::int64_t head) {
  const core::DropoutRule& rule = problem.dropout;
  const auto head_index = static_cast<std::uint32_t>(batch * problem.num_q_heads + head);
  for (std::int64_t i = 0; i < problem.q_len; ++i) {
    for (std::int64_t j = 0; j < problem.kv_len; ++j) {
      const std::uint32_t number =
          device::DropoutNumber(rule.seed, rule.offset, head_index, static_cast<std::uint32_t>(i),
                                static_cast<std::uint32_t>(j));
      StoreElement(problem.mask.data, problem.mask.dtype,
                   problem.mask.OffsetElems(batch, head, i, j),
                   device::IsKept(number, rule.drop_threshold) ? 1.0 : 0.0);
    }
  }
}

}  // namespace

core::Status DropoutMask(const core::DropoutMaskProblem& problem) {
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t head = 0; head < problem.num_q_heads; ++head) WriteHead(problem, batch, head);
  }
  return {};
}

}  // namespace heed::reference
