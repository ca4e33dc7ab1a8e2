// Maxima and sums of rows over the columns of a workgroup, all 16 of them within a subgroup.
fn maxima_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < 16u; mask *= 2u) {
    all.first = larger(all.first, subgroupShuffleXor(all.first, mask));
    all.second = larger(all.second, subgroupShuffleXor(all.second, mask));
  }
  return all;
}

fn sums_of_rows(pair: RowPair, column: u32, quad: u32) -> RowPair {
  var all = pair;
  for (var mask = 1u; mask < 16u; mask *= 2u) {
    all.first += subgroupShuffleXor(all.first, mask);
    all.second += subgroupShuffleXor(all.second, mask);
  }
  return all;
}
