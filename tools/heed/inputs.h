// The tensors of a forward call, from files or drawn at random.
#ifndef HEED_TOOLS_INPUTS_H_
#define HEED_TOOLS_INPUTS_H_

#include <array>
#include <optional>

#include "operand.h"
#include "options.h"
#include "tensor.h"

namespace heed::tools {

struct Inputs {
  std::array<std::optional<Tensor>, kNumOperands> tensors;
  Layout layout = Layout::kRowsHeads;

  std::optional<Tensor>& operator[](Operand operand) {
    return tensors[static_cast<std::size_t>(operand)];
  }
  const std::optional<Tensor>& operator[](Operand operand) const {
    return tensors[static_cast<std::size_t>(operand)];
  }
};

// kShapesOnly leaves floating-point tensors and masks without bytes: enough to plan a call.
enum class Fill : std::uint8_t { kValues, kShapesOnly };

// From files when options.files names any, else random. q, k and v are always present.
Inputs MakeInputs(const Options& options, Fill fill);

Inputs LoadInputs(const Options& options);
// Elements are drawn from options.seed: q, k, v near N(0,1).
Inputs DrawInputs(const Options& options, Fill fill);

// The same values in double precision, as the oracle takes them.
Inputs WidenInputs(const Inputs& inputs);

}  // namespace heed::tools

#endif  // HEED_TOOLS_INPUTS_H_
