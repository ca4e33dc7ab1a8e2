// Payload of quantised caches as fp16 fragments. The products run over d in any order as long as
// both operands agree, so a lane takes what one load of `span` 32-bit words gives it:
//
//   Of keys, lane t of a quad has words 4 span i + span t .. + span - 1 of a row; a word of int8 or
//     fp8 is its share of a block of 16 elements, in order, a word of int4 that of two blocks, in
//     pairs (i, i + 4).
//   Of values, lane g of eight has words 8 span i + span g .. + span - 1; element j of each is a
//     column of another tile of 8.
//
// Each is exact in fp16 up to kUnit, which joins the scale. As keys of columns.cuh int8 and int4
// are cheaper: x + kKeyOffset as a subnormal number, 2^-24 of it, which takes no arithmetic; the
// products begin with what the offset adds, and so end with what x alone gives.
#ifndef HEED_CUDA_KERNELS_DECODE_PAYLOAD_CUH_
#define HEED_CUDA_KERNELS_DECODE_PAYLOAD_CUH_

#include "cuda/kernels/decode/config.cuh"
#include "cuda/kernels/ptx/half.cuh"

namespace heed::cuda {

template <CacheFormat kFormat>
struct Payload;

template <>
struct Payload<CacheFormat::kInt8> {
  static constexpr float kUnit = 1.0f;
  static constexpr int kElemsPerWord = 4;
  static constexpr int kPairs = 2;  // of elements in a word
  static constexpr float kKeyUnit = 0x1p24f;
  static constexpr float kKeyOffset = 128.0f;
  static constexpr float kOddPairs = 1.0f;  // pairs 1, 3 .. of keys are these times as large

  static __device__ __forceinline__ void UnpackKeys(u32 (&pairs)[2], u32 word) {
    word ^= 0x80808080u;
    pairs[0] = __byte_perm(word, 0u, 0x4140);
    pairs[1] = __byte_perm(word, 0u, 0x4342);
  }
  // Pairs (0, 1) and (2, 3) of a word.
  static __device__ __forceinline__ void Unpack(u32 (&pairs)[2], u32 word) {
    word ^= 0x80808080u;  // 0 .. 255
    pairs[0] = Shifted(__byte_perm(word, 0x64646464u, 0x4140));
    pairs[1] = Shifted(__byte_perm(word, 0x64646464u, 0x4342));
  }
  // Element j of both words, side by side, for every j.
  static __device__ __forceinline__ void UnpackTwo(u32 (&pairs)[4], u32 low, u32 high) {
    const u32 x01 = __byte_perm(low, high, 0x5140) ^ 0x80808080u;
    const u32 x23 = __byte_perm(low, high, 0x7362) ^ 0x80808080u;
    pairs[0] = Shifted(__byte_perm(x01, 0x64646464u, 0x4140));
    pairs[1] = Shifted(__byte_perm(x01, 0x64646464u, 0x4342));
    pairs[2] = Shifted(__byte_perm(x23, 0x64646464u, 0x4140));
    pairs[3] = Shifted(__byte_perm(x23, 0x64646464u, 0x4342));
  }

 private:
  // 1024 + 128 + x to x.
  static __device__ __forceinline__ u32 Shifted(u32 pair) {
    return ptx::SubF16x2(pair, 0x64806480u);
  }
};

template <>
struct Payload<CacheFormat::kFp8E4m3> {
#if __CUDA_ARCH__ >= 890
  static constexpr float kUnit = 1.0f;
#else
  static constexpr float kUnit = 256.0f;
#endif
  static constexpr int kElemsPerWord = 4;
  static constexpr int kPairs = 2;
  static constexpr float kKeyUnit = kUnit;
  static constexpr float kKeyOffset = 0.0f;
  static constexpr float kOddPairs = 1.0f;

  static __device__ __forceinline__ void UnpackKeys(u32 (&pairs)[2], u32 word) {
    Unpack(pairs, word);
  }
  static __device__ __forceinline__ void Unpack(u32 (&pairs)[2], u32 word) {
    pairs[0] = WidenLow(word);
    pairs[1] = WidenHigh(word);
  }
  static __device__ __forceinline__ void UnpackTwo(u32 (&pairs)[4], u32 low, u32 high) {
    const u32 x01 = __byte_perm(low, high, 0x5140);
    const u32 x23 = __byte_perm(low, high, 0x7362);
    pairs[0] = WidenLow(x01);
    pairs[1] = WidenHigh(x01);
    pairs[2] = WidenLow(x23);
    pairs[3] = WidenHigh(x23);
  }

