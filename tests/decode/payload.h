// What the payload of a quantised row stands for, before its scale: worked out once more.
#ifndef HEED_TESTS_DECODE_PAYLOAD_H_
#define HEED_TESTS_DECODE_PAYLOAD_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "heed/heed.h"

namespace heed::test {

// fp8-e4m3.
inline double Fp8Number(int byte) {
  const int exponent = byte >> 3 & 0xF, mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

// Of element d, in rows.
inline double PayloadNumber(heed_kv_format_t format, const std::uint8_t* row, std::int64_t d) {
  switch (format) {
    case HEED_KV_INT8:
      return static_cast<std::int8_t>(row[d]);
    case HEED_KV_FP8_E4M3:
      return Fp8Number(row[d]);
    case HEED_KV_INT4: {
      const int nibble = d % 2 == 0 ? row[d / 2] & 0xF : row[d / 2] >> 4;
      return nibble < 8 ? nibble : nibble - 16;
    }
    case HEED_KV_Q8_0:
      return static_cast<std::int8_t>(row[d / 32 * 34 + 2 + d % 32]);
    default: {
      const std::uint8_t pair = row[d / 32 * 18 + 2 + d % 16];
      return (d % 32 < 16 ? pair & 0xF : pair >> 4) - 8;
    }
  }
}

}  // namespace heed::test

#endif  // HEED_TESTS_DECODE_PAYLOAD_H_
