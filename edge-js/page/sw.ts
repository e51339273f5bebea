/** Keeps the page's own files, so that a tab opens while its server is away; what a device asks goes past it. */

interface Lasting extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface Asking extends Event {
  request: Request;
  respondWith(answer: Promise<Response>): void;
}
interface Worker extends EventTarget {
  skipWaiting(): Promise<void>;
  clients: { claim(): Promise<void> };
}

declare const FILES: string[]; // the build says which, and of what content
declare const VERSION: string;
const own = globalThis as unknown as Worker;
const NAME = `edgefr page ${VERSION}`;

async function others(): Promise<void> {
  const old = (await caches.keys()).filter((name) => name.startsWith("edgefr page ") && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
}

own.addEventListener("install", (event) => {
  (event as Lasting).waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)).then(() => own.skipWaiting()));
});
own.addEventListener("activate", (event) => {
  (event as Lasting).waitUntil(others().then(() => own.clients.claim()));
});
own.addEventListener("fetch", (event) => {
  const { request } = event as Asking;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || !FILES.includes(pathname)) return;
  const stored = async () => (await (await caches.open(NAME)).match(pathname)) ?? Response.error();
  (event as Asking).respondWith(fetch(request).catch(stored));
});
