// The page that `./dev test --browser` opens: computes, compiles every shader, and posts what it
// found to /report.
import { LAYERS, attentionOf, compareLayer, timeBoth, weightsOf } from "./activations.mjs";
import { Heed, fromBfloat, fromHalf } from "./heed.mjs";
import { fetchSafetensors } from "./safetensors.mjs";

// Small numbers that repeat only after 2^31 steps.
function generator(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return state / 2 ** 30 - 1;
  };
}

const TO_NUMBER = { f32: (x) => x, f16: fromHalf, bf16: fromBfloat };
const UNIT = { f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 };

// Elements of a type: random fp32, or bits of numbers between 2^-3 and 1 with random signs.
function elements(dtype, count, next) {
  if (dtype === "f32") return Float32Array.from({ length: count }, next);
  const [bias, mantissaBits] = dtype === "f16" ? [15, 10] : [127, 7];
  return Uint16Array.from({ length: count }, () => {
    const sign = next() < 0 ? 0x8000 : 0;
    const exponent = bias - 1 - Math.floor(Math.abs(next()) * 2.99);
    const mantissa = Math.floor(Math.abs(next()) * (2 ** mantissaBits - 1));
    return sign | (exponent << mantissaBits) | mantissa;
  });
}

// One row in double precision: o, lse.
function exactRow(args, shape, numbers, head, i) {
  const { kvLen, qLen, headDim, headDimV, numQHeads, numKvHeads } = shape;
  const kvHead = Math.floor(head / (numQHeads / numKvHeads));
  const position = i + kvLen - qLen;
  const right = args.causal ? 0 : args.windowRight ?? kvLen;
  const scores = [];
  for (let j = 0; j < kvLen; j++) {
    if (j > position + right || j < position - (args.windowLeft ?? kvLen + qLen)) continue;
    let score = 0;
    for (let d = 0; d < headDim; d++) {
      score += numbers.q[(i * numQHeads + head) * headDim + d] *
        numbers.k[(j * numKvHeads + kvHead) * headDim + d];
    }
    score *= args.scale ?? 1 / Math.sqrt(headDim);
    if (args.softcap) score = args.softcap * Math.tanh(score / args.softcap);
    if (args.alibiSlopes) score -= args.alibiSlopes[head] * Math.abs(position - j);
    scores.push([j, score]);
  }
  const all = [...scores.map(([, score]) => score), ...(args.sinks ? [args.sinks[head]] : [])];
  const largest = Math.max(...all);
  const o = new Float64Array(headDimV);
  if (all.length === 0) return { o, lse: -Infinity };
  const lse = largest + Math.log(all.reduce((sum, score) => sum + Math.exp(score - largest), 0));
  for (const [j, score] of scores) {
    const weight = Math.exp(score - lse);
    for (let d = 0; d < headDimV; d++) {
      o[d] += weight * numbers.v[(j * numKvHeads + kvHead) * headDimV + d];
    }
  }
  return { o, lse };
}

const CASES = [
  { dtype: "f32", numQHeads: 4, numKvHeads: 2, headDim: 40, qLen: 37, kvLen: 70, causal: true },
  { dtype: "f16", numQHeads: 3, numKvHeads: 1, headDim: 64, headDimV: 72, qLen: 70, kvLen: 37,
    causal: true },
  { dtype: "bf16", numQHeads: 2, numKvHeads: 2, headDim: 128, qLen: 5, kvLen: 130, windowLeft: 20,
    windowRight: 3, softcap: 4 },
  { dtype: "f32", numQHeads: 2, numKvHeads: 1, headDim: 8, headDimV: 200, qLen: 33, kvLen: 65,
    alibiSlopes: [0.5, 0.01], sinks: [0.3, -1], scale: -0.7 },
];

// Each makes a good call a bad one; browser_test.py has the names that the answers must begin with.
const BAD_ARGUMENTS = [
  { headDim: 6 },
  { mask: new Float32Array(1) },
  { windowleft: 3 },
  { causal: true, windowRight: 2 },
  { causal: 1 },
  { windowLeft: -2 },
  { windowRight: 1.5 },
  { softcap: -1 },
  { softcap: 2 ** -101 },
  { softcap: 2 ** 101 },
  { scale: 1e300 },
  { scale: "1" },
  { sinks: [1, 2] },
  { sinks: 3 },
  { sinks: [NaN] },
  { sinks: [Infinity] },
  { sinks: ["1"] },
  { alibiSlopes: 5 },
  { alibiSlopes: {} },
  { alibiSlopes: true },
  { alibiSlopes: "1" },
  { alibiSlopes: [undefined] },
  { alibiSlopes: [NaN] },
  { alibiSlopes: [-Infinity] },
  { numQHeads: 0 },
  { numQHeads: -1 },
  { numQHeads: 0.5, numKvHeads: 0.5 },
  { numKvHeads: "1" },
  { dtype: "toString" },
  { q: undefined },
  { k: null },
  { v: [1, 2, 3, 4, 5, 6, 7, 8] },
  { q: new Int32Array(8) },
  { dtype: "f16", q: new Int16Array(8) },
];

