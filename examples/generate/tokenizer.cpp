#include "tokenizer.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace {

// UTF-8 of a code point below 2048.
std::string Utf8(int code) {
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

std::size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 128 || std::isalpha(byte) != 0;
}
bool IsOther(char c) { return !IsSpace(c) && !IsDigit(c) && !IsLetter(c); }

// Bytes of the word that begins at text[0], which is not a digit; text has no digit in it.
std::size_t WordBytes(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  const std::size_t first = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  for (const auto& is_kind : {IsLetter, IsOther}) {
    std::size_t end = first;
    while (end < text.size() && is_kind(text[end])) ++end;
    if (end > first) return end;
  }
  std::size_t end = 0;
  while (end < text.size() && IsSpace(text[end])) ++end;
  // The last space goes with the word that follows.
  return end < text.size() && end > 1 ? end - 1 : end;
}

}  // namespace

Tokenizer::Tokenizer(const GgufFile& file) : tokens_(file.Texts("tokenizer.ggml.tokens")) {
  if (file.Text("tokenizer.ggml.pre") != "smollm") {
    throw std::runtime_error("only the smollm rule of splitting text into words is understood");
  }
  for (std::size_t id = 0; id < tokens_.size(); ++id) ids_[tokens_[id]] = static_cast<int>(id);
  const std::vector<std::string>& merges = file.Texts("tokenizer.ggml.merges");
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    ranks_[merges[rank]] = static_cast<int>(rank);
  }
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    letters_[static_cast<std::size_t>(byte)] = Utf8(is_printable ? byte : next++);
    bytes_[letters_[static_cast<std::size_t>(byte)]] = static_cast<char>(byte);
  }
}

void Tokenizer::EncodeWord(std::string_view word, std::vector<int>* tokens) const {
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(letters_[static_cast<unsigned char>(c)]);
  for (;;) {
    std::size_t best = parts.size();
    int best_rank = 0;
    for (std::size_t n = 0; n + 1 < parts.size(); ++n) {
      const auto found = ranks_.find(parts[n] + " " + parts[n + 1]);
      if (found == ranks_.end() || (best < parts.size() && found->second >= best_rank)) continue;
      best = n;
      best_rank = found->second;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  for (const std::string& part : parts) tokens->push_back(ids_.at(part));
}

std::vector<int> Tokenizer::Encode(const std::string& text) const {
  std::vector<int> tokens;
  std::string_view rest = text;
  while (!rest.empty()) {
    if (IsDigit(rest[0])) {
      EncodeWord(rest.substr(0, 1), &tokens);
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t until_digit =
        static_cast<std::size_t>(std::find_if(rest.begin(), rest.end(), IsDigit) - rest.begin());
    const std::size_t num_bytes = WordBytes(rest.substr(0, until_digit));
    EncodeWord(rest.substr(0, num_bytes), &tokens);
    rest.remove_prefix(num_bytes);
  }
  return tokens;
}

std::string Tokenizer::Decode(int token) const {
  const std::string& letters = tokens_.at(static_cast<std::size_t>(token));
  std::string text;
  for (std::size_t at = 0; at < letters.size();) {
    const std::string letter = letters.substr(at, CharacterBytes(letters[at]));
    const auto found = bytes_.find(letter);
    text += found == bytes_.end() ? letter : std::string(1, found->second);
    at += letter.size();
  }
  return text;
}
