/** An update of the server: new values of shared tensors, tied to their bundle (edge/delta.py). */

import schema from "../../docs/schemas/delta.json" with { type: "json" };
import { finite, parseTensors, type Floats } from "./arrays.js";
import { parsed } from "./bundle.js";
import type { Learning } from "./config.js";
import { reason, Refused } from "./errors.js";

export interface Delta {
  base_digest: string; from_round: number; to_round: number;
  dense: Map<string, Floats>;
  rows: Map<string, { items: number[]; values: Floats }>;
}

/** Reads and checks an update of a bundle; its signature is the caller's to check. */
export function readDelta(content: Uint8Array, learning: Learning): Delta {
  try {
    const { metadata, tensors } = parseTensors(content);
    if (Object.keys(metadata).join() !== "delta") throw new Refused("its metadata is not a delta's");
    const facts = parsed<Delta>(new TextEncoder().encode(metadata.delta), schema, "its metadata");
    if (facts.to_round <= facts.from_round) throw new Refused("it does not go forward");
    const [dense, rows]: [Delta["dense"], Delta["rows"]] = [new Map(), new Map()];
    for (const [name, tensor] of tensors) {
      const [kind, table] = [name.split(".")[0], name.slice(5).replace(/\.(items|values)$/, "")];
      if (kind === "dense") dense.set(name.slice(6), checkFloats(name, tensor as Floats));
      else if (kind === "rows" && name === `rows.${table}.values`) {
        const { data: items, shape } = tensors.get(`rows.${table}.items`) ?? { data: null, shape: [] };
        if (!(items instanceof BigInt64Array) || shape.length !== 1) throw new Refused(`it has ${name} without items`);
        rows.set(table, { items: Array.from(items, Number), values: checkFloats(name, tensor as Floats) });
      } else if (kind !== "rows" || !tensors.has(`rows.${table}.values`)) throw new Refused(
        `it has ${name}, which is no part of an update`,
      );
    }
    checkFits(dense, rows, learning);
    return { ...facts, dense, rows };
  } catch (error) {
    throw new Refused(`the update is no edgefr.delta/1 file of this bundle (${reason(error)}); fetch it again`);
  }
}

function checkFloats(name: string, tensor: Floats): Floats {
  if (!(tensor.data instanceof Float32Array) || !finite(tensor.data))
    throw new Refused(`${name} is not finite float32`);
  return tensor;
}

function checkFits(dense: Delta["dense"], rows: Delta["rows"], learning: Learning): void {
  const shared = (kind: string, name: string) =>
    learning.tensors.find((t) => t.place === "shared" && t.kind === kind && t.name === name)?.shape;
  for (const [name, { shape }] of dense)
    if (shared("dense", name)?.join() !== shape.join()) throw new Refused(`dense.${name} is not the bundle's`);
  for (const [name, { items, values }] of rows) {
    const table = shared("rows", name);
    const ascend = items.every((item, n) => item >= 0 && (!n || item > items[n - 1]));
    const fits = table && values.shape.length === 2 && values.shape[0] === items.length && values.shape[1] === table[1];
    if (!fits || !ascend || (items.length > 0 && items[items.length - 1] >= table[0]))
      throw new Refused(`rows.${name} are not the bundle's`);
  }
}
