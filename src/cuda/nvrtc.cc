#include "cuda/nvrtc.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/log.h"
#include "core/os/dynamic_library.h"
#include "core/os/files.h"
#include "core/os/os.h"
#include "cuda/nvrtc_search.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::LogLevel;
using core::Status;

struct OpaqueProgram;
using Program = OpaqueProgram*;
using Result = int;  // nvrtcResult

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 1;
constexpr Result kBuiltinOperationFailure = 7;

// Declared here, so that no toolkit header is needed. Names as in NVRTC's reference.
struct Functions {
  Result (*version)(int*, int*) = nullptr;
  Result (*num_supported_archs)(int*) = nullptr;
  Result (*supported_archs)(int*) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*create_program)(Program*, const char*, const char*, int, const char* const*,
                           const char* const*) = nullptr;
  Result (*compile_program)(Program, int, const char* const*) = nullptr;
  Result (*destroy_program)(Program*) = nullptr;
  Result (*log_size)(Program, std::size_t*) = nullptr;
  Result (*log)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, std::size_t*) = nullptr;
  Result (*cubin)(Program, char*) = nullptr;
  Result (*ptx_size)(Program, std::size_t*) = nullptr;
  Result (*ptx)(Program, char*) = nullptr;

  bool Bind(const core::os::DynamicLibrary& library) {
    return library.Resolve("nvrtcVersion", &version) &&
           library.Resolve("nvrtcGetNumSupportedArchs", &num_supported_archs) &&
           library.Resolve("nvrtcGetSupportedArchs", &supported_archs) &&
           library.Resolve("nvrtcGetErrorString", &error_string) &&
           library.Resolve("nvrtcCreateProgram", &create_program) &&
           library.Resolve("nvrtcCompileProgram", &compile_program) &&
           library.Resolve("nvrtcDestroyProgram", &destroy_program) &&
           library.Resolve("nvrtcGetProgramLogSize", &log_size) &&
           library.Resolve("nvrtcGetProgramLog", &log) &&
           library.Resolve("nvrtcGetCUBINSize", &cubin_size) &&
           library.Resolve("nvrtcGetCUBIN", &cubin) &&
           library.Resolve("nvrtcGetPTXSize", &ptx_size) && library.Resolve("nvrtcGetPTX", &ptx);
  }
};

