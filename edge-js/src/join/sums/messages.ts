/** The messages of a secure sum between a device and its server: JSON with bytes in hex (edge/sum_messages.py). */

import { reason, Refused } from "../../errors.js";
import { hex, sha256, unhex } from "../../signature.js";
import type { Keys } from "./agreement.js";
import { SHARE } from "./sharing.js";

export type Step = "keys" | "shares" | "vector" | "agree" | "opening";

/** A device's place in the sum of a round. `base`: what stands for the bundle where devices of several are in it. */
export interface Seat {
  number: number;
  salt: string;
  base: string | null;
}
/** Who has masks with this device, how many shares open a secret of its own, and what each device signs with. */
export interface Neighbours {
  threshold: number;
  keys: Map<number, Keys>;
  roster: Map<number, string>;
}
/** The shares that a device reveals, by whose they are: of own masks, and of keys of masks in pairs. */
export interface Revealed {
  own: Map<number, Uint8Array>;
  pairs: Map<number, Uint8Array>;
}

/** Bytes before and behind what is sealed. */
export const [NONCE, TAG] = [12, 16];
const [KEY, SIGNATURE, SEALED] = [32, 64, NONCE + 2 * SHARE + TAG];
const MOST = 1 << 16; // devices that a message can name
const HIGHEST = 2 ** 31 - 1;
/** Bytes of a message that is no vector. */
export const LIMIT = 1 << 24;

/** Reads a header; without a seat nothing leaves in the clear either. */
export function seatOf(header: string): Seat {
  const found = /^([1-9]\d{0,8}) ([0-9a-f]{32})(?: ([0-9a-f]{64}))?$/.exec(header);
  if (!found) throw new Refused("the server names a secure sum, and no place in it; nothing was sent");
  return { number: Number(found[1]), salt: found[2], base: found[3] ?? null };
}

/** What keys and shares are bound to: the bundle, or what stands for several, the round, this sum. */
export function sessionOf({ base, salt }: Seat, bundle: string, round: number): Promise<Uint8Array> {
  return sha256(new TextEncoder().encode(["edgefr.sum/1", base ?? bundle, round, salt].join("\n")));
}

export const written = (message: object): Uint8Array => new TextEncoder().encode(JSON.stringify(message));

export const sharesMessage = (sealed: Map<number, Uint8Array>): Uint8Array => written({ sealed: hexes(sealed) });

export const openingMessage = ({ own, pairs }: Revealed): Uint8Array =>
  written({ own: hexes(own), pairs: hexes(pairs) });

const hexes = (contents: Map<number, Uint8Array>): Record<number, string> =>
  Object.fromEntries([...contents].map(([number, content]) => [number, hex(content)]));

/** Who has masks with this device, the threshold, and what all devices sign with. */
export const neighboursOf = (content: Uint8Array): Neighbours =>
  read(content, ["threshold", "keys", "roster"], (found) => ({
    threshold: numberIn(found.threshold),
    keys: numbered(found.keys, keysIn),
    roster: numbered(found.roster, (one) => hexIn(one, KEY)),
  }));

/** The sealed shares that neighbours sent. */
export const sharesOf = (content: Uint8Array): Map<number, Uint8Array> =>
  read(content, ["sealed"], (found) => numbered(found.sealed, (one) => unhex(hexIn(one, SEALED))));

/** The devices that sent shares, and those of them whose vectors arrived. */
export const askedOf = (content: Uint8Array): { sent: Set<number>; arrived: Set<number> } =>
  read(content, ["sent", "arrived"], (found) => ({ sent: numbersIn(found.sent), arrived: numbersIn(found.arrived) }));

/** The signatures of the devices that were told the same. */
export const agreedOf = (content: Uint8Array): Map<number, Uint8Array> =>
  read(content, ["signatures"], (found) => numbered(found.signatures, (one) => unhex(hexIn(one, SIGNATURE))));

/** Reads a message of these fields and no others. */
function read<T>(content: Uint8Array, fields: string[], made: (found: Record<string, unknown>) => T): T {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    return made(fieldsOf(JSON.parse(text), fields));
  } catch (error) {
    throw new Refused(`not a message of a secure sum: ${reason(error)}`);
  }
}

function fieldsOf(found: unknown, fields: string[]): Record<string, unknown> {
  const record = recordIn(found);
  const same = Object.keys(record).length === fields.length && fields.every((name) => Object.hasOwn(record, name));
  if (!same) throw new Refused(`its fields are not ${fields.join(", ")}`);
  return record;
}

function recordIn(found: unknown): Record<string, unknown> {
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Refused("it is no object");
  return found as Record<string, unknown>;
}

function keysIn(found: unknown): Keys {
  const { mask, share, sign } = fieldsOf(found, ["mask", "share", "sign"]);
  return { mask: hexIn(mask, KEY), share: hexIn(share, KEY), sign: hexIn(sign, KEY) };
}

function hexIn(found: unknown, size: number): string {
  const fits = typeof found === "string" && found.length === 2 * size && /^[0-9a-f]*$/.test(found);
  if (!fits) throw new Refused(`${size} bytes in hex are none`);
  return found;
}

function numberIn(found: unknown): number {
  if (!Number.isInteger(found) || Number(found) < 1 || Number(found) > HIGHEST)
    throw new Refused("a number is none from 1 on");
  return Number(found);
}

function numbersIn(found: unknown): Set<number> {
  if (!Array.isArray(found) || found.length > MOST) throw new Refused("a list is none, or too long");
  return new Set(found.map(numberIn));
}

function numbered<T>(found: unknown, each: (one: unknown) => T): Map<number, T> {
  const entries = Object.entries(recordIn(found));
  if (entries.length > MOST) throw new Refused(`it names ${entries.length} devices`);
  return new Map(entries.map(([name, one]) => {
    if (!/^[1-9]\d{0,9}$/.test(name)) throw new Refused("the name of a device is no number");
    return [numberIn(Number(name)), each(one)];
  }));
}