// Largest error over its bound.
async function runCase(heed, args, seed) {
  const next = generator(seed);
  const { qLen, kvLen, ...call } = args;
  const { dtype, numQHeads, numKvHeads, headDim } = args;
  const headDimV = args.headDimV ?? headDim;
  const tensors = {
    q: elements(dtype, qLen * numQHeads * headDim, next),
    k: elements(dtype, kvLen * numKvHeads * headDim, next),
    v: elements(dtype, kvLen * numKvHeads * headDimV, next),
  };
  const numbers = Object.fromEntries(Object.entries(tensors).map(([name, data]) =>
    [name, Float64Array.from(data, TO_NUMBER[dtype])]));
  const { o, lse } = await heed.forward({ ...call, ...tensors });
  const shape = { ...args, headDimV };
  let excess = 0;
  const check = (got, want, bound) => {
    if (got === want) return;
    const error = Math.abs(got - want) / bound;
    excess = Math.max(excess, Number.isNaN(error) ? Infinity : error);
  };
  for (let head = 0; head < numQHeads; head++) {
    for (let i = 0; i < qLen; i++) {
      const exact = exactRow(args, shape, numbers, head, i);
      check(lse[head * qLen + i], exact.lse, 1e-5);
      for (let d = 0; d < headDimV; d++) {
        const got = TO_NUMBER[dtype](o[(i * numQHeads + head) * headDimV + d]);
        check(got, exact.o[d], 1.01 * UNIT[dtype] * Math.abs(exact.o[d]) + 1e-5);
      }
    }
  }
  return excess;
}

// Where the page is, for a reader of the log when it never ends.
const progress = (text) => fetch("/progress", { method: "POST", body: JSON.stringify(text) });

// What the demo page shows once it has computed: its text, and how many pixels of the map are dark.
async function openDemo() {
  const frame = document.createElement("iframe");
  frame.src = "index.html";
  document.body.append(frame);
  const textOf = () => frame.contentDocument?.getElementById("result")?.value ?? "";
  while (!/^(layer|It does not)/.test(textOf())) {
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const map = frame.contentDocument.getElementById("map");
  const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
  let numDark = 0;
  for (let at = 0; at < data.length; at += 4) numDark += data[at] < 250 ? 1 : 0;
  return { text: textOf(), numDark };
}

// A device with what wide tiles may use. Where fp16 is missing, its name stands for fp32, so that
// the compiler reads all but the extension.
async function openWide() {
  const adapter = await navigator.gpu.requestAdapter();
  const has = (feature) => adapter.features.has(feature);
  const requiredFeatures = ["subgroups", "shader-f16"].filter(has);
  const device = await adapter.requestDevice({ requiredFeatures });
  return async (label) => {
    let code = await (await fetch(`shaders/${label}.wgsl`)).text();
    if (!has("shader-f16")) code = code.replace("enable f16;", "alias f16 = f32;");
    // wgpu-native has no name for this extension, which browsers ask for.
    if (label.includes(".subgroups")) code = `enable subgroups;\n${code}`;
    const { messages } = await device.createShaderModule({ label, code }).getCompilationInfo();
    const errors = messages.filter((m) => m.type === "error");
    if (errors.length > 0) throw new Error(errors.map((m) => m.message).join("\n"));
  };
}

// The language's compiler reads every shader. The plain ones of one column, or with ?all of any
// number, go through the driver's, which takes seconds for each.
async function compileShaders(heed) {
  const index = await (await fetch("shaders/index.json")).json();
  const takesAll = new URLSearchParams(location.search).has("all");
  const checkWide = await openWide();
  const failures = [];
  let [numChecked, numCompiled] = [0, 0];
  for (const { label, entryPoint } of index) {
    const isWide = label.includes(".wide");
    try {
      await (isWide ? checkWide(label) : heed.check(label));
      numChecked++;
      if (isWide || (!takesAll && !`${label}.`.includes(".c1."))) continue;
      await heed.compile(label, entryPoint);
      numCompiled++;
      await progress(`compiled ${label}`);
    } catch (error) {
      failures.push(`${label}: ${error.message}`);
    }
  }
  return { numChecked, numCompiled, failures };
}

async function run() {
  const heed = await Heed.open();
  const { vendor, architecture, description } = heed.adapter.info;
  const adapter = `${vendor} ${architecture} ${description}`.trim();
  const report = { adapter, layers: [], cases: [], refusals: [] };
  await progress(`on ${report.adapter}`);
  const tensors = await fetchSafetensors("smollm2.safetensors");
  for (const layer of LAYERS) {
    await progress(`layer ${layer}`);
    const result = await attentionOf(heed, tensors, layer);
    const weights = weightsOf(tensors, layer, 4, result.lse);
    let sumError = 0;
    for (let row = 0; row < result.rows; row++) {
      const ofRow = weights.subarray(row * result.rows, (row + 1) * result.rows);
      const sum = ofRow.reduce((a, b) => a + b);
      sumError = Math.max(sumError, Math.abs(sum - 1));
    }
    report.layers.push({ layer, ...compareLayer(tensors, layer, result), sumError });
  }
  for (const [seed, args] of CASES.entries()) {
    await progress(`case ${seed}`);
    report.cases.push(await runCase(heed, args, seed + 1));
  }
  const refusalOf = (promise) => promise.then(() => "none", (error) => error.message);
  const good = { numQHeads: 1, numKvHeads: 1, headDim: 8, q: new Float32Array(8),
    k: new Float32Array(8), v: new Float32Array(8) };
  for (const args of [{}, ...BAD_ARGUMENTS]) {
    report.refusals.push(await refusalOf(heed.forward({ ...good, ...args })));
  }
  report.refusals.push(await refusalOf(heed.forward({ ...good, sinks: [-Infinity] })));
  report.refusals.push(await refusalOf(heed.forward()));
  report.refusals.push(await refusalOf(Heed.open({ shader: "." })));
  await progress("the demo page");
  report.demo = await openDemo();
  await progress("beside the naive shader");
  report.timing = await timeBoth(heed, 256);
  report.shaders = await compileShaders(heed);
  return report;
}

const report = await run().catch((error) => ({ error: `${error.message}\n${error.stack}` }));
document.getElementById("report").value = JSON.stringify(report, null, 1);
await fetch("/report", { method: "POST", body: JSON.stringify(report) });
