// The functions of flash_attention_v2_optimized.h over one session.
#include "flash_attention_v2_optimized.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "core/os/os.h"
#include "core/status.h"

namespace heed::api {
namespace {

using core::Format;
using core::InvalidArgument;
using core::Status;

constexpr int kDefaultCacheTokens = 2048;

// Of one token: fp32 [batch_heads, head_dim] as [1, 1, batch_heads, head_dim].
class TokenRows {
 public:
  TokenRows(const float* data, int num_heads, int head_dim) : shape_{1, 1, num_heads, head_dim} {
    // Sessions write through the output tensor only.
    tensor_ = {const_cast<float*>(data),
               {HEED_DEVICE_CPU, 0},
               4,
               {HEED_DTYPE_FLOAT, 32, 1},
               shape_.data(),
               nullptr,
               0};
  }
  TokenRows(const TokenRows&) = delete;
  TokenRows& operator=(const TokenRows&) = delete;

  const heed_tensor_t* get() const { return &tensor_; }

 private:
  std::array<std::int64_t, 4> shape_;
  heed_tensor_t tensor_;
};

// Arguments of flash_attention_v2_opt_decode.
struct OneStep {
  const float* q;
  const float* k_new;
  const float* v_new;
  float* o;
  int batch_heads;
  int position;
  int head_dim;
};

// What a heed_session_... call said, with its message.
Status StatusOf(heed_status_t status) {
  return status == HEED_OK ? Status() : Status(status, heed_last_error());
}

// What came last of this token.
enum class Progress { kNone, kLoaded, kDecoded };

class Generation {
 public:
  Status Init(int max_batch_heads, int max_tokens, int head_dim);
  void CleanUp();
  Status Load(const float* q, const float* k, const float* v, int batch_heads);
  Status Decode(int batch_heads);
  Status Output(float* o, int batch_heads);
  void Synchronize() { static_cast<void>(heed_session_synchronize(session_)); }
  void Reset();
  Status Run(const OneStep& step);

  bool is_initialized() const { return session_ != nullptr; }
  int max_batch_heads() const { return max_batch_heads_; }
  int max_tokens() const { return max_tokens_; }
  int head_dim() const { return head_dim_; }
  int NumTokens() const;

 private:
  Status Open(int batch_heads);
  Status CheckReady() const;
  Status CheckStep(const OneStep& step) const;
  // Makes ready for appending a token at step.position.
  Status MoveTo(const OneStep& step);
  Status CheckBatchHeads(int batch_heads, int limit, const char* limit_name) const;

