/** One server as a device sees it: signed requests, answers with a limit, no redirects (edge/connection.py). */

import type { Files } from "../bundle.js";
import type { FileEntry } from "../config.js";
import { reason, Refused } from "../errors.js";
import { bytes } from "../signature.js";
import { openedCode, type Identity } from "./identity.js";

/** How long a device bears with a server, in seconds; after `fruitless` rounds in a row it gives up. */
export interface Patience {
  tries: number;
  pause: number;
  longest: number;
  request: number;
  idle: number;
  fruitless: number;
}
export const PATIENT: Patience = { tries: 8, pause: 0.25, longest: 8, request: 120, idle: 3600, fruitless: 100 };

/** A round to be done. `done`: no more. `rest`: it goes on without this device. `sum`: its seat, where it is masked. */
export interface Task {
  round: number;
  content: Uint8Array;
  done: boolean;
  rest: boolean;
  sum: string | null;
  bundle: string | null;
}

/** What became of a round's update. `refused`: why this device stayed out of its sum; bytes of bodies up and down. */
export interface Sent {
  taken: boolean;
  refused: string | null;
  up: number;
  down: number;
}

interface Answer {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];
const LINE = 300; // characters of a refusal that are shown
const SMALL = 1 << 16; // bytes of an answer that is no bundle and no update
const SIGNATURE = 4096;
const MANIFEST = 1 << 20;
const MOST = 512 << 20; // bytes of a bundle that is fetched
const PIECE = 1 << 20; // bytes of one answer: what is lost when a connection breaks
const TRAILER = "edgefr.signature";

/** A server does not answer; nothing was lost. */
export class Unreachable extends Refused {}

export class Server {
  readonly url: string;
  readonly patience: Patience;
  /** Waits before the next attempt; a test does not. */
  sleep = (seconds: number): Promise<void> => new Promise((done) => setTimeout(done, seconds * 1000));
  #session = "";
  #nonce = BigInt(Date.now()) * 1_000_000n;
  #empty = 0;
  #last = -Infinity;

  constructor(
    url: string, readonly identity: Identity, patience: Partial<Patience> = {}, private readonly stop?: AbortSignal,
  ) {
    const found = URL.canParse(url) ? new URL(url) : null;
    const plain =
      found && /^https?:$/.test(found.protocol) && found.pathname === "/" && url.replace(/\/$/, "") === found.origin;
    if (!plain)
      throw new Refused(`${JSON.stringify(url)} is no server's address; give one such as http://127.0.0.1:8080`);
    const clear = found.protocol === "http:" && !LOOPBACK.includes(found.hostname);
    if (clear) throw new Refused(`all would travel in the clear to ${found.hostname}; give an https address`);
    this.url = found.origin;
    this.patience = { ...PATIENT, ...patience };
  }

  /** Enrols the identity's key with a one-time code. `anyKey`: the platform's authorities do where it names a key. */
  async enrol(code: string, anyKey = false): Promise<string> {
    const { secret, pin } = openedCode(code);
    if (pin && !anyKey && this.url.startsWith("https:")) {
      throw new Refused("the code names the server's TLS key, which a page cannot see; say whether authorities do");
    }
    const content = new TextEncoder().encode(JSON.stringify({ code: secret }));
    const { body } = await this.#ask("POST", "/enrol", [200], content);
    let found: Record<string, unknown> = {};
    try {
      found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as typeof found;
    } catch {
      found = {};
    }
    const user = Object.keys(found ?? {}).join() === "user" ? found.user : null;
    const shown = typeof user === "string" && /^[^\p{C}\p{Zl}\p{Zp}]{1,200}$/u.test(user);
    if (!shown) throw new Refused(`${this.url} does not say who this device is: not a server of edgefr`);
    await this.identity.enrolled(user);
    return user;
  }

