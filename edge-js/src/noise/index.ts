/** Exact noise of whole steps from secure bits: discrete Gaussian and Laplace, as privacy/exact.py draws them. */

import { Refused } from "../errors.js";

/** Secure random words of 64 bits; a test feeds its own. */
export type Bits = (count: number) => BigUint64Array;

export const systemBits: Bits = (count) => {
  const out = new BigUint64Array(count);
  for (let at = 0; at < count; at += 8192) crypto.getRandomValues(out.subarray(at, at + 8192));
  return out;
};

export type Law = "discrete-gaussian" | "discrete-laplace";
const WORD = 64n;
const ALL = 1n << WORD;

/** `size` draws of a law with whole scale 1 to 2**24. */
export function exactNoise(law: Law, scale: number, size: number, bits: Bits = systemBits): Int32Array {
  if (!Number.isInteger(scale) || scale < 1 || scale > 1 << 24)
    throw new Refused(`noise of ${scale} grid steps cannot be drawn`);
  const source = new Source(bits);
  const [wide, out] = [BigInt(scale), new Int32Array(size)];
  for (let at = 0; at < size; ) {
    const block = source.block(law);
    const signed = source.below(2n * wide);
    const [place, negative] = [signed >> 1n, (signed & 1n) === 1n];
    const size = block * wide + place;
    if (!kept(law, source, block, place, wide) || (negative && size === 0n)) continue;
    out[at++] = Number(negative ? -size : size);
  }
  return out;
}

function kept(law: Law, source: Source, block: bigint, place: bigint, scale: bigint): boolean {
  if (law === "discrete-laplace") return source.survives(place, scale);
  if (!source.survives(place * place, 2n * scale * scale)) return false;
  for (let passed = 0n; passed < block; passed++) if (!source.survives(place, scale)) return false;
  return true;
}

class Source {
  #words: BigUint64Array = new BigUint64Array(0);
  #at = 0;

  constructor(private readonly bits: Bits) {}

  word(): bigint {
    if (this.#at >= this.#words.length) [this.#words, this.#at] = [this.bits(1024), 0];
    return this.#words[this.#at++];
  }

  /** A uniform whole number below a bound; words that would make some likelier are drawn anew. */
  below(bound: bigint): bigint {
    const piece = (ALL - 1n) / bound;
    for (;;) {
      const found = this.word() / piece;
      if (found < bound) return found;
    }
  }

  /** True with probability exp(-numerator / denominator), at most 1 in it (Canonne et al. 2020, Algorithm 1). */
  survives(numerator: bigint, denominator: bigint): boolean {
    let number = 1n;
    while (this.below(denominator * number) < numerator) number++;
    return number % 2n === 1n;
  }

  /** A draw of the block's law by inversion; further binary digits are drawn only where the first do not decide. */
  block(law: Law): bigint {
    let [digits, places] = [this.word(), WORD];
    for (;;) {
      const table = thresholds(law, places);
      const found = table.filter((one) => one <= digits).length;
      if (!found || table[found - 1] !== digits) return BigInt(found);
      [digits, places] = [(digits << WORD) | this.word(), places + WORD];
    }
  }
}

const KNOWN = new Map<string, bigint[]>();

/** The first `places` binary digits of P(block <= n) for n = 0, 1, ... up to the first that are all ones. */
function thresholds(law: Law, places: bigint): bigint[] {
  const name = `${law} ${places}`;
  for (let guard = 64n; !KNOWN.has(name); guard *= 2n) {
    const found = enclosed(law, places, places + guard);
    if (found) KNOWN.set(name, found);
  }
  return KNOWN.get(name)!;
}

function enclosed(law: Law, places: bigint, unit: bigint): bigint[] | null {
  const weights: [bigint, bigint][] = [];
  for (let n = 0n; !weights.length || weights[weights.length - 1][1] > 1n; n++) {
    weights.push(expMinus(law === "discrete-gaussian" ? n * n : 2n * n, unit));
  }
  const sum = (some: bigint[]) => some.reduce((a, b) => a + b, 0n);
  const [low, high] = [weights.map((one) => one[0]), weights.map((one) => one[1])];
  const out: bigint[] = [];
  for (let n = 1; n < weights.length; n++) {
    const [least, most] = [sum(low.slice(0, n)), sum(high.slice(0, n))];
    const first = (least << places) / (least + sum(high.slice(n)) + 2n);
    if (first !== (most << places) / (most + sum(low.slice(n)))) return null;
    out.push(first);
    if (first === (1n << places) - 1n) return out;
  }
  return null;
}

/** Whole numbers that enclose exp(-halves / 2) * 2**unit. */
function expMinus(halves: bigint, unit: bigint): [bigint, bigint] {
  if (!halves) return [1n << unit, 1n << unit];
  let [top, bottom] = [1n, 1n];
  for (let n = unit | 1n; n > 0n; n--) [top, bottom] = [2n * n * bottom - top, 2n * n * bottom];
  const low = (top << unit) / bottom;
  const [high, shift] = [low + 2n, unit * (halves - 1n)];
  return [low ** halves >> shift, -(-(high ** halves) >> shift)];
}
