// Packed rows -> rows of a tensor. Before this text stand rows.wgsl and one that has the binding of
// the tensor, and store_word(place, word): a packed word to where it belongs.
@group(0) @binding(2) var<storage, read> packed_words: array<u32>;

@compute @workgroup_size(LANES)
fn scatter(@builtin(workgroup_id) workgroup: vec3<u32>,
           @builtin(local_invocation_index) lane: u32) {
  let record = HEADER_WORDS + workgroup.x * RECORD_WORDS;
  for (var at = lane; at < table[record + NUM_WORDS]; at += LANES) {
    let place = place_of(record, at);
    if place.count == 0u {
      continue;
    }
    var word = table[CONSTANT];
    if table[record + IS_CONSTANT] == 0u {
      word = packed_words[table[record + PACKED] + at];
    }
    store_word(place, word);
  }
}
