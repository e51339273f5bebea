/** A client's examples and the optimiser steps that they become, to the bit as the Python device draws them. */

import { Refused } from "./errors.js";
import type { Feeds } from "./graph.js";
import * as keyed from "./keyed.js";

export interface Selection {
  part: "all" | "support" | "query" | "whole"; support: number; pairs: boolean; context: number; summed: boolean;
}

/** Examples of one epoch in batch order; they come in groups of `group`, which no batch parts. */
export interface Examples {
  items: number[]; label: number[]; group: number; context: number[][] | null; whole: boolean; summed: boolean;
}

/** The items whose rows a step reads, ascending, and what else it is fed. */
export interface Step {
  items: number[]; fed: Feeds;
}

export class Sampler {
  readonly #had: Set<number>;

  constructor(
    readonly own: number[], readonly pool: number[], readonly negatives: number, readonly batchSize: number,
    readonly seed: number, readonly client: bigint,
  ) {
    this.#had = new Set(own);
    if (negatives && own.length >= pool.length) {
      throw new Refused(`the device has ${own.length} positives of ${pool.length} items, so no negative can be drawn`);
    }
  }

  epoch(purpose: string, round: number, epoch: number, which: Selection): Examples {
    const { part, pairs, summed } = which;
    const plain = { group: 1, context: null, whole: false, summed };
    if (part === "whole") return { ...plain, items: [...this.own], label: this.own.map(() => 1), whole: true };
    const everything = part === "all" && !pairs && which.support === 0.5 && !which.context;
    const at = this.#places(which, round);
    const wanted = Array.from({ length: at.length * this.negatives }, (_, n) => n);
    const drawn = negativesOf(this.#key(`${purpose} negatives`, round, epoch), wanted, this.pool, this.#had);
    if (everything) {
      const label = [...at.map(() => 1), ...drawn.map(() => 0)];
      return this.#shuffled({ ...plain, items: [...this.own, ...drawn], label }, purpose, round, epoch);
    }
    const groups =
      at.map((place, n) => [this.own[place], ...drawn.slice(n * this.negatives, (n + 1) * this.negatives)]);
    if (pairs) {
      const order = this.#order(purpose, round, epoch, at.length);
      const context = which.context ? order.map((n) => this.#before(at[n], which.context)) : null;
      const items = order.flatMap((n) => groups[n]);
      const label = items.map((_, n) => (n % (1 + this.negatives) ? 0 : 1));
      return { ...plain, items, label, group: 1 + this.negatives, context };
    }
    const label = groups.flatMap((group) => group.map((_, n) => (n ? 0 : 1)));
    return this.#shuffled({ ...plain, items: groups.flat(), label }, purpose, round, epoch);
  }

  #key(purpose: string, ...path: number[]): bigint {
    return keyed.bits(keyed.key(this.seed, purpose, ...path), this.client);
  }

  #places(which: Selection, round: number): number[] {
    const places = this.own.map((_, place) => place);
    if (which.part === "all") return places;
    const base = this.#key("support", round);
    const order = sorted(places, places.map((place) => keyed.bits(base, place)));
    const support = new Set(order.slice(0, Math.ceil(this.own.length * which.support)));
    return places.filter((place) => support.has(place) === (which.part === "support"));
  }

  #order(purpose: string, round: number, epoch: number, count: number, drop = 0n): number[] {
    const base = this.#key(`${purpose} order`, round, epoch);
    const places = Array.from({ length: count }, (_, place) => place);
    return sorted(places, places.map((place) => keyed.bits(base, place) >> drop));
  }

  #before(place: number, length: number): number[] {
    return Array.from({ length }, (_, n) => this.own[place - length + n] ?? -1);
  }

  #shuffled(examples: Examples, purpose: string, round: number, epoch: number): Examples {
    if (examples.items.length <= this.batchSize) return examples;
    const order = this.#order(purpose, round, epoch, examples.items.length, 40n); // 24 bits decide
    return { ...examples, items: order.map((n) => examples.items[n]), label: order.map((n) => examples.label[n]) };
  }
}

/** Negatives at these places of a draw; an item that was had is drawn again. */
export function negativesOf(base: bigint, places: number[], pool: number[], had: Set<number>): number[] {
  return places.map((place) => {
    let item = pool[keyed.integer(base, place, pool.length)];
    for (let attempt = 1n; had.has(item); attempt++)
      item = pool[keyed.integer(keyed.bits(base, attempt << 32n), place, pool.length)];
    return item;
  });
}

function sorted(places: number[], draws: bigint[]): number[] {
  return [...places].sort((a, b) => (draws[a] < draws[b] ? -1 : draws[a] > draws[b] ? 1 : a - b));
}

/** The steps of one epoch: every item of a step once, its appearances as weight, ascending. */
export function* stepsOf(examples: Examples, batchSize: number): Generator<Step> {
  const { items, label, group } = examples;
  const size = examples.whole ? Math.max(items.length, 1) : Math.max(Math.floor(batchSize / group), 1) * group;
  for (let start = 0; start < items.length; start += size) {
    const stop = Math.min(start + size, items.length);
    const entries = new Map<number, { label: number; weight: number }>();
    for (let at = start; at < stop; at++) {
      const entry = entries.get(items[at]);
      if (entry) entry.weight++;
      else entries.set(items[at], { label: label[at], weight: 1 });
    }
    for (const entry of entries.values())
      entry.weight = Math.fround(entry.weight / (examples.summed ? 1 : stop - start));
    const context = examples.context?.slice(start / group, stop / group) ?? null;
    for (const row of context ?? []) {
      for (const item of row) if (item >= 0 && !entries.has(item)) entries.set(item, { label: 0, weight: 0 });
    }
    const ordered = [...entries.keys()].sort((a, b) => a - b);
    const shape = [ordered.length];
    const fed: Feeds = {
      label: { data: Float32Array.from(ordered, (item) => entries.get(item)!.label), shape },
      weight: { data: Float32Array.from(ordered, (item) => entries.get(item)!.weight), shape },
      ...(group > 1 || context ? pairsOf(items.slice(start, stop), group, context, ordered) : {}),
    };
    yield { items: ordered, fed };
  }
}

/** What a step is fed about its pairs, by the places of its items. */
function pairsOf(items: number[], group: number, context: number[][] | null, ordered: number[]): Feeds {
  const place = new Map(ordered.map((item, at) => [item, at]));
  const count = items.length / group;
  const positive = Array.from({ length: count }, (_, n) => place.get(items[n * group])!);
  const negative = items.filter((_, n) => n % group).map((item) => place.get(item)!);
  const out: Feeds = {
    "pairs.positive": { data: positive, shape: [count] },
    "pairs.negative": { data: negative, shape: [count, group - 1] },
    "pairs.share": { data: new Float32Array(count).fill(1 / count), shape: [count] },
  };
  if (!context) return out;
  const [shape, all] = [[count, context[0].length], context.flat()];
  const placed = all.map((item, n) => (item < 0 ? positive[Math.floor(n / shape[1])] : place.get(item)!));
  out["pairs.context"] = { data: placed, shape };
  out["pairs.there"] = { data: Float32Array.from(all, (item) => (item < 0 ? 0 : 1)), shape };
  return out;
}
