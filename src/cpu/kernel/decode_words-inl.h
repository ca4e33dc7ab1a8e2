// Decode kernels for interleaved int8 rows: q and softmax weights are 16-bit words in one of two
// forms (simd/decode_words.h), products and their sums over a block are exact 32-bit integers. A
// unit is a vector of 4-byte groups, one slot a lane; 16 / kLanes units make a block of slots.
//
// Scores: a lane holds 4 elements of one key, so sums never cross lanes. Values: the 4 x 4 bytes of
// 4 slots are transposed in registers, after which a lane holds 4 keys of one element.
#ifndef HEED_CPU_KERNEL_DECODE_WORDS_INL_H_
#define HEED_CPU_KERNEL_DECODE_WORDS_INL_H_

#include "cpu/kernel/decode_rows-inl.h"
#include "cpu/kernel/decode_softmax-inl.h"

namespace heed::cpu {

inline constexpr float kWordLimit = static_cast<float>(kLargestWord);

template <class Isa>
inline constexpr int kUnitsPerBlock = 16 / Isa::kLanes;
inline constexpr int kGroupOfBytes = 4;

template <class Isa>
HEED_ALWAYS_INLINE inline const std::uint8_t* UnitAt(const std::uint8_t* const* blocks, int unit) {
  return blocks[unit / kUnitsPerBlock<Isa>] +
         unit % kUnitsPerBlock<Isa> * Isa::kLanes * kGroupOfBytes;
}

template <class Isa, int kRows, int kUnits>
HEED_ALWAYS_INLINE inline void ScoreUnits(const WordScoresArgs& args, int first_row,
                                          int first_unit) {
  typename Isa::Sums sums[kRows][kUnits];
  const std::uint8_t* units[kUnits];
  // Only the first rows prefetch, and the first units of a line; the others find everything there.
  const bool prefetches = first_row == 0 && first_unit % kUnitsPerBlock<Isa> == 0;
  const void* const* ahead =
      args.keys.ahead + first_unit / kUnitsPerBlock<Isa> * args.keys.num_steps;
  Unroll<kUnits>([&](auto u) HEED_ALWAYS_INLINE {
    units[u.value] = UnitAt<Isa>(args.keys.blocks, first_unit + u.value);
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE { sums[r.value][u.value] = Isa::ZeroSums(); });
  });
  const std::int64_t row_words = 2 * args.keys.num_steps;
  const std::int32_t* q = args.q_words + first_row * row_words;
  for (std::int64_t step = 0; step < args.keys.num_steps; ++step) {
    const std::int64_t step_bytes = args.keys.offsets[step];
    typename Isa::Bytes bytes[kUnits];
    Unroll<kUnits>([&](auto u) HEED_ALWAYS_INLINE {
      bytes[u.value] = Isa::Spread(Isa::LoadInts(units[u.value] + step_bytes));
    });
    if (prefetches) {
      // A line holds the units of a block.
      constexpr int kLines = (kUnits + kUnitsPerBlock<Isa> - 1) / kUnitsPerBlock<Isa>;
      Unroll<kLines>([&](auto n) HEED_ALWAYS_INLINE { PrefetchAhead(ahead[n.value]); });
      ahead += kLines;
    }
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      const auto factors = Isa::BroadcastFactors(q + r.value * row_words + 2 * step);
      Unroll<kUnits>([&](auto u) HEED_ALWAYS_INLINE {
        auto& sum = sums[r.value][u.value];
        sum = Isa::AddProducts(bytes[u.value], factors, sum);
      });
    });
  }
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    const auto scale = Isa::Set(args.q_scales[first_row + r.value]);
    float* scores = args.scores + (first_row + r.value) * kDecodeBlock + first_unit * Isa::kLanes;
    Unroll<kUnits>([&](auto u) HEED_ALWAYS_INLINE {
      Isa::StoreUnaligned(scores + u.value * Isa::kLanes,
                          Isa::Mul(scale, Isa::ToFloat(Isa::Total(sums[r.value][u.value]))));
    });
  });
}

template <class Isa>
void WordScores(const WordScoresArgs& args) {
  const int num_units = args.keys.num_blocks * kUnitsPerBlock<Isa>;
  ForRowGroups<Isa::kWordScoreRows>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        constexpr int kUnits = Isa::WordScoreUnits(rows.value);
        ForRowGroups<kUnits>(0, num_units, [&](auto units, std::int64_t unit) HEED_ALWAYS_INLINE {
          ScoreUnits<Isa, rows.value, units.value>(args, static_cast<int>(row),
                                                   static_cast<int>(unit));
        });
      });
}

// Weights relative to the maximum of the block: none of its words is lost to a far larger one of
// another block. to_words: what a weight of each key is multiplied with.
template <class Isa>
HEED_ALWAYS_INLINE inline void FinishWordRow(WordSoftmaxArgs& args, float block_max,
                                             const float* to_words) {
  DecodeSoftmaxArgs& row = args.row;
  const float max = block_max > row.max_log2 ? block_max : row.max_log2;
  std::int16_t* const words = args.words;
  const auto store = [words, to_words](int key, typename Isa::Vec weight) HEED_ALWAYS_INLINE {
    const auto word = Isa::ToNearestInt(Isa::Mul(weight, Isa::LoadUnaligned(to_words + key)));
    Isa::StoreFactors(words + key * 4, word);
  };
  const float block_sum = Exponentiate<Isa>(row, Finite(block_max), store);
  const float factor = block_max == max ? 1.0f : ScalarExp2<Isa>(block_max, max);
  row.rescale = max == row.max_log2 ? 1.0f : ScalarExp2<Isa>(row.max_log2, max);
  row.sum = row.rescale * row.sum + factor * block_sum;
  row.max_log2 = max;
  args.word_scale = args.largest_value_scale / kWordLimit * factor;
}

