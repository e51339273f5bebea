/** What leaves the device in a round: one update, clipped jointly, on a grid and noised where a run asks for it. */

import { packTensors, type Arr, type Floats } from "./arrays.js";
import { tensor, trained as names, type Learning, type Release } from "./config.js";
import * as keyed from "./keyed.js";
import type { exactNoise, Law } from "./noise/index.js";
import type { Dense, Trained } from "./training.js";

/** What draws noise on the grid; null: an update is to have none. */
export type Draw = typeof exactNoise | null;

export interface Update {
  facts: Record<string, unknown>;
  arrays: Map<string, Arr>;
}

interface Change {
  dense: Float32Array;
  rows: Map<string, { items: number[]; values: Floats }>;
}

const LARGEST = 1e6; // joint norm above which an update has diverged
const TARGET = 1 - 2 ** -20;
const UNTOUCHED = 1 - 2 ** -21;

/** Whether a message is one of numbers that is no longer than a sound update. */
export const takeable = (message: Floats): boolean => Math.hypot(...message.data) <= LARGEST;

/** What training changed against the tensors before it. */
export function changeOf(learning: Learning, shared: Dense, tables: Dense, work: Trained): Change {
  const dense: number[] = [];
  for (const name of names(learning, "round", "shared")) {
    const [after, before] = [work.dense.get(name), shared.get(name)];
    if (after && before)
      for (let n = 0; n < after.data.length; n++) dense.push(Math.fround(after.data[n] - before.data[n]));
  }
  const rows = new Map<string, { items: number[]; values: Floats }>();
  for (const [name, { items, values }] of work.rows) {
    const [width, before] = [values.shape[1], tables.get(name)!.data];
    const data = values.data.map((value, n) => value - before[items[Math.floor(n / width)] * width + (n % width)]);
    rows.set(name, { items, values: { data, shape: values.shape } });
  }
  return { dense: Float32Array.from(dense), rows };
}

/** No change of anything: what leaves where training failed, or there was nothing to learn from. */
export function noChange(learning: Learning): Change {
  const shared = names(learning, "round", "shared").map((name) => tensor(learning, name));
  const size = shared.filter((t) => t.kind === "dense").reduce((sum, t) => sum + t.shape.reduce((a, b) => a * b, 1), 0);
  const none = (width: number) => ({ items: [], values: { data: new Float32Array(0), shape: [0, width] } });
  return { dense: new Float32Array(size), rows: new Map(shared.filter((t) => t.kind === "rows").map(
    (t) => [t.name, none(t.shape[1])],
  )) };
}

function norm(change: Change, order: "l1" | "l2"): number {
  const parts = [change.dense, ...[...change.rows.values()].map((one) => one.values.data)];
  let [sum, largest] = [0, 0];
  for (const part of parts) for (const value of part) largest = Math.max(largest, Math.abs(value));
  if (parts.some((part) => part.some((value) => !Number.isFinite(value)))) return NaN;
  for (const part of parts)
    for (const value of part) sum += order === "l1" ? Math.abs(value) : (value / (largest || 1)) ** 2;
  return order === "l1" ? sum : largest * Math.sqrt(sum);
}

/** What an update is multiplied by so that its norm is at most the clip; 0: it has diverged. */
export function clipFactor(length: number, clip: number): number {
  const factor = length <= clip * UNTOUCHED ? 1 : (clip * TARGET) / length;
  return Number.isFinite(length) && factor >= 2 ** -126 ? factor : 0;
}

function times(change: Change, factor: number): Change {
  const by = (data: Float32Array) => data.map((value) => value * Math.fround(factor));
  const rows = [...change.rows].map(
    ([name, { items, values }]) => [name, { items, values: { data: by(values.data), shape: values.shape } }] as const,
  );
  return { dense: by(change.dense), rows: new Map(rows) };
}

/** Every coordinate of every shared tensor that rounds train, in the program's order. */
export function whole(change: Change, learning: Learning): Float32Array {
  const out: Float32Array[] = [];
  let taken = 0;
  for (const name of names(learning, "round", "shared")) {
    const values = new Float32Array(tensor(learning, name).shape.reduce((a, b) => a * b, 1));
    const rows = change.rows.get(name);
    if (rows) {
      const width = rows.values.shape[1];
      rows.items.forEach((item, n) => values.set(rows.values.data.subarray(n * width, (n + 1) * width), item * width));
    } else {
      values.set(change.dense.subarray(taken, taken + values.length));
      taken += values.length;
    }
    out.push(values);
  }
  return Float32Array.from(out.flatMap((part) => [...part]));
}

/** The count sketch of a round (privacy/compress.py). */
function projected(vector: Float32Array, seed: number, round: number, kept: number): Float32Array {
  const key = keyed.key(seed, "project", round);
  const base = keyed.bits(key, vector.length);
  const draws = Array.from(vector, (_, n) => keyed.bits(base, n));
  const order = draws.map((_, n) => n).sort((a, b) => (draws[a] < draws[b] ? -1 : draws[a] > draws[b] ? 1 : a - b));
  const out = new Float64Array(kept);
  order.forEach((place, n) => (out[n % kept] += vector[place] * (keyed.integer(key, place, 2) === 1 ? -1 : 1)));
  return Float32Array.from(out);
}

/** The release of a round. Without `draw` it is rounded to the grid as ever, but nothing is added. */
export function makeUpdate(
  learning: Learning, bundle: string, change: Change, examples: number, round: number, draw: Draw,
  message: Floats | null = null,
): Update {
  const terms = learning.release;
  const sound = norm(change, terms.norm) <= LARGEST;
  let found = sound ? change : noChange(learning);
  if (terms.project)
    found = { dense: projected(whole(found, learning), learning.seed, round, terms.project), rows: new Map() };
  const factor = terms.clip === null ? 1 : clipFactor(norm(found, terms.norm), terms.clip);
  if (factor !== 1) found = times(found, factor);
  const facts = { schema: "edgefr.release/2", bundle, round };
  if (terms.noised !== "nowhere") {
    const vector = terms.project ? found.dense : whole(found, learning);
    const update = onGrid(terms, vector, terms.noised === "here" ? draw : null);
    return { facts, arrays: new Map([["update", { data: update, shape: [update.length] }]]) };
  }
  const arrays = new Map<string, Arr>([["update", { data: found.dense, shape: [found.dense.length] }]]);
  for (const [name, { items, values }] of found.rows) {
    arrays.set(`rows.${name}.items`, { data: BigInt64Array.from(items, BigInt), shape: [items.length] });
    arrays.set(`rows.${name}.values`, values);
  }
  if (sound && message && takeable(message)) arrays.set("prototype", message);
  const told = terms.weights === "size" ? examples : null;
  return { facts: { ...facts, examples: told, dropped: !sound, tables: [...found.rows.keys()] }, arrays };
}

function onGrid(terms: Release, vector: Float32Array, draw: Draw): Int32Array {
  const step = terms.step!;
  const drawn = draw?.(terms.noise as Law, Math.round(terms.scale / step), vector.length);
  return Int32Array.from(vector, (value, n) => {
    const steps = Math.trunc(value / step) + (drawn ? drawn[n] : 0);
    return Math.min(Math.max(steps, -(2 ** 31)), 2 ** 31 - 1);
  });
}

export const toBytes =
  (update: Update): Uint8Array => packTensors(update.arrays, { release: JSON.stringify(update.facts) });
