#include "gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

// Types of metadata values, and of tensors.
enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray };
enum LateValueType : std::uint32_t { kU64 = 10, kI64 = 11, kF64 = 12 };
enum TensorType : std::uint32_t {
  kTensorF32 = 0,
  kTensorF16 = 1,
  kTensorQ4_1 = 3,
  kTensorQ8_0 = 8
};

constexpr std::size_t kBlockElems = 32;  // of a quantised row

float HalfToFloat(const std::uint8_t* source) {
  std::uint16_t half;
  std::memcpy(&half, source, sizeof(half));
  const int exponent = (half >> 10) & 0x1F;
  const int mantissa = half & 0x3FF;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0x1F) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

// One block of 32: scale, then 32 int8.
void DequantizeQ8(const std::uint8_t* block, float* out) {
  const float scale = HalfToFloat(block);
  for (std::size_t n = 0; n < kBlockElems; ++n) {
    out[n] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + n]));
  }
}

// Scale, minimum, then 16 bytes: low nibbles are elements 0 to 15, high ones 16 to 31.
void DequantizeQ4(const std::uint8_t* block, float* out) {
  const float scale = HalfToFloat(block);
  const float minimum = HalfToFloat(block + 2);
  for (std::size_t n = 0; n < kBlockElems / 2; ++n) {
    out[n] = static_cast<float>(block[4 + n] & 0xF) * scale + minimum;
    out[n + kBlockElems / 2] = static_cast<float>(block[4 + n] >> 4) * scale + minimum;
  }
}

}  // namespace

