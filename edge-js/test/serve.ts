/** A server on loopback that gives a page, the runtime, and the kit's files. */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { Files } from "../src/bundle.js";
import { folder } from "../src/node.js";

const ort = dirname(createRequire(import.meta.url).resolve("onnxruntime-web"));
const TYPES: Record<string, string> = { ".js": "text/javascript", mjs: "text/javascript", wasm: "application/wasm" };
export const CHROMIUM = { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] };

export interface Serving {
  address: string;
  close(): void;
}

/** Serves what lies in `built`; the address of the page. `hangs` hears of a page that waits for ever. */
export async function serve(built: string, hangs = () => {}): Promise<Serving> {
  const server = createServer((request, response) => {
    if (request.url === "/hang") return hangs();
    void found(new URL(request.url ?? "/", "http://localhost"), built).catch(() => null).then((one) => {
      response.writeHead(one ? 200 : 404, { "content-type": one?.type ?? "text/plain" });
      response.end(one?.content ?? "");
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return { address: `http://localhost:${(server.address() as AddressInfo).port}/`, close: () => void (server.closeAllConnections(), server.close()) };
}

/** All files of a bundle by name, in base64. */
async function whole(path: string): Promise<Record<string, string>> {
  const [files, out]: [Files, Record<string, string>] = [folder(path), {}];
  for (const name of await files.list()) out[name] = Buffer.from((await files.read(name))!).toString("base64");
  return out;
}

async function found(address: URL, built: string): Promise<{ content: Uint8Array | string; type: string } | null> {
  const [name, path] = [address.pathname, address.searchParams.get("path") ?? ""];
  if (name === "/")
    return { content: '<!doctype html><script type="module" src="/page.js"></script>', type: "text/html" };
  if (name === "/bundle") return { content: JSON.stringify(await whole(path)), type: "application/json" };
  const where = name === "/file" ? path : name.startsWith("/ort/") ? join(ort, name.slice(5)) : join(built, name);
  const content = await readFile(where).catch(() => null);
  return content && { content, type: Object.entries(TYPES).find(
    ([end]) => where.endsWith(end),
  )?.[1] ?? "application/octet-stream" };
}
