// A heed_forward call made from a fuzzer's input: first a legal one, then a few fields corrupted.
#ifndef HEED_TESTS_FUZZ_FORWARD_CALL_H_
#define HEED_TESTS_FUZZ_FORWARD_CALL_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "byte_source.h"
#include "fuzz_tensor.h"
#include "heed/heed.h"

namespace heed::fuzz {

enum TensorName : std::size_t {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kBias,
  kMask,
  kAlibi,
  kSinks,
  kCuSeqlensQ,
  kCuSeqlensKv,
  kSeqUsedQ,
  kSeqUsedKv,
  kBlockTable,
  kNumTensors
};

class ForwardCall {
 public:
  explicit ForwardCall(ByteSource source);
  ForwardCall(const ForwardCall&) = delete;
  ForwardCall& operator=(const ForwardCall&) = delete;

  heed_forward_args_t* args() { return &args_; }
  heed_exec_args_t* exec() { return &exec_; }
  FuzzTensor& tensor(TensorName name) { return tensors_[name]; }
  const std::array<FuzzTensor, kNumTensors>& tensors() const { return tensors_; }

  // Every descriptor stays inside its memory, so the call may run whatever it is told to do.
  bool IsSafeToRun() const;
  // Host length arrays that reach outside their memory lose their data pointer: planning reads
  // those arrays, but no other tensor.
  void DropUnreadableLengths();
  void Remember();

 private:
  void MakeShape();
  void MakeLengths();
  void MakeOperands();
  void MakeScore();
  void MakeExec();
  void Connect();
  void Corrupt();
  void CorruptScalar();

  ByteSource source_;
  std::int64_t batch_ = 0, q_len_ = 0, kv_len_ = 0, kv_heads_ = 0, q_heads_ = 0;
  std::int64_t head_dim_ = 0, head_dim_v_ = 0;
  std::int64_t page_slots_ = 0, num_pages_ = 0;
  bool q_packed_ = false, kv_packed_ = false, paged_ = false;
  double scale_ = 1.0;
  std::array<FuzzTensor, kNumTensors> tensors_;
  heed_forward_args_t args_ = HEED_FORWARD_ARGS_INIT;
  heed_score_args_t score_ = HEED_SCORE_ARGS_INIT;
  heed_varlen_args_t varlen_ = HEED_VARLEN_ARGS_INIT;
  heed_paging_args_t paging_ = HEED_PAGING_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
};

}  // namespace heed::fuzz

#endif  // HEED_TESTS_FUZZ_FORWARD_CALL_H_
