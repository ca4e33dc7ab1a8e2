#include <cstdint>

namespace heed::tools {
namespace {
constexpr std::int64_t kVectorLanes = 8;
}  // namespace
}  // namespace heed::tools

#include "plain_passes-inl.h"

namespace heed::tools {

const PlainPasses kPlainAvx2 = {"avx2", ScoresPass, SoftmaxPass, ValuesPass};

}  // namespace heed::tools
