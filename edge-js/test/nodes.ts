/** Devices in one process of Node that take part in a federation: a person a line, and a line of what became of each. */

import { createInterface } from "node:readline";
import * as runtime from "onnxruntime-node";
import type { Runtime } from "../src/index.js";
import { takePart, type Person } from "./person.js";

const people: Person[] = [];
for await (const line of createInterface({ input: process.stdin })) people.push(JSON.parse(line) as Person);
const took = people.map((person) => takePart(person, process.argv[2], runtime as unknown as Runtime));
for (const one of await Promise.all(took)) process.stdout.write(`${JSON.stringify(one)}\n`);
