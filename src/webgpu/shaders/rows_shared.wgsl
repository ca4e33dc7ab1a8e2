// Maxima and sums of rows over the columns of a workgroup, through workgroup memory.
fn exchange(pair: RowPair, column: u32, quad: u32) {
  workgroupBarrier();
  set_exchanged(column * 16u + quad, pair.first);
  set_exchanged(column * 16u + quad + 8u, pair.second);
  workgroupBarrier();
}

fn maxima_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  exchange(pair, column, quad);
  var all = RowPair(exchanged(quad), exchanged(quad + 8u));
  for (var c = 1u; c < 16u; c++) {
    all.first = larger(all.first, exchanged(c * 16u + quad));
    all.second = larger(all.second, exchanged(c * 16u + quad + 8u));
  }
  return all;
}

fn sums_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  exchange(pair, column, quad);
  var all = RowPair(vec4(0.0), vec4(0.0));
  for (var c = 0u; c < 16u; c++) {
    all.first += exchanged(c * 16u + quad);
    all.second += exchanged(c * 16u + quad + 8u);
  }
  return all;
}
