// heed pack build, list and verify.
#include <cstdio>
#include <memory>
#include <string>

#include "call.h"
#include "commands.h"
#include "errors.h"
#include "timing/progress.h"

namespace heed::tools {
namespace {

std::string PackText(const std::string& path, heed_info_format_t format) {
  std::size_t needed_bytes = 0;
  RequireOk(heed_pack_describe(path.c_str(), format, nullptr, 0, &needed_bytes));
  std::string text(needed_bytes, '\0');
  RequireOk(heed_pack_describe(path.c_str(), format, text.data(), text.size(), nullptr));
  text.resize(text.find('\0'));
  return text;
}

// The bar appears with the first report, which says how many kernels there are.
void ShowProgress(void* context, std::int64_t num_done, std::int64_t num_kernels,
                  const char* kernel) {
  auto& bar = *static_cast<std::unique_ptr<Progress>*>(context);
  if (bar == nullptr) bar = std::make_unique<Progress>(num_kernels);
  if (num_done == 0) return;
  bar->StartCase(kernel);
  bar->Update(1.0);  // reported when it is done
}

int Build(const PackOptions& pack) {
  std::unique_ptr<Progress> bar;
  heed_pack_args_t args = HEED_PACK_ARGS_INIT;
  args.path = pack.path.c_str();
  if (!pack.archs.empty()) args.archs = pack.archs.c_str();
  if (!pack.rows.empty()) args.kernels = pack.rows.c_str();
  args.num_threads = pack.num_threads;
  args.progress = ShowProgress;
  args.progress_context = &bar;
  const heed_status_t status = heed_pack_build(&args);
  bar.reset();
  RequireOk(status);
  const std::string text = PackText(pack.path, HEED_INFO_TEXT);
  // The last line counts the kernels.
  const std::size_t count = text.rfind('\n', text.size() - 2) + 1;
  std::printf("%s: %s", pack.path.c_str(), text.substr(count).c_str());
  return kExitOk;
}

int List(const PackOptions& pack) {
  std::string text = PackText(pack.path, pack.json ? HEED_INFO_JSON : HEED_INFO_TEXT);
  if (!text.ends_with('\n')) text += '\n';
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int Verify(const PackOptions& pack) {
  RequireOk(heed_pack_verify(pack.path.c_str()));
  std::printf("%s: ok\n", pack.path.c_str());
  return kExitOk;
}

}  // namespace

int RunPack(const Options& options) {
  switch (options.pack.action) {
    case PackAction::kBuild:
      return Build(options.pack);
    case PackAction::kList:
      return List(options.pack);
    case PackAction::kVerify:
      return Verify(options.pack);
  }
  return kExitBadInput;
}

}  // namespace heed::tools
