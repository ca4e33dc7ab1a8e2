// Which CPU targets run here. On x86 the CPU must have the instructions and the operating system
// must save the wider registers (XCR0); either alone is not enough.
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "core/os/os.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

namespace heed::core::os {
namespace {

#if defined(__x86_64__)

struct CpuidWords {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidWords Cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  CpuidWords words;
  __get_cpuid_count(leaf, subleaf, &words.eax, &words.ebx, &words.ecx, &words.edx);
  return words;
}

// State the operating system saves: bits 1-2 SSE and AVX, bits 5-7 the AVX-512 registers, bits
// 17-18 the AMX configuration and registers.
std::uint64_t EnabledState() {
  constexpr std::uint32_t kOsXsaveBit = 27;
  if ((Cpuid(1, 0).ecx >> kOsXsaveBit & 1u) == 0) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

enum Register : std::uint8_t { kLeaf1Ecx, kLeaf7Ebx, kLeaf7Edx, kLeaf7Sub1Eax, kLeaf7Ecx };

struct Feature {
  const char* why_not;
  Register where;
  std::uint8_t bit;
  CpuTarget first_target;  // this target and all up to the last need it
  CpuTarget last_target = CpuTarget::kAmx;
};

// The instruction sets that the sources of each target are compiled for.
constexpr std::array<Feature, 13> kFeatures = {{
    {"this CPU has no fma", kLeaf1Ecx, 12, CpuTarget::kAvx2},
    {"this CPU has no f16c", kLeaf1Ecx, 29, CpuTarget::kAvx2},
    {"this CPU has no avx2", kLeaf7Ebx, 5, CpuTarget::kAvx2},
    {"this CPU has no avx_vnni", kLeaf7Sub1Eax, 4, CpuTarget::kAvxVnni, CpuTarget::kAvxVnni},
    {"this CPU has no avx512f", kLeaf7Ebx, 16, CpuTarget::kAvx512},
    {"this CPU has no avx512dq", kLeaf7Ebx, 17, CpuTarget::kAvx512},
    {"this CPU has no avx512bw", kLeaf7Ebx, 30, CpuTarget::kAvx512},
    {"this CPU has no avx512vl", kLeaf7Ebx, 31, CpuTarget::kAvx512},
    {"this CPU has no avx512_vnni", kLeaf7Ecx, 11, CpuTarget::kAvx512Bf16},
    {"this CPU has no avx512_bf16", kLeaf7Sub1Eax, 5, CpuTarget::kAvx512Bf16},
    {"this CPU has no amx_tile", kLeaf7Edx, 24, CpuTarget::kAmx},
    {"this CPU has no amx_bf16", kLeaf7Edx, 22, CpuTarget::kAmx},
    {"this CPU has no amx_int8", kLeaf7Edx, 25, CpuTarget::kAmx},
}};

// Linux hands the 8 KiB of AMX registers only to processes that ask; the answer holds for all
// threads, and for children. Asked once: WhyNot keeps the result.
const char* RequestAmxRegisters() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, since Linux 5.16
  constexpr long kAmxRegisters = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kAmxRegisters) == 0) return nullptr;
  return "Linux does not give this process the AMX registers";
#else
  return "AMX registers are not requested on this operating system";
#endif
}

// Null when the target runs here.
const char* DetectWhyNot(CpuTarget target) {
  if (target > CpuTarget::kAmx) return "this CPU is not an AArch64";
  const CpuidWords leaf7 = Cpuid(7, 0);
  const std::array<std::uint32_t, 5> words = {Cpuid(1, 0).ecx, leaf7.ebx, leaf7.edx,
                                              Cpuid(7, 1).eax, leaf7.ecx};
  for (const Feature& feature : kFeatures) {
    const bool needs_it = target >= feature.first_target && target <= feature.last_target;
    if (needs_it && (words[feature.where] >> feature.bit & 1u) == 0) {
      return feature.why_not;
    }
  }
  constexpr std::uint64_t kAvxState = 0x06;
  constexpr std::uint64_t kAvx512State = 0xE6;
  constexpr std::uint64_t kAmxState = 0x60000;
  const std::uint64_t state = EnabledState();
  if (target >= CpuTarget::kAvx2 && (state & kAvxState) != kAvxState) {
    return "the operating system does not enable the AVX registers";
  }
  if (target >= CpuTarget::kAvx512 && (state & kAvx512State) != kAvx512State) {
    return "the operating system does not enable the AVX-512 registers";
  }
  if (target >= CpuTarget::kAmx) {
    if ((state & kAmxState) != kAmxState) {
      return "the operating system does not enable the AMX registers";
    }
    return RequestAmxRegisters();
  }
  return nullptr;
}

