import { existsSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { expect, test } from "vitest";
import { CHROMIUM, serve } from "./serve.js";

const BUILT = join(import.meta.dirname, "../dist");
const KIT = join(import.meta.dirname, "../../conformance");
const [BUNDLE, UPDATE] = [join(KIT, "fedmf-noised"), join(KIT, "updates/fedmf-noised.safetensors")];
const MOMENTS = 24;
const WHOLE = [8, 16]; // lives that nobody cuts short
const there = existsSync(CHROMIUM.executablePath) && existsSync(join(BUILT, "page.js"));

interface Told {
  interactions: number;
  releases: number;
  waitingRelease: number | null;
  round: number;
  top: string[];
}

test.skipIf(
  !there,
)(`a tab that is closed, or whose process dies, at ${MOMENTS} moments leaves a whole state`, { timeout: 400_000 }, async () => {
  const serving = await serve(BUILT);
  const browser = await chromium.launch(CHROMIUM);
  try {
    const context = await browser.newContext();
    let before: Told = { interactions: 0, releases: 0, waitingRelease: null, round: 2, top: [] };
    for (let moment = 0; moment < MOMENTS; moment++) {
      const page = await context.newPage();
      await page.goto(serving.address);
      await page.waitForFunction("globalThis.told");
      const now = (await page.evaluate(`told(${JSON.stringify(BUNDLE)})`)) as Told;
      expect(now.interactions).toBeGreaterThanOrEqual(before.interactions); // nothing that was kept is lost
      expect(now.releases).toBeGreaterThanOrEqual(before.releases);
      expect(now.round).toBeGreaterThanOrEqual(before.round);
      expect(now.releases).toBeLessThanOrEqual(now.round - 1); // one round, one charge
      if (now.waitingRelease !== null) expect(now.waitingRelease).toBe(now.round + 1);
      if (now.round === 3) expect(now.releases).toBeGreaterThanOrEqual(1);
      if (now.interactions) expect(now.top).toHaveLength(3);
      before = now;
      const items = Array.from({ length: 4 }, (_, n) => `i${String(2 * moment + n + 1).padStart(7, "0")}`);
      const lived = page.evaluate(`live(...${JSON.stringify([BUNDLE, UPDATE, items])})`).catch(() => null);
      await page.waitForFunction("globalThis.alive");
      await (WHOLE.includes(moment) ? lived : new Promise((done) => setTimeout(done, 12 * moment)));
      const session = await context.newCDPSession(page);
      const died = moment % 2 ? page.waitForEvent("crash") : null;
      if (died) session.send("Page.crash").catch(() => null); // at once: nothing in the page runs to its end
      await died;
      await page.close();
    }
    expect(before).toMatchObject({ round: 3, releases: 2, waitingRelease: 4 }); // two lives were whole
    expect(before.interactions).toBeGreaterThanOrEqual(4); // one life was whole
  } finally {
    await browser.close();
    serving.close();
  }
});