  heed_session_t* session_ = nullptr;
  int batch_heads_ = 0;  // of the session
  int max_batch_heads_ = 0;
  int max_tokens_ = 0;
  int head_dim_ = 0;
  Progress progress_ = Progress::kNone;
  std::vector<float> output_;  // for callers that ask for fewer rows than there are
};

// Which devices may hold the cache, the first that can wins.
Status AllowedDevices(bool* may_use_cuda, bool* may_use_cpu) {
  constexpr const char* kVariable = "HEED_FLASH_ATTENTION_V2_OPT";
  const std::string choice = core::os::Environment(kVariable);
  *may_use_cuda = choice.empty() || choice == "cuda";
  *may_use_cpu = choice.empty() || choice == "cpu";
  if (*may_use_cuda || *may_use_cpu) return {};
  return InvalidArgument(
      Format("%s = %.64s: must be \"cuda\", \"cpu\" or not set", kVariable, choice.c_str()));
}

// Replaces the session by one for this number of heads; on failure the former one stays.
Status Generation::Open(int batch_heads) {
  heed_session_config_t config = HEED_SESSION_CONFIG_INIT;
  config.num_sequences = 1;
  config.num_q_heads = config.num_kv_heads = batch_heads;
  config.head_dim = config.head_dim_v = head_dim_;
  config.capacity_tokens = max_tokens_;
  config.dtype = {HEED_DTYPE_FLOAT, 16, 1};
  config.use_graph = HEED_ON;
  bool may_use_cuda = false;
  bool may_use_cpu = false;
  HEED_RETURN_IF_ERROR(AllowedDevices(&may_use_cuda, &may_use_cpu));
  heed_session_t* opened = nullptr;
  heed_status_t status = HEED_UNAVAILABLE;
  if (may_use_cuda) {
    config.device = {HEED_DEVICE_CUDA, 0};
    status = heed_session_create(&config, &opened);
  }
  // A GPU that is there, and out of memory or broken, is an error and not replaced.
  if (may_use_cpu && (status == HEED_UNAVAILABLE || status == HEED_UNSUPPORTED)) {
    config.device = {HEED_DEVICE_CPU, 0};
    status = heed_session_create(&config, &opened);
  }
  HEED_RETURN_IF_ERROR(StatusOf(status));
  static_cast<void>(heed_session_destroy(session_));
  session_ = opened;
  batch_heads_ = batch_heads;
  progress_ = Progress::kNone;
  return {};
}

Status Generation::Init(int max_batch_heads, int max_tokens, int head_dim) {
  const std::pair<const char*, int> sizes[] = {
      {"max_batch_heads", max_batch_heads}, {"max_cache_len", max_tokens}, {"head_dim", head_dim}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) {
      return InvalidArgument(
          Format("flash_attention_v2_opt_init: %s = %d: must be at least 1", name, value));
    }
  }
  CleanUp();
  max_tokens_ = max_tokens;
  head_dim_ = head_dim;
  max_batch_heads_ = max_batch_heads;
  Status opened = Open(max_batch_heads);
  if (!opened.ok()) CleanUp();
  return opened;
}

void Generation::CleanUp() {
  static_cast<void>(heed_session_destroy(session_));
  session_ = nullptr;
  progress_ = Progress::kNone;
  batch_heads_ = max_batch_heads_ = max_tokens_ = head_dim_ = 0;
}

void Generation::Reset() {
  static_cast<void>(heed_session_truncate(session_, 0));
  progress_ = Progress::kNone;
}

int Generation::NumTokens() const {
  heed_session_info_t info = HEED_SESSION_INFO_INIT;
  if (session_ == nullptr || heed_session_query(session_, &info) != HEED_OK) return 0;
  return static_cast<int>(info.length_tokens);
}

Status Generation::CheckReady() const {
  if (session_ != nullptr) return {};
  return InvalidArgument("flash_attention_v2_opt_init must come before this call");
}

Status Generation::CheckBatchHeads(int batch_heads, int limit, const char* limit_name) const {
  if (batch_heads >= 1 && batch_heads <= limit) return {};
  return InvalidArgument(
      Format("batch_heads = %d: must be from 1 to %d (%s)", batch_heads, limit, limit_name));
}

Status Generation::Load(const float* q, const float* k, const float* v, int batch_heads) {
  HEED_RETURN_IF_ERROR(CheckReady());
  HEED_RETURN_IF_ERROR(CheckBatchHeads(batch_heads, max_batch_heads_, "max_batch_heads of init"));
  if (batch_heads != batch_heads_) {
    if (NumTokens() > 0) {
      return InvalidArgument(
          Format("batch_heads = %d: must be %d, as in the tokens before, until "
                 "flash_attention_v2_opt_reset",
                 batch_heads, batch_heads_));
    }
    HEED_RETURN_IF_ERROR(Open(batch_heads));
  }
  const std::pair<const char*, const float*> tensors[] = {{"Q", q}, {"K", k}, {"V", v}};
  for (const auto& [name, data] : tensors) {
    if (data == nullptr) return InvalidArgument(Format("%s = NULL: is required", name));
  }
  if (NumTokens() >= max_tokens_) {
    return InvalidArgument(
        Format("max_cache_len = %d of flash_attention_v2_opt_init: as many tokens are in the "
               "cache; flash_attention_v2_opt_reset must come before another one",
               max_tokens_));
  }
  progress_ = Progress::kNone;
  const TokenRows q_rows(q, batch_heads, head_dim_);
  const TokenRows k_rows(k, batch_heads, head_dim_);
  const TokenRows v_rows(v, batch_heads, head_dim_);
  HEED_RETURN_IF_ERROR(
      StatusOf(heed_session_append(session_, q_rows.get(), k_rows.get(), v_rows.get())));
  progress_ = Progress::kLoaded;
  return {};
}

Status Generation::Decode(int batch_heads) {
  HEED_RETURN_IF_ERROR(CheckReady());
  HEED_RETURN_IF_ERROR(CheckBatchHeads(batch_heads, batch_heads_, "of load_qkv"));
  if (progress_ == Progress::kNone) {
    return InvalidArgument(
        "flash_attention_v2_opt_load_qkv must come before flash_attention_v2_opt_decode_gpu");
  }
  progress_ = Progress::kLoaded;
  HEED_RETURN_IF_ERROR(StatusOf(heed_session_decode(session_)));
  progress_ = Progress::kDecoded;
  return {};
}

Status Generation::Output(float* o, int batch_heads) {
  HEED_RETURN_IF_ERROR(CheckReady());
  HEED_RETURN_IF_ERROR(CheckBatchHeads(batch_heads, batch_heads_, "of load_qkv"));
  if (o == nullptr) return InvalidArgument("O = NULL: is required");
  if (progress_ != Progress::kDecoded) {
    return InvalidArgument(
        "flash_attention_v2_opt_decode_gpu must come before flash_attention_v2_opt_get_output");
  }
  float* target = o;
  if (batch_heads != batch_heads_) {
    output_.resize(static_cast<std::size_t>(batch_heads_) * static_cast<std::size_t>(head_dim_));
    target = output_.data();
  }
  const TokenRows rows(target, batch_heads_, head_dim_);
  HEED_RETURN_IF_ERROR(StatusOf(heed_session_output(session_, rows.get())));
  if (target != o) std::copy_n(target, std::int64_t{batch_heads} * head_dim_, o);
  return {};
}

Status Generation::CheckStep(const OneStep& step) const {
  const std::pair<const char*, const float*> tensors[] = {
      {"Q", step.q}, {"K_new", step.k_new}, {"V_new", step.v_new}, {"O", step.o}};
  for (const auto& [name, data] : tensors) {
    if (data == nullptr) return InvalidArgument(Format("%s = NULL: is required", name));
  }
  if (step.position < 0 || step.position > NumTokens()) {
    return InvalidArgument(Format("cache_pos = %d: must be from 0 to %d, the tokens in the cache",
                                  step.position, NumTokens()));
  }
  if (step.position > 0 && step.head_dim != head_dim_) {
    return InvalidArgument(
        Format("head_dim = %d: must be %d, as in the tokens before", step.head_dim, head_dim_));
  }
  if (step.position > 0 && step.batch_heads != batch_heads_) {
    return InvalidArgument(Format("batch_heads = %d: must be %d, as in the tokens before",
                                  step.batch_heads, batch_heads_));
  }
  if (step.batch_heads < 1) {
    return InvalidArgument(Format("batch_heads = %d: must be at least 1", step.batch_heads));
  }
  if (step.head_dim >= 1) return {};
  return InvalidArgument(Format("head_dim = %d: must be at least 1", step.head_dim));
}

Status Generation::MoveTo(const OneStep& step) {
  const bool fits =
      session_ != nullptr && step.head_dim == head_dim_ && step.batch_heads <= max_batch_heads_;
  if (fits) {
    progress_ = Progress::kNone;
    return StatusOf(heed_session_truncate(session_, step.position));
  }
  return Init(std::max(step.batch_heads, max_batch_heads_),
              std::max(kDefaultCacheTokens, max_tokens_), step.head_dim);
}

Status Generation::Run(const OneStep& step) {
  HEED_RETURN_IF_ERROR(CheckStep(step));
  HEED_RETURN_IF_ERROR(MoveTo(step));
  HEED_RETURN_IF_ERROR(Load(step.q, step.k_new, step.v_new, step.batch_heads));
  HEED_RETURN_IF_ERROR(Decode(step.batch_heads));
  return Output(step.o, step.batch_heads);
}

// The process's only one. Never destroyed: other threads may still call while the process ends.
struct Shared {
  std::mutex mutex;
  Generation generation;
};

Shared& TheOne() {
  static Shared& shared = *new Shared;
  return shared;
}

template <class Work>
heed_status_t WithGeneration(Work&& work) {
  return AtBoundary([&]() -> Status {
    Shared& shared = TheOne();
    const std::lock_guard<std::mutex> lock(shared.mutex);
    return work(shared.generation);
  });
}

// For functions that cannot fail.
template <class Work>
void DoWithGeneration(Work&& work) {
  static_cast<void>(WithGeneration([&](Generation& generation) {
    work(generation);
    return Status();
  }));
}

}  // namespace
}  // namespace heed::api

