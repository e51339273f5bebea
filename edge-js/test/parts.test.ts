import { readFile } from "node:fs/promises";
import { join } from "node:path";
import * as runtime from "onnxruntime-node";
import { expect, test } from "vitest";
import { parseTensors } from "../src/arrays.js";
import { Bundle, Device, memoryStore, type Policy, type Runtime } from "../src/index.js";
import { windowOf } from "../src/model.js";
import { folder } from "../src/node.js";
import { extended } from "../src/sessions/index.js";
import { openEncoder } from "../src/text/index.js";
import { WordPieces } from "../src/text/word_pieces.js";

const KIT = join(import.meta.dirname, "../../conformance");
const some = (device: Device) => device.catalogue().slice(0, 3).map(({ id }) => id);
const open = (name: string, policy: Partial<Policy> = { unprotected: true }, store = memoryStore()) =>
  Device.open(folder(join(KIT, name)), store, { runtime: runtime as unknown as Runtime, policy });

test("a window is set to the right, and counts seconds from its first item", () => {
  expect(windowOf([5, 6, 7], 2, [10, 20, 40])).toEqual(
    { items: [6, 7], real: Float32Array.of(1, 1), times: Float32Array.of(0, 20) },
  );
  expect(windowOf([5], 3)).toEqual({ items: [0, 0, 5], real: Float32Array.of(0, 0, 1), times: new Float32Array(3) });
  expect(windowOf([], 2).real).toEqual(new Float32Array(2));
});

test("a session goes on until a pause, and keeps a window and a target", () => {
  const config = { window: 2, learning: { sessions: { gap_s: 60 } } } as Parameters<typeof extended>[4];
  const before = { items: [7], times: [100] };
  expect(extended(before, [8, 9, 4], [110, 200, 220], 0, config)).toEqual({ items: [9, 4], times: [200, 220] });
  expect(extended(before, [1, 2, 3], [100, 100, 100], 0, config).items).toEqual([1, 2, 3]);
  expect(extended(before, [8], null, 50, config).times).toEqual([100, 100]); // a clock that was put back
  expect(() => extended(before, [8], [99], 0, config)).toThrow("give them in order");
  expect(() => extended(before, [8], [], 0, config)).toThrow("0 times for 1 interactions");
  expect(() => extended(before, [8], [1e300], 0, config)).toThrow("whole seconds");
});

test("a session of fewer than two items teaches nothing, and may repeat itself", async () => {
  const device = await open("fcucr");
  const had = some(device);
  await expect(device.learn(had.slice(0, 1))).rejects.toThrow("fewer than two items");
  expect(device.status().interactions).toBe(0);
  await device.learn(had, [100, 110, 120]);
  await device.note([had[0]], [130]);
  const list = (await device.recommend(200)).items.map(({ id }) => id);
  expect(list).toHaveLength(device.catalogue().length);
  const before = await device.scores();
  await device.note(had.slice(1), [10_000_000, 10_000_001]);
  expect(await device.scores()).not.toEqual(before);
});

test("what is told of a session leaves as the owner allows, and a reply is of its shape", async () => {
  const strict = await open("fcucr", {});
  await expect(strict.prototype()).rejects.toThrow("policy unprotected");
  expect((await open("fcucr", { unprotected: true, tensors: ["item"] })).withheld()).toContain("would leave");
  const device = await open("fcucr");
  await device.note(some(device));
  const [told, learned] = [await device.prototype(), await device.prototype("learning")];
  expect(told).not.toEqual(learned);
  const before = await device.scores();
  await device.take(told.map((value) => value + 1));
  expect(await device.scores()).not.toEqual(before);
  for (const wrong of [told.subarray(1), told.map(() => NaN)])
    await expect(device.take(wrong)).rejects.toThrow("not of its shape");
  expect(parseTensors(await device.release()).metadata.release).toContain('"examples":2');
  await expect((await open("fedmf")).prototype()).rejects.toThrow("tells nothing of sessions");
});

test("a block that ended is replayed, kept, and its items are not listed again", async () => {
  const store = memoryStore();
  const [device, plain] = [await open("f3crec", undefined, store), await open("f3crec")];
  const had = some(device);
  await device.note(had);
  await device.nextBlock();
  expect((await device.recommend(200)).items.map(({ id }) => id).filter((id) => had.includes(id))).toEqual([]);
  await expect(device.learn()).rejects.toThrow("nothing to learn from");
  const again = await open("f3crec", undefined, store);
  expect(again.status()).toEqual(device.status());
  for (const one of [again, plain]) {
    await one.renumber("7");
    for (const place of [9, 10]) await one.learn([one.catalogue()[place].id]); // at first the model is as remembered
  }
  expect(await again.scores()).not.toEqual(await plain.scores());
  await expect((await open("fedmf")).nextBlock()).rejects.toThrow("replays nothing");
});

test("texts are read by what the bundle has, words or a transformer", async () => {
  for (const name of ["transfr", "transfr-pieces"]) {
    const encoder = await openEncoder(await Bundle.open(folder(join(KIT, name))), runtime as unknown as Runtime);
    const [one, two, none] =
      await Promise.all(["the silent sea", "the sea", " \t"].map((text) => encoder.encode(text)));
    expect(one.every(Number.isFinite)).toBe(true);
    expect(one).not.toEqual(two);
    expect(none.every((value) => value === 0)).toBe(true);
  }
  const bare = await Bundle.open(folder(join(KIT, "fedmf")));
  await expect(openEncoder(bare, runtime as unknown as Runtime)).rejects.toThrow("no text encoder");
});

test("a vocabulary of a million pieces and one more is refused, and a tokenizer of more than 16 MiB", async () => {
  const content = await readFile(join(KIT, "transfr-pieces/tokenizer.json"), "utf-8");
  const made = (more: string) => () => new WordPieces(
    new TextEncoder().encode(content.replace(/"vocab": ?\{/, `$&${more}`)), "it",
  );
  expect(made("")).not.toThrow();
  expect(made(Array.from({ length: 2 ** 20 }, (_, n) => `"${n}":5,`).join(""))).toThrow("too many fields");
  expect(made(" ".repeat(16 << 20))).toThrow("is longer than");
  expect(made(`"${"a".repeat(201)}":5,`)).toThrow("no text of 200 characters");
}, 30_000);
