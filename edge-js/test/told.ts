/** A server that answers as a test tells it to, and devices of the kit that ask it. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join as path } from "node:path";
import * as runtime from "onnxruntime-node";
import { Device, memoryStore, type Policy, type Runtime } from "../src/index.js";
import { Identity, Server } from "../src/join/index.js";
import { folder } from "../src/node.js";

export const KIT = path(import.meta.dirname, "../../conformance");
export const SESSION = "00112233445566778899aabbccddeeff";
export type Answer = { status: number; headers?: Record<string, string>; body?: Uint8Array | string };
export type Way = (request: IncomingMessage, url: URL, content: Uint8Array) => Answer | Promise<Answer>;

const closing: (() => void)[] = [];

/** Ends all servers of a test. */
export function close(): void {
  for (const one of closing.splice(0)) one();
}

/** The address of a server that does as it is told, once a request is signed for its session. */
export async function told(way: Way): Promise<string> {
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const parts: Buffer[] = [];
    const answered = async (): Promise<Answer> => {
      const [, , session] = (request.headers.authorization ?? "").split(" ");
      if (session !== SESSION) return { status: 401, headers: { "Edgefr-Session": SESSION }, body: "sign" };
      return way(request, new URL(request.url!, "http://127.0.0.1"), Buffer.concat(parts));
    };
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => void answered().then(
      ({ status, headers, body }) => response.writeHead(status, headers).end(body),
    ));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  closing.push(() => void (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A server as a device of the user `ada` sees it. */
export async function reached(url: string): Promise<Server> {
  const identity = await Identity.of(memoryStore());
  if (!identity.user) await identity.enrolled("ada");
  return new Server(url, identity, { tries: 2, pause: 0.01 });
}

/** A device of a bundle of the kit. */
export const opened = (bundle: string, policy: Partial<Policy> = {}, store = memoryStore()): Promise<Device> =>
  Device.open(folder(path(KIT, bundle)), store, { runtime: runtime as unknown as Runtime, policy });

/** A round as a server offers it. */
export const round = (body: Uint8Array | string, number = 4, more = {}): Answer => ({
  status: 200, headers: { "Edgefr-Round": String(number), ...more }, body,
});
