// Attention over the activations of examples/capture, and what it is compared with.
import { fromHalf } from "./heed.mjs";

export const LAYERS = [0, 14, 29];
const HEADS = 9;
const KV_HEADS = 3;
const DIM = 64;

const part = (tensors, layer, name) => tensors.get(`layer${layer}.${name}`);

// o in fp16, lse, rows, seconds.
export async function attentionOf(heed, tensors, layer) {
  const [q, k, v] = ["q", "k", "v"].map((name) => part(tensors, layer, name).data);
  const result = await heed.forward({
    q, k, v, dtype: "f16", numQHeads: HEADS, numKvHeads: KV_HEADS, headDim: DIM, causal: true,
  });
  return { ...result, rows: q.length / (HEADS * DIM) };
}

// Against the NumPy model: every 16th row of o, all of lse. `excess` is the largest error over what
// the types allow: half a unit of fp16 for o, 1e-5 of lse for its sum in fp32.
export function compareLayer(tensors, layer, { o, lse, rows }) {
  const wanted = part(tensors, layer, "o_rows");
  let [oError, lseError, excess] = [0, 0, 0];
  const check = (got, want, bound) => {
    const error = Math.abs(got - want);
    excess = Math.max(excess, Number.isNaN(error) ? Infinity : error / bound);
    return error;
  };
  for (let n = 0; n < wanted.shape[1]; n++) {
    const row = (n + 1) * 16 - 1;
    for (let at = 0; at < HEADS * DIM; at++) {
      const want = wanted.data[n * HEADS * DIM + at];
      const bound = Math.abs(want) * 2 ** -11 + 2e-5;
      oError = Math.max(oError, check(fromHalf(o[row * HEADS * DIM + at]), want, bound));
    }
  }
  const wantedLse = part(tensors, layer, "lse").data;
  for (let at = 0; at < HEADS * rows; at++) {
    const bound = 1e-5 * (1 + Math.abs(wantedLse[at]));
    lseError = Math.max(lseError, check(lse[at], wantedLse[at], bound));
  }
  return { oError, lseError, excess };
}

// Softmax weights of a head, [rows][rows].
export function weightsOf(tensors, layer, head, lse) {
  const q = Float64Array.from(part(tensors, layer, "q").data, fromHalf);
  const k = Float64Array.from(part(tensors, layer, "k").data, fromHalf);
  const kvHead = Math.floor(head / (HEADS / KV_HEADS));
  const rows = q.length / (HEADS * DIM);
  const weights = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j <= i; j++) {
      let score = 0;
      for (let d = 0; d < DIM; d++) {
        score += q[(i * HEADS + head) * DIM + d] * k[(j * KV_HEADS + kvHead) * DIM + d];
      }
      weights[i * rows + j] = Math.exp(score / 8 - lse[head * rows + i]);
    }
  }
  return weights;
}

// One head without a mask: heed and the naive shader, each the faster of two runs after a first.
// Without a clock on the device, times include transfers.
export async function timeBoth(heed, rows) {
  const numbers = (seed) => Float32Array.from({ length: rows * DIM }, (_, n) =>
    Math.sin(seed + 0.7 * n) + Math.cos(0.013 * n * seed));
  const [q, k, v] = [1, 2, 3].map(numbers);
  const naive = await heed.compile("../naive", "naive");
  const runs = {
    heed: () => heed.forward({ q, k, v, numQHeads: 1, numKvHeads: 1, headDim: DIM }),
    naive: () => heed.dispatch({
      pipeline: naive, uniform: new Uint32Array([rows, DIM, 0, 0]),
      storage: [q, k, v, new Float32Array(rows * DIM)], outputs: [3],
      numWorkgroups: Math.ceil(rows / 64),
    }),
  };
  const seconds = { heed: Infinity, naive: Infinity };
  const outputs = {};
  for (let round = 0; round < 3; round++) {
    for (const [name, run] of Object.entries(runs)) {
      const begin = performance.now();
      const result = await run();
      const wall = (performance.now() - begin) * 1e-3;
      outputs[name] = result.o ?? result.results[0];
      if (round > 0) seconds[name] = Math.min(seconds[name], result.seconds || wall);
    }
  }
  let difference = 0;
  outputs.heed.forEach((value, at) => {
    difference = Math.max(difference, Math.abs(value - outputs.naive[at]));
  });
  return { rows, heedSeconds: seconds.heed, naiveSeconds: seconds.naive, difference };
}
