import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as runtime from "onnxruntime-node";
import { expect, test } from "vitest";
import { parseTensors } from "../src/arrays.js";
import { Bundle, Device, memoryStore, type Policy, type Runtime, type Store } from "../src/index.js";
import { fileStore, folder } from "../src/node.js";
import { gaussianEpsilon } from "../src/policy.js";

const KIT = join(import.meta.dirname, "../../conformance");
const OPEN: Partial<Policy> = { unprotected: true };
const HAD = ["i0000003", "i0000042", "i0000010"];
const open = (name: string, store: Store, policy: Partial<Policy> = OPEN) =>
  Device.open(folder(join(KIT, name)), store, { runtime: runtime as unknown as Runtime, policy });
const update = async (name: string) => {
  const path = join(KIT, "updates", `${name}.safetensors`);
  return [new Uint8Array(await readFile(path)), new Uint8Array(await readFile(`${path}.sig.json`))] as const;
};

test("a device learns, recommends what was not had, and its state survives", async () => {
  const path = join(await mkdtemp(join(tmpdir(), "edgefr-")), "state");
  const device = await open("fedmf", fileStore(path));
  expect((await device.recommend(3)).basis).toBe("popular");
  await device.learn(HAD);
  const before = await device.recommend(10);
  expect(before.basis).toBe("model");
  expect(before.items.filter(({ id }) => HAD.includes(id))).toEqual([]);
  const again = await open("fedmf", fileStore(path));
  expect(await again.recommend(10)).toEqual(before);
  expect(again.status()).toEqual(device.status());
});

test("a store that fails at any write leaves the state before, whole", async () => {
  for (let writes = 1; writes <= 6; writes++) {
    const kept = memoryStore();
    let left = writes;
    const dying: Store =
      { ...kept, write: (content) => (left-- > 0 ? kept.write(content) : Promise.reject(new Error("closed"))) };
    const device = await open("fedmf-noised", dying, {});
    const work = async () => {
      await device.learn(HAD);
      await device.release(["i0000001"]);
      await device.apply(...(await update("fedmf-noised")));
    };
    await work().catch((error: Error) => expect(error.message).toBe("closed"));
    const after = await open("fedmf-noised", kept, {});
    const { round, releases, waitingRelease } = after.status();
    expect([2, 3]).toContain(round);
    if (waitingRelease !== null) expect(releases).toBe(1); // no release without its charge
    if (round === 2) expect((await after.release(HAD)).length).toBeGreaterThan(0);
    expect(after.status().releases).toBeLessThanOrEqual(1);
  }
});

test("nothing leaves that nothing is promised for, and no second update of a round", async () => {
  const strict = await open("fedmf", memoryStore(), {});
  await expect(strict.release(HAD)).rejects.toThrow("policy unprotected");
  const device = await open("fedmf", memoryStore());
  const first = await device.release(HAD);
  expect(await device.release()).toEqual(first);
  expect(device.status().releases).toBe(1);
  expect(device.status().epsilon).toBe(Infinity);
});

test("a noised release is whole steps of noise on a clipped update, and is counted", async () => {
  const [one, two] = [await open("fedmf-noised", memoryStore(), {}), await open("fedmf-noised", memoryStore(), {})];
  const [a, b] =
    await Promise.all([one, two].map(async (device) => parseTensors(await device.release(HAD)).tensors.get("update")!));
  expect(a.data).toBeInstanceOf(Int32Array);
  expect(a.shape).toEqual([480]);
  expect(a.data).not.toEqual(b.data);
  const promise = one.bundle.manifest.privacy!;
  expect(one.status().epsilon).toBeLessThanOrEqual(promise.epsilon);
  const tight = await open("fedmf-noised", memoryStore(), { epsilon: one.status().epsilon * 0.99 });
  await expect(tight.release(HAD)).rejects.toThrow("policy epsilon");
});

test("without what draws its noise nothing leaves, also where nothing was learned", async () => {
  const device = await open("fedmf-noised", memoryStore(), {});
  Object.assign(device["local"], { parts: { ...device["local"].parts, noise: null } });
  await expect(device.release(HAD)).rejects.toThrow("exactNoise");
  await expect(device.release()).rejects.toThrow("exactNoise");
});

test("a promised round ends in a release where there is nothing to learn from", async () => {
  const made = await (await open("fedmf-noised", memoryStore(), {})).release();
  expect(parseTensors(made).tensors.get("update")!.shape).toEqual([480]);
});

test("stale, unsigned and foreign updates are refused, and change nothing", async () => {
  const device = await open("fedmf", memoryStore());
  await device.learn(HAD);
  const [content, signature] = await update("fedmf");
  await expect(device.apply(content, null)).rejects.toThrow("not signed");
  await expect(device.apply(...(await update("fedncf")))).rejects.toThrow("not trusted");
  await device.apply(content, signature);
  const after = device.status();
  await expect(device.apply(content, signature)).rejects.toThrow("this device is at 3");
  expect(device.status()).toEqual(after);
});

test("a damaged state is refused, and so is that of another bundle", async () => {
  const store = memoryStore();
  await (await open("fedmf", store)).learn(HAD);
  await expect(open("fedncf", store)).rejects.toThrow("not trusted");
  const content = (await store.read())!;
  content[content.length - 1] ^= 1;
  await store.write(content);
  await expect(open("fedmf", store)).rejects.toThrow("damaged");
});

test("FedCAR's message bears noise, and says what a list leans on", async () => {
  const device = await open("fedcar", memoryStore());
  const tensors = parseTensors(await device.release(HAD)).tensors;
  expect(tensors.get("prototype")!.data.every((value) => Number.isFinite(value))).toBe(true);
  const [{ leans }] = await device.explain(["i0000001"]);
  expect(leans.map(({ item }) => item)).toEqual(HAD);
});

test("a bundle that expired, or is older than one before it, is refused", async () => {
  const files = folder(join(KIT, "fedmf"));
  const { serial } = (await Bundle.open(files)).manifest;
  await expect(Bundle.open(files, { newest: serial + 1 })).rejects.toThrow("older");
});

test("epsilon of a Gaussian is the closed form's", () => {
  expect(gaussianEpsilon(1, 1e-5)).toBeCloseTo(4.377178, 4); // privacy.accounting.gaussian_epsilon(1.0, 1, 1e-5)
});
