// q in fp32, whatever the element type of the call: the host has rotated it.
alias QueryPacked = vec4<f32>;

fn unpack_query(group: QueryPacked) -> vec4<f32> {
  return group;
}
