// heed in the browser: the forward shader of the library, run by WebGPU. No dependencies.
//
//   import { Heed } from "./heed.mjs";
//   const heed = await Heed.open();
//   const { o, lse } = await heed.forward({ q, k, v, numQHeads: 9, numKvHeads: 3, headDim: 64,
//                                           causal: true });
//
// The numbers below are those of src/webgpu/unit_layout.h.

const STORAGE_BINDINGS = 8;
const [OUTPUT, LSE, TABLE] = [3, 4, 7];
const UNIT_WORDS = 16;
const TILE_ROWS = 64;
const COLUMN_GROUPS = 16; // groups of 4 elements of o in one column step
const MAX_COLUMNS = 4;
const FLAGS = { softcap: 1, alibi: 4, sinks: 16 };
const NEGATIVE_INFINITY_BITS = 0xff800000;
const LOG2_E = Math.log2(Math.E);

const ARRAYS = { f32: Float32Array, f16: Uint16Array, bf16: Uint16Array };

function require(condition, message) {
  if (!condition) throw new RangeError(message);
}

const OPEN_OPTIONS = ["shaders", "adapter"];
const FORWARD_ARGUMENTS = ["q", "k", "v", "numQHeads", "numKvHeads", "headDim", "headDimV", "dtype",
  "scale", "softcap", "causal", "windowLeft", "windowRight", "alibiSlopes", "sinks"];

// A value in an error message: arrays and objects by the names of their classes.
function textOf(value) {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return String(value);
  return value.constructor?.name ?? "an object";
}

// A misspelt or missing feature must not be left out silently.
function refuseOthers(name, given, known) {
  require(typeof given === "object" && given !== null,
    `${name}: must be an object, is ${textOf(given)}`);
  for (const key of Object.keys(given)) {
    require(known.includes(key), `${key}: is not known here; known are ${known.join(", ")}`);
  }
}

// Causal is windowRight = 0.
function checkWindow({ causal = false, windowLeft = -1, windowRight }) {
  require(typeof causal === "boolean",
    `causal: must be true or false, is ${textOf(causal)}`);
  require(!causal || windowRight === undefined,
    `windowRight: must not be given beside causal, is ${textOf(windowRight)}`);
  for (const [name, side] of [["windowLeft", windowLeft], ["windowRight", windowRight ?? -1]]) {
    require(Number.isSafeInteger(side) && side >= -1,
      `${name}: must be a whole number of keys, or -1 for all, is ${textOf(side)}`);
  }
}

// A number for each query head, in an array or a typed array of numbers.
function checkHeadValues(name, values, numQHeads, rule, holds) {
  if (values === undefined) return;
  require(Array.isArray(values) || (ArrayBuffer.isView(values) && !(values instanceof DataView)),
    `${name}: must be an array or a typed array, is ${textOf(values)}`);
  require(values.length === numQHeads,
    `${name}: must have ${numQHeads} entries, has ${values.length}`);
  for (let head = 0; head < numQHeads; head++) {
    require(typeof values[head] === "number" && holds(Math.fround(values[head])),
      `${name}: entry ${head} must be ${rule}, is ${textOf(values[head])}`);
  }
}

// Numbers and arrays of the score rule, within the limits of heed_score_args.
function checkScore(args) {
  checkWindow(args);
  const { scale, softcap = 0, numQHeads } = args;
  require(scale === undefined ||
    (typeof scale === "number" && Number.isFinite(Math.fround(Math.abs(scale) * LOG2_E))),
    `scale: times log2(e) must be a finite number in fp32, is ${textOf(scale)}`);
  require(softcap === 0 ||
    (typeof softcap === "number" && softcap >= 2 ** -100 && softcap <= 2 ** 100),
    `softcap: must be 0 or from 2^-100 to 2^100, is ${textOf(softcap)}`);
  checkHeadValues("alibiSlopes", args.alibiSlopes, numQHeads, "a finite number in fp32",
    Number.isFinite);
  checkHeadValues("sinks", args.sinks, numQHeads, "a finite number in fp32 or -Infinity",
    (sink) => Number.isFinite(sink) || sink === -Infinity);
}

