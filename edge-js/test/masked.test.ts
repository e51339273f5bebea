/** A device in sums with two honest others, by a server that is honest too, or lies at one step. */

import { afterEach, expect, test } from "vitest";
import { memoryStore, type Device, type Policy } from "../src/index.js";
import { join, type Counts } from "../src/join/index.js";
import { hex } from "../src/signature.js";
import type { Keys } from "../src/join/sums/agreement.js";
import * as messages from "../src/join/sums/messages.js";
import { Participant } from "../src/join/sums/participant.js";
import { close, opened, reached, round, told, type Answer, type Way } from "./told.js";

const HAD = ["i0000003", "i0000042", "i0000010"];
const [SALT, BASE] = ["5a".repeat(16), "be".repeat(32)];
const OTHERS = [2, 3];
const STEPS = ["keys", "shares", "vector", "agree", "opening"];
afterEach(close);

type Told = any;
/** What is told in place of what an honest server says, by step. */
type Lies = Record<string, Change>;
type Change = (honest: Told, others: Others) => unknown;

const json = (content: Uint8Array) => JSON.parse(new TextDecoder().decode(content)) as Told;
const without = (from: Record<string, unknown>, name: number) =>
  Object.fromEntries(Object.entries(from).filter(([one]) => one !== String(name)));

/** Two devices beside this one, number 1, and what the server hands on between them. */
class Others {
  readonly parts = new Map<number, Participant>();
  readonly keys: Record<number, Keys> = {};
  readonly shares: Record<number, Map<number, Uint8Array>> = {};
  sent: Record<string, Uint8Array> = {};

  async begin(bundle: string, number: number): Promise<void> {
    const session = await messages.sessionOf({ number: 1, salt: SALT, base: BASE }, bundle, number);
    for (const n of OTHERS) this.parts.set(n, await Participant.of(session, n));
    for (const [n, part] of this.parts) this.keys[n] = part.keys;
  }

  get roster(): Record<number, string> {
    return Object.fromEntries(Object.entries(this.keys).map(([n, { sign }]) => [n, sign]));
  }

  /** What the server says when a step has ended. */
  async cameTo(step: string): Promise<Told> {
    if (step === "keys") {
      this.keys[1] = json(this.sent.keys) as Keys;
      return { threshold: 2, keys: without(this.keys, 1), roster: this.roster };
    }
    if (step === "shares") {
      for (const [n, part] of this.parts) {
        const near = { threshold: 2, keys: without(this.keys, n), roster: this.roster };
        this.shares[n] = await part.share(messages.neighboursOf(messages.written(near)));
      }
      this.shares[1] = messages.sharesOf(this.sent.shares);
      return { sealed: Object.fromEntries(OTHERS.map((n) => [n, hex(this.shares[n].get(1)!)])) };
    }
    if (step === "vector") {
      for (const [n, part] of this.parts) {
        const inbox = [1, ...OTHERS].filter((one) => one !== n).map((one) => [one, this.shares[one].get(n)!] as const);
        await part.masked(new Int32Array(1), new Map(inbox));
      }
      return { sent: [1, 2, 3], arrived: [1, 2, 3] };
    }
    const signatures: Record<number, string> = { 1: json(this.sent.agree).signature as string };
    for (const [n, part] of this.parts) signatures[n] = hex(await part.agree(new Set([1, 2, 3]), new Set([1, 2, 3])));
    return { signatures };
  }
}

interface Heard {
  counts: Counts;
  device: Device;
  others: Others;
  posted: string[];
  stands: string[];
}

interface How {
  promised: boolean;
  base: string;
  tasks: Answer[];
}

