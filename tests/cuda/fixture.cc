#include "cuda/fixture.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace heed::test {

using core::Status;
using cuda::ArchChoice;
using cuda::EmbeddedSource;
using cuda::KernelImage;
using cuda::KernelSource;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "heed_cuda_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ScopedVariable::ScopedVariable(const char* name, const char* value) : name_(name) {
  if (const char* old = getenv(name)) old_ = old;
  if (value != nullptr) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

ScopedVariable::~ScopedVariable() {
  if (old_.has_value()) {
    setenv(name_, old_->c_str(), 1);
  } else {
    unsetenv(name_);
  }
}

void WriteText(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string ReadText(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

int StartChildProcess(const std::function<bool()>& body) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  if (geteuid() == 0 && setuid(kNobody) != 0) _exit(2);
  _exit(body() ? 0 : 1);
}

bool WaitForChild(int child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool InChildProcess(const std::function<bool()>& body) {
  return WaitForChild(StartChildProcess(body));
}

Status CountingCompiler::Compile(std::span<const EmbeddedSource> sources,
                                 const KernelSource& source, const ArchChoice& choice,
                                 KernelImage* image) const {
  const int running = ++num_running;
  for (int seen = max_running;
       seen < running && !max_running.compare_exchange_weak(seen, running);) {
  }
  std::this_thread::sleep_for(duration);
  ++num_compiled;
  --num_running;
  if (num_failures_left.fetch_sub(1) > 0) return core::Internal("planted failure");
  const std::string text = TextOf(sources, source, choice);
  image->cubin.assign(text.begin(), text.end());
  image->arch = choice.arch;
  image->format = choice.format;
  image->log = "log of " + source.function;
  return {};
}

std::string CountingCompiler::TextOf(std::span<const EmbeddedSource> sources,
                                     const KernelSource& source, const ArchChoice& choice) {
  std::string text = choice.format == KernelImage::Format::kPtx ? "ptx " : "cubin ";
  text += choice.arch + " " + source.function + " " + source.traits_header;
  for (const EmbeddedSource& embedded : sources) text += std::string(" ") + embedded.text;
  return text;
}

cuda::CompilerFinder Always(std::shared_ptr<const cuda::Compiler> compiler) {
  return [compiler](int, std::shared_ptr<const cuda::Compiler>* found) {
    *found = compiler;
    return Status();
  };
}

cuda::CompilerFinder Never() {
  return [](int, std::shared_ptr<const cuda::Compiler>*) {
    return Status(HEED_UNAVAILABLE, "no NVRTC in this test");
  };
}

KernelSource SourceNamed(const std::string& function) {
  return {"cuda/kernels/a.cu", "traits", function, function + "_label"};
}

std::string TextOf(const KernelImage& image) { return {image.cubin.begin(), image.cubin.end()}; }

}  // namespace heed::test