// Elements per row, rows, and what follows from them.
function shapeOf(args) {
  const { q, k, v, numQHeads, numKvHeads, headDim, dtype = "f32" } = args;
  const headDimV = args.headDimV ?? headDim;
  require(typeof dtype === "string" && Object.hasOwn(ARRAYS, dtype),
    `dtype: must be f32, f16 or bf16, is ${textOf(dtype)}`);
  for (const [name, heads] of [["numQHeads", numQHeads], ["numKvHeads", numKvHeads]]) {
    require(Number.isSafeInteger(heads) && heads > 0,
      `${name}: must be a whole number of at least 1, is ${textOf(heads)}`);
  }
  require(numQHeads % numKvHeads === 0,
    `numQHeads: must be a multiple of numKvHeads (${numKvHeads}), is ${numQHeads}`);
  for (const [name, dim] of [["headDim", headDim], ["headDimV", headDimV]]) {
    require(Number.isSafeInteger(dim) && dim > 0 && dim % 4 === 0 && dim <= 576,
      `${name}: must be a multiple of 4 up to 576, is ${textOf(dim)}`);
  }
  const rows = (name, array, elements) => {
    require(array?.[Symbol.toStringTag] === ARRAYS[dtype].name,
      `${name}: must be a ${ARRAYS[dtype].name} for ${dtype}, is ${textOf(array)}`);
    require(array.length % elements === 0,
      `${name}: its length must be a multiple of ${elements}, is ${array.length}`);
    return array.length / elements;
  };
  const qLen = rows("q", q, numQHeads * headDim);
  const kvLen = rows("k", k, numKvHeads * headDim);
  require(rows("v", v, numKvHeads * headDimV) === kvLen, `v: must have the ${kvLen} rows of k`);
  require(qLen > 0 && kvLen > 0, "q and k: must have rows");
  return { dtype, numQHeads, numKvHeads, group: numQHeads / numKvHeads, headDim, headDimV,
    groups: headDim / 4, groupsV: headDimV / 4, qLen, kvLen };
}

// Key j is visible to query i when low <= j - i <= high; i stands at position i + kvLen - qLen.
function diagonalsOf(args, shape) {
  const shift = shape.kvLen - shape.qLen;
  const left = args.windowLeft ?? -1;
  const right = args.causal ? 0 : args.windowRight ?? -1;
  return {
    low: left >= 0 && left < shift + shape.qLen ? shift - left : -shape.qLen,
    high: right >= 0 && right < shape.kvLen - shift ? shift + right : shape.kvLen,
    shift,
  };
}

// The uniform block.
function paramsOf(args, shape, tasksBegin) {
  const bytes = new ArrayBuffer(28 * 4);
  const words = new Uint32Array(bytes);
  const floats = new Float32Array(bytes);
  const scale = args.scale ?? 1 / Math.sqrt(shape.headDim);
  words[0] = (args.softcap > 0 ? FLAGS.softcap : 0) | (args.alibiSlopes ? FLAGS.alibi : 0) |
    (args.sinks ? FLAGS.sinks : 0);
  words.set([shape.group, shape.groups, shape.groupsV], 1);
  floats.set([scale, scale * LOG2_E, args.softcap ?? 0], 4);
  words[7] = NEGATIVE_INFINITY_BITS;
  // Strides of q, k, v and o, rows first, in groups of 4 elements: the arrays as they are.
  words.set([shape.numQHeads * shape.groups, shape.groups], 8);
  words.set([shape.numKvHeads * shape.groups, shape.numKvHeads * shape.groupsV], 10);
  words.set([shape.numQHeads * shape.groupsV, shape.groupsV], 12);
  words[19] = tasksBegin;
  floats[24] = 1;
  words.set([1, 1], 25);
  return words;
}

