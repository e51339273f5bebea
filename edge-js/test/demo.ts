/** People at the page of `edgefr demo`, by keyboard and at the width of a phone: what they see, as one line of JSON. */

import { chromium, type Page } from "playwright-core";
import { CHROMIUM } from "./serve.js";

const browser = await chromium.launch(CHROMIUM);
const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
context.setDefaultTimeout(90_000); // a busy host is slow
const faults: string[] = [];

async function opened(): Promise<Page> {
  const page = await context.newPage();
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(process.argv[2])) faults.push(`it asks ${request.url()}`);
  });
  await page.goto(process.argv[2]);
  await page.locator("#fault:not([hidden]), #who:text('You are')").first().waitFor();
  if (await page.locator("#fault").isVisible()) throw new Error(await page.locator("#fault").innerText());
  return page;
}
const text = (page: Page, what: string) => page.locator(what).innerText();
const list = (page: Page) => page.locator("#list li b").allInnerTexts();

/** Presses a key until what has the focus is as asked. */
async function reach(page: Page, key: string, selector: string): Promise<void> {
  for (let presses = 0; presses < 30; presses++) {
    await page.keyboard.press(key);
    if (await page.locator(`${selector}:focus`).count()) return;
  }
  throw new Error(`${selector} is not reached by ${key}`);
}

try {
  const one = await opened();
  const first = { who: await text(one, "#who"), list: await list(one), scrolls: await one.evaluate(
    "document.documentElement.scrollWidth",
  ) };
  await reach(one, "Tab", "#items button");
  await one.keyboard.press("ArrowRight");
  await one.keyboard.press("Enter");
  await one.locator("#found", { hasText: "1 liked" }).waitFor();
  await one.locator("canvas#noised").waitFor();
  const liked =
    { list: await list(one), why: await text(one, "#list li small >> nth=0"), size: await text(one, "#size") };
  const pictures =
    await one.locator("canvas").evaluateAll((all) => all.map((canvas) => canvas.getAttribute("aria-label")));
  await reach(one, "Tab", "#part");
  await one.keyboard.press("Enter");
  await one.locator("#sent", { hasText: "1" }).waitFor();
  const two = await opened();
  const second = await text(two, "#who");
  await one.locator("#epsilon", { hasText: /^epsilon [1-9.]/ }).waitFor();
  const spent = await text(one, "#epsilon");
  await one.reload();
  await one.locator("#epsilon", { hasText: /^epsilon/ }).waitFor();
  const again = { who: await text(one, "#who"), spent: await text(one, "#epsilon") };
  one.on("dialog", (dialog) => void dialog.accept());
  await reach(one, "Tab", "#forget");
  await one.keyboard.press("Enter");
  await one.locator("#epsilon", { hasText: "epsilon 0 of" }).waitFor();
  await one.locator("#found", { hasText: "0 liked" }).waitFor();
  const small = await context.newPage();
  await small.goto(`${process.argv[2]}/?max_ram_mb=0.0001`);
  await small.locator("#fault:not([hidden])").waitFor();
  const limited = await text(small, "#fault");
  const cold = await two.evaluate("performance.getEntriesByName('first recommendation')[0].startTime");
  process.stdout.write(JSON.stringify(
    { first, liked, pictures, second, spent, again, anew: await text(one, "#who"), limited, cold, faults },
  ));
} finally {
  await browser.close();
}
