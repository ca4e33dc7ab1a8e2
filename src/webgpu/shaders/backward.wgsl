// Backward pass without atomics: each task owns 64 rows of one gradient and goes over all that
// contributes to them. dq: a task's items are query rows, and it loops over keys; dk and dv: its
// items are keys, and it loops over query rows. Scores are computed again from q, k and lse.
//
// Invocation (column, quad) of 16 x 16 holds 4 items x 4 loop items, and 4 items x 4 COLUMNS
// elements of the gradient. Before this text stand storage_*.wgsl, math.wgsl, unit.wgsl,
// dropout.wgsl, and COLUMNS, which counts elements of the gradient here.

@group(0) @binding(4) var<storage, read> d_o_data: array<Packed>;
// Of each unit in fp32: dq [row], dk [key], dv [key], then dS [row][key / 4] when it is wanted.
@group(0) @binding(5) var<storage, read_write> gradients: array<vec4<f32>>;

// Word 3 of a task.
const GRADIENT_OF_Q: u32 = 0u;
const GRADIENT_OF_K: u32 = 1u;
const GRADIENT_OF_V: u32 = 2u;

const WRITES_SCORE_GRADIENT: u32 = 64u;

// Behind the slopes and sinks of HEAD_VALUES: lse in log2 units and delta of each row.
fn row_values(unit: u32) -> u32 {
  return table[unit + HEAD_VALUES] + 2u * params.group;
}

fn num_keys_of(unit: u32) -> u32 {
  return table[unit + END_KEY] - table[unit + FIRST_KEY];
}

// Operands of products.
const OPERAND_Q: u32 = 0u;
const OPERAND_K: u32 = 1u;
const OPERAND_V: u32 = 2u;
const OPERAND_D_O: u32 = 3u;

// Four elements of a row of q or d_o, or of a key, both from 0 in the unit. Items past the end
// repeat the last; nothing reads them.
fn load(operand: u32, unit: u32, item: u32, element_group: u32) -> vec4<f32> {
  if operand == OPERAND_Q || operand == OPERAND_D_O {
    let row = min(item, table[unit + NUM_ROWS] - 1u);
    let token = row / params.group;
    let head = row - token * params.group;
    if operand == OPERAND_Q {
      return unpack_query(q_data[table[unit + Q_BEGIN] + token * params.q_row +
                                 head * params.q_head + element_group]);
    }
    return unpack(d_o_data[table[unit + O_BEGIN] + token * params.o_row + head * params.o_head +
                           element_group]);
  }
  let key = min(item, num_keys_of(unit) - 1u);
  if operand == OPERAND_K {
    return load_key(table[unit + K_BEGIN] + key * params.k_row, element_group);
  }
  return load_value(table[unit + V_BEGIN] + key * params.v_row, element_group);
}

fn groups_of(operand: u32) -> u32 {
  return select(params.head_dim_v_groups, params.head_dim_groups,
                operand == OPERAND_Q || operand == OPERAND_K);
}

// Products of 64 items of one operand with 64 items of another: 4 items x 4 loop items of this
// invocation.
fn products(unit: u32, item_operand: u32, first_item: u32, loop_operand: u32, first_loop: u32,
            lane: u32) -> Block {
  let column = lane % 16u;
  let quad = lane / 16u;
  let slice_group = quad % SLICE_GROUPS;
  let num_groups = groups_of(item_operand);
  var sums = Block();
  for (var e = 0u; e < num_groups; e += SLICE_GROUPS) {
    workgroupBarrier();
    let source = e + slice_group;
    if source < num_groups {
      let is_item = lane < 128u;
      let operand = select(loop_operand, item_operand, is_item);
      let item = select(first_loop, first_item, is_item) + column * 4u;
      store_transposed(select(512u, 0u, is_item) + slice_group * 64u + column,
                       load(operand, unit, item, source), load(operand, unit, item + 1u, source),
                       load(operand, unit, item + 2u, source),
                       load(operand, unit, item + 3u, source));
    }
    workgroupBarrier();
    let num_elements = 4u * min(SLICE_GROUPS, num_groups - e);
    for (var d = 0u; d < num_elements; d++) {
      let x = shared_data[d * 16u + quad];
      let y = shared_data[512u + d * 16u + column];
      sums.a = fma(vec4(x.x), y, sums.a);
      sums.b = fma(vec4(x.y), y, sums.b);
      sums.c = fma(vec4(x.z), y, sums.c);
      sums.d = fma(vec4(x.w), y, sums.d);
    }
  }
  return sums;
}

// Of four (query, key) pairs.
struct Pairs {
  weight: vec4<f32>,          // softmax times dropout, what dv adds up
  score_gradient: vec4<f32>,  // dS, what d_bias adds up
  product_gradient: vec4<f32> // of q . k, what dq and dk add up
}

fn kept(unit: u32, query: vec4<u32>, head: vec4<u32>, key: vec4<u32>) -> vec4<f32> {
  let first = table[unit + FIRST_HEAD];
  let numbers = vec4(dropout_number(first + head.x, query.x, key.x),
                     dropout_number(first + head.y, query.y, key.y),
                     dropout_number(first + head.z, query.z, key.z),
                     dropout_number(first + head.w, query.w, key.w));
  return select(vec4(0.0), vec4(params.keep_scale), numbers >= vec4(params.drop_threshold));
}

