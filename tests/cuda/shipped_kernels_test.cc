// Which kernels features and calls stand for. Nothing is compiled.
#include "cuda/shipped_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/features.h"

namespace heed::cuda {
namespace {

constexpr CompileTarget kHopper = {.major = 9, .minor = 0, .arch_specific = true};

std::vector<FeatureSet> SetsOf(const std::string& text) {
  std::vector<FeatureSet> sets;
  EXPECT_TRUE(ParseFeatures(text, &sets).ok()) << text;
  return sets;
}

std::vector<std::string> LabelsOf(const std::vector<KernelSource>& kernels) {
  std::vector<std::string> labels;
  for (const KernelSource& kernel : kernels) labels.push_back(kernel.label);
  return labels;
}

// Of labels that end so.
std::vector<KernelSource> EndingIn(const std::vector<KernelSource>& kernels,
                                   const std::string& end) {
  std::vector<KernelSource> kept;
  for (const KernelSource& kernel : kernels) {
    if (kernel.label.ends_with(end)) kept.push_back(kernel);
  }
  return kept;
}

TEST(Features, AreSetsOfNames) {
  const std::vector<FeatureSet> sets = SetsOf("window,softcap+sinks,window");
  ASSERT_EQ(sets.size(), 2u) << "the same set twice is one";
  EXPECT_TRUE(sets[0].window && !sets[0].softcap);
  EXPECT_TRUE(sets[1].softcap && sets[1].sinks && !sets[1].window);
  EXPECT_EQ(SetsOf("all").size(), 13u);
  std::vector<FeatureSet> none;
  for (const char* text : {"", "Window", "window,", "+sinks", "bias+bias-f32", "d-bias+bias-f32"}) {
    EXPECT_EQ(ParseFeatures(text, &none).code(), HEED_INVALID_ARGUMENT) << text;
  }
}

TEST(ShippedKernels, HaveOneOfEachRowPerFeature) {
  const std::vector<FeatureSet> all = SetsOf("all");
  for (const CompileTarget& target :
       {CompileTarget{.major = 7, .minor = 5}, CompileTarget{.major = 8, .minor = 0}, kHopper}) {
    const std::vector<KernelSource> kernels = ShippedKernels(target, all);
    std::vector<std::string> labels = LabelsOf(kernels);
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end());
    const std::size_t num_plain = EndingIn(ShippedKernels(target), ".full").size();
    EXPECT_GT(num_plain, 5u);
    for (const char* name : {"softcap", "alibi", "bias", "sinks", "dropout", "packed"}) {
      const std::size_t count = EndingIn(kernels, std::string(".") + name + ".full").size();
      // Tall tiles of narrow heads, in bf16 and fp16, leave calls with terms to the low ones.
      const bool has_terms = std::string(name) == "alibi" || std::string(name) == "bias";
      const std::size_t num_left = target.major == kHopper.major && has_terms ? 2 : 0;
      EXPECT_GE(count + num_left, num_plain) << name;
      // On Hopper a row that takes plain calls alone leaves those of features to several others.
      if (target.major != kHopper.major) {
        EXPECT_EQ(count, num_plain) << name;
      }
      for (const KernelSource& kernel : EndingIn(kernels, std::string(".") + name + ".full")) {
        if (std::string(name) != "packed") continue;
        EXPECT_NE(kernel.traits_header.find("kVarlen = 1"), std::string::npos) << kernel.label;
      }
    }
    for (const KernelSource& kernel : EndingIn(kernels, ".d-bias.full")) {
      EXPECT_NE(kernel.label.find(".backward."), std::string::npos) << kernel.label;
    }
    EXPECT_GT(EndingIn(kernels, ".split.full").size(), 0u);
    for (const KernelSource& kernel : EndingIn(kernels, ".split.full")) {
      EXPECT_NE(kernel.label.find(".forward."), std::string::npos) << kernel.label;
      EXPECT_NE(kernel.traits_header.find("kSplit = 1"), std::string::npos) << kernel.label;
    }
  }
}

// What a Hopper row does not read runs on an older family's, and its kernels are those.
TEST(ShippedKernels, OfAFeatureThatHopperRowsLeaveAreOthers) {
  const std::vector<KernelSource> kernels = ShippedKernels(kHopper, SetsOf("mask"));
  EXPECT_GT(EndingIn(kernels, ".mask.full").size(), 0u);
  for (const KernelSource& kernel : EndingIn(kernels, ".mask.full")) {
    if (kernel.label.find(".forward.") == std::string::npos) continue;
    EXPECT_NE(kernel.label.find(".sm80."), std::string::npos) << kernel.label;
  }
}

// Of a bias and of pages what usual calls need: the copy engine reads them.
TEST(ShippedKernels, OfHopperRowsReadBiasAndPagesByTheCopyEngine) {
  const std::vector<KernelSource> kernels = ShippedKernels(kHopper, SetsOf("bias,paged"));
  int num_wide = 0, num_paged = 0;
  for (const KernelSource& kernel : kernels) {
    if (kernel.label.find("cuda.sm90.forward.bf16.d128") == std::string::npos) continue;
    num_wide += kernel.label.ends_with(".bias.full") &&
                kernel.traits_header.find("kVariant = 1") != std::string::npos;
    num_paged += kernel.label.ends_with(".paged.full");
  }
  EXPECT_EQ(num_wide, 1);
  EXPECT_EQ(num_paged, 1);
}

}  // namespace
}  // namespace heed::cuda
