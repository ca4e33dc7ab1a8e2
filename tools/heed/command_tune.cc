// heed tune: the rows that could run a problem, side by side, and which one is kept.
#include <cstdio>
#include <string>
#include <vector>

#include "call.h"
#include "commands.h"
#include "errors.h"
#include "inputs.h"

namespace heed::tools {
namespace {

// The problem without bytes: the library draws tensors of its own.
class TunedProblem {
 public:
  explicit TunedProblem(const Options& options)
      : op_(options.bench.op),
        inputs_(MakeInputs(options, Fill::kShapesOnly)),
        outputs_(OutputShapes(inputs_)),
        call_(inputs_, options, outputs_) {
    if (options.exec.backend == HEED_BACKEND_CUDA) {
      const ResolvedShape shape = Resolve(options.shape);
      call_.PlaceOnGpu(options.tune.gpu, shape.q_len, shape.kv_len);
    }
    // A gradient has the shape of what it is the gradient of.
    const heed_forward_args_t& forward = *call_.args();
    backward_.forward = &forward;
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): ForwardCall's constructor sets it
    backward_.d_o = forward.o;
    backward_.dq = forward.q;
    backward_.dk = forward.k;
    backward_.dv = forward.v;
    backward_.exec = forward.exec;
  }

  void Tune(const heed_tune_options_t& options) const {
    switch (op_) {
      case BenchOp::kForward:
        return RequireOk(heed_tune(HEED_OP_FORWARD, call_.args(), &options));
      case BenchOp::kBackward:
        return RequireOk(heed_tune(HEED_OP_BACKWARD, &backward_, &options));
      case BenchOp::kDecode:
        return RequireOk(heed_tune(HEED_OP_DECODE, &decode_, &options));
    }
  }

 private:
  BenchOp op_;
  Inputs inputs_;
  Outputs outputs_;
  ForwardCall call_;
  heed_backward_args_t backward_ = HEED_BACKWARD_ARGS_INIT;
  heed_decode_args_t decode_ = HEED_DECODE_ARGS_INIT;
};

struct Report {
  std::string chosen;
  std::string default_row;
  bool has_header = false;
};

const char* VerdictText(const heed_tune_row_t& row) {
  switch (row.verdict) {
    case HEED_TUNE_DEFAULT:
      return row.is_chosen == HEED_ON ? "default, chosen" : "default";
    case HEED_TUNE_FASTER:
      return row.is_chosen == HEED_ON ? "faster, chosen" : "faster";
    case HEED_TUNE_NOT_FASTER:
      return "";
    case HEED_TUNE_FAR_SLOWER:
      return "far slower";
    case HEED_TUNE_REFUSED:
      return "refused: ";
  }
  return "";
}

void PrintTuneRow(void* context, const heed_tune_row_t* row) {
  auto& report = *static_cast<Report*>(context);
  if (!report.has_header) {
    std::printf("%-48s %12s %7s %7s\n", "row", "median us", "ratio", "spread");
  }
  report.has_header = true;
  if (row->is_chosen == HEED_ON) report.chosen = row->kernel_id;
  if (row->verdict == HEED_TUNE_DEFAULT) report.default_row = row->kernel_id;
  if (row->verdict == HEED_TUNE_REFUSED) {
    std::printf("%-48s %12s %7s %7s  %s%s\n", row->kernel_id, "-", "-", "-", VerdictText(*row),
                row->reason);
    return;
  }
  const char* verdict = VerdictText(*row);
  std::printf("%-48s %12.5g %7.3f %6.1f%%%s%s\n", row->kernel_id, 1e6 * row->seconds, row->ratio,
              100.0 * row->spread, *verdict != '\0' ? "  " : "", verdict);
}

std::string ChoicesText(heed_info_format_t format) {
  std::size_t needed_bytes = 0;
  RequireOk(heed_tune_describe(format, nullptr, 0, &needed_bytes));
  std::string text(needed_bytes, '\0');
  RequireOk(heed_tune_describe(format, text.data(), text.size(), nullptr));
  text.resize(text.find('\0'));
  return text;
}

int Clear() {
  std::int64_t num_removed = 0;
  RequireOk(heed_tune_clear(&num_removed));
  std::printf("%lld choice%s removed\n", static_cast<long long>(num_removed),
              num_removed == 1 ? "" : "s");
  return kExitOk;
}

int Measure(const Options& options) {
  const TunedProblem problem(options);
  Report report;
  heed_tune_options_t tune = HEED_TUNE_OPTIONS_INIT;
  tune.dry_run = options.tune.dry_run ? HEED_ON : HEED_OFF;
  tune.num_rounds = options.tune.num_rounds;
  tune.slice_seconds = options.tune.slice_seconds;
  tune.report = PrintTuneRow;
  tune.report_context = &report;
  problem.Tune(tune);
  const char* what = report.chosen == report.default_row ? "the default row stays" : "chosen";
  std::printf("%s: %s%s\n", what, report.chosen.c_str(),
              options.tune.dry_run ? " (dry run: not stored)" : "; stored");
  return kExitOk;
}

}  // namespace

int RunTune(const Options& options) {
  if (options.tune.clear) return Clear();
  if (!options.tune.list) return Measure(options);
  std::fputs(ChoicesText(options.tune.json ? HEED_INFO_JSON : HEED_INFO_TEXT).c_str(), stdout);
  return kExitOk;
}

}  // namespace heed::tools
