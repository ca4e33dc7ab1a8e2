// Every packed word is a whole word of the tensor, too.
@group(0) @binding(1) var<storage, read_write> tensor_words: array<u32>;

fn store_word(place: Place, word: u32) {
  tensor_words[place.element / place.count] = word;
}
