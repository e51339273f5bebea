/** The conformance kit in a browser: what the page answers, by WebAssembly. */

import * as runtime from "onnxruntime-web/wasm";
import type { Runtime } from "../src/graph.js";
import { Device, databaseStore, memoryStore } from "../src/index.js";
import { reason } from "../src/errors.js";
import { Apart, capMemory } from "../src/worker/index.js";
import { answer, figures, type Place } from "./conformance.js";
import { takePart as asPerson, type Person } from "./person.js";

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

/** Goes on with a device's life until the tab is closed: it learns, releases, and takes the update where it leads on. */
async function live(bundle: string, update: string, items: string[]): Promise<void> {
  const [mine, content, signature] = [await device(bundle), await read(update), await read(`${update}.sig.json`)];
  Object.assign(globalThis, { alive: true });
  for (const [n, item] of items.entries()) {
    await mine.learn([item]);
    await mine.release();
    const leads = n && mine.status().round === mine.learning.round;
    if (leads) await mine.apply(content!, signature);
  }
}
const told = async (bundle: string) => {
  const mine = await device(bundle);
  return { ...mine.status(), top: mine.status().interactions ? (await mine.recommend(3)).items.map(({ id }) => id) : [] };
};

const takePart = (person: Person) => asPerson(person, location.origin, place.runtime);

/** A worker of these lines. */
const worker = (lines: string) => new Worker(
  URL.createObjectURL(new Blob([`import { serve } from "${location.origin}/worker.js";\n${lines}`], { type: "text/javascript" })),
  { type: "module" },
);

async function hanging(seconds: number) {
  const told: string[] = [];
  const apart = new Apart(worker(`const tell = serve({
    add: (a, b) => a + b, wait: () => new Promise(() => {}), hang: () => { tell("it begins"); for (;;); },
  });`), seconds, (one: string) => told.push(one));
  const answer = await apart.call<number>("add", 40, 2);
  let ticks = 0;
  const ticking = setInterval(() => ticks++, 10);
  const calls = [apart.call("wait"), apart.call("hang")].map((one) => one.catch(reason));
  const why = [...(await Promise.all(calls)), await apart.call("add", 1, 1).catch(reason)];
  clearInterval(ticking);
  return { told, answer, why, ticks };
}

async function failing() {
  const apart = new Apart(worker('serve({ fail: () => { throw new Error("a first line\\nand another"); } });'));
  return [await apart.call("fail").catch(reason), await apart.call("constructor").catch(reason)];
}

/** How far a memory grows under a limit, and whether a device works under it. */
async function capped(mb: number, bundle: string) {
  capMemory(mb);
  const memory = new WebAssembly.Memory({ initial: 1 });
  let grown = 1;
  for (let step = 1024; step >= 1; step /= 2) {
    try {
      memory.grow(step);
      grown += step;
    } catch {
      continue;
    }
  }
  try {
    const mine = await Device.open(place.files(bundle), memoryStore(), { runtime: place.runtime });
    await mine.learn(["i0000003", "i0000042"]);
    return { grown, list: (await mine.recommend(3)).items.length };
  } catch (error) {
    return { grown, refused: reason(error) };
  }
}
Object.assign(globalThis, { hanging, failing, capped });
Object.assign(globalThis, { figures: (bundle: string) => figures(bundle, place), takePart, answer: (asked: Record<string, unknown>) => answer(asked, place), live, told });
