/** A device's private state: facts and tensors, one value in a store, with a digest of all of it. */

import { packTensors, parseTensors, type Arr, type Floats } from "./arrays.js";
import type { Bundle } from "./bundle.js";
import { Refused } from "./errors.js";
import type { Model } from "./model.js";
import type { Parts } from "./parts.js";
import type { Entry } from "./policy.js";
import { hex, sha256 } from "./signature.js";
import type { Store } from "./store.js";

const SCHEMA = "edgefr-js.state/1";

export interface Facts {
  bundle: string; publisher: string | null; user: string | null;
  /** Keys this device's draws; drawn itself, so that it tells nothing. */
  number: string;
  round: number;
  /** The round whose release is there, and what it says. */
  learned: number | null; release: Record<string, unknown> | null;
  /** The round that was charged and whose release is not there yet. */
  begun: number | null;
  ledger: Entry[];
  /** The round whose release leaves under the masks of a secure sum alone, and whether it has. */
  masked?: { round: number; left: boolean };
  /** The newest that was seen: nothing older is taken. */
  serial: number; seconds: number;
  /** Items of this block, of those before it, and which of these are remembered; the session as far as it is read. */
  own: number[]; past?: number[]; block?: number;
  memory?: { items: number[]; labels: number[] };
  session?: { items: number[]; times: number[] };
  /** Why the last training ended before its last step. */
  stopped?: string | null;
}

export class State {
  constructor(readonly facts: Facts, readonly tensors: Map<string, Arr> = new Map()) {}

  /** The tensors whose names start with `prefix` and a dot, without it. */
  part(prefix: string): Map<string, Floats> {
    const own = [...this.tensors].filter(([name]) => name.startsWith(`${prefix}.`));
    return new Map(own.map(([name, value]) => [name.slice(prefix.length + 1), value as Floats]));
  }

  put(prefix: string, tensors: Map<string, Arr>): void {
    for (const [name, value] of tensors) this.tensors.set(`${prefix}.${name}`, value);
  }

  drop(prefix: string): void {
    for (const name of [...this.tensors.keys()]) if (name.startsWith(`${prefix}.`)) this.tensors.delete(name);
  }

  copy(): State {
    return new State(structuredClone(this.facts), new Map(this.tensors));
  }
}

export async function readState(store: Store): Promise<State | null> {
  const content = await store.read();
  if (!content) return null;
  try {
    const digest = hex(content.subarray(0, 32));
    const body = content.slice(32);
    if (hex(await sha256(body)) !== digest) throw new Refused("its digest does not match");
    const { metadata, tensors } = parseTensors(body);
    const { schema, facts } = JSON.parse(metadata.state) as { schema: string; facts: Facts };
    if (schema !== SCHEMA) throw new Refused("it is of another schema");
    return new State(facts, tensors);
  } catch {
    throw new Refused("the state is damaged: what left can no longer be counted, so no more may; delete it");
  }
}

export async function writeState(store: Store, state: State): Promise<void> {
  const body = packTensors(state.tensors, { state: JSON.stringify({ schema: SCHEMA, facts: state.facts }) });
  const content = new Uint8Array(32 + body.length);
  content.set(await sha256(body));
  content.set(body, 32);
  await store.write(content);
}

/** The state of a device that has just opened its bundle. */
export function firstState(bundle: Bundle, model: Model, { exchange }: Parts, user: string | null): State {
  const { manifest, config } = bundle;
  const [word] = crypto.getRandomValues(new BigUint64Array(1));
  const state = new State({
    bundle: manifest.bundle_id, publisher: bundle.signedBy, user, number: String(word >> 2n),
    round: config.learning?.round ?? 0, learned: null, release: null, begun: null, ledger: [],
    serial: manifest.serial, seconds: 0, own: [],
  });
  const [shared, own] = [bundle.tensors(config.shared), bundle.tensors(config.init)];
  for (const [name, zeros] of exchange?.nothingKept(config.learning!) ?? []) if (!own.has(name)) own.set(name, zeros);
  state.put("shared", shared);
  state.put("table", model.trained());
  for (const { name, shape, place, kind } of config.learning?.tensors ?? []) {
    const found = place === "shared" ? shared.get(name) : own.get(name);
    const fits = kind === "rows" || found?.shape.join() === shape.join();
    if (!fits) throw new Refused(
      `learning has ${name} as [${shape}], its files ${found ? `[${found.shape}]` : "none"}; export again`,
    );
  }
  state.put("private", own);
  return state;
}
