/** What somebody made to break a device: a case a line, {what, path, items?, learning?}; a line says why it is refused. */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import * as runtime from "onnxruntime-node";
import { parseTensors } from "../src/arrays.js";
import type { Learning } from "../src/config.js";
import { readDelta } from "../src/delta.js";
import { reason, Refused } from "../src/errors.js";
import { checkGraph } from "../src/graph_check.js";
import { Bundle, Device, memoryStore, type Runtime } from "../src/index.js";
import { folder } from "../src/node.js";
import { openEncoder } from "../src/text/index.js";
import { WordPieces } from "../src/text/word_pieces.js";

interface Case {
  what: "bundle" | "delta" | "encoder" | "graph" | "tensors" | "tokens";
  path: string;
  items?: string[];
  learning?: Learning;
  most?: number;
}

/** What a device recommends that learned, or numbers of the pieces of texts; null for anything else. */
async function tried({ what, path, items = [], learning, most = Infinity }: Case): Promise<unknown> {
  if (what === "bundle") {
    const options = { runtime: runtime as unknown as Runtime, policy: { unprotected: true, signed: false } };
    const device = await Device.open(folder(path), memoryStore(), options);
    await (device.bundle.config.learning ? device.learn(items) : device.note(items));
    return (await device.recommend(3)).items.map(({ id }) => id);
  }
  if (what === "encoder") {
    const encoder = await openEncoder(await Bundle.open(folder(path)), runtime as unknown as Runtime);
    return Array.from(await encoder.encode("a".repeat(40)));
  }
  const content = new Uint8Array(await readFile(path));
  if (what === "tokens") {
    const pieces = new WordPieces(content, path);
    return items.map((text) => pieces.numbers(text, most));
  }
  if (what === "delta") readDelta(content, learning!);
  if (what === "graph") checkGraph(content, null);
  if (what === "tensors") parseTensors(content);
  return null;
}

for await (const line of createInterface({ input: process.stdin })) {
  const begun = performance.now();
  const found = await tried(JSON.parse(line) as Case).then((top) => ({ top }), (error: unknown) => ({
    refused: reason(error), lines: String((error as Error).message).split("\n").length, ours: error instanceof Refused,
  }));
  process.stdout.write(`${JSON.stringify({ ...found, ms: performance.now() - begun })}\n`);
}
