// Compiles a kernel that includes every header of src/device with NVRTC, which needs no GPU.
// Skips, loudly, on a machine without NVRTC; HEED_REQUIRE_NVRTC=1 turns the skip into a failure.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace heed {
namespace {

struct OpaqueProgram;

// The few entry points used, declared here so that the test builds without the toolkit.
struct Nvrtc {
  int (*create)(OpaqueProgram**, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(OpaqueProgram*, int, const char* const*) = nullptr;
  int (*log_size)(OpaqueProgram*, std::size_t*) = nullptr;
  int (*log)(OpaqueProgram*, char*) = nullptr;
  int (*destroy)(OpaqueProgram**) = nullptr;

  bool Load() {
    for (const char* name :
         {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return Bind(library);
    }
    return false;
  }

 private:
  template <class Function>
  static bool Resolve(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }
  bool Bind(void* library) {
    return Resolve(library, "nvrtcCreateProgram", &create) &&
           Resolve(library, "nvrtcCompileProgram", &compile) &&
           Resolve(library, "nvrtcGetProgramLogSize", &log_size) &&
           Resolve(library, "nvrtcGetProgramLog", &log) &&
           Resolve(library, "nvrtcDestroyProgram", &destroy);
  }
};

// Uses something of every header, so that templates and inline functions are instantiated.
constexpr const char* kKernel = R"(
using namespace heed::device;
extern "C" __global__ void probe(i64* longs, u32* words, float* floats) {
  const DropoutStream stream = MakeDropoutStream(longs[0], longs[1]);
  words[0] = NumberInPatch(DropoutWords(stream, words[1], PatchOf(words[2], words[3])), 1, 2);
  floats[0] = KeepScale(DropThreshold(floats[1]));
  words[1] = Fp32ToFp16(floats[0]) + Fp32ToBf16(floats[1]) + Fp32ToFp8E4m3(floats[2]);
  floats[1] = Fp16ToFp32(words[2]) + Bf16ToFp32(words[3]) + Fp8E4m3ToFp32(words[4]);
  SoftmaxState state;
  floats[2] = Absorb(&state, SoftmaxState{floats[3], floats[4]}) + AbsorbSink(&state, floats[5]);
  floats[3] = LseLn(state) + InverseSum(state) + FiniteMax(floats[6]);
  floats[4] = MergePartials(floats[7], floats[8]).first_weight;
  const KeyRange visible = VisibleKeys(WindowRule{}, longs[0], longs[1], longs[2]);
  longs[0] = SplitKeys(visible, 64, NumSplits(longs[2], 4096), 1).begin;
  longs[1] = TaskAt(TileGrid{longs[0], longs[1], longs[2], TileOrder::kLastFirst}, 3).q_tile;
  longs[2] = SlotOfToken(longs[3], 16).slot + NumPagesNeeded(longs[3], 16);
  longs[3] = RowOffsetElems(RowStrides{}, 1, 2, 3) + ScoreOffsetElems(ScoreStrides{}, 1, 2, 3, 4);
  floats[5] = AlibiBias(floats[6], longs[0], longs[1]);
}
)";

std::string SourceWithEveryHeader() {
  std::string source;
  for (const auto& entry : std::filesystem::directory_iterator(HEED_SOURCE_DIR "/device")) {
    if (entry.path().extension() == ".h") {
      source += "#include \"device/" + entry.path().filename().string() + "\"\n";
    }
  }
  return source + kKernel;
}

std::string CompileLog(const Nvrtc& nvrtc, OpaqueProgram* program) {
  std::size_t log_bytes = 0;
  nvrtc.log_size(program, &log_bytes);
  std::string log(log_bytes, '\0');
  if (log_bytes > 0) nvrtc.log(program, log.data());
  return log;
}

TEST(DeviceHeaders, CompileWithNvrtc) {
  Nvrtc nvrtc;
  if (!nvrtc.Load()) {
    const char* required = std::getenv("HEED_REQUIRE_NVRTC");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1")
        << "HEED_REQUIRE_NVRTC=1, but no NVRTC was found: " << dlerror();
    GTEST_SKIP()
        << "NOT TESTED: no NVRTC on this machine, device headers compiled by the host only";
  }
  const std::string source = SourceWithEveryHeader();
  const std::vector<const char*> options = {"-I" HEED_SOURCE_DIR, "--std=c++20",
                                            "--gpu-architecture=compute_75"};
  OpaqueProgram* program = nullptr;
  ASSERT_EQ(nvrtc.create(&program, source.c_str(), "probe.cu", 0, nullptr, nullptr), 0);
  const int result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  const std::string log = CompileLog(nvrtc, program);
  EXPECT_EQ(result, 0) << log;
  EXPECT_EQ(log.find("warning"), std::string::npos) << log;
  nvrtc.destroy(&program);
}

}  // namespace
}  // namespace heed
