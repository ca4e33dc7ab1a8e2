#include <immintrin.h>

#include "loops.h"

namespace heed::bench {
namespace {

// What ldtilecfg reads: eight registers of 16 rows x 64 bytes.
struct alignas(64) Config {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// A step is one product of 16 rows of 64 bytes by 16 columns. Four sums: a product occupies the
// unit for 16 cycles and takes 52. All operands are zero; the unit is as busy with them as with
// others.
constexpr std::int64_t kNumSums = 4;
constexpr double kPairOps = 2.0 * 16 * 16 * 32, kByteOps = 2.0 * 16 * 16 * 64;

void RunPairs(std::int64_t num_steps) {
  const Config config;
  asm volatile("ldtilecfg %0" : : "m"(config));
  for (std::int64_t i = 0; i < num_steps; i += kNumSums) {
    asm volatile(
        "tdpbf16ps %tmm5, %tmm4, %tmm0\n\t"
        "tdpbf16ps %tmm5, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm5, %tmm4, %tmm2\n\t"
        "tdpbf16ps %tmm5, %tmm4, %tmm3");
  }
  asm volatile("tilerelease");
}

void RunBytes(std::int64_t num_steps) {
  const Config config;
  asm volatile("ldtilecfg %0" : : "m"(config));
  for (std::int64_t i = 0; i < num_steps; i += kNumSums) {
    asm volatile(
        "tdpbssd %tmm5, %tmm4, %tmm0\n\t"
        "tdpbssd %tmm5, %tmm4, %tmm1\n\t"
        "tdpbssd %tmm5, %tmm4, %tmm2\n\t"
        "tdpbssd %tmm5, %tmm4, %tmm3");
  }
  asm volatile("tilerelease");
}

}  // namespace

const RoofLoop kDotBf16Amx = {"dot_bf16.amx", RoofKind::kDotBf16, kPairOps, kPairOps / 16,
                              RunPairs};
const RoofLoop kDotI8Amx = {"dot_i8.amx", RoofKind::kDotI8, kByteOps, kByteOps / 16, RunBytes};

}  // namespace heed::bench
