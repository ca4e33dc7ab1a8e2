#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "convert.h"
#include "errors.h"
#include "inputs.h"
#include "random.h"

namespace heed::tools {
namespace {

using Shape = std::vector<std::int64_t>;

// Axes in memory order for the layout.
Shape RowsShape(Layout layout, Shape batch_row_head_dim) {
  const std::size_t rank = batch_row_head_dim.size();
  if (layout == Layout::kHeadsRows) {
    std::swap(batch_row_head_dim[rank - 3], batch_row_head_dim[rank - 2]);
  }
  return batch_row_head_dim;
}

struct Source {
  Random random;
  Fill fill;
};

// Drawing costs more than reading: past so many numbers a tensor repeats itself.
constexpr std::int64_t kMostDrawn = std::int64_t{1} << 26;

void RepeatFrom(std::int64_t first_elem, Tensor* tensor) {
  const std::size_t period = static_cast<std::size_t>(first_elem) * ElementBytes(tensor->type);
  for (std::size_t at = period; at < tensor->bytes.size(); at += period) {
    std::copy_n(tensor->bytes.data(), std::min(period, tensor->bytes.size() - at),
                tensor->bytes.data() + at);
  }
}

Tensor DrawNormal(Source* source, ElementType type, Shape shape) {
  if (source->fill == Fill::kShapesOnly) return Tensor{type, std::move(shape), {}};
  Random* random = &source->random;
  Tensor tensor = MakeTensor(type, std::move(shape));
  const std::int64_t count = std::min(tensor.NumElements(), kMostDrawn);
  if (type == ElementType::kF32) {  // the common type, without the dispatch of StoreElement
    float* data = tensor.data<float>();
    for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(random->NearNormal());
  } else {
    for (std::int64_t i = 0; i < count; ++i) StoreElement(&tensor, i, random->NearNormal());
  }
  if (count < tensor.NumElements()) RepeatFrom(count, &tensor);
  return tensor;
}

Tensor IndexTensor(const Shape& shape, const std::vector<std::int32_t>& values) {
  Tensor tensor = MakeTensor(ElementType::kI32, shape);
  std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
  return tensor;
}

// Three keys of four are visible.
Tensor DrawMask(Source* source, Shape shape) {
  if (source->fill == Fill::kShapesOnly) return Tensor{ElementType::kBool, std::move(shape), {}};
  Tensor mask = MakeTensor(ElementType::kBool, std::move(shape));
  for (std::uint8_t& value : mask.bytes) value = source->random.Below(4) != 0 ? 1 : 0;
  return mask;
}

// 2^(-8 (h + 1) / Hq), the slopes of the ALiBi paper for a power of two of heads.
Tensor SlopesOf(std::int64_t num_q_heads) {
  Tensor slopes = MakeTensor(ElementType::kF32, {num_q_heads});
  for (std::int64_t h = 0; h < num_q_heads; ++h) {
    slopes.data<float>()[h] =
        std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(num_q_heads));
  }
  return slopes;
}

// Cuts batch * length rows into `batch` sequences of random lengths.
Tensor DrawOffsets(Random* random, std::int64_t batch, std::int64_t length) {
  if (batch * length > INT32_MAX) {
    throw InputError("--with varlen: " + std::to_string(batch * length) +
                     " rows do not fit the int32 offsets");
  }
  std::vector<std::int32_t> cuts = {0};
  for (std::int64_t b = 1; b < batch; ++b) {
    cuts.push_back(static_cast<std::int32_t>(random->Below(batch * length + 1)));
  }
  cuts.push_back(static_cast<std::int32_t>(batch * length));
  std::sort(cuts.begin(), cuts.end());
  return IndexTensor({batch + 1}, cuts);
}

Tensor DrawLengths(Random* random, std::int64_t batch, std::int64_t length) {
  std::vector<std::int32_t> lengths;
  for (std::int64_t b = 0; b < batch; ++b) {
    lengths.push_back(static_cast<std::int32_t>(random->Below(length + 1)));
  }
  return IndexTensor({batch}, lengths);
}

constexpr std::int64_t kPageSlots = 16;

// Pages of all sequences in shuffled order.
Tensor DrawBlockTable(Random* random, std::int64_t batch, std::int64_t max_pages) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(batch * max_pages));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = pages.size(); i > 1; --i) {
    std::swap(pages[i - 1],
              pages[static_cast<std::size_t>(random->Below(static_cast<std::int64_t>(i)))]);
  }
  return IndexTensor({batch, max_pages}, pages);
}