/** A device's life with a server that offers one round, in a sum, and then is over. */
async function life(lies: Lies = {}, policy: Partial<Policy> = {}, how: Partial<How> = {}): Promise<Heard> {
  const device = await opened("fedmf-noised", policy);
  if (how.promised === false) device.bundle.manifest.privacy = null;
  const [number, posted, stands] = [device.status().round + 1, [] as string[], [] as string[]];
  const others = new Others();
  await others.begin(device.bundle.manifest.bundle_id, number);
  const over: Answer = { status: 410, headers: { "Edgefr-Round": String(number - 1) }, body: "" };
  const tasks = how.tasks ?? [round("", number, { "Edgefr-Sum": `1 ${SALT} ${how.base ?? BASE}` })];
  const way: Way = async ({ method }, { pathname }, content) => {
    if (method === "POST") posted.push(pathname.slice(1));
    const step = pathname.split("/")[2] ?? "";
    if (pathname === "/task") return tasks.shift() ?? over;
    if (method === "POST" && step) {
      others.sent[step] = content;
      return { status: lies[`take ${step}`] ? 409 : 200, body: "" };
    }
    if (!step) return { status: 200, body: "taken" };
    const honest = await others.cameTo(step);
    const found = lies[step] ? lies[step](honest, others) : honest;
    return { status: 200, body: typeof found === "string" ? found : JSON.stringify(found) };
  };
  const counts = await join(device, await reached(await told(way)), HAD, (_, one) => stands.push(one));
  return { counts, device, others, posted, stands };
}

test("its update leaves under masks, and what opens the sum once all have signed", async () => {
  const { counts, device, others, posted, stands } = await life();
  expect(posted).toEqual(STEPS.map((step) => `sum/${step}`));
  expect(counts).toMatchObject({ taken: 1, late: 0, unsafe: 0, refused: null, stopped: null });
  expect(stands).toEqual(["waiting", "learning", "taken", "waiting", "over"]);
  const up = Object.values(others.sent).reduce((sum, one) => sum + one.length, 0);
  expect(counts.bytesUp).toBe(up);
  expect(counts.bytesDown).toBeGreaterThan(1000);
  const { shape } = device.learning.tensors.find(({ place }) => place === "shared")!;
  expect(others.sent.vector.length).toBe(4 * shape.reduce((a, b) => a * b));
  expect(device.status().masked).toEqual({ round: device.status().round + 1, left: true });
  expect(device.status().releases).toBe(1);
  const shown = json(others.sent.opening) as { own: object; pairs: object };
  expect([Object.keys(shown.own), shown.pairs]).toEqual([["2", "3"], {}]);
});

const NO_KEY = "00".repeat(32);
const ANOTHER = "ab".repeat(32);

/** Neighbours with other keys: of this device (1) or of a neighbour (2, 3), in part those of `others`. */
const withKeys = (more: (keys: Record<number, Keys>) => Record<number, Partial<Keys>>): Change => (honest, { keys }) => {
  const changed = Object.entries(more(keys)).map(([n, one]) => [n, { ...keys[Number(n)], ...one }]);
  return { ...honest, keys: { ...honest.keys, ...Object.fromEntries(changed) } };
};
const withRoster = (more: (keys: Record<number, Keys>) => Record<number, string>): Change =>
  (honest, { keys }) => ({ ...honest, roster: { ...honest.roster, ...more(keys) } });
const withoutOnRoster = (name: number): Change =>
  (honest) => ({ ...honest, roster: without(honest.roster as Record<string, unknown>, name) });
const withShares = (more: (sealed: Record<number, string>, others: Others) => Record<number, string>): Change =>
  (honest, others) => ({ sealed: { ...honest.sealed, ...more(honest.sealed as Record<number, string>, others) } });
const flipped = (sealed: string) => sealed.slice(0, -1) + (sealed.endsWith("0") ? "1" : "0");

