// Maxima and sums over the columns of a workgroup, COLUMN_LANES neighbours of a subgroup each.
struct RowPair {
  first: vec4<f32>,  // of quad
  second: vec4<f32>, // of quad + 8
}

fn maxima_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < COLUMN_LANES; mask *= 2u) {
    all = RowPair(larger(all.first, subgroupShuffleXor(all.first, mask)),
                  larger(all.second, subgroupShuffleXor(all.second, mask)));
  }
  return all;
}

fn sums_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < COLUMN_LANES; mask *= 2u) {
    all = RowPair(all.first + subgroupShuffleXor(all.first, mask),
                  all.second + subgroupShuffleXor(all.second, mask));
  }
  return all;
}
