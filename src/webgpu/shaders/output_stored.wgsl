// o in the element type of the call.
alias OutputPacked = Packed;

fn pack_output(values: vec4<f32>) -> OutputPacked {
  return pack(values);
}
