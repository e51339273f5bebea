/** A device learns from its own interactions, releases updates, takes the server's, and recommends. */

import { finite, floats, parseNpy, product, type Floats } from "./arrays.js";
import { Bundle, parsed, type Files, type Terms } from "./bundle.js";
import idsSchema from "../../docs/schemas/ids.json" with { type: "json" };
import { exchangeOf, trained as names, type Learning, type Phase } from "./config.js";
import { readDelta, type Delta } from "./delta.js";
import { reason, Refused, Withheld } from "./errors.js";
import type { Feeds, Runtime } from "./graph.js";
import * as keyed from "./keyed.js";
import { checkLearning, checkWork } from "./learning_check.js";
import { Model, windowFeeds, windowOf, type Window } from "./model.js";
import { partsOf, type Parts } from "./parts.js";
import { entryOf, exceeds, refuses, spent, STRICT, type Policy } from "./policy.js";
import { changeOf, makeUpdate, noChange, toBytes, type Update } from "./release.js";
import { Sampler } from "./sampling.js";
import { checkSignature } from "./signature.js";
import { readState, State, writeState } from "./state.js";
import type { Store } from "./store.js";
import { train, workOfSet, type Dense, type Tables, type Trained, type Work } from "./training.js";

export interface Options extends Terms {
  /** onnxruntime-node or onnxruntime-web. */
  runtime: Runtime;
  policy?: Partial<Policy>;
  /** The name that a server knows the device by. */
  user?: string;
  /** Training of one call stops after so many seconds, with what it has learned; Infinity: it does not. */
  maxSeconds?: number;
  /** The bundle's tensors may take so many MB (10^6 bytes), as float32. */
  maxTensorMb?: number;
}

export interface Recommendations {
  basis: "model" | "popular" | "mean" | "none";
  items: { id: string; title: string; score: number | null }[];
}

