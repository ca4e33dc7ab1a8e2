// Elements of q, k, v and o, four at a time: fp16 as raw bits, so that no device feature is needed.
alias Packed = vec2<u32>;

fn unpack(group: Packed) -> vec4<f32> {
  return vec4(unpack2x16float(group.x), unpack2x16float(group.y));
}

// Rounds to nearest even, which pack2x16float leaves to the device. NaN stays NaN.
fn round_to_half(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if magnitude > 0x7f800000u {
    return sign | 0x7e00u;
  }
  // From 65520 on the nearest number is infinity.
  if magnitude >= 0x477ff000u {
    return sign | 0x7c00u;
  }
  if magnitude < 0x38800000u {
    // Below 2^-14: units of 2^-24. Below half a unit (2^-25) the shift would be past the word.
    if magnitude < 0x33000000u {
      return sign;
    }
    let shift = 126u - (magnitude >> 23u);
    let significand = (magnitude & 0x7fffffu) | 0x800000u;
    let kept = significand >> shift;
    return sign | ((significand + (1u << (shift - 1u)) - 1u + (kept & 1u)) >> shift);
  }
  let rebased = magnitude - (112u << 23u);
  return sign | ((rebased + 0xfffu + ((rebased >> 13u) & 1u)) >> 13u);
}

fn pack(values: vec4<f32>) -> Packed {
  return vec2(round_to_half(values.x) | (round_to_half(values.y) << 16u),
              round_to_half(values.z) | (round_to_half(values.w) << 16u));
}