bool Has(const ShapeOptions& shape, std::string_view feature) {
  return std::find(shape.features.begin(), shape.features.end(), feature) != shape.features.end();
}

struct RowShapes {
  Shape q, k, v;
};

RowShapes ShapesOf(const ShapeOptions& shape, const ResolvedShape& e, Layout layout) {
  Shape q = {e.batch, e.q_len, e.num_q_heads, e.head_dim};
  Shape k = {e.batch, e.kv_len, e.num_kv_heads, e.head_dim};
  Shape v = {e.batch, e.kv_len, e.num_kv_heads, e.head_dim_v};
  if (Has(shape, "varlen")) {
    q = {e.batch * e.q_len, e.num_q_heads, e.head_dim};
    k = {e.batch * e.kv_len, e.num_kv_heads, e.head_dim};
    v = {e.batch * e.kv_len, e.num_kv_heads, e.head_dim_v};
  }
  if (Has(shape, "paged")) {
    const std::int64_t num_pages = e.batch * ((e.kv_len + kPageSlots - 1) / kPageSlots);
    k = {num_pages, kPageSlots, e.num_kv_heads, e.head_dim};
    v = {num_pages, kPageSlots, e.num_kv_heads, e.head_dim_v};
  }
  return {RowsShape(layout, q), RowsShape(layout, k), RowsShape(layout, v)};
}

void DrawLengthOperands(const ShapeOptions& shape, const ResolvedShape& e, Random* random,
                        Inputs* inputs) {
  if (Has(shape, "varlen")) {
    (*inputs)[Operand::kCuSeqlensQ] = DrawOffsets(random, e.batch, e.q_len);
    if (!Has(shape, "paged")) {
      (*inputs)[Operand::kCuSeqlensKv] = DrawOffsets(random, e.batch, e.kv_len);
    }
  } else if (Has(shape, "seqused")) {
    (*inputs)[Operand::kSequsedQ] = DrawLengths(random, e.batch, e.q_len);
    (*inputs)[Operand::kSequsedKv] = DrawLengths(random, e.batch, e.kv_len);
  }
  if (Has(shape, "paged")) {
    (*inputs)[Operand::kSequsedKv] = DrawLengths(random, e.batch, e.kv_len);
    (*inputs)[Operand::kBlockTable] =
        DrawBlockTable(random, e.batch, (e.kv_len + kPageSlots - 1) / kPageSlots);
  }
}

void DrawScoreOperands(const ShapeOptions& shape, const ResolvedShape& e, Source* source,
                       Inputs* inputs) {
  // With varlen a sequence may be as long as all rows together.
  const bool is_packed = Has(shape, "varlen");
  const std::int64_t q_len = is_packed ? e.batch * e.q_len : e.q_len;
  const std::int64_t kv_len = is_packed ? e.batch * e.kv_len : e.kv_len;
  if (Has(shape, "bias")) {
    (*inputs)[Operand::kBias] =
        DrawNormal(source, ElementType::kF32, {1, e.num_q_heads, q_len, kv_len});
  }
  if (Has(shape, "mask")) (*inputs)[Operand::kMask] = DrawMask(source, {e.batch, 1, q_len, kv_len});
  if (Has(shape, "alibi")) (*inputs)[Operand::kAlibiSlopes] = SlopesOf(e.num_q_heads);
  if (Has(shape, "sinks")) {
    (*inputs)[Operand::kSinks] = DrawNormal(source, ElementType::kF32, {e.num_q_heads});
  }
}

}  // namespace

Inputs DrawInputs(const Options& options, Fill fill) {
  const ResolvedShape extents = Resolve(options.shape);
  const ElementType type = options.type.value_or(ElementType::kF32);
  const RowShapes shapes = ShapesOf(options.shape, extents, options.layout);
  Source source{Random(options.seed), fill};
  Inputs inputs;
  inputs.layout = options.layout;
  inputs[Operand::kQ] = DrawNormal(&source, type, shapes.q);
  inputs[Operand::kK] = DrawNormal(&source, type, shapes.k);
  inputs[Operand::kV] = DrawNormal(&source, type, shapes.v);
  DrawScoreOperands(options.shape, extents, &source, &inputs);
  DrawLengthOperands(options.shape, extents, &source.random, &inputs);
  return inputs;
}

}  // namespace heed::tools
