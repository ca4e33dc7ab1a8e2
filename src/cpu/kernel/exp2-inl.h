// 2^t and tanh, one value per lane.
#ifndef HEED_CPU_KERNEL_EXP2_INL_H_
#define HEED_CPU_KERNEL_EXP2_INL_H_

#include "cpu/kernel/unroll-inl.h"
#include "device/constants.h"

namespace heed::cpu {

// Minimax polynomials for 2^r (Remez, relative error, scaled so that 2^0 = 1), on [-1/2, 1/2] and
// on [0, 1]: within 1.7e-7 of 2^r, of which all but +-0.9e-7 is a common factor that softmax
// cancels.
inline constexpr float kExp2OfCentred[] = {1.0f,          0.693146944f,   0.240221187f,
                                           0.0555071272f, 0.00967554096f, 0.00132764713f};
inline constexpr float kExp2OfPositive[] = {1.0f,          0.693153143f,   0.240153641f,
                                            0.0558263212f, 0.00898934063f, 0.00187757681f};

// Of the fractions that Isa::SplitExponent leaves.
template <class Isa>
inline constexpr const float* kExp2Coefficients =
    Isa::kFractionsArePositive ? kExp2OfPositive : kExp2OfCentred;

// Minimax polynomials for 2^r of degree 2 and 3, on [-1/2, 1/2] and on [0, 1]: relative error at
// most 1.73e-3 and 7.5e-5.
inline constexpr float kQuadraticExp2OfCentred[] = {1.0004431f, 0.703448f, 0.23842894f};
inline constexpr float kQuadraticExp2OfPositive[] = {1.0017247f, 0.6576363f, 0.33718944f};
inline constexpr float kCubicExp2OfCentred[] = {0.99992806f, 0.69326097f, 0.24261113f, 0.05517167f};
inline constexpr float kCubicExp2OfPositive[] = {0.9999252f, 0.69583356f, 0.22606716f, 0.07802452f};

template <class Isa, int kDegree>
constexpr const float* CoarseExp2Coefficients() {
  constexpr bool kIsPositive = Isa::kFractionsArePositive;
  if constexpr (kDegree == 2) {
    return kIsPositive ? kQuadraticExp2OfPositive : kQuadraticExp2OfCentred;
  } else {
    static_assert(kDegree == 3);
    return kIsPositive ? kCubicExp2OfPositive : kCubicExp2OfCentred;
  }
}

// t[i] = 2^t[i] by the polynomial with these kDegree + 1 coefficients, the vectors in step: one
// alone is a chain of dependent instructions some 37 cycles long, and the schedulers of current
// cores cannot look far enough ahead to fill it with other work.
template <class Isa, int kDegree, int kCount>
HEED_ALWAYS_INLINE inline void PolynomialExp2InStep(const float* coefficients,
                                                    typename Isa::Vec (&t)[kCount]) {
  using Vec = typename Isa::Vec;
  typename Isa::Split split[kCount];
  Unroll<kCount>([&](auto i) HEED_ALWAYS_INLINE {
    split[i.value] = Isa::SplitExponent(t[i.value]);
    t[i.value] = Isa::Set(coefficients[kDegree]);
  });
  Unroll<kDegree>([&](auto term) HEED_ALWAYS_INLINE {
    const Vec coefficient = Isa::Set(coefficients[kDegree - 1 - term.value]);
    Unroll<kCount>([&](auto i) HEED_ALWAYS_INLINE {
      t[i.value] = Isa::Fma(t[i.value], split[i.value].fraction, coefficient);
    });
  });
  Unroll<kCount>([&](auto i) HEED_ALWAYS_INLINE {
    t[i.value] = Isa::ScaleByExponent(t[i.value], split[i.value].exponent);
  });
}

// As Exp2InStep, but with a relative error.
template <class Isa, int kDegree, int kCount>
HEED_ALWAYS_INLINE inline void CoarseExp2InStep(typename Isa::Vec (&t)[kCount]) {
  constexpr const float* kCoefficients = CoarseExp2Coefficients<Isa, kDegree>();
  PolynomialExp2InStep<Isa, kDegree>(kCoefficients, t);
}

// t[i] = 2^t[i] for t <= 0 and the rounding error above it. Exactly 1 at 0, exactly 0 far below
// the smallest exponent (-inf included); NaN stays NaN.
template <class Isa, int kCount>
HEED_ALWAYS_INLINE inline void Exp2InStep(typename Isa::Vec (&t)[kCount]) {
  PolynomialExp2InStep<Isa, 5>(kExp2Coefficients<Isa>, t);
}

template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Vec Exp2(typename Isa::Vec x) {
  typename Isa::Vec t[1] = {x};
  Exp2InStep<Isa>(t);
  return t[0];
}

// tanh(y) / y = 1 + y^2 P(y^2) on |y| <= 0.625, relative error below 5e-9 before rounding.
inline constexpr float kTanhSmallBound = 0.625f;
inline constexpr float kTanhCoefficients[] = {-0.333332819f, 0.133314422f, -0.0537397151f,
                                              0.0206390874f, -0.00570498712f};

// Small arguments by polynomial, where 1 - 2 / (1 + e^2y) would cancel.
template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Vec Tanh(typename Isa::Vec y) {
  using Vec = typename Isa::Vec;
  constexpr float kMinusTwoLog2E = static_cast<float>(-2.0 * device::kLog2E);
  const Vec one = Isa::Set(1.0f);
  const Vec magnitude = Isa::Abs(y);
  const Vec square = Isa::Mul(y, y);
  Vec poly = Isa::Set(kTanhCoefficients[4]);
  Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
    poly = Isa::Fma(poly, square, Isa::Set(kTanhCoefficients[3 - i.value]));
  });
  const Vec small = Isa::Fma(Isa::Mul(poly, square), y, y);
  const Vec decay = Exp2<Isa>(Isa::Mul(magnitude, Isa::Set(kMinusTwoLog2E)));
  const Vec large = Isa::CopySign(Isa::Div(Isa::Sub(one, decay), Isa::Add(one, decay)), y);
  return Isa::Select(Isa::Less(Isa::Set(kTanhSmallBound), magnitude), large, small);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_EXP2_INL_H_
