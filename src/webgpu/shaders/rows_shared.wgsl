// Maxima and sums over the columns of a workgroup, through workgroup memory.
struct RowPair {
  first: vec4<f32>,  // of quad
  second: vec4<f32>, // of quad + 8
}

fn exchange(pair: RowPair, column: u32, quad: u32) {
  workgroupBarrier();
  set_exchanged(column * 16u + quad, pair.first);
  set_exchanged(column * 16u + quad + 8u, pair.second);
  workgroupBarrier();
}

fn maxima_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  exchange(pair, column, quad);
  var all = RowPair(exchanged(quad), exchanged(quad + 8u));
  for (var c = 1u; c < COLUMN_LANES; c++) {
    all = RowPair(larger(all.first, exchanged(c * 16u + quad)),
                  larger(all.second, exchanged(c * 16u + quad + 8u)));
  }
  return all;
}

fn sums_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  exchange(pair, column, quad);
  var all = RowPair(vec4(0.0), vec4(0.0));
  for (var c = 0u; c < COLUMN_LANES; c++) {
    all = RowPair(all.first + exchanged(c * 16u + quad), all.second + exchanged(c * 16u + quad + 8u));
  }
  return all;
}
