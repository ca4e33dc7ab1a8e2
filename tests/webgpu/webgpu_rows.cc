#include "webgpu/webgpu_rows.h"

#include <cstdlib>

#include "support/forward_instance.h"

namespace heed::test {
namespace {

std::string Text(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const std::string text = Text(name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

// Small cases by default: an adapter in software takes about a second for 10 million.
WebgpuOptions WebgpuOptions::Read() {
  return {Number("HEED_WEBGPU_CASES", 120), Number("HEED_WEBGPU_SEED", 1),
          static_cast<double>(Number("HEED_WEBGPU_COST", 500000)), Text("HEED_WEBGPU_CASE")};
}

const std::vector<KernelRow>& WebgpuRows() {
#define HEED_KERNEL(...)
#define HEED_WEBGPU_KERNEL(id, op, dtype, max_head_dim, tile_q, tile_kv, rank) \
  {id, "Webgpu", "None", #op, #dtype, max_head_dim, rank},
  static const std::vector<KernelRow> rows = {
#include "core/kernels.inc"
  };
#undef HEED_WEBGPU_KERNEL
#undef HEED_KERNEL
  return rows;
}

std::string WhyNoWebgpu() { return WhyRowCannotRun(WebgpuRows().front()); }

}  // namespace heed::test
