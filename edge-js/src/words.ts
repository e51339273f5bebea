/** A text becomes a vector by its words alone, hashed or looked up in a learned table (edge/word_vectors.py). */

import { half, parseNpy } from "./arrays.js";
import type { Words } from "./config.js";
import { Refused } from "./errors.js";

/** The words of a text's beginning in one case and one form; with `pairs` neighbours too. */
export function wordsOf(text: string, pairs: boolean): string[] {
  const start = [...text.slice(0, 16384)].slice(0, 8192).join("");
  // case folding: small letters of capitals, so that ß is ss and a final sigma is a sigma
  const folded = start.normalize("NFKC").toLowerCase().toUpperCase().toLowerCase().replace(/ς/g, "σ");
  const words = folded.match(/[\p{L}\p{N}_]+/gu) ?? [];
  return pairs ? [...words, ...words.slice(1).map((word, n) => `${words[n]} ${word}`)] : words;
}

/** Each word's number: 8 bytes of its SHA-256, low first. */
async function numbersOf(text: string, pairs: boolean): Promise<bigint[]> {
  const digests = wordsOf(text, pairs).map((word) => crypto.subtle.digest("SHA-256", new TextEncoder().encode(word)));
  return (await Promise.all(digests)).map((digest) => new DataView(digest).getBigInt64(0, true));
}

export class WordEncoder {
  readonly #rows = new Map<bigint, Float64Array>();
  readonly #parts: number;

  constructor(private readonly record: Words, read: (path: string) => Uint8Array) {
    if (record.words !== "words/1") throw new Refused(`its words are of another rule, ${record.words}`);
    const table = record.table;
    this.#parts = table?.parts ?? 1;
    if (!table) return;
    const numbers = parseNpy(read(table.numbers), table.numbers, "<i8", [table.count]).data as BigInt64Array;
    const weights =
      parseNpy(read(table.weights), table.weights, table.scale ? "|i1" : "<f2", [table.count, record.width]).data;
    const scale = table.scale
      ? (parseNpy(read(table.scale), table.scale, "<f4", [table.count, this.#parts]).data as Float32Array)
      : null;
    const [width, each] = [record.width, record.width / this.#parts];
    numbers.forEach((number, row) => {
      if (row && number <= numbers[row - 1]) throw new Refused(`${table.numbers} has numbers that do not ascend`);
      const value = (n: number) => {
        const stored = Number(weights[row * width + n]);
        return scale ? stored * scale[row * this.#parts + Math.floor(n / each)] : half(stored);
      };
      this.#rows.set(number, Float64Array.from({ length: width }, (_, n) => value(n)));
    });
  }

  /** The text's vector, float32 [width]; zeros for a text without a known word. */
  async encode(text: string): Promise<Float32Array> {
    const { width, table, pairs } = this.record;
    const whole = new Float64Array(width);
    for (const number of await numbersOf(text, pairs)) {
      if (table) this.#rows.get(number)?.forEach((value, n) => (whole[n] += value));
      else whole[Number(BigInt.asUintN(64, number) % BigInt(width))] += number < 0n ? -1 : 1;
    }
    const each = width / this.#parts;
    const lengths =
      Array.from({ length: this.#parts }, (_, part) => Math.hypot(...whole.subarray(part * each, (part + 1) * each)));
    if (!lengths.every(Number.isFinite))
      throw new Refused("the weights of the words are no finite numbers; export again");
    const there = lengths.filter((length) => length > 0).length;
    return Float32Array.from(
      whole, (value, n) => (there ? value / (lengths[Math.floor(n / each)] || 1) / Math.sqrt(there) : 0),
    );
  }
}
