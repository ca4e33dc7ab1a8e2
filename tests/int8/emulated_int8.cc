// Kernels of instruction sets that a test machine may lack, on the compiler's own vectors: signed
// byte products, as on Arm, and a matrix unit of bytes.
#include "cpu/emulated_matrix_unit.h"
#include "cpu/kernel/int8_matrix-inl.h"
#include "cpu/simd/int8_signed.h"
#include "int8/int8_call.h"

namespace heed::test {
namespace {

struct EmulatedTarget;
using Floats = cpu::GenericSimd<16, 24, EmulatedTarget>;

struct EmulatedSigned : cpu::Int8SignedBytes<Floats> {
  static constexpr bool kHasPairs = true;

  static Ints Dot(Ints q, Ints k, Ints sum) {
    sum += SignedByte<0>(q) * SignedByte<0>(k) + SignedByte<1>(q) * SignedByte<1>(k);
    return sum + SignedByte<2>(q) * SignedByte<2>(k) + SignedByte<3>(q) * SignedByte<3>(k);
  }
};

// Beside the matrix unit weights are unsigned.
struct EmulatedBeside : EmulatedSigned {
  static constexpr int kWeightOffset = 0;

  static void StoreBytes(std::int32_t* p, const Ints (&x)[cpu::kInt8Group]) {
    StoreInts(p, (x[0] | x[1] << 8) | (x[2] << 16 | x[3] << 24));
  }
};

template <class Right>
struct EmulatedBytes : EmulatedMatrixUnit<Floats> {
  template <int kSum, int kLeft, int kRight>
  static void MultiplyAdd() {
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kRows; ++column) {
        auto sum = At<std::int32_t>(kSum, row, column);
        for (int byte = 0; byte < kRowBytes; ++byte) {
          sum += At<std::int8_t>(kLeft, row, byte) *
                 At<Right>(kRight, byte / cpu::kInt8Group,
                           column * cpu::kInt8Group + byte % cpu::kInt8Group);
        }
        std::memcpy(registers[kSum].rows[row] + column * sizeof(sum), &sum, sizeof(sum));
      }
    }
  }
};

struct EmulatedUnits {
  using Isa = EmulatedBeside;
  using Signed = EmulatedBytes<std::int8_t>;
  using Weights = EmulatedBytes<std::uint8_t>;
  using Pairs = EmulatedMatrixUnit<Floats>;
};

}  // namespace

constinit const cpu::Int8Kernel kEmulatedSignedInt8Kernel = cpu::MakeInt8Kernel<EmulatedSigned>();
constinit const cpu::Int8Kernel kEmulatedMatrixInt8Kernel =
    cpu::MakeInt8MatrixKernel<EmulatedUnits>();

}  // namespace heed::test