// A record for each KV head, its slopes and sinks, then a task for each workgroup.
function tableOf(args, shape, columns) {
  const { group, qLen, kvLen, groups, groupsV } = shape;
  const { low, high, shift } = diagonalsOf(args, shape);
  const units = shape.numKvHeads;
  const tasksBegin = units * (UNIT_WORDS + 2 * group);
  const tasks = [];
  for (let unit = 0; unit < units; unit++) {
    for (let row = 0; row < qLen * group; row += TILE_ROWS) {
      for (let first = 0; first < groupsV; first += columns * COLUMN_GROUPS) {
        tasks.push(unit, row, first, 0);
      }
    }
  }
  const table = new Int32Array(tasksBegin + tasks.length);
  const floats = new Float32Array(table.buffer);
  for (let unit = 0; unit < units; unit++) {
    const headValues = units * UNIT_WORDS + unit * 2 * group;
    const begins = [unit * group * groups, unit * groups, unit * groupsV, unit * group * groupsV,
      unit * group * qLen, 0, 0];
    table.set([...begins, 0, qLen * group, 0, kvLen, low, high, shift, unit * group, headValues],
      unit * UNIT_WORDS);
    for (let head = 0; head < group; head++) {
      floats[headValues + head] = args.alibiSlopes?.[unit * group + head] ?? 0;
      floats[headValues + group + head] = args.sinks?.[unit * group + head] ?? 0;
    }
  }
  table.set(tasks, tasksBegin);
  return { table, tasksBegin, numWorkgroups: tasks.length / 4 };
}

export class Heed {
  #pipelines = new Map();

  // Shaders come from the folder that `ninja heed_web` fills. An adapter may be passed in.
  static async open(options = {}) {
    refuseOthers("options", options, OPEN_OPTIONS);
    const { shaders = new URL("./shaders/", import.meta.url), adapter } = options;
    if (!("gpu" in navigator)) throw new Error("this browser has no WebGPU");
    const chosen = adapter ?? (await navigator.gpu.requestAdapter());
    if (chosen === null) throw new Error("this browser has no WebGPU adapter");
    const hasClock = chosen.features.has("timestamp-query");
    const device = await chosen.requestDevice({
      requiredFeatures: hasClock ? ["timestamp-query"] : [],
    });
    return new Heed(chosen, device, new URL(shaders, document.baseURI), hasClock);
  }

  constructor(adapter, device, shaders, hasClock) {
    Object.assign(this, { adapter, device, shaders, hasClock });
  }

  // The pipeline of a shader, kept by label. Throws the compiler's messages.
  async compile(label, entryPoint) {
    const key = `${label}:${entryPoint}`;
    if (!this.#pipelines.has(key)) {
      const compute = { module: await this.check(label), entryPoint };
      const pipeline = this.device.createComputePipelineAsync({ label, layout: "auto", compute });
      this.#pipelines.set(key, await pipeline);
    }
    return this.#pipelines.get(key);
  }

  // The module of a shader, read and checked by the browser's compiler.
  async check(label) {
    const url = new URL(`${label}.wgsl`, this.shaders);
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
    const module = this.device.createShaderModule({ label, code: await response.text() });
    const errors = (await module.getCompilationInfo()).messages.filter((m) => m.type === "error");
    if (errors.length > 0) {
      const lines = errors.map((m) => `${label}.wgsl:${m.lineNum}: ${m.message}`);
      throw new Error(lines.join("\n"));
    }
    return module;
  }

