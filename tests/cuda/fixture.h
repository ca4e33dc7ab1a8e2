// What tests of the kernel store share: a folder, environment variables, a compiler that counts.
#ifndef HEED_TESTS_CUDA_FIXTURE_H_
#define HEED_TESTS_CUDA_FIXTURE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/kernel_store.h"

namespace heed::test {

// A fresh folder, removed with everything in it at the end of its life.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Sets a variable, or removes it (nullptr), and puts the old value back.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

void WriteText(const std::string& path, const std::string& content);
std::string ReadText(const std::string& path);  // "" when there is none

// Runs the body in a child process, as an ordinary user when this one is root. True when it
// returned true.
bool InChildProcess(const std::function<bool()>& body);
// Starts it and gives its number, for WaitForChild.
int StartChildProcess(const std::function<bool()>& body);
bool WaitForChild(int child);

// Compiles by writing down what it was asked for. Const calls from any thread.
class CountingCompiler : public cuda::Compiler {
 public:
  std::string Version() const override { return version; }
  std::vector<int> Archs() const override { return archs; }
  core::Status Compile(std::span<const cuda::EmbeddedSource> sources,
                       const cuda::KernelSource& source, const cuda::ArchChoice& choice,
                       cuda::KernelImage* image) const override;

  // The image of a compilation, so that tests can say what they expect.
  static std::string TextOf(std::span<const cuda::EmbeddedSource> sources,
                            const cuda::KernelSource& source, const cuda::ArchChoice& choice);

  std::string version = "13.0";
  std::vector<int> archs = {75, 80, 86, 89, 90, 100, 120};
  std::chrono::milliseconds duration{0};
  mutable std::atomic<int> num_compiled = 0;
  mutable std::atomic<int> num_running = 0;
  mutable std::atomic<int> max_running = 0;
  mutable std::atomic<int> num_failures_left = 0;  // of the next compilations
};

cuda::CompilerFinder Always(std::shared_ptr<const cuda::Compiler> compiler);
// A finder for a machine without NVRTC.
cuda::CompilerFinder Never();

cuda::KernelSource SourceNamed(const std::string& function);
std::string TextOf(const cuda::KernelImage& image);

inline constexpr cuda::CompileTarget kSm80 = {8, 0};
inline constexpr cuda::EmbeddedSource kTwoSources[] = {{"cuda/kernels/a.cu", "first"},
                                                       {"device/b.h", "second"}};

}  // namespace heed::test

#endif  // HEED_TESTS_CUDA_FIXTURE_H_
