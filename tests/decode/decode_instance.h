// A decode case in memory: every tensor of the call, with poison where nothing may be read.
#ifndef HEED_TESTS_DECODE_DECODE_INSTANCE_H_
#define HEED_TESTS_DECODE_DECODE_INSTANCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "decode/decode_case.h"
#include "support/random.h"
#include "api/owned_tensor.h"
// clang-format on

namespace heed::test {

// Which run of the same case.
struct DecodeRun {
  std::string kernel = {};  // empty = the planner's choice
  heed_backend_t backend = HEED_BACKEND_CPU;
  std::int32_t num_threads = 0;
  heed_parallel_for_t parallel_for = nullptr;
};

// What rounds besides fp32 storage. Tensor cores take 16-bit weights and rotated queries.
enum class DecodeRounding { kFp32, kTensorCores };

class DecodeInstance {
 public:
  explicit DecodeInstance(const DecodeCase& decode_case);
  DecodeInstance(const DecodeInstance&) = delete;
  DecodeInstance& operator=(const DecodeInstance&) = delete;

  // From the same bytes every time: cache and outputs are restored before.
  heed_status_t Run(const DecodeRun& run);
  void Restore();

  const DecodeCase& decode_case() const { return case_; }
  double Output(std::int64_t b, std::int64_t token, std::int64_t head, std::int64_t d);
  float Lse(std::int64_t b, std::int64_t token, std::int64_t head);
  // All bytes of caches, scales, o and lse after a run.
  std::vector<std::uint64_t> CacheBytes() const;
  std::vector<std::uint64_t> ResultBytes() const;

  // Bounds of |o - exact| and |lse - exact|, from the rows that the cache holds after a run.
  struct Bounds {
    double output = 0.0;
    double lse = 0.0;
  };
  Bounds ComputeBounds(DecodeRounding rounding = DecodeRounding::kFp32);

  heed_decode_args_t args = HEED_DECODE_ARGS_INIT;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;

 private:
  OwnedTensor MakeCache(std::int64_t payload_elems, heed_dtype_t dtype);
  void FillCache();
  void FillTables();
  void FillScore();
  OwnedTensor Numbers(std::vector<std::int64_t> shape, double deviation);

  DecodeCase case_;
  Random random_;
  std::int64_t num_pages_ = 0, page_slots_ = 0;
  std::vector<OwnedTensor> keep_;  // small tensors, by address
  std::optional<OwnedTensor> q_, o_, lse_, k_, v_, k_scales_, v_scales_, k_new_, v_new_;
  std::optional<OwnedTensor> lengths_, index_, leftpad_, table_, cos_, sin_, slopes_, bias_, mask_,
      sinks_;
  std::vector<std::uint64_t> k_before_, v_before_, k_scales_before_, v_scales_before_;
  heed_kv_quant_args_t quant_ = HEED_KV_QUANT_ARGS_INIT;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  double scale_ = 0.0;
  double max_abs_q_ = 0.0, max_abs_k_ = 0.0, max_abs_v_ = 0.0;
};

// What one run wrote: o and lse widened, [sequence][token][head], and the caches.
struct DecodeResults {
  std::vector<double> o, lse;
  std::vector<std::uint64_t> cache;
};
DecodeResults CollectResults(DecodeInstance& instance);

// The CPU's decode rows that can run here and are to be tested.
std::vector<std::string> DecodeRowsHere();

}  // namespace heed::test

#endif  // HEED_TESTS_DECODE_DECODE_INSTANCE_H_
