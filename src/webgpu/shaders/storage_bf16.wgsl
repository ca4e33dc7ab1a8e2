// Elements of q, k, v and o, four at a time: bf16 as raw bits.
alias Packed = vec2<u32>;

fn unpack(group: Packed) -> vec4<f32> {
  return vec4(bitcast<f32>(group.x << 16u), bitcast<f32>(group.x & 0xffff0000u),
              bitcast<f32>(group.y << 16u), bitcast<f32>(group.y & 0xffff0000u));
}

// To nearest even. NaN stays NaN.
fn round_to_bfloat(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  if (bits & 0x7fffffffu) > 0x7f800000u {
    return (bits >> 16u) | 0x40u;
  }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

fn pack(values: vec4<f32>) -> Packed {
  return vec2(round_to_bfloat(values.x) | (round_to_bfloat(values.y) << 16u),
              round_to_bfloat(values.z) | (round_to_bfloat(values.w) << 16u));
}
