#include "support/backward_case.h"

#include <sstream>
#include <string_view>

#include "support/random.h"

namespace heed::test {
namespace {

struct Flag {
  std::string_view token;
  bool BackwardCase::*field;
};
constexpr Flag kFlags[] = {{"d-lse", &BackwardCase::d_lse},
                           {"d-sinks", &BackwardCase::d_sinks},
                           {"deterministic", &BackwardCase::deterministic},
                           {"dead-poison", &BackwardCase::dead_poison}};
constexpr std::string_view kBiasPrefix = "d-bias-";

bool ParseToken(std::string_view token, BackwardCase* result) {
  for (const Flag& flag : kFlags) {
    if (token == flag.token) return result->*flag.field = true;
  }
  if (!token.starts_with(kBiasPrefix)) return false;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (token.substr(kBiasPrefix.size()) != ElementName(element)) continue;
    result->d_bias = element;
    return true;
  }
  return false;
}

}  // namespace

std::string WhyNoBackward(const BackwardCase& backward_case) {
  const ForwardCase& forward = backward_case.forward;
  if (forward.no_lse) return "no-lse: backward reads lse";
  if (forward.values == Values::kNanKey) return "nan-key: backward needs finite keys";
  // The error of such scores is far above 1, so exp(score - lse) may be anything.
  if (forward.values == Values::kHuge) return "huge: weights recomputed from lse have no bound";
  if (backward_case.d_sinks && !forward.sinks) return "d-sinks: needs sink";
  if (!backward_case.d_bias) return "";
  if (!forward.bias.present) return "d-bias: needs bias";
  if (*backward_case.d_bias == Element::kF32 || *backward_case.d_bias == forward.element) return "";
  return "d-bias: its type is f32 or the case's";
}

std::string FormatBackwardCaseId(const BackwardCase& backward_case) {
  std::string id = FormatCaseId(backward_case.forward);
  id.replace(0, id.find(':'), "bwd");
  const auto add = [&id](std::string_view token) { (id += ':') += token; };
  if (backward_case.d_bias) add(std::string(kBiasPrefix) + ElementName(*backward_case.d_bias));
  for (const Flag& flag : kFlags) {
    if (backward_case.*flag.field) add(flag.token);
  }
  return id;
}

std::optional<BackwardCase> ParseBackwardCaseId(const std::string& id, std::string* error) {
  BackwardCase result;
  std::istringstream tokens(id);
  std::string token;
  if (!std::getline(tokens, token, ':') || token != "bwd") {
    *error = "a backward case id begins with 'bwd:'";
    return std::nullopt;
  }
  std::string forward_id = "fwd";
  while (std::getline(tokens, token, ':')) {
    if (!ParseToken(token, &result)) (forward_id += ':') += token;
  }
  const auto forward = ParseCaseId(forward_id, error);
  if (!forward) return std::nullopt;
  result.forward = *forward;
  *error = WhyNoBackward(result);
  if (!error->empty()) return std::nullopt;
  return result;
}

BackwardCase GenerateBackwardCase(std::uint64_t seed, std::uint64_t index, double max_cost) {
  BackwardCase result;
  result.forward = GenerateCase(seed, index, max_cost);
  result.forward.no_lse = false;
  if (result.forward.values == Values::kNanKey || result.forward.values == Values::kHuge) {
    result.forward.values = Values::kNormal;
  }
  Random random(seed, "backward case " + std::to_string(index));
  result.d_lse = random.Chance(0.4);
  const bool with_d_sinks = random.Chance(0.8);
  result.d_sinks = with_d_sinks && result.forward.sinks;
  const bool with_d_bias = random.Chance(0.7);
  const Element d_bias = random.Chance(0.5) ? Element::kF32 : result.forward.element;
  if (with_d_bias && result.forward.bias.present) result.d_bias = d_bias;
  result.deterministic = random.Chance(0.3);
  result.dead_poison = random.Chance(0.3);
  return result;
}

}  // namespace heed::test
