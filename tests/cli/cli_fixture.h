// Tensor files in a folder of their own, and the tool run on them.
#ifndef HEED_TESTS_CLI_CLI_FIXTURE_H_
#define HEED_TESTS_CLI_CLI_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "process.h"
#include "tensor_file.h"

namespace heed::test {

using tools::Bytes;
using tools::ElementType;
using tools::NamedTensor;
using tools::Tensor;

using Words = std::vector<std::string>;

inline void Save(const std::string& path, const Bytes& content) {
  WriteFile(path, std::string(content.begin(), content.end()));
}

inline Tensor RandomTensor(std::uint32_t seed, std::vector<std::int64_t> shape) {
  std::mt19937 generator(seed);
  Tensor tensor = tools::MakeTensor(ElementType::kF32, std::move(shape));
  for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
    tensor.data<float>()[i] = static_cast<float>(generator() % 2001) / 1000.0f - 1.0f;
  }
  return tensor;
}

inline Tensor LoadNpy(const std::string& path) {
  const std::string file = ReadFile(path);
  return tools::ParseNpy(reinterpret_cast<const std::uint8_t*>(file.data()), file.size(), path);
}

inline std::vector<NamedTensor> LoadContainer(const std::string& path) {
  const std::string file = ReadFile(path);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  return path.ends_with(".npz") ? tools::ParseNpz(bytes, file.size(), path)
                                : tools::ParseSafetensors(bytes, file.size(), path);
}

inline void ExpectClose(const Tensor& a, const Tensor& b, float tolerance) {
  ASSERT_EQ(a.shape, b.shape);
  ASSERT_EQ(a.type, ElementType::kF32);
  ASSERT_EQ(b.type, ElementType::kF32);
  for (std::int64_t i = 0; i < a.NumElements(); ++i) {
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], tolerance) << "element " << i;
  }
}

// One line that starts with "heed: " and nothing on stdout.
inline void ExpectOneLineError(const Outcome& outcome) {
  EXPECT_TRUE(outcome.err.starts_with("heed: ")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

// q [2,5,4,8], k [2,7,2,8], v [2,7,2,6] as .npy, .npz and .safetensors.
class Cli : public ::testing::Test {
 protected:
  Cli() {
    Save(Path("q.npy"), tools::SerializeNpy(q_));
    Save(Path("k.npy"), tools::SerializeNpy(k_));
    Save(Path("v.npy"), tools::SerializeNpy(v_));
    const std::vector<NamedTensor> named = {{"q", q_}, {"k", k_}, {"v", v_}};
    Save(Path("in.npz"), tools::SerializeNpz(named));
    const std::vector<NamedTensor> layered = {
        {"layer3.q", q_}, {"layer3.k", k_}, {"layer3.v", v_}, {"other", q_}};
    Save(Path("in.safetensors"), tools::SerializeSafetensors(layered));
  }

  std::string Path(const std::string& name) const { return folder_.Path(name); }
  Words NpyInputs() const {
    return {"--q", Path("q.npy"), "--k", Path("k.npy"), "--v", Path("v.npy")};
  }
  Outcome Run(const Words& command, const Words& more = {}) const {
    Words words = command;
    words.insert(words.end(), more.begin(), more.end());
    return RunTool(words);
  }
  // o of a `heed run` with these options on the .npy inputs.
  Tensor RunToTensor(const Words& options) const {
    Words words = {"run"};
    for (const std::string& word : NpyInputs()) words.push_back(word);
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = Run(words, {"--o", Path("result.npy")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return LoadNpy(Path("result.npy"));
  }

  TemporaryFolder folder_;
  const Tensor q_ = RandomTensor(1, {2, 5, 4, 8});
  const Tensor k_ = RandomTensor(2, {2, 7, 2, 8});
  const Tensor v_ = RandomTensor(3, {2, 7, 2, 6});
};

}  // namespace heed::test

#endif  // HEED_TESTS_CLI_CLI_FIXTURE_H_
