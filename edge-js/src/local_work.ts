/** What a device trains and computes on its private state. It keeps nothing: `device.ts` says what is kept. */

import { finite, floats, type Floats } from "./arrays.js";
import type { Bundle } from "./bundle.js";
import { trained as names, type Learning, type Phase } from "./config.js";
import { Refused } from "./errors.js";
import type { Feeds } from "./graph.js";
import * as keyed from "./keyed.js";
import { checkWork } from "./learning_check.js";
import { windowFeeds, windowOf, type Model, type Window } from "./model.js";
import type { Parts } from "./parts.js";
import { Sampler } from "./sampling.js";
import type { State } from "./state.js";
import { train, workOfSet, type Dense, type Tables, type Trained, type Work } from "./training.js";

export class LocalWork {
  constructor(
    readonly bundle: Bundle, readonly model: Model, readonly parts: Parts, readonly pool: number[],
    private readonly maxSeconds: number,
  ) {}

  get learning(): Learning {
    const found = this.bundle.config.learning;
    if (!found) throw new Refused("the bundle only recommends: it was exported without step graphs");
    return found;
  }

  /** What a round trains on, and from where. */
  async work(state: State, round: number, phases: Phase[]) {
    const [{ learning }, { number }, tables] = [this, state.facts, await this.tables(state)];
    const dense: Dense = new Map([...state.part("shared"), ...state.part("private")]);
    const seed = keyed.key(learning.seed, "private tensors made anew", round);
    for (const { name, shape, anew } of learning.tensors) {
      if (!anew) continue;
      const [made, key] = [floats(shape), keyed.bits(keyed.key(seed, anew.purpose), BigInt(number))];
      made.data.forEach((_, n) => (made.data[n] = keyed.normal(key, n) * anew.scale));
      dense.set(name, made);
    }
    const work = await this.#work(state, round, phases, tables);
    return { work, dense, shared: state.part("shared"), tables: state.part("table") };
  }

  /** Trains phases from the state as it is, for at most so many steps. */
  async train(state: State, phases: Phase[], round: number, most = Infinity): Promise<Trained> {
    const until = performance.now() + 1000 * this.maxSeconds;
    const { work, dense } = await this.work(state, round, phases);
    const stop = (taken: number) => (taken >= most ? "steps" : performance.now() > until ? "time" : null);
    return train(phases, (phase) => this.model.graph(phase.graph, phase.data), this.learning, dense, work, stop);
  }

  /** Trains the phases of a round, or the final ones. */
  async trainAll(state: State, when: "round" | "final", round: number): Promise<Trained> {
    const phases = this.phases(when);
    if (!phases.length) throw new Refused("this method has no such training");
    const found = await this.train(state, phases, round);
    state.facts.stopped = found.stopped;
    return found;
  }

  /** Does the next round's training, and puts into `state` what is the device's own. */
  async round(state: State): Promise<{ found: Trained; message: Floats | null }> {
    const round = state.facts.round + 1;
    const found = await this.trainAll(state, "round", round);
    const own = names(this.learning, "round", "private");
    const { kept, message } = await this.after(state, found, round);
    state.put("private", new Map([...sound(found.dense)].filter(([name]) => own.includes(name))));
    state.put("private", sound(kept));
    state.drop("personal");
    return { found, message };
  }

  /** What a round keeps beside what it trains, and the message beside its update, without noise. */
  async after(state: State, found: Trained, round: number): Promise<{ kept: Dense; message: Floats | null }> {
    const { exchange } = this.parts;
    if (!exchange) return { kept: new Map(), message: null };
    const { work, dense } = await this.work(state, round, this.phases("round"));
    return exchange.after(this.learning, (path) => this.model.graph(path), dense, found, work);
  }

  phases(when: "round" | "final"): Phase[] {
    return this.learning.phases.filter((phase) => phase.when === when);
  }

  /** Scores by a graph, with tensors of more parts of the state than those that rounds train. */
  async scored(state: State, path: string, ...parts: string[]): Promise<Float32Array> {
    const { window, last } = this.bundle.config;
    let own: number[] | Window = recent(state);
    if (last) own = windowOf(own, last);
    if (window) own = this.parts.sessions!.windowBefore(state.facts.session, window, false);
    return this.model.scores(path, this.dense(state, parts), own, await this.tables(state));
  }

  /** What a graph computes of the session, and of the tensors as they are. */
  async told(state: State, path: string, learning: boolean, tables?: Tables): Promise<Floats> {
    const graph = await this.model.graph(path);
    const rows = tables ?? (await this.tables(state));
    const seen = this.parts.sessions!.windowBefore(state.facts.session, this.bundle.config.window!, learning);
    return graph.one({ ...this.dense(state), ...(await windowFeeds(graph, seen, rows)) });
  }

  /** The dense tensors as a graph's inputs, with those of more `parts` of the state. */
  dense(state: State, parts: string[] = []): Feeds {
    const out: Feeds = {};
    for (const part of ["shared", "private", ...parts]) {
      const place = part === "shared" ? part : "private";
      for (const [name, value] of state.part(part)) out[`${place}.${name}`] = value;
    }
    return out;
  }

  tables(state: State): Promise<Tables> {
    return this.model.rows(state.part("table"), state.part("shared"), state.facts.round);
  }

  /** What a client trains on, of a session or a set. */
  async #work(state: State, round: number, phases: Phase[], tables: Tables): Promise<Work> {
    const [{ learning, bundle, parts, pool }, { own, number, session, memory }] = [this, state.facts];
    checkWork(learning, Math.max(own.length, bundle.config.window ?? 0));
    if (learning.sessions) {
      const client = { number, had: everything(state), pool, items: bundle.manifest.item_count };
      const { teach } = learning.sessions;
      const taught = teach ? await this.told(state, teach, true, tables) : null;
      return parts.sessions!.workOf(learning, phases, session, bundle.config.window!, round, client, tables, taught);
    }
    if (!own.length) throw new Refused("nothing to learn from: this device has no interactions yet");
    const { negatives, batch_size, seed } = learning;
    const sampler = new Sampler(own, pool, negatives, batch_size, seed, BigInt(number));
    const scores = () => this.scored(state, learning.score);
    const joined = memory ? await parts.replay!.joining(learning, memory, pool, scores, round, number) : null;
    return workOfSet(sampler, tables, round, joined);
  }
}

/** All that the device has had, in this block and before. */
export const everything = ({ facts }: State): number[] => [...new Set([...(facts.past ?? []), ...facts.own])];

/** What a graph of a set reads: items of this block, or else of those before. */
export const recent = ({ facts }: State): number[] => (facts.own.length ? facts.own : (facts.past ?? []));

/** Refuses values that are not finite. */
export function sound(dense: Dense): Dense {
  for (const { data } of dense.values())
    if (!finite(data)) throw new Refused("training has diverged: values are not finite; nothing was changed");
  return dense;
}
