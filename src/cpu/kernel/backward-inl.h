// The kernels of the backward pass: four shapes of product on one register tile, and the step from
// products to P and dS.
#ifndef HEED_CPU_KERNEL_BACKWARD_INL_H_
#define HEED_CPU_KERNEL_BACKWARD_INL_H_

#include "cpu/backward_kernel.h"
#include "cpu/kernel/pack-inl.h"
#include "cpu/kernel/scores-inl.h"

namespace heed::cpu {

template <class Isa, class Element>
void LoadColumns(const LoadRowsArgs& args) {
  typename Isa::Vec square[Isa::kLanes];
  for (int first = 0; first < kTileLanes<Isa>; first += Isa::kLanes) {
    for (std::int64_t elem = 0; elem < args.num_elems; elem += Isa::kLanes) {
      for (int i = 0; i < Isa::kLanes; ++i) {
        const auto* row =
            first + i < args.num_rows ? static_cast<const Element*>(args.rows[first + i]) : nullptr;
        square[i] =
            row != nullptr ? LoadPart<Isa>(row + elem, args.num_elems - elem) : Isa::Set(0.0f);
      }
      Isa::Transpose(square);
      for (int i = 0; i < Isa::kLanes && elem + i < args.num_elems; ++i) {
        Isa::Store(args.destination + (elem + i) * kTileLanes<Isa> + first, square[i]);
      }
    }
  }
}

template <class Isa, class Element>
void LoadPanels(const LoadRowsArgs& args) {
  float* panel = args.destination;
  for (std::int64_t first = 0; first < args.num_elems; first += kTileLanes<Isa>) {
    for (std::int64_t r = 0; r < args.capacity_rows; ++r) {
      const auto* row = r < args.num_rows ? static_cast<const Element*>(args.rows[r]) : nullptr;
      for (int lane = 0; lane < kTileLanes<Isa>; lane += Isa::kLanes) {
        const std::int64_t left = args.num_elems - first - lane;
        const bool is_present = row != nullptr && left > 0;
        Isa::Store(panel + r * kTileLanes<Isa> + lane,
                   is_present ? LoadPart<Isa>(row + first + lane, left) : Isa::Set(0.0f));
      }
    }
    panel += args.capacity_rows * kTileLanes<Isa>;
  }
}

template <class Isa, class Element>
void LoadRows(const LoadRowsArgs& args) {
  PackRowsAsFp32<Isa, Element>(
      {.rows = args.rows,
       .num_rows = args.num_rows,
       .num_elems = args.num_elems,
       .destination = args.destination,
       .destination_stride_bytes = args.num_elems * std::int64_t{sizeof(float)}});
}

// Of a left operand, which products take as bytes.
HEED_ALWAYS_INLINE inline const std::uint8_t* AsBytes(const float* p) {
  return reinterpret_cast<const std::uint8_t*>(p);
}

template <class Isa>
void TimesColumns(const TimesColumnsArgs& args) {
  using Dot = Fp32Dot<Isa>;
  constexpr int kVectors = Isa::kTileVectors;
  ForRowGroups<kTileHeight<Isa, kVectors>>(
      0, args.num_rows, [&](auto rows, std::int64_t first) HEED_ALWAYS_INLINE {
        const ContiguousSteps left{AsBytes(args.left + first * args.stride_elems),
                                   args.stride_elems * kGroupBytes};
        const auto tile =
            Multiply<Dot, decltype(rows)::value, kVectors>(left, args.columns, args.num_elems);
        float* out = args.out + first * kTileLanes<Isa>;
        Unroll<decltype(rows)::value>([&](auto r) HEED_ALWAYS_INLINE {
          Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
            Isa::Store(out + r.value * kTileLanes<Isa> + v.value * Isa::kLanes,
                       tile.at[r.value][v.value]);
          });
        });
      });
}

// A block's sum is taken on its own and then added: rounding errors grow with the block.
template <class Isa, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void AddTile(const RegisterTile<Isa, kRows, kVectors>& tile, float* out) {
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      float* lanes = out + r.value * kTileLanes<Isa> + v.value * Isa::kLanes;
      Isa::Store(lanes, Isa::Add(Isa::Load(lanes), tile.at[r.value][v.value]));
    });
  });
}

template <class Isa>
void AddColumns(const AddColumnsArgs& args) {
  using Dot = Fp32Dot<Isa>;
  constexpr int kVectors = Isa::kTileVectors;
  ForRowGroups<kTileHeight<Isa, kVectors>>(
      0, args.num_elems, [&](auto rows, std::int64_t first) HEED_ALWAYS_INLINE {
        const ContiguousRows left{AsBytes(args.keys + first), args.stride_elems * kGroupBytes};
        AddTile<Isa>(
            Multiply<Dot, decltype(rows)::value, kVectors>(left, args.right, args.num_keys),
            args.columns_out + first * kTileLanes<Isa>);
      });
}

