// Forward pass with larger tiles of registers than forward.wgsl has, for Dv <= 64 COLUMNS. A
// workgroup takes 64 query rows of a unit against 64 keys at a time. Invocation (column, quad) of
// 16 x 8 holds two quads of rows, quad and quad + 8: their scores of a quad of keys, and for each
// row 4 COLUMNS elements of o.
//
// Before this text stand scores.wgsl with what it needs, staged_*.wgsl, and
//   COLUMNS         1 or 2: groups of 64 elements of o that a workgroup computes
//   STAGED_VECTORS  of 4 elements in workgroup memory
// rows_*.wgsl follows.

const LANES: u32 = 128u;
const TILE_ROWS: u32 = 64u;
const TILE_KEYS: u32 = 64u;
const QUADS: u32 = 16u;                           // of rows, or of keys, in a tile
const SLICE_GROUPS: u32 = STAGED_VECTORS / 128u;  // of the head dim, staged at a time
const SLICE_OF_K: u32 = 64u * SLICE_GROUPS;       // where it begins
const SLICE_QUADS: u32 = LANES / SLICE_GROUPS;    // that all lanes stage at a time, QUADS or half
const SLAB_GROUPS: u32 = 16u * COLUMNS;
const STEP_KEYS: u32 = STAGED_VECTORS / (32u * COLUMNS);  // keys whose weights and V are staged
const SLAB_OF_V: u32 = 16u * STEP_KEYS;

struct RowPair {
  first: vec4<f32>,   // of quad
  second: vec4<f32>,  // of quad + 8
}

// Staged vectors [4 group + element][quad] of a 4 x 4 block of a quad of items. Quads of a group
// change places by its number, so that lanes that store neighbouring groups use different banks.
fn store_staged(begin: u32, group: u32, quad: u32, block: Block) {
  let at = begin + group * 64u + (quad ^ (group & 7u));
  shared_data[at] = staged(vec4(block.a.x, block.b.x, block.c.x, block.d.x));
  shared_data[at + 16u] = staged(vec4(block.a.y, block.b.y, block.c.y, block.d.y));
  shared_data[at + 32u] = staged(vec4(block.a.z, block.b.z, block.c.z, block.d.z));
  shared_data[at + 48u] = staged(vec4(block.a.w, block.b.w, block.c.w, block.d.w));
}

// Where rows of a quad begin in q_data; those past the end repeat the last, nothing reads them.
fn q_rows_of(unit: u32, first_row: u32) -> vec4<u32> {
  let row = min(vec4(first_row) + vec4(0u, 1u, 2u, 3u), vec4(table[unit + NUM_ROWS] - 1u));
  let token = row / params.group;
  return vec4(table[unit + Q_BEGIN]) + token * params.q_row +
         (row - token * params.group) * params.q_head;
}

fn load_q_block(rows: vec4<u32>, element_group: u32) -> Block {
  return Block(unpack_query(q_data[rows.x + element_group]),
               unpack_query(q_data[rows.y + element_group]),
               unpack_query(q_data[rows.z + element_group]),
               unpack_query(q_data[rows.w + element_group]));
}

fn load_k_block(unit: u32, first_key: u32, element_group: u32) -> Block {
  let keys = min(vec4(first_key) + vec4(0u, 1u, 2u, 3u), vec4(table[unit + END_KEY] - 1u)) -
             vec4(table[unit + FIRST_KEY]);
  let rows = vec4(table[unit + K_BEGIN]) + keys * params.k_row;
  return Block(load_key(rows.x, element_group), load_key(rows.y, element_group),
               load_key(rows.z, element_group), load_key(rows.w, element_group));
}

// Scores of a quad of rows and a quad of keys, in log2 units; hidden keys get -inf.
fn final_scores(unit: u32, products: Block, rows: Rows, key: u32) -> Block {
  return Block(final_score(unit, products.a, rows, 0u, key),
               final_score(unit, products.b, rows, 1u, key),
               final_score(unit, products.c, rows, 2u, key),
               final_score(unit, products.d, rows, 3u, key));
}

fn weights_of(scores: Block, reference: vec4<f32>) -> Block {
  return Block(power_of_2(scores.a - vec4(reference.x)), power_of_2(scores.b - vec4(reference.y)),
               power_of_2(scores.c - vec4(reference.z)), power_of_2(scores.d - vec4(reference.w)));
}

fn dropped_block(unit: u32, weights: Block, rows: Rows, key: u32) -> Block {
  return Block(dropped(unit, weights.a, rows, 0u, key), dropped(unit, weights.b, rows, 1u, key),
               dropped(unit, weights.c, rows, 2u, key), dropped(unit, weights.d, rows, 3u, key));
}

fn largest_of_rows(scores: Block) -> vec4<f32> {
  return vec4(largest(scores.a), largest(scores.b), largest(scores.c), largest(scores.d));
}

