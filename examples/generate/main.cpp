// Generates text with a model of the llama architecture, greedily, on heed.
//   heed_example_generate --model FILE.gguf [--device cpu|cuda] [--prompt TEXT] [--count N]
//   heed_example_generate --model FILE.gguf --follow FILE [--prefill N] [--device cpu|cuda]
//   heed_example_generate --model FILE.gguf --encode FILE
// --follow reads token ids from a file, feeds them one after another (the first N in one call), and
// prints for each the most likely next token and its lead over the second, in logits. --encode
// prints the token ids of a text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.h"
#include "tokenizer.h"

namespace {

constexpr const char* kUsage =
    "usage: heed_example_generate --model FILE.gguf [--device cpu|cuda] [--prompt TEXT] [--count "
    "N]\n"
    "       heed_example_generate --model FILE.gguf --follow FILE [--prefill N] [--device ...]\n"
    "       heed_example_generate --model FILE.gguf --encode FILE\n";

struct Options {
  std::string model, prompt = "The capital of France is", follow, encode;
  int count = 32, prefill = 32;
  heed_device_t device = {HEED_DEVICE_CPU, 0};
};

[[noreturn]] void FailUsage() {
  std::fputs(kUsage, stderr);
  std::exit(2);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int n = 1; n < argc; n += 2) {
    if (n + 1 >= argc) FailUsage();
    const std::string name = argv[n], value = argv[n + 1];
    if (name == "--model") {
      options.model = value;
    } else if (name == "--prompt") {
      options.prompt = value;
    } else if (name == "--follow") {
      options.follow = value;
    } else if (name == "--encode") {
      options.encode = value;
    } else if (name == "--count") {
      options.count = std::atoi(value.c_str());
    } else if (name == "--prefill") {
      options.prefill = std::atoi(value.c_str());
    } else if (name == "--device" && value == "cuda") {
      options.device = {HEED_DEVICE_CUDA, 0};
    } else if (name != "--device" || value != "cpu") {
      FailUsage();
    }
  }
  if (options.model.empty() || options.prompt.empty() || options.count < 1 || options.prefill < 1) {
    FailUsage();
  }
  return options;
}

struct Best {
  int token;
  float lead;
};

// logits: [V].
Best BestToken(const float* logits, std::size_t vocabulary) {
  std::size_t best = 0;
  float second = -INFINITY;
  for (std::size_t n = 1; n < vocabulary; ++n) {
    if (logits[n] > logits[best]) {
      second = logits[best];
      best = n;
    } else {
      second = std::max(second, logits[n]);
    }
  }
  return {static_cast<int>(best), logits[best] - second};
}

void Generate(const Options& options, const GgufFile& file) {
  const Tokenizer tokenizer(file);
  std::vector<int> tokens = tokenizer.Encode(options.prompt);
  Model model(file, static_cast<std::int64_t>(tokens.size()) + options.count, options.device);
  std::printf("%s", options.prompt.c_str());
  const auto end_of_text = static_cast<int>(file.Number("tokenizer.ggml.eos_token_id"));
  const auto begin = std::chrono::steady_clock::now();
  int num_steps = 0;
  for (; num_steps < options.count; ++num_steps) {
    const std::vector<float> logits = model.Forward(tokens);
    const std::size_t vocabulary = model.vocabulary();
    const Best best = BestToken(logits.data() + logits.size() - vocabulary, vocabulary);
    if (best.token == end_of_text) break;
    std::printf("%s", tokenizer.Decode(best.token).c_str());
    std::fflush(stdout);
    tokens = {best.token};
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("\n");
  std::fprintf(stderr, "%d tokens in %.2f s, the prompt included\n", num_steps, seconds.count());
}

void Follow(const Options& options, const GgufFile& file) {
  std::ifstream stream(options.follow);
  std::vector<int> tokens;
  for (int token = 0; stream >> token;) tokens.push_back(token);
  if (tokens.empty()) throw std::runtime_error(options.follow + ": holds no token ids");
  Model model(file, static_cast<std::int64_t>(tokens.size()), options.device);
  const std::size_t vocabulary = model.vocabulary();
  for (std::size_t at = 0; at < tokens.size();) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count =
        at == 0 ? std::min(tokens.size(), static_cast<std::size_t>(options.prefill)) : 1;
    const std::vector<float> logits =
        model.Forward({first, first + static_cast<std::ptrdiff_t>(count)});
    for (std::size_t row = 0; row < count; ++row) {
      const Best best = BestToken(logits.data() + row * vocabulary, vocabulary);
      std::printf("%d %.6f\n", best.token, static_cast<double>(best.lead));
    }
    at += count;
  }
}

void Encode(const Options& options, const GgufFile& file) {
  std::ifstream stream(options.encode, std::ios::binary);
  if (!stream) throw std::runtime_error(options.encode + ": cannot be opened");
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  for (const int token : Tokenizer(file).Encode(text)) std::printf("%d\n", token);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  try {
    const GgufFile file(options.model);
    if (!options.encode.empty()) {
      Encode(options, file);
    } else if (!options.follow.empty()) {
      Follow(options, file);
    } else {
      Generate(options, file);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heed_example_generate: %s\n", error.what());
    return 1;
  }
  return 0;
}