// Takes values off the front of the file.
class GgufFile::Reader {
 public:
  Reader(const std::vector<std::uint8_t>& bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  std::size_t at() const { return at_; }

  template <class T>
  T Take() {
    T value;
    std::memcpy(&value, TakeBytes(sizeof(T)), sizeof(T));
    return value;
  }

  std::string TakeString() {
    const auto num_bytes = Take<std::uint64_t>();
    const auto* begin = reinterpret_cast<const char*>(TakeBytes(num_bytes));
    return {begin, begin + num_bytes};
  }

  double TakeNumber(std::uint32_t type) {
    switch (type) {
      case kU8:
        return Take<std::uint8_t>();
      case kI8:
        return Take<std::int8_t>();
      case kU16:
        return Take<std::uint16_t>();
      case kI16:
        return Take<std::int16_t>();
      case kU32:
        return Take<std::uint32_t>();
      case kI32:
        return Take<std::int32_t>();
      case kF32:
        return Take<float>();
      case kBool:
        return Take<std::uint8_t>();
      case kU64:
        return static_cast<double>(Take<std::uint64_t>());
      case kI64:
        return static_cast<double>(Take<std::int64_t>());
      case kF64:
        return Take<double>();
      default:
        throw std::runtime_error("GGUF: unknown type of a metadata value");
    }
  }

 private:
  const std::uint8_t* TakeBytes(std::uint64_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("GGUF: the file is cut");
    const std::uint8_t* begin = bytes_.data() + at_;
    at_ += count;
    return begin;
  }

  const std::vector<std::uint8_t>& bytes_;
  std::size_t at_;
};

GgufFile::GgufFile(const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error(path + ": cannot be opened");
  stream.seekg(0, std::ios::end);
  bytes_.resize(static_cast<std::size_t>(stream.tellg()));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  Reader reader(bytes_, 0);
  if (reader.Take<std::uint32_t>() != 0x46554747 || reader.Take<std::uint32_t>() < 2) {
    throw std::runtime_error(path + ": is not a GGUF file of version 2 or later");
  }
  const auto num_tensors = reader.Take<std::uint64_t>();
  const auto num_fields = reader.Take<std::uint64_t>();
  for (std::uint64_t n = 0; n < num_fields; ++n) ReadField(&reader);
  for (std::uint64_t n = 0; n < num_tensors; ++n) ReadTensorInfo(&reader);
  const auto found = numbers_.find("general.alignment");
  const auto alignment =
      found == numbers_.end() ? std::size_t{32} : static_cast<std::size_t>(found->second);
  if (alignment == 0) throw std::runtime_error("GGUF: general.alignment is 0");
  data_at_ = (reader.at() + alignment - 1) / alignment * alignment;
}

void GgufFile::ReadField(Reader* reader) {
  const std::string key = reader->TakeString();
  const auto type = reader->Take<std::uint32_t>();
  if (type == kString) {
    texts_[key] = reader->TakeString();
    return;
  }
  if (type != kArray) {
    numbers_[key] = reader->TakeNumber(type);
    return;
  }
  const auto item_type = reader->Take<std::uint32_t>();
  const auto count = reader->Take<std::uint64_t>();
  for (std::uint64_t n = 0; n < count; ++n) {
    if (item_type == kString) {
      text_lists_[key].push_back(reader->TakeString());
    } else {
      static_cast<void>(reader->TakeNumber(item_type));  // lists of numbers are not needed here
    }
  }
}

void GgufFile::ReadTensorInfo(Reader* reader) {
  const std::string name = reader->TakeString();
  Tensor tensor = {1, 0, 0};
  const auto num_axes = reader->Take<std::uint32_t>();
  for (std::uint32_t axis = 0; axis < num_axes; ++axis) {
    const auto extent = reader->Take<std::uint64_t>();
    if (extent == 0 || tensor.num_elems > (std::uint64_t{1} << 40) / extent) {
      throw std::runtime_error("GGUF: " + name + " has an impossible shape");
    }
    tensor.num_elems *= extent;
  }
  tensor.type = reader->Take<std::uint32_t>();
  tensor.at_bytes = reader->Take<std::uint64_t>();
  tensors_[name] = tensor;
}

double GgufFile::Number(const std::string& key) const {
  const auto found = numbers_.find(key);
  if (found == numbers_.end()) throw std::runtime_error("GGUF: there is no number " + key);
  return found->second;
}

const std::string& GgufFile::Text(const std::string& key) const {
  const auto found = texts_.find(key);
  if (found == texts_.end()) throw std::runtime_error("GGUF: there is no text " + key);
  return found->second;
}

const std::vector<std::string>& GgufFile::Texts(const std::string& key) const {
  const auto found = text_lists_.find(key);
  if (found == text_lists_.end()) throw std::runtime_error("GGUF: there are no texts " + key);
  return found->second;
}

std::vector<float> GgufFile::Weight(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("GGUF: there is no tensor " + name);
  const Tensor& tensor = found->second;
  struct Format {
    std::uint32_t type;
    std::size_t block_elems, block_bytes;
  };
  constexpr Format kFormats[] = {{kTensorF32, 1, 4},
                                 {kTensorF16, 1, 2},
                                 {kTensorQ4_1, kBlockElems, 20},
                                 {kTensorQ8_0, kBlockElems, 34}};
  for (const Format& format : kFormats) {
    if (format.type != tensor.type) continue;
    const std::size_t num_blocks = tensor.num_elems / format.block_elems;
    const std::size_t room_bytes = bytes_.size() - std::min(bytes_.size(), data_at_);
    if (tensor.at_bytes > room_bytes ||
        num_blocks > (room_bytes - tensor.at_bytes) / format.block_bytes) {
      throw std::runtime_error("GGUF: " + name + " runs past the end of the file");
    }
    const std::uint8_t* block = bytes_.data() + data_at_ + tensor.at_bytes;
    std::vector<float> values(num_blocks * format.block_elems);
    for (std::size_t n = 0; n < num_blocks; ++n, block += format.block_bytes) {
      float* out = values.data() + n * format.block_elems;
      if (tensor.type == kTensorF32) std::memcpy(out, block, sizeof(float));
      if (tensor.type == kTensorF16) *out = HalfToFloat(block);
      if (tensor.type == kTensorQ4_1) DequantizeQ4(block, out);
      if (tensor.type == kTensorQ8_0) DequantizeQ8(block, out);
    }
    return values;
  }
  throw std::runtime_error("GGUF: " + name + " has a type that this program does not read");
}
