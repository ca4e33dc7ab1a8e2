#include "cpu/score_terms.h"

#include "cpu/forward_kernel.h"
#include "device/dropout.h"
#include "device/float16.h"

namespace heed::cpu {
namespace {

// One lane of the tile: a row of scores, keys strided by tile_rows.
class Lane {
 public:
  Lane(const ElementTile& tile, int lane)
      : first_(tile.destination + lane), first_key_(tile.keys.begin), tile_rows_(tile.tile_rows) {}
  float& operator[](std::int64_t key) const { return first_[(key - first_key_) * tile_rows_]; }

 private:
  float* first_;
  std::int64_t first_key_;
  std::int64_t tile_rows_;
};

// Where a row stands on the axes [batch, head, query, key].
struct ScoreRow {
  std::int64_t batch;
  std::int64_t q_head;
  std::int64_t token;

  std::int64_t OffsetElems(const core::ScoreView& view) const {
    return view.OffsetElems(batch, q_head, token, 0);
  }
};

// Keeps kMaskedOut for the mask alone.
float SumOfTerms(float a, float b) {
  const float sum = a + b;
  return sum == kMaskedOut ? __builtin_nanf("") : sum;
}

template <class Element, class Convert>
void AddScores(const core::ScoreView& bias, const ScoreRow& row, device::KeyRange keys, Lane lane,
               Convert convert) {
  const auto* scores = static_cast<const Element*>(bias.data) + row.OffsetElems(bias);
  const std::int64_t key_stride_elems = bias.stride_elems[3];
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    lane[key] = SumOfTerms(lane[key], convert(scores[key * key_stride_elems]));
  }
}

void AddBias(const core::ScoreView& bias, const ScoreRow& row, device::KeyRange keys, Lane lane) {
  if (bias.dtype == core::DType::kF32) {
    AddScores<float>(bias, row, keys, lane, [](float score) { return score; });
  } else if (bias.dtype == core::DType::kF16) {
    AddScores<std::uint16_t>(bias, row, keys, lane, device::Fp16ToFp32);
  } else {
    AddScores<std::uint16_t>(bias, row, keys, lane, device::Bf16ToFp32);
  }
}

void AddAlibi(float slope, std::int64_t position, device::KeyRange keys, Lane lane) {
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    lane[key] = SumOfTerms(lane[key], device::AlibiBias(slope, position, key));
  }
}

// Without a branch on the mask: padding masks are regular, others are not.
void HideMasked(const core::ScoreView& mask, const ScoreRow& row, device::KeyRange keys,
                Lane lane) {
  const auto* is_visible = static_cast<const std::uint8_t*>(mask.data) + row.OffsetElems(mask);
  const std::int64_t key_stride_elems = mask.stride_elems[3];
  for (std::int64_t key = keys.begin; key < keys.end; ++key) {
    const float score = lane[key];
    lane[key] = is_visible[key * key_stride_elems] != 0 ? score : kMaskedOut;
  }
}

void FillLane(device::KeyRange keys, Lane lane, float value) {
  for (std::int64_t key = keys.begin; key < keys.end; ++key) lane[key] = value;
}

// Four patches of random words hold a row's numbers for an aligned run of 16 keys.
void FillKeepLane(const core::ForwardProblem& problem, const ScoreRow& row, device::KeyRange keys,
                  Lane lane) {
  constexpr std::int64_t kRunKeys = 16;
  const core::DropoutRule& rule = problem.score.dropout;
  const device::DropoutStream stream = device::MakeDropoutStream(rule.seed, rule.offset);
  const auto head = static_cast<device::u32>(row.batch * problem.shape.num_q_heads + row.q_head);
  const auto i = static_cast<device::u32>(row.token);
  for (std::int64_t run = keys.begin / kRunKeys * kRunKeys; run < keys.end; run += kRunKeys) {
    for (std::int64_t column = 0; column < kRunKeys / 2; column += 2) {
      const auto first = static_cast<device::u32>(run + column);
      const device::PhiloxWords words =
          device::DropoutWords(stream, head, device::PatchOf(i, first));
      for (const std::int64_t in_patch : {0, 1, 8, 9}) {
        const std::int64_t key = run + column + in_patch;
        if (key < keys.begin || key >= keys.end) continue;
        const device::u32 number = device::NumberInPatch(words, i, static_cast<device::u32>(key));
        lane[key] = device::IsKept(number, rule.drop_threshold) ? 1.0f : 0.0f;
      }
    }
  }
}

}  // namespace

void FillAdditiveTile(const core::ForwardProblem& problem, const HeadSequence& head,
                      const TileRows& rows, const ElementTile& tile) {
  const core::ScoreRule& score = problem.score;
  const std::int64_t shift =
      device::PositionShift(score.window.alignment, head.sequence.q_len, head.sequence.kv_len);
  for (int i = 0; i < rows.num_rows; ++i) {
    const Lane lane(tile, i);
    const ScoreRow row{head.batch, rows.q_head[i], rows.token[i]};
    FillLane(tile.keys, lane, 0.0f);
    if (score.bias.present()) AddBias(score.bias, row, tile.keys, lane);
    if (score.alibi_slopes.present()) {
      AddAlibi(score.alibi_slopes.At(row.batch, row.q_head), row.token + shift, tile.keys, lane);
    }
    if (score.mask.present()) HideMasked(score.mask, row, tile.keys, lane);
  }
  for (int i = rows.num_rows; i < tile.tile_rows; ++i) {
    FillLane(tile.keys, Lane(tile, i), kMaskedOut);
  }
}

void FillKeepTile(const core::ForwardProblem& problem, const HeadSequence& head,
                  const TileRows& rows, const ElementTile& tile) {
  for (int i = 0; i < rows.num_rows; ++i) {
    const ScoreRow row{head.batch, rows.q_head[i], rows.token[i]};
    FillKeepLane(problem, row, tile.keys, Lane(tile, i));
  }
  for (int i = rows.num_rows; i < tile.tile_rows; ++i) {
    FillLane(tile.keys, Lane(tile, i), 0.0f);
  }
}

}  // namespace heed::cpu
