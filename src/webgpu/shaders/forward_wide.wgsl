// Forward pass with more registers and less traffic of workgroup memory than forward.wgsl, for
// Dv <= 64 COLUMNS. A workgroup takes 64 query rows of a unit against 64 keys at a time.
// Invocation (column, quad) of COLUMN_LANES x 8 holds two quads of rows, quad and quad + 8: their
// scores of one (COLUMNS = 2) or two (COLUMNS = 1) quads of keys, and for each row 8 elements of o.
//
// Before this text stand scores.wgsl with what it needs, staged_*.wgsl, rows_*.wgsl, and
//   COLUMNS  1 or 2: groups of 64 elements of o that a workgroup computes

const COLUMN_LANES: u32 = 8u * COLUMNS;
const LANES: u32 = 8u * COLUMN_LANES;
const TILE_ROWS: u32 = 64u;
const TILE_KEYS: u32 = 64u;
const QUAD_ROWS: u32 = 16u;                    // quads of rows or keys in a tile
const SLICE_GROUPS: u32 = STAGED_VECTORS / 128u;  // of the head dim, staged at a time
const SLICE_OF_K: u32 = 64u * SLICE_GROUPS;    // where it begins
const SLAB_GROUPS: u32 = 16u * COLUMNS;
const STEP_KEYS: u32 = STAGED_VECTORS / (32u * COLUMNS);  // keys whose weights and V are staged
const SLAB_OF_V: u32 = 16u * STEP_KEYS;

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

fn store_rows(unit: u32, first_row: u32, first_group: u32, block_0: Block, block_1: Block,
              results: RowResults) {
  store_block(unit, first_row, first_group, scaled(block_0, results.factors));
  store_block(unit, first_row, first_group + COLUMN_LANES, scaled(block_1, results.factors));
}

