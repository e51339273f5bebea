/** A runner of the conformance kit answers for this device: a question, an answer (docs/bundle-format.md). */

import type { InferenceSession } from "onnxruntime-common";
import type { Arr, Values } from "../src/arrays.js";
import { Bundle, type Files } from "../src/bundle.js";
import { Device } from "../src/device.js";
import { reason } from "../src/errors.js";
import type { Runtime } from "../src/graph.js";
import * as keyed from "../src/keyed.js";
import type { Policy } from "../src/policy.js";
import { changeOf, makeUpdate } from "../src/release.js";
import { hex, sha256 } from "../src/signature.js";
import { memoryStore } from "../src/store.js";
import { openEncoder } from "../src/text/index.js";

/** What a runner needs of where it runs. */
export interface Place {
  runtime: Runtime;
  files(bundle: string): Files;
  read(path: string): Promise<Uint8Array | null>;
}

type Question = Record<string, any>; // eslint-disable-line
type Answer = Record<string, unknown>;

const OPEN: Policy = {
  trust: "central", unprotected: true, epsilon: 1e300, delta: 0.5, leastNoise: 1e-300, largestClip: 1e300,
  releasesPerDay: 2 ** 31, leastCohort: 1, signed: false, tensors: null, sealed: false,
};

function packed(data: Values | BigUint64Array, shape: number[]): Answer {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return { dtype: data.constructor.name.replace("Big", "").replace("Array", "").toLowerCase(), shape, data: btoa(text) };
}
const arr = (one: Arr) => packed(one.data, one.shape);
const line = (values: Float32Array) => packed(values, [values.length]);
const whole = (values: number[], shape = [values.length]) => packed(BigInt64Array.from(values, BigInt), shape);

const ANSWERS: Record<string, (asked: Question, place: Place) => Answer | Promise<Answer>> = {
  draws(asked) {
    const base = keyed.key(BigInt(asked.seed), asked.purpose, ...asked.path);
    const keys = asked.clients.map((client: string) => keyed.bits(base, BigInt(client))) as bigint[];
    const index = Array.from({ length: asked.count }, (_, n) => n);
    const shape = [keys.length, asked.count];
    const each = <T>(draw: (key: bigint, n: number) => T) => keys.flatMap((key) => index.map((n) => draw(key, n)));
    return {
      key: String(base),
      keys: packed(BigUint64Array.from(keys), [keys.length]),
      bits: packed(BigUint64Array.from(each(keyed.bits)), shape),
      normal: packed(Float64Array.from(each(keyed.normal)), shape),
      integers: whole(each((key, n) => keyed.integer(key, n, asked.bound)), shape),
    };
  },
  async open(asked, place) {
    const { manifest, signedBy } = await Bundle.open(place.files(asked.bundle), { trusted: asked.trusted });
    return { bundle_id: manifest.bundle_id, method: manifest.method, signed_by: signedBy };
  },
  async examples(asked, place) {
    const device = await opened(asked, place);
    const { work } = await device.work(asked.round, phases(device, asked));
    const out: Answer = {};
    for (const phase of phases(device, asked)) {
      let number = 0;
      for (const step of work.steps(phase)) {
        const at = `${phase.name}/${++number}`;
        out[`${at}/items`] = whole(step.items);
        for (const [name, { data, shape }] of Object.entries(step.fed)) {
          if (name === "window.taught") continue; // computed, not drawn
          out[`${at}/${name}`] =
            data instanceof Float32Array ? packed(data, shape) : whole([...(data as number[])], shape);
        }
      }
    }
    return out;
  },
  async train(asked, place) {
    const { dense, rows, steps, loss } = await trained(await opened(asked, place), asked);
    const out: Answer = { steps, loss };
    for (const [name, value] of dense) out[`dense.${name}`] = arr(value);
    for (const [name, { items, values }] of rows) {
      out[`rows.${name}.items`] = whole(items);
      out[`rows.${name}.values`] = arr(values);
    }
    return out;
  },
  async release(asked, place) {
    const device = await opened(asked, place);
    const { shared, tables } = await device.work(asked.round);
    const found = await trained(device, asked);
    const change = changeOf(device.learning, shared, tables, found);
    const made =
      makeUpdate(device.learning, device.bundle.manifest.bundle_id, change, found.examples, asked.round, null);
    return { facts: made.facts, ...Object.fromEntries([...made.arrays].map(([name, value]) => [name, arr(value)])) };
  },
  async message(asked, place) {
    const device = await opened(asked, place);
    const { kept, message } = await device.after(await trained(device, asked), asked.round);
    const told = message ? arr(message) : line(await device.prototype("learning"));
    return { message: told, ...Object.fromEntries([...kept].map(
      ([name, value]) => [`kept.${name}`, arr(value)],
    )) };
  },
  async recommend(asked, place) {
    const device = await opened(asked, place);
    if (asked.learn) await device.learn();
    if (asked.delta) await device.apply((await place.read(asked.delta))!, await place.read(`${asked.delta}.sig.json`));
    if (asked.personal) await device.personalise();
    const [{ basis, items }, scores] = [await device.recommend(asked.k), await device.scores()];
    return { round: device.status().round, basis, top: items.map(({ id }) => id), scores: line(scores) };
  },
  async encode(asked, place) {
    const bundle = await Bundle.open(place.files(asked.bundle));
    const encoder = await openEncoder(bundle, place.runtime);
    const rows: number[] = [];
    for (const text of asked.texts as string[]) rows.push(...(await encoder.encode(text)));
    return { vectors: packed(Float32Array.from(rows), [asked.texts.length, rows.length / asked.texts.length]) };
  },
  async explain(asked, place) {
    const found = await (await opened(asked, place)).explain(asked.about);
    const weights = found.map(({ leans }) => leans.map(({ weight }) => weight));
    return { weights: packed(Float64Array.from(weights.flat()), [weights.length, weights[0].length]) };
  },
};

