// libFuzzer target: heed_forward over made-up argument structs. A legal call must run, stay inside
// its outputs and give a convex combination of values; any other call must be refused and change
// nothing; heed_plan must agree with both.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "byte_source.h"
#include "forward_call.h"
#include "heed/heed.h"

namespace {

using heed::fuzz::ByteSource;
using heed::fuzz::ForwardCall;

#define FUZZ_CHECK(condition)                     \
  do {                                            \
    if (!(condition)) Fail(#condition, __LINE__); \
  } while (false)

[[noreturn]] void Fail(const char* condition, int line) {
  std::fprintf(stderr, "fuzz_forward.cc:%d: %s is false; last error: %s\n", line, condition,
               heed_last_error());
  std::abort();
}

// Scratch memory of exactly the planned size between guard bytes.
class Workspace {
 public:
  explicit Workspace(std::size_t size_bytes) : size_bytes_(size_bytes) {
    block_.assign(size_bytes + 3 * kGuardBytes, kGuard);
    const auto address = reinterpret_cast<std::uintptr_t>(block_.data());
    begin_ = kGuardBytes + (kGuardBytes - address % kGuardBytes) % kGuardBytes;
  }
  void* data() { return block_.data() + begin_; }
  bool GuardsIntact() const {
    const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
    const auto begin = block_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return std::all_of(block_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(size_bytes_), block_.end(), is_guard);
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;
  static constexpr std::uint8_t kGuard = 0xa5;
  std::size_t size_bytes_, begin_ = 0;
  std::vector<std::uint8_t> block_;
};

// False when a corrupted descriptor has moved an input onto memory that holds NaN.
bool InputsAreWithinTwo(ForwardCall& call) {
  for (const auto name : {heed::fuzz::kQ, heed::fuzz::kK, heed::fuzz::kV, heed::fuzz::kBias,
                          heed::fuzz::kAlibi, heed::fuzz::kSinks}) {
    if (call.tensor(name).abi() == nullptr) continue;
    const std::vector<float> values = call.tensor(name).Values();
    const auto is_within = [](float value) { return std::abs(value) <= 2.0f; };
    if (!std::all_of(values.begin(), values.end(), is_within)) return false;
  }
  return true;
}

// Values are within [-2, 2], so every output is within 2 / (1 - p); rounding to bf16 adds 1/256.
void CheckOutputs(ForwardCall& call) {
  const double dropout_p = call.args()->score != nullptr ? call.args()->score->dropout_p : 0.0;
  const double bound = 2.0 / (1.0 - dropout_p) * (1.0 + 1.0 / 128.0);
  FUZZ_CHECK(call.tensor(heed::fuzz::kO).OnlyElementsChanged());
  FUZZ_CHECK(call.tensor(heed::fuzz::kLse).OnlyElementsChanged());
  const bool writes_every_row = call.tensor(heed::fuzz::kCuSeqlensQ).abi() == nullptr;
  if (!writes_every_row || !InputsAreWithinTwo(call)) return;
  for (const float value : call.tensor(heed::fuzz::kO).Values()) {
    FUZZ_CHECK(std::abs(value) <= bound);
  }
  if (call.tensor(heed::fuzz::kLse).abi() == nullptr) return;
  for (const float value : call.tensor(heed::fuzz::kLse).Values()) FUZZ_CHECK(!std::isnan(value));
}

void CheckExplain(ForwardCall& call) {
  char text[64];
  std::size_t needed_bytes = 0;
  const heed_status_t status =
      heed_explain(HEED_OP_FORWARD, call.args(), text, sizeof text, &needed_bytes);
  if (status == HEED_OK) FUZZ_CHECK(std::memchr(text, 0, sizeof text) != nullptr);
}

void Run(ForwardCall& call, const heed_plan_info_t& plan, heed_status_t planned) {
  Workspace workspace(planned == HEED_OK ? plan.workspace_bytes : 0);
  if (planned == HEED_OK && plan.workspace_bytes % 3 != 0) {
    call.exec()->workspace = workspace.data();
    call.exec()->workspace_bytes = plan.workspace_bytes;
  }
  const heed_status_t status = heed_forward(call.args());
  FUZZ_CHECK(workspace.GuardsIntact());
  for (std::size_t name = 0; name < heed::fuzz::kNumTensors; ++name) {
    const bool is_output = name == heed::fuzz::kO || name == heed::fuzz::kLse;
    if (status != HEED_OK || !is_output) FUZZ_CHECK(call.tensors()[name].Unchanged());
  }
  if (status == HEED_OK) {
    FUZZ_CHECK(planned == HEED_OK);
    CheckOutputs(call);
  } else {
    FUZZ_CHECK(status != HEED_INTERNAL);
    FUZZ_CHECK(heed_last_error()[0] != '\0');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  ForwardCall call(ByteSource(data, num_bytes));
  const bool is_safe_to_run = call.IsSafeToRun();
  call.DropUnreadableLengths();
  call.Remember();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const heed_status_t planned = heed_plan(HEED_OP_FORWARD, call.args(), &plan);
  FUZZ_CHECK(planned != HEED_INTERNAL);
  CheckExplain(call);
  if (is_safe_to_run) Run(call, plan, planned);
  return 0;
}
