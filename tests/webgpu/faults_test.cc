// Public bug reports of other shaders (tests/faults/coverage.md), on this backend.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/attention_call.h"
#include "webgpu/webgpu_rows.h"

namespace heed::test {
namespace {

// ggml-org/llama.cpp#26434: a tile in workgroup memory was loaded again before all had read it,
// which shows once a workgroup is more than a subgroup. Scores are equal and v has a 1 in one place
// of each key: an element of o counts the keys of its place, so a key read twice or never is seen.
// Several tiles of rows and keys, and a slab of v that ends within a half tile.
TEST(WebgpuFaults, B148_TilesAreReadBeforeTheyAreReplaced) {
  HEED_SKIP_WITHOUT_WEBGPU();
  constexpr std::int64_t kKeys = 331;
  for (const std::int64_t head_dim_v : {64, 136, 256}) {
    AttentionCall call(Element::kF32, {1, 70, 2, 40}, {1, kKeys, 2, 40}, {1, kKeys, 2, head_dim_v});
    call.exec.backend = HEED_BACKEND_WEBGPU;
    call.q.Fill([](const Indices&) { return 1.0; });
    call.k.Fill([](const Indices&) { return 0.25; });
    call.v.Fill([&](const Indices& at) { return at[1] % head_dim_v == at[3] ? 1.0 : 0.0; });
    for (int run = 0; run < 3; ++run) {
      ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
      ForEachIndex(call.o.shape(), [&](const Indices& at) {
        const std::int64_t count = (kKeys - 1 - at[3] + head_dim_v) / head_dim_v;
        EXPECT_NEAR(call.o.At(at), static_cast<double>(count) / kKeys, 1e-8) << run;
      });
    }
  }
}

}  // namespace
}  // namespace heed::test
