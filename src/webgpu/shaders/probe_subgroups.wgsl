// Size and order of subgroups, and numbers that pass between their invocations. Before this text
// stands probe_unused.wgsl.
@group(0) @binding(0) var<uniform> zeros: vec4<u32>;
@group(0) @binding(1) var<storage, read> lanes: array<u32>;  // 0 to 63
@group(0) @binding(2) var<storage, read_write> results: array<vec4<u32>>;

@compute @workgroup_size(64)
fn probe(@builtin(global_invocation_id) id: vec3<u32>,
         @builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32,
         @builtin(subgroup_invocation_id) place: u32) {
  let own = lanes[lane] + zeros.x;
  results[2u * id.x] = vec4(size, place, subgroupShuffleXor(own, 1u), subgroupShuffleXor(own, 2u));
  results[2u * id.x + 1u] = vec4(subgroupShuffleXor(own, 4u), subgroupShuffleXor(own, 8u),
                                 zeros.y, unused_words());
}
