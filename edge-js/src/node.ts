/** Bundles and state in folders, for Node: gateways and tests. */

import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Files } from "./bundle.js";
import { Refused } from "./errors.js";
import type { Store } from "./store.js";

const missing =
  (error: unknown): boolean => ["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "");

/** The files of a bundle's folder; links and special files are refused. */
export function folder(root: string): Files {
  return {
    async list() {
      const found = await readdir(root, { recursive: true, withFileTypes: true });
      return found.filter((one) => !one.isDirectory()).map((one) => {
        const name = join(one.parentPath, one.name).slice(join(root, ".").length + 1).replaceAll("\\", "/");
        if (!one.isFile()) throw new Refused(`${name} is no regular file; remove it`);
        return name;
      });
    },
    async read(path) {
      try {
        return new Uint8Array(await readFile(join(root, path)));
      } catch (error) {
        if (missing(error)) return null;
        throw new Refused(`cannot read ${path}`);
      }
    },
  };
}

/** A state in one file: written beside its place, flushed, and renamed. */
export function fileStore(path: string): Store {
  return {
    async read() {
      try {
        return new Uint8Array(await readFile(path));
      } catch (error) {
        if (missing(error)) return null;
        throw error;
      }
    },
    async write(content) {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      const beside = `${path}.${process.pid}.part`;
      const file = await open(beside, "w", 0o600);
      try {
        await file.writeFile(content);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(beside, path);
    },
    remove: () => rm(path, { force: true }),
  };
}
