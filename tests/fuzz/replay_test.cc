// Runs a fuzz target once on every file of its committed corpus, with any compiler.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes);

namespace {

constexpr int kMinFiles = 10;

TEST(FuzzReplay, EveryCorpusFilePasses) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HEED_FUZZ_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    EXPECT_EQ(LLVMFuzzerTestOneInput(data, bytes.size()), 0);
    // Cut files are the commonest broken ones.
    EXPECT_EQ(LLVMFuzzerTestOneInput(data, bytes.size() / 2), 0);
    ++num_files;
  }
  EXPECT_GE(num_files, kMinFiles);
}

}  // namespace
