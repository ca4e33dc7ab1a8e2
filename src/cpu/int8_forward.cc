#include "cpu/int8_forward.h"

#include <algorithm>
#include <cmath>

#include "core/os/os.h"
#include "cpu/int8_heads.h"
#include "cpu/int8_tile.h"
#include "cpu/tasks.h"

namespace heed::cpu {
namespace {

// Keys that one task packs.
constexpr std::int64_t kPackedPerTask = 8 * kInt8FloatBlock;

bool IsFixed(const core::ForwardProblem& problem) {
  return problem.int8.softmax == HEED_INT8_SOFTMAX_FIXED;
}

class Job {
 public:
  Job(const Int8Kernel& kernel, const core::ForwardProblem& problem, const Int8Packed& packed,
      std::int64_t num_workers, int key_exponent, void* workspace)
      : problem_(problem),
        packed_(packed),
        layout_(MakeInt8Layout(problem)),
        num_workers_(num_workers),
        memory_(static_cast<std::uint8_t*>(workspace)),
        context_{problem,
                 kernel,
                 kernel.modes[problem.int8.values],
                 layout_,
                 ValueFormatOf(problem, kernel),
                 IsFixed(problem) ? MakeInt8Scale(problem.score.scale) : Int8Scale{},
                 IsFixed(problem),
                 HasUniformKeys(problem),
                 HasTokenScales(problem),
                 key_exponent},
        num_tiles_(CeilDiv(problem.shape.max_q_len * problem.shape.group, kInt8TileRows)),
        tiles_per_range_(std::clamp<std::int64_t>(num_tiles_ * layout_.num_heads / num_workers, 1,
                                                  kInt8TilesPerRange)) {}

  void Run() const {
    const std::int64_t num_chunks = CeilDiv(problem_.shape.max_kv_len, kPackedPerTask);
    Tasks pack(num_chunks * layout_.num_heads, [&](std::int64_t task, std::int64_t /*worker*/) {
      Pack(task / num_chunks, task % num_chunks * kPackedPerTask);
    });
    pack.Run(problem_.exec, num_workers_);
    // The last rows see the most keys where a window bounds them.
    const std::int64_t num_ranges = CeilDiv(num_tiles_, tiles_per_range_);
    Tasks attend(num_ranges * layout_.num_heads, [&](std::int64_t task, std::int64_t worker) {
      Attend(task % layout_.num_heads, num_ranges - 1 - task / layout_.num_heads,
             layout_.Worker(memory_, worker));
    });
    attend.Run(problem_.exec, num_workers_);
  }

 private:
  Int8Head HeadAt(std::int64_t index) const {
    Int8Head head = layout_.Head(memory_, index);
    if (packed_.keys != nullptr) head.keys = packed_.keys;
    if (packed_.values != nullptr) head.values = packed_.values;
    return head;
  }

  void Pack(std::int64_t head_index, std::int64_t first_key) const {
    const std::int64_t end = std::min(first_key + kPackedPerTask, problem_.shape.max_kv_len);
    const Int8Head head = HeadAt(head_index);
    const Int8KeySpan keys{head_index, first_key, end};
    if (packed_.keys == nullptr) PackInt8Head(problem_, keys, context_.kernel, head);
    if (context_.kernel.q_format == Int8QueryFormat::kUnsigned) {
      const std::int64_t block_bytes = layout_.num_steps * kInt8StepBytes;
      for (std::int64_t key = first_key; key < end; key += kInt8Block) {
        SumInt8Keys(head.keys + key / kInt8Block * block_bytes, layout_.num_steps,
                    head.key_bias + key);
      }
    }
    FillInt8Factors(problem_, keys, context_.key_exponent, head);
  }

  // What the product reads of a block: packed values, or those widened into memory.
  const void* ValuesAt(const Int8Head& head, std::int64_t first_key, std::int64_t end_key,
                       void* wide) const {
    Int8WidenArgs widen = {};
    widen.values = head.values +
                   (context_.value_format == Int8ValueFormat::kSteps
                        ? first_key / kInt8Group * kInt8StepBytes
                        : first_key * layout_.padded_dims * Int8ValueBytes(context_.value_format));
    widen.tile_stride_bytes = CeilDiv(problem_.shape.max_kv_len, kInt8Group) * kInt8StepBytes;
    widen.padded_dims = layout_.padded_dims;
    widen.wide_stride = layout_.wide_stride;
    widen.num_keys =
        static_cast<int>(std::min<std::int64_t>(context_.block_keys(), end_key - first_key));
    widen.wide = wide;
    const auto function = context_.is_fixed ? context_.kernel.widen : context_.mode.widen;
    if (function == nullptr) return widen.values;
    function(widen);
    return wide;
  }

