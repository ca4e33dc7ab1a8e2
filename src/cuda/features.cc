#include "cuda/features.h"

#include <algorithm>

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

struct Feature {
  const char* name;
  bool FeatureSet::*flag;
};

constexpr Feature kFeatures[] = {
    {"window", &FeatureSet::window},     {"softcap", &FeatureSet::softcap},
    {"alibi", &FeatureSet::alibi},       {"bias", &FeatureSet::bias},
    {"bias-f32", &FeatureSet::bias_f32}, {"mask", &FeatureSet::mask},
    {"sinks", &FeatureSet::sinks},       {"dropout", &FeatureSet::dropout},
    {"packed", &FeatureSet::packed},     {"paged", &FeatureSet::paged},
    {"split", &FeatureSet::split},       {"deterministic", &FeatureSet::deterministic},
    {"d-bias", &FeatureSet::d_bias},     {"int8", &FeatureSet::int8},
    {"fp8", &FeatureSet::fp8},           {"int4", &FeatureSet::int4},
};

std::string KnownNames() {
  std::string names = "all";
  for (const Feature& feature : kFeatures) names += std::string(", ") + feature.name;
  return names;
}

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status ParseSet(const std::string& text, FeatureSet* set) {
  set->label = text;
  for (const std::string& name : SplitAt(text, '+')) {
    const auto* found = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                     [&](const Feature& feature) { return name == feature.name; });
    if (found == std::end(kFeatures)) {
      return core::InvalidArgument(
          Format("features: '%.32s' is none; known are %s, joined by , or +", name.c_str(),
                 KnownNames().c_str()));
    }
    set->*(found->flag) = true;
  }
  if (set->bias_f32 && (set->bias || set->d_bias)) {
    return core::InvalidArgument(
        Format("features: %.128s: a bias has one type, f32 or that of q", text.c_str()));
  }
  if (set->int8 + set->fp8 + set->int4 > 1) {
    return core::InvalidArgument(Format("features: %.128s: a cache has one format", text.c_str()));
  }
  return {};
}

}  // namespace

Status ParseFeatures(const std::string& text, std::vector<FeatureSet>* sets) {
  for (const std::string& part : SplitAt(text, ',')) {
    if (part == "all") {
      for (const Feature& feature : kFeatures) {
        FeatureSet set;
        HEED_RETURN_IF_ERROR(ParseSet(feature.name, &set));
        sets->push_back(std::move(set));
      }
      continue;
    }
    FeatureSet set;
    HEED_RETURN_IF_ERROR(ParseSet(part, &set));
    sets->push_back(std::move(set));
  }
  // A set that is named twice would have two kernels of one label.
  std::vector<FeatureSet> unique;
  for (FeatureSet& set : *sets) {
    const auto is_same = [&](const FeatureSet& other) { return other.label == set.label; };
    if (std::none_of(unique.begin(), unique.end(), is_same)) unique.push_back(std::move(set));
  }
  *sets = std::move(unique);
  return {};
}

}  // namespace heed::cuda
