/** What the devices of a sum work out alike: keys in pairs, and what they sign (privacy/masks.py, agreement.py). */

import { bytes, hex, sha256, unhex } from "../../signature.js";
import { joined } from "./chacha.js";

/** A device's public keys of one sum, hex: X25519 for masks in pairs and for shares, Ed25519 for what it agrees to. */
export interface Keys {
  mask: string;
  share: string;
  sign: string;
}
export type Use = "mask" | "share";

const PKCS8 = "302e020100300506032b656e04220420"; // what stands before the 32 bytes of an X25519 key
const BASE = `09${"00".repeat(31)}`; // the point whose multiple is a public key
const BITS = 256;

const text = (content: string): Uint8Array => new TextEncoder().encode(content);

/** The public key of a secret one. */
export const publicOf = async (secret: Uint8Array): Promise<string> => hex(await exchanged(secret, BASE));

/** Fails for a public key with which everybody comes to the same. */
async function exchanged(secret: Uint8Array, other: string): Promise<Uint8Array> {
  const own = await crypto.subtle.importKey(
    "pkcs8", bytes(joined(unhex(PKCS8), secret)), "X25519", false, ["deriveBits"],
  );
  const key = await crypto.subtle.importKey("raw", bytes(unhex(other)), "X25519", false, []);
  const found = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: key }, own, BITS));
  // most platforms have said so by now
  if (found.every((byte) => byte === 0)) throw new Error("everybody comes to the same with it");
  return found;
}

/** The 32 bytes that two devices of a session have in common for one use, of their numbers too. */
export async function agreed(
  secret: Uint8Array, other: string, session: Uint8Array, use: Use, pair: [number, number],
): Promise<Uint8Array> {
  const found = await exchanged(secret, other);
  const key = await crypto.subtle.importKey("raw", bytes(found), "HKDF", false, ["deriveBits"]);
  const info = text(`edgefr.secure-sum/2 ${use} ${Math.min(...pair)} ${Math.max(...pair)}`);
  const how = { name: "HKDF", hash: "SHA-256", salt: bytes(session), info: bytes(info) };
  return new Uint8Array(await crypto.subtle.deriveBits(how, key, BITS));
}

const ascending = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);

/** A number in 8 bytes, high byte first. */
export function eight(number: number): Uint8Array {
  const out = new Uint8Array(8);
  new DataView(out.buffer).setBigUint64(0, BigInt(number));
  return out;
}

/** What names all devices of a sum and the keys that they sign with. */
export function rosterDigest(session: Uint8Array, roster: Map<number, string>): Promise<Uint8Array> {
  const entries = ascending(roster.keys()).flatMap((number) => [eight(number), unhex(roster.get(number)!)]);
  return sha256(joined(session, ...entries));
}

/** The bytes that a device signs: who sent shares, and whose vectors arrived. */
export function statement(roster: Uint8Array, sent: Iterable<number>, arrived: Iterable<number>): Uint8Array {
  const lists = [sent, arrived].map((numbers) => ascending(numbers).join(" ")).join("\n");
  return joined(text("edgefr.secure-sum/2 agree\n"), roster, text(lists));
}

/** Whether a signature is that of a key under what was said. */
export async function hasSigned(key: string, signature: Uint8Array, said: Uint8Array): Promise<boolean> {
  try {
    const known = await crypto.subtle.importKey("raw", bytes(unhex(key)), "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", known, bytes(signature), bytes(said));
  } catch {
    return false;
  }
}
