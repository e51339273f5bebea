/** Ed25519 signatures of bundles and updates, by the platform's own cryptography (edge/signature.py). */

import { Refused } from "./errors.js";

export type Kind = "bundle" | "delta";

export const bytes = (content: Uint8Array) => content as Uint8Array<ArrayBuffer>;

export async function sha256(content: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes(content)));
}

export const hex =
  (content: Uint8Array): string => [...content].map((byte) => byte.toString(16).padStart(2, "0")).join("");
export const unhex =
  (text: string): Uint8Array => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** The bytes that are signed for `content`: nothing of one kind has the statement of another. */
export function statement(kind: Kind, content: Uint8Array): Uint8Array {
  const name = `application/vnd.edgefr.${kind}`;
  const head = new TextEncoder().encode(`DSSEv1 ${name.length} ${name} ${content.length} `);
  const out = new Uint8Array(head.length + content.length);
  out.set(head);
  out.set(content, head.length);
  return out;
}

/** The id of the key that signed `content`; null where nobody did and nobody is asked for. Wrong ones are refused. */
export async function checkSignature(
  kind: Kind, what: string, content: Uint8Array, raw: Uint8Array | null, trusted?: readonly string[],
): Promise<string | null> {
  let id: string | null = null;
  if (raw) {
    const found = parse(raw, what);
    if (found.kind !== kind)
      throw new Refused(`${what} has a signature of something else; get what was signed as such`);
    const key = await crypto.subtle.importKey("raw", bytes(unhex(found.public)), "Ed25519", false, ["verify"]);
    const holds =
      await crypto.subtle.verify("Ed25519", key, bytes(unhex(found.signature)), bytes(statement(kind, content)));
    if (!holds) throw new Refused(`the signature of ${what} is wrong: it was changed after it was signed`);
    id = hex(await sha256(unhex(found.public)));
  }
  if (trusted && id === null) throw new Refused(`${what} is not signed; get a signed one`);
  if (trusted && !trusted.includes(id!))
    throw new Refused(`${what} is signed by key ${id!.slice(0, 16)}..., which is not trusted`);
  return id;
}

function parse(raw: Uint8Array, what: string): { kind: string; public: string; signature: string } {
  let found: Record<string, unknown> = {};
  try {
    if (raw.length <= 4096)
      found = (JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw)) ?? {}) as Record<string, unknown>;
  } catch {
    found = {};
  }
  const plain = found.schema === "edgefr.signature/3" && Object.keys(found).length === 4;
  const hexes = /^[0-9a-f]{64}$/.test(String(found.public)) && /^[0-9a-f]{128}$/.test(String(found.signature));
  if (!plain || !hexes) throw new Refused(`the signature of ${what} is no edgefr.signature/3 file`);
  return found as { kind: string; public: string; signature: string };
}
