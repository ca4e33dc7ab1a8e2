// Warpgroup matrix multiply-accumulate: 64 x N += 64 x 16 times 16 x N by the 128 threads of a
// warpgroup, asynchronously. PTX ISA "wgmma". sm_90a only.
//
// Accumulators of lane l of warp w, g = l / 4, t = l % 4, n8 block j: d[4 j], d[4 j + 1] = row
// 16 w + g, columns 8 j + 2 t, + 1; d[4 j + 2], d[4 j + 3] = row 16 w + g + 8. Two neighbouring
// n8 blocks packed to 16 bits are the A operand of one k16 step, as with mma.m16n8k16.
#ifndef HEED_CUDA_KERNELS_PTX_WGMMA_CUH_
#define HEED_CUDA_KERNELS_PTX_WGMMA_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;
using device::u64;

// Before the first product that touches registers which other instructions wrote.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most kPending committed groups of this warp are under way.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

enum class WgmmaElement { kF16, kBF16 };

// Operands in shared memory are descriptors; see tile/wgmma.cuh. A and B of First and Add are
// K-major, B of AddRegisters is N-major and its A comes from registers, as that of ...KMajor. B of
// the others is N-major, A of AddMNMajor is M-major.
template <WgmmaElement kElement, int kN>
struct Wgmma;

#define HEED_WGMMA_REGISTERS_32                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HEED_WGMMA_REGISTERS_40                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39"
#define HEED_WGMMA_REGISTERS_48                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HEED_WGMMA_REGISTERS_64                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HEED_WGMMA_REGISTERS_96                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HEED_WGMMA_REGISTERS_128                                                 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                       \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"             \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"             \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"             \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"             \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"             \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define HEED_WGMMA_4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define HEED_WGMMA_16(c, d, i)                                                 \
  HEED_WGMMA_4(c, d, i), HEED_WGMMA_4(c, d, i + 4), HEED_WGMMA_4(c, d, i + 8), \
      HEED_WGMMA_4(c, d, i + 12)
#define HEED_WGMMA_OPERANDS_32(c, d) HEED_WGMMA_16(c, d, 0), HEED_WGMMA_16(c, d, 16)
#define HEED_WGMMA_OPERANDS_40(c, d) \
  HEED_WGMMA_OPERANDS_32(c, d), HEED_WGMMA_4(c, d, 32), HEED_WGMMA_4(c, d, 36)
#define HEED_WGMMA_OPERANDS_48(c, d) HEED_WGMMA_OPERANDS_32(c, d), HEED_WGMMA_16(c, d, 32)
#define HEED_WGMMA_OPERANDS_64(c, d) HEED_WGMMA_OPERANDS_48(c, d), HEED_WGMMA_16(c, d, 48)
#define HEED_WGMMA_OPERANDS_96(c, d) \
  HEED_WGMMA_OPERANDS_64(c, d), HEED_WGMMA_16(c, d, 64), HEED_WGMMA_16(c, d, 80)
#define HEED_WGMMA_OPERANDS_128(c, d) \
  HEED_WGMMA_OPERANDS_96(c, d), HEED_WGMMA_16(c, d, 96), HEED_WGMMA_16(c, d, 112)

