// The folder of what the library keeps between processes: compiled kernels and tuning.
#ifndef HEED_CORE_CACHE_FOLDER_H_
#define HEED_CORE_CACHE_FOLDER_H_

#include <string>

namespace heed::core {

// HEED_CACHE_DIR, else XDG_CACHE_HOME/heed, else HOME/.cache/heed; only absolute paths count.
// Empty when HEED_CACHE=0 turns the cache off or no variable names a place; *reason then says
// which.
std::string CacheFolder(std::string* reason);

}  // namespace heed::core

#endif  // HEED_CORE_CACHE_FOLDER_H_
