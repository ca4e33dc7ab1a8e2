// Rows of a tensor -> packed rows. Before this text stands rows.wgsl.
@group(0) @binding(1) var<storage, read> tensor_words: array<u32>;
@group(0) @binding(2) var<storage, read_write> packed_words: array<u32>;

fn half_at(element: u32) -> u32 {
  return (tensor_words[element / 2u] >> (element % 2u * 16u)) & 0xffffu;
}

fn packed_word(place: Place) -> u32 {
  if place.count == 0u {
    return 0u;
  }
  switch table[KIND] {
    case WORDS: {
      return tensor_words[place.element];
    }
    case HALVES: {
      if place.count == 1u {
        return half_at(place.element);
      }
      return half_at(place.element) | (half_at(place.element + 1u) << 16u);
    }
    case WIDENED_FP16: {
      return bitcast<u32>(unpack2x16float(half_at(place.element)).x);
    }
    default: {
      return half_at(place.element) << 16u;
    }
  }
}

@compute @workgroup_size(LANES)
fn gather(@builtin(workgroup_id) workgroup: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
  let record = HEADER_WORDS + workgroup.x * RECORD_WORDS;
  for (var at = lane; at < table[record + NUM_WORDS]; at += LANES) {
    var word = table[CONSTANT];
    if table[record + IS_CONSTANT] == 0u {
      word = packed_word(place_of(record, at));
    }
    packed_words[table[record + PACKED] + at] = word;
  }
}
