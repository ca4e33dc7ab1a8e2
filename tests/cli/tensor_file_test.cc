// Tensor files: round trips, and files that are cut short or lie.
#include "tensor_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <string>

namespace heed::tools {
namespace {

Tensor Counting(ElementType type, std::vector<std::int64_t> shape) {
  Tensor tensor = MakeTensor(type, std::move(shape));
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i) {
    tensor.bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);
  }
  return tensor;
}

Bytes FromText(const std::string& text) { return Bytes(text.begin(), text.end()); }

// A .npy file of version 1 with this header text and this many data bytes.
Bytes NpyWith(const std::string& header, std::size_t data_bytes) {
  std::string file = "\x93NUMPY";
  file +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return FromText(file + header + std::string(data_bytes, 'x'));
}

Bytes SafetensorsWith(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i));
  return FromText(file + header + std::string(data_bytes, 'x'));
}

// The parser's message, "" when it accepts.
template <class Parser>
std::string ErrorOf(Parser parse, const Bytes& file) {
  try {
    parse(file.data(), file.size(), "file");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

const auto kParseNpy = [](auto... args) { ParseNpy(args...); };
const auto kParseNpz = [](auto... args) { ParseNpz(args...); };
const auto kParseSafetensors = [](auto... args) { ParseSafetensors(args...); };

void ExpectSame(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.bytes, b.bytes);
}

const std::vector<std::vector<std::int64_t>> kShapes = {{}, {5}, {2, 3, 4}, {3, 0, 2}, {1}};

TEST(Npy, RoundTripsEveryTypeAndRank) {
  for (const ElementType type :
       {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kI64,
        ElementType::kI32, ElementType::kI8, ElementType::kU8, ElementType::kBool}) {
    for (const auto& shape : kShapes) {
      const Tensor tensor = Counting(type, shape);
      const Bytes file = SerializeNpy(tensor);
      EXPECT_EQ((file.size() - tensor.bytes.size()) % 64, 0u);
      ExpectSame(ParseNpy(file.data(), file.size(), "file"), tensor);
    }
  }
}

TEST(Npy, CannotHoldBfloat16) {
  EXPECT_THROW(SerializeNpy(Counting(ElementType::kBF16, {2})), InputError);
}

TEST(Npy, FortranOrderBecomesRowMajor) {
  // Column-major 2 x 3: columns (0,1), (2,3), (4,5).
  Bytes file = NpyWith("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", 6);
  for (std::uint8_t i = 0; i < 6; ++i) file[file.size() - 6 + i] = i;
  const Tensor tensor = ParseNpy(file.data(), file.size(), "file");
  EXPECT_EQ(tensor.bytes, (Bytes{0, 2, 4, 1, 3, 5}));
}

TEST(Npy, AcceptsVersions2And3) {
  const Bytes version1 = SerializeNpy(Counting(ElementType::kF32, {3}));
  for (const std::uint8_t version : {2, 3}) {
    Bytes file = version1;
    file[6] = version;
    file.insert(file.begin() + 10, {0, 0});  // the length field has four bytes
    EXPECT_EQ(ErrorOf(kParseNpy, file), "");
  }
}

TEST(Npy, RefusesEveryTruncation) {
  const Bytes file = SerializeNpy(Counting(ElementType::kF32, {3, 2}));
  for (std::size_t kept = 0; kept < file.size(); ++kept) {
    EXPECT_NE(ErrorOf(kParseNpy, Bytes(file.begin(), file.begin() + kept)), "") << kept;
  }
}

TEST(Npy, RefusesLyingHeaders) {
  const struct {
    const char* header;
    const char* reason;
  } cases[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "needs 12 bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "needs 4 bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "integers >= 0"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 2), }",
       "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "integers"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,), }", "expected ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2), }", "8 axes"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "big-endian"},
      {"{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }", "must be one of"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "structured"},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }", "True or False"},
      {"{'descr': '<f4', 'shape': (2,), }", "'fortran_order' is missing"},
      {"{'fortran_order': False, 'shape': (2,), }", "'descr' is missing"},
      {"{'descr': '<f4', 'fortran_order': False, }", "'shape' is missing"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "given twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "unknown"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", "after the closing"},
      {"{'descr': '<f4", "does not end"},
      {"", "expected '{'"},
  };
  for (const auto& c : cases) {
    const std::string error = ErrorOf(kParseNpy, NpyWith(c.header, 8));
    EXPECT_NE(error.find(c.reason), std::string::npos) << c.header << "\n" << error;
  }
  Bytes version9 = NpyWith(cases[0].header, 12);
  version9[6] = 9;
  EXPECT_NE(ErrorOf(kParseNpy, version9).find("version = 9"), std::string::npos);
}

