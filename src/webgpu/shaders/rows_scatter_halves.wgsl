// A tensor of 2-byte elements, whose words two rows may share, or a row and what is not the
// tensor's: halves of words are written one at a time, each by one invocation, so the order does
// not matter.
@group(0) @binding(1) var<storage, read_write> tensor_words: array<atomic<u32>>;

fn store_half(element: u32, value: u32) {
  let shift = element % 2u * 16u;
  atomicAnd(&tensor_words[element / 2u], ~(0xffffu << shift));
  atomicOr(&tensor_words[element / 2u], value << shift);
}

fn store_word(place: Place, word: u32) {
  if place.count == 2u && place.element % 2u == 0u {
    atomicStore(&tensor_words[place.element / 2u], word);
    return;
  }
  store_half(place.element, word & 0xffffu);
  if place.count == 2u {
    store_half(place.element + 1u, word >> 16u);
  }
}
