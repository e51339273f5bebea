/** Messages beside updates, and private tensors that are kept from round to round (edge/exchange.py). */

import { floats, type Floats } from "../arrays.js";
import { exchangeOf, tensor, type Exchange, type Learning } from "../config.js";
import { exactNoise } from "../noise/index.js";
import { Refused } from "../errors.js";
import type { Feeds, Graph } from "../graph.js";
import * as keyed from "../keyed.js";
import { takeable } from "../release.js";
import { placed, rowsOf, type Dense, type Tables, type Trained, type Work } from "../training.js";

const FINE = 16; // bits that the step of a message's grid is below the scale of its noise

/** Refuses an exchange that does not agree with the tensors of its program. */
export function check(learning: Learning): void {
  const how = exchangeOf(learning)!;
  const shapes = (wanted: (one: Learning["tensors"][number]) => boolean) =>
    new Map(learning.tensors.filter(wanted).map(({ name, shape }) => [name, shape.join()]));
  const own = shapes(({ place }) => place === "private");
  const dense = shapes(({ kind }) => kind === "dense");
  const named = [...Object.keys(how.keeps), ...how.marks, ...(how.reply === null ? [] : [how.reply])];
  const told = how.publish !== null;
  const checks: [boolean, string][] = [
    [!!learning.sessions && !!learning.messages, "has messages of a set beside those of its sessions"],
    [named.some((name) => !own.has(name)), "keeps what is no private tensor of the program"],
    [Object.entries(how.keeps).some(([name, from]) => dense.get(from) !== own.get(name)), "keeps another shape"],
    [told !== (how.order !== null) || (told && how.reply === null), "tells without saying when, or has no reply"],
    [!learning.sessions && how.order === "received", "tells of the received model, as sessions alone do"],
    [told && learning.release.noised !== "nowhere", "promises noise, and has messages without it"],
  ];
  const found = checks.find(([wrong]) => wrong);
  if (found) throw new Refused(`learning ${found[1]}; export again`);
}

/** The zeros that stand for the last round of a device that has had none. */
export function nothingKept(learning: Learning): Dense {
  const how = exchangeOf(learning)!;
  const names = [...Object.keys(how.keeps), ...how.marks];
  return new Map(names.map((name) => [name, floats(tensor(learning, name).shape)]));
}

/** What a round keeps beside what it trains, and the message beside its update, without noise. */
export async function after(
  learning: Learning, graphs: (path: string) => Promise<Graph>, dense: Dense, found: Trained, work: Work,
): Promise<{ kept: Dense; message: Floats | null }> {
  const how = exchangeOf(learning)!;
  const now: Dense = new Map([...dense, ...found.dense]);
  const kept: Dense = new Map(Object.entries(how.keeps).map(([name, source]) => [name, now.get(source)!]));
  for (const name of how.marks) {
    const { data, shape } = floats(tensor(learning, name).shape);
    kept.set(name, { data: data.fill(1), shape });
  }
  if (!how.publish || how.order !== "trained") return { kept, message: null };
  const [graph, tables] = [await graphs(how.publish), withTrained(work.tables, found)];
  const shown = await (work.shown ? work.shown(graph, tables) : newestFeeds(graph, work.context, tables));
  return { kept, message: await graph.one({ ...placed(now, learning), ...shown }) };
}

/** A reply of the server as the private tensor that it is kept as, with keyed noise. */
export function replied(learning: Learning, reply: Float32Array, round: number, number: string): Dense {
  const how = exchangeOf(learning)!;
  if (how.reply === null) throw new Refused("this bundle's method takes no replies of the server");
  const made = floats(tensor(learning, how.reply).shape);
  if (reply.length !== made.data.length || !takeable(floats(made.shape, reply)))
    throw new Refused("the reply is not of its shape, or too long");
  const key = keyed.bits(keyed.key(learning.seed, "received noise", round + 1), BigInt(number));
  const noise = (n: number) => (how.receiver_noise ? Math.fround(how.receiver_noise * keyed.normal(key, n)) : 0);
  reply.forEach((value, n) => (made.data[n] = value + noise(n)));
  return new Map([[how.reply, made]]);
}

/** A message with exact Laplace noise of the sender's scale on every value; 0: none. */
export function noised(message: Floats, { sender_noise: scale = 0 }: Exchange): Floats {
  const step = 2 ** (Math.floor(Math.log2(scale)) + 1 - FINE);
  if (!scale || step < 2 ** -149) return message;
  const drawn = exactNoise("discrete-laplace", Math.round(scale / step), message.data.length);
  return { data: message.data.map((value, n) => (even(value / step) + drawn[n]) * step), shape: message.shape };
}

/** The nearest whole number, of two the even one. */
function even(value: number): number {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (Math.abs(low) % 2) : Math.round(value);
}

/** Tables whose rows are those that training changed, and of all other items those before it. */
function withTrained(tables: Tables, found: Trained): Tables {
  const out = new Map(tables);
  for (const [name, { items, values }] of found.rows) {
    const width = values.shape[1];
    const place = new Map(items.map((item, at) => [item, at * width]));
    out.set(name, async (wanted) => {
      const { data, shape } = await tables.get(name)!(wanted);
      const rows = floats(shape, Float32Array.from(data));
      wanted.forEach((item, n) => {
        const at = place.get(item);
        if (at !== undefined) rows.data.set(values.data.subarray(at, at + width), n * width);
      });
      return rows;
    });
  }
  return out;
}

/** What a graph is shown of the newest item and those before it; where there is none stands the newest again. */
async function newestFeeds(graph: Graph, own: number[], tables: Tables): Promise<Feeds> {
  const length = graph.inputs.get("pairs.there")?.shape[0] ?? 0;
  if (typeof length !== "number" || length < 0 || length > 1024)
    throw new Refused(`${graph.path} is shown no such context`);
  const last = own.at(-1) ?? 0;
  const before = Array.from({ length }, (_, n) => own[own.length - 1 - length + n]);
  const there = Float32Array.from(before, (item) => (item === undefined ? 0 : 1));
  const items = [last, ...before.map((item) => item ?? last)];
  return { "pairs.there": { data: there, shape: [length] }, ...(await rowsOf(graph, "items", items, tables)) };
}
