/** A device at work for a server: ask for a round, learn, send, until there are no more rounds (edge/remote.py). */

import { trained as names, type Learning } from "../config.js";
import type { Device } from "../device.js";
import { Refused, Withheld } from "../errors.js";
import { unsealed, type Sent, type Server, type Task } from "./server.js";

/** What a device did for a server. `refused`: why its last `unsafe` sum; `stopped`: why it let no more leave. */
export interface Counts {
  taken: number;
  late: number;
  rested: number;
  unsafe: number;
  refused: string | null;
  bytesUp: number;
  bytesDown: number;
  stopped: string | null;
}
export type Stands = "waiting" | "learning" | "taken" | "late" | "unsafe" | "rested" | "over";
/** Hears how a round stands for the device: `waiting` for one above `round`, then what became of it. */
export type Tell = (round: number, stands: Stands, counts: Counts) => void;

const HEADERS = 1 << 20; // bytes of a file of tensors that are not values

function values(learning: Learning, chosen: Set<string>): number {
  const found = learning.tensors.filter((one) => chosen.has(one.name));
  const size = (shape: number[]) => shape.reduce((a, b) => a * b, 1);
  return found.reduce((sum, { shape, kind }) => sum + 4 * size(shape) + (kind === "rows" ? 8 * shape[0] : 0), 0);
}

/** Bytes that an update of all shared tensors of a bundle can have. */
export function updateLimit(learning: Learning): number {
  return HEADERS + values(learning, new Set(learning.tensors.filter(
    (one) => one.place === "shared",
  ).map((one) => one.name)));
}

/** Bytes that a release of a bundle's device can have. */
export function releaseLimit(learning: Learning): number {
  return HEADERS + values(learning, new Set(names(learning, "round", "shared")));
}

/**
 * Works for a server until it has no more rounds, and takes its last update. A device that was stopped goes on: what it
 * made of a round is sent first. It ends by itself where its own policy or ledger lets nothing more leave.
 */
export async function join(
  device: Device, server: Server, given: string[] = [], tell: Tell = () => {},
): Promise<Counts> {
  const items = [...given];
  const counts: Counts =
    { taken: 0, late: 0, rested: 0, unsafe: 0, refused: null, bytesUp: 0, bytesDown: 0, stopped: null };
  if (server.identity.user === null) throw new Refused("this device is not enrolled; enrol it with a one-time code");
  const why = device.withheld();
  if (why) throw new Withheld(`nothing would leave this device: ${why}`);
  const limit = updateLimit(device.learning);
  let [after, fruitless, until] = [0, 0, performance.now() + server.patience.idle * 1000];
  const waiting = unanswered(device);
  if (waiting !== null && (await server.send(waiting, await device.release(), true)))
    [after, counts.taken] = [waiting, 1];
  while (fruitless < server.patience.fruitless) {
    tell(after, "waiting", counts);
    const task = await server.task(after, limit);
    if (!task) {
      if (performance.now() < until) continue;
      throw new Refused(`${server.url} had no work for ${server.patience.idle} s; join again later`);
    }
    if (task.round <= after && !task.done)
      throw new Refused(`${server.url} answers with round ${task.round} for one above ${after}`);
    [fruitless, until] = [fruitless + 1, performance.now() + server.patience.idle * 1000];
    if (task.rest) {
      [after, counts.rested] = [task.round, counts.rested + 1];
      tell(after, "rested", counts);
      continue;
    }
    const masked = task.sum === null ? null : (await import("./sums/sealing.js")).sealing(device, server, task);
    counts.bytesDown += task.content.length;
    await catchUp(device, task, server.url);
    tell(task.round, task.done ? "over" : "learning", counts);
    if (task.done) return counts;
    try {
      const content = await device.release(items.splice(0), null, masked !== null);
      after = task.round;
      const sent = masked ? await masked(content) : await plainly(server, after, content);
      if (sent.taken) [counts.taken, fruitless] = [counts.taken + 1, 0];
      else if (sent.refused === null) counts.late++;
      else [counts.unsafe, counts.refused] = [counts.unsafe + 1, sent.refused];
      [counts.bytesUp, counts.bytesDown] = [counts.bytesUp + sent.up, counts.bytesDown + sent.down];
      tell(after, sent.taken ? "taken" : sent.refused === null ? "late" : "unsafe", counts);
    } catch (error) {
      if (!(error instanceof Withheld)) throw error;
      return { ...counts, stopped: error.message };
    }
  }
  return { ...counts, stopped: `of ${fruitless} rounds in a row nothing was taken; join again later` };
}

async function plainly(server: Server, round: number, content: Uint8Array): Promise<Sent> {
  const taken = await server.send(round, content);
  return { taken, refused: null, up: taken ? content.length : 0, down: 0 };
}

/** The round whose release was made to leave in the clear and had no answer; null: there is none. */
function unanswered(device: Device): number | null {
  const { waitingRelease, masked } = device.status();
  return device.policy.sealed || masked?.round === waitingRelease ? null : waitingRelease;
}

/** Takes a task's update unless the device has it; one that leads elsewhere is refused, and nothing is changed. */
export async function catchUp(device: Device, task: Task, url: string): Promise<void> {
  const [own, starts] = [device.bundle.manifest.bundle_id, task.done ? task.round : task.round - 1];
  if (task.bundle !== null && task.bundle !== own) {
    throw new Refused(`${url} takes this device to hold another bundle: fetch that one (nothing was learned)`);
  }
  if (task.content.length) {
    const [content, signature] = unsealed(task.content);
    const delta = await device.delta(content, signature);
    if (delta.to_round !== starts) {
      throw new Refused(
        `${url} sent an update to round ${delta.to_round} for one that starts at ${starts}; nothing was changed`,
      );
    }
    if (delta.to_round > device.status().round) await device.apply(content, signature);
  }
  const reached = device.status().round;
  if (reached === starts) return;
  throw new Refused(
    `${url} is at round ${starts}, this device's state at ${reached}: they belong to different servers`,
  );
}
