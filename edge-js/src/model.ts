/** What a device uses of a bundle: its graphs, opened once, and its tables beneath the device's own rows. */

import { finite, floats, type Floats } from "./arrays.js";
import type { Bundle } from "./bundle.js";
import { Refused } from "./errors.js";
import { Graph, type Feed, type Feeds, type Runtime } from "./graph.js";
import { placed, rowsOf, historyFeeds, type Dense, type Rows, type Tables } from "./training.js";

const BLOCK = 4096; // items scored in one call
const TOGETHER = 16; // items made at once

export class Model {
  readonly #graphs = new Map<string, Promise<Graph>>();
  readonly #static: Tables = new Map();

  constructor(readonly bundle: Bundle, private readonly runtime: Runtime) {
    for (const table of bundle.config.tables) this.#static.set(table.name, rowsIn(bundle.table(table)));
    const given = new Map(this.#static);
    for (const [name, path] of Object.entries(bundle.config.learning?.prepared ?? {})) {
      this.#static.set(name, this.#prepared(path, given));
    }
  }

  /** A graph of the bundle; `data` is the file of its large tensors. */
  graph(path: string, data?: string | null): Promise<Graph> {
    let found = this.#graphs.get(path);
    if (!found) {
      const beside = data ? { name: data.split("/").pop()!, content: this.bundle.file(data) } : undefined;
      found = Graph.open(this.runtime, path, this.bundle.file(path), beside);
      this.#graphs.set(path, found);
    }
    return found;
  }

  /** The trained tables as the bundle brought them. */
  trained(): Map<string, Floats> {
    const learning = this.bundle.config.learning;
    const own = (learning?.tensors ?? []).filter((one) => one.kind === "rows" && one.place === "shared");
    return new Map(own.map(({ name, shape: rows }) => {
      const table = this.bundle.config.tables.find((one) => one.name === name);
      const { data, shape } = table ? this.bundle.table(table) : { data: [], shape: [] };
      if (shape.join() !== rows.join())
        throw new Refused(`learning has rows of ${name} as [${rows}], its files [${shape}]; export again`);
      return [name, { data: Float32Array.from(data), shape }];
    }));
  }

  /** Rows of every table: the device's own copy of trained ones, the bundle's of the others. */
  async rows(own: Map<string, Floats>, shared: Dense, round: number): Promise<Tables> {
    const tables = new Map([...this.#static, ...[...own].map(([name, table]) => [name, rowsIn(table)] as const)]);
    const learning = this.bundle.config.learning;
    if (learning?.vectors && round !== learning.round) {
      const graph = await this.graph(learning.vectors, learning.vectors_data);
      tables.set("vectors", this.#made(graph, this.#static, placed(shared, learning), 64));
    }
    return tables;
  }

  /** A graph's score of every item, float32 [items]. */
  async scores(path: string, dense: Feeds, own: number[] | Window, tables: Tables): Promise<Float32Array> {
    const [graph, items] = [await this.graph(path), this.bundle.manifest.item_count];
    const past = Array.isArray(own) ? await historyFeeds(graph, own, tables) : await windowFeeds(graph, own, tables);
    const out = new Float32Array(items);
    for (let start = 0; start < items; start += BLOCK) {
      const part = Array.from({ length: Math.min(BLOCK, items - start) }, (_, n) => start + n);
      const { data } = await graph.one({ ...dense, ...past, ...(await rowsOf(graph, "items", part, tables)) });
      if (data.length !== part.length) throw new Refused(`${path} gives other scores than one for each item`);
      out.set(data, start);
    }
    if (!finite(out)) throw new Refused(`${path} gives scores that are not finite; the exported model has diverged`);
    return out;
  }

  #prepared(path: string, given: Tables): Rows {
    let made: Rows | null = null;
    return async (items) => {
      made ??= this.#made(await this.graph(path, this.bundle.config.learning!.vectors_data), given, {}, TOGETHER);
      return made(items);
    };
  }

  /** Rows that a graph makes of other tables, each once. */
  #made(graph: Graph, tables: Tables, dense: Feeds, together: number): Rows {
    const kept = new Map<number, Float32Array>();
    return async (items) => {
      const missing = [...new Set(items)].filter((item) => !kept.has(item));
      for (let at = 0; at < missing.length; at += together) {
        const some = missing.slice(at, at + together);
        const { data, shape } = await graph.one({ ...dense, ...(await rowsOf(graph, "items", some, tables)) });
        if (shape.length !== 2 || shape[0] !== some.length || !finite(data))
          throw new Refused(`${graph.path} gives no row of finite numbers for each item`);
        some.forEach((item, n) => kept.set(item, data.slice(n * shape[1], (n + 1) * shape[1])));
      }
      const width = kept.get(items[0])?.length ?? 0;
      const out = floats([items.length, width]);
      items.forEach((item, n) => out.data.set(kept.get(item)!, n * width));
      return out;
    };
  }
}

function rowsIn(table: Feed): Rows {
  const width = table.shape[1];
  const source = table.data as Float32Array | Int32Array;
  return (items) => {
    const data =
      source instanceof Int32Array ? new Int32Array(items.length * width) : new Float32Array(items.length * width);
    items.forEach((item, n) => data.set(source.subarray(item * width, (item + 1) * width), n * width));
    return { data, shape: [items.length, width] };
  };
}

/** The newest items, set to the right: item 0 where `real` is 0, and seconds since the first. */
export interface Window {
  items: number[]; real: Float32Array; times: Float32Array;
}

/** The window of items that were had in this order; of times alone what has passed since its first item counts. */
export function windowOf(own: number[], length: number, times: number[] = []): Window {
  const some = own.slice(-length);
  const padding = Array<number>(length - some.length).fill(0);
  const since = times.slice(-length).map((time, _, all) => time - all[0]);
  return {
    items: [...padding, ...some],
    real: new Float32Array(length).fill(1, padding.length),
    times: Float32Array.from({ length }, (_, n) => since[n - padding.length] ?? 0),
  };
}

/** A graph's inputs about a window. */
export async function windowFeeds(graph: Graph, { items, real, times }: Window, tables: Tables): Promise<Feeds> {
  const shape = [items.length];
  const named = { "label.history": { data: real, shape }, "times.history": { data: times, shape } };
  return { ...named, ...(await rowsOf(graph, "history", items, tables)) };
}
