// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). A pure function of counter and key in 32-bit arithmetic; the products need
// the high word of 32 x 32 bits, which a language without 64-bit integers builds from 16-bit
// pieces.
#ifndef HEED_DEVICE_PHILOX_H_
#define HEED_DEVICE_PHILOX_H_

#include "device/prelude.h"

namespace heed::device {

// A counter before the rounds, four random words after them.
struct PhiloxWords {
  u32 word[4] = {0, 0, 0, 0};
};

struct PhiloxKey {
  u32 low = 0;
  u32 high = 0;
};

inline constexpr u32 kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr u32 kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr u32 kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio - 1, in units of 2^-32
inline constexpr u32 kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

HEED_DEVICE u32 MulHigh(u32 a, u32 b) {
  return static_cast<u32>((static_cast<u64>(a) * static_cast<u64>(b)) >> 32);
}

HEED_DEVICE PhiloxWords PhiloxRound(const PhiloxWords& in, PhiloxKey key) {
  return PhiloxWords{{MulHigh(kPhiloxMultiplier1, in.word[2]) ^ in.word[1] ^ key.low,
                      kPhiloxMultiplier1 * in.word[2],
                      MulHigh(kPhiloxMultiplier0, in.word[0]) ^ in.word[3] ^ key.high,
                      kPhiloxMultiplier0 * in.word[0]}};
}

HEED_DEVICE PhiloxWords Philox4x32(PhiloxWords counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = PhiloxRound(counter, key);
    key = PhiloxKey{key.low + kPhiloxWeyl0, key.high + kPhiloxWeyl1};
  }
  return counter;
}

}  // namespace heed::device

#endif  // HEED_DEVICE_PHILOX_H_
