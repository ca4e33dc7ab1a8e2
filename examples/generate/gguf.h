// Reads a GGUF file: metadata, and weights as fp32.
#ifndef HEED_EXAMPLES_GENERATE_GGUF_H_
#define HEED_EXAMPLES_GENERATE_GGUF_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

class GgufFile {
 public:
  // Throws std::runtime_error when the file cannot be read or is cut.
  explicit GgufFile(const std::string& path);

  // Metadata; all throw when there is no such field.
  double Number(const std::string& key) const;
  const std::string& Text(const std::string& key) const;
  const std::vector<std::string>& Texts(const std::string& key) const;

  // [out_features, in_features] or [features], row-major; dequantised from q4_1, q8_0 or fp16.
  std::vector<float> Weight(const std::string& name) const;

 private:
  struct Tensor {
    std::uint64_t num_elems;
    std::uint32_t type;
    std::uint64_t at_bytes;  // from the first byte of the data
  };

  class Reader;
  void ReadField(Reader* reader);
  void ReadTensorInfo(Reader* reader);

  std::vector<std::uint8_t> bytes_;
  std::size_t data_at_ = 0;
  std::unordered_map<std::string, double> numbers_;
  std::unordered_map<std::string, std::string> texts_;
  std::unordered_map<std::string, std::vector<std::string>> text_lists_;
  std::unordered_map<std::string, Tensor> tensors_;
};

#endif  // HEED_EXAMPLES_GENERATE_GGUF_H_
