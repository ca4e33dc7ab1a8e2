// Elements of q, k, v and o, four at a time: fp32.
alias Packed = vec4<f32>;

fn unpack(group: Packed) -> vec4<f32> {
  return group;
}

fn pack(values: vec4<f32>) -> Packed {
  return values;
}
