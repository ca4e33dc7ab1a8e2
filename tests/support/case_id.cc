// Case ids: formatting and parsing share one table of names per enumeration.
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "support/forward_case.h"

namespace heed::test {
namespace {

template <class T>
using NameTable = std::vector<std::pair<T, std::string_view>>;

const NameTable<Element>& ElementNames() {
  static const NameTable<Element> names = {
      {Element::kF32, "f32"}, {Element::kF16, "f16"}, {Element::kBF16, "bf16"}};
  return names;
}

const NameTable<Layout>& LayoutNames() {
  static const NameTable<Layout> names = {{Layout::kHeadsFirst, "strides-heads-first"},
                                          {Layout::kRowsFirst, "strides-rows-first"},
                                          {Layout::kPadded, "strides-padded"},
                                          {Layout::kSlicedHeads, "strides-sliced"},
                                          {Layout::kBroadcast, "strides-broadcast"},

                                          {Layout::kHugeSingleton, "strides-huge-singleton"}};
  return names;
}

const NameTable<Values>& ValuesNames() {
  static const NameTable<Values> names = {{Values::kLargeScores, "large-scores"},
                                          {Values::kGrowingScores, "growing-scores"},
                                          {Values::kConstant, "constant"},
                                          {Values::kHuge, "huge"},
                                          {Values::kTiny, "tiny"},
                                          {Values::kSubnormal, "subnormal"},
                                          {Values::kOffsetV, "offset-v"},
                                          {Values::kNanKey, "nan-key"}};
  return names;
}

const NameTable<Alibi>& AlibiNames() {
  static const NameTable<Alibi> names = {{Alibi::kPerHead, "alibi-h"},
                                         {Alibi::kPerBatchHead, "alibi-bh"}};
  return names;
}

struct Flag {
  std::string_view token;
  bool ForwardCase::*field;
};
constexpr Flag kFlags[] = {{"causal", &ForwardCase::causal},
                           {"top-left", &ForwardCase::top_left},
                           {"sink", &ForwardCase::sinks},
                           {"varlen-q", &ForwardCase::packed_q},
                           {"varlen-kv", &ForwardCase::packed_kv},
                           {"seqused-q", &ForwardCase::seqused_q},
                           {"seqused-kv", &ForwardCase::seqused_kv},
                           {"fenced", &ForwardCase::fenced},
                           {"no-lse", &ForwardCase::no_lse},
                           {"finite-values", &ForwardCase::finite_values},
                           {"workspace", &ForwardCase::caller_workspace}};

struct Number {
  std::string_view prefix;
  std::int64_t ForwardCase::*field;
  std::int64_t default_value;
};
constexpr Number kNumbers[] = {
    {"b", &ForwardCase::batch, -1},          {"hq", &ForwardCase::num_q_heads, -1},
    {"hkv", &ForwardCase::num_kv_heads, -1}, {"sq", &ForwardCase::q_len, -1},
    {"skv", &ForwardCase::kv_len, -1},       {"d", &ForwardCase::head_dim, -1},
    {"dv", &ForwardCase::head_dim_v, -1},    {"paged", &ForwardCase::page_slots, 0}};

template <class T>
std::string_view NameOf(const NameTable<T>& table, T value) {
  for (const auto& [item, name] : table) {
    if (item == value) return name;
  }
  return {};
}

template <class T>
bool ParseName(const NameTable<T>& table, std::string_view token, T* value) {
  for (const auto& [item, name] : table) {
    if (name != token) continue;
    *value = item;
    return true;
  }
  return false;
}

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string ShortestDecimal(double value) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return {text, result.ptr};
}

constexpr std::string_view kAxisLetters = "bhqk";

// "bias-1h1k-x-f32-inf": axes, expanded by stride 0, element type, with infinities.
std::string FormatPattern(std::string_view name, const ScorePattern& pattern) {
  std::string text(name);
  text += '-';
  for (std::size_t axis = 0; axis < 4; ++axis) {
    text += pattern.has_axis[axis] ? kAxisLetters[axis] : '1';
  }
  if (pattern.expanded) text += "-x";
  text += '-';
  text += ElementName(pattern.element);
  if (pattern.infinities) text += "-inf";
  return text;
}

bool ParsePatternPart(std::string_view part, ScorePattern* pattern) {
  if (part == "x") return pattern->expanded = true;
  if (part == "inf") return pattern->infinities = true;
  for (const Element element :
       {Element::kF32, Element::kF16, Element::kBF16, Element::kU8, Element::kBool}) {
    if (part != ElementName(element)) continue;
    pattern->element = element;
    return true;
  }
  return false;
}

bool ParsePattern(std::string_view text, ScorePattern* pattern) {
  if (text.size() < 4) return false;
  pattern->present = true;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    pattern->has_axis[axis] = text[axis] == kAxisLetters[axis];
    if (!pattern->has_axis[axis] && text[axis] != '1') return false;
  }
  std::istringstream parts{std::string(text.substr(4))};
  std::string part;
  std::getline(parts, part, '-');  // the empty part before the first '-'
  while (std::getline(parts, part, '-')) {
    if (!ParsePatternPart(part, pattern)) return false;
  }
  return true;
}

