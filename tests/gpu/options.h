// What the environment asks of the GPU tests.
#ifndef HEED_TESTS_GPU_OPTIONS_H_
#define HEED_TESTS_GPU_OPTIONS_H_

#include <cstdint>
#include <cstdlib>
#include <string>

namespace heed::test {

struct GpuOptions {
  std::uint64_t num_cases;  // HEED_GPU_CASES
  std::uint64_t seed;       // HEED_GPU_SEED
  std::string kernel_part;  // HEED_GPU_KERNEL: only rows whose id contains it
  std::string case_id;      // HEED_GPU_CASE: run this one on every row
  double max_cost;          // HEED_GPU_COST: multiply-adds of the largest case

  static GpuOptions Read() {
    return {Number("HEED_GPU_CASES", 600), Number("HEED_GPU_SEED", 1), Text("HEED_GPU_KERNEL"),
            Text("HEED_GPU_CASE"), static_cast<double>(Number("HEED_GPU_COST", 12000000))};
  }

 private:
  static std::string Text(const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr ? text : "";
  }
  static std::uint64_t Number(const char* name, std::uint64_t otherwise) {
    const std::string text = Text(name);
    return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
  }
};

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_OPTIONS_H_
