#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "byte_reader.h"
#include "byte_writer.h"
#include "tensor_file.h"

namespace heed::tools {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
// The format's own limit on the header.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// The header object, a tensor's object, its arrays.
constexpr int kMaxDepth = 3;

constexpr std::array<std::pair<std::string_view, ElementType>, 9> kTypes = {{
    {"F64", ElementType::kF64},
    {"F32", ElementType::kF32},
    {"F16", ElementType::kF16},
    {"BF16", ElementType::kBF16},
    {"I64", ElementType::kI64},
    {"I32", ElementType::kI32},
    {"I8", ElementType::kI8},
    {"U8", ElementType::kU8},
    {"BOOL", ElementType::kBool},
}};

struct Entry {
  std::string name;
  const Json* fields = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The JSON library keeps the last of two equal keys and nests without limit; both are refused here.
class StructureGuard {
 public:
  explicit StructureGuard(const ByteReader& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) file_.Fail("header", "nested too deep");
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        file_.Fail("header key '" + Printable(key) + "'", "given twice");
      }
    }
    return true;
  }

 private:
  const ByteReader& file_;
  std::vector<std::set<std::string>> keys_;
};

Json ParseHeader(const ByteReader& file, std::uint64_t header_bytes) {
  const std::string_view text = file.Text(kLengthBytes, header_bytes, "header length");
  StructureGuard guard(file);
  try {
    Json header = Json::parse(text, std::ref(guard));
    if (!header.is_object()) file.Fail("header", "must be a JSON object");
    return header;
  } catch (const Json::exception&) {
    file.Fail("header", "is not valid JSON");
  }
}

std::string Field(const Entry& entry, const char* field) {
  return "tensor '" + Printable(entry.name) + "' " + field;
}

// An array of integers >= 0 that fit in 63 bits.
std::vector<std::int64_t> Integers(const ByteReader& file, const Entry& entry, const char* field) {
  const auto found = entry.fields->find(field);
  if (found == entry.fields->end() || !found->is_array()) {
    file.Fail(Field(entry, field), "must be an array");
  }
  std::vector<std::int64_t> values;
  for (const Json& item : *found) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > INT64_MAX) {
      file.Fail(Field(entry, field), "must hold integers >= 0");
    }
    values.push_back(item.get<std::int64_t>());
  }
  return values;
}

ElementType ReadType(const ByteReader& file, const Entry& entry) {
  const auto found = entry.fields->find("dtype");
  if (found == entry.fields->end() || !found->is_string()) {
    file.Fail(Field(entry, "dtype"), "must be a text");
  }
  const auto& name = found->get_ref<const std::string&>();
  for (const auto& [text, type] : kTypes) {
    if (name == text) return type;
  }
  file.Fail(Field(entry, "dtype") + " = " + Printable(name),
            "must be one of F64 F32 F16 BF16 I64 I32 I8 U8 BOOL");
}

std::vector<Entry> ReadEntries(const ByteReader& file, const Json& header) {
  std::vector<Entry> entries;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") continue;
    Entry entry{name, &fields};
    if (!fields.is_object()) file.Fail(Field(entry, "entry"), "must be a JSON object");
    const auto offsets = Integers(file, entry, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      file.Fail(Field(entry, "data_offsets"), "must be [begin, end] with begin <= end");
    }
    entry.begin = static_cast<std::uint64_t>(offsets[0]);
    entry.end = static_cast<std::uint64_t>(offsets[1]);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// The format demands that the tensors tile the data: no hole, no overlap, nothing left over.
void CheckTiling(const ByteReader& file, std::vector<Entry> entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      file.Fail(Field(entry, "data_offsets") + "[0] = " + std::to_string(entry.begin),
                "must be " + std::to_string(expected) + ": tensors may not overlap or leave holes");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    file.Fail("data", "the tensors cover " + std::to_string(expected) + " bytes, but " +
                          std::to_string(data_bytes) + " follow the header");
  }
}

Tensor ReadTensor(const ByteReader& file, const Entry& entry, std::uint64_t data_position,
                  const NameFilter& keep) {
  const ElementType type = ReadType(file, entry);
  std::vector<std::int64_t> shape = Integers(file, entry, "shape");
  const auto needed_bytes = CompactBytes(type, shape);
  if (!needed_bytes || *needed_bytes != entry.end - entry.begin) {
    file.Fail(Field(entry, "shape") + " = " + Printable(ShapeText(shape)) + " of " +
                  ElementTypeName(type),
              "does not fill the " + std::to_string(entry.end - entry.begin) +
                  " bytes of its data_offsets");
  }
  if (!keep(entry.name)) return {};
  Tensor tensor = MakeTensor(type, std::move(shape));
  std::copy_n(file.At(data_position + entry.begin), tensor.bytes.size(), tensor.bytes.data());
  return tensor;
}

}  // namespace

std::vector<NamedTensor> ParseSafetensors(const std::uint8_t* bytes, std::size_t num_bytes,
                                          const std::string& origin, const NameFilter& keep) {
  const ByteReader file(bytes, num_bytes, origin);
  const std::uint64_t header_bytes = file.Unsigned(0, kLengthBytes, "header length");
  if (header_bytes > kMaxHeaderBytes) {
    file.Fail("header length = " + std::to_string(header_bytes), "must be at most 100000000");
  }
  const Json header = ParseHeader(file, header_bytes);
  const std::vector<Entry> entries = ReadEntries(file, header);
  const std::uint64_t data_position = kLengthBytes + header_bytes;
  CheckTiling(file, entries, num_bytes - data_position);

  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries) {
    Tensor tensor = ReadTensor(file, entry, data_position, keep);
    if (keep(entry.name)) tensors.push_back({entry.name, std::move(tensor)});
  }
  return tensors;
}

Bytes SerializeSafetensors(std::span<const NamedTensor> tensors) {
  // Wider types first, so that every tensor is aligned to its own element.
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& named : tensors) ordered.push_back(&named);
  std::stable_sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return ElementBytes(a->tensor.type) > ElementBytes(b->tensor.type);
  });

  Json header = Json::object();
  std::uint64_t begin = 0;
  for (const NamedTensor* named : ordered) {
    const Tensor& tensor = named->tensor;
    const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const auto& row) { return row.second == tensor.type; });
    header[named->name] = {{"dtype", type->first},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, begin + tensor.bytes.size()}}};
    begin += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  ByteWriter out(kLengthBytes + text.size() + begin);
  out.Unsigned(text.size(), 8);
  out.Text(text);
  for (const NamedTensor* named : ordered) out.Raw(named->tensor.bytes);
  return out.Take();
}

}  // namespace heed::tools
