// What the forward shader is timed beside: a matrix product tiled in the plain way, and attention
// that writes its scores to memory. All in fp32, dimensions multiples of the tiles.
#ifndef HEED_TESTS_WEBGPU_PEER_SHADERS_H_
#define HEED_TESTS_WEBGPU_PEER_SHADERS_H_

namespace heed::test {

// c = a . b, square, uniform size.x = rows. One workgroup per 64 x 64 tile of c, 4 x 4 elements an
// invocation, slices of 16 in workgroup memory.
inline constexpr const char* kMatmulShader = R"wgsl(
@group(0) @binding(0) var<uniform> size: vec4<u32>;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> unused_4: array<u32>;
@group(0) @binding(5) var<storage, read> unused_5: array<u32>;
@group(0) @binding(6) var<storage, read> unused_6: array<u32>;
@group(0) @binding(7) var<storage, read> unused_7: array<u32>;
@group(0) @binding(8) var<storage, read> unused_8: array<u32>;
var<workgroup> a_tile: array<vec4<f32>, 256>;
var<workgroup> b_tile: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn matmul(@builtin(workgroup_id) workgroup: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
  let keep = unused_4[0] + unused_5[0] + unused_6[0] + unused_7[0] + unused_8[0];
  let n4 = size.x / 4u;
  let tiles = size.x / 64u;
  let first_row = workgroup.x / tiles * 64u;
  let first_column4 = workgroup.x % tiles * 16u;
  let column = lane % 16u;
  let row = lane / 16u;
  var c0 = vec4(f32(keep));
  var c1 = c0;
  var c2 = c0;
  var c3 = c0;
  for (var k = 0u; k < n4; k += 4u) {
    workgroupBarrier();
    a_tile[lane] = a[(first_row + lane / 4u) * n4 + k + lane % 4u];
    b_tile[lane] = b[(k * 4u + lane / 16u) * n4 + first_column4 + lane % 16u];
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
      let a0 = a_tile[(row * 4u) * 4u + i];
      let a1 = a_tile[(row * 4u + 1u) * 4u + i];
      let a2 = a_tile[(row * 4u + 2u) * 4u + i];
      let a3 = a_tile[(row * 4u + 3u) * 4u + i];
      for (var j = 0u; j < 4u; j++) {
        let bj = b_tile[(i * 4u + j) * 16u + column];
        c0 = fma(vec4(a0[j]), bj, c0);
        c1 = fma(vec4(a1[j]), bj, c1);
        c2 = fma(vec4(a2[j]), bj, c2);
        c3 = fma(vec4(a3[j]), bj, c3);
      }
    }
  }
  let at = (first_row + row * 4u) * n4 + first_column4 + column;
  c[at] = c0;
  c[at + n4] = c1;
  c[at + 2u * n4] = c2;
  c[at + 3u * n4] = c3;
}
)wgsl";

// One head of attention, uniform size = {L, D}: scores, then softmax of rows, then products with v.
inline constexpr const char* kNaiveShader = R"wgsl(
@group(0) @binding(0) var<uniform> size: vec4<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> s: array<f32>;
@group(0) @binding(5) var<storage, read_write> o: array<f32>;
@group(0) @binding(6) var<storage, read> unused_6: array<u32>;
@group(0) @binding(7) var<storage, read> unused_7: array<u32>;
@group(0) @binding(8) var<storage, read> unused_8: array<u32>;
var<workgroup> parts: array<f32, 256>;

fn keep() -> f32 {
  return f32(unused_6[0] + unused_7[0] + unused_8[0]) + 0.0 * (q[0] + k[0] + v[0] + o[0]);
}

@compute @workgroup_size(16, 16)
fn scores(@builtin(workgroup_id) workgroup: vec3<u32>,
          @builtin(local_invocation_id) local: vec3<u32>) {
  let tiles = size.x / 16u;
  let key = workgroup.x % tiles * 16u + local.x;
  for (var half = 0u; half < 2u; half++) {
    let row = workgroup.x / tiles * 32u + half * 16u + local.y;
    var sum = keep();
    for (var d = 0u; d < size.y; d++) {
      sum += q[row * size.y + d] * k[key * size.y + d];
    }
    s[row * size.x + key] = sum * inverseSqrt(f32(size.y));
  }
}

@compute @workgroup_size(256)
fn softmax(@builtin(workgroup_id) workgroup: vec3<u32>,
           @builtin(local_invocation_index) lane: u32) {
  let row = workgroup.x * size.x;
  var best = s[row] + keep();
  for (var key = lane; key < size.x; key += 256u) {
    best = max(best, s[row + key]);
  }
  parts[lane] = best;
  workgroupBarrier();
  for (var step = 128u; step > 0u; step /= 2u) {
    if lane < step {
      parts[lane] = max(parts[lane], parts[lane + step]);
    }
    workgroupBarrier();
  }
  best = parts[0];
  workgroupBarrier();
  var sum = 0.0;
  for (var key = lane; key < size.x; key += 256u) {
    let weight = exp(s[row + key] - best);
    s[row + key] = weight;
    sum += weight;
  }
  parts[lane] = sum;
  workgroupBarrier();
  for (var step = 128u; step > 0u; step /= 2u) {
    if lane < step {
      parts[lane] += parts[lane + step];
    }
    workgroupBarrier();
  }
  sum = parts[0];
  for (var key = lane; key < size.x; key += 256u) {
    s[row + key] /= sum;
  }
}

@compute @workgroup_size(64)
fn values(@builtin(workgroup_id) workgroup: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
  let steps = size.y / 64u;
  let row = workgroup.x / steps;
  let d = workgroup.x % steps * 64u + lane;
  var sum = keep();
  for (var key = 0u; key < size.x; key++) {
    sum += s[row * size.x + key] * v[key * size.y + d];
  }
  o[row * size.y + d] = sum;
}
)wgsl";

}  // namespace heed::test

#endif  // HEED_TESTS_WEBGPU_PEER_SHADERS_H_
