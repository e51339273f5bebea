/** What a device costs in Node and in Chromium, a line each: node dist/figures.js BUNDLE [--chromium]. */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { chromium } from "playwright-core";
import type { Runtime } from "../src/graph.js";
import { folder } from "../src/node.js";
import { figures } from "./conformance.js";
import { CHROMIUM, serve } from "./serve.js";

const bundle = resolve(process.argv[2]);
const mb = async (id: number | "self") => {
  const status = await readFile(`/proc/${id}/status`, "utf-8");
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)![1]) / 1024);
};
const say = (where: string, found: Record<string, number>, memory: number) =>
  console.log(where, Object.entries(found).map(
    ([name, ms]) => `${name} ${ms.toFixed(2)} ms`,
  ).join(", "), `memory +${memory} MB`);

if (process.argv.includes("--chromium")) {
  const serving = await serve(import.meta.dirname);
  const browser = await chromium.launch(CHROMIUM);
  try {
    const page = await browser.newPage();
    const session = await browser.newBrowserCDPSession();
    const renderers = async () => {
      const { processInfo } =
        (await session.send("SystemInfo.getProcessInfo")) as { processInfo: { type: string; id: number }[] };
      const all = await Promise.all(processInfo.filter((one) => one.type === "renderer").map((one) => mb(one.id)));
      return all.reduce((sum, one) => sum + one, 0);
    };
    await page.goto(`${serving.address}bundle?path=${encodeURIComponent(bundle)}`);
    const before = await renderers();
    await page.goto(serving.address);
    await page.waitForFunction("globalThis.figures");
    const found = (await page.evaluate(`figures(${JSON.stringify(bundle)})`)) as Record<string, number>;
    say("Chromium", found, (await renderers()) - before);
  } finally {
    await browser.close();
    serving.close();
  }
} else {
  const before = await mb("self");
  const runtime = (await import("onnxruntime-node")) as unknown as Runtime;
  const found = await figures(bundle, { runtime, files: folder, read: () => Promise.resolve(null) });
  say("Node", found, (await mb("self")) - before);
}
