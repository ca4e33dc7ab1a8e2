// Workgroup memory of wide tiles in fp16; sums stay fp32. Before this text stands STAGED_VECTORS.
var<workgroup> shared_data: array<vec4<f16>, STAGED_VECTORS>;
var<workgroup> exchange_data: array<vec4<f32>, 256>;

fn staged(values: vec4<f32>) -> vec4<f16> {
  return vec4<f16>(values);
}

fn unstaged(values: vec4<f16>) -> vec4<f32> {
  return vec4<f32>(values);
}

// Numbers that pass between invocations.
fn set_exchanged(at: u32, values: vec4<f32>) {
  exchange_data[at] = values;
}

fn exchanged(at: u32) -> vec4<f32> {
  return exchange_data[at];
}