fn table_floats(at: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4(table[at.x], table[at.y], table[at.z], table[at.w]));
}

// row and key count from 0 in the unit.
fn pairs_of(unit: u32, product: vec4<f32>, d_weight: vec4<f32>, row: vec4<u32>,
            key: vec4<u32>) -> Pairs {
  let num_rows = table[unit + NUM_ROWS];
  let num_keys = num_keys_of(unit);
  var is_visible = (row < vec4(num_rows)) & (key < vec4(num_keys));
  let r = min(row, vec4(num_rows - 1u));
  let token = r / params.group;
  let head = r - token * params.group;
  let query = token + vec4(table[unit + FIRST_QUERY]);
  let k = min(key, vec4(num_keys - 1u));
  let j = k + vec4(table[unit + FIRST_KEY]);
  let diagonal = vec4<i32>(j) - vec4<i32>(query);
  is_visible = is_visible & (diagonal >= vec4(bitcast<i32>(table[unit + LOW_DIAGONAL]))) &
               (diagonal <= vec4(bitcast<i32>(table[unit + HIGH_DIAGONAL])));
  if (params.flags & HAS_MASK) != 0u {
    let at = vec4(table[unit + MASK_BEGIN]) + token * params.mask_row + head * params.mask_head +
             k / 32u;
    let words = vec4(mask_data[at.x], mask_data[at.y], mask_data[at.z], mask_data[at.w]);
    is_visible = is_visible & (((words >> (k % 32u)) & vec4(1u)) == vec4(1u));
  }
  var score = product * params.scale;
  var slope = vec4(params.scale);
  if (params.flags & HAS_SOFTCAP) != 0u {
    let t = hyperbolic_tangent(score / params.softcap);
    score = params.softcap * t;
    slope *= (vec4(1.0) - t) * (vec4(1.0) + t);
  }
  if (params.flags & HAS_BIAS) != 0u {
    let at = vec4(table[unit + BIAS_BEGIN]) + token * params.bias_row + head * params.bias_head +
             k * params.bias_key;
    score += vec4(bias_data[at.x], bias_data[at.y], bias_data[at.z], bias_data[at.w]);
  }
  if (params.flags & HAS_ALIBI) != 0u {
    let distance = abs(diagonal - vec4(bitcast<i32>(table[unit + SHIFT])));
    score -= table_floats(vec4(table[unit + HEAD_VALUES]) + head) * vec4<f32>(distance);
  }
  let values = vec4(row_values(unit)) + 2u * r;
  let softmax = power_of_2(score * LOG2_E - table_floats(values));
  var factor = vec4(1.0);
  if (params.flags & HAS_DROPOUT) != 0u {
    factor = kept(unit, query, head, j);
  }
  let score_gradient = softmax * (d_weight * factor - table_floats(values + vec4(1u)));
  var pairs: Pairs;
  pairs.weight = select(vec4(0.0), softmax * factor, is_visible);
  pairs.score_gradient = select(vec4(0.0), score_gradient, is_visible);
  pairs.product_gradient = select(vec4(0.0), score_gradient * slope, is_visible);
  return pairs;
}

// Four elements of the gradient of each of four items, those past the end left out.
fn store_block(begin: u32, item: u32, num_items: u32, element_group: u32, num_groups: u32,
               block: Block) {
  if element_group >= num_groups {
    return;
  }
  let at = begin + item * num_groups + element_group;
  if item < num_items {
    gradients[at] = block.a;
  }
  if item + 1u < num_items {
    gradients[at + num_groups] = block.b;
  }
  if item + 2u < num_items {
    gradients[at + 2u * num_groups] = block.c;
  }
  if item + 3u < num_items {
    gradients[at + 3u * num_groups] = block.d;
  }
}

