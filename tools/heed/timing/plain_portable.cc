#include <cstdint>

namespace heed::tools {
namespace {
constexpr std::int64_t kVectorLanes = 4;
}  // namespace
}  // namespace heed::tools

#include "plain_passes-inl.h"

namespace heed::tools {

const PlainPasses kPlainPortable = {"portable", ScoresPass, SoftmaxPass, ValuesPass};

}  // namespace heed::tools