fn totals_of_rows(weights: Block) -> vec4<f32> {
  return vec4(total(weights.a), total(weights.b), total(weights.c), total(weights.d));
}

@compute @workgroup_size(LANES)
fn forward(@builtin(workgroup_id) workgroup: vec3<u32>,
           @builtin(local_invocation_index) lane: u32) {
  let task = params.tasks_begin + workgroup.x * TASK_WORDS;
  let unit = table[task] * UNIT_WORDS;
  let tile_row = table[task + 1u];
  let first_group = table[task + 2u];
  let column = lane % 16u;
  let quad = lane / 16u;
  let negative_infinity = vec4(bitcast<f32>(params.negative_infinity));

  let seen = keys_of_tile(unit, tile_row);
  let is_plain = (params.flags & (CHANGES_SCORES | HAS_MASK)) == 0u;

  // What this invocation stages of a slice.
  let slice_group = lane % SLICE_GROUPS;
  let slice_quad = lane / SLICE_GROUPS;
  let q_begin_0 = q_rows_of(unit, tile_row + slice_quad * 4u);
  let q_begin_1 = q_rows_of(unit, tile_row + (slice_quad + SLICE_QUADS) * 4u);

  var row_max_0 = negative_infinity;
  var row_max_1 = negative_infinity;
  var row_sum_0 = vec4(0.0);  // of this invocation's keys alone
  var row_sum_1 = vec4(0.0);
  var o_00 = Block();  // quad of rows, column step
  var o_01 = Block();
  var o_10 = Block();
  var o_11 = Block();

  for (var tile_key = seen.first; tile_key < seen.end; tile_key += TILE_KEYS) {
    var s_0 = Block();
    var s_1 = Block();
    for (var e = 0u; e < params.head_dim_groups; e += SLICE_GROUPS) {
      workgroupBarrier();
      if e + slice_group < params.head_dim_groups {
        let group = e + slice_group;
        store_staged(0u, slice_group, slice_quad, load_q_block(q_begin_0, group));
        store_staged(SLICE_OF_K, slice_group, slice_quad,
                     load_k_block(unit, tile_key + slice_quad * 4u, group));
        if SLICE_QUADS < QUADS {
          let quad_1 = slice_quad + SLICE_QUADS;
          store_staged(0u, slice_group, quad_1, load_q_block(q_begin_1, group));
          store_staged(SLICE_OF_K, slice_group, quad_1,
                       load_k_block(unit, tile_key + quad_1 * 4u, group));
        }
      }
      workgroupBarrier();
      let num_groups = min(SLICE_GROUPS, params.head_dim_groups - e);
      for (var g = 0u; g < num_groups; g++) {
        var q_at = g * 64u + (quad ^ (g & 7u));
        var k_at = SLICE_OF_K + g * 64u + (column ^ (g & 7u));
        for (var d = 0u; d < 4u; d++) {
          let q_0 = unstaged(shared_data[q_at]);
          let q_1 = unstaged(shared_data[q_at + 8u]);
          let k = unstaged(shared_data[k_at]);
          s_0.a = fma(vec4(q_0.x), k, s_0.a);
          s_0.b = fma(vec4(q_0.y), k, s_0.b);
          s_0.c = fma(vec4(q_0.z), k, s_0.c);
          s_0.d = fma(vec4(q_0.w), k, s_0.d);
          s_1.a = fma(vec4(q_1.x), k, s_1.a);
          s_1.b = fma(vec4(q_1.y), k, s_1.b);
          s_1.c = fma(vec4(q_1.z), k, s_1.c);
          s_1.d = fma(vec4(q_1.w), k, s_1.d);
          q_at += 16u;
          k_at += 16u;
        }
      }
    }

    let key = tile_key + column * 4u;
    if is_plain && i32(tile_key) >= seen.first_of_all &&
       i32(tile_key + TILE_KEYS) <= seen.end_of_all {
      s_0 = scaled(s_0, vec4(params.scale_log2));
      s_1 = scaled(s_1, vec4(params.scale_log2));
    } else {
      s_0 = final_scores(unit, s_0, rows_of(unit, tile_row + quad * 4u), key);
      s_1 = final_scores(unit, s_1, rows_of(unit, tile_row + quad * 4u + 32u), key);
    }

    let maxima = maxima_of_rows(RowPair(largest_of_rows(s_0), largest_of_rows(s_1)), column, quad);
    let new_max_0 = larger(row_max_0, maxima.first);
    let new_max_1 = larger(row_max_1, maxima.second);
    // A row that has seen nothing subtracts 0, so that -inf - -inf never happens.
    let reference_0 = select(new_max_0, vec4(0.0), new_max_0 == negative_infinity);
    let reference_1 = select(new_max_1, vec4(0.0), new_max_1 == negative_infinity);
    let rescale_0 = power_of_2(row_max_0 - reference_0);
    let rescale_1 = power_of_2(row_max_1 - reference_1);
    row_max_0 = new_max_0;
    row_max_1 = new_max_1;
    o_00 = scaled(o_00, rescale_0);
    o_10 = scaled(o_10, rescale_1);
    if COLUMNS > 1u {
      o_01 = scaled(o_01, rescale_0);
      o_11 = scaled(o_11, rescale_1);
    }
    s_0 = weights_of(s_0, reference_0);
    s_1 = weights_of(s_1, reference_1);
    row_sum_0 = row_sum_0 * rescale_0 + totals_of_rows(s_0);
    row_sum_1 = row_sum_1 * rescale_1 + totals_of_rows(s_1);
    if (params.flags & HAS_DROPOUT) != 0u {
      s_0 = dropped_block(unit, s_0, rows_of(unit, tile_row + quad * 4u), key);
      s_1 = dropped_block(unit, s_1, rows_of(unit, tile_row + quad * 4u + 32u), key);
    }

    let tile_end = min(seen.end, tile_key + TILE_KEYS);
    for (var step_key = tile_key; step_key < tile_end; step_key += STEP_KEYS) {
      workgroupBarrier();
      let step_quad = column - (step_key - tile_key) / 4u;  // wraps where it is before the step
      if step_quad < STEP_KEYS / 4u {
        store_staged(0u, step_quad, quad, s_0);
        store_staged(0u, step_quad, quad + 8u, s_1);
      }
      for (var at = lane; at < STEP_KEYS * SLAB_GROUPS; at += LANES) {
        let slab_key = step_key + at / SLAB_GROUPS;
        let element_group = first_group + at % SLAB_GROUPS;
        var value = vec4(0.0);
        if slab_key < seen.end && element_group < params.head_dim_v_groups {
          value = load_value(table[unit + V_BEGIN] +
                                 (slab_key - table[unit + FIRST_KEY]) * params.v_row,
                             element_group);
        }
        shared_data[SLAB_OF_V + at] = staged(value);
      }
      workgroupBarrier();
      // Keys past the end have weight 0 and value 0.
      let num_quads = (min(STEP_KEYS, tile_end - step_key) + 3u) / 4u;
      for (var g = 0u; g < num_quads; g++) {
        var w_at = g * 64u + (quad ^ (g & 7u));
        var v_at = SLAB_OF_V + g * 4u * SLAB_GROUPS + column;
        for (var d = 0u; d < 4u; d++) {
          let w_0 = unstaged(shared_data[w_at]);
          let w_1 = unstaged(shared_data[w_at + 8u]);
          let v_0 = unstaged(shared_data[v_at]);
          o_00.a = fma(vec4(w_0.x), v_0, o_00.a);
          o_00.b = fma(vec4(w_0.y), v_0, o_00.b);
          o_00.c = fma(vec4(w_0.z), v_0, o_00.c);
          o_00.d = fma(vec4(w_0.w), v_0, o_00.d);
          o_10.a = fma(vec4(w_1.x), v_0, o_10.a);
          o_10.b = fma(vec4(w_1.y), v_0, o_10.b);
          o_10.c = fma(vec4(w_1.z), v_0, o_10.c);
          o_10.d = fma(vec4(w_1.w), v_0, o_10.d);
          if COLUMNS > 1u {
            let v_1 = unstaged(shared_data[v_at + 16u]);
            o_01.a = fma(vec4(w_0.x), v_1, o_01.a);
            o_01.b = fma(vec4(w_0.y), v_1, o_01.b);
            o_01.c = fma(vec4(w_0.z), v_1, o_01.c);
            o_01.d = fma(vec4(w_0.w), v_1, o_01.d);
            o_11.a = fma(vec4(w_1.x), v_1, o_11.a);
            o_11.b = fma(vec4(w_1.y), v_1, o_11.b);
            o_11.c = fma(vec4(w_1.z), v_1, o_11.c);
            o_11.d = fma(vec4(w_1.w), v_1, o_11.d);
          }
          w_at += 16u;
          v_at += SLAB_GROUPS;
        }
      }
    }
  }

  let sums = sums_of_rows(RowPair(row_sum_0, row_sum_1), column, quad);
  let first_row = tile_row + quad * 4u;
  let results_0 = finished(unit, rows_of(unit, first_row), row_max_0, sums.first);
  let results_1 = finished(unit, rows_of(unit, first_row + 32u), row_max_1, sums.second);
  let group = first_group + column;
  store_block(unit, first_row, group, scaled(o_00, results_0.factors));
  store_block(unit, first_row + 32u, group, scaled(o_10, results_1.factors));
  if COLUMNS > 1u {
    store_block(unit, first_row, group + 16u, scaled(o_01, results_0.factors));
    store_block(unit, first_row + 32u, group + 16u, scaled(o_11, results_1.factors));
  }
  if column == 0u && first_group == 0u {
    store_lse(unit, first_row, results_0.lse);
    store_lse(unit, first_row + 32u, results_1.lse);
  }
}