  void Attend(std::int64_t head_index, std::int64_t range, const Int8WorkerMemory& memory) const {
    const Int8Head head = HeadAt(head_index);
    if (context_.kernel.start_thread != nullptr) context_.kernel.start_thread();
    const std::int64_t first_tile = range * tiles_per_range_;
    const std::int64_t num_tiles = std::min(tiles_per_range_, num_tiles_ - first_tile);
    Int8Tile tiles[kInt8TilesPerRange];
    std::int64_t begin = problem_.shape.max_kv_len, end = 0;
    for (std::int64_t n = 0; n < num_tiles; ++n) {
      Int8Tile& tile = tiles[n];
      tile.head_index = head_index;
      tile.first_row = (first_tile + n) * kInt8TileRows;
      StartInt8Tile(context_, memory.tiles + static_cast<std::size_t>(n) * layout_.tile_bytes,
                    &tile);
      begin = std::min(begin, tile.some_begin);
      end = std::max(end, tile.some_end);
    }
    const int block_keys = context_.block_keys();
    for (std::int64_t key = begin / block_keys * block_keys; key < end; key += block_keys) {
      const void* values = ValuesAt(head, key, end, memory.wide);
      for (std::int64_t n = 0; n < num_tiles; ++n) {
        Int8Tile& tile = tiles[n];
        if (tile.some_end <= key || tile.some_begin >= key + block_keys) continue;
        AddInt8Block(context_, head, key, values, memory.scores, &tile);
      }
    }
    for (std::int64_t n = 0; n < num_tiles; ++n) {
      FinishInt8Tile(context_, head, &tiles[n], static_cast<float*>(memory.wide));
    }
    if (context_.kernel.stop_thread != nullptr) context_.kernel.stop_thread();
  }

  const core::ForwardProblem& problem_;
  const Int8Packed packed_;
  const Int8Layout layout_;
  const std::int64_t num_workers_;
  std::uint8_t* const memory_;
  const Int8Context context_;
  const std::int64_t num_tiles_, tiles_per_range_;
};

}  // namespace

std::size_t Int8WorkspaceBytes(const core::ForwardProblem& problem, std::int64_t num_workers) {
  return MakeInt8Layout(problem).TotalBytes(num_workers);
}

core::Status RunInt8(const Int8Kernel& kernel, const core::ForwardProblem& problem,
                     const Int8Packed& packed, std::int64_t num_workers, void* workspace) {
  int key_exponent = 0;
  HEED_RETURN_IF_ERROR(CheckInt8Scales(problem, &key_exponent));
  Job(kernel, problem, packed, num_workers, key_exponent, workspace).Run();
  return {};
}

core::Status RunInt8Forward(const core::ForwardProblem& problem, const core::Plan& plan,
                            void* workspace) {
  const Int8Kernel* kernel = FindInt8Kernel(plan.row->cpu_target);
  if (kernel == nullptr) {
    return core::Internal(core::Format("%s is not part of this build", plan.row->id));
  }
  core::ForwardProblem here = problem;
  const Int8FloatMode& pairs = kernel->modes[HEED_INT8_VALUES_BF16];
  const bool is_matrix = pairs.value_format == Int8ValueFormat::kWideColumns;
  const bool has_fast_pairs = pairs.weights != nullptr && (is_matrix || core::os::HasFastBf16Dot());
  if (here.int8.values == HEED_INT8_VALUES_BF16 && !has_fast_pairs) {
    here.int8.values = HEED_INT8_VALUES_F32;
  }
  return RunInt8(*kernel, here, {}, plan.num_workers, workspace);
}

core::ForwardProblem MakeInt8Problem(const Int8HeadCall& call) {
  core::ForwardProblem problem;
  problem.shape = {.batch = 1,
                   .num_q_heads = 1,
                   .num_kv_heads = 1,
                   .max_q_len = call.length,
                   .max_kv_len = call.length,
                   .total_q_rows = call.length,
                   .total_kv_rows = call.length,
                   .head_dim = call.head_dim,
                   .head_dim_v = call.head_dim};
  const auto rows = [&](const void* data, core::DType dtype) {
    return core::RowsView{const_cast<void*>(data), dtype, 0, call.head_dim, 0};
  };
  problem.q = rows(call.q, core::DType::kI8);
  problem.k = rows(call.k, core::DType::kI8);
  problem.v = rows(call.v, core::DType::kI8);
  problem.o = rows(call.o, core::DType::kF32);
  if (call.lse != nullptr) problem.lse = {call.lse, core::DType::kF32, 0, 0, 1};
  problem.score.scale = 1.0 / std::sqrt(static_cast<double>(call.head_dim));
  problem.int8.softmax = HEED_INT8_SOFTMAX_FIXED;
  return problem;
}

}  // namespace heed::cpu
