// What the page times heed beside: attention of one head in the plain way, one invocation a query
// row, every score computed twice and nothing shared. shape = {rows, D, 0, 0}; D at most 128.
@group(0) @binding(0) var<uniform> shape: vec4<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> o: array<f32>;

fn score(row: u32, key: u32) -> f32 {
  var sum = 0.0;
  for (var d = 0u; d < shape.y; d++) {
    sum += q[row * shape.y + d] * k[key * shape.y + d];
  }
  return sum * inverseSqrt(f32(shape.y));
}

@compute @workgroup_size(64)
fn naive(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.x;
  if row >= shape.x {
    return;
  }
  var largest = score(row, 0u);
  for (var key = 1u; key < shape.x; key++) {
    largest = max(largest, score(row, key));
  }
  var sums: array<f32, 128>;
  var total = 0.0;
  for (var key = 0u; key < shape.x; key++) {
    let weight = exp(score(row, key) - largest);
    total += weight;
    for (var d = 0u; d < shape.y; d++) {
      sums[d] += weight * v[key * shape.y + d];
    }
  }
  for (var d = 0u; d < shape.y; d++) {
    o[row * shape.y + d] = sums[d] / total;
  }
}
