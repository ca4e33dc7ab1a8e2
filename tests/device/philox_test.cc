#include "device/philox.h"

#include <gtest/gtest.h>

namespace heed::device {
namespace {

struct KnownAnswer {
  PhiloxWords counter;
  PhiloxKey key;
  PhiloxWords expected;
};

// Published in the known-answer file of the Random123 library (philox4x32, 10 rounds).
constexpr KnownAnswer kKnownAnswers[] = {
    {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
    {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
     {0xffffffff, 0xffffffff},
     {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
    {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
     {0xa4093822, 0x299f31d0},
     {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
};

TEST(Philox, GivesThePublishedAnswers) {
  for (const KnownAnswer& known : kKnownAnswers) {
    const PhiloxWords actual = Philox4x32(known.counter, known.key);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], known.expected.word[i]) << "word " << i;
  }
}

static_assert(Philox4x32({}, {}).word[0] == 0x6627e8d5);

// The form a shading language without 64-bit integers uses.
u32 MulHighBy16BitPieces(u32 a, u32 b) {
  const u32 low = (a & 0xffff) * (b & 0xffff);
  const u32 cross = (a >> 16) * (b & 0xffff) + (low >> 16);
  const u32 cross_low = (a & 0xffff) * (b >> 16) + (cross & 0xffff);
  return (a >> 16) * (b >> 16) + (cross >> 16) + (cross_low >> 16);
}

TEST(Philox, MulHighAgreesWith16BitPieces) {
  const u32 corners[] = {0, 1, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (u32 a : corners) {
    for (u32 b : corners) EXPECT_EQ(MulHigh(a, b), MulHighBy16BitPieces(a, b)) << a << " " << b;
  }
  u32 a = 1;
  u32 b = 2;
  for (int step = 0; step < 100000; ++step) {
    a = a * 1664525u + 1013904223u;
    b = b * 22695477u + 1u;
    ASSERT_EQ(MulHigh(a, b), MulHighBy16BitPieces(a, b)) << a << " " << b;
  }
}

}  // namespace
}  // namespace heed::device
