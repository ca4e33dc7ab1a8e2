// softcap * tanh(s / softcap) by a polynomial, for kernels whose time is the arithmetic of scores.
#ifndef HEED_DEVICE_SOFTCAP_SERIES_H_
#define HEED_DEVICE_SOFTCAP_SERIES_H_

#include "device/constants.h"
#include "device/prelude.h"

namespace heed::device {

inline constexpr int kSoftcapTerms = 6;
inline constexpr int kSoftcapShortTerms = 3;

// For a product x = q . k with x^2 <= limit: capped score = x * sum of c[i] * x^(2 i), in the units
// asked for. That is |score| <= softcap, where the relative error is below 1e-6.
struct SoftcapSeries {
  float limit = -1.0f;  // -1: no product is small enough
  // For all: capped score = cap - 2 cap / (1 + 2^(exponent * x)).
  float cap = 0.0f;
  float exponent = 0.0f;
  float c[kSoftcapTerms] = {};
  // The same for |score| <= softcap / 4 with fewer terms.
  float short_limit = -1.0f;
  float short_c[kSoftcapShortTerms] = {};
};

// units: what one counts of a natural-log score. Requires: softcap > 0.
HEED_DEVICE SoftcapSeries MakeSoftcapSeries(double scale, double softcap, double units) {
  // tanh(u) / u in powers of u^2, minimax of the relative error for |u| <= 1.
  constexpr double kTanh[kSoftcapTerms] = {0.999999414,   -0.333290424, 0.132814339,
                                           -0.0516056742, 0.0167431153, -0.00306706042};
  // Likewise for |u| <= 1 / 4.
  constexpr double kShortTanh[kSoftcapShortTerms] = {0.999999604, -0.333219082, 0.128416134};
  constexpr double kLowest = 1e-36, kHighest = 1e30;  // of what fp32 holds in full
  const double u = scale / softcap;
  const double limit = 1.0 / (u * u);
  SoftcapSeries series;
  series.cap = static_cast<float>(softcap * units);
  series.exponent = static_cast<float>(2.0 * kLog2E * u);
  double coefficient = scale * units;
  for (int i = 0; i < kSoftcapTerms; ++i) {
    const double c = kTanh[i] * coefficient;
    const double size = c < 0.0 ? -c : c;
    if (!(size >= kLowest && size <= kHighest)) return series;
    series.c[i] = static_cast<float>(c);
    if (i < kSoftcapShortTerms) {
      series.short_c[i] = static_cast<float>(kShortTanh[i] * coefficient);
    }
    coefficient *= u * u;
  }
  series.limit = static_cast<float>(limit);
  series.short_limit = static_cast<float>(limit / 16.0);
  return series;
}

// Whether a sum of weights tells that no score lies beyond the short series: a quarter of the cap
// is 18 log2 units or more. softcap 0 = none.
HEED_DEVICE bool SumsTellShortRange(double scale, double softcap) {
  constexpr double kLeastSoftcap = 50.0;
  return softcap >= kLeastSoftcap && MakeSoftcapSeries(scale, softcap, kLog2E).short_limit > 0.0f;
}

}  // namespace heed::device

#endif  // HEED_DEVICE_SOFTCAP_SERIES_H_
