#include "npy_header.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "errors.h"

namespace heed::tools {
namespace {

// NumPy allows 32 axes (64 since 2.0); the tool has no use for more than 8.
constexpr std::size_t kMaxAxes = 8;

constexpr std::array<std::pair<std::string_view, ElementType>, 8> kDescriptors = {{
    {"<f8", ElementType::kF64},
    {"<f4", ElementType::kF32},
    {"<f2", ElementType::kF16},
    {"<i8", ElementType::kI64},
    {"<i4", ElementType::kI32},
    {"|i1", ElementType::kI8},
    {"|u1", ElementType::kU8},
    {"|b1", ElementType::kBool},
}};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& origin) : rest_(text), origin_(origin) {}

  NpyHeader Parse() {
    Expect('{');
    while (!Consume('}')) {
      const std::string key = Quoted("key");
      Expect(':');
      ParseValue(key);
      if (!Consume(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    if (!rest_.empty()) Fail("header", "text after the closing '}'");
    if (!type_) Fail("header", "'descr' is missing");
    if (!order_) Fail("header", "'fortran_order' is missing");
    if (!shape_) Fail("header", "'shape' is missing");
    return {*type_, *order_, *std::move(shape_)};
  }

 private:
  void ParseValue(const std::string& key) {
    if (key == "descr" && !type_) {
      type_ = Descriptor();
    } else if (key == "fortran_order" && !order_) {
      order_ = Order();
    } else if (key == "shape" && !shape_) {
      shape_ = ShapeTuple();
    } else {
      Fail("header key '" + Printable(key) + "'", "unknown or given twice");
    }
  }

  ElementType Descriptor() {
    SkipSpace();
    if (rest_.starts_with('[')) Fail("descr", "structured arrays are not supported");
    const std::string name = Quoted("descr");
    for (const auto& [descriptor, type] : kDescriptors) {
      if (name == descriptor) return type;
    }
    if (name.starts_with('>')) {
      Fail("descr = '" + Printable(name) + "'", "big-endian data is not supported");
    }
    Fail("descr = '" + Printable(name) + "'",
         "must be one of <f8 <f4 <f2 <i8 <i4 |i1 |u1 |b1 (bf16 needs .safetensors)");
  }

  AxisOrder Order() {
    SkipSpace();
    for (const auto& [word, order] :
         {std::pair{"False", AxisOrder::kRowMajor}, std::pair{"True", AxisOrder::kFortran}}) {
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(std::string_view(word).size());
        return order;
      }
    }
    Fail("fortran_order", "must be True or False");
  }

  std::vector<std::int64_t> ShapeTuple() {
    std::vector<std::int64_t> shape;
    Expect('(');
    while (!Consume(')')) {
      if (shape.size() == kMaxAxes) Fail("shape", "has more than 8 axes");
      shape.push_back(Extent());
      if (!Consume(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  std::int64_t Extent() {
    SkipSpace();
    std::int64_t value = 0;
    const char* end = rest_.data() + rest_.size();
    const auto [next, error] = std::from_chars(rest_.data(), end, value);
    if (error != std::errc() || value < 0) Fail("shape", "extents must be integers >= 0");
    rest_.remove_prefix(static_cast<std::size_t>(next - rest_.data()));
    return value;
  }

  std::string Quoted(const char* what) {
    SkipSpace();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') Fail(what, "expected a quoted text");
    const std::size_t close = rest_.find(quote, 1);
    if (close == std::string_view::npos) Fail(what, "the quoted text does not end");
    std::string text(rest_.substr(1, close - 1));
    rest_.remove_prefix(close + 1);
    return text;
  }

  void SkipSpace() {
    const std::size_t first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }

  bool Consume(char c) {
    SkipSpace();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void Expect(char c) {
    if (!Consume(c)) Fail("header", std::string("expected '") + c + "'");
  }

  [[noreturn]] void Fail(const std::string& field, const std::string& rule) const {
    throw InputError(origin_ + ": " + field + ": " + rule);
  }

  std::string_view rest_;
  const std::string& origin_;
  std::optional<ElementType> type_;
  std::optional<AxisOrder> order_;
  std::optional<std::vector<std::int64_t>> shape_;
};

}  // namespace

NpyHeader ParseNpyHeader(std::string_view text, const std::string& origin) {
  return HeaderParser(text, origin).Parse();
}

std::string NpyHeaderText(const NpyHeader& header) {
  std::string descriptor;
  for (const auto& [name, type] : kDescriptors) {
    if (type == header.type) descriptor = name;
  }
  if (descriptor.empty()) {
    throw InputError(std::string("a .npy file cannot hold ") + ElementTypeName(header.type));
  }
  std::string shape;
  for (const std::int64_t extent : header.shape) shape += std::to_string(extent) + ", ";
  if (header.shape.size() > 1) shape.resize(shape.size() - 2);
  const char* order = header.order == AxisOrder::kFortran ? "True" : "False";
  return "{'descr': '" + descriptor + "', 'fortran_order': " + order + ", 'shape': (" + shape +
         "), }";
}

}  // namespace heed::tools
