// Forward pass. A workgroup of 16 columns x TILE_ROWS / 4 quads of invocations takes TILE_ROWS
// query rows (the heads of a group beside each other) of one unit, a KV head of a sequence, against
// 64 keys at a time. Invocation (column, quad) holds the scores of 4 rows x 4 keys and 4 rows x 4
// COLUMNS elements of o in registers. No subgroups, no fp16, 16384 bytes of workgroup memory.
//
// Before this text stand scores.wgsl with what it needs, tile.wgsl, and
//   COLUMNS    groups of 64 elements of o that a workgroup computes, 1 to 4
//   TILE_ROWS  64, or 16 for calls of few rows

// What shared_data of tile.wgsl holds.
// Scores: q [element][row / 4] in the lower half, k [element][key / 4] in the upper one.
// Maxima and sums: [column][row / 4]. Output: weights [key][row / 4] in the lower half,
// v [key][group] in the upper one.

// All rows of q and 64 keys, SLICE_GROUPS groups of elements from element_group on.
fn stage_scores(unit: u32, first_row: u32, first_key: u32, element_group: u32, lane: u32) {
  // Blocks of 4 x 4: those of the keys, then those of q.
  let last_row = table[unit + NUM_ROWS] - 1u;  // rows past the end repeat it; nothing reads them
  let last_key = table[unit + END_KEY] - 1u;
  for (var at = lane; at < 16u * SLICE_GROUPS + TILE_ROWS / 4u * SLICE_GROUPS; at += LANES) {
    if at < 16u * SLICE_GROUPS {
      let quad = at % 16u;
      let slice_group = at / 16u;
      let source_group = element_group + slice_group;
      if source_group < params.head_dim_groups {
        let begin = table[unit + K_BEGIN];
        let keys = min(vec4(first_key + quad * 4u) + vec4(0u, 1u, 2u, 3u), vec4(last_key)) -
                   vec4(table[unit + FIRST_KEY]);
        let rows = vec4(begin) + keys * params.k_row;
        store_transposed(512u + slice_group * 64u + quad, load_key(rows.x, source_group),
                         load_key(rows.y, source_group), load_key(rows.z, source_group),
                         load_key(rows.w, source_group));
      }
    } else {
      let quad = (at - 16u * SLICE_GROUPS) % (TILE_ROWS / 4u);
      let slice_group = (at - 16u * SLICE_GROUPS) / (TILE_ROWS / 4u);
      let source_group = element_group + slice_group;
      if source_group < params.head_dim_groups {
        let row = first_row + quad * 4u;
        store_transposed(slice_group * 64u + quad, load_q(unit, min(row, last_row), source_group),
                         load_q(unit, min(row + 1u, last_row), source_group),
                         load_q(unit, min(row + 2u, last_row), source_group),
                         load_q(unit, min(row + 3u, last_row), source_group));
      }
    }
  }
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
  let rows = rows_of(unit, tile_row + quad * 4u);

  let seen = keys_of_tile(unit, tile_row);

  var row_max = negative_infinity;
  var row_sum = vec4(0.0);  // of this invocation's keys alone
  var acc_0 = Block();
  var acc_1 = Block();
  var acc_2 = Block();
  var acc_3 = Block();

  for (var tile_key = seen.first; tile_key < seen.end; tile_key += TILE_KEYS) {
    var p0 = vec4(0.0);
    var p1 = vec4(0.0);
    var p2 = vec4(0.0);
    var p3 = vec4(0.0);
    for (var e = 0u; e < params.head_dim_groups; e += SLICE_GROUPS) {
      workgroupBarrier();
      stage_scores(unit, tile_row, tile_key, e, lane);
      workgroupBarrier();
      let num_elements = 4u * min(SLICE_GROUPS, params.head_dim_groups - e);
      for (var d = 0u; d < num_elements; d++) {
        let q = shared_data[d * 16u + quad];
        let k = shared_data[512u + d * 16u + column];
        p0 = fma(vec4(q.x), k, p0);
        p1 = fma(vec4(q.y), k, p1);
        p2 = fma(vec4(q.z), k, p2);
        p3 = fma(vec4(q.w), k, p3);
      }
    }
    let key = tile_key + column * 4u;
    p0 = final_score(unit, p0, rows, 0u, key);
    p1 = final_score(unit, p1, rows, 1u, key);
    p2 = final_score(unit, p2, rows, 2u, key);
    p3 = final_score(unit, p3, rows, 3u, key);

    var new_max = vec4(largest(p0), largest(p1), largest(p2), largest(p3));
    workgroupBarrier();
    shared_data[column * 16u + quad] = new_max;
    workgroupBarrier();
    new_max = row_max;
    for (var c = 0u; c < 16u; c++) {
      new_max = larger(new_max, shared_data[c * 16u + quad]);
    }
    // A row that has seen nothing subtracts 0, so that -inf - -inf never happens.
    let reference = select(new_max, vec4(0.0), new_max == negative_infinity);
    let rescale = power_of_2(row_max - reference);
    row_max = new_max;
    acc_0 = scaled(acc_0, rescale);
    if COLUMNS > 1u {
      acc_1 = scaled(acc_1, rescale);
    }
    if COLUMNS > 2u {
      acc_2 = scaled(acc_2, rescale);
    }
    if COLUMNS > 3u {
      acc_3 = scaled(acc_3, rescale);
    }
    p0 = power_of_2(p0 - vec4(reference.x));
    p1 = power_of_2(p1 - vec4(reference.y));
    p2 = power_of_2(p2 - vec4(reference.z));
    p3 = power_of_2(p3 - vec4(reference.w));
    row_sum = row_sum * rescale + vec4(total(p0), total(p1), total(p2), total(p3));
    if (params.flags & HAS_DROPOUT) != 0u {
      p0 = dropped(unit, p0, rows, 0u, key);
      p1 = dropped(unit, p1, rows, 1u, key);
      p2 = dropped(unit, p2, rows, 2u, key);
      p3 = dropped(unit, p3, rows, 3u, key);
    }

    for (var half_key = tile_key; half_key < min(seen.end, tile_key + TILE_KEYS);
         half_key += HALF_KEYS) {
      workgroupBarrier();
      if column / 8u == (half_key - tile_key) / HALF_KEYS {
        store_transposed(column % 8u * 64u + quad, p0, p1, p2, p3);
      }
      let num_keys = min(HALF_KEYS, seen.end - half_key);
      for (var slab = 0u; slab < num_keys; slab += SLAB_KEYS) {
        if slab > 0u {
          workgroupBarrier();
        }
        for (var at = lane; at < SLAB_KEYS * SLAB_GROUPS; at += LANES) {
          let slab_key = half_key + slab + at / SLAB_GROUPS;
          let element_group = first_group + at % SLAB_GROUPS;
          var value = vec4(0.0);
          if slab_key < seen.end && element_group < params.head_dim_v_groups {
            value = load_value(table[unit + V_BEGIN] +
                                   (slab_key - table[unit + FIRST_KEY]) * params.v_row,
                               element_group);
          }
          shared_data[512u + at] = value;
        }
        workgroupBarrier();
        let slab_keys = min(SLAB_KEYS, num_keys - slab);
        for (var k = 0u; k < slab_keys; k++) {
          let weights = shared_data[(slab + k) * 16u + quad];
          let at = 512u + k * SLAB_GROUPS + column;
          let v_0 = shared_data[at];
          acc_0.a = fma(vec4(weights.x), v_0, acc_0.a);
          acc_0.b = fma(vec4(weights.y), v_0, acc_0.b);
          acc_0.c = fma(vec4(weights.z), v_0, acc_0.c);
          acc_0.d = fma(vec4(weights.w), v_0, acc_0.d);
          if COLUMNS > 1u {
            let v_1 = shared_data[at + 16u];
            acc_1.a = fma(vec4(weights.x), v_1, acc_1.a);
            acc_1.b = fma(vec4(weights.y), v_1, acc_1.b);
            acc_1.c = fma(vec4(weights.z), v_1, acc_1.c);
            acc_1.d = fma(vec4(weights.w), v_1, acc_1.d);
          }
          if COLUMNS > 2u {
            let v_2 = shared_data[at + 32u];
            acc_2.a = fma(vec4(weights.x), v_2, acc_2.a);
            acc_2.b = fma(vec4(weights.y), v_2, acc_2.b);
            acc_2.c = fma(vec4(weights.z), v_2, acc_2.c);
            acc_2.d = fma(vec4(weights.w), v_2, acc_2.d);
          }
          if COLUMNS > 3u {
            let v_3 = shared_data[at + 48u];
            acc_3.a = fma(vec4(weights.x), v_3, acc_3.a);
            acc_3.b = fma(vec4(weights.y), v_3, acc_3.b);
            acc_3.c = fma(vec4(weights.z), v_3, acc_3.c);
            acc_3.d = fma(vec4(weights.w), v_3, acc_3.d);
          }
        }
      }
    }
  }

  workgroupBarrier();
  shared_data[column * 16u + quad] = row_sum;
  workgroupBarrier();
  row_sum = vec4(0.0);
  for (var c = 0u; c < 16u; c++) {
    row_sum += shared_data[c * 16u + quad];
  }

  let results = finished(unit, rows, row_max, row_sum);
  let first_row = tile_row + quad * 4u;
  store_block(unit, first_row, first_group + column, scaled(acc_0, results.factors));
  if COLUMNS > 1u {
    store_block(unit, first_row, first_group + column + 16u, scaled(acc_1, results.factors));
  }
  if COLUMNS > 2u {
    store_block(unit, first_row, first_group + column + 32u, scaled(acc_2, results.factors));
  }
  if COLUMNS > 3u {
    store_block(unit, first_row, first_group + column + 48u, scaled(acc_3, results.factors));
  }
  if column == 0u && first_group == 0u {
    store_lse(unit, first_row, results.lse);
  }
}