const LIES: [what: string, step: string, lie: Change, why: RegExp][] = [
  ["a lower threshold", "keys", (honest) => ({ ...honest, threshold: 1 }), /2 neighbours and a threshold of 1 is refused: 2 must/],
  ["a higher threshold", "keys", (honest) => ({ ...honest, threshold: 3 }), /a threshold of 3 is refused: 2 must be/],
  ["itself as a neighbour", "keys", (honest, others) => {
    const near = withKeys(() => ({ 1: {} }))(honest, others) as object;
    return { ...near, threshold: 3 }; // which three neighbours ask for
  }, /3 neighbours and a threshold of 3 is refused/],
  ["a neighbour with its key", "keys", withKeys((keys) => ({ 3: { share: keys[1].share } })), /two devices in it have one key/],
  ["neighbours with one key", "keys", withKeys((keys) => ({ 3: { share: keys[2].share } })), /two devices in it have one key/],
  ["a roster without it", "keys", withoutOnRoster(1), /not that of their keys/],
  ["a roster without a neighbour", "keys", withoutOnRoster(3), /not that of their keys/],
  ["another's key for it", "keys", withRoster(() => ({ 1: ANOTHER })), /not that of their keys/],
  ["one key of two that sign", "keys", withRoster((keys) => ({ 4: keys[2].sign })), /not that of their keys/],
  ["a longer roster", "keys", withRoster(() => ({ 4: ANOTHER })), /of 4 devices 2 are neighbours of this one, and 3 must be/],
  ["a key to share by that is none", "keys", withKeys(() => ({ 2: { share: NO_KEY } })), /the key of device 2 is none/],
  ["a key to mask by that is none", "shares", withShares(() => ({})), /the key of device 2 is none/],
  ["too few shares", "shares", ({ sealed }) => ({ sealed: { 2: sealed[2] } }), /1 neighbours sent shares, and 2 are needed/],
  ["shares of nobody", "shares", withShares((sealed) => ({ 4: sealed[2] })), /3 neighbours sent shares, and 2 are needed/],
  ["one's shares as another's", "shares", withShares((sealed) => ({ 2: sealed[3] })), /device 2 did not send these shares/],
  ["another's shares", "shares", withShares((_, { shares }) => ({ 3: hex(shares[3].get(2)!) })), /device 3 did not send these/],
  ["its own shares", "shares", withShares((_, { shares }) => ({ 3: hex(shares[1].get(3)!) })), /device 3 did not send these/],
  ["shares with a changed bit", "shares", withShares((sealed) => ({ 3: flipped(sealed[3]) })), /device 3 did not send these/],
  ["a sum without it", "vector", () => ({ sent: [1, 2, 3], arrived: [2, 3] }), /not those whose shares came/],
  ["a vector without shares", "vector", () => ({ sent: [1, 2], arrived: [1, 2, 3] }), /not those whose shares came/],
  ["who is on no roster", "vector", () => ({ sent: [1, 2, 3, 4], arrived: [1, 2, 3] }), /not those whose shares came/],
  ["other neighbours", "vector", () => ({ sent: [1, 2], arrived: [1, 2] }), /not those whose shares came/],
  ["a sum of two", "vector", () => ({ sent: [1, 2, 3], arrived: [1, 2] }), /vectors of 1 neighbours arrived, and 2 are needed/],
  ["no signatures", "agree", () => ({ signatures: {} }), /1 of 3 devices were told that the same vectors arrived, and 3 must/],
  ["its own signature", "agree", ({ signatures: { 1: own, 2: two } }) => ({ signatures: { 1: own, 2: two } }), /2 of 3 devices/],
  ["one signature twice", "agree", ({ signatures: { 2: two } }) => ({ signatures: { 2: two, 3: two } }), /2 of 3 devices were told/],
  ["a stranger's", "agree", ({ signatures: { 2: two, 3: three } }) => ({ signatures: { 2: two, 4: three } }), /2 of 3 devices/],
];

test.each(LIES)("told of %s, it stays out of the sum and is there for the next round", async (what, step, lie, why) => {
  const masks = what === "a key to mask by that is none" && { keys: withKeys(() => ({ 2: { mask: NO_KEY } })) };
  const { counts, device, posted, stands } = await life({ [step]: lie, ...masks });
  expect(counts).toMatchObject({ taken: 0, late: 0, unsafe: 1, refused: expect.stringMatching(why) as string, stopped: null });
  expect(posted).toEqual(STEPS.slice(0, STEPS.indexOf(step) + 1).map((one) => `sum/${one}`));
  expect(stands).toEqual(["waiting", "learning", "unsafe", "waiting", "over"]);
  expect(device.status().masked!.left).toBe(posted.includes("sum/vector"));
});

test.each(["", "{}", '{"sealed":{}}', "[".repeat(200_000)])("an answer such as %.20j ends it", async (answer) => {
  await expect(life({ keys: () => answer })).rejects.toThrow("not a message of a secure sum");
});

