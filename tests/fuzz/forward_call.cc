#include "forward_call.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

namespace heed::fuzz {
namespace {

void RunSerially(void* /*context*/, std::int64_t num_workers, void (*body)(void*, std::int64_t),
                 void* body_context) {
  for (std::int64_t worker = num_workers; worker-- > 0;) body(body_context, worker);
}

constexpr const char* kKernelIds[] = {
#define HEED_KERNEL(id, ...) id,
#include "core/kernels.inc"
#undef HEED_KERNEL
};
constexpr std::int64_t kNumKernelIds = sizeof kKernelIds / sizeof kKernelIds[0];

// Writes any bits into an enumeration field, as a C caller may.
template <class Enum>
void SetEnum(Enum* field, std::int32_t value) {
  static_assert(sizeof(Enum) == sizeof value);
  *reinterpret_cast<std::int32_t*>(field) = value;
}

}  // namespace

ForwardCall::ForwardCall(ByteSource source) : source_(source) {
  MakeShape();
  MakeLengths();
  MakeOperands();
  MakeScore();
  MakeExec();
  Connect();
  const int num_corruptions = source_.Pick({0, 0, 0, 1, 1, 2});
  for (int i = 0; i < num_corruptions; ++i) Corrupt();
}

void ForwardCall::MakeShape() {
  batch_ = source_.Between(0, 3);
  q_len_ = source_.Between(0, 9);
  kv_len_ = source_.Between(0, 40);
  kv_heads_ = source_.Between(0, 2);
  q_heads_ = kv_heads_ * source_.Between(1, 3);
  head_dim_ = source_.Pick<std::int64_t>({1, 2, 3, 8, 16, 17, 33, 64});
  head_dim_v_ = source_.Pick<std::int64_t>({1, 2, 3, 8, 16, 17, 33, 64});
  q_packed_ = source_.OneIn(3);
  const int kv_layout = source_.Pick({0, 0, 1, 2});
  kv_packed_ = kv_layout == 1;
  paged_ = kv_layout == 2;
  page_slots_ = source_.Pick<std::int64_t>({1, 4, 16});
  num_pages_ = paged_ ? source_.Between(1, 8) : 0;
}

void ForwardCall::MakeLengths() {
  const auto make_offsets = [&](TensorName name, std::int64_t max_len) {
    FuzzTensor& offsets = tensors_[name];
    offsets.Make(kInt32, {batch_ + 1}, &source_);
    auto row = static_cast<std::int32_t>(source_.Between(0, 2));
    for (std::int64_t b = 0; b <= batch_; ++b) {
      offsets.SetIndex(static_cast<std::size_t>(b), row);
      row += static_cast<std::int32_t>(source_.Between(0, max_len));
    }
  };
  const auto make_used = [&](TensorName name, std::int64_t max_len) {
    tensors_[name].Make(kInt32, {batch_}, &source_);
    for (std::int64_t b = 0; b < batch_; ++b) {
      tensors_[name].SetIndex(static_cast<std::size_t>(b),
                              static_cast<std::int32_t>(source_.Between(0, max_len)));
    }
  };
  if (q_packed_) make_offsets(kCuSeqlensQ, q_len_);
  if (kv_packed_) make_offsets(kCuSeqlensKv, kv_len_);
  if (source_.OneIn(3)) make_used(kSeqUsedQ, q_packed_ ? 0 : q_len_);
  if (paged_) {
    const std::int64_t max_pages = source_.Between(1, 4);
    make_used(kSeqUsedKv, max_pages * page_slots_);
    tensors_[kBlockTable].Make(kInt32, {batch_, max_pages}, &source_);
    for (std::size_t i = 0; i < tensors_[kBlockTable].NumIndices(); ++i) {
      tensors_[kBlockTable].SetIndex(i,
                                     static_cast<std::int32_t>(source_.Between(0, num_pages_ - 1)));
    }
  } else if (source_.OneIn(3)) {
    make_used(kSeqUsedKv, kv_packed_ ? 0 : kv_len_);
  }
}

void ForwardCall::MakeOperands() {
  const auto dtype =
      source_.Pick<heed_dtype_t>({kFloat32, {HEED_DTYPE_FLOAT, 16, 1}, {HEED_DTYPE_BFLOAT, 16, 1}});
  // Packed buffers have a few rows that belong to no sequence.
  const std::int64_t q_rows = 2 + batch_ * q_len_ + 1, kv_rows = 2 + batch_ * kv_len_ + 1;
  const auto make_rows = [&](TensorName name, std::int64_t heads, std::int64_t dim) {
    const bool is_kv = name == kK || name == kV;
    if (is_kv && paged_) {
      tensors_[name].Make(dtype, {num_pages_, page_slots_, heads, dim}, &source_);
    } else if (is_kv ? kv_packed_ : q_packed_) {
      tensors_[name].Make(dtype, {is_kv ? kv_rows : q_rows, heads, dim}, &source_);
    } else {
      tensors_[name].Make(dtype, {batch_, is_kv ? kv_len_ : q_len_, heads, dim}, &source_);
    }
  };
  make_rows(kQ, q_heads_, head_dim_);
  make_rows(kK, kv_heads_, head_dim_);
  make_rows(kV, kv_heads_, head_dim_v_);
  make_rows(kO, q_heads_, head_dim_v_);
  for (const TensorName name : {kQ, kK, kV}) tensors_[name].FillValues(&source_);
  if (source_.OneIn(2)) {
    if (q_packed_) {
      tensors_[kLse].Make(kFloat32, {q_heads_, q_rows}, &source_);
    } else {
      tensors_[kLse].Make(kFloat32, {batch_, q_heads_, q_len_}, &source_);
    }
  }
}

void ForwardCall::MakeScore() {
  scale_ = source_.Pick({0.125, 1.0, 0.0, -2.0});
  score_.scale = source_.OneIn(2) ? &scale_ : nullptr;
  score_.softcap = source_.Pick({0.0, 0.0, 5.0});
  score_.causal = source_.Pick({HEED_CAUSAL_OFF, HEED_CAUSAL_ON});
  score_.alignment = source_.Pick({HEED_ALIGN_BOTTOM_RIGHT, HEED_ALIGN_TOP_LEFT});
  score_.window_left = source_.Pick<std::int64_t>({-1, -1, 0, 3, 20});
  score_.window_right = source_.Pick<std::int64_t>({-1, -1, 0, 2});
  const std::int64_t max_kv = paged_ ? 4 * page_slots_ : kv_len_;
  const auto make_scores = [&](TensorName name, heed_dtype_t dtype) {
    tensors_[name].Make(dtype, {batch_, q_heads_, q_len_, max_kv}, &source_);
    tensors_[name].FillValues(&source_);
    if (source_.OneIn(2)) tensors_[name].Broadcast(0);
    if (source_.OneIn(2)) tensors_[name].Broadcast(1);
  };
  if (source_.OneIn(4)) make_scores(kBias, kFloat32);
  if (source_.OneIn(4)) make_scores(kMask, kUint8);
  if (source_.OneIn(4)) {
    tensors_[kAlibi].Make(kFloat32, {q_heads_}, &source_);
    tensors_[kAlibi].FillValues(&source_);
  }
  if (source_.OneIn(4)) {
    tensors_[kSinks].Make(kFloat32, {q_heads_}, &source_);
    tensors_[kSinks].FillValues(&source_);
  }
  score_.dropout_p = source_.Pick({0.0, 0.0, 0.0, 0.25});
  score_.dropout_seed = source_.Byte();
  score_.dropout_offset = source_.Byte();
}

void ForwardCall::MakeExec() {
  exec_.backend = source_.Pick({HEED_BACKEND_AUTO, HEED_BACKEND_CPU, HEED_BACKEND_REFERENCE});
  exec_.deterministic = source_.Pick({HEED_OFF, HEED_ON});
  exec_.fixed_split = source_.Pick({HEED_OFF, HEED_ON});
  exec_.num_threads = source_.Pick<std::int32_t>({1, 1, 2, 3});
  if (source_.OneIn(3)) exec_.parallel_for = RunSerially;
  // Most of these do not fit the dtype or the machine, which is then the right answer.
  if (source_.OneIn(4)) exec_.kernel = kKernelIds[source_.Between(0, kNumKernelIds - 1)];
}

void ForwardCall::Connect() {
  args_.q = tensors_[kQ].abi();
  args_.k = tensors_[kK].abi();
  args_.v = tensors_[kV].abi();
  args_.o = tensors_[kO].abi();
  args_.lse = tensors_[kLse].abi();
  score_.bias = tensors_[kBias].abi();
  score_.mask = tensors_[kMask].abi();
  score_.alibi_slopes = tensors_[kAlibi].abi();
  score_.sinks = tensors_[kSinks].abi();
  varlen_.cu_seqlens_q = tensors_[kCuSeqlensQ].abi();
  varlen_.cu_seqlens_kv = tensors_[kCuSeqlensKv].abi();
  varlen_.seqused_q = tensors_[kSeqUsedQ].abi();
  varlen_.seqused_kv = tensors_[kSeqUsedKv].abi();
  paging_.block_table = tensors_[kBlockTable].abi();
  args_.score = source_.OneIn(8) ? nullptr : &score_;
  args_.varlen = &varlen_;
  args_.paging = paged_ ? &paging_ : nullptr;
  args_.exec = &exec_;
}

void ForwardCall::Corrupt() {
  const auto name = static_cast<std::size_t>(source_.Between(0, kNumTensors + 7));
  if (name >= kNumTensors) return CorruptScalar();
  FuzzTensor& tensor = tensors_[name];
  if (!tensor.made()) return;
  if (name >= kCuSeqlensQ && source_.OneIn(2)) {
    tensor.SetIndex(static_cast<std::size_t>(source_.Between(0, 4)),
                    source_.Pick<std::int32_t>(
                        {-1, 0, 1, 50, 1 << 30, std::numeric_limits<std::int32_t>::min()}));
  } else {
    tensor.Corrupt(&source_);
  }
}

void ForwardCall::CorruptScalar() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  const auto any_enum = [&] { return source_.Pick<std::int32_t>({-1, 2, 5, 0x7fffffff}); };
  switch (source_.Between(0, 14)) {
    case 0:
      args_.struct_size = source_.Pick<std::size_t>({0, 8, sizeof args_ - 8, sizeof args_ + 1});
      break;
    case 1:
      score_.struct_size = source_.Pick<std::size_t>({0, 8, sizeof score_ - 8, ~std::size_t{0}});
      break;
    case 2:
      varlen_.struct_size = source_.Pick<std::size_t>({0, 8, sizeof varlen_ - 8});
      break;
    case 3:
      exec_.struct_size = source_.Pick<std::size_t>({0, 8, sizeof exec_ - 8});
      break;
    case 4:
      scale_ = source_.Pick({kInfinity, kNan});
      break;
    case 5:
      score_.softcap = source_.Pick({-1.0, kInfinity, kNan});
      break;
    case 6:
      SetEnum(&score_.causal, any_enum());
      break;
    case 7:
      SetEnum(&score_.alignment, any_enum());
      break;
    case 8:
      score_.window_left = source_.Pick<std::int64_t>({-2, kMaxInt64, -kMaxInt64});
      break;
    case 9:
      score_.window_right = source_.Pick<std::int64_t>({-2, kMaxInt64, -kMaxInt64});
      break;
    case 10:
      score_.dropout_p = source_.Pick({-0.5, 1.0, 1.5, kNan});
      break;
    case 11:
      SetEnum(&exec_.backend, any_enum());
      break;
    case 12:
      exec_.kernel = source_.Pick<const char*>({"", "no.such.row", "cpu.generic"});
      break;
    case 13:
      exec_.num_threads = source_.Pick<std::int32_t>({-1, 1000});
      break;
    default:
      varlen_.max_seqlen_q = source_.Pick<std::int64_t>({-1, 1, kMaxInt64});
      break;
  }
}

bool ForwardCall::IsSafeToRun() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [](const FuzzTensor& tensor) { return tensor.FitsMemory(); });
}

void ForwardCall::DropUnreadableLengths() {
  for (std::size_t name = kCuSeqlensQ; name < kNumTensors; ++name) {
    if (!tensors_[name].FitsMemory()) tensors_[name].abi()->data = nullptr;
  }
}

void ForwardCall::Remember() {
  for (FuzzTensor& tensor : tensors_) tensor.Remember();
}

}  // namespace heed::fuzz