@compute @workgroup_size(LANES)
fn forward(@builtin(workgroup_id) workgroup: vec3<u32>,
           @builtin(local_invocation_index) lane: u32) {
  let task = params.tasks_begin + workgroup.x * TASK_WORDS;
  let unit = table[task] * UNIT_WORDS;
  let tile_row = table[task + 1u];
  let first_group = table[task + 2u];
  let column = lane % COLUMN_LANES;
  let quad = lane / COLUMN_LANES;
  let negative_infinity = vec4(bitcast<f32>(params.negative_infinity));

  // Keys that some row of the tile may see, as far as diagonals go, and those that all rows see.
  let num_rows = table[unit + NUM_ROWS];
  let first_query = i32(table[unit + FIRST_QUERY] + tile_row / params.group);
  let last_query = i32(table[unit + FIRST_QUERY] +
                       (min(tile_row + TILE_ROWS, num_rows) - 1u) / params.group);
  let low = bitcast<i32>(table[unit + LOW_DIAGONAL]);
  let high = bitcast<i32>(table[unit + HIGH_DIAGONAL]);
  let first_key = u32(max(i32(table[unit + FIRST_KEY]), first_query + low));
  let end_key = u32(max(0, min(i32(table[unit + END_KEY]), last_query + high + 1)));
  let first_seen_by_all = last_query + low;
  let end_seen_by_all = min(i32(end_key), first_query + high + 1);
  let is_plain = (params.flags & (CHANGES_SCORES | HAS_MASK)) == 0u;

  // Quads of rows and keys that this invocation stages, of slice group lane % SLICE_GROUPS.
  let slice_group = lane % SLICE_GROUPS;
  let slice_quad = lane / SLICE_GROUPS;

  var row_max_0 = negative_infinity;
  var row_max_1 = negative_infinity;
  var row_sum_0 = vec4(0.0);  // of this invocation's keys alone
  var row_sum_1 = vec4(0.0);
  var acc_00 = Block();  // quad of rows, half of the elements of o
  var acc_01 = Block();
  var acc_10 = Block();
  var acc_11 = Block();

  for (var tile_key = first_key; tile_key < end_key; tile_key += TILE_KEYS) {
    var s_00 = Block();  // quad of rows, quad of keys
    var s_01 = Block();
    var s_10 = Block();
    var s_11 = Block();
    for (var e = 0u; e < params.head_dim_groups; e += SLICE_GROUPS) {
      workgroupBarrier();
      if e + slice_group < params.head_dim_groups {
        for (var q = slice_quad; q < QUAD_ROWS; q += LANES / SLICE_GROUPS) {
          store_staged(0u, slice_group, q,
                       load_q_block(q_rows_of(unit, tile_row + q * 4u), e + slice_group));
          store_staged(SLICE_OF_K, slice_group, q,
                       load_k_block(unit, tile_key + q * 4u, e + slice_group));
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
          let k_0 = unstaged(shared_data[k_at]);
          s_00 = with_product(s_00, q_0, k_0);
          s_10 = with_product(s_10, q_1, k_0);
          if COLUMNS == 1u {
            let k_1 = unstaged(shared_data[k_at + 8u]);
            s_01 = with_product(s_01, q_0, k_1);
            s_11 = with_product(s_11, q_1, k_1);
          }
          q_at += 16u;
          k_at += 16u;
        }
      }
    }

    let key = tile_key + column * 4u;
    if is_plain && i32(tile_key) >= first_seen_by_all &&
       i32(tile_key + TILE_KEYS) <= end_seen_by_all {
      s_00 = scaled(s_00, vec4(params.scale_log2));
      s_10 = scaled(s_10, vec4(params.scale_log2));
      if COLUMNS == 1u {
        s_01 = scaled(s_01, vec4(params.scale_log2));
        s_11 = scaled(s_11, vec4(params.scale_log2));
      }
    } else {
      let rows_0 = rows_of(unit, tile_row + quad * 4u);
      let rows_1 = rows_of(unit, tile_row + quad * 4u + 32u);
      s_00 = final_scores(unit, s_00, rows_0, key);
      s_10 = final_scores(unit, s_10, rows_1, key);
      if COLUMNS == 1u {
        s_01 = final_scores(unit, s_01, rows_0, key + 32u);
        s_11 = final_scores(unit, s_11, rows_1, key + 32u);
      }
    }

    var new_max_0 = largest_of_rows(s_00);
    var new_max_1 = largest_of_rows(s_10);
    if COLUMNS == 1u {
      new_max_0 = larger(new_max_0, largest_of_rows(s_01));
      new_max_1 = larger(new_max_1, largest_of_rows(s_11));
    }
    let maxima = maxima_of_rows(RowPair(new_max_0, new_max_1), column, quad);
    new_max_0 = larger(row_max_0, maxima.first);
    new_max_1 = larger(row_max_1, maxima.second);
    // A row that has seen nothing subtracts 0, so that -inf - -inf never happens.
    let reference_0 = select(new_max_0, vec4(0.0), new_max_0 == negative_infinity);
    let reference_1 = select(new_max_1, vec4(0.0), new_max_1 == negative_infinity);
    let rescale_0 = power_of_2(row_max_0 - reference_0);
    let rescale_1 = power_of_2(row_max_1 - reference_1);
    row_max_0 = new_max_0;
    row_max_1 = new_max_1;
    acc_00 = scaled(acc_00, rescale_0);
    acc_01 = scaled(acc_01, rescale_0);
    acc_10 = scaled(acc_10, rescale_1);
    acc_11 = scaled(acc_11, rescale_1);
    s_00 = weights_of(s_00, reference_0);
    s_10 = weights_of(s_10, reference_1);
    row_sum_0 = row_sum_0 * rescale_0 + totals_of_rows(s_00);
    row_sum_1 = row_sum_1 * rescale_1 + totals_of_rows(s_10);
    if COLUMNS == 1u {
      s_01 = weights_of(s_01, reference_0);
      s_11 = weights_of(s_11, reference_1);
      row_sum_0 += totals_of_rows(s_01);
      row_sum_1 += totals_of_rows(s_11);
    }
    if (params.flags & HAS_DROPOUT) != 0u {
      let rows_0 = rows_of(unit, tile_row + quad * 4u);
      let rows_1 = rows_of(unit, tile_row + quad * 4u + 32u);
      s_00 = dropped_block(unit, s_00, rows_0, key);
      s_10 = dropped_block(unit, s_10, rows_1, key);
      if COLUMNS == 1u {
        s_01 = dropped_block(unit, s_01, rows_0, key + 32u);
        s_11 = dropped_block(unit, s_11, rows_1, key + 32u);
      }
    }

    let tile_end = min(end_key, tile_key + TILE_KEYS);
    for (var step_key = tile_key; step_key < tile_end; step_key += STEP_KEYS) {
      workgroupBarrier();
      // Key quads of the step: [0, STEP_KEYS / 4) of them counted from its first.
      let step_quad = column - (step_key - tile_key) / 4u;  // wraps below the step
      if step_quad < STEP_KEYS / 4u {
        store_staged(0u, step_quad, quad, s_00);
        store_staged(0u, step_quad, quad + 8u, s_10);
      }
      if COLUMNS == 1u && step_quad + 8u < STEP_KEYS / 4u {
        store_staged(0u, step_quad + 8u, quad, s_01);
        store_staged(0u, step_quad + 8u, quad + 8u, s_11);
      }
      for (var at = lane; at < STEP_KEYS * SLAB_GROUPS; at += LANES) {
        let slab_key = step_key + at / SLAB_GROUPS;
        let element_group = first_group + at % SLAB_GROUPS;
        var value = vec4(0.0);
        if slab_key < end_key && element_group < params.head_dim_v_groups {
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
          let v_1 = unstaged(shared_data[v_at + COLUMN_LANES]);
          acc_00 = with_product(acc_00, w_0, v_0);
          acc_10 = with_product(acc_10, w_1, v_0);
          acc_01 = with_product(acc_01, w_0, v_1);
          acc_11 = with_product(acc_11, w_1, v_1);
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
  store_rows(unit, first_row, first_group + column, acc_00, acc_01, results_0);
  store_rows(unit, first_row + 32u, first_group + column, acc_10, acc_11, results_1);
  if column == 0u && first_group == 0u {
    store_lse(unit, first_row, results_0.lse);
    store_lse(unit, first_row + 32u, results_1.lse);
  }
}
