// Moves rows of q, k, v and o between tensors and the kernel's own layouts.
#ifndef HEED_CPU_KERNEL_PACK_INL_H_
#define HEED_CPU_KERNEL_PACK_INL_H_

#include "cpu/element.h"
#include "cpu/kernel/multiply-inl.h"

namespace heed::cpu {

// Loads and stores of up to Isa::kLanes elements go through a buffer of a full vector, so that
// nothing outside the row is touched.
template <class Isa, class Element>
inline typename Isa::Vec LoadPart(const Element* source, std::int64_t num_elems) {
  if (num_elems >= Isa::kLanes) return Isa::LoadUnaligned(source);
  Element buffer[Isa::kLanes] = {};
  for (std::int64_t i = 0; i < num_elems; ++i) buffer[i] = source[i];
  return Isa::LoadUnaligned(buffer);
}

template <class Isa, class Element>
inline void StorePart(Element* destination, typename Isa::Vec value, std::int64_t num_elems) {
  if (num_elems >= Isa::kLanes) return Isa::StoreUnaligned(destination, value);
  Element buffer[Isa::kLanes];
  Isa::StoreUnaligned(buffer, value);
  for (std::int64_t i = 0; i < num_elems; ++i) destination[i] = buffer[i];
}

// One square of q: kLanes rows x kLanes elements, a vector for each element.
template <class Isa, class Element>
inline void TransposeQueries(const PackQueriesArgs& args, int first_row, std::int64_t first_elem,
                             typename Isa::Vec (&square)[Isa::kLanes]) {
  for (int i = 0; i < Isa::kLanes; ++i) {
    const int row = first_row + i;
    auto value = Isa::Set(0.0f);
    if (row < args.num_rows) {
      const Element* source = static_cast<const Element*>(args.rows[row]) + first_elem;
      value = Isa::Mul(LoadPart<Isa>(source, args.head_dim - first_elem), Isa::Set(args.sign));
    }
    square[i] = value;
  }
  Isa::Transpose(square);
}

// q_groups [steps][kTileLanes]; a group is one element, or a pair whose missing half is zero.
template <class Dot, class Element>
void PackQueries(const PackQueriesArgs& args) {
  using Isa = typename Dot::Isa;
  typename Isa::Vec square[Isa::kLanes];
  for (int first_row = 0; first_row < kTileLanes<Isa>; first_row += Isa::kLanes) {
    for (std::int64_t elem = 0; elem < args.head_dim; elem += Isa::kLanes) {
      TransposeQueries<Isa, Element>(args, first_row, elem, square);
      for (int i = 0; i < Isa::kLanes && elem + i < args.head_dim; i += Dot::kGroupElems) {
        const std::int64_t step = (elem + i) / Dot::kGroupElems;
        float* groups = static_cast<float*>(args.q_groups) + step * kTileLanes<Isa> + first_row;
        if constexpr (Dot::kGroupElems == 1) {
          Isa::Store(groups, square[i]);
        } else {
          Isa::StorePairs(groups, Isa::MakePairs(square[i], square[i + 1]));
        }
      }
    }
  }
}

// One row to fp32, several vectors at a time: a row is short, and checks for its end add up.
template <class Isa, class Element>
HEED_ALWAYS_INLINE inline void WidenRow(const Element* source, std::int64_t num_elems,
                                        float* destination) {
  constexpr int kVectors = 4;
  std::int64_t elem = 0;
  for (; elem + kVectors * Isa::kLanes <= num_elems; elem += kVectors * Isa::kLanes) {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      const std::int64_t at = elem + v.value * Isa::kLanes;
      Isa::StoreUnaligned(destination + at, Isa::LoadUnaligned(source + at));
    });
  }
  for (; elem < num_elems; elem += Isa::kLanes) {
    const std::int64_t left = num_elems - elem;
    StorePart<Isa>(destination + elem, LoadPart<Isa>(source + elem, left), left);
  }
}

// Rows converted to fp32.
template <class Isa, class Element>
void PackRowsAsFp32(const PackRowsArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    const auto* source = static_cast<const Element*>(args.rows[row]);
    auto* destination = reinterpret_cast<float*>(static_cast<std::uint8_t*>(args.destination) +
                                                 row * args.destination_stride_bytes);
    if (source != nullptr) {
      WidenRow<Isa>(source, args.num_elems, destination);
    } else {
      for (std::int64_t elem = 0; elem < args.num_elems; ++elem) destination[elem] = 0.0f;
    }
  }
}

// Keys as pairs of neighbouring elements: rows as they are, padded with zero to a whole pair.
template <class Isa>
void PackKeyPairs(const PackRowsArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    const auto* source = static_cast<const Bfloat*>(args.rows[row]);
    auto* destination = reinterpret_cast<Bfloat*>(static_cast<std::uint8_t*>(args.destination) +
                                                  row * args.destination_stride_bytes);
    const std::int64_t padded_elems = (args.num_elems + 1) / 2 * 2;
    for (std::int64_t elem = 0; elem < padded_elems; ++elem) {
      const bool is_present = source != nullptr && elem < args.num_elems;
      destination[elem] = is_present ? source[elem] : Bfloat{0};
    }
  }
}

// Values as pairs of neighbouring rows: step i holds rows 2i and 2i + 1 interleaved.
template <class Isa>
void PackValuePairs(const PackRowsArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; row += 2) {
    const auto* even = static_cast<const Bfloat*>(args.rows[row]);
    const auto* odd =
        row + 1 < args.num_rows ? static_cast<const Bfloat*>(args.rows[row + 1]) : nullptr;
    auto* destination = reinterpret_cast<Bfloat*>(static_cast<std::uint8_t*>(args.destination) +
                                                  row / 2 * args.destination_stride_bytes);
    if (even != nullptr && odd != nullptr) {
      for (std::int64_t elem = 0; elem < args.num_elems; ++elem) {
        destination[2 * elem].bits = even[elem].bits;
        destination[2 * elem + 1].bits = odd[elem].bits;
      }
      continue;
    }
    for (std::int64_t elem = 0; elem < args.num_elems; ++elem) {
      destination[2 * elem] = even != nullptr ? even[elem] : Bfloat{0};
      destination[2 * elem + 1] = odd != nullptr ? odd[elem] : Bfloat{0};
    }
  }
}

// o rows = o^T * factor, rounded to nearest even.
template <class Isa, class Element>
void StoreRows(const StoreRowsArgs& args) {
  typename Isa::Vec square[Isa::kLanes];
  for (int first_row = 0; first_row < args.num_rows; first_row += Isa::kLanes) {
    for (std::int64_t elem = 0; elem < args.head_dim_v; elem += Isa::kLanes) {
      const std::int64_t left = args.head_dim_v - elem;
      const float* columns = args.o + elem * kTileLanes<Isa> + first_row;
      for (int i = 0; i < Isa::kLanes; ++i) {
        square[i] = i < left ? Isa::Load(columns + i * kTileLanes<Isa>) : Isa::Set(0.0f);
      }
      Isa::Transpose(square);
      for (int i = 0; i < Isa::kLanes && first_row + i < args.num_rows; ++i) {
        auto* destination = static_cast<Element*>(args.rows[first_row + i]) + elem;
        const auto factor = Isa::Set(args.row_factor[first_row + i]);
        StorePart<Isa>(destination, Isa::Mul(square[i], factor), left);
      }
    }
  }
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_PACK_INL_H_
