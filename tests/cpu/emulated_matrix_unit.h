// A matrix unit in portable code. Registers hold NaN until they are written, and everything does
// after Stop(): a kernel that computes outside Start() and Stop() fails.
#ifndef HEED_TESTS_CPU_EMULATED_MATRIX_UNIT_H_
#define HEED_TESTS_CPU_EMULATED_MATRIX_UNIT_H_

#include <cstdint>
#include <cstring>

#include "cpu/element.h"
#include "cpu/kernel/matrix_multiply-inl.h"
#include "device/float16.h"

namespace heed::test {

template <class IsaT>
struct EmulatedMatrixUnit {
  using Isa = IsaT;
  static constexpr int kRows = cpu::kMatrixRows;
  static constexpr int kRowBytes = cpu::kMatrixRowBytes;
  struct Register {
    std::uint8_t rows[kRows][kRowBytes];
  };
  static inline thread_local Register registers[cpu::kMatrixRegisters];
  static inline thread_local bool is_started = false;

  static void Poison() { std::memset(registers, 0xFF, sizeof(registers)); }
  static void Start() {
    Poison();
    is_started = true;
  }
  static void Stop() {
    Poison();
    is_started = false;
  }

  template <int kRegister>
  static void Zero() {
    if (is_started) std::memset(&registers[kRegister], 0, sizeof(Register));
  }
  template <int kRegister>
  static void Load(const void* from, std::int64_t stride_bytes) {
    if (!is_started) return;
    for (int row = 0; row < kRows; ++row) {
      const auto* bytes = static_cast<const std::uint8_t*>(from) + row * stride_bytes;
      std::memcpy(registers[kRegister].rows[row], bytes, kRowBytes);
    }
  }
  template <int kRegister>
  static void Store(void* to, std::int64_t stride_bytes) {
    for (int row = 0; row < kRows; ++row) {
      auto* bytes = static_cast<std::uint8_t*>(to) + row * stride_bytes;
      std::memcpy(bytes, registers[kRegister].rows[row], kRowBytes);
    }
  }
  template <int kSum, int kLeft, int kRight>
  static void MultiplyAdd() {
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kRows; ++column) {
        float sum = At<float>(kSum, row, column);
        for (int pair = 0; pair < kRows; ++pair) {
          for (int half = 0; half < 2; ++half) {
            sum += Bf16At(kLeft, row, 2 * pair + half) * Bf16At(kRight, pair, 2 * column + half);
          }
        }
        std::memcpy(registers[kSum].rows[row] + column * sizeof(sum), &sum, sizeof(sum));
      }
    }
  }

  static void CopyElements(const void* from, std::int64_t begin, std::int64_t end, void* to) {
    const auto* source = static_cast<const cpu::Bfloat*>(from);
    auto* destination = static_cast<cpu::Bfloat*>(to);
    for (std::int64_t i = 0; i < cpu::kMatrixGroupElems; ++i) {
      destination[i] = i >= begin && i < end ? source[i] : cpu::Bfloat{0};
    }
  }

  static constexpr int kTransposedColumns = 8;
  static void TransposeColumns(const std::uint8_t* rows, void* to) {
    auto* destination = static_cast<cpu::Bfloat*>(to);
    for (int column = 0; column < kTransposedColumns; ++column) {
      for (int row = 0; row < cpu::kMatrixGroupElems; ++row) {
        std::memcpy(destination++, rows + row * kRowBytes + column * sizeof(cpu::Bfloat),
                    sizeof(cpu::Bfloat));
      }
    }
  }

 protected:
  template <class T>
  static T At(int index, int row, int element) {
    T value;
    std::memcpy(&value, registers[index].rows[row] + element * sizeof(T), sizeof(T));
    return value;
  }
  static float Bf16At(int index, int row, int element) {
    return device::Bf16ToFp32(At<std::uint16_t>(index, row, element));
  }
};

}  // namespace heed::test

#endif  // HEED_TESTS_CPU_EMULATED_MATRIX_UNIT_H_
