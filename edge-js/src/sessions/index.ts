/** A device learns from its session: how it goes on, its window, and a round's draws (edge/sessions.py). */

import type { Config, Learning, Phase } from "../config.js";
import { Refused } from "../errors.js";
import type { Feed } from "../graph.js";
import * as keyed from "../keyed.js";
import { windowFeeds, windowOf, type Window } from "../model.js";
import { negativesOf, type Step } from "../sampling.js";
import type { Tables, Work } from "../training.js";

export interface Session {
  items: number[]; times: number[];
}

const GAP_S = 1800; // seconds of a pause after which a session is a new one, where a bundle does not say
const NOTHING: Session = { items: [], times: [] };

/** Refuses learning from sessions that asks for what a session does not have. */
export function check({ learning, window }: Config): void {
  if (!learning?.sessions) return;
  if (window === null) throw new Refused("learning is from sessions, but reads no window of them; export again");
  for (const { name, part = "all", pairs, context, summed, support = 0.5 } of learning.phases) {
    if (part !== "all" || pairs || context || summed || support !== 0.5)
      throw new Refused(`learning asks in ${name} for pairs or parts of a session, which is one window; export again`);
  }
}

/** The session with new interactions, or another one after a pause; no more than a window and a target is kept. */
export function extended(
  before: Session = NOTHING, items: number[], times: number[] | null, now: number, { learning, window }: Config,
): Session {
  const latest = Math.max(now, before.times.at(-1) ?? now);
  const moments = times ?? items.map(() => latest);
  if (moments.length !== items.length)
    throw new Refused(`${moments.length} times for ${items.length} interactions; give one for each`);
  const [all, when] = [[...before.items, ...items], [...before.times, ...moments]];
  if (!when.every(Number.isSafeInteger)) throw new Refused("times of interactions are whole seconds");
  let start = 0;
  for (let n = 1; n < when.length; n++) {
    const pause = when[n] - when[n - 1];
    if (pause < 0)
      throw new Refused(`an interaction at ${when[n]} s is before one at ${when[n - 1]} s; give them in order`);
    if (pause > (learning?.sessions?.gap_s ?? GAP_S)) start = n;
  }
  const kept = Math.max(start, all.length - window! - 1);
  return { items: all.slice(kept), times: when.slice(kept) };
}

/** The window of a session; before learning without its newest item, which is a target. */
export function windowBefore({ items, times }: Session = NOTHING, length: number, learning: boolean): Window {
  const end = learning ? -1 : undefined;
  return windowOf(items.slice(0, end), length, times.slice(0, end));
}

/** What a client trains on from its session: one window, a step an epoch, all of them of the same rows. */
export function workOf(
  learning: Learning, phases: Phase[], session: Session = NOTHING, length: number, round: number,
  client: { number: string; had: number[]; pool: number[]; items: number }, tables: Tables, taught: Feed | null,
): Work {
  if (session.items.length < 2)
    throw new Refused("nothing to learn from: the session has fewer than two items; give some to learn");
  const inputs = windowBefore(session, length, true);
  const real = inputs.items.map((_, n) => n).filter((n) => inputs.real[n] > 0);
  const targets = windowOf(session.items, length).items;
  const drawn = drawnBy(learning, phases, round, client, real);
  const every = learning.sessions!.whole_catalogue
    ? Array.from({ length: client.items }, (_, n) => n)
    : [...new Set([...real.flatMap((n) => [inputs.items[n], targets[n]]), ...[...drawn.values()].flat(2)])];
  const read = every.sort((a, b) => a - b);
  const place = new Map(read.map((item, at) => [item, at]));
  const placed = (items: number[]) =>
    ({ data: items.map((item, n) => (inputs.real[n] ? place.get(item)! : 0)), shape: [length] });
  const weight = inputs.real.map((one) => one / real.length);
  const fed = {
    label: { data: inputs.real, shape: [length] },
    weight: { data: weight, shape: [length] },
    "window.times": { data: inputs.times, shape: [length] },
    "window.inputs": placed(inputs.items),
    "window.positives": placed(targets),
    ...(taught ? { "window.taught": taught } : {}),
  };
  const shape = [length, learning.negatives];
  function* steps({ purpose, epochs }: Phase): Generator<Step> {
    for (const items of drawn.get(purpose)!.slice(0, epochs)) {
      const data = Array<number>(length * learning.negatives).fill(0);
      items.forEach((item, n) => (data[real[0] * learning.negatives + n] = place.get(item)!));
      yield { items: read, fed: { ...fed, "window.negatives": { data, shape } } };
    }
  }
  const shown: Work["shown"] = (graph, given) => windowFeeds(graph, inputs, given);
  return { tables, context: [], examples: real.length, steps, shown };
}

/** Negatives of every epoch of each purpose, those of a place of the window after those of the place before it. */
function drawnBy(
  learning: Learning, phases: Phase[], round: number, client: { number: string; had: number[]; pool: number[] },
  real: number[],
): Map<string, number[][]> {
  const { negatives, seed, sessions } = learning;
  const had = new Set(client.had);
  if (negatives && had.size >= client.pool.length)
    throw new Refused(`the device has had ${had.size} of ${client.pool.length} items, so no negative can be drawn`);
  const places = real.flatMap((place) => Array.from({ length: negatives }, (_, n) => place * negatives + n));
  const epoch = (purpose: string, number: number) => {
    const key = keyed.key(seed, `${purpose} negatives`, round, number);
    return negativesOf(keyed.bits(key, BigInt(client.number)), places, client.pool, had);
  };
  const most = new Map<string, number>();
  for (const { purpose, epochs } of phases) most.set(purpose, Math.max(epochs, most.get(purpose) ?? 0));
  const out = new Map<string, number[][]>();
  for (const [purpose, epochs] of most) {
    const first = epoch(purpose, 0);
    out.set(purpose, Array.from({ length: epochs }, (_, n) => (!n || sessions!.once ? first : epoch(purpose, n))));
  }
  return out;
}
