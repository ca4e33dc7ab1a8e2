// heed_info() as a string.
#ifndef HEED_TOOLS_INFO_H_
#define HEED_TOOLS_INFO_H_

#include <string>

#include "heed/heed.h"

namespace heed::tools {

// Throws as RequireOk.
std::string InfoText(heed_info_format_t format);

}  // namespace heed::tools

#endif  // HEED_TOOLS_INFO_H_
