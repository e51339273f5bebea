/** The conformance kit in a browser: what the page answers, by WebAssembly. */

import * as runtime from "onnxruntime-web/wasm";
import type { Runtime } from "../src/graph.js";
import { Device, databaseStore, memoryStore } from "../src/index.js";
import { reason } from "../src/errors.js";
import { Apart, capMemory } from "../src/worker/index.js";
import { answer, figures, frugal, type Place } from "./conformance.js";
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
  files: (bundle) => {
    const asked = async () => (await (await fetch(`/bundle?path=${encodeURIComponent(bundle)}`)).json()) as object;
    let found: Promise<Map<string, string>> | null = null; // all files at once: a question asks for each of them
    const files = () => (found ??= asked().then((one) => new Map(Object.entries(one))));
    return {
      list: async () => [...(await files()).keys()],
      read: async (path) => {
        const content = (await files()).get(path);
        return content === undefined ? null : Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      },
    };
  },
};
const asking: Place = { ...place, runtime: frugal(place.runtime) };

/** One device in this browser's database; it may be asked for in any tab, one at a time. */
const device = (bundle: string) => Device.open(place.files(bundle), databaseStore("me"), { runtime: place.runtime });

/** From the n-th write on nothing of this page goes on: it waits for an answer that the server never gives. */
function hangAt(write: number): void {
  let writes = 0;
  const store = IDBObjectStore.prototype as unknown as Record<string, (...given: unknown[]) => unknown>;
  for (const name of ["add", "put", "delete", "clear"]) {
    const real = store[name];
    store[name] = function (this: IDBObjectStore, ...given) {
      const request = real.apply(this, given);
      if (++writes >= write) {
        const waiting = new XMLHttpRequest();
        waiting.open("GET", "/hang", false);
        waiting.send();
      }
      return request;
    };
  }
}

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
Object.assign(globalThis, { hanging, failing, capped, hangAt });
Object.assign(globalThis, { figures: (bundle: string) => figures(bundle, place), takePart, answer: (asked: Record<string, unknown>) => answer(asked, asking), live, told });
