// Decode kernels for keys and values in rows of float, Half, Bfloat or int8: a vector holds
// neighbouring elements of one row. Scores are sums across lanes, taken for as many (row, key)
// pairs at once as a vector has lanes; values add up without leaving their lanes.
#ifndef HEED_CPU_KERNEL_DECODE_ROWS_INL_H_
#define HEED_CPU_KERNEL_DECODE_ROWS_INL_H_

#include "cpu/decode_kernel.h"
#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {

// Into the second-level cache: strided rows would push each other out of the few sets of the first.
HEED_ALWAYS_INLINE inline void PrefetchAhead(const void* line) {
  constexpr int kReadOnly = 0, kSecondLevel = 2;
  __builtin_prefetch(line, kReadOnly, kSecondLevel);
}

inline constexpr std::int64_t kLineBytes = 64;

// kRows query rows against kLanes / kRows keys.
template <class Isa, class Element, int kRows>
HEED_ALWAYS_INLINE inline void ScoreKeys(const DecodeScoresArgs& args, int first_row,
                                         int first_key) {
  constexpr int kKeys = Isa::kLanes / kRows;
  typename Isa::Vec sums[Isa::kLanes];
  Unroll<Isa::kLanes>([&](auto i) HEED_ALWAYS_INLINE { sums[i.value] = Isa::Set(0.0f); });
  const Element* keys[kKeys];
  const Element* ahead[kKeys];
  // Other rows find everything prefetched.
  const void* const* next = first_row == 0 ? args.ahead : args.keys;
  Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
    keys[k.value] = static_cast<const Element*>(args.keys[first_key + k.value]);
    ahead[k.value] = static_cast<const Element*>(next[first_key + k.value]);
  });
  const float* q = args.q + first_row * args.q_stride_elems;
  for (std::int64_t d = 0; d < args.num_elems; d += Isa::kLanes) {
    typename Isa::Vec key[kKeys];
    Unroll<kKeys>([&](auto k)
                      HEED_ALWAYS_INLINE { key[k.value] = Isa::LoadUnaligned(keys[k.value] + d); });
    // Once a line.
    if (d * static_cast<std::int64_t>(sizeof(Element)) % kLineBytes == 0) {
      Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE { PrefetchAhead(ahead[k.value] + d); });
    }
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      const auto query = Isa::LoadUnaligned(q + r.value * args.q_stride_elems + d);
      Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
        constexpr int kSum = r.value * kKeys + k.value;
        sums[kSum] = Isa::Fma(key[k.value], query, sums[kSum]);
      });
    });
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

template <class Isa, class Element>
void RowScores(const DecodeScoresArgs& args) {
  ForRowGroups<kScoreRows<Isa>>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        for (int key = 0; key < args.num_keys; key += Isa::kLanes / rows.value) {
          ScoreKeys<Isa, Element, rows.value>(args, static_cast<int>(row), key);
        }
      });
}

// kRows rows of o, kVectors vectors of elements from first_elem on.
template <class Isa, class Element, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void AddValues(const DecodeValuesArgs& args, int first_row,
                                         std::int64_t first_elem) {
  typename Isa::Vec sums[kRows][kVectors];
  float* o = args.o + first_row * args.o_stride_elems + first_elem;
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
  constexpr std::int64_t kWidthBytes =
      kVectors * Isa::kLanes * static_cast<std::int64_t>(sizeof(Element));
  for (int key = 0; key < args.num_keys; ++key) {
    const Element* row = static_cast<const Element*>(args.values[key]) + first_elem;
    const Element* ahead = static_cast<const Element*>(next[key]) + first_elem;
    constexpr int kLines = static_cast<int>((kWidthBytes + kLineBytes - 1) / kLineBytes);
    Unroll<kLines>([&](auto line) HEED_ALWAYS_INLINE {
      constexpr std::int64_t kLineElems = kLineBytes / static_cast<std::int64_t>(sizeof(Element));
      PrefetchAhead(ahead + line.value * kLineElems);
    });
    const auto value_at = [&](auto v) HEED_ALWAYS_INLINE {
      return Isa::LoadUnaligned(row + v.value * Isa::kLanes);
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
inline constexpr int kValueSums = Isa::kAccumulators >= 24 ? 16 : 8;

template <class Isa, class Element>
void RowValues(const DecodeValuesArgs& args) {
  ForRowGroups<kScoreRows<Isa>>(
      0, args.num_rows, [&](auto rows, std::int64_t row) HEED_ALWAYS_INLINE {
        constexpr int kMost = kValueSums<Isa> / rows.value;
        constexpr int kVectors = kMost < 8 ? kMost : 8;
        ForRowGroups<kVectors>(0, args.num_elems / Isa::kLanes,
                               [&](auto vectors, std::int64_t vector) HEED_ALWAYS_INLINE {
                                 AddValues<Isa, Element, rows.value, vectors.value>(
                                     args, static_cast<int>(row), vector * Isa::kLanes);
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
