/** ChaCha20 and Poly1305 (RFC 8439), which the platform's cryptography does not have everywhere. */

const TAG = 16;
const BLOCK = 16; // words
const CONSTANTS = [0x61707865, 0x3320646e, 0x79622d32, 0x6b206574];
const PRIME = (1n << 130n) - 5n;
const CLAMP = 0x0ffffffc0ffffffc0ffffffc0fffffffn;

/** The first `size` words of a key's stream, from the block `first` on. */
export function stream(key: Uint8Array, size: number, nonce: Uint8Array = new Uint8Array(12), first = 0): Uint32Array {
  const out = new Uint32Array(BLOCK * Math.ceil(size / BLOCK));
  const start = Uint32Array.from([...CONSTANTS, ...words(key), first, ...words(nonce)]);
  const state = new Uint32Array(BLOCK);
  for (let at = 0; at < size; at += BLOCK) {
    state.set(start);
    for (let round = 0; round < 10; round++) twoRounds(state);
    for (let n = 0; n < BLOCK; n++) out[at + n] = state[n] + start[n];
    start[12]++;
  }
  return out.subarray(0, size);
}

function twoRounds(state: Uint32Array): void {
  for (let column = 0; column < 4; column++) quarter(state, column, 4 + column, 8 + column, 12 + column);
  for (let first = 0; first < 4; first++)
    quarter(state, first, 4 + ((first + 1) % 4), 8 + ((first + 2) % 4), 12 + ((first + 3) % 4));
}

function quarter(state: Uint32Array, a: number, b: number, c: number, d: number): void {
  state[a] += state[b];
  state[d] = turned(state[d] ^ state[a], 16);
  state[c] += state[d];
  state[b] = turned(state[b] ^ state[c], 12);
  state[a] += state[b];
  state[d] = turned(state[d] ^ state[a], 8);
  state[c] += state[d];
  state[b] = turned(state[b] ^ state[c], 7);
}

const turned = (word: number, by: number): number => (word << by) | (word >>> (32 - by));

/** What `content` says to whoever has the key, and a tag behind it that also covers `beside`. */
export function seal(key: Uint8Array, nonce: Uint8Array, content: Uint8Array, beside: Uint8Array): Uint8Array {
  const hidden = crossed(key, nonce, content);
  return joined(hidden, tagOf(key, nonce, hidden, beside));
}

/** What was sealed; null for anything that was not sealed with this key, this nonce and what stands `beside`. */
export function unseal(
  key: Uint8Array, nonce: Uint8Array, sealed: Uint8Array, beside: Uint8Array,
): Uint8Array | null {
  if (sealed.length < TAG) return null;
  const [hidden, tag] = [sealed.subarray(0, -TAG), sealed.subarray(-TAG)];
  const wanted = tagOf(key, nonce, hidden, beside);
  const differing = wanted.reduce((found, byte, n) => found | (byte ^ tag[n]), 0); // all bytes, whichever differ
  return differing ? null : crossed(key, nonce, hidden);
}

/** The bytes of `content` with the key's stream over them. */
export function crossed(key: Uint8Array, nonce: Uint8Array, content: Uint8Array): Uint8Array {
  const over = octets(stream(key, Math.ceil(content.length / 4), nonce, 1));
  return content.map((byte, n) => byte ^ over[n]);
}

function tagOf(key: Uint8Array, nonce: Uint8Array, hidden: Uint8Array, beside: Uint8Array): Uint8Array {
  const lengths = octets(Uint32Array.from([beside.length, 0, hidden.length, 0]));
  return poly1305(octets(stream(key, 8, nonce)), joined(padded(beside), padded(hidden), lengths));
}

/** The tag of a message under a key that is used once. */
export function poly1305(key: Uint8Array, message: Uint8Array): Uint8Array {
  const [factor, last] = [numberOf(key.subarray(0, TAG)) & CLAMP, numberOf(key.subarray(TAG))];
  let sum = 0n;
  for (let at = 0; at < message.length; at += TAG) {
    const block = message.subarray(at, at + TAG);
    sum = ((sum + numberOf(block) + (1n << BigInt(8 * block.length))) * factor) % PRIME;
  }
  const found = sum + last;
  return Uint8Array.from({ length: TAG }, (_, n) => Number((found >> BigInt(8 * n)) & 255n));
}

/** A number whose low byte comes first. */
const numberOf = (content: Uint8Array): bigint => content.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);

const padded = (content: Uint8Array): Uint8Array =>
  joined(content, new Uint8Array((TAG - (content.length % TAG)) % TAG));

/** Numbers of 32 bits, low byte first. */
const words = (content: Uint8Array): Uint32Array => new Uint32Array(content.slice().buffer);

const octets = (found: Uint32Array) => new Uint8Array(found.buffer, found.byteOffset, found.byteLength);

/** Bytes end to end. */
export function joined(...parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
