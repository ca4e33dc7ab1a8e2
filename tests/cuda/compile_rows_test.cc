// Compiles shipped kernels for the architectures they are shipped for, which needs no GPU, and
// fails on what makes a kernel slow or impossible: spilled registers, local memory, serialized
// wgmma, more shared memory than the architecture has. Writes what each kernel uses as JSON and as
// a table.
//
// cuda_compile_rows [--full] [--sample=N] [--seed=N] [--arch=LIST] [--rows=PATTERN] [GoogleTest
// flags] Without --full, a sample drawn by the seed. HEED_REQUIRE_NVRTC=1 makes a missing NVRTC a
// failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>

#include "core/os/os.h"
#include "core/os/thread_pool.h"
#include "core/registry.h"
#include "cuda/arch_limits.h"
#include "cuda/backward.h"
#include "cuda/forward.h"
#include "cuda/nvrtc.h"
#include "cuda/pack_builder.h"
#include "cuda/packs.h"
#include "cuda/resources.h"
#include "cuda/shipped_kernels.h"

namespace heed::cuda {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kDefaultSample = 2;
#else
// Two cores compile this many in less than two minutes.
constexpr std::size_t kDefaultSample = 24;
#endif
constexpr int kMaxRegisters = 255;

struct Options {
  bool is_full = false;
  std::size_t sample = kDefaultSample;
  std::uint64_t seed = 1;
  std::string archs = kDefaultPackArchs;
  std::string rows = "*";
};
Options g_options;

struct Entry {
  CompileTarget target;
  KernelSource source;
  core::Status status;
  KernelResources resources;
  bool has_report = false;
  double seconds = 0.0;
  std::size_t image_bytes = 0;
  std::string log;

  std::string name() const { return source.label + " sm_" + ArchName(target); }
  int shared_bytes() const { return resources.shared_bytes + source.dynamic_shared_bytes; }
};

std::vector<Entry> EveryEntry() {
  std::vector<Entry> entries;
  for (std::size_t begin = 0; begin < g_options.archs.size();) {
    const std::size_t end = std::min(g_options.archs.find(',', begin), g_options.archs.size());
    CompileTarget target;
    if (!ParseArchName(g_options.archs.substr(begin, end - begin), &target)) {
      ADD_FAILURE() << "--arch=" << g_options.archs << ": not a list of architectures";
      return {};
    }
    for (KernelSource& source : ShippedKernels(target)) {
      if (!FitsPattern(source.label, g_options.rows)) continue;
      Entry entry;
      entry.target = target;
      entry.source = std::move(source);
      entries.push_back(std::move(entry));
    }
    begin = end + 1;
  }
  return entries;
}

// Of the calling thread, which NVRTC compiles in: other processes do not count.
double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void CompileOne(const Compiler& compiler, Entry* entry) {
  const double begin = CpuSeconds();
  KernelImage image;
  entry->status =
      compiler.Compile(KernelSources(), entry->source, {ArchName(entry->target)}, &image);
  entry->seconds = CpuSeconds() - begin;
  entry->image_bytes = image.cubin.size();
  entry->log = image.log;
  entry->has_report = ParseResources(image.log, entry->source.function, &entry->resources);
}

void CompileAll(const Compiler& compiler, std::vector<Entry>* entries) {
  struct Work {
    const Compiler& compiler;
    std::vector<Entry>& entries;
    std::atomic<std::size_t> next = 0;
  } work{compiler, *entries};
  core::os::ParallelFor(
      std::min<std::int64_t>(core::os::NumUsableCores(),
                             static_cast<std::int64_t>(entries->size())),
      [](void* context, std::int64_t) {
        auto& shared = *static_cast<Work*>(context);
        for (std::size_t at = shared.next++; at < shared.entries.size(); at = shared.next++) {
          CompileOne(shared.compiler, &shared.entries[at]);
        }
      },
      &work);
}

void WriteTables(const std::vector<Entry>& entries) {
  std::ofstream table(HEED_COMPILE_ROWS_PATH ".md");
  std::ofstream json(HEED_COMPILE_ROWS_PATH ".json");
  table << "| kernel | arch | registers | spills | local | shared | CPU seconds | bytes |\n"
        << "|---|---|---|---|---|---|---|---|\n";
  json << "[";
  const char* separator = "\n";
  for (const Entry& entry : entries) {
    const KernelResources& used = entry.resources;
    const std::string arch = ArchName(entry.target);
    table << core::Format("| %s | %s | %d | %d | %d | %d | %.2f | %zu |\n",
                          entry.source.label.c_str(), arch.c_str(), used.registers,
                          used.spill_bytes, used.local_bytes, entry.shared_bytes(), entry.seconds,
                          entry.image_bytes);
    json << separator
         << core::Format(
                "{\"kernel\": \"%s\", \"arch\": \"%s\", \"registers\": %d, "
                "\"spill_bytes\": %d, \"local_bytes\": %d, \"shared_bytes\": %d, "
                "\"seconds\": %.2f, \"image_bytes\": %zu}",
                entry.source.label.c_str(), arch.c_str(), used.registers, used.spill_bytes,
                used.local_bytes, entry.shared_bytes(), entry.seconds, entry.image_bytes);
    separator = ",\n";
  }
  json << "\n]\n";
}

// Most that a kernel may spill; see the file.
struct KnownSpill {
  std::string label;
  std::string arch;
  int spill_bytes = 0;
  int local_bytes = 0;
};

const std::vector<KnownSpill>& KnownSpills() {
  static const std::vector<KnownSpill> spills = [] {
    std::vector<KnownSpill> read;
    std::ifstream file(HEED_KNOWN_SPILLS_PATH);
    EXPECT_TRUE(file.is_open()) << HEED_KNOWN_SPILLS_PATH;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      KnownSpill spill;
      words >> spill.label >> spill.arch >> spill.spill_bytes >> spill.local_bytes;
      EXPECT_FALSE(words.fail()) << line;
      read.push_back(spill);
    }
    return read;
  }();
  return spills;
}

