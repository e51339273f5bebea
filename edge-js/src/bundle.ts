/** Opening a bundle: everything is checked before a runtime parses any of it, and what was checked is what is used. */

import configSchema from "../../docs/schemas/config.json" with { type: "json" };
import manifestSchema from "../../docs/schemas/manifest.json" with { type: "json" };
import { half, parseNpy, parseTensors, type Floats } from "./arrays.js";
import type { Config, Manifest, Table } from "./config.js";
import { reason, Refused } from "./errors.js";
import { validate, type Schema } from "./schema.js";
import { checkSignature, hex, sha256 } from "./signature.js";

/** Where the files of a bundle lie: a folder, a server, an archive. */
export interface Files {
  /** Names of all files, by forward slashes. */
  list(): Promise<string[]>;
  /** The bytes of one; null where there is none. */
  read(path: string): Promise<Uint8Array | null>;
}

/** On which terms a device takes a bundle. */
export interface Terms {
  /** Ids of keys, one of which must have signed it; left out: whichever did. */
  trusted?: string[];
  /** The highest serial that was seen; an older bundle is refused. */
  newest?: number;
  /** `since`: the latest time that was seen; a clock behind it is not believed. */
  now?: Date; since?: Date;
}

const SCHEMA = "edgefr.bundle/3";
const LIMIT = 1 << 20;
const TOTAL = 2 ** 31;
const HEAD = /^\{\n {2}"schema": "edgefr\.bundle\/\d+",\n {2}"bundle_id": "([0-9a-f]{64})",\n/;
const PART = /^[A-Za-z0-9._+-]{0,99}[A-Za-z0-9_+-]$/;
const DEVICES = /^(con|prn|aux|nul|conin\$|conout\$|clock\$|com\d|lpt\d)(\..*)?$/i;

export class Bundle {
  private constructor(
    readonly manifest: Manifest, readonly config: Config, readonly signedBy: string | null,
    private readonly contents: Map<string, Uint8Array>,
  ) {}

  static async open(files: Files, terms: Terms = {}): Promise<Bundle> {
    const raw = await files.read("manifest.json");
    if (!raw || raw.length > LIMIT)
      throw new Refused("this is no bundle: it has no manifest.json, or one that is too long");
    const signedBy =
      await checkSignature("bundle", "the bundle", raw, await files.read("manifest.sig.json"), terms.trusted);
    const manifest = await parseManifest(raw);
    checkTerms(manifest, terms);
    const listed = checkListing(manifest);
    for (const name of await files.list()) {
      if (!listed.has(name) && !["manifest.json", "manifest.sig.json"].includes(name))
        throw new Refused(`${name} is not listed in manifest.json; remove it`);
    }
    const contents = new Map<string, Uint8Array>();
    for (const entry of manifest.files) {
      const content = await files.read(entry.path);
      if (!content) throw new Refused(`${entry.path} is missing; get the bundle again`);
      if (content.length !== entry.size || hex(await sha256(content)) !== entry.sha256)
        throw new Refused(`${entry.path} was changed; get the bundle again`);
      contents.set(entry.path, content);
    }
    const own = manifest.files.filter((entry) => entry.role === "config");
    if (own.length !== 1 || own[0].size > LIMIT) throw new Refused("it needs one file with role config; export again");
    const config = parsed<Config>(contents.get(own[0].path)!, configSchema, own[0].path);
    return new Bundle(manifest, config, signedBy, contents);
  }

  /** The bytes of a listed file. */
  file(path: string): Uint8Array {
    const found = this.contents.get(path);
    if (!found) throw new Refused(`${path} is missing, though config.json names it; export again`);
    return found;
  }

  /** All tensors of a safetensors file, which must be float32. */
  tensors(path: string): Map<string, Floats> {
    const { tensors } = parseTensors(this.file(path));
    for (const [name, { data }] of tensors)
      if (!(data instanceof Float32Array)) throw new Refused(`${path}: ${name} is not float32; export again`);
    return tensors as Map<string, Floats>;
  }

  /** The rows of a table, float32 or token numbers, [items, width]. */
  table(table: Table): Floats | { data: Int32Array; shape: number[] } {
    const [items, kind] = [this.manifest.item_count, { i8: "|i1", f16: "<f2", f32: "<f4", i32: "<i4" }[table.dtype]];
    const shape = [items, table.width];
    const { data } = parseNpy(this.file(table.path), table.path, kind, shape);
    if (data instanceof Int32Array) return { data, shape };
    if (table.dtype === "f16") return { data: Float32Array.from(data as Uint16Array, half), shape };
    if (table.dtype === "f32") return { data: data as Float32Array, shape };
    if (!table.scale) throw new Refused(`int8 table ${table.path} has no scale file; export again`);
    const scale = parseNpy(this.file(table.scale), table.scale, "<f4", [items]).data as Float32Array;
    const scaled = (value: number, n: number) => value * scale[Math.floor(n / table.width)];
    return { data: Float32Array.from(data as Int8Array, scaled), shape };
  }
}

export function parsed<T>(content: Uint8Array, schema: object, what: string): T {
  try {
    const found: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content));
    validate(schema as Schema, found);
    return found as T;
  } catch (error) {
    throw new Refused(`${what} is not what edgefr writes (${reason(error)})`);
  }
}

