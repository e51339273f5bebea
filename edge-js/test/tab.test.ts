import { existsSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { expect, test } from "vitest";
import { CHROMIUM, serve } from "./serve.js";

const BUILT = join(import.meta.dirname, "../dist");
const KIT = join(import.meta.dirname, "../../conformance");
const [BUNDLE, UPDATE] = [join(KIT, "fedmf-noised"), join(KIT, "updates/fedmf-noised.safetensors")];
const WRITES = 9; // at each of which a life ends, but for those that nobody cuts short
const WHOLE = [3, 7];
const MOMENTS = Number(process.env.EDGEFR_MOMENTS ?? 0); // of a clock, beside; a slow test of tests/edge_js asks for them
const LONGEST = 280; // milliseconds of a life that a clock cuts short
const there = existsSync(CHROMIUM.executablePath) && existsSync(join(BUILT, "page.js"));

interface Told {
  interactions: number;
  releases: number;
  waitingRelease: number | null;
  round: number;
  top: string[];
}

async function within<T>(seconds: number, work: Promise<T>): Promise<T> {
  let late: NodeJS.Timeout | undefined;
  const over = new Promise<never>((_, fail) => (late = setTimeout(() => fail(new Error("too late")), seconds * 1000)));
  return Promise.race([work, over]).finally(() => clearTimeout(late));
}

/** A new tab, and what it is told of the state; one that got a process which has just been killed is asked for anew. */
async function opened(context: BrowserContext, address: string): Promise<[Page, Told]> {
  for (let tries = 1; ; tries++) {
    const asked = async (): Promise<[Page, Told]> => {
      const page = await context.newPage();
      await page.goto(address);
      await page.waitForFunction("globalThis.told");
      return [page, (await page.evaluate(`told(${JSON.stringify(BUNDLE)})`)) as Told];
    };
    try {
      return await within(30, asked());
    } catch (error) {
      if (tries === 3) throw error;
    }
  }
}

/** A life until nobody goes on with it: to its end, to its n-th write, or for some milliseconds. */
async function lived(page: Page, moment: number, hung: () => Promise<void>): Promise<void> {
  const items = Array.from({ length: 4 }, (_, n) => `i${String(2 * moment + n + 1).padStart(7, "0")}`);
  const timed = moment >= WRITES;
  const waits = hung();
  if (!timed && !WHOLE.includes(moment)) await page.evaluate(`hangAt(${moment + 1})`);
  const life = page.evaluate(`live(...${JSON.stringify([BUNDLE, UPDATE, items])})`).catch(() => null);
  if (WHOLE.includes(moment)) await within(60, life);
  else if (!timed) await within(60, waits);
  else {
    await page.waitForFunction("globalThis.alive");
    await new Promise((done) => setTimeout(done, (LONGEST * (moment - WRITES)) / MOMENTS));
  }
}

/** Ends the processes of all tabs of a browser, as a system does that has no memory left. */
async function killTabs(browser: Browser): Promise<void> {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  for (const one of processInfo) if (one.type === "renderer") process.kill(one.id, "SIGKILL");
  await session.detach();
}

/** What is there now is sound, and no less than before. */
function check(now: Told, before: Told): void {
  expect(now.interactions).toBeGreaterThanOrEqual(before.interactions); // nothing that was kept is lost
  expect(now.releases).toBeGreaterThanOrEqual(before.releases);
  expect(now.round).toBeGreaterThanOrEqual(before.round);
  expect(now.releases).toBeLessThanOrEqual(now.round - 1); // one round, one charge
  if (now.waitingRelease !== null) expect(now.waitingRelease).toBe(now.round + 1);
  if (now.round === 3) expect(now.releases).toBeGreaterThanOrEqual(1);
  if (now.interactions) expect(now.top).toHaveLength(3);
}

test.skipIf(!there)("a tab that is closed, or whose process dies, at any write leaves a whole state", { timeout: 400_000 }, async () => {
  let hangs = () => {};
  const hung = () => new Promise<void>((done) => (hangs = done));
  const serving = await serve(BUILT, () => hangs());
  const browser = await chromium.launch(CHROMIUM);
  try {
    const context = await browser.newContext();
    let before: Told = { interactions: 0, releases: 0, waitingRelease: null, round: 2, top: [] };
    for (let moment = 0; moment < WRITES + MOMENTS; moment++) {
      const [page, now] = await opened(context, serving.address);
      check(now, before);
      before = now;
      await lived(page, moment, hung);
      const dies = !WHOLE.includes(moment) && (moment < WRITES || moment % 2);
      const died = dies ? page.waitForEvent("crash") : null;
      if (died) await killTabs(browser); // at once: nothing in the page runs to its end
      await died;
      await within(30, page.close()).catch(() => null);
    }
    expect(before).toMatchObject({ round: 3, releases: 2, waitingRelease: 4 }); // two lives were whole
    expect(before.interactions).toBeGreaterThanOrEqual(4); // one life was whole
  } finally {
    await browser.close();
    serving.close();
  }
});
