/** The device of a tab in a worker of its own, so that the page stays responsive while it trains. */

import * as runtime from "onnxruntime-web/wasm";
import { databaseStore, Device, type Recommendations, type Runtime } from "../src/index.js";
import { Identity, join, preview, Server, Unreachable, type Counts, type Tell } from "../src/join/index.js";
import { capMemory, kept, serve } from "../src/worker/index.js";

runtime.env.wasm.numThreads = 1;
runtime.env.wasm.wasmPaths = "/ort/";

export interface Limits {
  maxSeconds: number;
  maxRamMb: number;
}
/** What never changes while the tab is open. */
export interface Opened {
  clip: number | null;
  items: { id: string; title: string }[];
}
/** What a page shows of the device as it is now. */
export interface Look {
  status: ReturnType<Device["status"]>;
  had: string[];
  basis: Recommendations["basis"];
  list: { id: string; title: string; why: string }[];
}
/** How a round stands, and what this tab sent and got since it was opened; `away`: the server is not reached. */
export interface Told {
  round: number;
  stands: Parameters<Tell>[1] | "away";
  counts: Pick<Counts, "taken" | "bytesUp" | "bytesDown">;
}

const NEAR = 0.3; // least cosine that is worth telling
const PAUSE = 3000; // milliseconds until a server that was away is asked again
const PATIENCE = { tries: 3, pause: 0.5 };
let device: Device;
let identity: Identity;
let stop: AbortController | null = null;
let counts: Told["counts"] = { taken: 0, bytesUp: 0, bytesDown: 0 };

const stores = (me: string) => ["identity", "device", "bundle"].map((what) => databaseStore(`${what} ${me}`));

async function open(me: string, { maxSeconds, maxRamMb }: Limits): Promise<Opened> {
  capMemory(maxRamMb);
  const [identities, states, bundles] = stores(me);
  identity = await Identity.of(identities);
  const server = new Server(location.origin, identity);
  if (!identity.user) {
    const answer = await fetch("/people", { method: "POST" }).catch(() => null);
    if (!answer) throw new Error("the server is not reached, and a new person needs it once: start edgefr demo");
    const told = await answer.text();
    if (!answer.ok) throw new Error(told.trim());
    await server.enrol((JSON.parse(told) as { code: string }).code);
  }
  const { files, keep } = await kept(bundles, server.bundle());
  const options = { runtime: runtime as unknown as Runtime, user: identity.user!, maxSeconds, maxTensorMb: maxRamMb };
  device = await Device.open(files, states, options);
  await keep();
  const items = device.catalogue().map(({ id, title }) => ({ id, title }));
  return { clip: device.bundle.manifest.privacy?.clip ?? null, items };
}

/** Notes what was liked and trains locally on all that was. */
async function like(items: string[]): Promise<void> {
  if (items.length) await device.note(items);
  if (device.status().interactions && device.learning.phases.some((phase) => phase.when === "final"))
    await device.personalise();
}

async function look(k: number): Promise<Look> {
  const { basis, items } = await device.recommend(k);
  const list: Look["list"] = [];
  for (const { id, title } of items)
    list.push({ id, title, why: basis === "model" ? await why(id) : "From the list for new people" });
  const had = device.catalogue().filter((one) => one.had).map(({ id }) => id);
  return { status: device.status(), had, basis, list };
}

async function why(id: string): Promise<string> {
  const [{ title, cosine } = { title: "", cosine: 0 }] = await device.nearest(id, 1).catch(() => []);
  if (cosine < NEAR) return "Nothing you liked is near it: the model ranks it so";
  return `The model finds it ${Math.round(100 * cosine)}% like ${title}, which you liked`;
}

/** Takes part until the server has no more rounds, the tab lets nothing more leave, or its owner stops; says why. */
async function part(): Promise<string> {
  const own = (stop = new AbortController());
  for (;;) {
    const earlier = counts;
    try {
      const server = new Server(location.origin, identity, PATIENCE, own.signal);
      const done = await join(device, server, [], (round, stands, now) => {
        const all = (name: keyof typeof counts) => earlier[name] + now[name];
        counts = { taken: all("taken"), bytesUp: all("bytesUp"), bytesDown: all("bytesDown") };
        tell({ round: Math.max(round, device.status().round), stands, counts } satisfies Told);
      });
      return done.stopped ?? "The server has no more rounds.";
    } catch (error) {
      if (own.signal.aborted) return "";
      if (!(error instanceof Unreachable)) throw error;
      tell({ round: device.status().round, stands: "away", counts } satisfies Told);
      await new Promise((done) => {
        own.signal.addEventListener("abort", done);
        setTimeout(done, PAUSE);
      });
      if (own.signal.aborted) return "";
    }
  }
}

async function forget(me: string): Promise<void> {
  for (const store of stores(me)) await store.remove();
}

const tell = serve({ open, like, look, part, forget, preview: () => preview(device), stop: () => stop?.abort() });
