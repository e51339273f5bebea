/** The runner in Node: reads a question a line and answers a line. `--web`: by WebAssembly, as a browser would. */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { answer, frugal, type Place } from "./conformance.js";
import type { Runtime } from "../src/graph.js";
import { folder } from "../src/node.js";

const name = process.argv.includes("--web") ? "onnxruntime-web" : "onnxruntime-node";
const runtime = frugal((await import(name)) as Runtime);
const place: Place = {
  runtime,
  files: folder,
  read: async (path) => new Uint8Array(await readFile(path).catch(() => new Uint8Array())),
};
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line) as Record<string, unknown>;
  process.stdout.write(`${JSON.stringify(await answer(asked, place))}\n`);
}