async function parseManifest(raw: Uint8Array): Promise<Manifest> {
  const text = new TextDecoder().decode(raw);
  const head = HEAD.exec(text);
  const named = /"schema": "(edgefr\.bundle\/\d{1,6})"/.exec(text)?.[1];
  if (named && named !== SCHEMA)
    throw new Refused(`it is a bundle for another schema, ${named}; this device reads ${SCHEMA}`);
  const manifest = parsed<Manifest>(raw, manifestSchema, "manifest.json");
  const without = new TextEncoder().encode(text.replace(/"bundle_id": "[0-9a-f]{64}"/, '"bundle_id": ""'));
  if (!head || hex(await sha256(without)) !== manifest.bundle_id)
    throw new Refused("manifest.json was changed after it was written; get the bundle again");
  return manifest;
}

function checkTerms(manifest: Manifest, terms: Terms): void {
  if (terms.newest !== undefined && manifest.serial < terms.newest)
    throw new Refused("it is older than a bundle that was seen here; get a newer one");
  if (manifest.expires === null) return;
  const end = Date.parse(manifest.expires);
  if (!/(Z|[+-]\d\d:?\d\d)$/.test(manifest.expires) || Number.isNaN(end))
    throw new Refused("manifest.json has no time in expires");
  for (const now of [terms.now ?? new Date(), terms.since]) {
    if (now && now.getTime() >= end) throw new Refused(`it expired on ${manifest.expires}; get a newer one`);
  }
}

function checkListing(manifest: Manifest): Set<string> {
  const listed = new Set<string>();
  for (const { path } of manifest.files) {
    const parts = path.split("/");
    const odd =
      !parts.every((part) => PART.test(part) && !DEVICES.test(part)) || parts.length > 16 || path.length > 240;
    if (odd || ["manifest.json", "manifest.sig.json"].includes(path.toLowerCase()))
      throw new Refused(`file name ${JSON.stringify(path)} is not plain`);
    if (listed.has(path.toLowerCase())) throw new Refused(`manifest.json lists ${path} twice`);
    listed.add(path.toLowerCase());
  }
  for (const path of listed) {
    const parts = path.split("/");
    if (parts.some((_, n) => n && listed.has(parts.slice(0, n).join("/"))))
      throw new Refused(`manifest.json lists ${path} as a file in another file`);
  }
  if (manifest.files.reduce((sum, file) => sum + file.size, 0) > TOTAL)
    throw new Refused("manifest.json lists too many bytes");
  return new Set(manifest.files.map((file) => file.path));
}
