// Tiles of 4 x 4 an invocation, and the workgroup memory that they go through. Before this text
// stand COLUMNS and TILE_ROWS.

// 16 columns x a quarter of the rows.
const LANES: u32 = 4u * TILE_ROWS;
const TILE_KEYS: u32 = 64u;
const SLICE_GROUPS: u32 = 8u;  // of the head dim, staged at a time: 32 elements
const HALF_KEYS: u32 = 32u;    // keys whose weights are in workgroup memory at a time
const SLAB_GROUPS: u32 = 16u * COLUMNS;
const SLAB_KEYS: u32 = 512u / SLAB_GROUPS;  // keys whose V is there beside them

// Only whole vectors are written, each by one invocation.
var<workgroup> shared_data: array<vec4<f32>, 1024>;

// Rows a to d of a 4 x 4 block become its columns, 16 vectors apart.
fn store_transposed(at: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
  shared_data[at] = vec4(a.x, b.x, c.x, d.x);
  shared_data[at + 16u] = vec4(a.y, b.y, c.y, d.y);
  shared_data[at + 32u] = vec4(a.z, b.z, c.z, d.z);
  shared_data[at + 48u] = vec4(a.w, b.w, c.w, d.w);
}
