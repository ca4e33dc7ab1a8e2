// Keys and values in the element type of the call. `row` is where a row begins.
alias KeyPacked = Packed;

fn load_key(row: u32, element_group: u32) -> vec4<f32> {
  return unpack(k_data[row + element_group]);
}

fn load_value(row: u32, element_group: u32) -> vec4<f32> {
  return unpack(v_data[row + element_group]);
}
