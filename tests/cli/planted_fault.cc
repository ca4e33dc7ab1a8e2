// Preloaded into the tool by a test: heed_forward() that is wrong in one element of o, except for
// the oracle. Proves that `heed check` notices.
#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <string_view>

#include "heed/heed.h"

extern "C" HEED_API heed_status_t heed_forward(const heed_forward_args_t* args) {
  using Forward = heed_status_t (*)(const heed_forward_args_t*);
  const auto real = reinterpret_cast<Forward>(dlsym(RTLD_NEXT, "heed_forward"));
  const heed_status_t status = real(args);
  if (status != HEED_OK || args->exec->backend == HEED_BACKEND_REFERENCE) return status;
  const char* fault = std::getenv("HEED_TEST_FAULT");
  const std::string_view name = fault == nullptr ? "" : fault;
  float* o = static_cast<float*>(args->o->data);
  if (name == "offset") o[7] += 1e-3f;
  if (name == "nan") o[7] = std::numeric_limits<float>::quiet_NaN();
  if (name == "lse") static_cast<float*>(args->lse->data)[3] += 1e-3f;
  return status;
}