test("numbers of a session that is of another bundle open nothing", async () => {
  const { counts, posted } = await life({}, {}, { base: "00".repeat(32) });
  expect(counts).toMatchObject({ unsafe: 1, refused: expect.stringContaining("did not send these shares") as string });
  expect(posted).toEqual(["sum/keys", "sum/shares"]);
});

test.each(STEPS)("a sum that goes on without it at %s is none of its rounds", async (step) => {
  const { counts, stands } = await life({ [`take ${step}`]: () => null });
  expect(counts).toMatchObject({ taken: 0, late: 1, unsafe: 0 });
  expect(stands).toContain("late");
});

test("without noise of its own it opens no sum of fewer than its policy asks for", async () => {
  const few = await life({}, { unprotected: true, leastCohort: 4 }, { promised: false });
  expect(few.counts.refused).toMatch(/this device sees 2 others in the sum of round \d+, and 3 are asked for/);
  expect(few.posted).toEqual(["sum/keys"]);
  const left = { vector: () => ({ sent: [1, 2, 3], arrived: [1, 2] }) };
  const gone = await life(left, { unprotected: true, leastCohort: 3 }, { promised: false });
  expect(gone.counts.refused).toMatch(/this device sees 1 others .* and 2 are asked for/);
  const enough = await life({}, { unprotected: true, leastCohort: 3 }, { promised: false });
  expect(enough.counts.taken).toBe(1);
});

test("an update that was made for a sum leaves in no other way, also of a device that comes back", async () => {
  const store = memoryStore();
  const device = await opened("fedmf-noised", {}, store);
  const number = device.status().round + 1;
  const made = await device.release(HAD, null, true);
  const again = await opened("fedmf-noised", {}, store);
  await expect(again.release()).rejects.toThrow("leaves under the masks of a secure sum alone");
  expect(await again.release([], null, true)).toEqual(made);
  const posted: string[] = [];
  const tasks = [round("", number), round("", number + 1)];
  const way: Way = ({ method }, { pathname }) => {
    if (method === "POST") posted.push(pathname);
    return tasks.shift() ?? { status: 204 };
  };
  const counts = await join(again, await reached(await told(way)));
  expect(counts.stopped).toContain("masks of a secure sum alone");
  expect(posted).toEqual([]);
  await again.leaveMasked(number);
  await expect(again.leaveMasked(number)).rejects.toThrow("has left in a secure sum");
  await expect((await opened("fedmf-noised", {}, store)).release()).rejects.toThrow("secure sum alone");
});

test("what was in a sum is in no other, and leaves no more in the clear though it was made to", async () => {
  const device = await opened("fedmf-noised");
  const number = device.status().round + 1;
  const made = await device.release(HAD);
  expect(await device.release([], null, true)).toEqual(made);
  expect(await device.release()).toEqual(made);
  await device.leaveMasked(number);
  await expect(device.release()).rejects.toThrow("secure sum alone");
  const posted: string[] = [];
  const tasks = [round("", number, { "Edgefr-Sum": `1 ${SALT}` })];
  const way: Way = ({ method }, { pathname }) => {
    if (method === "POST") posted.push(pathname);
    return tasks.shift() ?? { status: 410, headers: { "Edgefr-Round": String(number - 1) } };
  };
  expect(await join(device, await reached(await told(way)))).toMatchObject({ late: 1, taken: 0 });
  expect(posted).toEqual([]);
});

test("with sealed in its policy nothing leaves in the clear", async () => {
  const { counts, posted } = await life({}, { sealed: true });
  expect([counts.taken, posted.length]).toEqual([1, 5]);
  const device = await opened("fedmf-noised", { sealed: true });
  await expect(device.release(HAD)).rejects.toThrow("secure sum alone");
  expect(device.status().releases).toBe(0);
  const plain = await life({}, { sealed: true }, { tasks: [round("", device.status().round + 1)] });
  expect([plain.counts.stopped, plain.posted]).toEqual([expect.stringContaining("secure sum alone"), []]);
});