export class Device {
  readonly policy: Policy;
  readonly #numbers: Map<string, number>;
  readonly #pool: number[];
  readonly #offered: Set<number>;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly bundle: Bundle, private readonly store: Store, private readonly model: Model,
    private readonly parts: Parts, private readonly ids: { ids: string[]; titles: string[]; offered?: string[] },
    private state: State, policy: Partial<Policy>, private readonly maxSeconds = Infinity,
  ) {
    this.policy = { ...STRICT, ...policy };
    this.#numbers = new Map(ids.ids.map((id, n) => [id, n]));
    const counts = [this.#numbers.size, ids.ids.length, ids.titles.length];
    if (counts.some((count) => count !== bundle.manifest.item_count))
      throw new Refused("ids repeat, or are not as many as the items");
    this.#pool =
      ids.offered ? ids.offered.map((id) => this.number(id)).sort((a, b) => a - b) : ids.ids.map((_, n) => n);
    this.#offered = new Set(this.#pool);
  }

  /** Opens a bundle on the private state in `store`, which is made where there is none. */
  static async open(files: Files, store: Store, options: Options): Promise<Device> {
    const before = await readState(store);
    const seen = before ? { newest: before.facts.serial, since: new Date(before.facts.seconds * 1000) } : {};
    const known = before?.facts.publisher ? [before.facts.publisher] : undefined;
    const bundle = await Bundle.open(files, { ...options, ...seen, trusted: options.trusted ?? known });
    const { config } = bundle;
    if (before && before.facts.bundle !== bundle.manifest.bundle_id)
      throw new Refused("the state is of another bundle; delete it, or open it with that one");
    if (config.learning) checkLearning(config.learning, bundle.manifest.item_count);
    const tables = config.tables.map(({ width }) => [width, bundle.manifest.item_count]);
    checkRoom([...tables, ...(config.learning?.tensors ?? []).map((one) => one.shape)], options.maxTensorMb);
    const [model, parts] = [new Model(bundle, options.runtime), await partsOf(config)];
    const ids = parsed<Device["ids"]>(bundle.file(bundle.manifest.ids_file), idsSchema, bundle.manifest.ids_file);
    const state = before ?? first(bundle, model, parts, options.user ?? null);
    const device = new Device(bundle, store, model, parts, ids, state, options.policy ?? {}, options.maxSeconds);
    device.state.facts.serial = bundle.manifest.serial;
    device.state.facts.seconds =
      Math.max(device.state.facts.seconds, Math.floor((options.now ?? new Date()).getTime() / 1000));
    await writeState(store, device.state);
    return device;
  }

  get learning(): Learning {
    const found = this.bundle.config.learning;
    if (!found) throw new Refused("the bundle only recommends: it was exported without step graphs");
    return found;
  }

  /** What the device knows of itself: plain numbers, nothing private but counts. */
  status() {
    const { facts, tensors } = this.state;
    const learning = this.bundle.config.learning;
    return {
      bundle: facts.bundle, method: this.bundle.manifest.method, user: facts.user, round: facts.round,
      interactions: facts.own.length, releases: facts.ledger.length,
      waitingRelease: facts.learned, masked: facts.masked,
      epsilon: spent(facts.ledger, this.policy.delta), epsilonLimit: this.policy.epsilon,
      withheld: learning ? this.withheld() : null, stopped: facts.stopped ?? null,
      expires: this.bundle.manifest.expires, publisher: this.bundle.signedBy,
      stateBytes: [...tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0),
    };
  }

  /** Why no update may leave this device now, by its own policy and ledger; null: one may. */
  withheld(): string | null {
    const next = entryOf(this.bundle.manifest.privacy, 0, now());
    return this.#unfit() ?? exceeds(this.policy, this.state.facts.ledger, next);
  }

  /** Adds interactions (ids) without learning from them yet; `times`: seconds of each, for sessions (null: now). */
  note(items: string[], times: number[] | null = null): Promise<void> {
    return this.#change((state) => this.#add(state, items, times));
  }

  /** Adds interactions and does the local work of the next round; nothing leaves the device. */
  learn(items: string[] = [], times: number[] | null = null): Promise<void> {
    return this.#change(async (state) => {
      this.#add(state, items, times);
      await this.#round(state);
    });
  }

  /** Trains locally after the rounds (the program's final phases); nothing leaves the device. */
  personalise(items: string[] = []): Promise<void> {
    return this.#change(async (state) => {
      this.#add(state, items);
      const work = await this.#train(state, "final", state.facts.round + 1);
      state.drop("personal");
      state.put("personal", new Map([...state.part("private"), ...sound(work.dense)]));
    });
  }

  /**
   * Does the next round's local work and lets its update leave: bytes for the server, the same if asked again.
   * `masked`: it leaves under the masks of a secure sum, and then in no other way.
   */
  release(items: string[] = [], times: number[] | null = null, masked = false): Promise<Uint8Array> {
    return this.#change(async (state) => {
      this.#add(state, items, times);
      const { facts } = state;
      const round = facts.round + 1;
      const begun = facts.learned === round || facts.begun === round;
      const hidden = this.policy.sealed || (begun && facts.masked?.round === round);
      if (hidden && !masked)
        throw new Withheld(`the update of round ${round} leaves under the masks of a secure sum alone`);
      if (masked && facts.learned !== round) facts.masked = { round, left: false };
      if (facts.learned !== round) {
        const made = await this.#released(state, round);
        Object.assign(facts, { learned: round, release: made.facts, begun: null });
        state.drop("outbox");
        state.put("outbox", made.arrays);
      }
      return toBytes({ facts: facts.release!, arrays: state.part("outbox") });
    });
  }

  /** Ends a block of time: its best items and the model's predictions for them are replayed from now on. */
  nextBlock(): Promise<void> {
    return this.#change(async (state) => {
      const { replay } = this.parts;
      if (!replay) throw new Refused("the bundle has no blocks: its strategy replays nothing");
      await replay.endBlock(this.learning, state.facts, this.#pool, () => this.#scored(this.learning.score, state));
    });
  }

  /** What is told the server of the session as it is, to have a reply: of all of it, or of what is learned from. */
  async prototype(before: "learning" | "recommending" = "recommending"): Promise<Float32Array> {
    const how = this.learning.sessions;
    if (!how?.publish) throw new Refused("the bundle tells nothing of sessions");
    const why = this.#unfit();
    if (why) throw new Withheld(`nothing leaves this device: ${why}`);
    return (await this.#told(how.publish, this.state, before === "learning", await this.#tables(this.state))).data;
  }

  /** Keeps the server's reply for the next rounds and recommendations. */
  take(reply: Float32Array): Promise<void> {
    return this.#change((state) => this.#reply(reply, state));
  }

  /** Writes down that a round's update is about to leave in a secure sum; it may be in no other. */
  leaveMasked(round: number): Promise<void> {
    return this.#change(({ facts }) => {
      if (facts.masked?.round === round && facts.masked.left)
        throw new Withheld(`the update of round ${round} has left in a secure sum`);
      facts.masked = { round, left: true };
    });
  }

  /** An update of the server, once its signature is the publisher's and it is one of this bundle. */
  async delta(content: Uint8Array, signature: Uint8Array | null): Promise<Delta> {
    const { signedBy, manifest } = this.bundle;
    await checkSignature("delta", "the update", content, signature, signedBy ? [signedBy] : undefined);
    const delta = readDelta(content, this.learning);
    if (delta.base_digest !== manifest.bundle_id)
      throw new Refused("the update is of another bundle; nothing was changed");
    return delta;
  }

  /** Takes the server's new shared tensors, signed by the publisher; `reply`: to the last release's message. */
  apply(content: Uint8Array, signature: Uint8Array | null, reply: Float32Array | null = null): Promise<void> {
    return this.#change(async (state) => {
      const { learning, bundle } = this;
      const delta = await this.delta(content, signature);
      const base = delta.from_round === learning.round;
      const newest = state.facts.round;
      const follows = base || delta.from_round === newest;
      const way = `from round ${delta.from_round} to ${delta.to_round}`;
      if (!follows || delta.to_round <= newest || delta.to_round > newest + 10_000)
        throw new Refused(`the update goes ${way}, this device is at ${newest}`);
      const tables = base ? this.model.trained() : state.part("table");
      for (const [name, { items, values }] of delta.rows) {
        const table = floats(tables.get(name)!.shape, tables.get(name)!.data.slice());
        const width = values.shape[1];
        items.forEach((item, n) => table.data.set(values.data.subarray(n * width, (n + 1) * width), item * width));
        tables.set(name, table);
      }
      if (reply) this.#reply(reply, state);
      state.put("table", tables);
      if (base) state.put("shared", bundle.tensors(bundle.config.shared));
      state.put("shared", delta.dense);
      Object.assign(state.facts, { round: delta.to_round, learned: null, release: null, begun: null });
      state.drop("outbox");
    });
  }

  /** The device's own score (logit) of every item, float32 [items]. */
  async scores(): Promise<Float32Array> {
    const { config } = this.bundle;
    const { state } = this;
    const final = state.part("personal").size > 0 || !config.learning;
    const anew = !final && config.learning!.tensors.some((one) => one.anew);
    if (anew) throw new Refused("this method keeps nothing of a user from round to round: personalise first");
    return final ? this.#scored(config.score, state, "personal") : this.#scored(config.learning!.score, state);
  }

  /** The k best items that the user has not had, best first; ties in the catalogue's order. */
  async recommend(k: number): Promise<Recommendations> {
    if (!Number.isInteger(k) || k < 1) throw new Refused(`k must be a whole number of at least 1, got ${k}`);
    const had = new Set(this.#had(this.state));
    const again = this.parts.sessions !== null; // a session may repeat itself
    const left = this.#pool.filter((item) => again || !had.has(item));
    if (!left.length) throw new Refused("nothing to recommend: all items are seen");
    const { ids, titles } = this.ids;
    const named = (item: number, score: number | null) => ({ id: ids[item], title: titles[item], score });
    const scores = had.size ? await this.scores() : null;
    if (scores && (left.length === 1 || left.some((item) => scores[item] !== scores[left[0]]))) {
      const best = [...left].sort((a, b) => scores[b] - scores[a] || a - b).slice(0, k);
      return { basis: "model", items: best.map((item) => named(item, scores[item])) };
    }
    const start = this.bundle.config.start;
    const order =
      start ? Array.from(parseNpy(this.bundle.file(start.path), start.path, "<i4", [start.count]).data, Number) : [];
    const shown = order.filter((item) => this.#offered.has(item) && (again || !had.has(item))).slice(0, k);
    return { basis: start && shown.length ? start.basis : "none", items: shown.map((item) => named(item, null)) };
  }

  /** What items lean on among those that the user had last, by the method's own weights, which sum to 1. */
  async explain(items: string[]): Promise<{ item: string; leans: { item: string; weight: number }[] }[]> {
    const [{ leaning }, { state, ids }] = [await import("./explain/index.js"), this];
    const dense = this.#dense(state, ["personal"]);
    const asked = items.map((id) => this.number(id));
    const { had, weights } = await leaning(this.model, recent(state), asked, dense, await this.#tables(state));
    const leans = (row: number[]) => had.map((one, n) => ({ item: ids.ids[one], weight: row[n] }));
    return items.map((item, n) => ({ item, leans: leans(weights[n]) }));
  }

  /** The user's own items that are nearest to an item by the model's rows, with their cosines: alike, not a cause. */
  async nearest(id: string, k = 3): Promise<{ item: string; title: string; cosine: number }[]> {
    const [{ alike }, { state, ids }] = [await import("./explain/index.js"), this];
    const item = this.number(id);
    const had = this.#had(state).filter((one) => one !== item);
    const found = await alike(this.model, await this.#tables(state), item, had, k);
    return found.map(({ item: one, cosine }) => ({ item: ids.ids[one], title: ids.titles[one], cosine }));
  }

  /** Ids and titles of all items that may be recommended. */
  catalogue(): { id: string; title: string; had: boolean }[] {
    const own = new Set(this.#had(this.state));
    return this.#pool.map((item) => ({ id: this.ids.ids[item], title: this.ids.titles[item], had: own.has(item) }));
  }

  /** The number of an item in the catalogue. */
  number(id: string): number {
    const found = this.#numbers.get(id);
    if (found === undefined) throw new Refused(`unknown item ${JSON.stringify(id.slice(0, 100))}`);
    return found;
  }

  /** What a round trains on, and from where: the conformance kit asks for these. */
  async work(
    round: number, phases = this.learning.phases, state = this.state,
  ): Promise<{ work: Work; dense: Dense; shared: Map<string, Floats>; tables: Map<string, Floats> }> {
    const [{ learning }, { number }, tables] = [this, state.facts, await this.#tables(state)];
    const dense: Dense = new Map([...state.part("shared"), ...state.part("private")]);
    const seed = keyed.key(learning.seed, "private tensors made anew", round);
    for (const { name, shape, anew } of learning.tensors) {
      if (!anew) continue;
      const [made, key] = [floats(shape), keyed.bits(keyed.key(seed, anew.purpose), BigInt(number))];
      made.data.forEach((_, n) => (made.data[n] = keyed.normal(key, n) * anew.scale));
      dense.set(name, made);
    }
    const work = await this.#work(round, phases, state, tables);
    return { work, dense, shared: state.part("shared"), tables: state.part("table") };
  }

  /** Trains phases from the state as it is; nothing is kept. */
  async train(phases: Phase[], round: number, most = Infinity, state = this.state): Promise<Trained> {
    const until = performance.now() + 1000 * this.maxSeconds;
    const { work, dense } = await this.work(round, phases, state);
    const stop = (taken: number) => (taken >= most ? "steps" : performance.now() > until ? "time" : null);
    return train(phases, (phase) => this.model.graph(phase.graph, phase.data), this.learning, dense, work, stop);
  }

  /** Keys the draws of this device by another number, before it has learned: for comparisons with other devices. */
  renumber(number: string): Promise<void> {
    return this.#change((state) => void (state.facts.number = number));
  }

  async #train(state: State, when: "round" | "final", round: number): Promise<Trained> {
    const phases = this.learning.phases.filter((phase) => phase.when === when);
    if (!phases.length) throw new Refused("this method has no such training");
    const found = await this.train(phases, round, Infinity, state);
    state.facts.stopped = found.stopped;
    return found;
  }

  async #round(state: State): Promise<{ found: Trained; message: Floats | null }> {
    const round = state.facts.round + 1;
    const found = await this.#train(state, "round", round);
    const own = names(this.learning, "round", "private");
    const { kept, message } = await this.after(found, round, state);
    state.put("private", new Map([...sound(found.dense)].filter(([name]) => own.includes(name))));
    state.put("private", sound(kept));
    state.drop("personal");
    return { found, message };
  }

  /** What a round keeps beside what it trains, and the message beside its update, without noise. */
  async after(found: Trained, round: number, state = this.state): Promise<{ kept: Dense; message: Floats | null }> {
    const [{ learning, model }, { exchange }] = [this, this.parts];
    if (!exchange) return { kept: new Map(), message: null };
    const { work, dense } = await this.work(round, learning.phases.filter((phase) => phase.when === "round"), state);
    return exchange.after(learning, (path) => model.graph(path), dense, found, work);
  }

  /** A round that was charged ends in a release whatever becomes of training: a missing one would tell a bit. */
  async #released(state: State, round: number): Promise<Update> {
    const [{ learning, bundle }, { facts }] = [this, state];
    const none = () => makeUpdate(learning, bundle.manifest.bundle_id, noChange(learning), 0, round);
    if (facts.begun === round) return none();
    if (facts.ledger.some((one) => one.round === round))
      throw new Refused(`round ${round} was released before; take the server's next update first`);
    const why = this.withheld();
    if (why) throw new Withheld(`nothing leaves this device: ${why}`);
    const promises = learning.release.noised !== "nowhere";
    const newest = Math.max(now(), ...facts.ledger.map((one) => one.seconds));
    const charge = () => facts.ledger.push(entryOf(bundle.manifest.privacy, round, newest));
    const made = async (on: State) => {
      const before = { shared: on.part("shared"), tables: on.part("table") };
      const { found, message } = await this.#round(on);
      const change = changeOf(learning, before.shared, before.tables, found);
      const told = message && this.parts.exchange!.noised(message, exchangeOf(learning)!);
      return makeUpdate(learning, bundle.manifest.bundle_id, change, found.examples, round, true, told);
    };
    if (!promises) {
      const update = await made(state);
      charge();
      return update;
    }
    charge();
    facts.begun = round;
    await writeState(this.store, state); // before any graph sees the device's data
    const tried = state.copy();
    try {
      const update = await made(tried);
      state.put("private", tried.part("private"));
      state.drop("personal");
      facts.stopped = tried.facts.stopped;
      return update;
    } catch {
      return none();
    }
  }

  /** Keeps a reply as a private tensor, with keyed noise. */
  #reply(reply: Float32Array, state: State): void {
    const { exchange } = this.parts;
    if (!exchange) throw new Refused("this bundle's method takes no replies of the server");
    state.put("private", exchange.replied(this.learning, reply, state.facts.round, state.facts.number));
  }

  #add(state: State, items: string[], times: number[] | null = null): void {
    const [added, { facts }] = [items.map((id) => this.number(id)), state];
    facts.own = [...new Set([...facts.own, ...added])];
    facts.session = this.parts.sessions?.extended(facts.session, added, times, now(), this.bundle.config);
  }

  /** All that the device has had, in this block and before. */
  #had({ facts }: State): number[] {
    return [...new Set([...(facts.past ?? []), ...facts.own])];
  }

  /** Why nothing of this bundle's learning may leave the device by its policy alone. */
  #unfit(): string | null {
    const [{ learning, policy }, { manifest, signedBy }] = [this, this.bundle];
    const told = exchangeOf(learning)?.publish ? ["prototype"] : [];
    const leaving = [...names(learning, "round", "shared"), ...told];
    return refuses(policy, learning.release, manifest.privacy, signedBy, leaving);
  }

  /** Scores by a graph, with tensors of more parts of the state than those that rounds train. */
  async #scored(path: string, state: State, ...parts: string[]): Promise<Float32Array> {
    const { window, last } = this.bundle.config;
    let own: number[] | Window = recent(state);
    if (last) own = windowOf(own, last);
    if (window) own = this.parts.sessions!.windowBefore(state.facts.session, window, false);
    return this.model.scores(path, this.#dense(state, parts), own, await this.#tables(state));
  }

  /** What a graph computes of the session, and of the tensors as they are. */
  async #told(path: string, state: State, learning: boolean, tables: Tables): Promise<Floats> {
    const graph = await this.model.graph(path);
    const seen = this.parts.sessions!.windowBefore(state.facts.session, this.bundle.config.window!, learning);
    return graph.one({ ...this.#dense(state), ...(await windowFeeds(graph, seen, tables)) });
  }

  /** What a client trains on, of a session or a set. */
  async #work(round: number, phases: Phase[], state: State, tables: Tables): Promise<Work> {
    const [{ learning, bundle, parts }, { own, number, session, memory }] = [this, state.facts];
    checkWork(learning, Math.max(own.length, bundle.config.window ?? 0));
    if (learning.sessions) {
      const client = { number, had: this.#had(state), pool: this.#pool, items: bundle.manifest.item_count };
      const { teach } = learning.sessions;
      const taught = teach ? await this.#told(teach, state, true, tables) : null;
      return parts.sessions!.workOf(learning, phases, session, bundle.config.window!, round, client, tables, taught);
    }
    if (!own.length) throw new Refused("nothing to learn from: this device has no interactions yet");
    const { negatives, batch_size, seed } = learning;
    const sampler = new Sampler(own, this.#pool, negatives, batch_size, seed, BigInt(number));
    const scores = () => this.#scored(this.learning.score, state);
    const joined = memory ? await parts.replay!.joining(learning, memory, this.#pool, scores, round, number) : null;
    return workOfSet(sampler, tables, round, joined);
  }

  /** The dense tensors as a graph's inputs, with those of more `parts` of the state. */
  #dense(state: State, parts: string[] = []): Feeds {
    const out: Feeds = {};
    for (const part of ["shared", "private", ...parts]) {
      const place = part === "shared" ? part : "private";
      for (const [name, value] of state.part(part)) out[`${place}.${name}`] = value;
    }
    return out;
  }

  #tables(state: State) {
    return this.model.rows(state.part("table"), state.part("shared"), state.facts.round);
  }

  /** One change at a time: it is kept whole, or the state is what it was. */
  #change<T>(work: (state: State) => T | Promise<T>): Promise<T> {
    const turn = this.#turn.then(async () => {
      const state = this.state.copy();
      const found = await work(state);
      await writeState(this.store, state);
      this.state = state;
      return found;
    });
    this.#turn = turn.catch(reason);
    return turn as Promise<T>;
  }
}

