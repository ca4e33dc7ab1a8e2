// Reads a .safetensors file: name -> {dtype, shape, data}, data a typed array of the file's bits.
const ARRAYS = { F16: Uint16Array, BF16: Uint16Array, F32: Float32Array, I32: Int32Array };

export function parseSafetensors(bytes) {
  const headerBytes = Number(new DataView(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, headerBytes)));
  const tensors = new Map();
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(header)) {
    if (!Object.hasOwn(ARRAYS, dtype)) throw new RangeError(`${name}: dtype ${dtype} is not read`);
    const first = 8 + headerBytes;
    const data = new ARRAYS[dtype](bytes.slice(first + begin, first + end));
    tensors.set(name, { dtype, shape, data });
  }
  return tensors;
}

export async function fetchSafetensors(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return parseSafetensors(await response.arrayBuffer());
}