TEST(Npz, RoundTripsAndFilters) {
  const std::vector<NamedTensor> tensors = {{"q", Counting(ElementType::kF32, {2, 3})},
                                            {"layer0.k", Counting(ElementType::kI64, {4})}};
  const Bytes file = SerializeNpz(tensors);
  const auto read = ParseNpz(file.data(), file.size(), "file");
  ASSERT_EQ(read.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read[i].name, tensors[i].name);
    ExpectSame(read[i].tensor, tensors[i].tensor);
  }
  const auto one =
      ParseNpz(file.data(), file.size(), "file", [](std::string_view name) { return name == "q"; });
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "q");
}

TEST(Npz, RefusesEveryTruncation) {
  const std::vector<NamedTensor> tensors = {{"q", Counting(ElementType::kF32, {2})}};
  const Bytes file = SerializeNpz(tensors);
  for (std::size_t kept = 0; kept < file.size(); ++kept) {
    EXPECT_NE(ErrorOf(kParseNpz, Bytes(file.begin(), file.begin() + kept)), "") << kept;
  }
}

// Whatever a single damaged byte does, the parser answers with a result or an InputError.
TEST(Npz, SurvivesEveryDamagedByte) {
  const std::vector<NamedTensor> tensors = {{"q", Counting(ElementType::kF32, {2})},
                                            {"k", Counting(ElementType::kU8, {3})}};
  const Bytes file = SerializeNpz(tensors);
  int num_refused = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const std::uint8_t value : {0x00, 0x7f, 0xff}) {
      Bytes damaged = file;
      damaged[i] = value;
      num_refused += ErrorOf(kParseNpz, damaged).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, static_cast<int>(file.size()) / 2);
}

void PutLe(Bytes* out, std::uint64_t value, int width_bytes) {
  for (int i = 0; i < width_bytes; ++i) out->push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

// A one-member archive with a deflated member; declared_bytes may lie.
Bytes DeflatedNpz(const Bytes& content, std::uint64_t declared_bytes) {
  Bytes packed(compressBound(content.size()));
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);

  const std::uint64_t crc = crc32_z(0, content.data(), content.size());
  const auto common = [&](Bytes* out) {
    PutLe(out, 20, 2);  // version
    PutLe(out, 0, 2);   // flags
    PutLe(out, 8, 2);   // deflated
    PutLe(out, 0, 4);   // time, date
    PutLe(out, crc, 4);
    PutLe(out, packed.size(), 4);
    PutLe(out, declared_bytes, 4);
    PutLe(out, 5, 2);  // name length
    PutLe(out, 0, 2);  // extra length
  };
  const Bytes name = FromText("q.npy");
  Bytes file;
  PutLe(&file, 0x04034b50, 4);
  common(&file);
  file.insert(file.end(), name.begin(), name.end());
  file.insert(file.end(), packed.begin(), packed.end());
  const std::size_t directory = file.size();
  PutLe(&file, 0x02014b50, 4);
  PutLe(&file, 20, 2);
  common(&file);
  file.resize(directory + 46);  // comment, disk, attributes and the local header's position: 0
  file.insert(file.end(), name.begin(), name.end());
  const std::size_t directory_bytes = file.size() - directory;
  PutLe(&file, 0x06054b50, 4);
  PutLe(&file, 0, 4);
  PutLe(&file, 1, 2);
  PutLe(&file, 1, 2);
  PutLe(&file, directory_bytes, 4);
  PutLe(&file, directory, 4);
  PutLe(&file, 0, 2);
  return file;
}

TEST(Npz, ReadsDeflatedMembers) {
  const Tensor tensor = Counting(ElementType::kF32, {700, 1024});  // more than one inflate piece
  const Bytes content = SerializeNpy(tensor);
  const Bytes file = DeflatedNpz(content, content.size());
  const auto read = ParseNpz(file.data(), file.size(), "file");
  ASSERT_EQ(read.size(), 1u);
  ExpectSame(read[0].tensor, tensor);
}

TEST(Npz, RefusesLyingSizes) {
  const Bytes content = SerializeNpy(MakeTensor(ElementType::kF32, {100000}));
  const std::uint64_t real = content.size();
  const struct {
    std::uint64_t declared_bytes;
    const char* reason;
  } cases[] = {{real - 1, "more than the declared"},
               {real + 1, "ends early"},
               {0, "more than the declared"},
               {0xfffffff0, "cannot hold"}};
  for (const auto& c : cases) {
    const std::string error = ErrorOf(kParseNpz, DeflatedNpz(content, c.declared_bytes));
    EXPECT_NE(error.find(c.reason), std::string::npos) << c.declared_bytes << ": " << error;
  }
  Bytes damaged = DeflatedNpz(content, real);
  damaged[30 + 5 + 40] ^= 0xff;
  EXPECT_NE(ErrorOf(kParseNpz, damaged), "");
}

