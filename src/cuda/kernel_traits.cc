#include "cuda/kernel_traits.h"

#include <utility>

namespace heed::cuda {

std::string TraitsHeader(const KernelTraits& traits) {
  const std::pair<const char*, int> constants[] = {
      {"kElement", traits.element},
      {"kHeadDim", traits.head_dim},
      {"kHeadDimV", traits.head_dim_v},
      {"kTileQ", traits.tile_q},
      {"kTileKv", traits.tile_kv},
      {"kNumWarps", traits.num_warps},
      {"kKvGroups", traits.kv_groups},
      {"kNumStages", traits.num_stages},
      {"kVariant", traits.variant},
      {"kRowAccess", traits.row_access},
      {"kWindow", traits.window},
      {"kBias", traits.bias},
      {"kSoftcap", traits.softcap},
      {"kAlibi", traits.alibi},
      {"kMask", traits.mask},
      {"kSinks", traits.sinks},
      {"kDropout", traits.dropout},
      {"kVarlen", traits.varlen},
      {"kPaged", traits.paged},
      {"kSplit", traits.split},
      {"kDeterministic", traits.deterministic},
      {"kDBias", traits.d_bias},
      {"kExactDBias", traits.exact_d_bias},
  };
  std::string text = "#pragma once\nnamespace heed::cuda {\nstruct Traits {\n";
  for (const auto& [name, value] : constants) {
    text += "  static constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
  }
  return text + "};\n}  // namespace heed::cuda\n";
}

}  // namespace heed::cuda
