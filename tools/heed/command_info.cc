#include <cstdio>
#include <string>

#include "call.h"
#include "commands.h"
#include "errors.h"
#include "info.h"

namespace heed::tools {

std::string InfoText(heed_info_format_t format) {
  std::size_t needed_bytes = 0;
  RequireOk(heed_info(format, nullptr, 0, &needed_bytes));
  std::string text(needed_bytes, '\0');
  RequireOk(heed_info(format, text.data(), text.size(), nullptr));
  text.resize(text.find('\0'));
  return text;
}

int RunInfo(const Options& options) {
  std::string text = InfoText(options.json ? HEED_INFO_JSON : HEED_INFO_TEXT);
  if (!text.ends_with('\n')) text += '\n';
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace heed::tools