template <class Isa, int kVectors>
void AddPanel(const AddPanelsArgs& args, const float* panel, float* out) {
  using Dot = Fp32Dot<Isa>;
  ForRowGroups<kTileHeight<Isa, kVectors>>(
      0, args.num_keys, [&](auto rows, std::int64_t first) HEED_ALWAYS_INLINE {
        const ContiguousSteps left{AsBytes(args.left + first * kTileLanes<Isa>),
                                   kTileLanes<Isa> * kGroupBytes};
        AddTile<Isa>(Multiply<Dot, decltype(rows)::value, kVectors>(left, panel, args.num_rows),
                     out + first * kTileLanes<Isa>);
      });
}

template <class Isa>
void AddPanels(const AddPanelsArgs& args) {
  const float* panel = args.panels;
  float* out = args.panels_out;
  for (std::int64_t first = 0; first < args.num_elems; first += kTileLanes<Isa>) {
    const std::int64_t left = args.num_elems - first;
    if (left > 2 * Isa::kLanes) {
      AddPanel<Isa, 3>(args, panel, out);
    } else if (left > Isa::kLanes) {
      AddPanel<Isa, 2>(args, panel, out);
    } else {
      AddPanel<Isa, 1>(args, panel, out);
    }
    panel += kTileLanes<Isa> * kTileLanes<Isa>;
    out += kBlockKeys * kTileLanes<Isa>;
  }
}

// The score of q . k, and the softcap's slope where there is one. The scale of the gradient comes
// after the sums, which then lose no small terms.
template <class Isa>
HEED_ALWAYS_INLINE inline void BendScore(const GradientArgs& args, typename Isa::Vec* score,
                                         typename Isa::Vec* slope) {
  *score = Isa::Mul(*score, Isa::Set(args.scale));
  if (args.softcap > 0.0f) {
    const auto cap = Isa::Set(args.softcap);
    const auto bent = Tanh<Isa>(Isa::Div(*score, cap));
    *score = Isa::Mul(cap, bent);
    const auto one = Isa::Set(1.0f);
    *slope = Isa::Mul(Isa::Sub(one, bent), Isa::Add(one, bent));
  }
}

// Hidden elements become 0 by select, so that no NaN of theirs gets through.
template <class Isa>
void Gradients(const GradientArgs& args) {
  const auto zero = Isa::Set(0.0f);
  const auto log2e = Isa::Set(static_cast<float>(device::kLog2E));
  for (std::int64_t key = 0; key < args.num_keys; ++key) {
    const auto position = Isa::Set(static_cast<float>(key));
    bool is_live = false;
    for (int lane = 0; lane < kTileLanes<Isa>; lane += Isa::kLanes) {
      const std::int64_t at = key * kTileLanes<Isa> + lane;
      auto sees = Isa::And(Isa::LessEqual(Isa::Load(args.begin + lane), position),
                           Isa::Less(position, Isa::Load(args.end + lane)));
      auto score = Isa::Load(args.products + at);
      auto slope = zero;
      BendScore<Isa>(args, &score, &slope);
      if (args.additive != nullptr) {
        const auto additive = Isa::Load(args.additive + at);
        sees = Isa::And(sees, Isa::Less(Isa::Select(Isa::Equal(additive, Isa::Set(kMaskedOut)),
                                                    Isa::Set(1.0f), zero),
                                        Isa::Set(0.5f)));
        score = Isa::Add(score, additive);
      }
      auto p = Exp2<Isa>(Isa::Mul(Isa::Sub(score, Isa::Load(args.lse + lane)), log2e));
      p = Isa::Select(sees, p, zero);
      is_live |= !Isa::All(Isa::Equal(Isa::Select(sees, Isa::Set(1.0f), zero), zero));
      auto d_p = Isa::Load(args.d_products + at);
      auto kept = p;
      if (args.keep != nullptr) {
        const auto factor = Isa::Mul(Isa::Load(args.keep + at), Isa::Set(args.keep_scale));
        d_p = Isa::Mul(d_p, factor);
        kept = Isa::Mul(p, factor);
      }
      auto d_score = Isa::Mul(p, Isa::Sub(d_p, Isa::Load(args.delta + lane)));
      d_score = Isa::Select(sees, d_score, zero);
      Isa::Store(args.products + at, kept);
      if (args.d_scores != nullptr) Isa::Store(args.d_scores + at, d_score);
      if (args.softcap > 0.0f) d_score = Isa::Select(sees, Isa::Mul(d_score, slope), zero);
      Isa::Store(args.d_products + at, d_score);
    }
    args.is_live[key] = is_live ? 1 : 0;
  }
}

template <class Isa, class Element>
constexpr BackwardKernel MakeBackwardKernel() {
  static_assert(Isa::kTileVectors == 3 && kTileLanes<Isa> <= kMaxTileRows);
  return {.tile_rows = kTileLanes<Isa>,
          .load_columns = LoadColumns<Isa, Element>,
          .load_panels = LoadPanels<Isa, Element>,
          .load_rows = LoadRows<Isa, Element>,
          .times_columns = TimesColumns<Isa>,
          .gradients = Gradients<Isa>,
          .add_columns = AddColumns<Isa>,
          .add_panels = AddPanels<Isa>};
}

template <class Isa>
constexpr BackwardKernelSet MakeBackwardKernelSet() {
  return {MakeBackwardKernel<Isa, float>(), MakeBackwardKernel<Isa, Half>(),
          MakeBackwardKernel<Isa, Bfloat>()};
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_BACKWARD_INL_H_
