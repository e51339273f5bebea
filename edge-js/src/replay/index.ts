/** What a device remembers of earlier blocks of time, and replays in the rounds of later ones (edge/replay.py). */

import type { Learning, Replay } from "../config.js";
import { Refused } from "../errors.js";
import * as keyed from "../keyed.js";
import type { Step } from "../sampling.js";
import type { Facts } from "../state.js";

/** Items of an earlier block, best first, and how the model then predicted each. */
export interface Memory {
  items: number[]; labels: number[];
}

/** Refuses a replay that no device can do. */
export function check({ phases, replay }: Learning): void {
  const { picks } = replay!;
  if (!["all", "adaptive"].includes(picks))
    throw new Refused(`learning picks by ${picks}, which needs what no bundle carries; export again`);
  const odd = phases.find((phase) => phase.pairs);
  if (odd)
    throw new Refused(`learning compares items in pairs in ${odd.name}, and a replayed item has none; export again`);
}

/** Ends a block: its items are past, and the best by the model as it is are remembered in place of those before. */
export async function endBlock(
  learning: Learning, facts: Facts, pool: number[], scores: () => Promise<Float32Array>,
): Promise<void> {
  try {
    if (facts.own.length) facts.memory = remembered(learning.replay!, pool, await scores());
  } catch (error) {
    // where something is promised a failure would tell what a graph has met
    if (learning.release.noised === "nowhere") throw error;
  }
  const past = [...(facts.past ?? []), ...facts.own];
  Object.assign(facts, { past, own: [], block: (facts.block ?? learning.block ?? 0) + 1 });
}

/** The best of the offered items by these scores of all items, with the model's predictions for them (F3CRec Eq. 1). */
function remembered({ list_size }: Replay, pool: number[], scores: Float32Array): Memory {
  const items = [...pool].sort((a, b) => scores[b] - scores[a] || a - b).slice(0, list_size);
  return { items, labels: items.map((item) => Math.fround(1 / (1 + Math.exp(-scores[item])))) };
}

/** Puts what is replayed in a round into each of its steps; `scores`: those of all items by the model of today. */
export async function joining(
  { replay, seed }: Learning, memory: Memory, pool: number[], scores: () => Promise<Float32Array>, round: number,
  client: string,
): Promise<(step: Step) => Step> {
  const how = replay!;
  let chosen = memory.items.map((_, n) => n);
  if (how.picks === "adaptive") {
    const size = memorySize(ranks(await scores(), pool, memory.items), how.shift_scale);
    const key = keyed.bits(keyed.key(seed, "replay", round), BigInt(client));
    const draws = chosen.map((n) => keyed.uniform(key, n));
    chosen = [...chosen].sort((a, b) => draws[b] - draws[a] || a - b).slice(0, size);
  }
  const weight = Math.fround(how.weight / (how.reduction === "mean" ? Math.max(chosen.length, 1) : 1));
  const replayed = new Map(chosen.map((n) => [memory.items[n], memory.labels[n]]));
  return (step) => joined(step, replayed, weight);
}

/** Ranks of items among the offered ones, 1 is best; of equal scores that of the lower number is better. */
function ranks(scores: Float32Array, pool: number[], items: number[]): number[] {
  return items.map((item) => {
    const better = (other: number) => scores[other] > scores[item] || (scores[other] === scores[item] && other < item);
    return pool.reduce((rank, other) => rank + (better(other) ? 1 : 0), 1);
  });
}

/** How many are replayed: fewer, the further the remembered items have moved (F3CRec Eq. 2 to 4). */
function memorySize(now: number[], scale: number): number {
  const shift = now.reduce((sum, rank, n) => sum + Math.abs(rank - n - 1), 0);
  return Math.floor(Math.exp(-scale * shift) * now.length);
}

/** A step with soft-labelled examples beside its own: weights add up, a label is the mean of labels by weight. */
function joined({ items, fed }: Step, replayed: Map<number, number>, weight: number): Step {
  const [label, own] = [fed.label.data, fed.weight.data];
  const entries = new Map(items.map((item, n) => [item, { weight: own[n], told: own[n] * label[n] }]));
  for (const [item, soft] of replayed) {
    const before = entries.get(item) ?? { weight: 0, told: 0 };
    entries.set(item, { weight: before.weight + weight, told: before.told + weight * soft });
  }
  const all = [...entries.keys()].sort((a, b) => a - b);
  const shape = [all.length];
  const labels = all.map((item) => entries.get(item)!.told / (entries.get(item)!.weight || 1));
  const weights = all.map((item) => entries.get(item)!.weight);
  return {
    items: all,
    fed: { label: { data: Float32Array.from(labels), shape }, weight: { data: Float32Array.from(weights), shape } },
  };
}