template <class Isa>
void WordSoftmax(WordSoftmaxArgs* rows, int num_rows) {
  alignas(64) float to_words[kDecodeBlock];
  const float largest = rows[0].largest_value_scale;
  const auto per_scale = Isa::Set(largest > 0.0f ? kWordLimit / largest : 0.0f);
  for (int key = 0; key < rows[0].row.num_keys; key += Isa::kLanes) {
    const auto scale = Isa::LoadUnaligned(rows[0].row.value_scales + key);
    Isa::StoreUnaligned(to_words + key, Isa::Mul(scale, per_scale));
  }
  const auto scores_of = [](const WordSoftmaxArgs& args) -> const DecodeSoftmaxArgs& {
    return args.row;
  };
  ForRowsWithMaxima<Isa>(rows, num_rows, scores_of,
                         [&](WordSoftmaxArgs& args, float block_max)
                             HEED_ALWAYS_INLINE { FinishWordRow<Isa>(args, block_max, to_words); });
}

// sums[row][n] += weights * the 4-byte groups of step first_step + n, over all keys. Asks for the
// lines at *ahead on the way.
template <class Isa, int kRows, int kSteps>
HEED_ALWAYS_INLINE inline void SumWordSteps(const WordValuesArgs& args, int first_row,
                                            std::int64_t first_step, const void* const** ahead,
                                            typename Isa::Sums (&sums)[kRows][kSteps]) {
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kSteps>([&](auto n) HEED_ALWAYS_INLINE { sums[r.value][n.value] = Isa::ZeroSums(); });
  });
  const int num_units = args.values.num_blocks * kUnitsPerBlock<Isa>;
  const std::int16_t* words = args.words + first_row * kWordsPerRow;
  for (int unit = 0; unit < num_units; ++unit) {
    const std::uint8_t* bytes = UnitAt<Isa>(args.values.blocks, unit);
    if (first_row == 0 && unit % kUnitsPerBlock<Isa> == 0) {
      Unroll<kSteps>([&](auto n) HEED_ALWAYS_INLINE { PrefetchAhead((*ahead)[n.value]); });
      *ahead += kSteps;
    }
    Unroll<kSteps>([&](auto n) HEED_ALWAYS_INLINE {
      const std::int64_t step_bytes = args.values.offsets[first_step + n.value];
      const auto fours = Isa::Spread(Isa::TransposeFours(Isa::LoadInts(bytes + step_bytes)));
      Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
        const std::int16_t* weights = words + r.value * kWordsPerRow + unit * 4 * Isa::kLanes;
        auto& sum = sums[r.value][n.value];
        sum = Isa::AddProducts(fours, Isa::LoadFactors(weights), sum);
      });
    });
  }
}

template <class Isa, int kSteps>
HEED_ALWAYS_INLINE inline void TotalOfSteps(const typename Isa::Sums (&sums)[kSteps],
                                            typename Isa::Ints (&totals)[kSteps]) {
  Unroll<kSteps>([&](auto n) HEED_ALWAYS_INLINE { totals[n.value] = Isa::Total(sums[n.value]); });
}

// kRows rows of o, one vector of elements. Two passes where the sums of all steps at once would not
// fit the registers.
template <class Isa, int kRows>
HEED_ALWAYS_INLINE inline void AddWordValues(const WordValuesArgs& args, int first_row,
                                             std::int64_t first_step) {
  const void* const* ahead = args.values.ahead + first_step * args.values.num_blocks;
  typename Isa::Ints totals[kRows];
  if constexpr (kRows <= Isa::kOnePassRows) {
    typename Isa::Sums sums[kRows][Isa::kFours];
    SumWordSteps<Isa, kRows, Isa::kFours>(args, first_row, first_step, &ahead, sums);
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      typename Isa::Ints fours[Isa::kFours];
      TotalOfSteps<Isa>(sums[r.value], fours);
      totals[r.value] = Isa::SumFours(fours);
    });
  } else {
    constexpr int kSteps = Isa::kFours / 2;
    typename Isa::Sums low[kRows][kSteps], high[kRows][kSteps];
    typename Isa::Ints fours[kSteps];
    SumWordSteps<Isa, kRows, kSteps>(args, first_row, first_step, &ahead, low);
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      TotalOfSteps<Isa>(low[r.value], fours);
      totals[r.value] = Isa::SumHalf(fours);
    });
    SumWordSteps<Isa, kRows, kSteps>(args, first_row, first_step + kSteps, &ahead, high);
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      TotalOfSteps<Isa>(high[r.value], fours);
      totals[r.value] = Isa::SumHalves(totals[r.value], Isa::SumHalf(fours));
    });
  }
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    float* o = args.o + (first_row + r.value) * args.o_stride_elems + first_step * kGroupOfBytes;
    const auto old = Isa::Mul(Isa::Set(args.rescale[first_row + r.value]), Isa::LoadUnaligned(o));
    const auto added = Isa::ToFloat(totals[r.value]);
    Isa::StoreUnaligned(o, Isa::Fma(added, Isa::Set(args.word_scales[first_row + r.value]), old));
  });
}

template <class Isa>
void WordValues(const WordValuesArgs& args) {
  ForRowGroups<Isa::kWordValueRows>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        for (std::int64_t step = 0; step + Isa::kFours <= args.values.num_steps;
             step += Isa::kFours) {
          AddWordValues<Isa, rows.value>(args, static_cast<int>(row), step);
        }
      });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_WORDS_INL_H_
