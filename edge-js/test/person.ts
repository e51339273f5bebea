/** A simulated user as a device of a server's: enrolled by a code, with the user's own number and tensors. */

import { Device, memoryStore, type Runtime } from "../src/index.js";
import { Identity, join, Server, type Counts } from "../src/join/index.js";
import { wholeSteps } from "../src/join/sums/sealing.js";
import { readState, writeState } from "../src/state.js";

/** `leaves`: the steps, such as `3 agree`, that it does not come to; `gone`: at the last of them it goes for good. */
export interface Person {
  code: string;
  number: string;
  private: Record<string, number[]>;
  items: string[];
  leaves?: string[];
  gone?: boolean;
}
/** What became of it. `vectors`: what it masked, by round; `tensors`: the shared ones that it ends with. */
export interface Became extends Partial<Counts> {
  round: number;
  scores: number[];
  vectors: Record<number, number[]>;
  tensors: Record<string, number[]>;
}

class Gone extends Error {}

export async function takePart(person: Person, url: string, runtime: Runtime): Promise<Became> {
  const [identity, store] = [await Identity.of(memoryStore()), memoryStore()];
  const server = new Server(url, identity);
  const user = await server.enrol(person.code);
  const options = { runtime, user, policy: { unprotected: true, leastCohort: 1 } };
  const files = server.bundle();
  await Device.open(files, store, options);
  const state = (await readState(store))!;
  state.facts.number = person.number;
  const shape = (name: string) => state.tensors.get(`private.${name}`)!.shape;
  state.put("private", new Map(Object.entries(person.private).map(
    ([name, data]) => [name, { data: Float32Array.from(data), shape: shape(name) }],
  )));
  await writeState(store, state);
  const device = await Device.open(files, store, options);
  const vectors = watched(device, server, person);
  const counts = await join(device, server, person.items).catch((error: unknown) => {
    if (!(error instanceof Gone)) throw error;
    return {};
  });
  const end = (await readState(store))!;
  const tensors = Object.fromEntries([...end.part("shared"), ...end.part("table")].map(([name, { data }]) => [name, [...data]]));
  return { ...counts, round: device.status().round, scores: [...(await device.scores())], vectors, tensors };
}

/** Keeps what a device masks, and keeps it from the steps that it leaves at. */
function watched(device: Device, server: Server, { leaves = [], gone }: Person): Record<number, number[]> {
  const [vectors, tell]: [Record<number, number[]>, Server["tell"]] = [{}, server.tell.bind(server)];
  server.tell = async (step, round, content) => {
    if (step === "vector") vectors[round] = [...wholeSteps(await device.release([], null, true), device.learning)];
    const place = leaves.indexOf(`${round} ${step}`);
    if (place < 0) return tell(step, round, content);
    if (gone && place === leaves.length - 1) throw new Gone();
    return false;
  };
  return vectors;
}
