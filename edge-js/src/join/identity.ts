/** A device's identity is an Ed25519 key that is made on it; its requests are signed with it (edge/identity.py). */

import { Refused } from "../errors.js";
import { bytes, hex, sha256, unhex } from "../signature.js";
import type { Store } from "../store.js";

const SCHEMA = "edgefr.identity/1";
const PKCS8 = "302e020100300506032b657004220420"; // what stands before the 32 bytes of an Ed25519 key
const DAY = 86_400;
const A_DAY = 20_000; // requests; a device that waits all day makes 4,320
const AHEAD = 100; // of which so many at once are written down as made

interface IdentityRecord {
  schema: string;
  /** The private key, hex. */
  private: string;
  /** The name that the server knows the device by; null: it is not enrolled. */
  user: string | null;
  day: number;
  requests: number;
}

/** An Ed25519 key: what others know it by, hex, and what signs. */
export interface Signing {
  key: string;
  signer: CryptoKey;
}

/** The key of 32 secret bytes, which does not leave the platform's cryptography. */
export async function signing(secret: Uint8Array): Promise<Signing> {
  const whole = bytes(unhex(PKCS8 + hex(secret)));
  const shown = await crypto.subtle.importKey("pkcs8", whole, "Ed25519", true, ["sign"]);
  const { x } = await crypto.subtle.exportKey("jwk", shown);
  const raw = Uint8Array.from(atob(x!.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  return { key: hex(raw), signer: await crypto.subtle.importKey("pkcs8", whole, "Ed25519", false, ["sign"]) };
}

/** What a one-time code says: its secret, and the digest of the server's TLS key where it names one. */
export function openedCode(code: string): { secret: string; pin: string | null } {
  const found = /^([0-9a-f]{32})(?:\.([0-9a-f]{64}))?$/.exec(code.trim());
  if (!found) throw new Refused("that is no one-time code; give one that `edgefr enrol` printed, all of it");
  return { secret: found[1], pin: found[2] ?? null };
}

export class Identity {
  #made: number;

  private constructor(
    private readonly store: Store,
    private readonly record: IdentityRecord,
    readonly key: string,
    private readonly signer: CryptoKey,
  ) {
    this.#made = record.requests;
  }

  /** The identity in a store; where there is none, a new key is drawn and kept. */
  static async of(store: Store): Promise<Identity> {
    const kept = await store.read();
    const first =
      { schema: SCHEMA, private: hex(crypto.getRandomValues(new Uint8Array(32))), user: null, day: 0, requests: 0 };
    let record: IdentityRecord = first;
    if (kept) {
      try {
        record = JSON.parse(new TextDecoder().decode(kept)) as IdentityRecord;
        if (record.schema !== SCHEMA || !/^[0-9a-f]{64}$/.test(record.private))
          throw new Refused("it is of another form");
      } catch {
        throw new Refused("the identity is damaged; delete it and enrol again");
      }
    }
    const { key, signer } = await signing(unhex(record.private));
    const identity = new Identity(store, record, key, signer);
    if (!kept) await identity.#keep();
    return identity;
  }

  get user(): string | null {
    return this.record.user;
  }

  /** Keeps the name that enrolment told. */
  async enrolled(user: string): Promise<void> {
    this.record.user = user;
    await this.#keep();
  }

  /** The header that signs a request for a session of the server. */
  async signed(method: string, path: string, body: Uint8Array, session: string, nonce: bigint): Promise<string> {
    const said = [session, nonce, Math.floor(Date.now() / 1000), hex(await sha256(body))];
    const content = new TextEncoder().encode(["edgefr.request/1", method, path, ...said].join("\n"));
    const signature = await crypto.subtle.sign("Ed25519", this.signer, content);
    return `Edgefr ${this.key} ${said.join(" ")} ${hex(new Uint8Array(signature))}`;
  }

  /** Counts a request of the day; some are written down before they are made, so that none is forgotten. */
  async count(): Promise<void> {
    const today = Math.floor(Date.now() / 1000 / DAY);
    if (today > this.record.day) [this.record.day, this.record.requests, this.#made] = [today, 0, 0];
    if (this.#made >= A_DAY) throw new Refused(`this device has asked ${A_DAY} times in a day; join again tomorrow`);
    if (++this.#made <= this.record.requests) return;
    this.record.requests = this.#made + AHEAD - 1;
    await this.#keep();
  }

  #keep(): Promise<void> {
    return this.store.write(new TextEncoder().encode(JSON.stringify(this.record)));
  }
}
