// Keys and values as 8-bit integers with scales: a row is a word for each group of 4 elements, then
// the fp32 scales, one for every k_scale_groups (v_scale_groups) of those words.
alias KeyPacked = u32;

fn unpack_int8(word: u32) -> vec4<f32> {
  let bits = vec4(word << 24u, word << 16u, word << 8u, word);
  return vec4<f32>(bitcast<vec4<i32>>(bits) >> vec4(24u));
}

fn load_key(row: u32, element_group: u32) -> vec4<f32> {
  let scale = k_data[row + params.head_dim_groups + element_group / params.k_scale_groups];
  return bitcast<f32>(scale) * unpack_int8(k_data[row + element_group]);
}

fn load_value(row: u32, element_group: u32) -> vec4<f32> {
  let scale = v_data[row + params.head_dim_v_groups + element_group / params.v_scale_groups];
  return bitcast<f32>(scale) * unpack_int8(v_data[row + element_group]);
}
