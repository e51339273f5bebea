import { expect, test } from "vitest";
import { exactNoise, type Bits } from "../src/noise/index.js";
import * as keyed from "../src/keyed.js";
import { hex } from "../src/signature.js";
import { wordsOf } from "../src/words.js";

test("BLAKE2b is that of RFC 7693", () => {
  const abc = new TextEncoder().encode("abc");
  expect(hex(keyed.blake2b(abc, 64))).toMatch(/^ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1/);
  expect(keyed.blake2b(new Uint8Array(300), 8)).toHaveLength(8);
});

test("draws are those of the page on the format", () => {
  expect(keyed.key(0, "cohort", 3)).toBe(0x888b12c06bead817n);
  expect(keyed.key(0, "federated negatives", 3, 0)).toBe(0x7c39465eea69bdcfn);
  expect([keyed.bits(0n, 0), keyed.bits(0n, 1)]).toEqual([0xe220a8397b1dcdafn, 0x6e789e6aa1b965f4n]);
  expect([0, 1, 2, 3].map((n) => keyed.integer(keyed.key(0, "doctest"), n, 10))).toEqual([8, 5, 1, 7]);
  expect(keyed.normal(0n, 0)).toBeCloseTo(-1.8839083333524405, 12);
});

/** Bits that come again, so that the test of a law cannot fail by chance. */
function repeated(seed: bigint): Bits {
  let at = 0n;
  return (count) => BigUint64Array.from({ length: count }, () => keyed.bits(seed, at++));
}

test.each([
  ["discrete-gaussian", 7, 49],
  ["discrete-laplace", 7, 2 * Math.exp(-1 / 7) / (1 - Math.exp(-1 / 7)) ** 2],
] as const)("%s noise has its law", (law, scale, variance) => {
  const drawn = exactNoise(law, scale, 20_000, repeated(11n));
  const mean = drawn.reduce((a, b) => a + b, 0) / drawn.length;
  const second = drawn.reduce((a, b) => a + b * b, 0) / drawn.length;
  expect(Math.abs(mean)).toBeLessThan((4 * Math.sqrt(variance)) / Math.sqrt(drawn.length));
  expect(second / variance).toBeGreaterThan(0.95);
  expect(second / variance).toBeLessThan(1.05);
});

test("no two draws of real noise are alike, and odd scales are refused", () => {
  expect(exactNoise("discrete-gaussian", 1000, 50)).not.toEqual(exactNoise("discrete-gaussian", 1000, 50));
  for (const scale of [0, 1.5, 2 ** 24 + 1])
    expect(() => exactNoise("discrete-gaussian", scale, 1)).toThrow("cannot be drawn");
});

test("words are those of the Python device", () => {
  expect(wordsOf("The CAFE\u0301, the cat", true)).toEqual(
    ["the", "café", "the", "cat", "the café", "café the", "the cat"],
  );
  expect(wordsOf("Straße ΟΔΟΣ", false)).toEqual(["strasse", "οδοσ"]);
});
