// The input tensors of a forward call, by name.
#ifndef HEED_TOOLS_OPERAND_H_
#define HEED_TOOLS_OPERAND_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace heed::tools {

enum class Operand : std::uint8_t {
  kQ,
  kK,
  kV,
  kBias,
  kMask,
  kAlibiSlopes,
  kSinks,
  kCuSeqlensQ,
  kCuSeqlensKv,
  kSequsedQ,
  kSequsedKv,
  kBlockTable
};
inline constexpr std::size_t kNumOperands = 12;

// How an operand's elements are brought to a type that the library takes.
enum class OperandKind : std::uint8_t {
  kRows,     // q, k, v: --dtype when given
  kScore,    // bias: q's type stays, other floating-point types become f32
  kBoolean,  // mask
  kPerHead,  // f32
  kIndex     // i64 becomes i32
};

struct OperandInfo {
  const char* name;
  OperandKind kind;
  const char* help;
};

// Indexed by Operand.
inline constexpr std::array<OperandInfo, kNumOperands> kOperands = {{
    {"q", OperandKind::kRows, "queries [B,Sq,Hq,D], packed [total,Hq,D]"},
    {"k", OperandKind::kRows,
     "keys [B,Skv,Hkv,D], packed [total,Hkv,D], paged [pages,slots,Hkv,D]"},
    {"v", OperandKind::kRows, "values, as k with Dv"},
    {"bias", OperandKind::kScore, "added to the scores, broadcastable to [B,Hq,Sq,Skv]"},
    {"mask", OperandKind::kBoolean, "bool or u8, non-zero = attend, shaped as bias"},
    {"alibi_slopes", OperandKind::kPerHead, "[Hq] or [B,Hq]"},
    {"sinks", OperandKind::kPerHead, "[Hq], one extra logit per head"},
    {"cu_seqlens_q", OperandKind::kIndex, "[B+1], packs q"},
    {"cu_seqlens_kv", OperandKind::kIndex, "[B+1], packs k and v"},
    {"seqused_q", OperandKind::kIndex, "[B], rows of q in use"},
    {"seqused_kv", OperandKind::kIndex, "[B], rows of k and v in use"},
    {"block_table", OperandKind::kIndex, "[B,max_pages], makes k and v paged pools"},
}};

}  // namespace heed::tools

#endif  // HEED_TOOLS_OPERAND_H_