// By vendor, as measured: Zen 4 and later run it at twice the fp32 flops, Intel's cores at half.
bool DetectFastBf16Dot() {
  const CpuidWords vendor = Cpuid(0, 0);
  constexpr std::uint32_t kAuthEnti = 0x69746E65, kAuth = 0x68747541;
  return vendor.ebx == kAuth && vendor.edx == kAuthEnti &&
         DetectWhyNot(CpuTarget::kAvx512Bf16) == nullptr;
}

std::string BrandString() {
  constexpr std::uint32_t kFirstLeaf = 0x80000002;
  if (static_cast<std::uint32_t>(__get_cpuid_max(0x80000000, nullptr)) < kFirstLeaf + 2) return {};
  std::array<char, 49> text = {};
  for (std::uint32_t part = 0; part < 3; ++part) {
    const CpuidWords words = Cpuid(kFirstLeaf + part, 0);
    std::memcpy(text.data() + part * sizeof(words), &words, sizeof(words));
  }
  const std::string brand = text.data();
  const std::size_t first = brand.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return brand.substr(first, brand.find_last_not_of(' ') - first + 1);
}

#else

#if defined(__aarch64__) && defined(__linux__)

// Numbers of Linux's <asm/hwcap.h> and <linux/prctl.h>, which older systems lack.
const char* WhyNoSve(int vector_bytes) {
  constexpr unsigned long kSve = 1ul << 22;
  constexpr int kGetVectorLength = 51;
  if ((getauxval(AT_HWCAP) & kSve) == 0) return "this CPU has no sve";
  const int length = prctl(kGetVectorLength);
  if (length < 0 || (length & 0xFFFF) != vector_bytes) {
    return vector_bytes == 64 ? "vectors of this CPU's sve are not of 512 bits"
                              : "vectors of this CPU's sve are not of 256 bits";
  }
  return nullptr;
}

const char* WhyNotArm(CpuTarget target) {
  constexpr unsigned long kDotProducts = 1ul << 20, kBf16 = 1ul << 14, kByteMatrices = 1ul << 13;
  switch (target) {
    case CpuTarget::kSve256:
      return WhyNoSve(32);
    case CpuTarget::kSve512:
      return WhyNoSve(64);
    case CpuTarget::kNeonI8mm:
      if ((getauxval(AT_HWCAP2) & kByteMatrices) == 0) return "this CPU has no i8mm";
      [[fallthrough]];
    case CpuTarget::kNeonBf16:
      if ((getauxval(AT_HWCAP2) & kBf16) == 0) return "this CPU has no bf16";
      [[fallthrough]];
    default:
      return (getauxval(AT_HWCAP) & kDotProducts) == 0 ? "this CPU has no dotprod" : nullptr;
  }
}

#else

const char* WhyNotArm(CpuTarget /*target*/) { return "this CPU's features are not known here"; }

#endif

const char* DetectWhyNot(CpuTarget target) {
  if (target <= CpuTarget::kGeneric) return nullptr;
  return target <= CpuTarget::kAmx ? "this CPU is not an x86-64" : WhyNotArm(target);
}

bool DetectFastBf16Dot() { return DetectWhyNot(CpuTarget::kNeonBf16) == nullptr; }

// The model line of Linux's /proc/cpuinfo, where the architecture has one.
std::string BrandString() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0 && line.rfind("Model", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

#endif

const char* WhyNot(CpuTarget target) {
  static const std::array<const char*, kNumCpuTargets> reasons = [] {
    std::array<const char*, kNumCpuTargets> found = {};
    for (int index = 0; index < kNumCpuTargets; ++index) {
      found[static_cast<std::size_t>(index)] = DetectWhyNot(static_cast<CpuTarget>(index));
    }
    found[0] = "not a target";
    return found;
  }();
  return reasons[static_cast<std::size_t>(target)];
}

}  // namespace

bool HasCpuTarget(CpuTarget target) { return WhyNot(target) == nullptr; }

std::string WhyNoCpuTarget(CpuTarget target) {
  const char* reason = WhyNot(target);
  return reason == nullptr ? std::string() : std::string(reason);
}

bool HasFastBf16Dot() {
  static const bool is_fast = DetectFastBf16Dot();
  return is_fast;
}

std::string CpuModelName() {
  const std::string brand = BrandString();
  return brand.empty() ? "unknown CPU" : brand;
}

}  // namespace heed::core::os
