/** Arrays as files hold them: safetensors and .npy, read by a few strict rules. */

import { Refused } from "./errors.js";

export type Values = Float32Array | Float64Array | Int32Array | BigInt64Array | Uint8Array | Int8Array | Uint16Array;
export interface Arr<V extends Values = Values> {
  data: V;
  shape: number[];
}
export type Floats = Arr<Float32Array>;

type Kind = { make: (buffer: ArrayBuffer) => Values; size: number };
const KINDS: Record<string, Kind> = {
  F32: { make: (b) => new Float32Array(b), size: 4 },
  F64: { make: (b) => new Float64Array(b), size: 8 },
  I32: { make: (b) => new Int32Array(b), size: 4 },
  I64: { make: (b) => new BigInt64Array(b), size: 8 },
  U8: { make: (b) => new Uint8Array(b), size: 1 },
};
const NPY: Record<string, Kind> = {
  "<f4": KINDS.F32,
  "<i4": KINDS.I32,
  "<i8": KINDS.I64,
  "|i1": { make: (b) => new Int8Array(b), size: 1 },
  "<f2": { make: (b) => new Uint16Array(b), size: 2 },
};

export const product = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
export const floats =
  (shape: number[], data: Float32Array = new Float32Array(product(shape))): Floats => ({ data, shape });

/** The tensors of a safetensors file by name, and its metadata. */
export function parseTensors(content: Uint8Array): { metadata: Record<string, string>; tensors: Map<string, Arr> } {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const size = content.length < 8 ? -1 : Number(view.getBigUint64(0, true));
  if (size < 0 || size > Math.min(16 << 20, content.length - 8))
    throw new Refused("it is cut off, or no safetensors file");
  let header: Record<string, Record<string, unknown>>;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content.subarray(8, 8 + size));
    header = JSON.parse(text) as typeof header;
  } catch {
    throw new Refused("its header is no JSON");
  }
  const metadata = (header.__metadata__ ?? {}) as Record<string, string>;
  if (Object.values(metadata).some((one) => typeof one !== "string")) throw new Refused("its metadata are no texts");
  const entries = Object.entries(header).filter(([name]) => name !== "__metadata__");
  const spans = entries.map(([name, entry]) => span(name, Object(entry) as typeof entry));
  const tensors = new Map<string, Arr>();
  let at = 0;
  for (const one of [...spans].sort((a, b) => a.start - b.start || a.stop - b.stop)) {
    if (one.start !== at) throw new Refused(`the values of ${one.name} do not follow those before it`);
    at = one.stop;
  }
  if (at !== content.length - 8 - size) throw new Refused("it has other bytes than its tensors");
  for (const { name, kind, start, stop, shape } of spans) {
    tensors.set(name, { data: kind.make(content.slice(8 + size + start, 8 + size + stop).buffer), shape });
  }
  return { metadata, tensors };
}

function span(name: string, entry: Record<string, unknown>) {
  const kind = KINDS[String(entry.dtype)];
  const [shape, offsets] = [entry.shape, entry.data_offsets].map((found) => {
    const whole = Array.isArray(found) && found.every((n) => Number.isSafeInteger(n) && n >= 0);
    if (!whole) throw new Refused(`${name} has no plain shape and data_offsets`);
    return found as number[];
  });
  const [start, stop] = offsets;
  const plain = /^[^\p{C}]{1,200}$/u.test(name) && Object.keys(entry).length === 3;
  if (!plain || !kind || offsets.length !== 2 || shape.length > 8 || stop - start !== product(shape) * kind.size) {
    throw new Refused(`${name} is no tensor of its shape and type`);
  }
  return { name, kind, start, stop, shape };
}

const DTYPE = (data: Values): string =>
  data instanceof Float32Array ? "F32" : data instanceof Float64Array ? "F64" : data instanceof Int32Array ? "I32"
    : data instanceof BigInt64Array ? "I64" : "U8";

/** A safetensors file of these tensors, in the order of their names; wide types first, so that all are aligned. */
export function packTensors(tensors: Map<string, Arr>, metadata: Record<string, string>): Uint8Array {
  const names = [...tensors.keys()].sort((a, b) => width(tensors.get(b)!) - width(tensors.get(a)!) || (a < b ? -1 : 1));
  const header: Record<string, unknown> = { __metadata__: metadata };
  let at = 0;
  for (const name of names) {
    const { data, shape } = tensors.get(name)!;
    header[name] = { dtype: DTYPE(data), shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  let text = new TextEncoder().encode(JSON.stringify(header));
  text = new TextEncoder().encode(JSON.stringify(header) + " ".repeat((8 - (text.length % 8)) % 8));
  const out = new Uint8Array(8 + text.length + at);
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true);
  out.set(text, 8);
  let place = 8 + text.length;
  for (const name of names) {
    const { data } = tensors.get(name)!;
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), place);
    place += data.byteLength;
  }
  return out;
}

const width = (one: Arr): number => one.data.BYTES_PER_ELEMENT;

/** The array of a .npy file (format 1.0) of exactly this type and shape. */
export function parseNpy(content: Uint8Array, what: string, kind: string, shape: number[]): Arr {
  const start = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0];
  const length = content[8] + 256 * content[9];
  const head = new TextDecoder("latin1").decode(content.subarray(10, 10 + length));
  const found = /^\{'descr': '([^']+)', 'fortran_order': False, 'shape': \((\d+),(?: (\d+))?\), \} *\n$/.exec(head);
  const got = found ? [found[2], found[3]].filter((n) => n !== undefined).map(Number) : [];
  const fits = found && start.every((byte, at) => content[at] === byte) && found[1] === kind;
  if (!fits || got.join() !== shape.join() || content.length !== 10 + length + product(shape) * NPY[kind].size) {
    throw new Refused(`${what} is no ${kind} array of shape [${shape.join(", ")}]; export again`);
  }
  return { data: NPY[kind].make(content.slice(10 + length).buffer), shape };
}

/** Half precision, as a number. */
export function half(bits: number): number {
  const [sign, power, rest] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
}

export function finite(values: Float32Array | Float64Array): boolean {
  return values.every(Number.isFinite);
}
