#include "core/os/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>

namespace heed::core::os {

DynamicLibrary DynamicLibrary::Open(const std::string& path_or_name, std::string* error) {
  DynamicLibrary library;
  library.handle_ = dlopen(path_or_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ == nullptr) {
    const char* reason = dlerror();
    *error = reason != nullptr ? reason : path_or_name + ": cannot be opened";
  }
  return library;
}

void* DynamicLibrary::Symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::string PathOfLibraryWith(const void* address) {
  Dl_info found = {};
  if (dladdr(address, &found) == 0 || found.dli_fname == nullptr) return {};
  char resolved[PATH_MAX];
  return realpath(found.dli_fname, resolved) != nullptr ? resolved : std::string(found.dli_fname);
}

std::vector<std::string> LoadedLibraryPaths() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* context) {
        if (library->dlpi_name != nullptr && library->dlpi_name[0] != '\0') {
          static_cast<std::vector<std::string>*>(context)->emplace_back(library->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

}  // namespace heed::core::os
