import { existsSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Browser } from "playwright-core";
import { afterAll, expect, test } from "vitest";
import { CHROMIUM, serve, type Serving } from "./serve.js";

const BUILT = join(import.meta.dirname, "../dist");
const there = existsSync(CHROMIUM.executablePath) && existsSync(join(BUILT, "page.js"));

let [serving, browser]: [Serving | null, Browser | null] = [null, null];
afterAll(async () => {
  await browser?.close();
  serving?.close();
});

/** What a new tab says; all are of one browser. */
async function inPage<T>(what: string): Promise<T> {
  serving ??= await serve(BUILT);
  browser ??= await chromium.launch(CHROMIUM);
  const page = await (await browser.newContext()).newPage();
  await page.goto(serving.address);
  await page.waitForFunction("globalThis.hanging");
  const found = (await page.evaluate(what)) as T;
  await page.close();
  return found;
}

test.skipIf(!there)("a worker that hangs is ended in one line, and its page goes on meanwhile", { timeout: 60_000 }, async () => {
  const found = await inPage<{ told: string[]; answer: number; why: string[]; ticks: number }>("hanging(1)");
  expect(found.told).toEqual(["it begins"]);
  expect(found.answer).toBe(42);
  expect(found.why).toEqual(Array(3).fill(
    "the device worked for more than 1 s and was stopped; its state is the last one kept",
  ));
  expect(found.ticks).toBeGreaterThan(20); // of 10 ms each, in a second or more
});

test.skipIf(!there)("what a worker's code throws is one line, and so is a call that there is not", { timeout: 60_000 }, async () => {
  expect(await inPage("failing()")).toEqual(["a first line", "the worker has no call constructor"]);
});

test.skipIf(!there)("a runtime gets no more memory than it is let", { timeout: 60_000 }, async () => {
  const bundle = JSON.stringify(join(import.meta.dirname, "../../conformance/fedmf"));
  expect(await inPage(`capped(64, ${bundle})`)).toEqual({ grown: 976, list: 3 });
  expect(await inPage(`capped(1, ${bundle})`)).toEqual({ grown: 15, refused: expect.stringMatching(/^onnx.* is no graph for a device/) });
});
