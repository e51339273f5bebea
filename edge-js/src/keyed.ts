/** Keyed randomness: every number is a pure function of seed, purpose, path and index (docs/bundle-format.md). */

const MASK = (1n << 64n) - 1n;
const WEYL = 0x9e3779b97f4a7c15n;

const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];
const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
  "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
].map((row) => [...row].map((digit) => parseInt(digit, 16)));

/** BLAKE2b (RFC 7693) without a key, of so many bytes. */
export function blake2b(input: Uint8Array, size: number): Uint8Array {
  const h = IV.slice();
  h[0] ^= 0x01010000n ^ BigInt(size);
  const blocks = Math.max(1, Math.ceil(input.length / 128));
  for (let at = 0; at < blocks; at++) {
    const block = new Uint8Array(128);
    block.set(input.subarray(at * 128, at * 128 + 128));
    const last = at === blocks - 1;
    compress(h, new DataView(block.buffer), BigInt(last ? input.length : (at + 1) * 128), last);
  }
  const out = new DataView(new ArrayBuffer(64));
  h.forEach((word, place) => out.setBigUint64(place * 8, word, true));
  return new Uint8Array(out.buffer, 0, size);
}

function compress(h: bigint[], block: DataView, count: bigint, last: boolean): void {
  const v = [...h, ...IV];
  v[12] ^= count;
  if (last) v[14] ^= MASK;
  const turn = (x: bigint, n: bigint) => ((x >> n) | (x << (64n - n))) & MASK;
  const mix = (a: number, b: number, c: number, d: number, x: bigint, y: bigint) => {
    v[a] = (v[a] + v[b] + x) & MASK;
    v[d] = turn(v[d] ^ v[a], 32n);
    v[c] = (v[c] + v[d]) & MASK;
    v[b] = turn(v[b] ^ v[c], 24n);
    v[a] = (v[a] + v[b] + y) & MASK;
    v[d] = turn(v[d] ^ v[a], 16n);
    v[c] = (v[c] + v[d]) & MASK;
    v[b] = turn(v[b] ^ v[c], 63n);
  };
  for (let round = 0; round < 12; round++) {
    const word = (n: number) => block.getBigUint64(SIGMA[round % 10][n] * 8, true);
    for (let n = 0; n < 4; n++) mix(n, n + 4, n + 8, n + 12, word(2 * n), word(2 * n + 1));
    for (let n = 0; n < 4; n++) {
      mix(n, 4 + ((n + 1) % 4), 8 + ((n + 2) % 4), 12 + ((n + 3) % 4), word(8 + 2 * n), word(9 + 2 * n));
    }
  }
  for (let n = 0; n < 8; n++) h[n] ^= v[n] ^ v[n + 8];
}

/** The 64-bit key of a purpose. */
export function key(seed: bigint | number, purpose: string, ...path: (bigint | number)[]): bigint {
  const text = [seed, purpose, ...path].join("/");
  return new DataView(blake2b(new TextEncoder().encode(text), 8).slice().buffer).getBigUint64(0, true);
}

/** The `index`-th 64 random bits of a key (SplitMix64). */
export function bits(base: bigint, index: bigint | number): bigint {
  let x = ((BigInt(index) + 1n) * WEYL + base) & MASK;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return x ^ (x >> 31n);
}

/** A whole number in [0, bound). */
export function integer(base: bigint, index: bigint | number, bound: number): number {
  return Number(((bits(base, index) >> 32n) * BigInt(bound)) >> 32n);
}

/** A number in [0, 1) with 53 random bits. */
export function uniform(base: bigint, index: bigint | number): number {
  return Number(bits(base, index) >> 11n) * 2 ** -53;
}

/** A standard normal number, by Box and Muller. */
export function normal(base: bigint, index: bigint | number): number {
  const first = (BigInt(index) * 2n) & MASK;
  return Math.sqrt(-2 * Math.log1p(-uniform(base, first))) * Math.cos(2 * Math.PI * uniform(base, first + 1n));
}
