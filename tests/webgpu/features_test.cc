// Shaders that use more than the core of the language: what a device is found to have, and the
// check of each such shader against the plain one.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "webgpu/self_check.h"

namespace heed::webgpu {
namespace {

constexpr const char* kVariable = "HEED_WEBGPU_FEATURES";

// With HEED_WEBGPU_FEATURES = value while it lives.
class Wish {
 public:
  explicit Wish(const char* value) { ::setenv(kVariable, value, 1); }
  ~Wish() { ::unsetenv(kVariable); }
  Wish(const Wish&) = delete;
  Wish& operator=(const Wish&) = delete;
};

class WebgpuFeatures : public ::testing::Test {
 protected:
  void SetUp() override {
    const core::Status status = Device::Get(&device_);
    if (status.ok()) return;
    const char* required = std::getenv("HEED_REQUIRE_WEBGPU");
    ASSERT_TRUE(required == nullptr || *required != '1') << status.message();
    GTEST_SKIP() << status.message();
  }

  Device* device_ = nullptr;
};

// Of one test alone, which has it compiled wrongly.
constexpr ForwardVariant kSpoiled = {core::DType::kBF16, 2, Output::kPartial};
TEST(WebgpuFeatureWish, NamesAndDefaults) {
  const auto read = [](const char* value, bool is_software) {
    const Wish wish(value);
    Features features;
    EXPECT_TRUE(ReadFeatureWish({"", "", is_software}, &features).ok()) << value;
    return FeatureNames(features);
  };
  EXPECT_EQ(read("", false), "wide, subgroups");
  EXPECT_EQ(read("", true), "none");
  EXPECT_EQ(read("all", true), "wide, f16, subgroups");
  EXPECT_EQ(read("none", false), "none");
  EXPECT_EQ(read("subgroups,wide", false), "wide, subgroups");
  for (const char* value : {"wide,", ",", "f32", "wide;f16", "all,wide", "Wide"}) {
    const Wish wish(value);
    Features features;
    const core::Status status = ReadFeatureWish({}, &features);
    EXPECT_EQ(status.code(), HEED_INVALID_ARGUMENT) << value;
    EXPECT_NE(status.message().find(std::string(kVariable) + " = " + value + ":"),
              std::string::npos)
        << status.message();
  }
}

// A device that was given a feature passes its probe where the adapters are known.
TEST_F(WebgpuFeatures, Found) {
  const Wish wish("all");
  Features features;
  ASSERT_TRUE(FindFeatures(device_, &features).ok());
  std::printf("%s: %s, subgroups of %u\n", device_->adapter().name.c_str(),
              FeatureNames(features).c_str(), device_->feature_state().subgroup_lanes);
  EXPECT_TRUE(features.has_wide_tiles);
  EXPECT_EQ(features.has_f16, device_->HasFeature(kFeatureShaderF16));
  EXPECT_EQ(features.has_subgroups, device_->feature_state().subgroup_lanes >= 8);
  const Wish less("wide");
  ASSERT_TRUE(FindFeatures(device_, &features).ok());
  EXPECT_EQ(FeatureNames(features), "wide");
}

// Shaders that this device may be given agree with the plain ones: both widths with each set of
// features, other types and partial results with all of them.
TEST_F(WebgpuFeatures, ShadersAgreeWithPlainOnes) {
  struct Sample {
    const char* wish;
    ForwardVariant plain;
  };
  std::vector<Sample> samples;
  for (const std::uint32_t columns : {1u, 2u}) {
    for (const char* wish : {"wide", "wide,f16", "wide,subgroups", "all"}) {
      samples.push_back({wish, {core::DType::kF16, columns, Output::kStored}});
    }
    samples.push_back({"wide", {core::DType::kF32, columns, Output::kStored}});
    samples.push_back({"all", {core::DType::kF32, columns, Output::kStored}});
  }
  samples.push_back({"all", {core::DType::kF16, 1, Output::kPartial}});
  samples.push_back({"all", {core::DType::kBF16, 1, Output::kStored}});
  std::set<std::string> labels;
  for (const Sample& sample : samples) {
    const Wish wish(sample.wish);
    Shader shader;
    ASSERT_TRUE(ChooseForwardShader(device_, sample.plain, &shader).ok());
    EXPECT_NE(shader.label, ForwardShader(sample.plain).label);  // else the check failed
    labels.insert(shader.label);
  }
  for (const std::string& label : labels) std::printf("checked  %s\n", label.c_str());
  EXPECT_GE(labels.size(), 6u);  // without f16 and subgroups
}

// What must not be believed: maxima and sums of some columns only, a row's old maximum, masks that
// are taken for needless, lse of other rows.
TEST_F(WebgpuFeatures, WrongShadersAreFound) {
  struct Fault {
    const char* text;
    const char* wrong;
  };
  const Fault faults[] = {
      {"c < 16u", "c < 15u"},
      {"row_max_1 = new_max_1;", ""},
      {"first_query + high + 1)", "first_query + high + 2)"},
      {"end, last_query + low,", "end, last_query + low - 64,"},
      {"store_lse(unit, first_row + 32u, results_1.lse)", "store_lse(unit, 0u, results_1.lse)"},
  };
  ForwardVariant variant = {core::DType::kF32, 1, Output::kStored};
  variant.features.has_wide_tiles = true;
  for (const Fault& fault : faults) {
    Shader shader = ForwardShader(variant);
    std::size_t at = shader.text.find(fault.text);
    ASSERT_NE(at, std::string::npos) << fault.text;
    for (; at != std::string::npos; at = shader.text.find(fault.text, at + 1)) {
      shader.text.replace(at, std::string(fault.text).size(), fault.wrong);
    }
    shader.label = std::string("fault: ") + fault.text;
    EXPECT_NE(SelfCheck(device_, variant, shader), "") << fault.text;
  }
}

// After a mismatch calls get the plain shader, and one line of the log says so. The pipeline of the
// shader's label is one of another text, as if a driver had compiled it wrongly.
TEST_F(WebgpuFeatures, MismatchLeavesThePlainShader) {
  const Wish wish("wide");
  ForwardVariant variant = kSpoiled;
  const Shader plain = ForwardShader(variant);
  variant.features.has_wide_tiles = true;
  Shader spoiled = ForwardShader(variant);
  const std::string right = "row_max_0 = new_max_0;";
  spoiled.text.replace(spoiled.text.find(right), right.size(), "");
  ASSERT_TRUE(device_->Prepare(spoiled).ok());
  const std::string path = ::testing::TempDir() + "webgpu_features.log";
  std::remove(path.c_str());
  ::setenv("HEED_LOG", ("warn:" + path).c_str(), 1);
  for (int call = 0; call < 2; ++call) {
    Shader shader;
    ASSERT_TRUE(ChooseForwardShader(device_, kSpoiled, &shader).ok());
    EXPECT_EQ(shader.label, plain.label);
  }
  ::unsetenv("HEED_LOG");
  std::ifstream log(path);
  std::string line;
  ASSERT_TRUE(std::getline(log, line));
  EXPECT_NE(line.find(spoiled.label + " on "), std::string::npos) << line;
  EXPECT_NE(line.find("fails its self-check, the plain shader is used"), std::string::npos) << line;
  EXPECT_FALSE(std::getline(log, line)) << line;
}

}  // namespace
}  // namespace heed::webgpu
