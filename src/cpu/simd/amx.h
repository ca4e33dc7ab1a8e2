// AMX-TILE and AMX-BF16 beside AVX-512. The instructions are written as assembly: the intrinsics of
// g++ take literal register numbers only and do not order themselves with other memory accesses.
#ifndef HEED_CPU_SIMD_AMX_H_
#define HEED_CPU_SIMD_AMX_H_

#include <immintrin.h>

#include "cpu/kernel/matrix_multiply-inl.h"
#include "cpu/simd/avx512.h"

namespace heed::cpu {
namespace {

struct Amx {
  using Isa = Avx512Bf16;

  // What ldtilecfg reads.
  struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);

  static void Start() {
    Config config;
    for (int i = 0; i < kMatrixRegisters; ++i) {
      config.row_bytes[i] = kMatrixRowBytes;
      config.rows[i] = kMatrixRows;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  static void Stop() { asm volatile("tilerelease"); }

  template <int kRegister>
  HEED_ALWAYS_INLINE static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
  }
  template <int kRegister>
  HEED_ALWAYS_INLINE static void Load(const void* rows, std::int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kRegister)
                 : "memory");
  }
  template <int kRegister>
  HEED_ALWAYS_INLINE static void Store(void* rows, std::int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kRegister)
                 : "memory");
  }
  template <int kSum, int kLeft, int kRight>
  HEED_ALWAYS_INLINE static void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
  }

  // 32 elements, those outside [begin, end) as zeros; only elements inside are read.
  HEED_ALWAYS_INLINE static void CopyElements(const void* from, std::int64_t begin,
                                              std::int64_t end, void* to) {
    const __mmask32 inside = BelowMask(end) & ~BelowMask(begin);
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(inside, from));
  }

  static constexpr int kTransposedColumns = 8;

  // to[column][row] = rows[row][column] for 8 columns of 32 rows that lie kMatrixRowBytes apart. A
  // vector gathers the columns of rows i, i + 8, i + 16 and i + 24, one in each quarter; three
  // rounds of unpacking then transpose the 8 x 8 squares of all quarters at once.
  HEED_ALWAYS_INLINE static void TransposeColumns(const std::uint8_t* rows, void* to) {
    __m512i at[8], next[8];
    Unroll<8>([&](auto i) HEED_ALWAYS_INLINE {
      const auto quarter = [&](int row) HEED_ALWAYS_INLINE {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + row * kMatrixRowBytes));
      };
      __m512i rows_of_i = _mm512_castsi128_si512(quarter(i.value));
      rows_of_i = _mm512_inserti32x4(rows_of_i, quarter(i.value + 8), 1);
      rows_of_i = _mm512_inserti32x4(rows_of_i, quarter(i.value + 16), 2);
      at[i.value] = _mm512_inserti32x4(rows_of_i, quarter(i.value + 24), 3);
    });
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      next[2 * i.value] = _mm512_unpacklo_epi16(at[2 * i.value], at[2 * i.value + 1]);
      next[2 * i.value + 1] = _mm512_unpackhi_epi16(at[2 * i.value], at[2 * i.value + 1]);
    });
    // next[2 i + h]: rows 2 i, 2 i + 1 of columns 4 h to 4 h + 3.
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kFirst = i.value / 2 * 4 + i.value % 2;
      at[2 * i.value] = _mm512_unpacklo_epi32(next[kFirst], next[kFirst + 2]);
      at[2 * i.value + 1] = _mm512_unpackhi_epi32(next[kFirst], next[kFirst + 2]);
    });
    // at[4 g + 2 h + p]: rows 4 g to 4 g + 3 of columns 4 h + 2 p and 4 h + 2 p + 1.
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      auto* columns = static_cast<__m512i*>(to) + 2 * i.value;
      _mm512_storeu_si512(columns, _mm512_unpacklo_epi64(at[i.value], at[i.value + 4]));
      _mm512_storeu_si512(columns + 1, _mm512_unpackhi_epi64(at[i.value], at[i.value + 4]));
    });
  }

 private:
  HEED_ALWAYS_INLINE static __mmask32 BelowMask(std::int64_t count) {
    return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_AMX_H_
