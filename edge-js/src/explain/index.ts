/** Reasons for what is listed: what a method's own weights lean on, and which items the model finds alike. */

import { Refused } from "../errors.js";
import type { Feeds } from "../graph.js";
import { windowFeeds, windowOf, type Model } from "../model.js";
import { rowsOf, type Tables } from "../training.js";

/** The weights by which each of the `asked` items leans on those that were had last, `had` of them, newest last. */
export async function leaning(
  model: Model, own: number[], asked: number[], dense: Feeds, tables: Tables,
): Promise<{ had: number[]; weights: number[][] }> {
  const { explain, last } = model.bundle.config;
  if (!explain || !last)
    throw new Refused(`${model.bundle.manifest.method} does not say what a recommendation leans on`);
  if (!own.length) throw new Refused("nothing to explain from: its user has had no items yet");
  const graph = await model.graph(explain);
  const past = await windowFeeds(graph, windowOf(own, last), tables);
  const { data } = await graph.one({ ...dense, ...past, ...(await rowsOf(graph, "items", asked, tables)) });
  const had = own.slice(-last);
  const weights = asked.map((_, row) => [...data.subarray(row * last + last - had.length, (row + 1) * last)]);
  for (const row of weights) {
    const shares = Math.abs(row.reduce((a, b) => a + b, 0) - 1) <= 1e-3 && row.every((one) => one >= 0);
    if (!shares) throw new Refused(`${explain} gives weights that are no shares; export again`);
  }
  return { had, weights };
}

/** Those of the items that were `had` which are nearest to another by the model's rows, with their cosines. */
export async function alike(
  model: Model, tables: Tables, item: number, had: number[], k: number,
): Promise<{ item: number; cosine: number }[]> {
  if (!had.length) throw new Refused("nothing to explain from: its user has had no other items yet");
  const rows = await compared(model, tables, [item, ...had]);
  const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, n) => sum + value * b[n], 0);
  const norms = rows.map((row) => Math.sqrt(dot(row, row)) || 1);
  const cosines = had.map((one, n) => ({ item: one, cosine: dot(rows[0], rows[n + 1]) / norms[0] / norms[n + 1] }));
  return cosines.sort((a, b) => b.cosine - a.cosine || a.item - b.item).slice(0, k);
}

/** Rows by which items are alike: their vectors, or else the first table of values that no graph makes. */
async function compared({ bundle }: Model, tables: Tables, items: number[]): Promise<Float32Array[]> {
  const made = bundle.config.learning?.prepared ?? {};
  const names = [...tables.keys()].filter((name) => !Object.hasOwn(made, name));
  for (const name of names.sort((a, b) => +(b === "vectors") - +(a === "vectors"))) {
    const { data, shape } = await tables.get(name)!(items);
    if (data instanceof Float32Array) return items.map((_, n) => data.subarray(n * shape[1], (n + 1) * shape[1]));
  }
  throw new Refused("the bundle has no rows of items to compare; nothing says which are near");
}