bool ParseWindow(std::string_view text, ForwardCase* result) {
  const std::size_t comma = text.find(',');
  return comma != std::string_view::npos &&
         ParseNumber(text.substr(0, comma), &result->window_left) &&
         ParseNumber(text.substr(comma + 1), &result->window_right);
}

bool ParseValuedToken(std::string_view token, ForwardCase* result) {
  const auto rest = [&](std::string_view prefix) -> std::optional<std::string_view> {
    if (!token.starts_with(prefix)) return std::nullopt;
    return token.substr(prefix.size());
  };
  if (const auto text = rest("win")) return ParseWindow(*text, result);
  if (const auto text = rest("scale")) return ParseNumber(*text, &result->scale.emplace());
  if (const auto text = rest("cap")) return ParseNumber(*text, &result->softcap);
  if (const auto text = rest("drop")) return ParseNumber(*text, &result->dropout_p);
  if (const auto text = rest("bias-")) return ParsePattern(*text, &result->bias);
  if (const auto text = rest("mask-")) return ParsePattern(*text, &result->mask);
  for (const Number& number : kNumbers) {
    const auto text = rest(number.prefix);
    if (text && ParseNumber(*text, &(result->*number.field))) return true;
  }
  if (const auto text = rest("t")) return ParseNumber(*text, &result->num_threads);
  if (const auto text = rest("s")) return ParseNumber(*text, &result->seed);
  return false;
}

bool ParseToken(std::string_view token, ForwardCase* result) {
  for (const Flag& flag : kFlags) {
    if (token == flag.token) return result->*flag.field = true;
  }
  return ParseName(ElementNames(), token, &result->element) ||
         ParseName(LayoutNames(), token, &result->layout) ||
         ParseName(ValuesNames(), token, &result->values) ||
         ParseName(AlibiNames(), token, &result->alibi) || ParseValuedToken(token, result);
}

}  // namespace

std::string FormatCaseId(const ForwardCase& forward_case) {
  std::string id = "fwd";
  const auto add = [&id](std::string_view token) {
    if (!token.empty()) (id += ':') += token;
  };
  for (const Number& number : kNumbers) {
    const std::int64_t value = forward_case.*number.field;
    if (value != number.default_value) add(std::string(number.prefix) + std::to_string(value));
  }
  add(NameOf(ElementNames(), forward_case.element));
  if (forward_case.window_left != -1 || forward_case.window_right != -1) {
    add("win" + std::to_string(forward_case.window_left) + "," +
        std::to_string(forward_case.window_right));
  }
  if (forward_case.scale) add("scale" + ShortestDecimal(*forward_case.scale));
  if (forward_case.softcap != 0.0) add("cap" + ShortestDecimal(forward_case.softcap));
  add(NameOf(AlibiNames(), forward_case.alibi));
  if (forward_case.bias.present) add(FormatPattern("bias", forward_case.bias));
  if (forward_case.mask.present) add(FormatPattern("mask", forward_case.mask));
  if (forward_case.dropout_p != 0.0) add("drop" + ShortestDecimal(forward_case.dropout_p));
  for (const Flag& flag : kFlags) {
    if (forward_case.*flag.field) add(flag.token);
  }
  add(NameOf(LayoutNames(), forward_case.layout));
  add(NameOf(ValuesNames(), forward_case.values));
  if (forward_case.num_threads != 1) add("t" + std::to_string(forward_case.num_threads));
  add("s" + std::to_string(forward_case.seed));
  return id;
}

std::optional<ForwardCase> ParseCaseId(const std::string& id, std::string* error) {
  ForwardCase result;
  std::istringstream tokens(id);
  std::string token;
  if (!std::getline(tokens, token, ':') || token != "fwd") {
    *error = "a case id begins with 'fwd:'";
    return std::nullopt;
  }
  while (std::getline(tokens, token, ':')) {
    if (ParseToken(token, &result)) continue;
    *error = "unknown token '" + token + "'";
    return std::nullopt;
  }
  return result;
}

}  // namespace heed::test
