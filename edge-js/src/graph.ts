/** One ONNX graph in onnxruntime: one thread, tensors by name; it is looked at before the runtime sees it. */

import type { InferenceSession, Tensor, TypedTensor } from "onnxruntime-common";
import { product, type Arr } from "./arrays.js";
import { Refused } from "./errors.js";
import { checkGraph } from "./graph_check.js";

/** What onnxruntime-node and onnxruntime-web have in common. */
export interface Runtime {
  InferenceSession: {
    create(content: Uint8Array, options?: InferenceSession.SessionOptions): Promise<InferenceSession>;
  };
  Tensor: new (type: never, data: never, dims: number[]) => Tensor;
}

/** Values by the names of a graph's inputs; whole numbers are given as numbers and become what the graph asks for. */
export type Feed = { data: ArrayLike<number>; shape: number[] };
export type Feeds = Record<string, Feed>;

const MADE: Record<string, (data: ArrayLike<number>) => unknown> = {
  float32: (data) => (data instanceof Float32Array ? data : Float32Array.from(data)),
  int32: (data) => (data instanceof Int32Array ? data : Int32Array.from(data)),
  int64: (data) => BigInt64Array.from(Array.from(data, BigInt)),
};

export class Graph {
  readonly inputs = new Map<string, { type: string; shape: (number | string)[] }>();

  private constructor(
    readonly path: string, private readonly runtime: Runtime, private readonly session: InferenceSession,
  ) {
    for (const one of session.inputMetadata) {
      if (one.isTensor) this.inputs.set(one.name, { type: one.type, shape: [...one.shape] });
    }
  }

  static async open(runtime: Runtime, path: string, content: Uint8Array, data?: { name: string; content: Uint8Array }) {
    try {
      checkGraph(content, data?.name ?? null);
      const options: InferenceSession.SessionOptions = {
        graphOptimizationLevel: "disabled", // nothing is computed while it loads
        intraOpNumThreads: 1, interOpNumThreads: 1, logSeverityLevel: 4,
        ...(data ? { externalData: [{ path: data.name, data: data.content }] } : {}),
      };
      return new Graph(path, runtime, await runtime.InferenceSession.create(content, options));
    } catch (error) {
      const why = error instanceof Refused ? error.message : "it does not load in onnxruntime";
      throw new Refused(`${path} is no graph for a device: ${why}; do not use it`);
    }
  }

  get outputs(): readonly string[] {
    return this.session.outputNames;
  }

  /** All outputs by name; an input that is missing or of another shape is refused. */
  async run(feeds: Feeds): Promise<Record<string, Arr<Float32Array>>> {
    const given: Record<string, Tensor> = {};
    for (const [name, { type, shape }] of this.inputs) {
      const feed = feeds[name];
      if (!feed) throw new Refused(`${this.path} needs input ${name}, which the bundle does not have; export again`);
      const fits = (n: number | string, at: number) => typeof n !== "number" || n < 0 || n === feed.shape[at];
      const same = shape.length === feed.shape.length && shape.every(fits);
      if (!same || feed.data.length !== product(feed.shape) || !MADE[type]) {
        throw new Refused(`${this.path}: ${name} is [${feed.shape}] instead of ${type} [${shape}]`);
      }
      given[name] = new this.runtime.Tensor(type as never, MADE[type](feed.data) as never, feed.shape);
    }
    let found: InferenceSession.OnnxValueMapType;
    try {
      found = await this.session.run(given);
    } catch {
      // what it says may hold private values
      throw new Refused(`${this.path} fails in onnxruntime; do not use this bundle`);
    }
    const out: Record<string, Arr<Float32Array>> = {};
    for (const [name, value] of Object.entries(found)) {
      const { data, dims, type } = value as TypedTensor<"float32">;
      if (type !== "float32") throw new Refused(`${this.path}: ${name} is ${type} instead of float32; export again`);
      out[name] = { data: data as Float32Array, shape: [...dims] };
    }
    return out;
  }

  /** The graph's one output. */
  async one(feeds: Feeds): Promise<Arr<Float32Array>> {
    if (this.outputs.length !== 1) throw new Refused(`${this.path} has not one output; export again`);
    return (await this.run(feeds))[this.outputs[0]];
  }
}
