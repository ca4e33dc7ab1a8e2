// Forward pass. A workgroup of 16 columns x TILE_ROWS / 4 quads of invocations takes TILE_ROWS
// query rows (the heads of a group beside each other) of one unit, a KV head of a sequence, against
// 64 keys at a time. Invocation (column, quad) holds the scores of 4 rows x 4 keys and 4 rows x 4
// COLUMNS elements of o in registers. No subgroups, no fp16, 16384 bytes of workgroup memory.
//
// Before this text stand storage_*.wgsl, queries_*.wgsl, keys_*.wgsl, output_*.wgsl, math.wgsl,
// unit.wgsl, dropout.wgsl, and
//   COLUMNS    groups of 64 elements of o that a workgroup computes, 1 to 4
//   TILE_ROWS  64, or 16 for calls of few rows

@group(0) @binding(4) var<storage, read_write> o_data: array<OutputPacked>;
@group(0) @binding(5) var<storage, read_write> lse_data: array<f32>;

// What shared_data of unit.wgsl holds.
// Scores: q [element][row / 4] in the lower half, k [element][key / 4] in the upper one.
// Maxima and sums: [column][row / 4]. Output: weights [key][row / 4] in the lower half,
// v [key][group] in the upper one.

// Rows of an invocation.
struct Rows {
  first_key: vec4<i32>,  // visible keys, half-open
  end_key: vec4<i32>,
  query: vec4<u32>,      // i within the sequence
  head: vec4<u32>,       // g within the group
}

fn rows_of(unit: u32, first_row: u32) -> Rows {
  var rows: Rows;
  let row = vec4(first_row) + vec4(0u, 1u, 2u, 3u);
  rows.query = vec4(table[unit + FIRST_QUERY]) + row / params.group;
  rows.head = row % params.group;
  let i = vec4<i32>(rows.query);
  let first = vec4(i32(table[unit + FIRST_KEY]));
  let end = vec4(i32(table[unit + END_KEY]));
  let is_row = row < vec4(table[unit + NUM_ROWS]);
  rows.first_key = max(first, i + vec4(bitcast<i32>(table[unit + LOW_DIAGONAL])));
  rows.end_key = select(vec4(0), min(end, i + vec4(bitcast<i32>(table[unit + HIGH_DIAGONAL]) + 1)),
                        is_row);
  return rows;
}

// The four elements of `row` of a unit; row < NUM_ROWS.
fn load_q(unit: u32, row: u32, element_group: u32) -> vec4<f32> {
  let token = row / params.group;
  let head = row - token * params.group;
  return unpack_query(q_data[table[unit + Q_BEGIN] + token * params.q_row +
                             head * params.q_head + element_group]);
}

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

fn bias_of(unit: u32, query: u32, head: u32, keys: vec4<u32>) -> vec4<f32> {
  let begin = table[unit + BIAS_BEGIN] + (query - table[unit + FIRST_QUERY]) * params.bias_row +
              head * params.bias_head;
  let last = table[unit + END_KEY] - 1u;
  let at = vec4(begin) +
           (min(keys, vec4(last)) - vec4(table[unit + FIRST_KEY])) * params.bias_key;
  return vec4(bias_data[at.x], bias_data[at.y], bias_data[at.z], bias_data[at.w]);
}

fn attended(unit: u32, query: u32, head: u32, keys: vec4<u32>) -> vec4<bool> {
  let begin = table[unit + MASK_BEGIN] + (query - table[unit + FIRST_QUERY]) * params.mask_row +
              head * params.mask_head;
  let bit = min(keys, vec4(table[unit + END_KEY] - 1u)) - vec4(table[unit + FIRST_KEY]);
  let at = vec4(begin) + bit / 32u;
  let words = vec4(mask_data[at.x], mask_data[at.y], mask_data[at.z], mask_data[at.w]);
  return ((words >> (bit % 32u)) & vec4(1u)) == vec4(1u);
}

// Softcap, bias and ALiBi, in the order of docs/design.md, then log2 units.
fn changed_score(unit: u32, product: vec4<f32>, query: u32, head: u32,
                 keys: vec4<u32>) -> vec4<f32> {
  var score = product * params.scale;
  if (params.flags & HAS_SOFTCAP) != 0u {
    score = params.softcap * hyperbolic_tangent(score / params.softcap);
  }
  if (params.flags & HAS_BIAS) != 0u {
    score += bias_of(unit, query, head, keys);
  }
  if (params.flags & HAS_ALIBI) != 0u {
    let slope = bitcast<f32>(table[table[unit + HEAD_VALUES] + head]);
    let position = i32(query) + bitcast<i32>(table[unit + SHIFT]);
    score -= slope * vec4<f32>(abs(vec4(position) - vec4<i32>(keys)));
  }
  return score * LOG2_E;
}

// One row's scores of 4 keys, in log2 units; hidden keys get -inf.
fn final_score(unit: u32, product: vec4<f32>, rows: Rows, r: u32, key: u32) -> vec4<f32> {
  let keys = vec4(key) + vec4(0u, 1u, 2u, 3u);
  let query = rows.query[r];
  let head = rows.head[r];
  var is_visible = (vec4<i32>(keys) >= vec4(rows.first_key[r])) &
                   (vec4<i32>(keys) < vec4(rows.end_key[r]));
  var score = product * params.scale_log2;
  if any(is_visible) {
    if (params.flags & CHANGES_SCORES) != 0u {
      score = changed_score(unit, product, query, head, keys);
    }
    if (params.flags & HAS_MASK) != 0u {
      is_visible = is_visible & attended(unit, query, head, keys);
    }
  }
  return select(vec4(bitcast<f32>(params.negative_infinity)), score, is_visible);
}

