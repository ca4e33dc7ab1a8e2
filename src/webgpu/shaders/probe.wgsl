// The arithmetic that kernels rely on: powers, logarithms, fp16 and NaN, 4 inputs an invocation.
// Before this text stand storage_f16.wgsl and math.wgsl.
@group(0) @binding(0) var<uniform> size: vec4<u32>;
@group(0) @binding(1) var<storage, read> powers: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> positives: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> halves: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> power_results: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> log_results: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> float_results: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> half_results: array<vec2<u32>>;
@group(0) @binding(8) var<storage, read_write> products: array<u32>;

fn multiply_wide(a: u32, b: u32) -> u32 {
  return (a >> 16u) * (b & 0xffffu) + a * b;
}

@compute @workgroup_size(64)
fn probe(@builtin(global_invocation_id) id: vec3<u32>) {
  let at = id.x;
  if at >= size.x {
    return;
  }
  power_results[at] = power_of_2(powers[at]);
  log_results[at] = log_2(positives[at]);
  let floats = unpack(halves[at]);
  float_results[at] = floats;
  half_results[at] = pack(floats);
  products[at] = multiply_wide(halves[at].x, halves[at].y);
}
