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
  EXPECT_EQ(SetsOf("all").size(), 16u);
  std::vector<FeatureSet> none;
  for (const char* text :
       {"", "Window", "window,", "+sinks", "bias+bias-f32", "d-bias+bias-f32", "int8+fp8"}) {
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

// A mask is read by Hopper rows that have room for it; other calls run on an older family's, whose
// kernels are those.
TEST(ShippedKernels, OfAFeatureThatHopperRowsLeaveAreOthers) {
  const std::vector<KernelSource> kernels = ShippedKernels(kHopper, SetsOf("mask"));
  int num_wide = 0, num_others = 0;
  for (const KernelSource& kernel : EndingIn(kernels, ".mask.full")) {
    if (kernel.label.find(".forward.bf16.") == std::string::npos) continue;
    if (kernel.label.find(".d256.") != std::string::npos) {
      EXPECT_NE(kernel.label.find(".sm80."), std::string::npos) << kernel.label;
      ++num_wide;
    } else if (kernel.label.find(".d128.") != std::string::npos) {
      num_others += kernel.label.find(".sm90.") != std::string::npos;
    }
  }
  EXPECT_GT(num_wide, 0);
  EXPECT_GT(num_others, 0);
}

// Rows up to 192 columns have a kernel of their own for large caps.
TEST(ShippedKernels, OfASoftcapServeSmallAndLargeCaps) {
  const std::vector<KernelSource> kernels = ShippedKernels(kHopper, SetsOf("softcap"));
  for (const char* ending : {".softcap.full", ".softcap.causal"}) {
    const auto small = EndingIn(kernels, ending);
    const auto large = EndingIn(kernels, std::string(ending) + ".large-cap");
    EXPECT_GE(large.size(), 8u);
    for (const KernelSource& kernel : large) {
      EXPECT_NE(kernel.label.find("cuda.sm90.forward."), std::string::npos) << kernel.label;
      EXPECT_EQ(kernel.label.find(".d256."), std::string::npos) << kernel.label;
      EXPECT_NE(kernel.traits_header.find("kVariant = 2"), std::string::npos) << kernel.label;
      const std::string label = kernel.label.substr(0, kernel.label.rfind('.'));
      EXPECT_TRUE(std::any_of(small.begin(), small.end(), [&](const KernelSource& other) {
        return other.label == label;
      })) << label;
    }
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

std::vector<KernelSource> OfDecode(const std::vector<KernelSource>& kernels) {
  std::vector<KernelSource> kept;
  for (const KernelSource& kernel : kernels) {
    if (kernel.entry.find("/decode/") != std::string::npos) kept.push_back(kernel);
  }
  return kept;
}

int NumContaining(const std::vector<KernelSource>& kernels, const std::string& part) {
  int count = 0;
  for (const KernelSource& kernel : kernels) {
    count += kernel.label.find(part) != std::string::npos;
  }
  return count;
}

// Short and long calls of each head dim and type, and what appends.
TEST(ShippedKernels, HaveThoseOfDecode) {
  EXPECT_TRUE(OfDecode(ShippedKernels({.major = 7, .minor = 5})).empty());
  const std::vector<KernelSource> plain = OfDecode(ShippedKernels({.major = 8, .minor = 6}));
  for (const char* dtype : {"f16", "bf16"}) {
    const std::string type(dtype);
    for (const char* dim : {".d64.", ".d128."}) {
      EXPECT_GE(NumContaining(plain, ".decode." + type + dim + "q16"), 1) << type << dim;
      EXPECT_GE(NumContaining(plain, ".decode." + type + dim + "q64"), 1) << type << dim;
    }
    EXPECT_EQ(NumContaining(plain, "cuda.decode_append." + type + ".plain"), 1);
    // Latent vectors of MLA, in the shared memory of this GPU.
    EXPECT_EQ(NumContaining(OfDecode(ShippedKernels({.major = 8, .minor = 0})),
                            ".decode." + type + ".d576.q64k32.latent.s2.plain"),
              1);
    // Few and many heads, and batches of them; short rows have clusters of two more kinds. Each
    // also appends.
    const std::vector<KernelSource> hopper = OfDecode(ShippedKernels(kHopper));
    EXPECT_EQ(NumContaining(hopper, "cuda.sm90.decode." + type), 16);
    EXPECT_EQ(EndingIn(hopper, ".append.plain").size(), 16u);
    EXPECT_EQ(EndingIn(hopper, ".octets.plain").size(), 4u);
  }
  // Plain code of 9.0 has no clusters in its rows.
  EXPECT_EQ(NumContaining(ShippedKernels({.major = 9, .minor = 0}), "cuda.sm90."), 0);
}

TEST(ShippedKernels, OfCacheFeaturesAreDecodeKernels) {
  const CompileTarget& target = kHopper;  // whose shared memory has room for columns
  const std::vector<KernelSource> plain = ShippedKernels(target);
  const std::vector<KernelSource> kernels = ShippedKernels(target, SetsOf("int8,int4+paged"));
  for (const char* set : {".int8", ".int4+paged"}) {
    const std::vector<KernelSource> of_set = EndingIn(kernels, set);
    EXPECT_EQ(OfDecode(of_set).size(), of_set.size()) << set << ": nothing but decode";
    EXPECT_GT(NumContaining(of_set, ".columns"), 2) << set;
    EXPECT_GT(NumContaining(of_set, ".q16"), NumContaining(of_set, ".columns")) << set;
    EXPECT_EQ(NumContaining(of_set, "cuda.decode_append."), 2) << set;
    EXPECT_EQ(NumContaining(of_set, "cuda.quantize_kv."), 3) << set;
  }
  for (const KernelSource& kernel : EndingIn(kernels, ".int4+paged")) {
    if (kernel.label.find("quantize") != std::string::npos) continue;
    EXPECT_NE(kernel.traits_header.find("kPaged = 1"), std::string::npos) << kernel.label;
  }
  // Of windows decode kernels know nothing, and of dropout there are none.
  EXPECT_EQ(OfDecode(ShippedKernels(target, SetsOf("window,dropout,softcap+dropout"))).size(),
            OfDecode(plain).size());
}

}  // namespace
}  // namespace heed::cuda
