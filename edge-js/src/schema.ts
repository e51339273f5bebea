/** JSON is checked against the schemas that edgefr writes of its records; the build makes them plain (schemas.ts). */

import { Refused } from "./errors.js";

interface Rules {
  [key: string]: unknown;
}
/** A name, of a type or in `$defs`; a list of which one holds; or rules, closed where they have properties. */
export type Schema = string | Schema[] | Rules;

/** Throws, naming the place, unless `value` is as the schema says. */
export function validate(schema: Schema, value: unknown, root: Schema = schema, at = "it"): void {
  const fail = (why: string): never => {
    throw new Refused(`${at} ${why}`);
  };
  if (Array.isArray(schema))
    return schema.some((one) => passes(one, value, root)) ? undefined : fail("is none of what it may be");
  if (typeof schema === "string") {
    if (!Object.hasOwn(TYPES, schema))
      return validate(((root as Rules).$defs as Record<string, Schema>)[schema], value, root, at);
    return TYPES[schema](value) ? undefined : fail(`is no ${schema}`);
  }
  if ("const" in schema && value !== schema.const) fail(`is not ${JSON.stringify(schema.const)}`);
  if (Array.isArray(schema.enum) && !schema.enum.includes(value)) fail(`is none of ${schema.enum.join(", ")}`);
  const type = (schema.type ?? (schema.items ? "array" : schema.p || schema.values ? "object" : "")) as string;
  if (type && !TYPES[type](value)) fail(`is no ${type}`);
  if (typeof value === "number") checkNumber(schema, value, fail);
  if (typeof value === "string") checkText(schema, value, fail);
  if (Array.isArray(value)) {
    if (value.length < Number(schema.minItems ?? 0) || value.length > Number(schema.maxItems ?? Infinity))
      fail("has too few or many entries");
    if (schema.items) value.forEach((one, n) => validate(schema.items as Schema, one, root, `${at}[${n}]`));
  } else if (value !== null && typeof value === "object") {
    checkFields(schema, value as Record<string, unknown>, root, at, fail);
  }
}

type Fail = (why: string) => never;

const TYPES: Record<string, (value: unknown) => boolean> = {
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === "string",
  integer: Number.isSafeInteger, // larger ones lose digits here, so they are refused
  number: Number.isFinite,
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

function checkNumber(schema: Rules, value: number, fail: Fail): void {
  const limit = (name: string, usual: number) => Number(schema[name] ?? usual);
  const below = value < limit("min", -Infinity) || value <= limit("above", -Infinity);
  if (below || value > limit("max", Infinity) || value >= limit("below", Infinity))
    fail("is out of its range");
}

function checkText(schema: Rules, value: string, fail: Fail): void {
  const length = [...value].length;
  if (length < Number(schema.minLength ?? 0) || length > Number(schema.maxLength ?? Infinity))
    fail("is too short or long");
  if (typeof schema.pattern === "string" && !new RegExp(schema.pattern, "u").test(value)) fail("is not of its form");
}

function checkFields(schema: Rules, value: Record<string, unknown>, root: Schema, at: string, fail: Fail): void {
  if (Object.keys(value).length > Number(schema.maxProperties ?? Infinity)) fail("has too many fields");
  const known = (schema.p ?? {}) as Record<string, Schema>;
  const optional = (schema.o ?? []) as string[];
  for (const name of Object.keys(known))
    if (!optional.includes(name) && !Object.hasOwn(value, name)) fail(`has no ${name}`);
  for (const [name, one] of Object.entries(value)) {
    if (Object.hasOwn(known, name)) validate(known[name], one, root, `${at}.${name}`);
    else if (schema.p) fail(`has a field that nobody knows, ${name.slice(0, 50)}`);
    else if (schema.values) validate(schema.values as Schema, one, root, `${at}.${name}`);
  }
}

function passes(schema: Schema, value: unknown, root: Schema): boolean {
  try {
    validate(schema, value, root);
    return true;
  } catch {
    return false;
  }
}
