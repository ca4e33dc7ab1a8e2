#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

// In this order: the constants of owned_tensor.h have the names of enumerators.
// clang-format off
#include "gpu/cuda_rows.h"
#include "decode/decode_instance.h"
#include "gpu/decode_call.h"
#include "gpu/decode_rows.h"
// clang-format on

namespace heed::test {
namespace {

std::string WhyCannotRun(const KernelRow& row) {
  DecodeCase smallest;
  smallest.lengths = {1};
  smallest.element = row.Takes(Element::kF16) ? Element::kF16 : Element::kBF16;
  DecodeInstance instance(smallest);
  const std::string id(row.id);
  DeviceDecodeCall call(instance.args);
  call.exec().kernel = id.c_str();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_DECODE, call.args(), &plan) == HEED_OK ? "" : heed_last_error();
}

// Largest |got - wanted| / bound; infinity where only one is NaN or infinite. Infinities must
// agree.
double WorstRatio(const std::vector<double>& got, const std::vector<double>& wanted, double bound) {
  double worst = 0.0;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (got[n] == wanted[n]) continue;
    const double ratio = std::abs(got[n] - wanted[n]) / bound;
    worst = std::max(worst, std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity());
  }
  return worst;
}

}  // namespace

std::vector<KernelRow> RunnableRows(const std::string& id_part) {
  std::vector<KernelRow> rows;
  for (const KernelRow& row : CudaRows()) {
    if (row.op != "Decode" || row.id.find(id_part) == std::string_view::npos) continue;
    const std::string why = WhyCannotRun(row);
    if (why.empty()) {
      rows.push_back(row);
    } else {
      std::printf("NOT RUN  %s: %s\n", std::string(row.id).c_str(), why.c_str());
    }
  }
  return rows;
}

std::string Compare(const DecodeResults& got, const DecodeResults& wanted,
                    const DecodeInstance::Bounds& bounds) {
  const double o = WorstRatio(got.o, wanted.o, bounds.output);
  const double lse = WorstRatio(got.lse, wanted.lse, bounds.lse);
  std::string text;
  if (o > 1.0) text += "o: error / bound " + std::to_string(o) + "; ";
  if (lse > 1.0) text += "lse: error / bound " + std::to_string(lse) + "; ";
  if (got.cache != wanted.cache) text += "the cache differs";
  return text;
}

std::string RunOn(const KernelRow& row, DecodeInstance& instance, const DecodeResults& wanted,
                  const DecodeInstance::Bounds& bounds) {
  instance.Restore();
  const std::string id(row.id);
  DeviceDecodeCall call(instance.args);
  call.exec().kernel = id.c_str();
  if (instance.decode_case().index % 2 == 0 && call.MakeWorkspace() != HEED_OK) {
    return heed_last_error();
  }
  if (heed_decode(call.args()) != HEED_OK) return heed_last_error();
  const std::string damage = call.Finish();
  if (!damage.empty()) return damage;
  return Compare(CollectResults(instance), wanted, bounds);
}

bool Plans(const KernelRow& row, DecodeInstance& instance) {
  const std::string id(row.id);
  DeviceDecodeCall call(instance.args);
  call.exec().kernel = id.c_str();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_DECODE, call.args(), &plan) != HEED_UNSUPPORTED;
}

DecodeResults OracleResults(DecodeInstance& instance) {
  EXPECT_EQ(instance.Run({.backend = HEED_BACKEND_REFERENCE}), HEED_OK) << heed_last_error();
  return CollectResults(instance);
}

}  // namespace heed::test
