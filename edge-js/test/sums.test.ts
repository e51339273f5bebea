import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join as path } from "node:path";
import { expect, test } from "vitest";
import { packTensors, type Arr } from "../src/arrays.js";
import type { Learning } from "../src/config.js";
import { unhex } from "../src/signature.js";
import { agreed, publicOf } from "../src/join/sums/agreement.js";
import { poly1305, seal, stream, unseal } from "../src/join/sums/chacha.js";
import * as messages from "../src/join/sums/messages.js";
import { quorum, threshold } from "../src/join/sums/neighbours.js";
import { Participant } from "../src/join/sums/participant.js";
import { wholeSteps } from "../src/join/sums/sealing.js";
import type { Draw } from "../src/join/sums/sharing.js";

/** What Python's devices send when their draws are known (tests/edge_js/sum_vectors.py). */
const VECTORS = JSON.parse(await readFile(path(import.meta.dirname, "sums.json"), "utf-8"));
const utf8 = (text: string) => new TextEncoder().encode(text);
const text = (content: Uint8Array) => new TextDecoder().decode(content);
const counted = (from: number, size: number) => Uint8Array.from({ length: size }, (_, n) => from + n);

/** Bytes that are the same each time, as `draws` of tests/edge_js/sum_vectors.py. */
function draws(seed: number): Draw {
  let [kept, counted] = [Buffer.alloc(0), 0];
  return (count) => {
    while (kept.length < count) kept = Buffer.concat([kept, createHash("sha256").update(`${seed} ${counted++}`).digest()]);
    const found = new Uint8Array(kept.subarray(0, count));
    kept = kept.subarray(count);
    return found;
  };
}

test("a block of the key stream is that of RFC 8439, 2.3.2", () => {
  const found = stream(counted(0, 32), 16, unhex("000000090000004a00000000"), 1);
  expect([...found].map((word) => word.toString(16).padStart(8, "0")).join(" ")).toBe(
    "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 " +
    "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2",
  );
});

test.each([
  [
    "85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b",
    Buffer.from("Cryptographic Forum Research Group").toString("hex"), "a8061dc1305136c6c22b8baf0c0127a9",
  ], // 2.5.2
  [`02${"00".repeat(31)}`, "ff".repeat(16), `03${"00".repeat(15)}`], // A.3, 5
  [`02${"00".repeat(15)}${"ff".repeat(16)}`, `02${"00".repeat(15)}`, `03${"00".repeat(15)}`], // A.3, 6
  [`01${"00".repeat(31)}`, `${"ff".repeat(16)}f0${"ff".repeat(15)}11${"00".repeat(15)}`, `05${"00".repeat(15)}`], // A.3, 7
  [`01${"00".repeat(31)}`, `${"ff".repeat(16)}fb${"fe".repeat(15)}${"01".repeat(16)}`, "00".repeat(16)], // A.3, 8
  [`02${"00".repeat(31)}`, `fd${"ff".repeat(15)}`, `fa${"ff".repeat(15)}`], // A.3, 9
])("a tag under %s is that of RFC 8439", (key, message, tag) => {
  expect(Buffer.from(poly1305(unhex(key), unhex(message))).toString("hex")).toBe(tag);
});

test("what is sealed is that of RFC 8439, 2.8.2, and nothing that was changed is opened", () => {
  const said = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
  const [key, nonce, beside] = [counted(0x80, 32), unhex("070000004041424344454647"), unhex("50515253c0c1c2c3c4c5c6c7")];
  const found = seal(key, nonce, utf8(said), beside);
  expect(Buffer.from(found).toString("hex")).toBe(
    "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b" +
    "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc" +
    "3ff4def08e4b7a9de576d26586cec64b6116" + "1ae10b594f09e26a7e902ecbd0600691",
  );
  expect(text(unseal(key, nonce, found, beside)!)).toBe(said);
  for (const at of [0, found.length - 17, found.length - 16, found.length - 1]) {
    const changed = found.slice();
    changed[at] ^= 1;
    expect(unseal(key, nonce, changed, beside)).toBeNull();
  }
  expect(unseal(key, nonce, found, beside.subarray(1))).toBeNull();
  expect(unseal(key, nonce, found.subarray(1), beside)).toBeNull();
  expect(unseal(key, nonce, found.subarray(0, 15), beside)).toBeNull();
});

test("a session, a key in common and a mask are those of docs/protocol.md", async () => {
  const page = await readFile(path(import.meta.dirname, "../../docs/protocol.md"), "utf-8");
  const [one, other] = [counted(0, 32), counted(32, 32)];
  const session = await messages.sessionOf(messages.seatOf(`1 ${"11".repeat(16)}`), "0".repeat(64), 3);
  const seed = await agreed(one, await publicOf(other), session, "mask", [1, 2]);
  expect(await agreed(other, await publicOf(one), session, "mask", [2, 1])).toEqual(seed);
  expect(await agreed(other, await publicOf(one), session, "share", [2, 1])).not.toEqual(seed);
  const lines = [Buffer.from(session).toString("hex"), Buffer.from(seed).toString("hex"), stream(seed, 4).join(" ")];
  expect(page).toContain(lines.map((line) => `    ${line}`).join("\n"));
});

test("thresholds and quorums are those that Python's devices work out", () => {
  expect(VECTORS.thresholds.map((_: number, n: number) => threshold(n + 1))).toEqual(VECTORS.thresholds);
  for (const [devices, wanted] of Object.entries(VECTORS.quorums)) expect(quorum(Number(devices))).toBe(wanted);
});

