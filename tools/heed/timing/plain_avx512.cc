#include <cstdint>

namespace heed::tools {
namespace {
constexpr std::int64_t kVectorLanes = 16;
}  // namespace
}  // namespace heed::tools

#include "plain_passes-inl.h"

namespace heed::tools {

const PlainPasses kPlainAvx512 = {"avx512", ScoresPass, SoftmaxPass, ValuesPass};

}  // namespace heed::tools
