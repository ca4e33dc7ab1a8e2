// The dropout mask of docs/dropout.md in 32-bit arithmetic. Before this text stand the constants
// PHILOX_... of src/device/philox.h.
fn multiply_high(a: u32, b: u32) -> u32 {
  let a_low = a & 0xffffu;
  let a_high = a >> 16u;
  let b_low = b & 0xffffu;
  let b_high = b >> 16u;
  let low = a_low * b_low;
  let middle = a_high * b_low + (low >> 16u);
  let other = a_low * b_high + (middle & 0xffffu);
  return a_high * b_high + (middle >> 16u) + (other >> 16u);
}

fn philox(start: vec4<u32>, start_key: vec2<u32>) -> vec4<u32> {
  var counter = start;
  var key = start_key;
  for (var i = 0u; i < PHILOX_ROUNDS; i++) {
    counter = vec4(multiply_high(PHILOX_MULTIPLIER_1, counter.z) ^ counter.y ^ key.x,
                   PHILOX_MULTIPLIER_1 * counter.z,
                   multiply_high(PHILOX_MULTIPLIER_0, counter.x) ^ counter.w ^ key.y,
                   PHILOX_MULTIPLIER_0 * counter.x);
    key += vec2(PHILOX_WEYL_0, PHILOX_WEYL_1);
  }
  return counter;
}

// The 16-bit numbers of elements (i, j) and (i, j + 1), j even: one word of their patch.
fn dropout_pair(head: u32, i: u32, j: u32) -> vec2<u32> {
  let counter = vec4(j / 16u * 4u + j % 8u / 2u, i / 16u * 8u + i % 8u, head,
                     params.dropout_offset);
  let words = philox(counter, params.dropout_key);
  let halves = select(words.xy, words.zw, i % 16u >= 8u);
  let word = select(halves.x, halves.y, j % 16u >= 8u);
  return vec2(word & 0xffffu, word >> 16u);
}

// Of one element, whatever its parity.
fn dropout_number(head: u32, i: u32, j: u32) -> u32 {
  let pair = dropout_pair(head, i, j & 0xfffffffeu);
  return select(pair.x, pair.y, j % 2u == 1u);
}
