/** Tabs of one browser that take part in a federation: reads a person a line, and answers with what became of each. */

import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { CHROMIUM } from "./serve.js";

const people: string[] = [];
for await (const line of createInterface({ input: process.stdin })) people.push(line);
const browser = await chromium.launch(CHROMIUM);
try {
  const context = await browser.newContext();
  context.setDefaultTimeout(90_000); // a busy host is slow
  const took = people.map(async (person) => {
    const page = await context.newPage();
    await page.goto(process.argv[2]);
    await page.waitForFunction("globalThis.takePart");
    return page.evaluate(`takePart(${person})`);
  });
  for (const one of await Promise.all(took)) process.stdout.write(`${JSON.stringify(one)}\n`);
} finally {
  await browser.close();
}
