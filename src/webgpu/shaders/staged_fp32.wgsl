// Workgroup memory of wide tiles in fp32. Before this text stands STAGED_VECTORS.
var<workgroup> shared_data: array<vec4<f32>, STAGED_VECTORS>;

fn staged(values: vec4<f32>) -> vec4<f32> {
  return values;
}

fn unstaged(values: vec4<f32>) -> vec4<f32> {
  return values;
}

// Numbers that pass between invocations.
fn set_exchanged(at: u32, values: vec4<f32>) {
  shared_data[at] = values;
}

fn exchanged(at: u32) -> vec4<f32> {
  return shared_data[at];
}
