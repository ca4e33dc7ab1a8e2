#include "cuda/nvrtc_search.h"

#include <algorithm>
#include <string_view>

#include "core/os/dynamic_library.h"
#include "core/os/files.h"
#include "core/os/os.h"

namespace heed::cuda {
namespace {

using core::os::Environment;
using core::os::ListFolder;

void AddOnce(std::vector<std::string>* list, const std::string& item) {
  if (std::find(list->begin(), list->end(), item) == list->end()) list->push_back(item);
}

// "/x/lib/python3.11/site-packages" of "/x/lib/python3.11/site-packages/torch/lib/libtorch.so".
void AddSitePackagesAbove(const std::string& path, std::vector<std::string>* folders) {
  for (const std::string_view name : {"/site-packages", "/dist-packages"}) {
    const std::size_t at = path.rfind(std::string(name) + "/");
    if (at != std::string::npos) AddOnce(folders, path.substr(0, at + name.size()));
  }
}

// python3*/site-packages and python3*/dist-packages below, newest Python first.
void AddSitePackagesBelow(const std::string& lib_folder, std::vector<std::string>* folders) {
  std::vector<std::string> names = ListFolder(lib_folder);
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!name.starts_with("python3")) continue;
    for (const char* kind : {"site-packages", "dist-packages"}) {
      const std::string folder = lib_folder + "/" + name + "/" + kind;
      if (!ListFolder(folder).empty()) AddOnce(folders, folder);
    }
  }
}

class CandidateList {
 public:
  explicit CandidateList(int max_major) : max_major_(max_major) {}

  void AddFile(const std::string& file, int major) {
    if (major > max_major_ || major < kOldestNvrtcMajor) return;
    const auto is_same = [&](const NvrtcCandidate& known) { return known.file == file; };
    if (std::find_if(list_.begin(), list_.end(), is_same) == list_.end()) {
      list_.push_back({file, major});
    }
  }
  // Every NVRTC in the folders, newest first.
  void AddFolders(const std::vector<std::string>& folders) {
    std::vector<NvrtcCandidate> found;
    for (const std::string& folder : folders) {
      for (const std::string& name : ListFolder(folder)) {
        const int major = NvrtcMajorOfFile(name);
        if (major > 0) found.push_back({folder + "/" + name, major});
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.major > b.major; });
    for (const NvrtcCandidate& candidate : found) AddFile(candidate.file, candidate.major);
  }
  std::vector<NvrtcCandidate> Take() { return std::move(list_); }

 private:
  int max_major_;
  std::vector<NvrtcCandidate> list_;
};

void AddPythonPackages(const std::string& site_packages, CandidateList* list) {
  std::vector<std::string> folders;
  for (const std::string& package : ListFolder(site_packages + "/nvidia")) {
    folders.push_back(site_packages + "/nvidia/" + package + "/lib");
  }
  list->AddFolders(folders);
  list->AddFolders({site_packages + "/torch/lib"});
}

void AddSystem(CandidateList* list) {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"}) {
    const std::string folder = Environment(variable);
    if (folder.empty()) continue;
    list->AddFolders({folder + "/lib64", folder + "/lib"});
  }
  for (int major = kNewestNvrtcMajor; major >= kOldestNvrtcMajor; --major) {
    list->AddFile("libnvrtc.so." + std::to_string(major), major);
  }
  list->AddFolders({"/usr/local/cuda/lib64"});
  std::vector<std::string> toolkits = ListFolder("/usr/local");
  std::reverse(toolkits.begin(), toolkits.end());
  for (const std::string& name : toolkits) {
    if (name.starts_with("cuda-")) list->AddFolders({"/usr/local/" + name + "/lib64"});
  }
  list->AddFolders({"/opt/cuda/lib64"});
}

}  // namespace

int NvrtcMajorOfFile(const std::string& file_name) {
  constexpr std::string_view kSuffix = ".so.";
  const std::size_t at = file_name.find(kSuffix);
  if (at == std::string::npos) return 0;
  const std::string stem = file_name.substr(0, at);
  const bool is_nvrtc = stem == "libnvrtc" ||
                        (stem.starts_with("libnvrtc-") && !stem.starts_with("libnvrtc-builtins"));
  if (!is_nvrtc) return 0;
  int major = 0;
  for (std::size_t i = at + kSuffix.size(); i < file_name.size() && file_name[i] != '.'; ++i) {
    if (file_name[i] < '0' || file_name[i] > '9' || major > 99) return 0;
    major = 10 * major + (file_name[i] - '0');
  }
  return major;
}

std::vector<std::string> SitePackagesFolders() {
  std::vector<std::string> folders;
  static constexpr int kHere = 0;
  AddSitePackagesAbove(core::os::PathOfLibraryWith(&kHere), &folders);
  for (const std::string& path : core::os::LoadedLibraryPaths()) {
    AddSitePackagesAbove(path, &folders);
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string folder = Environment(variable);
    if (!folder.empty()) AddSitePackagesBelow(folder + "/lib", &folders);
  }
  const std::string python_path = Environment("PYTHONPATH");
  for (std::size_t begin = 0; begin < python_path.size();) {
    const std::size_t end = std::min(python_path.find(':', begin), python_path.size());
    if (end > begin) AddOnce(&folders, python_path.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::string home = Environment("HOME");
  if (!home.empty()) AddSitePackagesBelow(home + "/.local/lib", &folders);
  for (const char* lib : {"/usr/local/lib", "/usr/lib"}) AddSitePackagesBelow(lib, &folders);
  return folders;
}

std::vector<NvrtcCandidate> NvrtcCandidates(int max_major, std::string* searched) {
  const std::string named = Environment("HEED_NVRTC");
  if (!named.empty()) {
    *searched = "HEED_NVRTC = " + named;
    return {{named, 0}};
  }
  CandidateList list(max_major);
  for (const std::string& path : core::os::LoadedLibraryPaths()) {
    const int major = NvrtcMajorOfFile(path.substr(path.rfind('/') + 1));
    if (major > 0) list.AddFile(path, major);
  }
  const std::vector<std::string> site_packages = SitePackagesFolders();
  *searched = "HEED_NVRTC (not set), nvidia/*/lib and torch/lib in";
  for (const std::string& folder : site_packages) {
    AddPythonPackages(folder, &list);
    *searched += " " + folder;
  }
  AddSystem(&list);
  *searched += ", CUDA_HOME, CUDA_PATH, CONDA_PREFIX, the system's library path, /usr/local/cuda*";
  return list.Take();
}

}  // namespace heed::cuda
