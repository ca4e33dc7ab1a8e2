// Decode kernels for keys and values in rows of any format of decode_formats-inl.h: a vector holds
// neighbouring elements of one row. Scores are sums across lanes, taken for as many (row, key)
// pairs at once as a vector has lanes; values add up without leaving their lanes.
#ifndef HEED_CPU_KERNEL_DECODE_ROWS_INL_H_
#define HEED_CPU_KERNEL_DECODE_ROWS_INL_H_

#include "cpu/decode_kernel.h"
#include "cpu/element.h"
#include "cpu/kernel/decode_formats-inl.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {

// Into the second-level cache: strided rows would push each other out of the few sets of the first.
HEED_ALWAYS_INLINE inline void PrefetchAhead(const void* line) {
  constexpr int kReadOnly = 0, kSecondLevel = 2;
  __builtin_prefetch(line, kReadOnly, kSecondLevel);
}

inline constexpr std::int64_t kLineBytes = 64;

// 32, not 16.
template <class Isa>
inline constexpr bool kHasManyRegisters = Isa::kAccumulators >= 24;

// Adds the products of a block of elements: q of kRows rows against kKeys keys. What is used again
// stays in registers as far as there are some: q, or else the scales of the keys.
template <class Isa, class Format, int kRows, int kKeys>
HEED_ALWAYS_INLINE inline void AddBlockProducts(const float* q, std::int64_t q_stride_elems,
                                                const std::uint8_t* const (&keys)[kKeys],
                                                std::int64_t offset_bytes,
                                                typename Isa::Vec (&sums)[kRows * kKeys]) {
  using Vec = typename Isa::Vec;
  constexpr int kVectors = Format::kBlockElems / Isa::kLanes;
  const auto query_at = [&](auto r, int vector) HEED_ALWAYS_INLINE {
    return Isa::LoadUnaligned(q + r.value * q_stride_elems + vector * Isa::kLanes);
  };
  const auto add = [&](auto r, auto k, Vec key, Vec query) HEED_ALWAYS_INLINE {
    auto& sum = sums[r.value * kKeys + k.value];
    sum = Isa::Fma(key, query, sum);
  };
  constexpr int kFewVectors = 4;
  constexpr bool kHoldsQueries = kHasManyRegisters<Isa> && kRows * kVectors <= kFewVectors;
  if constexpr (kVectors > 1 && (kRows == 1 || kHoldsQueries)) {
    Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
      // For want of registers q comes from the cache again.
      if constexpr (!kHasManyRegisters<Isa>) asm volatile("" ::: "memory");
      const std::uint8_t* block = keys[k.value] + offset_bytes;
      const auto scale = Format::LoadScale(block);
      Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
        const auto key = Format::Load(block, v.value, scale);
        Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE { add(r, k, key, query_at(r, v.value)); });
      });
    });
    return;
  }
  typename Format::Scale scales[kKeys];
  Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
    scales[k.value] = Format::LoadScale(keys[k.value] + offset_bytes);
  });
  // Vector after vector: side by side they would share what they unpack, and hold it in registers.
#pragma GCC unroll 1
  for (int vector = 0; vector < kVectors; ++vector) {
    const auto key_at = [&](auto k) HEED_ALWAYS_INLINE {
      return Format::Load(keys[k.value] + offset_bytes, vector, scales[k.value]);
    };
    if constexpr (kRows < kKeys) {
      Vec queries[kRows];
      Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE { queries[r.value] = query_at(r, vector); });
      Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
        const auto key = key_at(k);
        Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE { add(r, k, key, queries[r.value]); });
      });
    } else {
      Vec at[kKeys];
      Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE { at[k.value] = key_at(k); });
      Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
        const auto query = query_at(r, vector);
        Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE { add(r, k, at[k.value], query); });
      });
    }
  }
}

// kRows query rows against kLanes / kRows keys.
template <class Isa, class Format, int kRows>
HEED_ALWAYS_INLINE inline void ScoreKeys(const DecodeScoresArgs& args, int first_row,
                                         int first_key) {
  constexpr int kKeys = Isa::kLanes / kRows;
  typename Isa::Vec sums[Isa::kLanes];
  Unroll<Isa::kLanes>([&](auto i) HEED_ALWAYS_INLINE { sums[i.value] = Isa::Set(0.0f); });
  const std::uint8_t* keys[kKeys];
  const std::uint8_t* ahead[kKeys];
  // Other rows find everything prefetched.
  const void* const* next = first_row == 0 ? args.ahead : args.keys;
  Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
    keys[k.value] = static_cast<const std::uint8_t*>(args.keys[first_key + k.value]);
    ahead[k.value] = static_cast<const std::uint8_t*>(next[first_key + k.value]);
  });
  const float* q = args.q + first_row * args.q_stride_elems;
  const std::int64_t row_bytes = args.num_elems / Format::kBlockElems * Format::kBlockBytes;
  for (std::int64_t offset_bytes = 0; offset_bytes < row_bytes;
       offset_bytes += Format::kBlockBytes) {
    // Once a line.
    if (offset_bytes % kLineBytes < Format::kBlockBytes) {
      Unroll<kKeys>([&](auto k)
                        HEED_ALWAYS_INLINE { PrefetchAhead(ahead[k.value] + offset_bytes); });
    }
    AddBlockProducts<Isa, Format, kRows, kKeys>(q, args.q_stride_elems, keys, offset_bytes, sums);
    q += Format::kBlockElems;
  }
  alignas(64) float totals[Isa::kLanes];
  Isa::StoreUnaligned(totals, Isa::SumEach(sums));
  float* scores = args.scores + first_row * kDecodeBlock + first_key;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    __builtin_memcpy(scores + r.value * kDecodeBlock, totals + r.value * kKeys,
                     sizeof(float) * kKeys);
  });
}

