/** A tab whose server goes away and comes back: says a line of JSON before, without and after, each at a line's call. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium, type Page } from "playwright-core";
import { CHROMIUM } from "./serve.js";

const [, , url] = process.argv;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (found: object) => process.stdout.write(`${JSON.stringify(found)}\n`);
const profile = await mkdtemp(join(tmpdir(), "edgefr-")); // a browser that keeps nothing installs nothing
const context = await chromium.launchPersistentContext(profile, CHROMIUM);
context.setDefaultTimeout(90_000); // a busy host is slow
const text = (page: Page, what: string) => page.locator(what).innerText();
const list = (page: Page) => page.locator("#list li b").allInnerTexts();

/** Likes the first title that was not liked. */
async function like(page: Page, count: number): Promise<void> {
  await page.locator('#items button[aria-pressed="false"]').first().click();
  await page.locator("#found", { hasText: `${count} liked` }).waitFor();
  await page.locator("#basis", { hasText: `Learned here from ${count}` }).waitFor();
}

try {
  const page = await context.newPage();
  await page.goto(url);
  await page.locator("#who", { hasText: "You are" }).waitFor();
  await like(page, 1);
  const stored = (await page.evaluate(`navigator.serviceWorker.ready.then(async () => {
    const [name] = await caches.keys();
    return (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname);
  })`)) as string[];
  const session = await context.newCDPSession(page);
  const { installabilityErrors } = await session.send("Page.getInstallabilityErrors");
  const { errors, url: manifest } = await session.send("Page.getAppManifest");
  const before = { who: await text(page, "#who"), list: await list(page) };
  say({ stored, installabilityErrors, errors, manifest });
  await lines.next();

  await page.reload();
  await page.locator("#stands", { hasText: "waits for the server" }).waitFor();
  const same = { who: await text(page, "#who"), list: await list(page) };
  await like(page, 2);
  const learned = await text(page, "#basis");
  const other = await context.newPage();
  await other.goto(url);
  await other.locator("#fault:not([hidden])").waitFor();
  const somebodyNew = await text(other, "#fault");
  await other.close();
  await page.locator("#part").click();
  await page.locator("#stands", { hasText: "waits for the server to take part" }).waitFor();
  say({ before, same, learned, somebodyNew, sent: await text(page, "#sent") });
  await lines.next();

  await page.locator("#sent", { hasText: "1" }).waitFor();
  say({ stands: await text(page, "#stands"), liked: await text(page, "#found") });
} finally {
  await context.close();
  await rm(profile, { recursive: true, force: true });
}
