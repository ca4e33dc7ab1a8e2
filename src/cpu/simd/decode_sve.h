// What decode needs beyond simd/sve.h: sums across lanes, vectors from int8, and the integer
// products of interleaved rows, for which SVE has byte dot products from the start.
#ifndef HEED_CPU_SIMD_DECODE_SVE_H_
#define HEED_CPU_SIMD_DECODE_SVE_H_

#include "cpu/simd/decode_arm.h"
#include "cpu/simd/sve.h"

namespace heed::cpu {
namespace {

// For svtbl: the same order of bytes in every 16.
struct ByteOrder {
  std::uint8_t bytes[4 * kSveLanes];
};
constexpr ByteOrder InEverySixteen(const std::uint8_t (&order)[16]) {
  ByteOrder all = {};
  for (int i = 0; i < 4 * kSveLanes; ++i) {
    all.bytes[i] = static_cast<std::uint8_t>(i / 16 * 16 + order[i % 16]);
  }
  return all;
}
inline constexpr ByteOrder kTransposedFours =
    InEverySixteen({0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15});
inline constexpr ByteOrder kFirstBytes =
    InEverySixteen({0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12});

struct DecodeSve : DecodeArmInts<Sve> {
  using Sve::LoadUnaligned;

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const std::int8_t* p) {
    return svcvt_f32_s32_x(svptrue_b32(), svld1sb_s32(svptrue_b32(), p));
  }
  HEED_ALWAYS_INLINE static Vec BroadcastHalf(const void* half) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, half, sizeof(bits));
    return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(svdup_n_u32(bits)));
  }
  // fp8-e4m3 with the exponent of a half: 2^-8 of the value. The one magnitude that is NaN is the
  // one from which another 0x80 reaches the exponent's upper bit.
  HEED_ALWAYS_INLINE static Vec LoadFp8AsHalves(const std::uint8_t* p) {
    const Bits bytes = svld1ub_u32(svptrue_b32(), p);
    const Bits halves = (bytes << 7 & 0x3F80u) | (bytes << 8 & 0x8000u);
    const Bits nan = (halves + 0x80u) & 0x4000u;
    return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(halves | nan));
  }
  // Signed nibbles, the low one of a byte first.
  HEED_ALWAYS_INLINE static Vec LoadNibblePairs(const std::uint8_t* p) {
    const svbool_t lanes = svwhilelt_b8_s32(0, kLanes / 2);
    const svuint8_t bytes = svld1_u8(lanes, p);
    const svuint16_t twice = svunpklo_u16(svzip1_u8(bytes, bytes));
    const Bits wide = svunpklo_u32(twice);
    return ToFloat(__builtin_bit_cast(Ints, wide << NibbleShifts()) >> 28);
  }
  // Nibbles of kLanes bytes, which stand for -8 to 7; shift = 4 takes the upper ones.
  HEED_ALWAYS_INLINE static Vec LoadOffsetNibbles(const std::uint8_t* p, int shift) {
    const Bits bytes = svld1ub_u32(svptrue_b32(), p);
    const Bits nibbles = bytes >> static_cast<std::uint32_t>(shift) & 0xFu;
    return ToFloat(__builtin_bit_cast(Ints, nibbles) - 8);
  }
  // Lane n of the result is the sum of the lanes of x[n].
  HEED_ALWAYS_INLINE static Vec SumEach(const Vec (&x)[kLanes]) {
    return SumOf<kLanes>([&](auto n) HEED_ALWAYS_INLINE { return x[n.value]; });
  }
  HEED_ALWAYS_INLINE static float HorizontalSum(Vec x) { return svaddv_f32(svptrue_b32(), x); }
  HEED_ALWAYS_INLINE static float HorizontalMax(Vec x) { return svmaxnmv_f32(svptrue_b32(), x); }

  // Rows, and units beside them, whose sums stay in registers.
  static constexpr int kWordScoreRows = 4;
  static constexpr int WordScoreUnits(int rows) { return rows <= 2 ? 4 : 2; }
  static constexpr int kWordValueRows = 4;
  static constexpr int kOnePassRows = kSveLanes == 16 ? 2 : 4;

  HEED_ALWAYS_INLINE static Ints DotBytes(Ints a, Ints b, Ints sum) {
    return svdot_s32(sum, svreinterpret_s8_s32(a), svreinterpret_s8_s32(b));
  }
  HEED_ALWAYS_INLINE static Ints ToNearestInt(Vec x) {
    return svcvt_s32_f32_x(svptrue_b32(), svrintn_f32_x(svptrue_b32(), x));
  }
  // The 4 x 4 bytes of every 16, transposed.
  HEED_ALWAYS_INLINE static Ints TransposeFours(Ints x) { return Permute(x, kTransposedFours); }
  // The first bytes of every four lanes, in each of the four.
  HEED_ALWAYS_INLINE static Ints SpreadFirstBytes(Ints x) { return Permute(x, kFirstBytes); }
  // kLanes / 4 vectors to one: lanes 4 n to 4 n + 3 are the sum of the fours of x[n].
  static constexpr int kFours = kLanes / 4;
  template <int kCount>
  HEED_ALWAYS_INLINE static Ints SumFours(const Ints (&x)[kCount]) {
    if constexpr (kCount == 2) {
      return AddFours(x[0], x[1]);
    } else {
      return AddFours(AddFours(x[0], x[1]), AddFours(x[2], x[3]));
    }
  }
  // The same by halves, with 16 lanes.
  HEED_ALWAYS_INLINE static Ints SumHalf(const Ints (&x)[2]) { return AddFours(x[0], x[1]); }
  HEED_ALWAYS_INLINE static Ints SumHalves(Ints low, Ints high) { return AddFours(low, high); }

 private:
  HEED_ALWAYS_INLINE static Bits NibbleShifts() {
    Bits shifts;
    for (int i = 0; i < kLanes; ++i) shifts[i] = i % 2 == 0 ? 28 : 24;
    return shifts;
  }
  // Sums of neighbours, those of a first.
  HEED_ALWAYS_INLINE static Vec AddPairs(Vec a, Vec b) {
    return Add(svuzp1_f32(a, b), svuzp2_f32(a, b));
  }
  // Of kCount vectors, each in kLanes / kCount neighbouring lanes.
  template <int kCount, class Get>
  HEED_ALWAYS_INLINE static Vec SumOf(Get get) {
    if constexpr (kCount == 1) {
      return get(Constant<0>{});
    } else {
      constexpr int kHalf = kCount / 2;
      return AddPairs(SumOf<kHalf>(get), SumOf<kHalf>([&](auto n) HEED_ALWAYS_INLINE {
                        return get(Constant<n.value + kHalf>{});
                      }));
    }
  }
  // The same for groups of four lanes.
  HEED_ALWAYS_INLINE static Ints AddFours(Ints a, Ints b) {
    using Indices = Ints;
    Indices even, odd;
    for (int i = 0; i < kLanes; ++i) {
      even[i] = i / 4 * 8 + i % 4;
      odd[i] = even[i] + 4;
    }
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
  }
  HEED_ALWAYS_INLINE static Ints Permute(Ints x, const ByteOrder& order) {
    const svuint8_t indices = svld1_u8(svptrue_b8(), order.bytes);
    return svreinterpret_s32_u8(svtbl_u8(svreinterpret_u8_s32(x), indices));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_SVE_H_
