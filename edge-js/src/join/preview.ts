/** What the next round would send, looked at before anything leaves: nothing of it is kept, charged or sent. */

import type { Arr, Floats } from "../arrays.js";
import type { Learning } from "../config.js";
import type { Device } from "../device.js";
import { changeOf, makeUpdate, toBytes, whole, type Draw, type Update } from "../release.js";

/** An update at three moments, values in the program's order; `noised`: one draw, and every release draws anew. */
export interface Preview {
  bytes: number;
  before: Float32Array;
  clipped: Float32Array;
  noised: Float32Array;
}

export async function preview(device: Device): Promise<Preview> {
  const { learning, bundle } = device;
  const round = device.status().round + 1;
  const { shared, tables } = await device.work(round);
  const phases = learning.phases.filter((phase) => phase.when === "round");
  const change = changeOf(learning, shared, tables, await device.train(phases, round));
  const { interactions } = device.status();
  const made = (draw: Draw) => makeUpdate(learning, bundle.manifest.bundle_id, change, interactions, round, draw);
  const [quiet, noised] = [made(null), made(device.draw)];
  const bytes = toBytes(noised).length;
  const [clipped, after] = [valuesOf(quiet, learning), valuesOf(noised, learning)];
  return { bytes, before: whole(change, learning), clipped, noised: after };
}

function valuesOf({ arrays }: Update, learning: Learning): Float32Array {
  const { data } = arrays.get("update")!;
  return data instanceof Int32Array ? Float32Array.from(data, (steps) => steps * learning.release.step!)
    : openVector(arrays, learning);
}

/** Every coordinate that rounds train of an update of which nothing is promised, or their projection. */
export function openVector(arrays: Map<string, Arr>, learning: Learning): Float32Array {
  const data = arrays.get("update")!.data as Float32Array;
  if (learning.release.project) return data;
  const tables = [...arrays.keys()].flatMap((name) => /^rows\.(.*)\.items$/.exec(name)?.[1] ?? []);
  const rows = tables.map((name) => {
    const items = Array.from(arrays.get(`rows.${name}.items`)!.data, Number);
    return [name, { items, values: arrays.get(`rows.${name}.values`) as Floats }] as const;
  });
  return whole({ dense: data, rows: new Map(rows) }, learning);
}
