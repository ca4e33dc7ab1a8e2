#include <cstdio>

#include "call.h"
#include "commands.h"
#include "compare.h"
#include "error_bound.h"
#include "errors.h"
#include "oracle.h"

namespace heed::tools {
namespace {

struct Verdict {
  std::string kernel_id;
  Comparison o, lse;
  std::vector<std::int64_t> o_shape, lse_shape;
  bool passed() const { return o.passed() && lse.passed(); }
};

Verdict Check(const Options& options) {
  const Inputs inputs = MakeInputs(options, Fill::kValues);
  const Outputs outputs = MakeOutputs(inputs);
  const ForwardCall call(inputs, options, outputs);
  Verdict verdict;
  verdict.kernel_id = call.Plan().kernel_id;
  call.Run();

  const OracleResult oracle = RunOracle(inputs, options);
  const ErrorBound bound(inputs, options);
  const double* magnitude = oracle.magnitude.data<double>();
  verdict.o = Compare(outputs.o, oracle.o, [&](std::int64_t index, double expected) {
    return bound.ForOutput(expected, magnitude[index]);
  });
  verdict.lse = Compare(outputs.lse, oracle.lse,
                        [&](std::int64_t, double expected) { return bound.ForLse(expected); });
  verdict.o_shape = outputs.o.shape;
  verdict.lse_shape = outputs.lse.shape;
  return verdict;
}

void PrintText(const char* name, const Comparison& result, const std::vector<std::int64_t>& shape) {
  std::printf(
      "%-7s max abs error %.3g   relative Frobenius error %.3g   out of tolerance %lld of %lld\n",
      name, result.max_abs_error, result.relative_frobenius, static_cast<long long>(result.num_bad),
      static_cast<long long>(result.num_elements));
  if (result.worst_index < 0) return;
  std::printf("        worst at %s: got %.9g, expected %.9g (%.3g of the tolerance)\n",
              IndexText(result.worst_index, shape).c_str(), result.worst_actual,
              result.worst_expected, result.max_tolerance_ratio);
}

}  // namespace

int RunCheck(const Options& options) {
  const Verdict verdict = Check(options);
  std::printf("kernel  %s\n", verdict.kernel_id.c_str());
  PrintText("o", verdict.o, verdict.o_shape);
  PrintText("lse", verdict.lse, verdict.lse_shape);
  std::printf("%s\n", verdict.passed() ? "passed" : "FAILED: out of tolerance");
  return verdict.passed() ? kExitOk : kExitMismatch;
}

}  // namespace heed::tools
