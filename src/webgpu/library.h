// libwgpu_native, opened at run time.
#ifndef HEED_WEBGPU_LIBRARY_H_
#define HEED_WEBGPU_LIBRARY_H_

#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "webgpu/interface.h"

namespace heed::webgpu {

struct Library {
  Functions functions = {};
  std::string path;     // or the name by which the system found it
  std::string version;  // "29.0.1.1"
};

// Where the library is looked for, in order: HEED_WEBGPU_LIBRARY alone when it is set; the folder
// of this library; the system's search; the Python package wgpu in the usual places.
std::vector<std::string> LibraryCandidates();

// Null for a name that is not there.
using FindFunction = std::function<void*(const char* name)>;

// Empty when *library is ready; else why it cannot be used. `path` names it in messages.
std::string BindLibrary(const std::string& path, const FindFunction& find, Library* library);
std::string LoadLibrary(const std::string& path, Library* library);

// Opened once for the life of the process. HEED_UNAVAILABLE with the remedy when there is none, or
// only one whose version or symbols do not fit.
core::Status GetLibrary(const Library** library);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_LIBRARY_H_
