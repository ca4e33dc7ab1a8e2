// o of a part of the keys, in fp32 for the host to merge.
alias OutputPacked = vec4<f32>;

fn pack_output(values: vec4<f32>) -> OutputPacked {
  return values;
}
