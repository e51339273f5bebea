/** A device in the sum of one round: its update leaves under masks, the server learns the total (edge/remote.py). */

import { parseTensors, type Arr } from "../../arrays.js";
import type { Learning } from "../../config.js";
import type { Device } from "../../device.js";
import { Refused } from "../../errors.js";
import { hex } from "../../signature.js";
import { openVector } from "../preview.js";
import type { Sent, Server, Task } from "../server.js";
import * as messages from "./messages.js";
import { Participant, SumRefused } from "./participant.js";

const FINENESS = 15; // powers of two between a clip and its grid

const UNFIT = "uploads without a clip, with weights or with messages beside them cannot be summed masked";

/** How a round's update leaves under masks, by the seat that its task names; refused before anything is learned. */
export function sealing(device: Device, server: Server, task: Task): (content: Uint8Array) => Promise<Sent> {
  const seat = messages.seatOf(task.sum!);
  const { clip, weights } = device.learning.release;
  if (clip === null || weights !== "uniform") throw new Refused(UNFIT);
  return (content) => new Sealing(device, server, task.round, seat).sent(content);
}

class Sealing {
  readonly #counts: Sent = { taken: false, refused: null, up: 0, down: 0 };

  constructor(
    private readonly device: Device, private readonly server: Server, private readonly round: number,
    private readonly seat: messages.Seat,
  ) {}

  /** Sends a release under masks, and what opens the sum; `taken` false: it went on without this device. */
  async sent(content: Uint8Array): Promise<Sent> {
    try {
      this.#counts.taken = await this.#steps(content);
    } catch (error) {
      if (!(error instanceof SumRefused)) throw error;
      this.#counts.refused = error.message;
    }
    return this.#counts;
  }

  /** The steps of a sum. Before the vector leaves the state says so: no update is in two sums. */
  async #steps(content: Uint8Array): Promise<boolean> {
    const { device, round, seat } = this;
    const { masked } = device.status();
    if (masked?.round === round && masked.left) return false;
    const vector = wholeSteps(content, device.learning);
    const session = await messages.sessionOf(seat, device.bundle.manifest.bundle_id, round);
    const part = await Participant.of(session, seat.number);
    const near = await this.#told("keys", messages.written(part.keys), messages.neighboursOf);
    if (!near) return false;
    this.#enough(near.keys.size);
    const shares = messages.sharesMessage(await part.share(near));
    const inbox = await this.#told("shares", shares, messages.sharesOf);
    if (!inbox) return false;
    const hidden = await part.masked(vector, inbox);
    await device.leaveMasked(round);
    const asked = await this.#told("vector", new Uint8Array(hidden.buffer), messages.askedOf);
    if (!asked) return false;
    this.#enough([...asked.arrived].filter((one) => near.keys.has(one)).length);
    const signature = hex(await part.agree(asked.sent, asked.arrived));
    const signatures = await this.#told("agree", messages.written({ signature }), messages.agreedOf);
    return signatures !== null && this.#say("opening", messages.openingMessage(await part.reveal(signatures)));
  }

  /** Sends what a step asks for and waits until it has ended; null: it goes on without this device. */
  async #told<T>(step: messages.Step, content: Uint8Array, read: (answer: Uint8Array) => T): Promise<T | null> {
    const taken = await this.#say(step, content);
    const answer = taken ? await this.server.told(step, this.round, messages.LIMIT) : null;
    if (!answer) return null;
    this.#counts.down += answer.length;
    return read(answer);
  }

  async #say(step: messages.Step, content: Uint8Array): Promise<boolean> {
    const taken = await this.server.tell(step, this.round, content);
    if (taken) this.#counts.up += content.length;
    return taken;
  }

  /** Refuses a sum in which this device sees fewer others than its policy asks for, unless its own noise hides it. */
  #enough(others: number): void {
    const { policy, bundle } = this.device;
    if (others + 1 >= policy.leastCohort || bundle.manifest.privacy?.trust === "local") return;
    throw new SumRefused(
      `policy leastCohort: this device sees ${others} others in the sum of round ${this.round}, and ` +
      `${policy.leastCohort - 1} are asked for; more devices may be there next time, or allow it with ` +
      `leastCohort: ${others + 1}`,
    );
  }
}

/** A release in whole steps of its grid, every coordinate that rounds train: what a sum adds up. */
export function wholeSteps(content: Uint8Array, learning: Learning): Int32Array {
  const { tensors } = parseTensors(content);
  const update = tensors.get("update")!.data;
  return update instanceof Int32Array ? update : onClipsGrid(tensors, learning);
}

function onClipsGrid(tensors: Map<string, Arr>, learning: Learning): Int32Array {
  if (tensors.has("prototype")) throw new Refused(UNFIT);
  const grid = 2 ** (Math.floor(Math.log2(learning.release.clip!)) - FINENESS);
  return Int32Array.from(openVector(tensors, learning), (value) => Math.trunc(value / grid));
}