fn dropped(unit: u32, weights: vec4<f32>, rows: Rows, r: u32, key: u32) -> vec4<f32> {
  let head = table[unit + FIRST_HEAD] + rows.head[r];
  let i = rows.query[r];
  var numbers: vec4<u32>;
  if key % 2u == 0u {
    numbers = vec4(dropout_pair(head, i, key), dropout_pair(head, i, key + 2u));
  } else {
    numbers = vec4(dropout_number(head, i, key), dropout_pair(head, i, key + 1u),
                   dropout_number(head, i, key + 3u));
  }
  return select(vec4(0.0), weights * params.keep_scale, numbers >= vec4(params.drop_threshold));
}

fn largest(x: vec4<f32>) -> f32 {
  let a = select(x.xz, x.yw, x.yw > x.xz);
  return select(a.x, a.y, a.y > a.x);
}

fn total(x: vec4<f32>) -> f32 {
  return (x.x + x.y) + (x.z + x.w);
}

// Four elements of o of each of four rows, which may be past the end.
fn store_block(unit: u32, first_row: u32, element_group: u32, block: Block) {
  if element_group < params.head_dim_v_groups {
    store_row(unit, first_row, element_group, block.a);
    store_row(unit, first_row + 1u, element_group, block.b);
    store_row(unit, first_row + 2u, element_group, block.c);
    store_row(unit, first_row + 3u, element_group, block.d);
  }
}

fn store_row(unit: u32, row: u32, element_group: u32, value: vec4<f32>) {
  if row < table[unit + NUM_ROWS] {
    o_data[table[unit + O_BEGIN] + row / params.group * params.o_row +
           row % params.group * params.o_head + element_group] = pack_output(value);
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

  // Keys that some row of the tile may see, as far as diagonals go.
  let num_rows = table[unit + NUM_ROWS];
  let first_query = i32(table[unit + FIRST_QUERY] + tile_row / params.group);
  let last_query = i32(table[unit + FIRST_QUERY] +
                       (min(tile_row + TILE_ROWS, num_rows) - 1u) / params.group);
  let first_key = u32(max(i32(table[unit + FIRST_KEY]),
                          first_query + bitcast<i32>(table[unit + LOW_DIAGONAL])));
  let end_key = u32(max(0, min(i32(table[unit + END_KEY]),
                               last_query + bitcast<i32>(table[unit + HIGH_DIAGONAL]) + 1)));

  var row_max = negative_infinity;
  var row_sum = vec4(0.0);  // of this invocation's keys alone
  var acc_0 = Block();
  var acc_1 = Block();
  var acc_2 = Block();
  var acc_3 = Block();

  for (var tile_key = first_key; tile_key < end_key; tile_key += TILE_KEYS) {
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

    for (var half_key = tile_key; half_key < min(end_key, tile_key + TILE_KEYS);
         half_key += HALF_KEYS) {
      workgroupBarrier();
      if column / 8u == (half_key - tile_key) / HALF_KEYS {
        store_transposed(column % 8u * 64u + quad, p0, p1, p2, p3);
      }
      let num_keys = min(HALF_KEYS, end_key - half_key);
      for (var slab = 0u; slab < num_keys; slab += SLAB_KEYS) {
        if slab > 0u {
          workgroupBarrier();
        }
        for (var at = lane; at < SLAB_KEYS * SLAB_GROUPS; at += LANES) {
          let slab_key = half_key + slab + at / SLAB_GROUPS;
          let element_group = first_group + at % SLAB_GROUPS;
          var value = vec4(0.0);
          if slab_key < end_key && element_group < params.head_dim_v_groups {
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
          acc_0 = with_product(acc_0, weights, shared_data[at]);
          if COLUMNS > 1u {
            acc_1 = with_product(acc_1, weights, shared_data[at + 16u]);
          }
          if COLUMNS > 2u {
            acc_2 = with_product(acc_2, weights, shared_data[at + 32u]);
          }
          if COLUMNS > 3u {
            acc_3 = with_product(acc_3, weights, shared_data[at + 48u]);
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

  var weight = vec4(1.0);
  if (params.flags & HAS_SINKS) != 0u {
    let at = vec4(table[unit + HEAD_VALUES] + params.group) + rows.head;
    let sink = LOG2_E * bitcast<vec4<f32>>(vec4(table[at.x], table[at.y], table[at.z],
                                                table[at.w]));
    let with_sink = larger(row_max, sink);
    let reference = select(with_sink, vec4(0.0), with_sink == negative_infinity);
    weight = power_of_2(row_max - reference);
    row_sum = row_sum * weight + power_of_2(sink - reference);
    row_max = with_sink;
  }
  // A row that sees nothing: sum 0, o = 0, lse = -inf.
  let is_empty = row_sum == vec4(0.0);
  weight = select(weight / row_sum, vec4(0.0), is_empty);
  let lse = select((row_max + log_2(row_sum)) * LN_2, negative_infinity, is_empty);
  let finite_or_nan = select(lse, row_sum, is_nan(row_sum));

  let first_row = tile_row + quad * 4u;
  store_block(unit, first_row, first_group + column, scaled(acc_0, weight));
  if COLUMNS > 1u {
    store_block(unit, first_row, first_group + column + 16u, scaled(acc_1, weight));
  }
  if COLUMNS > 2u {
    store_block(unit, first_row, first_group + column + 32u, scaled(acc_2, weight));
  }
  if COLUMNS > 3u {
    store_block(unit, first_row, first_group + column + 48u, scaled(acc_3, weight));
  }
  if column == 0u && first_group == 0u {
    for (var r = 0u; r < min(4u, num_rows - min(first_row, num_rows)); r++) {
      lse_data[table[unit + LSE_BEGIN] + first_row + r] = finite_or_nan[r];
    }
  }
}
