// What forward shaders have in common: the score rule of docs/design.md, and o and lse of rows. An
// invocation deals with quads of 4 rows, rows being the heads of a group beside each other.
//
// Before this text stand storage_*.wgsl, queries_*.wgsl, keys_*.wgsl, output_*.wgsl, math.wgsl,
// unit.wgsl and dropout.wgsl.

@group(0) @binding(4) var<storage, read_write> o_data: array<OutputPacked>;
@group(0) @binding(5) var<storage, read_write> lse_data: array<f32>;

// A quad of rows.
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

// What is left of rows after their keys.
struct RowResults {
  factors: vec4<f32>,  // of o
  lse: vec4<f32>,
}

// The sum is relative to the maximum, which is in log2 units.
fn finished(unit: u32, rows: Rows, max_of_keys: vec4<f32>, sum_of_keys: vec4<f32>) -> RowResults {
  let negative_infinity = vec4(bitcast<f32>(params.negative_infinity));
  var row_max = max_of_keys;
  var row_sum = sum_of_keys;
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
  return RowResults(weight, select(lse, row_sum, is_nan(row_sum)));
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

fn store_lse(unit: u32, first_row: u32, lse: vec4<f32>) {
  let num_rows = table[unit + NUM_ROWS];
  for (var r = 0u; r < min(4u, num_rows - min(first_row, num_rows)); r++) {
    lse_data[table[unit + LSE_BEGIN] + first_row + r] = lse[r];
  }
}

struct TileKeys {
  // That some row of the tile may see, as far as diagonals go.
  first: u32,
  end: u32,
  // That all rows see, as far as diagonals go.
  first_of_all: i32,
  end_of_all: i32,
}

fn keys_of_tile(unit: u32, tile_row: u32) -> TileKeys {
  let last_row = min(tile_row + TILE_ROWS, table[unit + NUM_ROWS]) - 1u;
  let first_query = i32(table[unit + FIRST_QUERY] + tile_row / params.group);
  let last_query = i32(table[unit + FIRST_QUERY] + last_row / params.group);
  let low = bitcast<i32>(table[unit + LOW_DIAGONAL]);
  let high = bitcast<i32>(table[unit + HIGH_DIAGONAL]);
  let end = u32(max(0, min(i32(table[unit + END_KEY]), last_query + high + 1)));
  return TileKeys(u32(max(i32(table[unit + FIRST_KEY]), first_query + low)), end, last_query + low,
                  min(i32(end), first_query + high + 1));
}
