import { join } from "node:path";
import * as runtime from "onnxruntime-node";
import { expect, test } from "vitest";
import { Device, memoryStore, type Options } from "../src/index.js";
import { folder } from "../src/node.js";
import { kept } from "../src/worker/index.js";

const KIT = join(import.meta.dirname, "../../conformance");
const HAD = ["i0000003", "i0000042", "i0000010"];
const open = (name: string, store = memoryStore(), more: Partial<Options> = {}) => Device.open(
  folder(join(KIT, name)), store, { runtime: runtime as unknown as Options["runtime"], policy: { unprotected: true }, ...more },
);

test("training stops at its limit of time, says so, and the next one is whole", async () => {
  const store = memoryStore();
  const [short, long] = [await open("fedmf", store, { maxSeconds: 0 }), await open("fedmf")];
  await short.learn(HAD);
  await long.learn(HAD);
  expect([short.status().stopped, long.status().stopped]).toEqual(["time", null]);
  expect(await short.scores()).not.toEqual(await long.scores());
  const again = await open("fedmf", store, { maxSeconds: 60 });
  expect(again.status()).toMatchObject({ stopped: "time", interactions: 3 });
  await again.learn();
  expect(again.status().stopped).toBeNull();
});

test("a round that was cut short leaves as any other: charged once, clipped and noised, of the same size", async () => {
  const [short, long] = await Promise.all([0, 60].map((maxSeconds) => open("fedmf-noised", memoryStore(), { maxSeconds })));
  const [cut, whole] = [await short.release(HAD), await long.release(HAD)];
  expect(cut.length).toBe(whole.length);
  expect(short.status()).toMatchObject({ stopped: "time", releases: 1, waitingRelease: 3 });
});

test("a bundle whose tensors take more than is allowed is refused before a runtime has any", async () => {
  const most = { maxTensorMb: 0.001 };
  const untouched = { InferenceSession: { create: () => expect.fail("the runtime was asked") }, Tensor: Object };
  const more = { ...most, runtime: untouched as unknown as Options["runtime"] };
  await expect(open("fedmf", memoryStore(), more)).rejects.toThrow(/^the bundle's tensors take 0\.\d+ MB, more than maxTensorMb 0\.001$/);
  await open("fedmf", memoryStore(), { maxTensorMb: 1 });
});

test("a bundle that was kept opens without its server, and one that was changed there is refused", async () => {
  const [bundles, states, files] = [memoryStore(), memoryStore(), folder(join(KIT, "fedmf"))];
  const options = { runtime: runtime as unknown as Options["runtime"] };
  const first = await kept(bundles, files);
  const bundle = await Device.open(first.files, states, options);
  await first.keep();
  const away = { list: () => Promise.reject(new Error("away")), read: () => Promise.reject(new Error("away")) };
  const again = await kept(bundles, away);
  const device = await Device.open(again.files, states, options);
  await again.keep();
  expect(device.status()).toEqual(bundle.status());
  const content = (await bundles.read())!;
  content[content.length - 9] ^= 1;
  await bundles.write(content);
  await expect(Device.open((await kept(bundles, away)).files, states, options)).rejects.toThrow(/was changed/);
});