  // One dispatch: uniform words, then eight storage arrays (null: not used) of which `outputs` are
  // read back. Returns those and the seconds that the device took (0 without a clock).
  async dispatch({ pipeline, uniform, storage, outputs, numWorkgroups }) {
    const { device } = this;
    const { COPY_SRC, COPY_DST, STORAGE, UNIFORM, MAP_READ, QUERY_RESOLVE } = GPUBufferUsage;
    const made = [];
    const make = (size, usage) => {
      const buffer = device.createBuffer({ size: Math.max(16, Math.ceil(size / 4) * 4), usage });
      made.push(buffer);
      return buffer;
    };
    const upload = (data, usage) => {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const buffer = make(bytes.length, usage | COPY_DST);
      const whole = bytes.length - (bytes.length % 4);
      device.queue.writeBuffer(buffer, 0, bytes, 0, whole);
      return buffer;
    };
    const limit = device.limits.maxStorageBufferBindingSize;
    for (const data of storage) {
      require((data?.byteLength ?? 0) <= limit, `an array has more than ${limit} bytes`);
    }
    require(numWorkgroups <= device.limits.maxComputeWorkgroupsPerDimension,
      `the call needs ${numWorkgroups} workgroups, more than the device has`);
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    const buffers = storage.map((data) =>
      data === null ? make(16, STORAGE) : upload(data, STORAGE | COPY_SRC));
    const entries = [upload(uniform, UNIFORM), ...buffers].map((buffer, binding) => ({
      binding, resource: { buffer },
    }));
    const bindGroup = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const querySet = this.hasClock ? device.createQuerySet({ type: "timestamp", count: 2 }) : null;
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(querySet === null ? {} : {
      timestampWrites: { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(numWorkgroups);
    pass.end();
    const reads = outputs.map((at) => {
      const target = make(storage[at].byteLength, MAP_READ | COPY_DST);
      encoder.copyBufferToBuffer(buffers[at], 0, target, 0, target.size);
      return target;
    });
    if (querySet !== null) {
      const ticks = make(16, QUERY_RESOLVE | COPY_SRC);
      const target = make(16, MAP_READ | COPY_DST);
      encoder.resolveQuerySet(querySet, 0, 2, ticks, 0);
      encoder.copyBufferToBuffer(ticks, 0, target, 0, 16);
      reads.push(target);
    }
    device.queue.submit([encoder.finish()]);
    const errors = [await device.popErrorScope(), await device.popErrorScope()];
    const error = errors.find((e) => e !== null);
    if (error) throw new Error(error.message);
    await Promise.all(reads.map((buffer) => buffer.mapAsync(GPUMapMode.READ)));
    const results = outputs.map((at, n) => {
      const bytes = reads[n].getMappedRange().slice(0, storage[at].byteLength);
      return new storage[at].constructor(bytes);
    });
    let seconds = 0;
    if (querySet !== null) {
      const [begin, end] = new BigUint64Array(reads[outputs.length].getMappedRange());
      seconds = Number(end - begin) * 1e-9;
      querySet.destroy();
    }
    for (const buffer of made) buffer.destroy();
    return { results, seconds };
  }

  // Attention of one sequence. q [qLen, numQHeads, headDim], k [kvLen, numKvHeads, headDim],
  // v [kvLen, numKvHeads, headDimV]: Float32Array, or Uint16Array of fp16 or bf16 bits (dtype).
  // Optional: headDimV, causal, windowLeft, windowRight, scale, softcap, alibiSlopes and sinks
  // (a number for each query head). Anything else is refused by its name. Query i stands at
  // position i + kvLen - qLen.
  // Returns o [qLen, numQHeads, headDimV] as an array like q, lse [numQHeads, qLen], seconds.
  async forward(args) {
    refuseOthers("args", args, FORWARD_ARGUMENTS);
    const shape = shapeOf(args);
    checkScore(args);
    const columns = Math.min(MAX_COLUMNS, Math.ceil(shape.groupsV / COLUMN_GROUPS));
    const { table, tasksBegin, numWorkgroups } = tableOf(args, shape, columns);
    const label = `forward.${shape.dtype}.keys_stored.c${columns}`;
    const pipeline = await this.compile(label, "forward");
    const storage = new Array(STORAGE_BINDINGS).fill(null);
    storage.splice(0, 3, args.q, args.k, args.v);
    storage[OUTPUT] = new args.q.constructor(shape.qLen * shape.numQHeads * shape.headDimV);
    storage[LSE] = new Float32Array(shape.qLen * shape.numQHeads);
    storage[TABLE] = table;
    const uniform = paramsOf(args, shape, tasksBegin);
    const { results, seconds } = await this.dispatch({
      pipeline, uniform, storage, outputs: [OUTPUT, LSE], numWorkgroups,
    });
    // The shader's rows have the heads of a group beside each other.
    const lse = new Float32Array(shape.qLen * shape.numQHeads);
    for (let head = 0; head < shape.numQHeads; head++) {
      const unit = Math.floor(head / shape.group);
      for (let row = 0; row < shape.qLen; row++) {
        lse[head * shape.qLen + row] = results[1][unit * shape.group * shape.qLen +
          row * shape.group + (head % shape.group)];
      }
    }
    return { o: results[0], lse, seconds };
  }
}

// Bits of fp16 and bf16 -> numbers.
export function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa === 0 ? sign * Infinity : NaN;
  return sign * (1024 + mantissa) * 2 ** (exponent - 25);
}

export function fromBfloat(bits) {
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0];
}
