// How vectors of fp32 come out of the rows of a cache. Of a format:
//   kBlockElems, kBlockBytes  what a row consists of
//   Scale, LoadScale(block)   what the vectors of a block share, in registers
//   Load(block, n, scale)     its n-th vector
#ifndef HEED_CPU_KERNEL_DECODE_FORMATS_INL_H_
#define HEED_CPU_KERNEL_DECODE_FORMATS_INL_H_

#include <cstdint>

#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"
#include "device/kv_quant.h"

namespace heed::cpu {

template <class Isa, class Element>
struct ElementRows {
  static constexpr int kBlockElems = Isa::kLanes;
  static constexpr int kBlockBytes = Isa::kLanes * static_cast<int>(sizeof(Element));
  struct Scale {};
  HEED_ALWAYS_INLINE static Scale LoadScale(const std::uint8_t* /*block*/) { return {}; }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const std::uint8_t* block, int /*n*/,
                                                   Scale /*scale*/) {
    return Isa::LoadUnaligned(reinterpret_cast<const Element*>(block));
  }
};

template <class Isa>
struct Fp8Rows {
  static constexpr int kBlockElems = Isa::kLanes;
  static constexpr int kBlockBytes = Isa::kLanes;
  struct Scale {};
  HEED_ALWAYS_INLINE static Scale LoadScale(const std::uint8_t* /*block*/) { return {}; }
  // The bits of a half but for 2^8 in the exponent.
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const std::uint8_t* block, int /*n*/,
                                                   Scale /*scale*/) {
    return Isa::Mul(Isa::Set(256.0f), Isa::LoadFp8AsHalves(block));
  }
};

template <class Isa>
struct Int4Rows {
  static constexpr int kBlockElems = Isa::kLanes;
  static constexpr int kBlockBytes = Isa::kLanes / 2;
  struct Scale {};
  HEED_ALWAYS_INLINE static Scale LoadScale(const std::uint8_t* /*block*/) { return {}; }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const std::uint8_t* block, int /*n*/,
                                                   Scale /*scale*/) {
    return Isa::LoadNibblePairs(block);
  }
};

template <class Isa>
struct Q8Rows {
  static constexpr int kBlockElems = device::kBlockElems;
  static constexpr int kBlockBytes = device::kQ8Bytes;
  using Scale = typename Isa::Vec;
  HEED_ALWAYS_INLINE static Scale LoadScale(const std::uint8_t* block) {
    return Isa::BroadcastHalf(block);
  }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const std::uint8_t* block, int n, Scale scale) {
    const std::uint8_t* bytes = block + device::kBlockScaleBytes + n * Isa::kLanes;
    return Isa::Mul(scale, Isa::LoadUnaligned(reinterpret_cast<const std::int8_t*>(bytes)));
  }
};

// The first half of a block's elements are the low nibbles of its bytes.
template <class Isa>
struct Q4Rows {
  static constexpr int kBlockElems = device::kBlockElems;
  static constexpr int kBlockBytes = device::kQ4Bytes;
  using Scale = typename Isa::Vec;
  HEED_ALWAYS_INLINE static Scale LoadScale(const std::uint8_t* block) {
    return Isa::BroadcastHalf(block);
  }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const std::uint8_t* block, int n, Scale scale) {
    constexpr int kHalf = device::kBlockElems / 2, kNibbleBits = 4;
    const int elem = n * Isa::kLanes;
    const std::uint8_t* bytes = block + device::kBlockScaleBytes + elem % kHalf;
    return Isa::Mul(scale, Isa::LoadOffsetNibbles(bytes, elem / kHalf * kNibbleBits));
  }
};

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_FORMATS_INL_H_
