/** A device's part in a sum that nobody can open (edge/secure_sum.py): its steps in their order, each once. */

import { Refused } from "../../errors.js";
import { bytes } from "../../signature.js";
import { signing, type Signing } from "../identity.js";
import { agreed, eight, hasSigned, publicOf, rosterDigest, statement, type Keys, type Use } from "./agreement.js";
import { joined, seal, stream, unseal } from "./chacha.js";
import { NONCE, type Neighbours, type Revealed } from "./messages.js";
import { EVERYBODY, MOST_NEIGHBOURS, quorum, threshold } from "./neighbours.js";
import { cut, drawn, SHARE, type Draw } from "./sharing.js";

const FEWEST = 3; // vectors in a sum, below which nothing is revealed: of two, each would know the other's
const SECRET = 32;
const REFUSED = "a secure sum is refused";

/** A device refuses to go on in a secure sum, and stays out of this one. */
export class SumRefused extends Refused {}

type StepName = "share" | "mask" | "agree" | "reveal" | "nothing";

/** What a device draws for one sum, and tells nobody. */
interface Secrets {
  signing: Signing;
  mask: Uint8Array;
  share: Uint8Array;
  own: Uint8Array;
}

export class Participant {
  #neighbours = new Map<number, Keys>();
  #roster = new Map<number, string>();
  #named: Uint8Array = new Uint8Array();
  #threshold = 0;
  #sent = new Set<number>();
  #arrived = new Set<number>();
  #held = new Map<number, [own: Uint8Array, pair: Uint8Array]>();
  #next: StepName = "share";

  private constructor(
    private readonly session: Uint8Array, private readonly number: number, private readonly secrets: Secrets,
    /** The public keys, which are sent first. */
    readonly keys: Keys, private readonly draw: Draw,
  ) {}

  /** A device in a session, by its number there, from 1. */
  static async of(session: Uint8Array, number: number, draw: Draw = drawn): Promise<Participant> {
    const own = await signing(draw(SECRET));
    const secrets = { signing: own, mask: draw(SECRET), share: draw(SECRET), own: draw(SECRET) };
    const keys = { mask: await publicOf(secrets.mask), share: await publicOf(secrets.share), sign: own.key };
    return new Participant(session, number, secrets, keys, draw);
  }

