// Packed rows -> rows of a tensor of 2-byte elements, whose words two rows may share, or a row and
// what is not the tensor's: halves of words are written one at a time, each by one invocation, so
// the order does not matter. Before this text stands rows.wgsl.
@group(0) @binding(1) var<storage, read_write> tensor_words: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read> packed_words: array<u32>;

fn store_half(element: u32, value: u32) {
  let shift = element % 2u * 16u;
  atomicAnd(&tensor_words[element / 2u], ~(0xffffu << shift));
  atomicOr(&tensor_words[element / 2u], value << shift);
}

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
    if place.count == 2u && place.element % 2u == 0u {
      atomicStore(&tensor_words[place.element / 2u], word);
    } else {
      store_half(place.element, word & 0xffffu);
      if place.count == 2u {
        store_half(place.element + 1u, word >> 16u);
      }
    }
  }
}
