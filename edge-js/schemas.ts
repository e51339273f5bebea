/** The schemas that edgefr writes, made plain for the device at build time: src/schema.ts says what is left of them. */

type Json = Record<string, unknown>;
const SAID = ["description", "title", "$schema", "default", "propertyNames", "discriminator"];

/** Words of a schema as the device reads them. */
const SHORT: Record<string, string> = {
  properties: "p", optional: "o", minimum: "min", maximum: "max", exclusiveMinimum: "above", exclusiveMaximum: "below",
};

/** Whether a limit is none to the device, which refuses whole numbers that are not exact. */
const limitless = (key: string, value: unknown) => /aximum$/.test(key) && Number(value) > Number.MAX_SAFE_INTEGER - 1;

/** One schema: a name, a list of which one holds, or an object; `seen` counts what may be worth a name of its own. */
function plain(schema: Json, seen: Map<string, number>): unknown {
  const kept =
    Object.fromEntries(Object.entries(schema).filter(([key, value]) => !SAID.includes(key) && !limitless(key, value)));
  const any = (kept.anyOf ?? kept.oneOf) as Json[] | undefined;
  const alone = Object.keys(kept).length === 1;
  if (any && alone) return any.map((one) => plain(one, seen));
  if (kept.$ref && alone) return String(kept.$ref).replace("#/$defs/", "");
  if (kept.type && alone) return kept.type;
  if (any || kept.$ref) throw new Error(`a schema says more than src/schema.ts reads: ${JSON.stringify(kept)}`);
  const { required, additionalProperties: more, ...out } = kept;
  if (out.items) out.items = plain(out.items as Json, seen);
  if (out.properties) {
    if (more !== false) throw new Error("a record of edgefr is closed");
    const fields = Object.entries(out.properties as Record<string, Json>);
    out.properties = Object.fromEntries(fields.map(([name, one]) => [name, plain(one, seen)]));
    const optional = fields.map(([name]) => name).filter((name) => !((required ?? []) as string[]).includes(name));
    if (optional.length) out.optional = optional;
  } else if (more !== undefined && more !== true) out.values = plain(more as Json, seen);
  if (out.properties || out.values || out.items || out.enum || out.const) delete out.type; // src/schema.ts knows
  const short = Object.fromEntries(Object.entries(out).map(([key, value]) => [SHORT[key] ?? key, value]));
  const text = JSON.stringify(short);
  seen.set(text, (seen.get(text) ?? 0) + 1);
  return short;
}

/** A whole schema: what it has several times it has once, under a name. */
function whole(schema: Json): unknown {
  const seen = new Map<string, number>();
  const { $defs = {}, ...root } = schema as Json & { $defs?: Record<string, Json> };
  const defs = Object.fromEntries(Object.entries($defs).map(([name, one]) => [name, plain(one, seen)]));
  const made = { ...(plain(root, seen) as Json), $defs: defs };
  const names =
    new Map([...seen].filter(([text, count]) => count > 1 && text.length > 12).map(([text], n) => [text, `_${n}`]));
  const named = (_: string, value: unknown) => names.get(JSON.stringify(value)) ?? value;
  const shared = Object.fromEntries([...names].map(([text, name]) => [name, JSON.parse(text) as unknown]));
  const short = JSON.parse(JSON.stringify(made, named)) as Json & { $defs: Json };
  return { ...short, $defs: { ...short.$defs, ...shared } };
}

/** For every build and test: without it the device would read the schemas as they were written. */
export const plainSchemas = {
  name: "plain-schemas",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    return id.includes("docs/schemas/") ? JSON.stringify(whole(JSON.parse(code) as Json)) : undefined;
  },
};