  /** What each neighbour is to be sent: shares of both secrets, which it alone can open. */
  async share({ keys, roster, threshold: told }: Neighbours): Promise<Map<number, Uint8Array>> {
    this.#step("share", "mask");
    this.#enlist(keys, roster);
    const needed = threshold(keys.size);
    if (keys.has(this.number) || told !== needed || needed > keys.size || keys.size > MOST_NEIGHBOURS) {
      throw new SumRefused(
        `a secure sum with ${keys.size} neighbours and a threshold of ${told} is refused: ${needed} must be needed, ` +
        "more than half of the neighbours and of the helpers among them, so that nobody gets both secrets of one",
      );
    }
    const shareKeys = new Set([...keys.values()].map((one) => one.share)).add(this.keys.share);
    if (shareKeys.size <= keys.size) throw new SumRefused(`${REFUSED}: two devices in it have one key`);
    [this.#neighbours, this.#roster, this.#threshold] = [keys, roster, needed];
    this.#named = await rosterDigest(this.session, roster);
    const own = cut(this.secrets.own, needed, [...keys.keys()], this.draw);
    const pairs = cut(this.secrets.mask, needed, [...keys.keys()], this.draw);
    const sealed = new Map<number, Uint8Array>();
    for (const other of keys.keys())
      sealed.set(other, await this.#sealed(other, joined(own.get(other)!, pairs.get(other)!)));
    return sealed;
  }

  /** The vector, masked; `inbox` has what each neighbour that is still there sent to this device. */
  async masked(vector: Int32Array, inbox: Map<number, Uint8Array>): Promise<Uint32Array> {
    this.#step("mask", "agree");
    const known = [...inbox.keys()].every((other) => this.#neighbours.has(other));
    if (!known || inbox.size < this.#threshold)
      throw new SumRefused(`${REFUSED}: ${inbox.size} neighbours sent shares, and ${this.#threshold} are needed`);
    for (const [other, sealed] of inbox) this.#held.set(other, await this.#opened(other, sealed));
    const total = Uint32Array.from(vector);
    add(total, stream(this.secrets.own, total.length));
    for (const other of inbox.keys()) {
      const pair = stream(await this.#agreed(other, "mask"), total.length);
      if (this.number < other) add(total, pair);
      else subtract(total, pair);
    }
    return total;
  }

  /** The signature under who sent shares and whose vectors arrived, of all devices of the sum. */
  async agree(sent: Set<number>, arrived: Set<number>): Promise<Uint8Array> {
    this.#step("agree", "reveal");
    const near = this.#neighbours;
    const there = [...arrived].every((one) => sent.has(one)) && [...sent].every((one) => this.#roster.has(one));
    const nearSent = [...sent].filter((one) => near.has(one));
    const same = nearSent.length === this.#held.size && nearSent.every((one) => this.#held.has(one));
    if (!there || !arrived.has(this.number) || !same)
      throw new SumRefused(`${REFUSED}: who is said to be in it are not those whose shares came`);
    const found = [...arrived].filter((one) => near.has(one)).length;
    const needed = Math.max(this.#threshold, FEWEST - 1);
    if (found < needed)
      throw new SumRefused(`${REFUSED}: the vectors of ${found} neighbours arrived, and ${needed} are needed`);
    [this.#sent, this.#arrived] = [sent, arrived];
    return new Uint8Array(await crypto.subtle.sign("Ed25519", this.secrets.signing.signer, bytes(this.#said())));
  }

  /** The shares that open the sum that this device agreed to, once enough others have signed the same. */
  async reveal(signatures: Map<number, Uint8Array>): Promise<Revealed> {
    this.#step("reveal", "nothing");
    const [said, needed] = [this.#said(), quorum(this.#roster.size)];
    let same = 1;
    for (const [other, signature] of signatures) {
      const counts = other !== this.number && this.#arrived.has(other);
      if (counts && (await hasSigned(this.#roster.get(other)!, signature, said))) same++;
    }
    if (same < needed) {
      throw new SumRefused(
        `${REFUSED}: ${same} of ${this.#roster.size} devices were told that the same vectors arrived, and ` +
        `${needed} must be`,
      );
    }
    const shown: Revealed = { own: new Map(), pairs: new Map() };
    for (const [other, [own, pair]] of this.#held) {
      if (this.#arrived.has(other)) shown.own.set(other, own);
      else shown.pairs.set(other, pair);
    }
    return shown;
  }

  #said(): Uint8Array {
    return statement(this.#named, this.#sent, this.#arrived);
  }

  #enlist(neighbours: Map<number, Keys>, roster: Map<number, string>): void {
    const known = [...neighbours].every(([other, keys]) => roster.get(other) === keys.sign);
    const own = roster.get(this.number) === this.keys.sign;
    if (!known || !own || new Set(roster.values()).size < roster.size)
      throw new SumRefused(`${REFUSED}: its list of devices is not that of their keys`);
    const fewest = Math.min(roster.size - 1, EVERYBODY);
    if (neighbours.size < fewest) {
      throw new SumRefused(
        `${REFUSED}: of ${roster.size} devices ${neighbours.size} are neighbours of this one, and ${fewest} must be`,
      );
    }
  }

  #step(now: StepName, then: StepName): void {
    if (this.#next !== now)
      throw new SumRefused(`${REFUSED}: a device was asked to ${now}, and its next step is ${this.#next}`);
    this.#next = then;
  }

  async #agreed(other: number, use: Use): Promise<Uint8Array> {
    try {
      const key = this.#neighbours.get(other)![use];
      return await agreed(this.secrets[use], key, this.session, use, [this.number, other]);
    } catch {
      throw new SumRefused(`${REFUSED}: the key of device ${other} is none`);
    }
  }

  async #sealed(other: number, shares: Uint8Array): Promise<Uint8Array> {
    const [key, nonce] = [await this.#agreed(other, "share"), this.draw(NONCE)];
    return joined(nonce, seal(key, nonce, shares, this.#between(this.number, other)));
  }

  async #opened(other: number, sealed: Uint8Array): Promise<[Uint8Array, Uint8Array]> {
    const [key, nonce] = [await this.#agreed(other, "share"), sealed.subarray(0, NONCE)];
    const shares = unseal(key, nonce, sealed.subarray(NONCE), this.#between(other, this.number));
    if (!shares) throw new SumRefused(`${REFUSED}: device ${other} did not send these shares`);
    if (shares.length !== 2 * SHARE)
      throw new SumRefused(`${REFUSED}: device ${other} sent ${shares.length} bytes of shares`);
    return [shares.subarray(0, SHARE), shares.subarray(SHARE)];
  }

  #between(sender: number, receiver: number): Uint8Array {
    return joined(eight(sender), eight(receiver), this.#named);
  }
}

/** Adds modulo 2^32, in place. */
function add(total: Uint32Array, mask: Uint32Array): void {
  for (let n = 0; n < total.length; n++) total[n] += mask[n];
}

function subtract(total: Uint32Array, mask: Uint32Array): void {
  for (let n = 0; n < total.length; n++) total[n] -= mask[n];
}