test("a device sends what Python's would, byte for byte, in a sum that one device leaves", async () => {
  for (const [name, said] of Object.entries<Record<string, string>>(VECTORS.devices)) {
    const seat = messages.seatOf(said.header);
    const session = await messages.sessionOf(seat, VECTORS.bundle, VECTORS.round);
    const part = await Participant.of(session, seat.number, draws(Number(name)));
    expect(text(messages.written(part.keys))).toBe(said.keys);
    const shares = await part.share(messages.neighboursOf(utf8(said.neighbours)));
    expect(text(messages.sharesMessage(shares))).toBe(said.shares);
    if (!said.inbox) continue; // it goes away
    const masked = await part.masked(Int32Array.from(said.vector as unknown as number[]), messages.sharesOf(utf8(said.inbox)));
    expect([...masked]).toEqual(said.masked);
    const asked = messages.askedOf(utf8(VECTORS.asked));
    const signature = Buffer.from(await part.agree(asked.sent, asked.arrived)).toString("hex");
    expect(text(messages.written({ signature }))).toBe(said.agreeing);
    const shown = await part.reveal(messages.agreedOf(utf8(VECTORS.agreed)));
    expect(text(messages.openingMessage(shown))).toBe(said.opening);
    await expect(part.reveal(messages.agreedOf(utf8(VECTORS.agreed)))).rejects.toThrow("its next step is nothing");
  }
});

const KEYS = JSON.stringify({ mask: "a".repeat(64), share: "b".repeat(64), sign: "c".repeat(64) });
test.each<[string, (content: Uint8Array) => unknown, string]>([
  ["no JSON", messages.askedOf, "{"],
  ["no object", messages.askedOf, "[]"],
  ["nothing", messages.askedOf, "null"],
  ["bytes that are no text", messages.askedOf, "\ud800"],
  ["a field more", messages.askedOf, '{"sent":[],"arrived":[],"more":1}'],
  ["a field less", messages.askedOf, '{"sent":[]}'],
  ["another field", messages.askedOf, '{"sent":[],"__proto__":[]}'],
  ["a number below 1", messages.askedOf, '{"sent":[0],"arrived":[]}'],
  ["a number of more than 31 bits", messages.askedOf, '{"sent":[2147483648],"arrived":[]}'],
  ["half a number", messages.askedOf, '{"sent":[1.5],"arrived":[]}'],
  ["a text for a number", messages.askedOf, '{"sent":["1"],"arrived":[]}'],
  ["more devices than there can be", messages.askedOf, JSON.stringify({ sent: Array(65537).fill(1), arrived: [] })],
  ["a name that is no number", messages.agreedOf, `{"signatures":{"01":"${"0".repeat(128)}"}}`],
  ["a signature that is too short", messages.agreedOf, '{"signatures":{"1":"00"}}'],
  ["a signature in capitals", messages.agreedOf, `{"signatures":{"1":"${"A".repeat(128)}"}}`],
  ["shares that are too long", messages.sharesOf, `{"sealed":{"1":"${"0".repeat(190)}"}}`],
  ["shares as a list", messages.sharesOf, '{"sealed":[]}'],
  ["a key that is none", messages.neighboursOf, '{"threshold":1,"keys":{"2":null},"roster":{}}'],
  ["no threshold", messages.neighboursOf, `{"threshold":null,"keys":{"2":${KEYS}},"roster":{}}`],
])("%s is no message of a sum", (_, read, content) => {
  const bytes = content === "\ud800" ? Uint8Array.of(0x7b, 0xff, 0x7d) : utf8(content);
  expect(() => read(bytes)).toThrow(/^not a message of a secure sum: [^\n]+$/);
});

test.each(["", "0 " + "0".repeat(32), `1 ${"0".repeat(31)}`, `1 ${"0".repeat(32)} 00`, `1 ${"A".repeat(32)}`, `1 ${"0".repeat(32)}\n`, `1 ${"0".repeat(32)}, 2 ${"0".repeat(32)}`])(
  "%j is no seat", (header) => expect(() => messages.seatOf(header)).toThrow("no place in it"),
);

test("whole steps are those of the release or of the clip's grid", () => {
  const learning = {
    release: { clip: 1.5, norm: "l2", weights: "uniform", noised: "nowhere", step: null },
    tensors: [{ name: "item", shape: [5, 2], place: "shared", kind: "rows" }, { name: "bias", shape: [2], place: "shared", kind: "dense" }],
    phases: [{ when: "round", dense: ["bias"], tables: ["item"] }],
  } as unknown as Learning;
  const arrays = new Map<string, Arr>([
    ["update", { data: Float32Array.of(-0.25, 3.9 * 2 ** -15), shape: [2] }],
    ["rows.item.items", { data: BigInt64Array.of(1n, 4n), shape: [2] }],
    ["rows.item.values", { data: Float32Array.of(0.5, 0, 0, -3.9 * 2 ** -15), shape: [2, 2] }],
  ]);
  const found = wholeSteps(packTensors(arrays, {}), learning);
  expect([...found]).toEqual([0, 0, 1 << 14, 0, 0, 0, 0, 0, 0, -3, -(1 << 13), 3]);
  const given = Int32Array.of(1, -2);
  expect(wholeSteps(packTensors(new Map([["update", { data: given, shape: [2] }]]), {}), learning)).toEqual(given);
  const beside = new Map<string, Arr>([...arrays, ["prototype", { data: Float32Array.of(1), shape: [1] }]]);
  expect(() => wholeSteps(packTensors(beside, {}), learning)).toThrow("messages beside them");
});
