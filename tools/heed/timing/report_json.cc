#include <nlohmann/json.hpp>

#include "plain_attention.h"
#include "report.h"
#include "tools/heed/info.h"

namespace heed::tools {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const Statistics& s) {
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}, {"spread", s.spread}};
}

Json ToJson(const std::optional<std::size_t>& value) { return value ? Json(*value) : Json(); }

const char* OpName(BenchOp op) {
  switch (op) {
    case BenchOp::kForward:
      return "forward";
    case BenchOp::kBackward:
      return "backward";
    case BenchOp::kDecode:
      return "decode";
  }
  return "";
}

Json ProblemJson(const BenchCase& bench_case) {
  const ResolvedShape shape = Resolve(bench_case.problem.shape);
  const ScoreOptions& score = bench_case.problem.score;
  return {{"op", OpName(bench_case.problem.bench.op)},
          {"dtype", ElementTypeName(bench_case.problem.type.value_or(ElementType::kF32))},
          {"batch", shape.batch},
          {"num_q_heads", shape.num_q_heads},
          {"num_kv_heads", shape.num_kv_heads},
          {"q_len", shape.q_len},
          {"kv_len", shape.kv_len},
          {"head_dim", shape.head_dim},
          {"head_dim_v", shape.head_dim_v},
          {"causal", score.causal == HEED_CAUSAL_ON},
          {"alignment", score.alignment == HEED_ALIGN_TOP_LEFT ? "top-left" : "bottom-right"},
          {"window", score.window},
          {"softcap", score.softcap},
          {"dropout_p", score.dropout_p},
          {"threads", bench_case.num_threads}};
}

Json RoofsJson(const Measurement& m) {
  Json roofs = Json::array();
  for (const RoofShare& roof : m.roofs) {
    roofs.push_back({{"name", roof.name},
                     {"ops_per_second", ToJson(roof.ops_per_second)},
                     {"fraction", ToJson(roof.fraction)},
                     {"width_times_clock_ops_per_second", roof.width_ops_per_second}});
  }
  return roofs;
}

Json PlainJson(const PlainResult& plain, const Measurement& m) {
  if (!plain.not_run.empty()) {
    return {{"not_run", plain.not_run}, {"score_bytes", plain.score_bytes}};
  }
  return {{"target", PlainTargetName()},
          {"seconds", plain.seconds},
          {"speedup", plain.seconds / m.seconds.median},
          {"score_bytes", plain.score_bytes},
          {"rss_growth_bytes", ToJson(plain.rss_growth_bytes)},
          {"max_abs_difference", plain.max_abs_difference}};
}

const char* VerdictName(BarVerdict verdict) {
  switch (verdict) {
    case BarVerdict::kReached:
      return "reached";
    case BarVerdict::kWithinNoise:
      return "within_noise";
    case BarVerdict::kMissed:
      return "missed";
    case BarVerdict::kNotGated:
      return "not_gated";
  }
  return "";
}

Json RowJson(const BenchRow& row) {
  const Measurement& m = row.measurement;
  Json json = {{"case", row.bench_case.name},
               {"kernel", m.kernel_id},
               {"problem", ProblemJson(row.bench_case)},
               {"slices", m.num_slices},
               {"runs_per_slice", m.runs_per_slice},
               {"seconds", ToJson(m.seconds)},
               {"useful_flops", m.useful_flops},
               {"tflops", m.flops_per_second() / 1e12},
               {"roofs", RoofsJson(m)},
               {"tensor_bytes", m.tensor_bytes},
               {"workspace_bytes", m.workspace_bytes},
               {"rss_growth_bytes", ToJson(m.rss_growth_bytes)}};
  if (m.plain) json["materialized"] = PlainJson(*m.plain, m);
  if (row.bar) {
    json["bar"] = {{"limit", row.bench_case.bar->limit},
                   {"value", row.bar->value},
                   {"verdict", VerdictName(row.bar->verdict)}};
  }
  return json;
}

}  // namespace

std::string BenchJson(const MachineFacts& machine, const std::vector<BenchRow>& rows) {
  Json json = {{"heed", heed_version()},
               {"command", machine.command},
               {"clock_hz", machine.clock_hz},
               {"library", Json::parse(InfoText(HEED_INFO_JSON), nullptr, false)},
               {"rows", Json::array()}};
  for (const BenchRow& row : rows) json["rows"].push_back(RowJson(row));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace heed::tools
