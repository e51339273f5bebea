/** A device trains: a client's phases, epoch by epoch, step by step, through the bundle's step graphs. */

import { floats, product, type Floats } from "./arrays.js";
import { selection, type Learning, type Phase } from "./config.js";
import { Refused } from "./errors.js";
import type { Feed, Feeds, Graph } from "./graph.js";
import { stepsOf, type Sampler, type Step } from "./sampling.js";

/** Rows of a table for some items, [n, width]. */
export type Rows = (items: readonly number[]) => Promise<Feed> | Feed;
export type Tables = Map<string, Rows>;
export type Dense = Map<string, Floats>;

export interface Trained {
  dense: Dense;
  rows: Map<string, { items: number[]; values: Floats }>;
  /** `stopped`: why not all steps were taken. */
  steps: number; stopped: string | null; loss: number | null; examples: number;
}

/** What a client trains on: the steps of a phase, each time the same. */
export interface Work {
  tables: Tables;
  /** Past positives that a step reads, and the interactions that are told where a server weighs by them. */
  context: number[]; examples: number;
  steps(phase: Phase): Iterable<Step>;
  /** What the graph of a message is shown, where that is no set's newest item. */
  shown?(graph: Graph, tables: Tables): Promise<Feeds>;
}

/** The work of a client that learns from a set; `joined` adds to a round's step what is replayed. */
export function workOfSet(
  sampler: Sampler, tables: Tables, round: number, joined: ((step: Step) => Step) | null,
): Work {
  function* steps(phase: Phase): Generator<Step> {
    for (let epoch = 0; epoch < phase.epochs; epoch++) {
      const drawn = sampler.epoch(phase.purpose, round, epoch, selection(phase));
      for (const step of stepsOf(drawn, sampler.batchSize))
        yield joined && phase.when === "round" ? joined(step) : step;
    }
  }
  return { tables, context: sampler.own, examples: sampler.own.length, steps };
}

export const placed = (dense: Dense, learning: Learning | null): Feeds =>
  Object.fromEntries([...dense].map(([name, value]) => {
    const place = learning?.tensors.find((one) => one.name === name)?.place ?? "shared";
    return [`${place}.${name}`, value];
  }));

/** A graph's inputs `role.T`: rows of every table that it reads in that role. */
export async function rowsOf(graph: Graph, role: string, items: readonly number[], tables: Tables): Promise<Feeds> {
  const out: Feeds = {};
  for (const name of graph.inputs.keys()) {
    if (!name.startsWith(`${role}.`)) continue;
    const rows = tables.get(name.slice(role.length + 1));
    if (!rows) throw new Refused(`${graph.path} reads a table that the bundle does not have: ${name}; export again`);
    out[name] = await rows(items);
  }
  return out;
}

/** A graph's inputs about the client's past positives; without any, one row of padding of weight 0. */
export async function historyFeeds(graph: Graph, own: readonly number[], tables: Tables): Promise<Feeds> {
  const rows = own.length ? own : [0];
  const label = new Float32Array(rows.length).fill(own.length ? 1 : 0);
  const weight = label.map((one) => Math.fround(one / rows.length));
  const shape = [rows.length];
  const named = { "label.history": { data: label, shape }, "weight.history": { data: weight, shape } };
  return { ...named, ...(await rowsOf(graph, "history", rows, tables)) };
}

/** Adam's bias corrections at a step that counts from 1: a factor of the rate, and epsilon. */
export function corrections(step: number, beta2: number): [number, number] {
  const root = Math.sqrt(1 - beta2 ** step);
  return [root / (1 - 0.9 ** step), 1e-8 * root];
}

/** Phases in order; those that take turns step by step together. */
function turns(phases: Phase[]): Phase[][] {
  const out: Phase[][] = [];
  for (const phase of phases) {
    if (phase.alternates && out.length) out[out.length - 1].push(phase);
    else out.push([phase]);
  }
  return out;
}

/** Runs phases from the tensors in `dense`; nothing given is changed. `stop`: says why no more steps are taken. */
export async function train(
  phases: Phase[], graph: (phase: Phase) => Promise<Graph>, learning: Learning, dense: Dense, work: Work,
  stop: (taken: number) => string | null,
): Promise<Trained> {
  const now: Dense = new Map(dense);
  const moving = phases.some((phase) => phase.tables.length);
  const parts = moving ? phases.flatMap((phase) => Array.from(work.steps(phase), (step) => step.items)) : [];
  const read = [...new Set([...new Set(parts)].flat())].sort((a, b) => a - b); // a session's steps all have one list
  const rows = new Map<string, Floats>();
  for (const name of new Set(phases.flatMap((phase) => phase.tables))) {
    const { data, shape } = await work.tables.get(name)!(read);
    rows.set(name, { data: Float32Array.from(data), shape });
  }
  let [taken, loss, stopped]: [number, number | null, string | null] = [0, null, null];
  training: for (const together of turns(phases)) {
    const runs: Run[] = [];
    for (const phase of together)
      runs.push(await Run.of(phase, await graph(phase), learning, now, dense, read, rows, work));
    let number = 0;
    for (const step of work.steps(together[0])) {
      number++;
      for (const run of runs) {
        if ((stopped = stop(taken))) break training;
        loss = await run.step(step, number);
        taken++;
      }
    }
  }
  const changed = new Set(phases.flatMap((phase) => phase.dense));
  const after = new Map([...rows].map(([name, values]) => [name, { items: read, values }]));
  const kept: Dense = new Map([...changed].map((name) => [name, now.get(name)!]));
  return { dense: kept, rows: after, steps: taken, stopped, loss, examples: work.examples };
}

