// Keys and values in fp32: the host has scaled them.
alias KeyPacked = vec4<f32>;

fn load_key(row: u32, element_group: u32) -> vec4<f32> {
  return k_data[row + element_group];
}

fn load_value(row: u32, element_group: u32) -> vec4<f32> {
  return v_data[row + element_group];
}
