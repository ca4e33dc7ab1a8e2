// What passes over units have in common: parameters, inputs and the table that describes them.
// Before this text stand storage_*.wgsl, queries_*.wgsl and keys_*.wgsl.

// src/webgpu/unit_layout.h fills these; offsets and strides count elements of their buffer, which
// for q and o are groups of 4 of theirs.
struct Params {
  flags: u32,
  group: u32,  // query heads of a KV head
  head_dim_groups: u32,
  head_dim_v_groups: u32,
  scale: f32,
  scale_log2: f32,
  softcap: f32,
  negative_infinity: u32,  // bits: a constant infinity is an error in this language
  q_row: u32,
  q_head: u32,
  k_row: u32,
  v_row: u32,
  o_row: u32,
  o_head: u32,
  bias_row: u32,
  bias_head: u32,
  bias_key: u32,
  mask_row: u32,
  mask_head: u32,
  tasks_begin: u32,
  dropout_key: vec2<u32>,
  dropout_offset: u32,
  drop_threshold: u32,
  keep_scale: f32,
  k_scale_groups: u32,  // groups of 4 elements that share a scale
  v_scale_groups: u32,
  unused: u32,
}

const HAS_SOFTCAP: u32 = 1u;
const HAS_BIAS: u32 = 2u;
const HAS_ALIBI: u32 = 4u;
const HAS_MASK: u32 = 8u;
const HAS_SINKS: u32 = 16u;
const HAS_DROPOUT: u32 = 32u;
const CHANGES_SCORES: u32 = 7u;  // softcap, bias or ALiBi

// A unit's record in `table`. Keys and queries count within the sequence.
const UNIT_WORDS: u32 = 16u;
const Q_BEGIN: u32 = 0u;
const K_BEGIN: u32 = 1u;
const V_BEGIN: u32 = 2u;
const O_BEGIN: u32 = 3u;
const LSE_BEGIN: u32 = 4u;
const BIAS_BEGIN: u32 = 5u;
const MASK_BEGIN: u32 = 6u;
const FIRST_QUERY: u32 = 7u;
const NUM_ROWS: u32 = 8u;
const FIRST_KEY: u32 = 9u;
const END_KEY: u32 = 10u;
const LOW_DIAGONAL: u32 = 11u;   // key j is visible to query i when low <= j - i <= high
const HIGH_DIAGONAL: u32 = 12u;
const SHIFT: u32 = 13u;
const FIRST_HEAD: u32 = 14u;     // b * Hq + first query head
const HEAD_VALUES: u32 = 15u;    // in `table`: ALiBi slopes of the group, then its sinks
// A task's record: unit, first row, first group of o's elements.
const TASK_WORDS: u32 = 4u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q_data: array<QueryPacked>;
@group(0) @binding(2) var<storage, read> k_data: array<KeyPacked>;
@group(0) @binding(3) var<storage, read> v_data: array<KeyPacked>;
@group(0) @binding(6) var<storage, read> bias_data: array<f32>;
@group(0) @binding(7) var<storage, read> mask_data: array<u32>;
@group(0) @binding(8) var<storage, read> table: array<u32>;

// Four rows or items, a vector of each. Accumulators are variables of this type and not an array
// that a loop indexes: an array so used ends in memory on some devices.
struct Block {
  a: vec4<f32>,
  b: vec4<f32>,
  c: vec4<f32>,
  d: vec4<f32>,
}

fn scaled(block: Block, factors: vec4<f32>) -> Block {
  return Block(block.a * factors.x, block.b * factors.y, block.c * factors.z, block.d * factors.w);
}
