// fp16 as wide tiles use it: in storage, in workgroup memory, widened, and narrowed again. Before
// this text stand enable_f16.wgsl and probe_unused.wgsl.
@group(0) @binding(0) var<uniform> zeros: vec4<u32>;
@group(0) @binding(1) var<storage, read> halves: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read_write> results: array<vec4<f32>>;

var<workgroup> passed: array<vec4<f16>, 64>;

@compute @workgroup_size(64)
fn probe(@builtin(global_invocation_id) id: vec3<u32>,
         @builtin(local_invocation_index) lane: u32) {
  passed[lane] = halves[id.x];
  workgroupBarrier();
  let values = vec4<f32>(passed[63u - lane]);
  results[2u * id.x] = vec4<f32>(vec4<f16>(2.0 * values));
  results[2u * id.x + 1u] = vec4(dot(values, values), f32(zeros.x + unused_words()), 0.0, 0.0);
}
