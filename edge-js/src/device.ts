/** A device learns from its own interactions, releases updates, takes the server's, and recommends. */

import { finite, floats, parseNpy, product, type Floats } from "./arrays.js";
import { Bundle, parsed, type Files, type Terms } from "./bundle.js";
import idsSchema from "../../docs/schemas/ids.json" with { type: "json" };
import { trained as names, type Learning, type Phase } from "./config.js";
import { readDelta, type Delta } from "./delta.js";
import { reason, Refused, Withheld } from "./errors.js";
import type { Runtime } from "./graph.js";
import * as keyed from "./keyed.js";
import { checkLearning, checkWork } from "./learning_check.js";
import { Model, windowFeeds } from "./model.js";
import { entryOf, exceeds, refuses, spent, STRICT, type Policy } from "./policy.js";
import { changeOf, makeUpdate, noChange, noised, takeable, toBytes, type Update } from "./release.js";
import { Sampler } from "./sampling.js";
import { checkSignature } from "./signature.js";
import { readState, State, writeState } from "./state.js";
import type { Store } from "./store.js";
import { newestFeeds, placed, rowsOf, train, withTrained, type Dense, type Trained, type Work } from "./training.js";

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
    private readonly ids: { ids: string[]; titles: string[]; offered?: string[] },
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
    if (config.window !== null)
      throw new Refused("this device does not read sessions yet; use a bundle of another method");
    if (before && before.facts.bundle !== bundle.manifest.bundle_id)
      throw new Refused("the state is of another bundle; delete it, or open it with that one");
    if (config.learning) checkLearning(config.learning, bundle.manifest.item_count);
    const tables = config.tables.map(({ width }) => [width, bundle.manifest.item_count]);
    checkRoom([...tables, ...(config.learning?.tensors ?? []).map((one) => one.shape)], options.maxTensorMb);
    const model = new Model(bundle, options.runtime);
    const ids = parsed<Device["ids"]>(bundle.file(bundle.manifest.ids_file), idsSchema, bundle.manifest.ids_file);
    const state = before ?? first(bundle, model, options.user ?? null);
    const device = new Device(bundle, store, model, ids, state, options.policy ?? {}, options.maxSeconds);
    device.state.facts.serial = bundle.manifest.serial;
    device.state.facts.seconds =
      Math.max(device.state.facts.seconds, Math.floor((options.now ?? new Date()).getTime() / 1000));
    await writeState(store, device.state);
    return device;
  }

  get learning(): Learning {
    const found = this.bundle.config.learning;
    if (!found) throw new Refused("the bundle only recommends: it was exported without step graphs");
    if (found.replay || found.sessions)
      throw new Refused("this device does not learn by this method yet: it replays, or reads sessions");
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
    const { manifest, signedBy } = this.bundle;
    const { policy, learning } = this;
    const unfit = refuses(policy, learning.release, manifest.privacy, signedBy, names(learning, "round", "shared"));
    return unfit ?? exceeds(this.policy, this.state.facts.ledger, entryOf(manifest.privacy, 0, now()));
  }

  /** Adds interactions (ids) without learning from them yet. */
  note(items: string[]): Promise<void> {
    return this.#change((state) => this.#add(state, items));
  }

  /** Adds interactions and does the local work of the next round; nothing leaves the device. */
  learn(items: string[] = []): Promise<void> {
    return this.#change(async (state) => {
      this.#add(state, items);
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
  async release(items: string[] = [], masked = false): Promise<Uint8Array> {
    let made: Update | null = null;
    await this.#change(async (state) => {
      this.#add(state, items);
      const { facts } = state;
      const round = facts.round + 1;
      const begun = facts.learned === round || facts.begun === round;
      const hidden = this.policy.sealed || (begun && facts.masked?.round === round);
      if (hidden && !masked)
        throw new Withheld(`the update of round ${round} leaves under the masks of a secure sum alone`);
      if (masked && facts.learned !== round) facts.masked = { round, left: false };
      if (facts.learned === round)
        return void (made = { facts: facts.release!, arrays: new Map(state.part("outbox")) });
      made = await this.#released(state, round);
      facts.learned = round;
      facts.release = made.facts;
      facts.begun = null;
      state.drop("outbox");
      state.put("outbox", made.arrays);
    });
    return toBytes(made!);
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
      if (reply) state.put("private", this.#reply(reply, state));
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
    const [state, personal] = [this.state, this.state.part("personal")];
    const final = personal.size > 0 || !config.learning;
    const anew = !final && config.learning!.tensors.some((one) => one.anew);
    if (anew) throw new Refused("this method keeps nothing of a user from round to round: personalise first");
    const own = new Map([...state.part("shared"), ...state.part("private"), ...(final ? personal : [])]);
    const tables = await this.#tables(state);
    return this.model.scores(final ? config.score : config.learning!.score, this.#placed(own), state.facts.own, tables);
  }

  /** The k best items that the user has not had, best first; ties in the catalogue's order. */
  async recommend(k: number): Promise<Recommendations> {
    if (!Number.isInteger(k) || k < 1) throw new Refused(`k must be a whole number of at least 1, got ${k}`);
    const had = new Set(this.state.facts.own);
    const left = this.#pool.filter((item) => !had.has(item));
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
    const shown = order.filter((item) => this.#offered.has(item) && !had.has(item)).slice(0, k);
    return { basis: start && shown.length ? start.basis : "none", items: shown.map((item) => named(item, null)) };
  }

  /** What items lean on among those that the user had last, by the method's own weights, which sum to 1. */
  async explain(items: string[]): Promise<{ item: string; leans: { item: string; weight: number }[] }[]> {
    const { explain, last } = this.bundle.config;
    const [{ state }, { own }] = [this, this.state.facts];
    if (!explain || !last)
      throw new Refused(`${this.bundle.manifest.method} does not say what a recommendation leans on`);
    if (!own.length) throw new Refused("nothing to explain from: its user has had no items yet");
    const [graph, tables] = [await this.model.graph(explain), await this.#tables(state)];
    const dense = this.#placed(new Map(["shared", "private", "personal"].flatMap((one) => [...state.part(one)])));
    const asked = items.map((id) => this.number(id));
    const past = await windowFeeds(graph, own, last, tables);
    const { data } = await graph.one({ ...dense, ...past, ...(await rowsOf(graph, "items", asked, tables)) });
    const some = own.slice(-last);
    return items.map((item, row) => {
      const weights = [...data.subarray(row * last + last - some.length, (row + 1) * last)];
      const shares = Math.abs(weights.reduce((a, b) => a + b, 0) - 1) <= 1e-3 && weights.every((one) => one >= 0);
      if (!shares) throw new Refused(`${explain} gives weights that are no shares; export again`);
      return { item, leans: some.map((had, n) => ({ item: this.ids.ids[had], weight: weights[n] })) };
    });
  }

  /** The user's own items that are nearest to an item by the model's rows, with their cosines: alike, not a cause. */
  async nearest(id: string, k = 3): Promise<{ item: string; title: string; cosine: number }[]> {
    const item = this.number(id);
    const had = this.state.facts.own.filter((one) => one !== item);
    if (!had.length) throw new Refused("nothing to explain from: its user has had no other items yet");
    const rows = await this.model.compared(await this.#tables(this.state), [item, ...had]);
    const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, n) => sum + value * b[n], 0);
    const norms = rows.map((row) => Math.sqrt(dot(row, row)) || 1);
    const cosines = had.map((_, n) => dot(rows[0], rows[n + 1]) / norms[0] / norms[n + 1]);
    const best = had.map((_, n) => n).sort((a, b) => cosines[b] - cosines[a] || had[a] - had[b]).slice(0, k);
    return best.map((n) => ({ item: this.ids.ids[had[n]], title: this.ids.titles[had[n]], cosine: cosines[n] }));
  }

  /** Ids and titles of all items that may be recommended. */
  catalogue(): { id: string; title: string; had: boolean }[] {
    const own = new Set(this.state.facts.own);
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
    round: number, state = this.state,
  ): Promise<{ work: Work; dense: Dense; shared: Map<string, Floats>; tables: Map<string, Floats> }> {
    const { learning } = this;
    const { own, number } = state.facts;
    if (!own.length) throw new Refused("nothing to learn from: this device has no interactions yet");
    checkWork(learning, own.length);
    const { negatives, batch_size, seed: keys } = learning;
    const sampler = new Sampler(own, this.#pool, negatives, batch_size, keys, BigInt(number));
    const dense: Dense = new Map([...state.part("shared"), ...state.part("private")]);
    const seed = keyed.key(learning.seed, "private tensors made anew", round);
    for (const { name, shape, anew } of learning.tensors) {
      if (!anew) continue;
      const [made, key] = [floats(shape), keyed.bits(keyed.key(seed, anew.purpose), BigInt(number))];
      made.data.forEach((_, n) => (made.data[n] = keyed.normal(key, n) * anew.scale));
      dense.set(name, made);
    }
    const tables = await this.#tables(state);
    return { work: { sampler, tables, round }, dense, shared: state.part("shared"), tables: state.part("table") };
  }

  /** Trains phases from the state as it is; nothing is kept. */
  async train(phases: Phase[], round: number, most = Infinity, state = this.state): Promise<Trained> {
    const [{ work, dense }, until] = [await this.work(round, state), performance.now() + 1000 * this.maxSeconds];
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
    const how = this.learning.messages;
    if (!how) return { kept: new Map(), message: null };
    const { work, dense } = await this.work(round, state);
    const now: Dense = new Map([...dense, ...found.dense]);
    const kept: Dense = new Map(Object.entries(how.keeps).map(([name, source]) => [name, now.get(source)!]));
    for (const name of how.marks) {
      const { shape } = this.learning.tensors.find((one) => one.name === name)!;
      kept.set(name, floats(shape, floats(shape).data.fill(1)));
    }
    if (!how.publish || how.order !== "trained") return { kept, message: null };
    const [graph, tables] = [await this.model.graph(how.publish), withTrained(work.tables, found)];
    const message =
      await graph.one({ ...placed(now, this.learning), ...(await newestFeeds(graph, work.sampler.own, tables)) });
    return { kept, message };
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
      const told = message && noised(message, learning.messages?.sender_noise ?? 0);
      return makeUpdate(learning, bundle.manifest.bundle_id, change, on.facts.own.length, round, true, told);
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

  /** A reply as the private tensor that it is kept as, with keyed noise. */
  #reply(reply: Float32Array, state: State): Dense {
    const { learning } = this;
    const how = learning.messages;
    const record = learning.tensors.find((one) => one.name === how?.reply);
    if (!how || !record) throw new Refused("this bundle's method takes no replies of the server");
    const made = floats(record.shape);
    if (reply.length !== made.data.length || !takeable(floats(record.shape, reply)))
      throw new Refused("the reply is not of its shape, or too long");
    const { round, number } = state.facts;
    const key = keyed.bits(keyed.key(learning.seed, "received noise", round + 1), BigInt(number));
    const noise = (n: number) => (how.receiver_noise ? Math.fround(how.receiver_noise * keyed.normal(key, n)) : 0);
    reply.forEach((value, n) => (made.data[n] = value + noise(n)));
    return new Map([[record.name, made]]);
  }

  #add(state: State, items: string[]): void {
    const added = items.map((id) => this.number(id));
    state.facts.own = [...new Set([...state.facts.own, ...added])];
  }

  #placed(dense: Dense) {
    const learning = this.bundle.config.learning;
    const own = new Set([...this.state.part("private").keys(), ...this.state.part("personal").keys()]);
    if (learning) return placed(dense, learning);
    const place = (name: string) => (own.has(name) ? "private" : "shared");
    return Object.fromEntries([...dense].map(([name, value]) => [`${place(name)}.${name}`, value]));
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

function first(bundle: Bundle, model: Model, user: string | null): State {
  const { manifest, config } = bundle;
  const [word] = crypto.getRandomValues(new BigUint64Array(1));
  const state = new State({
    bundle: manifest.bundle_id, publisher: bundle.signedBy, user, number: String(word >> 2n),
    round: config.learning?.round ?? 0, learned: null, release: null, begun: null, ledger: [],
    serial: manifest.serial, seconds: 0, own: [],
  });
  const [shared, own] = [bundle.tensors(config.shared), bundle.tensors(config.init)];
  const made = config.learning?.messages;
  for (const name of made ? [...Object.keys(made.keeps), ...made.marks] : []) {
    const record = config.learning!.tensors.find((one) => one.name === name);
    if (record && !own.has(name)) own.set(name, floats(record.shape)); // nothing is kept of a round yet
  }
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