using heed::api::DoWithGeneration;
using heed::api::Generation;
using heed::api::WithGeneration;

extern "C" int flash_attention_v2_opt_init(int max_batch_heads, int max_cache_len, int head_dim) {
  return WithGeneration([&](Generation& generation) {
    return generation.Init(max_batch_heads, max_cache_len, head_dim);
  });
}

extern "C" void flash_attention_v2_opt_cleanup(void) {
  DoWithGeneration([](Generation& generation) { generation.CleanUp(); });
}

extern "C" int flash_attention_v2_opt_load_qkv(const float* q, const float* k, const float* v,
                                               int batch_heads) {
  return WithGeneration(
      [&](Generation& generation) { return generation.Load(q, k, v, batch_heads); });
}

extern "C" int flash_attention_v2_opt_decode_gpu(int batch_heads, int) {
  return WithGeneration([&](Generation& generation) { return generation.Decode(batch_heads); });
}

extern "C" int flash_attention_v2_opt_get_output(float* o, int batch_heads) {
  return WithGeneration([&](Generation& generation) { return generation.Output(o, batch_heads); });
}

extern "C" void flash_attention_v2_opt_sync(void) {
  DoWithGeneration([](Generation& generation) {
    if (generation.is_initialized()) generation.Synchronize();
  });
}

extern "C" void flash_attention_v2_opt_reset(void) {
  DoWithGeneration([](Generation& generation) {
    if (generation.is_initialized()) generation.Reset();
  });
}

extern "C" void flash_attention_v2_opt_info(int* initialized, int* max_cache, int* max_bh,
                                            int* h_dim, int* seq_len) {
  DoWithGeneration([&](Generation& generation) {
    const std::pair<int*, int> values[] = {{initialized, generation.is_initialized() ? 1 : 0},
                                           {max_cache, generation.max_tokens()},
                                           {max_bh, generation.max_batch_heads()},
                                           {h_dim, generation.head_dim()},
                                           {seq_len, generation.NumTokens()}};
    for (const auto& [target, value] : values) {
      if (target != nullptr) *target = value;
    }
  });
}

// The parameter list is that of the interface.
// NOLINTNEXTLINE(readability-function-size)
extern "C" int flash_attention_v2_opt_decode(const float* q, const float* k_new, const float* v_new,
                                             float* o, int batch_heads, int cache_pos,
                                             int head_dim) {
  const heed::api::OneStep step = {q, k_new, v_new, o, batch_heads, cache_pos, head_dim};
  return WithGeneration([&](Generation& generation) { return generation.Run(step); });
}