template <class Isa>
inline constexpr int kScoreRows = Isa::kLanes < 8 ? Isa::kLanes : 8;

template <class Isa, class Format>
void RowScores(const DecodeScoresArgs& args) {
  ForRowGroups<kScoreRows<Isa>>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        for (int key = 0; key < args.num_keys; key += Isa::kLanes / rows.value) {
          ScoreKeys<Isa, Format, rows.value>(args, static_cast<int>(row), key);
        }
      });
}

// kRows rows of o, kVectors vectors of elements from first_vector on, a multiple of kVectors.
template <class Isa, class Format, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void AddValues(const DecodeValuesArgs& args, int first_row,
                                         std::int64_t first_vector) {
  constexpr int kPerBlock = Format::kBlockElems / Isa::kLanes;
  constexpr int kBlocks = kVectors < kPerBlock ? 1 : kVectors / kPerBlock;
  typename Isa::Vec sums[kRows][kVectors];
  float* o = args.o + first_row * args.o_stride_elems + first_vector * Isa::kLanes;
  const float* weights = args.weights + first_row * kDecodeBlock;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    const auto rescale = Isa::Set(args.rescale[first_row + r.value]);
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      const float* at = o + r.value * args.o_stride_elems + v.value * Isa::kLanes;
      sums[r.value][v.value] = Isa::Mul(rescale, Isa::LoadUnaligned(at));
    });
  });
  // Other rows find everything prefetched.
  const void* const* next = first_row == 0 ? args.ahead : args.values;
  const std::int64_t offset_bytes = first_vector / kPerBlock * Format::kBlockBytes;
  // Inside the block, where it has more vectors than are summed.
  const int first_of_block = kVectors < kPerBlock ? static_cast<int>(first_vector % kPerBlock) : 0;
  constexpr std::int64_t kWidthBytes = std::int64_t{kBlocks} * Format::kBlockBytes /
                                       (kVectors < kPerBlock ? kPerBlock / kVectors : 1);
  for (int key = 0; key < args.num_keys; ++key) {
    const std::uint8_t* row = static_cast<const std::uint8_t*>(args.values[key]) + offset_bytes;
    const std::uint8_t* ahead = static_cast<const std::uint8_t*>(next[key]) + offset_bytes;
    constexpr int kLines = static_cast<int>((kWidthBytes + kLineBytes - 1) / kLineBytes);
    Unroll<kLines>([&](auto line)
                       HEED_ALWAYS_INLINE { PrefetchAhead(ahead + line.value * kLineBytes); });
    typename Format::Scale scales[kBlocks];
    Unroll<kBlocks>([&](auto b) HEED_ALWAYS_INLINE {
      scales[b.value] = Format::LoadScale(row + b.value * Format::kBlockBytes);
    });
    const auto value_at = [&](auto v) HEED_ALWAYS_INLINE {
      constexpr int kBlock = v.value / kPerBlock;
      return Format::Load(row + kBlock * Format::kBlockBytes, first_of_block + v.value % kPerBlock,
                          scales[kBlock]);
    };
    const auto weight_at = [&](auto r) HEED_ALWAYS_INLINE {
      return Isa::Broadcast(weights + r.value * kDecodeBlock + key);
    };
    // The shorter side stays in registers.
    if constexpr (kRows < kVectors) {
      typename Isa::Vec weight[kRows];
      Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE { weight[r.value] = weight_at(r); });
      Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
        const auto value = value_at(v);
        Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
          sums[r.value][v.value] = Isa::Fma(value, weight[r.value], sums[r.value][v.value]);
        });
      });
    } else {
      typename Isa::Vec value[kVectors];
      Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE { value[v.value] = value_at(v); });
      Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
        const auto weight = weight_at(r);
        Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
          sums[r.value][v.value] = Isa::Fma(value[v.value], weight, sums[r.value][v.value]);
        });
      });
    }
  }
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      Isa::StoreUnaligned(o + r.value * args.o_stride_elems + v.value * Isa::kLanes,
                          sums[r.value][v.value]);
    });
  });
}

// Sums that stay in registers beside the operands.
template <class Isa>
inline constexpr int kValueSums = kHasManyRegisters<Isa> ? 16 : 8;

template <class Isa, class Format>
void RowValues(const DecodeValuesArgs& args) {
  ForRowGroups<kScoreRows<Isa>>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        constexpr int kMost = kValueSums<Isa> / rows.value;
        constexpr int kVectors = kMost < 8 ? kMost : 8;
        ForRowGroups<kVectors>(0, args.num_elems / Isa::kLanes,
                               [&](auto vectors, std::int64_t vector) HEED_ALWAYS_INLINE {
                                 AddValues<Isa, Format, rows.value, vectors.value>(
                                     args, static_cast<int>(row), vector);
                               });
      });
}

template <class Isa, class Element>
void StoreDecodeRow(const StoreDecodeRowArgs& args) {
  const auto factor = Isa::Set(args.factor);
  auto* row = static_cast<Element*>(args.row);
  std::int64_t d = 0;
  for (; d + Isa::kLanes <= args.num_elems; d += Isa::kLanes) {
    Isa::StoreUnaligned(row + d, Isa::Mul(factor, Isa::LoadUnaligned(args.o + d)));
  }
  if (d == args.num_elems) return;
  Element last[Isa::kLanes];
  Isa::StoreUnaligned(last, Isa::Mul(factor, Isa::LoadUnaligned(args.o + d)));
  for (std::int64_t i = 0; d + i < args.num_elems; ++i) row[d + i] = last[i];
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_ROWS_INL_H_