/** One phase while it runs. */
class Run {
  readonly #moments = new Map<string, Floats>();
  readonly #given: Feeds = {};
  readonly #place: Map<number, number>;

  private constructor(
    readonly phase: Phase, readonly graph: Graph, readonly learning: Learning, readonly now: Dense,
    readonly received: Dense, read: number[], readonly rows: Map<string, Floats>, readonly work: Work,
  ) {
    this.#place = new Map(read.map((item, at) => [item, at]));
    const sizes = phase.dense.map((name) => now.get(name)!.data.length);
    const total = sizes.reduce((a, b) => a + b, 0);
    if (phase.dense.length) {
      this.#moment("theta", [total]);
      const rates = phase.dense.flatMap((name, at) => Array<number>(sizes[at]).fill(phase.lr[name]));
      this.#given.lr = { data: Float32Array.from(rates), shape: [total] };
    }
    for (const name of phase.tables) {
      this.#given[`lr.${name}`] = { data: Float32Array.of(phase.lr[name]), shape: [1] };
      this.#moment(`items.${name}`, rows.get(name)!.shape);
    }
  }

  static async of(...given: [Phase, Graph, Learning, Dense, Dense, number[], Map<string, Floats>, Work]): Promise<Run> {
    const made = new Run(...given);
    Object.assign(made.#given, await historyFeeds(made.graph, made.work.context, made.work.tables));
    const wanted = ["loss", ...made.#moving().map((name) => `${name}.next`)].sort();
    if (wanted.join() !== [...made.graph.outputs].sort().join()) {
      throw new Refused(`${made.graph.path} does not give what its phase changes; export again`);
    }
    return made;
  }

  async step(step: Step, number: number): Promise<number> {
    const { phase, now } = this;
    const [factor, epsilon] = corrections(number, phase.beta_2);
    const feeds: Feeds = {
      ...this.#given,
      ...placed(now, this.learning),
      ...step.fed,
      factor: { data: Float32Array.of(factor), shape: [1] },
      epsilon: { data: Float32Array.of(epsilon), shape: [1] },
    };
    if (phase.dense.length) feeds.theta = this.#flat();
    for (const name of this.graph.inputs.keys()) {
      const table = name.startsWith("items.") ? name.slice(6) : "";
      if (this.rows.has(table)) feeds[name] = this.#rows(this.rows.get(table)!, step.items);
      else if (this.work.tables.has(table)) feeds[name] = await this.work.tables.get(table)!(step.items);
    }
    for (const [name, moment] of this.#moments) {
      feeds[name] = name.startsWith("theta.") ? moment : this.#rows(moment, step.items);
    }
    const out = await this.graph.run(feeds);
    for (const name of this.#moving()) {
      const [got, want] = [out[`${name}.next`].shape, feeds[name].shape];
      if (got.join() !== want.join())
        throw new Refused(`${this.graph.path}: ${name} is [${got}] instead of [${want}]; export again`);
    }
    if (phase.dense.length) this.#split(out["theta.next"].data);
    for (const [name, moment] of this.#moments) {
      const after = out[`${name}.next`].data;
      if (name.startsWith("theta.")) moment.data.set(after);
      else this.#put(moment, step.items, after);
    }
    for (const table of phase.tables) this.#put(this.rows.get(table)!, step.items, out[`items.${table}.next`].data);
    return out.loss.data[0];
  }

  #moment(name: string, shape: number[]): void {
    if (this.phase.optimiser === "sgd") return;
    for (const moment of ["first", "second"]) this.#moments.set(`${name}.${moment}`, floats(shape));
  }

  #moving(): string[] {
    const tables = this.phase.tables.map((name) => `items.${name}`);
    return [...(this.phase.dense.length ? ["theta"] : []), ...this.#moments.keys(), ...tables];
  }

  #base(name: string): Floats | null {
    const shared = this.phase.accumulates && this.learning.tensors.some((t) => t.name === name && t.place === "shared");
    return shared ? this.received.get(name)! : null;
  }

  #flat(): Feed {
    const parts = this.phase.dense.map((name) => (this.#base(name) ?? this.now.get(name)!).data);
    const data = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      data.set(part, at);
      at += part.length;
    }
    return { data, shape: [data.length] };
  }

  #split(theta: Float32Array): void {
    let at = 0;
    for (const name of this.phase.dense) {
      const { shape, data } = this.now.get(name)!;
      const [after, base] = [theta.slice(at, at + product(shape)), this.#base(name)];
      const added = (value: number, n: number) => data[n] + Math.fround(value - base!.data[n]);
      this.now.set(name, { shape, data: base ? after.map(added) : after });
      at += product(shape);
    }
  }

  #rows(table: Floats, items: number[]): Floats {
    const width = table.shape[1];
    const out = floats([items.length, width]);
    items.forEach((item, n) => {
      const at = this.#place.get(item)! * width;
      out.data.set(table.data.subarray(at, at + width), n * width);
    });
    return out;
  }

  #put(table: Floats, items: number[], values: Float32Array): void {
    const width = table.shape[1];
    items.forEach((item, n) => table.data.set(
      values.subarray(n * width, (n + 1) * width), this.#place.get(item)! * width,
    ));
  }
}
