/** The conformance kit in a browser: what the page answers, by WebAssembly. */

import * as runtime from "onnxruntime-web/wasm";
import type { Runtime } from "../src/graph.js";
import { Device, databaseStore } from "../src/index.js";
import { answer, type Place } from "./conformance.js";

runtime.env.wasm.numThreads = 1;
runtime.env.wasm.wasmPaths = "/ort/";

const read = async (path: string): Promise<Uint8Array | null> => {
  const found = await fetch(`/file?path=${encodeURIComponent(path)}`);
  return found.ok ? new Uint8Array(await found.arrayBuffer()) : null;
};
const place: Place = {
  runtime: runtime as unknown as Runtime,
  read,
  files: (bundle) => ({
    list: async () => (await (await fetch(`/list?path=${encodeURIComponent(bundle)}`)).json()) as string[],
    read: (path) => read(`${bundle}/${path}`),
  }),
};

/** One device in this browser's database; it may be asked for in any tab, one at a time. */
const device = (bundle: string) => Device.open(place.files(bundle), databaseStore("me"), { runtime: place.runtime });

/** Goes on with a device's life until the tab is closed. */
async function live(bundle: string, items: string[]): Promise<void> {
  const mine = await device(bundle);
  Object.assign(globalThis, { alive: true });
  for (const item of items) {
    await mine.learn([item]);
    await mine.release();
  }
}
const told = async (bundle: string) => {
  const mine = await device(bundle);
  return { ...mine.status(), top: mine.status().interactions ? (await mine.recommend(3)).items.map(({ id }) => id) : [] };
};
Object.assign(globalThis, { answer: (asked: Record<string, unknown>) => answer(asked, place), live, told });
