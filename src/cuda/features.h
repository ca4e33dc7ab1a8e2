// Sets of features by name: which kernels a pack holds beside the plain and causal ones.
#ifndef HEED_CUDA_FEATURES_H_
#define HEED_CUDA_FEATURES_H_

#include <string>
#include <vector>

#include "core/status.h"

namespace heed::cuda {

// One kernel per row has exactly these features.
struct FeatureSet {
  std::string label;  // "softcap+sinks"; empty for the empty set
  bool window = false;
  bool softcap = false;
  bool alibi = false;
  bool bias = false;  // in the type of q
  bool bias_f32 = false;
  bool mask = false;
  bool sinks = false;
  bool dropout = false;
  bool packed = false;         // arrays of lengths of any kind
  bool paged = false;          // with seqused_kv
  bool split = false;          // forward only: few rows over many keys
  bool deterministic = false;  // backward only
  bool d_bias = false;         // backward only: gradient of a bias in the type of q
  bool int8 = false;           // decode only: the format of a cache, as sessions lay it out
  bool fp8 = false;
  bool int4 = false;
};

// "window,softcap+sinks": sets are separated by commas, features of one set by +. "all" stands for
// every feature alone. Errors: HEED_INVALID_ARGUMENT with the names there are.
core::Status ParseFeatures(const std::string& text, std::vector<FeatureSet>* sets);

}  // namespace heed::cuda

#endif  // HEED_CUDA_FEATURES_H_