TEST(Npz, RefusesDuplicateNamesAndBadChecksums) {
  const NamedTensor q = {"q", Counting(ElementType::kF32, {2})};
  const std::vector<NamedTensor> twice = {q, q};
  EXPECT_NE(ErrorOf(kParseNpz, SerializeNpz(twice)).find("given twice"), std::string::npos);

  const std::vector<NamedTensor> once = {q};
  Bytes file = SerializeNpz(once);
  file[30 + 5 + 128] ^= 1;  // first data byte: local header, "q.npy", npy header
  EXPECT_NE(ErrorOf(kParseNpz, file).find("CRC-32"), std::string::npos);
}

TEST(Safetensors, RoundTripsEveryTypeAndRank) {
  std::vector<NamedTensor> tensors;
  for (int type = 0; type < 9; ++type) {
    for (std::size_t s = 0; s < kShapes.size(); ++s) {
      tensors.push_back({std::to_string(type) + "." + std::to_string(s),
                         Counting(static_cast<ElementType>(type), kShapes[s])});
    }
  }
  const Bytes file = SerializeSafetensors(tensors);
  const auto read = ParseSafetensors(file.data(), file.size(), "file");
  ASSERT_EQ(read.size(), tensors.size());
  for (const NamedTensor& got : read) {
    for (const NamedTensor& want : tensors) {
      if (want.name == got.name) ExpectSame(got.tensor, want.tensor);
    }
  }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::vector<NamedTensor> tensors = {{"q", Counting(ElementType::kBF16, {2, 2})},
                                            {"k", Counting(ElementType::kF32, {1})}};
  const Bytes file = SerializeSafetensors(tensors);
  for (std::size_t kept = 0; kept < file.size(); ++kept) {
    EXPECT_NE(ErrorOf(kParseSafetensors, Bytes(file.begin(), file.begin() + kept)), "") << kept;
  }
}

TEST(Safetensors, RefusesLyingHeaders) {
  const std::string f32 = R"("dtype":"F32","shape":[2],"data_offsets":)";
  const struct {
    std::string header;
    const char* reason;
  } cases[] = {
      {"{\"a\":{" + f32 + "[0,8]},\"a\":{" + f32 + "[0,8]}}", "given twice"},
      {"{\"a\":{" + f32 + "[0,8]},\"b\":{" + f32 + "[0,8]}}", "may not overlap"},
      {"{\"a\":{" + f32 + "[0,8]},\"b\":{" + f32 + "[4,12]}}", "may not overlap"},
      {"{\"a\":{" + f32 + "[8,16]}}", "leave holes"},
      {"{\"a\":{" + f32 + "[0,16]}}", "cover 16 bytes"},
      {"{\"a\":{" + f32 + "[8,0]}}", "begin <= end"},
      {"{\"a\":{" + f32 + "[0]}}", "[begin, end]"},
      {"{\"a\":{" + f32 + "[-8,0]}}", "integers >= 0"},
      {"{\"a\":{" + f32 + "[0,8.0]}}", "integers >= 0"},
      {"{\"a\":{" + f32 + "[0,99999999999999999999]}}", "integers >= 0"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "does not fill"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "does not fill"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "must be an array"},
      {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", "dtype = C64"},
      {R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", "must be a text"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "must be a text"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "must be an array"},
      {R"({"a":7})", "must be a JSON object"},
      {R"([1,2])", "must be a JSON object"},
      {R"({"a":[[[[[[]]]]]]})", "too deep"},
      {R"({"a":)", "not valid JSON"},
      {"{\"\xff\":1}", "not valid JSON"},
      {"", "not valid JSON"},
      {"{}", "cover 0 bytes"},
  };
  for (const auto& c : cases) {
    const std::string error = ErrorOf(kParseSafetensors, SafetensorsWith(c.header, 8));
    EXPECT_NE(error.find(c.reason), std::string::npos) << c.header << "\n" << error;
  }
}

TEST(Safetensors, RefusesHeaderLengthsPastTheFile) {
  for (const std::uint64_t header_bytes :
       {std::uint64_t{3}, std::uint64_t{100'000'000}, std::uint64_t{100'000'001}, UINT64_MAX}) {
    Bytes file;
    PutLe(&file, header_bytes, 8);
    file.insert(file.end(), {'{', '}'});
    EXPECT_NE(ErrorOf(kParseSafetensors, file).find("header length"), std::string::npos);
  }
}

TEST(Safetensors, IgnoresMetadataAndPadding) {
  const Bytes file = SafetensorsWith(R"({"__metadata__":{"format":"pt"}}   )", 0);
  EXPECT_EQ(ErrorOf(kParseSafetensors, file), "");
}

TEST(Safetensors, ErrorsStayOnOneLine) {
  const Bytes file = SafetensorsWith(
      "{\"a\\nb\":{\"dtype\":\"X\\u001b[2J\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
  const std::string error = ErrorOf(kParseSafetensors, file);
  EXPECT_EQ(error.find_first_of("\n\x1b"), std::string::npos) << error;
  EXPECT_NE(error, "");
}

}  // namespace
}  // namespace heed::tools
