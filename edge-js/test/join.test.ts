import { readFile } from "node:fs/promises";
import { join as path } from "node:path";
import * as runtime from "onnxruntime-node";
import { afterEach, expect, test, vi } from "vitest";
import { Device, memoryStore, type Runtime } from "../src/index.js";
import { Identity, join, Server } from "../src/join/index.js";
import { folder } from "../src/node.js";
import { close, KIT, opened, reached, round, SESSION, told, type Way } from "./told.js";

const SECRET = "0123456789abcdef0123456789abcdef";
const HAD = ["i0000003", "i0000042", "i0000010"];

afterEach(() => {
  vi.useRealTimers();
  close();
});

const open = (unprotected = true) => opened("fedmf", { unprotected });

/** An update of the kit, sealed as a server sends it. */
async function update(name = "fedmf", seal = true): Promise<Uint8Array> {
  const at = path(KIT, "updates", `${name}.safetensors`);
  const [content, signature] = [await readFile(at), await readFile(`${at}.sig.json`)];
  const length = Buffer.alloc(4);
  length.writeUInt32LE(signature.length);
  return seal ? Buffer.concat([content, signature, length, Buffer.from("edgefr.signature")]) : content;
}

test("a request is signed as docs/protocol.md shows it", async () => {
  const page = await readFile(path(KIT, "../docs/protocol.md"), "utf-8");
  const store = memoryStore();
  const secret = Array.from({ length: 32 }, (_, n) => n.toString(16).padStart(2, "0")).join("");
  const record = { schema: "edgefr.identity/1", private: secret, user: null, day: 0, requests: 0 };
  await store.write(new TextEncoder().encode(JSON.stringify(record)));
  vi.useFakeTimers({ now: 1_700_000_000_000, toFake: ["Date"] });
  const body = new TextEncoder().encode("hello");
  const identity = await Identity.of(store);
  const header = await identity.signed("POST", "/release?round=3", body, SESSION, 1_700_000_000_000_000_001n);
  expect(page).toContain(`\n${header}\n`);
});

test("a device catches up, learns, sends, and takes the last word", async () => {
  const sent: string[] = [];
  const whole = await update();
  const device = await open();
  const way: Way = (_, { pathname, searchParams }) => {
    if (pathname === "/release") {
      sent.push(searchParams.get("round")!);
      return { status: 200, headers: { "Edgefr-Round": "4" }, body: "taken\n" };
    }
    if (searchParams.get("after") === "0") return round(whole, 4, { "Edgefr-Bundle": device.bundle.manifest.bundle_id });
    return { status: 410, headers: { "Edgefr-Round": "3" }, body: whole };
  };
  const heard: string[] = [];
  const counts = await join(device, await reached(await told(way)), HAD, (number, stands) => heard.push(`${number} ${stands}`));
  expect(sent).toEqual(["4"]);
  expect(counts).toMatchObject({ taken: 1, late: 0, stopped: null });
  expect(heard).toEqual(["0 waiting", "4 learning", "4 taken", "4 waiting", "3 over"]);
  expect(device.status()).toMatchObject({ round: 3, interactions: 3, waitingRelease: 4 });
});

test("what was made and had no answer is sent again, the same bytes", async () => {
  const [device, bodies] = [await open(), [] as Uint8Array[]];
  const made = await device.release(HAD);
  const way: Way = (_, { pathname }, content) => {
    bodies.push(content);
    return pathname === "/release" ? { status: 400, body: "closed" } : { status: 410, headers: { "Edgefr-Round": "2" }, body: "" };
  };
  await join(device, await reached(await told(way)), []);
  expect(Buffer.concat(bodies)).toEqual(Buffer.from(made));
});