/** What a graph of a set reads: items of this block, or else of those before. */
const recent = ({ facts }: State): number[] => (facts.own.length ? facts.own : (facts.past ?? []));

const now = (): number => Math.floor(Date.now() / 1000);

/** Refuses a bundle whose tensors, of these shapes and float32, take more than so many MB. */
function checkRoom(shapes: number[][], most = Infinity): void {
  const mb = shapes.reduce((sum, shape) => sum + product(shape) * 4e-6, 0);
  if (mb > most) throw new Refused(`the bundle's tensors take ${mb.toPrecision(3)} MB, more than maxTensorMb ${most}`);
}

function sound(dense: Dense): Dense {
  for (const { data } of dense.values())
    if (!finite(data)) throw new Refused("training has diverged: values are not finite; nothing was changed");
  return dense;
}

function first(bundle: Bundle, model: Model, { exchange }: Parts, user: string | null): State {
  const { manifest, config } = bundle;
  const [word] = crypto.getRandomValues(new BigUint64Array(1));
  const state = new State({
    bundle: manifest.bundle_id, publisher: bundle.signedBy, user, number: String(word >> 2n),
    round: config.learning?.round ?? 0, learned: null, release: null, begun: null, ledger: [],
    serial: manifest.serial, seconds: 0, own: [],
  });
  const [shared, own] = [bundle.tensors(config.shared), bundle.tensors(config.init)];
  for (const [name, zeros] of exchange?.nothingKept(config.learning!) ?? []) if (!own.has(name)) own.set(name, zeros);
  state.put("shared", shared);
  state.put("table", model.trained());
  for (const { name, shape, place, kind } of config.learning?.tensors ?? []) {
    const found = place === "shared" ? shared.get(name) : own.get(name);
    const fits = kind === "rows" || found?.shape.join() === shape.join();
    if (!fits) throw new Refused(
      `learning has ${name} as [${shape}], its files ${found ? `[${found.shape}]` : "none"}; export again`,
    );
  }
  state.put("private", own);
  return state;
}
