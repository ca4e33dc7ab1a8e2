// The command line as plain data. Parsing it is options.cc's job alone.
#ifndef HEED_TOOLS_OPTIONS_H_
#define HEED_TOOLS_OPTIONS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "operand.h"
#include "pack_options.h"
#include "tensor.h"
#include "tune_options.h"

namespace heed::tools {

enum class Command : std::uint8_t { kInfo, kExplain, kRun, kCheck, kBench, kPack, kTune };

// Order of the axes of q, k, v and o in memory; packed tensors drop the batch axis.
enum class Layout : std::uint8_t { kRowsHeads, kHeadsRows };

struct FileOptions {
  std::string input;   // container with tensors named as the operands
  std::string prefix;  // put before every name looked up in `input`
  std::array<std::string, kNumOperands> paths;
  bool any() const {
    for (const std::string& path : paths) {
      if (!path.empty()) return true;
    }
    return !input.empty();
  }
};

struct ShapeOptions {
  std::int64_t batch = 1;
  std::int64_t num_q_heads = 8;
  std::int64_t num_kv_heads = 0;  // 0 = num_q_heads
  std::int64_t q_len = 1024;
  std::int64_t kv_len = -1;  // -1 = q_len
  std::int64_t head_dim = 64;
  std::int64_t head_dim_v = 0;        // 0 = head_dim
  std::vector<std::string> features;  // random operands to add: "bias", "mask", ...
};

// The shape options with their defaults filled in.
struct ResolvedShape {
  std::int64_t batch, num_q_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim_v;
};
// Throws InputError for a negative extent or one above 2^31 - 1.
ResolvedShape Resolve(const ShapeOptions& shape);

struct ScoreOptions {
  std::optional<double> scale;
  double softcap = 0.0;
  heed_causal_t causal = HEED_CAUSAL_OFF;
  heed_alignment_t alignment = HEED_ALIGN_BOTTOM_RIGHT;
  std::vector<std::int64_t> window = {-1, -1};
  double dropout_p = 0.0;
  std::uint64_t dropout_offset = 0;
};

struct ExecOptions {
  heed_backend_t backend = HEED_BACKEND_AUTO;
  std::string kernel;
  std::int32_t num_threads = 0;
  heed_toggle_t fixed_split = HEED_OFF;
  heed_toggle_t forbid_slower = HEED_OFF;
};

struct OutputOptions {
  std::string o;
  std::string lse;
  std::string both;
};

enum class BenchOp : std::uint8_t { kForward, kBackward, kDecode };
// Forward passes over int8 tensors, by their softmax and the arithmetic of P V.
enum class BenchInt8 : std::uint8_t { kOff, kF32, kBf16, kU8, kFixed };
// What decode reads: rows of the type of q, or interleaved int8 with a scale for every row.
enum class BenchCache : std::uint8_t { kPlain, kInt8 };

struct BenchOptions {
  BenchOp op = BenchOp::kForward;
  BenchInt8 int8 = BenchInt8::kOff;
  BenchCache cache = BenchCache::kPlain;
  std::string preset;
  std::vector<std::int64_t> lengths;        // empty = the shape's q_len
  std::vector<std::int32_t> thread_counts;  // empty = 1 and every usable core
  std::int64_t num_slices = 9;
  double min_slice_seconds = 0.02;
  std::string json_path;
  bool with_materialized = false;
  bool must_reach_bars = false;
};

struct Options {
  Command command = Command::kInfo;
  std::string command_line;  // as given, for reports
  bool json = false;
  FileOptions files;
  ShapeOptions shape;
  ScoreOptions score;
  ExecOptions exec;
  OutputOptions output;
  BenchOptions bench;
  PackOptions pack;
  TuneOptions tune;
  Layout layout = Layout::kRowsHeads;
  std::optional<ElementType> type;  // of q, k, v; empty = as in the files, f32 for random tensors
  std::uint64_t seed = 0;           // of random tensors and of dropout
};

enum class ParseOutcome : std::uint8_t { kRun, kHelpShown };

// Throws InputError for a wrong command line.
ParseOutcome ParseOptions(int argc, char** argv, Options* options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_OPTIONS_H_