@compute @workgroup_size(256)
fn backward(@builtin(workgroup_id) workgroup: vec3<u32>,
            @builtin(local_invocation_index) lane: u32) {
  let task = params.tasks_begin + workgroup.x * TASK_WORDS;
  let unit = table[task] * UNIT_WORDS;
  let first_item = table[task + 1u];
  let first_group = table[task + 2u];
  let gradient = table[task + 3u];
  let of_queries = gradient == GRADIENT_OF_Q;
  let column = lane % 16u;
  let quad = lane / 16u;
  let num_rows = table[unit + NUM_ROWS];
  let num_keys = num_keys_of(unit);
  let low = bitcast<i32>(table[unit + LOW_DIAGONAL]);
  let high = bitcast<i32>(table[unit + HIGH_DIAGONAL]);
  // First key minus first query: diagonals of the unit's own counts.
  let origin = i32(table[unit + FIRST_KEY]) - i32(table[unit + FIRST_QUERY]);
  let group = i32(params.group);

  // Loop items that some item of the tile may see, as far as diagonals go.
  var first_loop = 0i;
  var end_loop = 0i;
  if of_queries {
    let first_query = i32(first_item / params.group);
    let last_query = i32((min(first_item + 64u, num_rows) - 1u) / params.group);
    // From a multiple of 64 on, so that vectors of dS are those of the buffer.
    first_loop = max(0, first_query + low - origin) / 64 * 64;
    end_loop = min(i32(num_keys), last_query + high - origin + 1);
  } else {
    let first_key = i32(first_item) + origin;
    let last_key = i32(min(first_item + 64u, num_keys)) - 1 + origin;
    first_loop = max(0, first_key - high) * group;
    end_loop = min(i32(num_rows), (last_key - low + 1) * group);
  }

  let item_operand = select(OPERAND_K, OPERAND_Q, of_queries);
  let loop_operand = select(OPERAND_Q, OPERAND_K, of_queries);
  let item_other = select(OPERAND_V, OPERAND_D_O, of_queries);
  let loop_other = select(OPERAND_D_O, OPERAND_V, of_queries);
  let value_operand = select(loop_operand, OPERAND_D_O, gradient == GRADIENT_OF_V);
  let value_groups = groups_of(value_operand);

  var acc_0 = Block();
  var acc_1 = Block();
  var acc_2 = Block();
  var acc_3 = Block();

  for (var loop_begin = first_loop; loop_begin < end_loop; loop_begin += 64) {
    let begin = u32(loop_begin);
    let scores = products(unit, item_operand, first_item, loop_operand, begin, lane);
    var d_weights = Block();
    if gradient != GRADIENT_OF_V {
      d_weights = products(unit, item_other, first_item, loop_other, begin, lane);
    }
    let loop_item = vec4(begin + column * 4u) + vec4(0u, 1u, 2u, 3u);
    var values: Block;
    for (var r = 0u; r < 4u; r++) {
      let item = vec4(first_item + quad * 4u + r);
      var product = scores.a;
      var d_weight = d_weights.a;
      if r == 1u {
        product = scores.b;
        d_weight = d_weights.b;
      } else if r == 2u {
        product = scores.c;
        d_weight = d_weights.c;
      } else if r == 3u {
        product = scores.d;
        d_weight = d_weights.d;
      }
      let pairs = pairs_of(unit, product, d_weight, select(loop_item, item, of_queries),
                           select(item, loop_item, of_queries));
      if of_queries && first_group == 0u && (params.flags & WRITES_SCORE_GRADIENT) != 0u &&
         item.x < num_rows && loop_item.x < num_keys {
        let begin_of_scores = table[unit + LSE_BEGIN] + num_rows * params.head_dim_groups +
                              num_keys * (params.head_dim_groups + params.head_dim_v_groups);
        gradients[begin_of_scores + item.x * ((num_keys + 3u) / 4u) + loop_item.x / 4u] =
            pairs.score_gradient;
      }
      let value = select(pairs.product_gradient, pairs.weight, gradient == GRADIENT_OF_V);
      if r == 0u {
        values.a = value;
      } else if r == 1u {
        values.b = value;
      } else if r == 2u {
        values.c = value;
      } else {
        values.d = value;
      }
    }

    let tile_end = min(u32(end_loop), begin + 64u);
    for (var half = begin; half < tile_end; half += HALF_KEYS) {
      workgroupBarrier();
      if column / 8u == (half - begin) / HALF_KEYS {
        store_transposed(column % 8u * 64u + quad, values.a, values.b, values.c, values.d);
      }
      let num_items = min(HALF_KEYS, tile_end - half);
      for (var slab = 0u; slab < num_items; slab += SLAB_KEYS) {
        if slab > 0u {
          workgroupBarrier();
        }
        for (var at = lane; at < SLAB_KEYS * SLAB_GROUPS; at += 256u) {
          let slab_item = half + slab + at / SLAB_GROUPS;
          let element_group = first_group + at % SLAB_GROUPS;
          var value = vec4(0.0);
          if slab_item < tile_end && element_group < value_groups {
            value = load(value_operand, unit, slab_item, element_group);
          }
          shared_data[512u + at] = value;
        }
        workgroupBarrier();
        let slab_items = min(SLAB_KEYS, num_items - slab);
        for (var k = 0u; k < slab_items; k++) {
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

  var begin = table[unit + LSE_BEGIN];
  if gradient != GRADIENT_OF_Q {
    begin += num_rows * params.head_dim_groups;
  }
  if gradient == GRADIENT_OF_V {
    begin += num_keys * params.head_dim_groups;
  }
  let num_items = select(num_keys, num_rows, of_queries);
  let item = first_item + quad * 4u;
  let target_group = first_group + column;
  store_block(begin, item, num_items, target_group, value_groups, acc_0);
  if COLUMNS > 1u {
    store_block(begin, item, num_items, target_group + 16u, value_groups, acc_1);
  }
  if COLUMNS > 2u {
    store_block(begin, item, num_items, target_group + 32u, value_groups, acc_2);
  }
  if COLUMNS > 3u {
    store_block(begin, item, num_items, target_group + 48u, value_groups, acc_3);
  }
}