  /** The open round above `after`; null: there is none yet. `limit`: bytes of the answer. */
  async task(after: number, limit: number): Promise<Task | null> {
    const { status, headers, body } = await this.#ask("GET", `/task?after=${after}`, [200, 204, 410], undefined, limit);
    const said = headers.get("Edgefr-Round");
    if (said === null && status === 204) return null;
    if (said === null || !/^\d{1,9}$/.test(said))
      throw new Refused(`${this.url} names no round: not a server of edgefr`);
    const [sum, bundle] = [headers.get("Edgefr-Sum"), headers.get("Edgefr-Bundle")];
    return { round: Number(said), content: body, done: status === 410, rest: status === 204, sum, bundle };
  }

  /** Sends a round's release; false: nobody waits for it. `again`: an answer may have been lost before. */
  async send(round: number, content: Uint8Array, again = false): Promise<boolean> {
    const taken = again ? [200, 409, 400] : [200, 409];
    return (await this.#ask("POST", `/release?round=${round}`, taken, content)).status === 200;
  }

  /** Sends what a step of a round's secure sum asks for; false: the sum goes on without this device. */
  async tell(step: string, round: number, content: Uint8Array): Promise<boolean> {
    return (await this.#ask("POST", `/sum/${step}?round=${round}`, [200, 409], content)).status === 200;
  }

  /** Waits for the end of a step, and returns what it came to; null: the sum goes on without this device. */
  async told(step: string, round: number, limit: number): Promise<Uint8Array | null> {
    const until = performance.now() + this.patience.idle * 1000;
    while (performance.now() < until) {
      const { status, body } = await this.#ask("GET", `/sum/${step}?round=${round}`, [200, 204, 409], undefined, limit);
      if (status !== 204) return status === 200 ? body : null;
    }
    return null;
  }

  /** The bundle that the server has for this device; no file is asked for before its manifest was checked. */
  bundle(): Files {
    let [entries, manifest]: [FileEntry[], Promise<[Uint8Array, Uint8Array | null]> | null] = [[], null];
    const fetched = () => {
      manifest ??= this.#ask(
        "GET", "/bundle", [200], undefined, MANIFEST + 2 * SIGNATURE,
      ).then(({ body }) => unsealed(body));
      return manifest;
    };
    return {
      list: async () => {
        entries = (JSON.parse(new TextDecoder().decode((await fetched())[0])) as { files: FileEntry[] }).files;
        const size = entries.reduce((sum, one) => sum + one.size, 0);
        if (size > MOST)
          throw new Refused(`the bundle of ${this.url} has ${size} bytes, and no more than ${MOST} are fetched`);
        return entries.map((one) => one.path);
      },
      read: async (path) => {
        const place = ["manifest.json", "manifest.sig.json"].indexOf(path);
        if (place >= 0) return (await fetched())[place];
        const entry = entries.find((one) => one.path === path);
        return entry ? this.#file(entry) : null;
      },
    };
  }

  async #file({ sha256, size }: FileEntry): Promise<Uint8Array> {
    const out = new Uint8Array(size);
    for (let at = 0; at < size; at += PIECE) {
      const stop = Math.min(at + PIECE, size);
      const more = { Range: `bytes=${at}-${stop - 1}` };
      const { body } = await this.#ask("GET", `/files/${sha256}`, [206], undefined, stop - at, more);
      if (body.length !== stop - at)
        throw new Refused(`${this.url} answers with ${body.length} bytes in place of ${stop - at}`);
      out.set(body, at);
    }
    return out;
  }

