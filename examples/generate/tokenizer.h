// Byte-level BPE with the rule of SmolLM: digits stand alone, words take their leading space along.
// Bytes above 127 count as letters.
#ifndef HEED_EXAMPLES_GENERATE_TOKENIZER_H_
#define HEED_EXAMPLES_GENERATE_TOKENIZER_H_

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.h"

class Tokenizer {
 public:
  explicit Tokenizer(const GgufFile& file);

  std::vector<int> Encode(const std::string& text) const;
  std::string Decode(int token) const;

 private:
  void EncodeWord(std::string_view word, std::vector<int>* tokens) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<std::string, int> ranks_;  // of "left right"
  // Each byte is written as one printable character.
  std::array<std::string, 256> letters_;
  std::unordered_map<std::string, char> bytes_;
};

#endif  // HEED_EXAMPLES_GENERATE_TOKENIZER_H_
