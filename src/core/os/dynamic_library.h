// Shared libraries that are opened at run time, and where libraries of this process lie.
#ifndef HEED_CORE_OS_DYNAMIC_LIBRARY_H_
#define HEED_CORE_OS_DYNAMIC_LIBRARY_H_

#include <string>
#include <vector>

namespace heed::core::os {

// A library that stays loaded for the life of the process: code of drivers and compilers keeps
// threads and exit handlers, so it is never unloaded. Copies name the same library.
class DynamicLibrary {
 public:
  // A path, or a bare name for the system's own search. A library that cannot be opened leaves
  // is_open() false and the system's reason in *error.
  static DynamicLibrary Open(const std::string& path_or_name, std::string* error);

  bool is_open() const { return handle_ != nullptr; }
  // Null when there is no such symbol.
  void* Symbol(const char* name) const;
  template <class Function>
  bool Resolve(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(Symbol(name));
    return *function != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

// Absolute path of the file that holds a function or object of this process; empty when unknown.
std::string PathOfLibraryWith(const void* address);
// Paths of every library loaded now.
std::vector<std::string> LoadedLibraryPaths();

}  // namespace heed::core::os

#endif  // HEED_CORE_OS_DYNAMIC_LIBRARY_H_
