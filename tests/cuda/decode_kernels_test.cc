// Decode kernels compile, without a GPU, and keep to registers and shared memory. Packs do not hold
// them, so cuda_compile_rows does not see them.
#include <gtest/gtest.h>

#include "../core/cuda_gpus.h"
#include "core/os/os.h"
#include "core/plan_decode.h"
#include "cuda/decode.h"
#include "cuda/decode_clusters.h"
#include "cuda/nvrtc.h"
#include "cuda/resources.h"

namespace heed::test {
namespace {

struct KernelCase {
  const char* name;
  int arch;
  std::int64_t new_tokens = 1;
  bool is_paged = false;
  heed_kv_format_t format = HEED_KV_PLAIN;
  std::int64_t groups = 1;
  std::int64_t batch = 64;
  int most_stack_bytes = 0;
};

core::DecodeProblem ProblemOf(const KernelCase& c) {
  core::DecodeProblem problem;
  problem.attention = CudaProblem(core::DType::kBF16, 128, c.new_tokens);
  problem.attention.score.window.right = 0;
  problem.attention.block_table.is_present = c.is_paged;
  for (core::KvCacheView* cache : {&problem.k, &problem.v}) {
    cache->rows = problem.attention.k;
    cache->format = c.format;
    if (c.format != HEED_KV_PLAIN) cache->rows.dtype = core::DType::kU8;
    cache->num_groups = c.groups;
    cache->head_dim = cache->payload_elems = 128;
  }
  problem.attention.shape.batch = c.batch;
  problem.capacity_rows = 4096;
  problem.num_cache_rows = 2;
  return problem;
}

// most_local_bytes: of a thread's stack.
void ExpectCompiles(const cuda::Compiler& compiler, const KernelCase& c, const cuda::KernelKey& key,
                    int most_local_bytes) {
  const cuda::KernelSource source = cuda::SourceOf(key);
  SCOPED_TRACE(source.function);
  cuda::KernelImage image;
  const core::Status status =
      compiler.Compile(cuda::KernelSources(), source, {core::Format("%d", c.arch)}, &image);
  ASSERT_TRUE(status.ok()) << status.message();
  cuda::KernelResources used;
  ASSERT_TRUE(cuda::ParseResources(image.log, source.function, &used)) << image.log;
  EXPECT_LE(used.local_bytes, most_local_bytes);
  EXPECT_EQ(image.log.find("warning"), std::string::npos) << image.log;
}

TEST(CudaDecodeKernels, CompileWithoutSpills) {
  std::shared_ptr<const cuda::Compiler> compiler;
  const core::Status found = cuda::FindNvrtc(0, &compiler);
  if (!found.ok()) {
    ASSERT_NE(core::os::Environment("HEED_REQUIRE_NVRTC"), "1") << found.message();
    GTEST_SKIP() << "NOT TESTED: " << found.message();
  }
  for (const KernelCase& c :
       {KernelCase{"few tasks", 90, 1, false, HEED_KV_PLAIN, 1, 1}, KernelCase{"one token", 90},
        KernelCase{"one token", 80}, KernelCase{"paged", 90, 1, true}, KernelCase{"chunk", 90, 32},
        KernelCase{"int8", 90, 1, false, HEED_KV_INT8},
        KernelCase{"int4", 80, 1, false, HEED_KV_INT4, 2, 1},
        // Merging is a function that is called, with what its caller keeps meanwhile.
        KernelCase{"int4, a head a warp", 90, 1, false, HEED_KV_INT4, 2, 64, 128}}) {
    SCOPED_TRACE(core::Format("%s, sm_%d", c.name, c.arch));
    const core::DecodeProblem problem = ProblemOf(c);
    core::Plan plan;
    core::DeviceFacts facts = Gpu(c.arch, 100);
    facts.cuda.has_tensor_maps = c.arch == 90;
    const core::Status planned = core::PlanDecode(problem, facts, &plan, nullptr);
    ASSERT_TRUE(planned.ok()) << planned.message();
    EXPECT_EQ(plan.row->tile_q_rows == 8, c.batch == 1 && c.format == HEED_KV_PLAIN);
    ExpectCompiles(*compiler, c, cuda::DecodeKeyOf(*plan.row, problem), c.most_stack_bytes);
    if (plan.row->tile_q_rows == 8) {
      ExpectCompiles(*compiler, c, cuda::AppendingKeyOf(cuda::DecodeKeyOf(*plan.row, problem)), 0);
    }
    // The division of a quantised append, correctly rounded, is a function that is called.
    ExpectCompiles(*compiler, c, cuda::DecodeAppendKeyOf(problem),
                   c.format == HEED_KV_PLAIN ? 0 : 24);
  }
}

}  // namespace
}  // namespace heed::test
