// Packed rows -> rows of a tensor, where every packed word is a whole word of the tensor, too.
// Before this text stands rows.wgsl.
@group(0) @binding(1) var<storage, read_write> tensor_words: array<u32>;
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
    tensor_words[place.element / place.count] = word;
  }
}
