// What shaders/unit.wgsl declares: the uniform block, the records of the table, the bindings.
#ifndef HEED_WEBGPU_UNIT_LAYOUT_H_
#define HEED_WEBGPU_UNIT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace heed::webgpu {

enum UnitFlags : std::uint32_t {
  kHasSoftcap = 1,
  kHasBias = 2,
  kHasAlibi = 4,
  kHasMask = 8,
  kHasSinks = 16,
  kHasDropout = 32,
  kWritesScoreGradient = 64  // backward only
};

// struct Params of the shader. Strides count elements of their binding: groups of 4 of q and o, of
// k and v what KeyRows says, of bias its elements, of the mask words of 32 keys.
struct UnitParams {
  std::uint32_t flags = 0;
  std::uint32_t group = 1;
  std::uint32_t head_dim_groups = 0;
  std::uint32_t head_dim_v_groups = 0;
  float scale = 1.0f;
  float scale_log2 = 1.0f;
  float softcap = 0.0f;
  std::uint32_t negative_infinity = 0xFF800000u;
  std::uint32_t q_row = 0, q_head = 0;
  std::uint32_t k_row = 0, v_row = 0;
  std::uint32_t o_row = 0, o_head = 0;
  std::uint32_t bias_row = 0, bias_head = 0, bias_key = 0;
  std::uint32_t mask_row = 0, mask_head = 0;
  std::uint32_t tasks_begin = 0;
  std::uint32_t dropout_key[2] = {0, 0};
  std::uint32_t dropout_offset = 0;
  std::uint32_t drop_threshold = 0;
  float keep_scale = 1.0f;
  std::uint32_t k_scale_groups = 1, v_scale_groups = 1;  // groups of 4 elements of a scale
  std::uint32_t unused = 0;
};
static_assert(sizeof(UnitParams) == 28 * 4 && offsetof(UnitParams, dropout_key) == 80);

// Storage bindings of Dispatch. Backward has d_o in place of kOutput and fp32 gradients in place of
// kLse.
enum UnitBinding : std::uint8_t {
  kQueries,
  kKeys,
  kValues,
  kOutput,
  kLse,
  kBias,
  kMask,
  kTable,
  kNumUnitBindings
};

// One KV head of a sequence: some of its queries against some of its keys.
struct UnitRecord {
  std::uint32_t begin[7] = {};  // in the bindings kQueries to kMask
  std::uint32_t first_query = 0;
  std::uint32_t num_rows = 0;  // queries times group
  std::uint32_t first_key = 0;
  std::uint32_t end_key = 0;
  std::int32_t low_diagonal = 0;
  std::int32_t high_diagonal = 0;
  std::int32_t shift = 0;
  std::uint32_t first_head = 0;   // b * Hq + h
  std::uint32_t head_values = 0;  // in the table: slopes of the group, then its sinks
};
static_assert(sizeof(UnitRecord) == 16 * 4);

struct TaskRecord {
  std::uint32_t unit = 0;
  std::uint32_t first_row = 0;
  std::uint32_t first_group = 0;  // of o's elements
  std::uint32_t gradient = 0;     // backward: 0 dq, 1 dk, 2 dv
};
static_assert(sizeof(TaskRecord) == 4 * 4);

inline constexpr std::int64_t kTileRows = 64;
inline constexpr std::int64_t kDecodeTileRows = 16;
inline constexpr std::int64_t kColumnGroups = 16;  // groups of 4 elements of o in one column step
inline constexpr std::int64_t kMaxColumns = 4;     // column steps of one workgroup

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_LAYOUT_H_
