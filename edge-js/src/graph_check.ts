/** A graph is looked at before a runtime sees it: it may do what edgefr writes, no more (edge/graph_check.py). */

import { product } from "./arrays.js";
import { Refused } from "./errors.js";

const PLAIN = `Abs Add And CastLike Clip ConstantOfShape Div DynamicQuantizeLinear Equal Erf Exp Expand Floor Greater
GreaterOrEqual Identity Less LessOrEqual Log MatMul MatMulInteger Max Min Mul Neg Not Or Pow Range Reciprocal Relu
Sigmoid Sign Slice Softplus Sqrt Squeeze Sub Tanh Unsqueeze Where`.split(/\s+/);
const ATTRIBUTES: Record<string, string> = {
  ReduceLogSumExp: "keepdims noop_with_empty_axes", ReduceMax: "keepdims noop_with_empty_axes",
  ReduceMean: "keepdims noop_with_empty_axes", ReduceMin: "keepdims noop_with_empty_axes",
  ReduceSum: "keepdims noop_with_empty_axes", Concat: "axis", Gather: "axis", GatherElements: "axis",
  LogSoftmax: "axis", Softmax: "axis", Cast: "to", CumSum: "exclusive reverse",
  Constant: "value value_float value_floats value_int value_ints", GatherND: "batch_dims",
  Gemm: "alpha beta transA transB", LayerNormalization: "axis epsilon stash_type", Pad: "mode", Reshape: "allowzero",
  ScatterElements: "axis reduction", ScatterND: "reduction", Shape: "start end", Transpose: "perm", Trilu: "upper",
};
const OPERATORS = new Map<string, Set<string>>([
  ...PLAIN.map((name) => [name, new Set<string>()] as const),
  ...Object.entries(ATTRIBUTES).map(([name, all]) => [name, new Set(all.split(" "))] as const),
  ["com.microsoft.MatMulNBits", new Set(["K", "N", "accuracy_level", "bits", "block_size"])],
]);
const DOMAINS = new Set(["", "com.microsoft"]);
/** Fields of onnx.proto3 that a message may have: without training, functions, sparse tensors and inner graphs. */
const FIELDS: Record<string, number[]> = {
  model: [1, 2, 3, 4, 5, 6, 7, 8, 14], opset: [1, 2], entry: [1, 2], graph: [1, 2, 5, 10, 11, 12, 13],
  node: [1, 2, 3, 4, 5, 6, 7], attribute: [1, 2, 3, 4, 5, 7, 8, 13, 20],
  tensor: [1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14],
};
const MOST_FIELDS = 400_000;
const MOST_NODES = 20_000;
const MOST_VALUES = 2 ** 30; // of one tensor

type Span = [number, number];
type Fields = Map<number, (number | Span)[]>;

class Wire {
  #read = 0;

  constructor(readonly content: Uint8Array) {}

  message(kind: string, span: number | Span): Fields {
    const found: Fields = new Map();
    const [start, stop] = spanned(span);
    let at = start;
    while (at < stop) {
      const [tag, next] = this.#varint(at);
      const [number, wire] = [Math.floor(tag / 8), tag % 8];
      if (tag >= 2 ** 32 || !FIELDS[kind].includes(number)) throw new Refused(`its ${kind} has the field ${number}`);
      if (++this.#read > MOST_FIELDS) throw new Refused("it has too many fields");
      let value: number | Span;
      if (wire === 0) [value, at] = this.#varint(next);
      else {
        if (![1, 2, 5].includes(wire)) throw new Refused(`wire type ${wire}`);
        const [size, begin] = wire === 2 ? this.#varint(next) : [wire === 1 ? 8 : 4, next];
        if (begin + size > stop) throw new Refused("a field is longer than its message");
        [value, at] = [[begin, begin + size], begin + size];
      }
      const before = found.get(number);
      if (before) before.push(value);
      else found.set(number, [value]);
    }
    if (at !== stop) throw new Refused("a field is longer than its message");
    return found;
  }

  text(message: Fields, number: number): string {
    const found = message.get(number) ?? [];
    if (found.length > 1) throw new Refused("a text is given twice");
    return found.length
      ? new TextDecoder("utf-8", { fatal: true }).decode(this.content.subarray(...spanned(found[0])))
      : "";
  }

  #varint(at: number): [number, number] {
    for (let value = 0, power = 1, count = 0; count < 10; count++, power *= 128) {
      const byte = this.content[at++];
      if (byte === undefined) break;
      value += (byte & 127) * power;
      if (byte < 128) return [value, at];
    }
    throw new Refused("a number is cut off or has too many bytes");
  }
}

function spanned(value: number | Span): Span {
  if (typeof value === "number") throw new Refused("a number stands where bytes should");
  return value;
}

/** Throws for a graph that has anything which is not on the list. `data`: the one file its tensors may lie in. */
export function checkGraph(content: Uint8Array, data: string | null): void {
  const wire = new Wire(content);
  const model = wire.message("model", [0, content.length]);
  for (const entry of model.get(8) ?? []) {
    if (!DOMAINS.has(wire.text(wire.message("opset", entry), 1)))
      throw new Refused("it has operators of another domain");
  }
  const graphs = model.get(7) ?? [];
  if (graphs.length !== 1) throw new Refused("it has not one graph");
  const graph = wire.message("graph", graphs[0]);
  const [nodes, tensors] = [graph.get(1) ?? [], graph.get(5) ?? []];
  if (nodes.length > MOST_NODES || tensors.length > MOST_NODES) throw new Refused("it has too many nodes or tensors");
  for (const span of tensors) checkTensor(wire, wire.message("tensor", span), data);
  for (const span of nodes) checkNode(wire, wire.message("node", span));
}

function checkTensor(wire: Wire, tensor: Fields, data: string | null): void {
  const dims = (tensor.get(1) ?? []).map(Number);
  if (dims.length > 8 || !(product(dims) <= MOST_VALUES)) throw new Refused("it has a tensor that is too large");
  const entries = (tensor.get(13) ?? []).map((entry) => wire.message("entry", entry));
  const outside = entries.length > 0 || (tensor.get(14) ?? [0]).some((place) => place !== 0);
  const where = entries.filter((entry) => wire.text(entry, 1) === "location").map((entry) => wire.text(entry, 2));
  if (outside && (data === null || where.length !== 1 || where[0] !== data)) {
    throw new Refused(`it refers to ${JSON.stringify(where[0] ?? "")}, which it may not`);
  }
}

function checkNode(wire: Wire, node: Fields): void {
  const [kind, domain] = [wire.text(node, 4), wire.text(node, 7)];
  const allowed = OPERATORS.get(domain ? `${domain}.${kind}` : kind);
  if (!allowed) throw new Refused(`it has the operator ${JSON.stringify(kind)}, which no graph of a device has`);
  for (const entry of node.get(5) ?? []) {
    const attribute = wire.message("attribute", entry);
    const name = wire.text(attribute, 1);
    if (!allowed.has(name)) throw new Refused(`its ${kind} has the attribute ${JSON.stringify(name)}`);
    if ([2, 3, 4, 5].filter((number) => attribute.has(number)).length > 1)
      throw new Refused("an attribute has two values");
    for (const span of attribute.get(5) ?? []) checkTensor(wire, wire.message("tensor", span), null);
  }
}