  /** Asks until there is an answer, which must be one of those `taken`; a server that is out of order again. */
  async #ask(
    method: string, path: string, taken: number[], body?: Uint8Array, limit = SMALL, more = {},
  ): Promise<Answer> {
    const { tries, longest } = this.patience;
    const wait = this.#empty ? Math.min(this.patience.pause * 2 ** Math.min(this.#empty - 1, 30), longest) : 0;
    await this.sleep(Math.max(0, this.#last + wait - performance.now() / 1000));
    this.#last = performance.now() / 1000;
    let [problem, pause] = ["", this.patience.pause];
    for (let attempt = 0; attempt < tries; attempt++) {
      if (attempt) await this.sleep(pause);
      if (attempt) pause = Math.min(2 * pause, longest);
      try {
        const answer = await this.#signed(method, path, body, limit, more);
        if (answer.status < 500 && answer.status !== 429) {
          this.#empty = answer.status === 204 ? this.#empty + 1 : 0;
          if (!taken.includes(answer.status)) throw this.#refused(answer);
          return answer;
        }
        problem = `it answers ${answer.status}`;
      } catch (error) {
        if (error instanceof Refused || this.stop?.aborted) throw error;
        problem = reason(error);
      }
    }
    throw new Unreachable(`cannot reach ${this.url} in ${tries} tries (${problem}); nothing is lost: try again later`);
  }

  /** Asks once, and once more where the server says what it wants signed. */
  async #signed(
    method: string, path: string, body: Uint8Array | undefined, limit: number, more: object,
  ): Promise<Answer> {
    const answer = await this.#once(method, path, body, limit, more);
    const [session, nonce] = ["Edgefr-Session", "Edgefr-Nonce"].map((name) => answer.headers.get(name));
    const [anew, later] = [/^[0-9a-f]{32}$/.test(session ?? ""), /^\d{1,20}$/.test(nonce ?? "")];
    if (answer.status !== 401 || !(anew || later)) return answer;
    if (anew) this.#session = session!;
    if (later && BigInt(nonce!) > this.#nonce) this.#nonce = BigInt(nonce!);
    return this.#once(method, path, body, limit, more);
  }

  async #once(
    method: string, path: string, body: Uint8Array | undefined, limit: number, more: object,
  ): Promise<Answer> {
    await this.identity.count();
    const content = body ?? new Uint8Array();
    const signed = await this.identity.signed(method, path, content, this.#session, ++this.#nonce);
    const until = AbortSignal.timeout(this.patience.request * 1000);
    const response = await fetch(this.url + path, {
      method, body: body && bytes(body), headers: { ...more, Authorization: signed }, redirect: "manual",
      credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer",
      signal: this.stop ? AbortSignal.any([until, this.stop]) : until,
    });
    if (response.type === "opaqueredirect") throw new Refused(`${this.url} leads elsewhere, which no device follows`);
    return { status: response.status, headers: response.headers, body: await this.#body(
      response, Math.max(limit, LINE),
    ) };
  }

  async #body(response: Response, limit: number): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let size = 0;
    const reader = response.body?.getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader!.read()) {
      parts.push(part.value);
      size += part.value.length;
      if (size <= limit) continue;
      await reader!.cancel();
      throw new Refused(`${this.url} answers with more than ${limit} bytes: not a server of this bundle`);
    }
    const out = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      out.set(part, at);
      at += part.length;
    }
    return out;
  }

  #refused({ status, body }: Answer): Refused {
    const said = reason(new TextDecoder().decode(body.subarray(0, LINE)).trim());
    return new Refused(`${this.url} refuses this device (${status}): ${said || "it does not say why"}`);
  }
}

/** What was sealed, and its signature; bytes that nobody sealed come back as they are. */
export function unsealed(content: Uint8Array): [Uint8Array, Uint8Array | null] {
  const end = content.length - TRAILER.length;
  if (end < 0 || new TextDecoder("latin1").decode(content.subarray(end)) !== TRAILER) return [content, null];
  const length = end < 4 ? Infinity : new DataView(content.buffer, content.byteOffset + end - 4).getUint32(0, true);
  const start = end - 4 - length;
  if (length > SIGNATURE || start < 0) throw new Refused("what came is cut off, or its signature is too long");
  return [content.slice(0, start), content.slice(start, end - 4)];
}
