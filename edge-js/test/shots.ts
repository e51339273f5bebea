/** Pictures of the page of `edgefr demo`, at a desk and on a phone, light and dark: shots ADDRESS FOLDER. */

import { join } from "node:path";
import { chromium } from "playwright-core";
import { CHROMIUM } from "./serve.js";

const [, , address, folder] = process.argv;
const browser = await chromium.launch(CHROMIUM);
try {
  for (const colorScheme of ["light", "dark"] as const) {
    for (const [width, height] of [[1280, 900], [390, 844]]) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme });
      context.setDefaultTimeout(90_000); // a busy host is slow
      const page = await context.newPage();
      await page.goto(address);
      for (const count of [1, 2]) {
        await page.locator('#items button[aria-pressed="false"]').first().click();
        await page.locator("#basis", { hasText: `Learned here from ${count}` }).waitFor();
      }
      await page.locator("#t-noised", { hasText: "largest" }).waitFor();
      const path = join(folder, `demo-${width}-${colorScheme}.png`);
      await page.screenshot({ path, fullPage: true });
      console.log(path);
      await context.close();
    }
  }
} finally {
  await browser.close();
}
