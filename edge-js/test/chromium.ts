/** The runner in Chromium: a question a line is put to a page, whose answer is a line. */

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { CHROMIUM, serve } from "./serve.js";

const serving = await serve(import.meta.dirname);
const browser = await chromium.launch(CHROMIUM);
try {
  const page = await browser.newPage();
  await page.goto(serving.address);
  await page.waitForFunction("globalThis.answer");
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await page.evaluate(`answer(${line})`))}\n`);
  }
} finally {
  await browser.close();
  serving.close();
}