KnownSpill AllowedSpill(const std::string& label, const std::string& arch) {
  for (const KnownSpill& spill : KnownSpills()) {
    if (spill.label == label && spill.arch == arch) return spill;
  }
  return {};
}

// An entry whose kernel is gone or spills no more hides the next one that does.
void ExpectEveryKnownSpillIsSeen(const std::vector<Entry>& entries) {
  for (const KnownSpill& spill : KnownSpills()) {
    const auto is_it = [&](const Entry& entry) {
      return entry.source.label == spill.label && ArchName(entry.target) == spill.arch &&
             entry.resources.spill_bytes > 0;
    };
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), is_it))
        << "known_spills.txt: " << spill.label << " sm_" << spill.arch << " does not spill";
  }
}

void Judge(const Entry& entry) {
  SCOPED_TRACE(entry.name());
  ASSERT_TRUE(entry.status.ok()) << entry.status.message();
  ASSERT_TRUE(entry.has_report) << entry.log;
  const KernelResources& used = entry.resources;
  const KnownSpill allowed = AllowedSpill(entry.source.label, ArchName(entry.target));
  EXPECT_LE(used.spill_bytes, allowed.spill_bytes) << "registers are spilled";
  EXPECT_LE(used.local_bytes, allowed.local_bytes)
      << "an array is indexed at run time, or registers are spilled";
  EXPECT_FALSE(used.is_serialized) << entry.log;
  EXPECT_LE(used.registers, kMaxRegisters);
  const int arch = 10 * entry.target.major + entry.target.minor;
  EXPECT_LE(entry.shared_bytes(), MaxSharedBytes(arch));
  EXPECT_EQ(entry.log.find("warning"), std::string::npos) << entry.log;
}