// R = n / 2 accumulators a thread; I0 to I4 name the operands that follow them. First writes d
// without reading it: an accumulator that went in would stay alive before the product.
#define HEED_DEFINE_WGMMA(ELEMENT, TYPE, N, R, I0, I1, I2, I3, I4)                             \
  template <>                                                                                  \
  struct Wgmma<WgmmaElement::ELEMENT, N> {                                                     \
    static __device__ __forceinline__ void First(float (&d)[R], u64 a, u64 b) {                \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R "}, " I0 ", " I1     \
                                                                          ", p, 1, 1, 0, 0; }" \
                   : HEED_WGMMA_OPERANDS_##R("=f", d)                                          \
                   : "l"(a), "l"(b));                                                          \
    }                                                                                          \
    static __device__ __forceinline__ void Add(float (&d)[R], u64 a, u64 b) {                  \
      asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R "}, " I0 ", " I1     \
                                                                          ", p, 1, 1, 0, 0; }" \
                   : HEED_WGMMA_OPERANDS_##R("+f", d)                                          \
                   : "l"(a), "l"(b));                                                          \
    }                                                                                          \
    static __device__ __forceinline__ void AddRegisters(float (&d)[R], const u32* a, u64 b) {  \
      asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R                      \
                   "}, {" I0 "," I1 "," I2 "," I3 "}, " I4 ", p, 1, 1, 1; }"                   \
                   : HEED_WGMMA_OPERANDS_##R("+f", d)                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                      \
    }                                                                                          \
    static __device__ __forceinline__ void FirstRegistersKMajor(float (&d)[R], const u32* a,   \
                                                                u64 b) {                       \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R                      \
                   "}, {" I0 "," I1 "," I2 "," I3 "}, " I4 ", p, 1, 1, 0; }"                   \
                   : HEED_WGMMA_OPERANDS_##R("=f", d)                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                      \
    }                                                                                          \
    static __device__ __forceinline__ void AddRegistersKMajor(float (&d)[R], const u32* a,     \
                                                              u64 b) {                         \
      asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R                      \
                   "}, {" I0 "," I1 "," I2 "," I3 "}, " I4 ", p, 1, 1, 0; }"                   \
                   : HEED_WGMMA_OPERANDS_##R("+f", d)                                          \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                      \
    }                                                                                          \
    static __device__ __forceinline__ void FirstNMajor(float (&d)[R], u64 a, u64 b) {          \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R "}, " I0 ", " I1     \
                                                                          ", p, 1, 1, 0, 1; }" \
                   : HEED_WGMMA_OPERANDS_##R("=f", d)                                          \
                   : "l"(a), "l"(b));                                                          \
    }                                                                                          \
    static __device__ __forceinline__ void AddNMajor(float (&d)[R], u64 a, u64 b) {            \
      asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R "}, " I0 ", " I1     \
                                                                          ", p, 1, 1, 0, 1; }" \
                   : HEED_WGMMA_OPERANDS_##R("+f", d)                                          \
                   : "l"(a), "l"(b));                                                          \
    }                                                                                          \
    static __device__ __forceinline__ void AddMNMajor(float (&d)[R], u64 a, u64 b) {           \
      asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #N \
                   "k16.f32." TYPE "." TYPE " {" HEED_WGMMA_REGISTERS_##R "}, " I0 ", " I1     \
                                                                          ", p, 1, 1, 1, 1; }" \
                   : HEED_WGMMA_OPERANDS_##R("+f", d)                                          \
                   : "l"(a), "l"(b));                                                          \
    }                                                                                          \
  }

HEED_DEFINE_WGMMA(kF16, "f16", 64, 32, "%32", "%33", "%34", "%35", "%36");
HEED_DEFINE_WGMMA(kBF16, "bf16", 64, 32, "%32", "%33", "%34", "%35", "%36");
HEED_DEFINE_WGMMA(kF16, "f16", 80, 40, "%40", "%41", "%42", "%43", "%44");
HEED_DEFINE_WGMMA(kBF16, "bf16", 80, 40, "%40", "%41", "%42", "%43", "%44");
HEED_DEFINE_WGMMA(kF16, "f16", 96, 48, "%48", "%49", "%50", "%51", "%52");
HEED_DEFINE_WGMMA(kBF16, "bf16", 96, 48, "%48", "%49", "%50", "%51", "%52");
HEED_DEFINE_WGMMA(kF16, "f16", 128, 64, "%64", "%65", "%66", "%67", "%68");
HEED_DEFINE_WGMMA(kBF16, "bf16", 128, 64, "%64", "%65", "%66", "%67", "%68");
HEED_DEFINE_WGMMA(kF16, "f16", 192, 96, "%96", "%97", "%98", "%99", "%100");
HEED_DEFINE_WGMMA(kBF16, "bf16", 192, 96, "%96", "%97", "%98", "%99", "%100");
HEED_DEFINE_WGMMA(kF16, "f16", 256, 128, "%128", "%129", "%130", "%131", "%132");
HEED_DEFINE_WGMMA(kBF16, "bf16", 256, 128, "%128", "%129", "%130", "%131", "%132");

#undef HEED_DEFINE_WGMMA
#undef HEED_WGMMA_OPERANDS_128
#undef HEED_WGMMA_OPERANDS_96
#undef HEED_WGMMA_OPERANDS_64
#undef HEED_WGMMA_OPERANDS_48
#undef HEED_WGMMA_OPERANDS_40
#undef HEED_WGMMA_OPERANDS_32
#undef HEED_WGMMA_16
#undef HEED_WGMMA_4
#undef HEED_WGMMA_REGISTERS_128
#undef HEED_WGMMA_REGISTERS_96
#undef HEED_WGMMA_REGISTERS_64
#undef HEED_WGMMA_REGISTERS_48
#undef HEED_WGMMA_REGISTERS_40
#undef HEED_WGMMA_REGISTERS_32

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_WGMMA_CUH_