const HOSTILE: [string, () => Promise<Way>, RegExp][] = [
  ["an update that nobody signed", async () => ((content) => () => round(content))(await update("fedmf", false)), /not signed/],
  ["an update of another publisher", async () => ((content) => () => round(content))(await update("fedncf")), /not trusted/],
  ["an update with a changed byte", async () => {
    const content = await update();
    content[900] ^= 1;
    return () => round(content);
  }, /was changed/],
  ["an update to another round", async () => ((content) => () => round(content, 9))(await update()), /starts at 8/],
  ["a round without the update to it", async () => () => round("", 4), /at round 3, this device's state at 2/],
  ["a signature that is cut off", async () => () => round(`${"x".repeat(4)}\xff\xff\xff\x7fedgefr.signature`), /cut off/],
  ["more bytes than an update has", async () => () => round(Buffer.alloc(3 << 20)), /more than \d+ bytes/],
  ["a redirect", async () => () => ({ status: 302, headers: { Location: "http://127.0.0.1:1/" } }), /refuses this device \(302\)/],
  ["a round that is not above the last", async () => () => round("", 0), /answers with round 0/],
  ["no round at all", async () => () => ({ status: 200, body: "" }), /names no round/],
  ["a round that is no number", async () => () => round("", 4, { "Edgefr-Round": "4e9" }), /names no round/],
  ["a sum without a seat in it", async () => () => round("", 3, { "Edgefr-Sum": `0 ${SESSION}` }), /no place in it/],
  ["a sum of updates without a bound", async () => () => round("", 3, { "Edgefr-Sum": `1 ${SESSION}` }), /without a clip/],
  ["another bundle", async () => () => round("", 3, { "Edgefr-Bundle": "0".repeat(64) }), /another bundle/],
  ["a refusal with control characters", async () => () => ({ status: 403, body: "\u001b[2Jno" }), /\(403\): \?\[2Jno/],
  ["errors without end", async () => () => ({ status: 503, body: "" }), /cannot reach .* in 2 tries/],
  ["sessions without end", async () => () => ({ status: 401, headers: { "Edgefr-Session": "f".repeat(32) } }), /\(401\)/],
];

test.each(HOSTILE)("%s is refused, and nothing is learned or sent", async (_, way, why) => {
  const [device, sent] = [await open(), [] as string[]];
  const hostile = await way();
  const before = device.status();
  const asked: Way = (request, url, content) => {
    if (request.method === "POST") sent.push(url.pathname);
    return hostile(request, url, content);
  };
  await expect(join(device, await reached(await told(asked)), HAD)).rejects.toThrow(why);
  expect(device.status()).toEqual(before);
  expect(sent).toEqual([]);
});

test("a strict device sends nothing where nothing is promised, and asks for nothing", async () => {
  let asked = 0;
  const url = await told(() => (asked++, { status: 204 }));
  await expect(join(await open(false), await reached(url), HAD)).rejects.toThrow("policy unprotected");
  expect(asked).toBe(0);
});

test("a name is taken of an honest answer alone, and codes and addresses are checked", async () => {
  const identity = await Identity.of(memoryStore());
  const answer = (body: string) => told(() => ({ status: 200, body }));
  const enrol = async (body: string) => new Server(await answer(body), identity).enrol(SECRET);
  for (const body of ["", "[]", "null", '{"user": 1}', '{"user": ""}', '{"user": "a\\nb"}', '{"user": "a", "more": 1}']) {
    await expect(enrol(body)).rejects.toThrow("not a server of edgefr");
  }
  expect(identity.user).toBeNull();
  expect(await enrol('{"user": "ada"}')).toBe("ada");
  await expect(new Server("http://127.0.0.1:1", identity).enrol("123")).rejects.toThrow("no one-time code");
  await expect(new Server("https://a.example", identity).enrol(`${SECRET}.${"0".repeat(64)}`)).rejects.toThrow("TLS key");
  for (const url of ["ftp://a", "http://u:p@localhost", "http://localhost/x", "x", "http://localhost/?a"]) {
    expect(() => new Server(url, identity)).toThrow("no server's address");
  }
  expect(() => new Server("http://example.org", identity)).toThrow("in the clear");
});

test("a bundle is fetched by its signed manifest, and no file before that was checked", async () => {
  const files = folder(path(KIT, "fedmf"));
  const [raw, signature] = [Buffer.from((await files.read("manifest.json"))!), Buffer.from((await files.read("manifest.sig.json"))!)];
  const listed = (JSON.parse(raw.toString()) as { files: { path: string; sha256: string }[] }).files;
  const contents = new Map<string, Uint8Array>();
  for (const one of listed) contents.set(one.sha256, (await files.read(one.path))!);
  const served = async (manifest: Buffer, change: (part: Uint8Array) => Uint8Array = (part) => part) => {
    const [length, asked] = [Buffer.alloc(4), [] as string[]];
    length.writeUInt32LE(signature.length);
    const url = await told((request, { pathname }) => {
      if (pathname === "/bundle") return { status: 200, body: Buffer.concat([manifest, signature, length, Buffer.from("edgefr.signature")]) };
      asked.push(pathname);
      const [first, last] = /bytes=(\d+)-(\d+)/.exec(request.headers.range!)!.slice(1).map(Number);
      return { status: 206, body: change(contents.get(pathname.split("/")[2])!.slice(first, last + 1)) };
    });
    const opened = Device.open((await reached(url)).bundle(), memoryStore(), { runtime: runtime as unknown as Runtime });
    return { opened, asked };
  };
  const { opened } = await served(raw);
  expect((await opened).bundle.signedBy).toMatch(/^[0-9a-f]{64}$/);
  const bad = Buffer.from(raw);
  bad[bad.length - 20] ^= 1;
  const changed = await served(bad);
  await expect(changed.opened).rejects.toThrow("was changed");
  expect(changed.asked).toEqual([]);
  await expect((await served(raw, (part) => part.map((byte) => byte ^ 1))).opened).rejects.toThrow("was changed");
  await expect((await served(raw, (part) => part.slice(1))).opened).rejects.toThrow("in place of");
});
