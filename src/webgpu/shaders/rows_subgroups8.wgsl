// Maxima and sums of rows over the columns of a workgroup: within subgroups of 8, then through
// workgroup memory.
fn exchange(pair: RowPair, column: u32, quad: u32) {
  workgroupBarrier();
  if column % 8u == 0u {
    set_exchanged(column * 2u + quad, pair.first);
    set_exchanged(column * 2u + quad + 8u, pair.second);
  }
  workgroupBarrier();
}

fn maxima_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < 8u; mask *= 2u) {
    all.first = larger(all.first, subgroupShuffleXor(all.first, mask));
    all.second = larger(all.second, subgroupShuffleXor(all.second, mask));
  }
  exchange(all, column, quad);
  return RowPair(larger(exchanged(quad), exchanged(16u + quad)),
                 larger(exchanged(quad + 8u), exchanged(16u + quad + 8u)));
}

fn sums_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < 8u; mask *= 2u) {
    all.first += subgroupShuffleXor(all.first, mask);
    all.second += subgroupShuffleXor(all.second, mask);
  }
  exchange(all, column, quad);
  return RowPair(exchanged(quad) + exchanged(16u + quad),
                 exchanged(quad + 8u) + exchanged(16u + quad + 8u));
}