TEST(CompileRows, UseRegistersAndSharedMemoryOnly) {
  std::shared_ptr<const Compiler> compiler;
  const core::Status found = FindNvrtc(0, &compiler);
  if (!found.ok()) {
    ASSERT_NE(core::os::Environment("HEED_REQUIRE_NVRTC"), "1") << found.message();
    GTEST_SKIP() << "NOT TESTED: " << found.message();
  }
  std::vector<Entry> entries = EveryEntry();
  ASSERT_FALSE(entries.empty());
  const std::size_t num_shipped = entries.size();
  if (!g_options.is_full && entries.size() > g_options.sample) {
    std::mt19937_64 generator(g_options.seed);
    std::shuffle(entries.begin(), entries.end(), generator);
    entries.resize(g_options.sample);
  }
  const auto begin = std::chrono::steady_clock::now();
  CompileAll(*compiler, &entries);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  WriteTables(entries);
  double cpu_seconds = 0.0;
  for (const Entry& entry : entries) cpu_seconds += entry.seconds;
  std::printf(
      "%zu of %zu shipped kernels compiled with NVRTC %s in %.0f s, %.0f s of CPU time; see "
      "%s.md\n",
      entries.size(), num_shipped, compiler->Version().c_str(), seconds.count(), cpu_seconds,
      HEED_COMPILE_ROWS_PATH);
  for (const Entry& entry : entries) Judge(entry);
  if (g_options.is_full) ExpectEveryKnownSpillIsSeen(entries);
}

// Packs hold one image per label and architecture, and people choose them by label.
TEST(ShippedKernels, HaveLabelsOfTheirOwn) {
  for (const char* name : {"75", "80", "86", "90a", "120"}) {
    CompileTarget target;
    ASSERT_TRUE(ParseArchName(name, &target));
    std::vector<std::string> labels;
    for (const KernelSource& source : ShippedKernels(target)) labels.push_back(source.label);
    EXPECT_FALSE(labels.empty()) << name;
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end()) << name;
    EXPECT_FALSE(std::binary_search(labels.begin(), labels.end(), std::string()));
  }
}

// A tile that is too large for an architecture leaves its head dims to a row for larger ones. Up to
// kServedHeadDim there must be one everywhere.
TEST(CudaRows, ServeEveryHeadDimOnEveryArchitecture) {
  constexpr int kServedHeadDim = 256;
  const auto shared_bytes = [](const core::KernelRow& row, int head_dim) {
    return row.op == core::Op::kForward ? ForwardSharedBytesOf(row, head_dim, head_dim)
                                        : BackwardSharedBytesOf(row, head_dim, head_dim);
  };
  for (const core::KernelRow& kind : core::KernelRows()) {
    const bool has_tile = kind.op == core::Op::kForward || kind.op == core::Op::kBackward;
    if (kind.backend != core::Backend::kCuda || !has_tile) continue;
    if (kind.max_head_dim > kServedHeadDim) continue;
    for (const int arch : {75, 80, 86, 89, 90, 100, 120}) {
      if (arch < kind.cuda.min_compute_capability) continue;
      const auto fits = [&](const core::KernelRow& row) {
        return row.backend == kind.backend && row.op == kind.op && row.dtype == kind.dtype &&
               row.max_head_dim >= kind.max_head_dim && row.cuda.min_compute_capability <= arch &&
               shared_bytes(row, static_cast<int>(kind.max_head_dim)) <=
                   static_cast<std::size_t>(MaxSharedBytes(arch));
      };
      const auto rows = core::KernelRows();
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), fits)) << kind.id << " on sm_" << arch;
    }
  }
}

TEST(ShippedKernels, AreNoneBeforeTheOldestArchitecture) {
  EXPECT_TRUE(ShippedKernels({7, 0}).empty());
}

bool ReadFlag(std::string_view flag) {
  const auto value = [&](std::string_view prefix) -> const char* {
    return flag.starts_with(prefix) ? flag.data() + prefix.size() : nullptr;
  };
  if (flag == "--full") return g_options.is_full = true;
  if (const char* sample = value("--sample=")) {
    return (g_options.sample = std::strtoull(sample, nullptr, 10)) != 0;
  }
  if (const char* seed = value("--seed=")) {
    g_options.seed = std::strtoull(seed, nullptr, 10);
    return true;
  }
  if (const char* archs = value("--arch=")) return !(g_options.archs = archs).empty();
  if (const char* rows = value("--rows=")) return !(g_options.rows = rows).empty();
  return false;
}

}  // namespace
}  // namespace heed::cuda

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int at = 1; at < argc; ++at) {
    if (heed::cuda::ReadFlag(argv[at])) continue;
    std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[at]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
