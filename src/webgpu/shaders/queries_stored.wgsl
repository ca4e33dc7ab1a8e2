// q in the element type of the call.
alias QueryPacked = Packed;

fn unpack_query(group: QueryPacked) -> vec4<f32> {
  return unpack(group);
}