 private:
#if __CUDA_ARCH__ >= 890
  // Bytes 0 and 1, bytes 2 and 3.
  static __device__ __forceinline__ u32 WidenLow(u32 word) { return ptx::F16x2OfE4m3x2(word); }
  static __device__ __forceinline__ u32 WidenHigh(u32 word) { return ptx::F16x2OfHighE4m3x2(word); }
#else
  static __device__ __forceinline__ u32 WidenLow(u32 word) {
    return Widened(__byte_perm(word, 0u, 0x1404));
  }
  static __device__ __forceinline__ u32 WidenHigh(u32 word) {
    return Widened(__byte_perm(word, 0u, 0x3424));
  }
  // The byte in the upper half of each fp16 to the number over 2^8: the exponents' biases differ by
  // 8, and e4m3 has a bit less of exponent. NaN, all ones, stays NaN.
  static __device__ __forceinline__ u32 Widened(u32 pair) {
    const u32 bits = (pair & 0x80008000u) | ((pair & 0x7F007F00u) >> 1);
    // All ones is a magnitude of 0x3F80; adding 0x0080 carries into bit 14 for it alone.
    const u32 nan = ((bits & 0x3F803F80u) + 0x00800080u) & 0x40004000u;
    return bits | nan | nan >> 1 | nan >> 2 | nan >> 3 | nan >> 4 | nan >> 5;
  }
#endif
};

template <>
struct Payload<CacheFormat::kInt4> {
  static constexpr float kUnit = 1.0f;
  static constexpr int kElemsPerWord = 8;
  static constexpr int kPairs = 4;
  static constexpr float kKeyUnit = 0x1p24f;
  static constexpr float kKeyOffset = 8.0f;
  static constexpr float kOddPairs = 16.0f;  // these stay in the upper half of a byte

  static __device__ __forceinline__ void UnpackKeys(u32 (&pairs)[4], u32 word) {
#pragma unroll
    for (int byte = 0; byte < 2; ++byte) {
      const u32 bits = word >> (8 * byte);
      pairs[2 * byte] = ptx::AndXor(bits, 0x000F000Fu, 0x00080008u);
      pairs[2 * byte + 1] = ptx::AndXor(bits, 0x00F000F0u, 0x00800080u);
    }
  }
  // Pairs (i, i + 4) of a word.
  static __device__ __forceinline__ void Unpack(u32 (&pairs)[4], u32 word) { Widen(pairs, word); }
  static __device__ __forceinline__ void UnpackTwo(u32 (&pairs)[8], u32 low, u32 high) {
    u32 half[4];
    Widen(half, __byte_perm(low, high, 0x5410));
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = half[i];
    Widen(half, __byte_perm(low, high, 0x7632));
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[4 + i] = half[i];
  }

 private:
  // Nibbles i of both halves. Flipping their sign bits leaves u = x + 8, below an exponent that
  // makes them 1024 + u, or 1024 + 16 u where they stay in the upper half of a byte.
  static __device__ __forceinline__ void Widen(u32 (&pairs)[4], u32 word) {
#pragma unroll
    for (int byte = 0; byte < 2; ++byte) {
      const u32 bits = word >> (8 * byte);
      pairs[2 * byte] = ptx::SubF16x2(ptx::AndXor(bits, 0x000F000Fu, 0x64086408u), 0x64086408u);
      // (1024 + 16 u) / 16 - 72
      pairs[2 * byte + 1] =
          ptx::FmaF16x2(ptx::AndXor(bits, 0x00F000F0u, 0x64806480u), 0x2C002C00u, 0xD480D480u);
    }
  }
};

// Element of a row that lane t of a quad has at place i (0..3: a0 or a2, low or high) of block
// `block` of 16.
template <class C>
__device__ __forceinline__ constexpr int QueryElement(int block, int t, int part, int i) {
  if (!C::kIsQuantised) return 16 * block + 8 * part + 2 * t + i;
  constexpr int kSpan = C::kKeySpanWords;
  const int at = C::kFormat == CacheFormat::kInt4 ? block / 2 : block;  // of the lane's words
  const int word = at / kSpan * 4 * kSpan + t * kSpan + at % kSpan;
  return C::kFormat == CacheFormat::kInt4 ? 8 * word + 2 * (block % 2) + part + 4 * i
                                          : 4 * word + 2 * part + i;
}

// Where column d of O is in the order of the accumulators, 8 tile + column.
template <class C>
__device__ __forceinline__ constexpr int PositionOfColumn(int d) {
  if (!C::kIsQuantised) return d;
  constexpr int kElems = C::kFormat == CacheFormat::kInt4 ? 8 : 4;
  constexpr int kSpan = C::kValueSpanWords;
  const int word = d / kElems;
  const int tile = (word / (8 * kSpan) * kSpan + word % kSpan) * kElems + d % kElems;
  return 8 * tile + word / kSpan % 8;
}

// The inverse.
template <class C>
__device__ __forceinline__ constexpr int ColumnOfPosition(int position) {
  if (!C::kIsQuantised) return position;
  constexpr int kElems = C::kFormat == CacheFormat::kInt4 ? 8 : 4;
  constexpr int kSpan = C::kValueSpanWords;
  const int tile = position / 8;
  const int word = tile / kElems / kSpan * 8 * kSpan + position % 8 * kSpan + tile / kElems % kSpan;
  return word * kElems + tile % kElems;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_PAYLOAD_CUH_
