#include "quantised.h"

#include <algorithm>
#include <cmath>

#include "tools/heed/call.h"
#include "tools/heed/errors.h"

namespace heed::tools {
namespace {

// Where a number of a [B, S, H, D] tensor finds its scale among [B, H, n].
enum class ScaleOf { kToken, kChannel };

Tensor Quantise(Tensor* tensor, ScaleOf scale_of) {
  const std::int64_t batch = tensor->shape[0], rows = tensor->shape[1], heads = tensor->shape[2],
                     dims = tensor->shape[3];
  const std::int64_t num_scales = scale_of == ScaleOf::kToken ? rows : dims;
  Tensor scales = MakeTensor(ElementType::kF32, {batch, heads, num_scales});
  Tensor bytes = MakeTensor(ElementType::kI8, tensor->shape);
  const float* from = tensor->data<float>();
  const auto scale_at = [&](std::int64_t n) -> float& {
    const std::int64_t d = n % dims, head = n / dims % heads, row = n / dims / heads % rows;
    const std::int64_t b = n / dims / heads / rows;
    const std::int64_t index = scale_of == ScaleOf::kToken ? row : d;
    return scales.data<float>()[(b * heads + head) * num_scales + index];
  };
  const std::int64_t count = tensor->NumElements();
  for (std::int64_t n = 0; n < count; ++n) {
    float& scale = scale_at(n);
    scale = std::max(scale, std::abs(from[n]) / 127.0f);
  }
  for (std::int64_t n = 0; n < count; ++n) {
    const float scale = scale_at(n);
    const float steps = scale > 0.0f ? std::nearbyint(from[n] / scale) : 0.0f;
    bytes.data<std::int8_t>()[n] = static_cast<std::int8_t>(std::clamp(steps, -127.0f, 127.0f));
  }
  *tensor = std::move(bytes);
  return scales;
}

// Returns the scales.
Tensor QuantiseRows(Layout layout, Tensor* rows) {
  std::vector<std::int64_t> scale_shape = rows->shape;
  scale_shape.back() = 1;
  Tensor scales = MakeTensor(ElementType::kF32, std::move(scale_shape));
  Tensor bytes = MakeTensor(ElementType::kU8, rows->shape);
  TensorBinding source, payload, of_scales;
  source.BindRows(*rows, layout);
  payload.BindRows(bytes, layout);
  of_scales.BindRows(scales, layout);
  heed_quantize_kv_args_t args = HEED_QUANTIZE_KV_ARGS_INIT;
  args.source = source.get();
  args.payload = payload.get();
  args.scales = of_scales.get();
  args.layout = HEED_KV_LAYOUT_INTERLEAVED;
  RequireOk(heed_quantize_kv(&args));
  *rows = std::move(bytes);
  return scales;
}

}  // namespace

Quantised QuantiseInputs(Inputs* inputs) {
  for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV}) {
    const Tensor& tensor = *(*inputs)[operand];
    if (tensor.type != ElementType::kF32 || tensor.shape.size() != 4 ||
        inputs->layout != Layout::kRowsHeads) {
      throw InputError("bench: --int8: takes neither --dtype nor --layout nor packed rows");
    }
  }
  Quantised quantised;
  quantised.q_scales = Quantise(&*(*inputs)[Operand::kQ], ScaleOf::kToken);
  quantised.k_scales = Quantise(&*(*inputs)[Operand::kK], ScaleOf::kToken);
  quantised.v_scales = Quantise(&*(*inputs)[Operand::kV], ScaleOf::kChannel);
  return quantised;
}

Quantised QuantiseCache(Inputs* inputs) {
  Quantised quantised;
  quantised.k_scales = QuantiseRows(inputs->layout, &*(*inputs)[Operand::kK]);
  quantised.v_scales = QuantiseRows(inputs->layout, &*(*inputs)[Operand::kV]);
  return quantised;
}

}  // namespace heed::tools