async function opened(asked: Question, place: Place): Promise<Device> {
  const device = await Device.open(place.files(asked.bundle), memoryStore(), { runtime: place.runtime, policy: OPEN });
  await device.renumber(asked.number);
  if (asked.earlier) {
    await device.note(asked.earlier);
    await device.nextBlock();
  }
  await device.note(asked.items, asked.times ?? null);
  if (asked.reply) await device.take(Float32Array.from(asked.reply as number[]));
  if (asked.practised) await device.learn();
  return device;
}

const phases = (device: Device, asked: Question) =>
  device.learning.phases.filter((one) => one.when === asked.when).map(
    (one) => ({ ...one, epochs: (asked.epochs as number | null) ?? one.epochs }),
  );

const trained =
  (device: Device, asked: Question) => device.train(phases(device, asked), asked.round, asked.steps ?? Infinity);

/** A runtime that makes one session of a graph, however often it is asked for: questions of a kit share their bundles. */
export function frugal(runtime: Runtime): Runtime {
  const known = new Map<string, Promise<InferenceSession>>();
  const create: Runtime["InferenceSession"]["create"] = async (content, options) => {
    const beside = (options?.externalData ?? []) as { path: string; data: Uint8Array }[];
    const digests = [content, ...beside.map(({ data }) => data)].map(async (one) => hex(await sha256(one)));
    const name = JSON.stringify([...(await Promise.all(digests)), ...beside.map(({ path }) => path)]);
    if (!known.has(name)) known.set(name, runtime.InferenceSession.create(content, options));
    return known.get(name)!;
  };
  return { InferenceSession: { create }, Tensor: runtime.Tensor };
}

/** The line that answers a question: its answer, why it is refused, or that it is not known. */
export async function answer(asked: Question, place: Place): Promise<Answer> {
  const found = Object.hasOwn(ANSWERS, asked.ask) ? ANSWERS[asked.ask] : null;
  if (!found) return { id: asked.id, unknown: asked.ask };
  try {
    return { id: asked.id, answer: await found(asked, place) };
  } catch (error) {
    return { id: asked.id, refused: reason(error) };
  }
}

const HAD = 20; // items that a device of the figures has had
const REPEATS = 30;

/** What a device costs where it runs, milliseconds; medians, but of what is done once. */
export async function figures(bundle: string, place: Place): Promise<Record<string, number>> {
  const timed = async (work: () => Promise<unknown>) => {
    const begun = performance.now();
    await work();
    return performance.now() - begun;
  };
  const median = async (work: () => Promise<unknown>) => {
    const found: number[] = [];
    for (let n = 0; n < REPEATS; n++) found.push(await timed(work));
    return found.sort((a, b) => a - b)[REPEATS / 2];
  };
  let device!: Device;
  const load = await timed(async () => {
    device = await Device.open(place.files(bundle), memoryStore(), { runtime: place.runtime, policy: OPEN });
  });
  await device.note(device.catalogue().slice(0, HAD).map(({ id }) => id));
  const round = device.learning.phases.filter((phase) => phase.when === "round");
  const { steps } = await device.train(round, 1);
  const personal = device.learning.phases.some((phase) => phase.when === "final");
  const first = await timed(async () => {
    if (personal) await device.personalise();
    await device.recommend(10);
  });
  const step = (await median(() => device.train(round, 1))) / steps;
  const found = { load, first, step, recommend: await median(() => device.recommend(10)) };
  if (!device.bundle.config.encoder) return found;
  const encoder = await openEncoder(device.bundle, place.runtime);
  const [{ title }] = device.catalogue();
  return { ...found, encode: await median(() => encoder.encode(title)) };
}
