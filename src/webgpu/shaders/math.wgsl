// Functions whose accuracy the language leaves open, written out, and NaN tests by bits: a compiler
// may take x != x for false. Before this text stand LOG2_E and LN_2.

fn is_nan(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// The larger of both; a NaN in b is passed over.
fn larger(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
  return select(a, b, b > a);
}

// 2^x within 2 units in the last place; 0 below 2^-126. The language allows 3 + 2 |x| units.
// Coefficients: Chebyshev fit of 2^f for |f| <= 1/2, the linear one
// then rounded to ln(2), relative error 2e-8.
fn power_of_2(x: vec4<f32>) -> vec4<f32> {
  let clamped = clamp(x, vec4(-127.0), vec4(127.0));
  let whole = round(clamped);
  let f = clamped - whole;
  var p = vec4(0.0001546973253);
  p = fma(p, f, vec4(0.001340043218));
  p = fma(p, f, vec4(0.009618025601));
  p = fma(p, f, vec4(0.05550327214));
  p = fma(p, f, vec4(0.2402265121));
  p = fma(p, f, vec4(LN_2));
  p = fma(p, f, vec4(1.0));
  let scale = bitcast<vec4<f32>>(bitcast<vec4<u32>>(vec4<i32>(whole) + vec4(127)) << vec4(23u));
  return select(p * scale, x, is_nan(x));
}

// log2 of normal positive numbers, absolute error about 1e-7; NaN stays NaN.
fn log_2(x: vec4<f32>) -> vec4<f32> {
  // Mantissas from sqrt(1/2) to sqrt(2): u^9 / 9 is the last term that counts for |u| <= 0.172.
  let bits = bitcast<vec4<u32>>(x);
  let exponent = (bitcast<vec4<i32>>(bits - vec4(0x3f3504f3u))) >> vec4(23u);
  let mantissa = bitcast<vec4<f32>>(bits - (bitcast<vec4<u32>>(exponent) << vec4(23u)));
  let u = (mantissa - vec4(1.0)) / (mantissa + vec4(1.0));
  let u2 = u * u;
  var series = vec4(1.0 / 9.0);
  series = fma(series, u2, vec4(1.0 / 7.0));
  series = fma(series, u2, vec4(1.0 / 5.0));
  series = fma(series, u2, vec4(1.0 / 3.0));
  series = fma(series, u2, vec4(1.0));
  let log = fma(2.0 * LOG2_E * u, series, vec4<f32>(exponent));
  return select(log, x, is_nan(x));
}

// Relative error below 4 units in the last place: a Chebyshev fit of tanh(u) / u in u^2 for
// |u| <= 0.6, beyond it 1 - 2 / (e^2u + 1).
fn hyperbolic_tangent(u: vec4<f32>) -> vec4<f32> {
  let u2 = u * u;
  var series = vec4(-0.005856427655);
  series = fma(series, u2, vec4(0.02075747527));
  series = fma(series, u2, vec4(-0.05376992174));
  series = fma(series, u2, vec4(0.133317047));
  series = fma(series, u2, vec4(-0.3333328397));
  series = fma(series, u2, vec4(0.9999999976));
  // tanh(10) is 1 in fp32.
  let magnitude = min(abs(u), vec4(10.0));
  let tail = vec4(1.0) - vec4(2.0) / (power_of_2(2.0 * LOG2_E * magnitude) + vec4(1.0));
  let large = select(tail, -tail, u < vec4(0.0));
  return select(select(large, series * u, magnitude <= vec4(0.6)), u, is_nan(u));
}
