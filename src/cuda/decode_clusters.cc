#include "cuda/decode_clusters.h"

#include <algorithm>

#include "cuda/kernels/decode/cluster_shape.h"

namespace heed::cuda {

using core::DecodeProblem;

namespace {

// What a CTA of one cluster reads before others join it: merging takes as long as reading this.
constexpr std::int64_t kClusterAloneBytes = 64 << 10;
constexpr std::int64_t kMeasuredMultiprocessors = 132;
constexpr Clusters kOctets = {3, 14};
constexpr Clusters kQuads = {2, 28};
constexpr Clusters kPairs = {1, 66};
constexpr Clusters kSingles = {0, 132};
// Two CTAs a multiprocessor, with rings of as many stages as leave room for both.
constexpr Clusters kPairsOfTwo = {1, 132, 2, 3};

std::int64_t TasksOf(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  return std::max<std::int64_t>(1, shape.batch * shape.num_kv_heads);
}

std::int64_t BytesOfTask(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  return problem.capacity_rows * 2 * (shape.head_dim + shape.head_dim_v);
}

// The largest clusters of which every task has one at a time; of short rows, as many CTAs as give
// each a share that its ring does not hold at once.
Clusters ClustersOfBatch(const DecodeProblem& problem, std::int64_t num_tasks) {
  const core::Shape& shape = problem.attention.shape;
  const bool has_short_rows = shape.head_dim <= 64 && shape.head_dim_v <= 64;
  if (num_tasks <= kOctets.max_resident) return kOctets;
  if (num_tasks <= kQuads.max_resident) return kQuads;
  if (num_tasks > kPairs.max_resident) return kSingles;
  return has_short_rows ? kPairsOfTwo : kPairs;
}

}  // namespace

// Of one sequence octets for few heads, unless they leave CTAs idle that a long cache has use for.
Clusters ClustersOf(const DecodeProblem& problem) {
  constexpr std::int64_t kMostOctetBytes = 32 << 20;  // of a task with one octet
  const std::int64_t num_tasks = TasksOf(problem);
  if (problem.attention.shape.batch > 1) return ClustersOfBatch(problem, num_tasks);
  const std::int64_t per_task = kOctets.max_resident / num_tasks;
  const bool is_idle = per_task == 1 && BytesOfTask(problem) > kMostOctetBytes;
  return per_task == 0 || is_idle ? kPairs : kOctets;
}

std::int64_t NumClusters(const DecodeProblem& problem, std::int64_t num_multiprocessors) {
  const Clusters clusters = ClustersOf(problem);
  const std::int64_t resident =
      clusters.max_resident * num_multiprocessors / kMeasuredMultiprocessors;
  const std::int64_t useful =
      device::CeilDiv<std::int64_t>(problem.capacity_rows, kClusterBlockKeys << clusters.log2);
  return std::clamp<std::int64_t>(resident / TasksOf(problem), 1,
                                  std::max<std::int64_t>(1, useful));
}

std::int64_t AloneBlocksOf(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  const std::int64_t block_bytes = kClusterBlockKeys * 2 * (shape.head_dim + shape.head_dim_v);
  return (kClusterAloneBytes / block_bytes) << ClustersOf(problem).log2;
}

namespace {

// Of many sequences one may be much longer than the others, which the kernel for everything else
// shares out evenly; here its time is that of what one cluster reads.
const char* WhyNotClustersOfBatch(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  if (ClustersOf(problem).log2 == 0 && shape.head_dim + shape.head_dim_v > 128) {
    return "takes up to 66 KV heads of a batch whose head dims are not 64";
  }
  constexpr std::int64_t kMostBytesOfCta = 4 << 20;
  constexpr std::int64_t kMostTasks = 1 << 20;
  if (BytesOfTask(problem) > kMostBytesOfCta << ClustersOf(problem).log2) {
    return "takes batches whose caches have up to 4 MiB for a CTA";
  }
  return TasksOf(problem) > kMostTasks ? "takes up to 2^20 KV heads of a batch" : nullptr;
}

}  // namespace

const char* WhyNotClusters(const DecodeProblem& problem) {
  const core::ForwardProblem& attention = problem.attention;
  const core::Shape& shape = attention.shape;
  if (shape.max_q_len != 1 || shape.group > kClusterTileRows) {
    return "takes one token of a sequence and groups of up to 8 query heads";
  }
  if (!IsClusterHeadDim(shape.head_dim) || !IsClusterHeadDim(shape.head_dim_v)) {
    return "takes head dims of 64 and 128";
  }
  if (problem.k.format != HEED_KV_PLAIN || attention.block_table.present()) {
    return "takes plain contiguous caches";
  }
  const core::ScoreRule& score = attention.score;
  const bool sees_all =
      score.window.left < 0 &&
      (score.window.right < 0 || score.window.alignment == device::Alignment::kBottomRight);
  if (!sees_all || score.softcap > 0.0 || score.alibi_slopes.present()) {
    return "takes no window, softcap or ALiBi";
  }
  if (attention.exec.fixed_split || problem.num_splits > 0) return "has splits of its own";
  if (shape.batch > 1) return WhyNotClustersOfBatch(problem);
  constexpr std::int64_t kMostBytesOfPair = 4 << 20;
  if (shape.num_kv_heads > kPairs.max_resident) return "takes up to 66 KV heads";
  if (shape.num_kv_heads * BytesOfTask(problem) > kMostBytesOfPair * kPairs.max_resident) {
    return "takes caches of one sequence up to 264 MiB";
  }
  return nullptr;
}

KernelKey AppendingKeyOf(const KernelKey& attend_key) {
  KernelKey key = attend_key;
  DecodeVariant variant = DecodeDecodeVariant(key.traits.variant);
  variant.appends = true;
  key.traits.variant = EncodeDecodeVariant(variant);
  return key;
}

}  // namespace heed::cuda