// A program and its texts for the time of one compilation.
class Compilation {
 public:
  explicit Compilation(const Functions& functions) : functions_(functions) {}
  ~Compilation() {
    if (program_ != nullptr) functions_.destroy_program(&program_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Result Create(std::span<const EmbeddedSource> sources, const KernelSource& source) {
    const char* text = nullptr;
    std::vector<const char*> names = {"heed_traits.h"};
    std::vector<const char*> texts = {source.traits_header.c_str()};
    for (const EmbeddedSource& embedded : sources) {
      if (source.entry == embedded.name) {
        text = embedded.text;
      } else {
        names.push_back(embedded.name);
        texts.push_back(embedded.text);
      }
    }
    return functions_.create_program(&program_, text, source.entry.c_str(),
                                     static_cast<int>(names.size()), texts.data(), names.data());
  }
  Result Run(const std::vector<std::string>& options) {
    std::vector<const char*> arguments;
    arguments.reserve(options.size());
    for (const std::string& option : options) arguments.push_back(option.c_str());
    return functions_.compile_program(program_, static_cast<int>(arguments.size()),
                                      arguments.data());
  }
  std::string Log() const {
    std::size_t num_bytes = 0;
    if (functions_.log_size(program_, &num_bytes) != kSuccess || num_bytes <= 1) return {};
    std::string log(num_bytes, '\0');
    if (functions_.log(program_, log.data()) != kSuccess) return {};
    log.resize(log.find_last_not_of(std::string_view("\0\n", 2)) + 1);
    return log;
  }
  Result Take(KernelImage::Format format, std::vector<char>* image) const {
    const bool is_ptx = format == KernelImage::Format::kPtx;
    std::size_t num_bytes = 0;
    const Result sized = is_ptx ? functions_.ptx_size(program_, &num_bytes)
                                : functions_.cubin_size(program_, &num_bytes);
    if (sized != kSuccess) return sized;
    image->resize(num_bytes);
    return is_ptx ? functions_.ptx(program_, image->data())
                  : functions_.cubin(program_, image->data());
  }

 private:
  const Functions& functions_;
  Program program_ = nullptr;
};

class Nvrtc : public Compiler {
 public:
  // Returns why the file cannot serve; empty when it can.
  std::string Open(const std::string& file) {
    std::string error;
    OpenBuiltinsBeside(file);
    const auto library = core::os::DynamicLibrary::Open(file, &error);
    if (!library.is_open()) return error;
    if (!functions_.Bind(library)) return file + ": lacks functions of NVRTC";
    int num_archs = 0;
    if (functions_.version(&major_, &minor_) != kSuccess ||
        functions_.num_supported_archs(&num_archs) != kSuccess || num_archs <= 0) {
      return file + ": does not answer";
    }
    archs_.resize(static_cast<std::size_t>(num_archs));
    if (functions_.supported_archs(archs_.data()) != kSuccess) return file + ": does not answer";
    std::sort(archs_.begin(), archs_.end());
    path_ = core::os::PathOfLibraryWith(reinterpret_cast<const void*>(functions_.version));
    return {};
  }

  int major() const { return major_; }
  bool IsTooOld() const {
    return major_ < kOldestNvrtcMajor ||
           (major_ == kOldestNvrtcMajor && minor_ < kOldestNvrtcMinor);
  }
  const std::string& path() const { return path_; }
  std::string Version() const override { return Format("%d.%d", major_, minor_); }
  std::vector<int> Archs() const override { return archs_; }
  Status Compile(std::span<const EmbeddedSource> sources, const KernelSource& source,
                 const ArchChoice& choice, KernelImage* image) const override;

 private:
  // NVRTC opens its builtins by name when it compiles; packages whose folder no search path names
  // need them opened before.
  static void OpenBuiltinsBeside(const std::string& file) {
    const std::size_t slash = file.rfind('/');
    if (slash == std::string::npos) return;
    const std::string folder = file.substr(0, slash);
    for (const std::string& name : core::os::ListFolder(folder)) {
      std::string ignored;
      if (name.starts_with("libnvrtc-builtins") && name.find(".alt.") == std::string::npos) {
        core::os::DynamicLibrary::Open(folder + "/" + name, &ignored);
      }
    }
  }
  Status Failure(const KernelSource& source, const ArchChoice& choice, Result result,
                 const std::string& log) const;

  Functions functions_;
  int major_ = 0;
  int minor_ = 0;
  std::vector<int> archs_;
  std::string path_;
};

Status Nvrtc::Failure(const KernelSource& source, const ArchChoice& choice, Result result,
                      const std::string& log) const {
  if (result == kOutOfMemory) {
    return {HEED_OUT_OF_MEMORY, Format("NVRTC has no memory to compile %s", source.entry.c_str())};
  }
  if (result == kBuiltinOperationFailure) {
    return {HEED_UNAVAILABLE,
            Format("NVRTC %s at %s does not find its libnvrtc-builtins: install both from one "
                   "package, or name another NVRTC by HEED_NVRTC",
                   Version().c_str(), path_.c_str())};
  }
  return core::Internal(Format("NVRTC %s could not compile %s for %s: %s\n%s", Version().c_str(),
                               source.entry.c_str(), ArchText(choice).c_str(),
                               functions_.error_string(result), log.c_str()));
}

Status Nvrtc::Compile(std::span<const EmbeddedSource> sources, const KernelSource& source,
                      const ArchChoice& choice, KernelImage* image) const {
  const auto is_entry = [&](const EmbeddedSource& e) { return source.entry == e.name; };
  if (std::none_of(sources.begin(), sources.end(), is_entry)) {
    return core::Internal(Format("no kernel source is named %s", source.entry.c_str()));
  }
  Compilation compilation(functions_);
  Result result = compilation.Create(sources, source);
  if (result != kSuccess) return Failure(source, choice, result, {});
  result = compilation.Run(CompileOptions(choice));
  image->log = WithoutTimes(compilation.Log());
  if (result != kSuccess) return Failure(source, choice, result, image->log);
  result = compilation.Take(choice.format, &image->cubin);
  if (result != kSuccess) return Failure(source, choice, result, image->log);
  image->arch = choice.arch;
  image->format = choice.format;
  return {};
}

std::string Remedy(int driver_version) {
  const char* package = driver_version >= 13000 || driver_version == 0 ? "nvidia-cuda-nvrtc"
                                                                       : "nvidia-cuda-nvrtc-cu12";
  return Format(
      "Install it (pip install %s, or a CUDA toolkit), name the library by HEED_NVRTC, or "
      "bring a kernel pack (heed pack build, on any machine) and name it by HEED_PACK",
      package);
}

// The major version of CUDA whose images the driver loads.
int MaxMajor(int driver_version) {
  return driver_version > 0 ? driver_version / 1000 : kNewestNvrtcMajor;
}

Status Search(int driver_version, std::shared_ptr<const Compiler>* compiler) {
  const int max_major = MaxMajor(driver_version);
  if (max_major < kOldestNvrtcMajor) {
    return {
        HEED_UNAVAILABLE,
        Format("the driver supports CUDA %d.%d, but CUDA kernels need NVRTC %d, whose images it "
               "does not load: install a newer driver",
               driver_version / 1000, driver_version / 10 % 100, kOldestNvrtcMajor)};
  }
  std::string searched, failures;
  for (const NvrtcCandidate& candidate : NvrtcCandidates(max_major, &searched)) {
    auto nvrtc = std::make_shared<Nvrtc>();
    std::string fault = nvrtc->Open(candidate.file);
    if (fault.empty() && driver_version > 0 && nvrtc->major() > max_major) {
      fault = Format("%s: is NVRTC %s, but the driver loads images of CUDA %d or older only",
                     nvrtc->path().c_str(), nvrtc->Version().c_str(), max_major);
    }
    if (fault.empty() && nvrtc->IsTooOld()) {
      fault = Format("%s: is NVRTC %s, but %d.%d or newer is needed", nvrtc->path().c_str(),
                     nvrtc->Version().c_str(), kOldestNvrtcMajor, kOldestNvrtcMinor);
    }
    if (fault.empty()) {
      core::Log(LogLevel::kInfo,
                Format("NVRTC %s: %s", nvrtc->Version().c_str(), nvrtc->path().c_str()));
      *compiler = std::move(nvrtc);
      return {};
    }
    core::Log(LogLevel::kDebug, "NVRTC: " + fault);
    // Bare names that the system does not know would only lengthen the message.
    if (candidate.file.find('/') != std::string::npos || candidate.major == 0) {
      failures += "; " + fault;
    }
  }
  return {HEED_UNAVAILABLE,
          Format("NVRTC, which compiles CUDA kernels, was not found (searched: %s%s). %s",
                 searched.c_str(), failures.c_str(), Remedy(driver_version).c_str())};
}

}  // namespace

std::string WithoutTimes(const std::string& log) {
  std::string kept;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    if (line.find("Compile time = ") == std::string::npos) kept += line + "\n";
    begin = end + 1;
  }
  return kept;
}

Status FindNvrtc(int driver_version, std::shared_ptr<const Compiler>* compiler) {
  struct Outcome {
    Status status;
    std::shared_ptr<const Compiler> compiler;
  };
  static std::mutex mutex;
  static auto* const outcomes = new std::map<std::pair<int, std::string>, Outcome>;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      outcomes->try_emplace({MaxMajor(driver_version), core::os::Environment("HEED_NVRTC")});
  Outcome& outcome = found->second;
  if (is_new) outcome.status = Search(driver_version, &outcome.compiler);
  *compiler = outcome.compiler;
  return outcome.status;
}

}  // namespace heed::cuda
