/** A device learns from its own interactions, releases updates, takes the server's, and recommends. */

import { floats, parseNpy, product } from "./arrays.js";
import { Bundle, parsed, type Files, type Terms } from "./bundle.js";
import idsSchema from "../../docs/schemas/ids.json" with { type: "json" };
import { exchangeOf, trained as names, type Learning, type Phase } from "./config.js";
import { readDelta, type Delta } from "./delta.js";
import { reason, Refused, Withheld } from "./errors.js";
import type { Runtime } from "./graph.js";
import { checkLearning } from "./learning_check.js";
import { everything, LocalWork, recent, sound } from "./local_work.js";
import { Model } from "./model.js";
import { partsOf, type Parts } from "./parts.js";
import { entryOf, exceeds, refuses, spent, STRICT, type Policy } from "./policy.js";
import { changeOf, makeUpdate, noChange, toBytes, type Draw, type Update } from "./release.js";
import { checkSignature } from "./signature.js";
import { firstState, readState, writeState, type State } from "./state.js";
import type { Store } from "./store.js";
import type { Trained } from "./training.js";

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
  private readonly local: LocalWork;
  readonly #offered: Set<number>;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly bundle: Bundle, private readonly store: Store, model: Model, parts: Parts,
    private readonly ids: { ids: string[]; titles: string[]; offered?: string[] }, private state: State,
    policy: Partial<Policy>, maxSeconds = Infinity,
  ) {
    this.policy = { ...STRICT, ...policy };
    this.#numbers = new Map(ids.ids.map((id, n) => [id, n]));
    const counts = [this.#numbers.size, ids.ids.length, ids.titles.length];
    if (counts.some((count) => count !== bundle.manifest.item_count))
      throw new Refused("ids repeat, or are not as many as the items");
    const offered = ids.offered?.map((id) => this.number(id)).sort((a, b) => a - b);
    const pool = offered ?? ids.ids.map((_, n) => n);
    this.local = new LocalWork(bundle, model, parts, pool, maxSeconds);
    this.#offered = new Set(pool);
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
    const state = before ?? firstState(bundle, model, parts, options.user ?? null);
    const device = new Device(bundle, store, model, parts, ids, state, options.policy ?? {}, options.maxSeconds);
    device.state.facts.serial = bundle.manifest.serial;
    device.state.facts.seconds =
      Math.max(device.state.facts.seconds, Math.floor((options.now ?? new Date()).getTime() / 1000));
    await writeState(store, device.state);
    return device;
  }

  get learning(): Learning {
    return this.local.learning;
  }

  /** What noises an update: where the bundle says that it happens here, there is no update without it. */
  get draw(): Draw {
    return this.learning.release.noised === "here" ? this.local.parts.noise!.exactNoise : null;
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
      await this.local.round(state);
    });
  }

  /** Trains locally after the rounds (the program's final phases); nothing leaves the device. */
  personalise(items: string[] = []): Promise<void> {
    return this.#change(async (state) => {
      this.#add(state, items);
      const work = await this.local.trainAll(state, "final", state.facts.round + 1);
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
      const [{ local, learning }, { replay }] = [this, this.local.parts];
      if (!replay) throw new Refused("the bundle has no blocks: its strategy replays nothing");
      await replay.endBlock(learning, state.facts, local.pool, () => local.scored(state, learning.score));
    });
  }

  /** What is told the server of the session as it is, to have a reply: of all of it, or of what is learned from. */
  async prototype(before: "learning" | "recommending" = "recommending"): Promise<Float32Array> {
    const how = this.learning.sessions;
    if (!how?.publish) throw new Refused("the bundle tells nothing of sessions");
    const why = this.#unfit();
    if (why) throw new Withheld(`nothing leaves this device: ${why}`);
    return (await this.local.told(this.state, how.publish, before === "learning")).data;
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
      const tables = base ? this.local.model.trained() : state.part("table");
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
    const { local } = this;
    return final ? local.scored(state, config.score, "personal") : local.scored(state, config.learning!.score);
  }

  /** The k best items that the user has not had, best first; ties in the catalogue's order. */
  async recommend(k: number): Promise<Recommendations> {
    if (!Number.isInteger(k) || k < 1) throw new Refused(`k must be a whole number of at least 1, got ${k}`);
    const had = new Set(everything(this.state));
    const again = this.local.parts.sessions !== null; // a session may repeat itself
    const left = this.local.pool.filter((item) => again || !had.has(item));
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
    const [{ leaning }, { state, ids, local }] = [await import("./explain/index.js"), this];
    const dense = local.dense(state, ["personal"]);
    const asked = items.map((id) => this.number(id));
    const { had, weights } = await leaning(local.model, recent(state), asked, dense, await local.tables(state));
    const leans = (row: number[]) => had.map((one, n) => ({ item: ids.ids[one], weight: row[n] }));
    return items.map((item, n) => ({ item, leans: leans(weights[n]) }));
  }

  /** The user's own items that are nearest to an item by the model's rows, with their cosines: alike, not a cause. */
  async nearest(id: string, k = 3): Promise<{ item: string; title: string; cosine: number }[]> {
    const [{ alike }, { state, ids, local }] = [await import("./explain/index.js"), this];
    const item = this.number(id);
    const had = everything(state).filter((one) => one !== item);
    const found = await alike(local.model, await local.tables(state), item, had, k);
    return found.map(({ item: one, cosine }) => ({ item: ids.ids[one], title: ids.titles[one], cosine }));
  }

  /** Ids and titles of all items that may be recommended. */
  catalogue(): { id: string; title: string; had: boolean }[] {
    const own = new Set(everything(this.state));
    const { ids, titles } = this.ids;
    return this.local.pool.map((item) => ({ id: ids[item], title: titles[item], had: own.has(item) }));
  }

  /** The number of an item in the catalogue. */
  number(id: string): number {
    const found = this.#numbers.get(id);
    if (found === undefined) throw new Refused(`unknown item ${JSON.stringify(id.slice(0, 100))}`);
    return found;
  }

  /** What a round trains on, and from where: the conformance kit asks for these. */
  work(round: number, phases = this.learning.phases) {
    return this.local.work(this.state, round, phases);
  }

  /** Trains phases from the state as it is; nothing is kept. */
  train(phases: Phase[], round: number, most = Infinity): Promise<Trained> {
    return this.local.train(this.state, phases, round, most);
  }

  /** What a round would keep beside what it trains, and its message, without noise. */
  after(found: Trained, round: number) {
    return this.local.after(this.state, found, round);
  }

  /** Keys the draws of this device by another number, before it has learned: for comparisons with other devices. */
  renumber(number: string): Promise<void> {
    return this.#change((state) => void (state.facts.number = number));
  }

  /** A round that was charged ends in a release whatever becomes of training: a missing one would tell a bit. */
  async #released(state: State, round: number): Promise<Update> {
    const [{ learning, bundle }, { facts }] = [this, state];
    const none = () => makeUpdate(learning, bundle.manifest.bundle_id, noChange(learning), 0, round, this.draw);
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
      const { found, message } = await this.local.round(on);
      const change = changeOf(learning, before.shared, before.tables, found);
      const told = message && this.local.parts.exchange!.noised(message, exchangeOf(learning)!);
      return makeUpdate(learning, bundle.manifest.bundle_id, change, found.examples, round, this.draw, told);
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
    const { exchange } = this.local.parts;
    if (!exchange) throw new Refused("this bundle's method takes no replies of the server");
    state.put("private", exchange.replied(this.learning, reply, state.facts.round, state.facts.number));
  }

  #add(state: State, items: string[], times: number[] | null = null): void {
    const [added, { facts }] = [items.map((id) => this.number(id)), state];
    facts.own = [...new Set([...facts.own, ...added])];
    facts.session = this.local.parts.sessions?.extended(facts.session, added, times, now(), this.bundle.config);
  }

  /** Why nothing of this bundle's learning may leave the device by its policy alone. */
  #unfit(): string | null {
    const [{ learning, policy }, { manifest, signedBy }] = [this, this.bundle];
    const told = exchangeOf(learning)?.publish ? ["prototype"] : [];
    const leaving = [...names(learning, "round", "shared"), ...told];
    return refuses(policy, learning.release, manifest.privacy, signedBy, leaving);
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

const now = (): number => Math.floor(Date.now() / 1000);

/** Refuses a bundle whose tensors, of these shapes and float32, take more than so many MB. */
function checkRoom(shapes: number[][], most = Infinity): void {
  const mb = shapes.reduce((sum, shape) => sum + product(shape) * 4e-6, 0);
  if (mb > most) throw new Refused(`the bundle's tensors take ${mb.toPrecision(3)} MB, more than maxTensorMb ${most}`);
}
