import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { defineConfig } from "vite";
import { icon, manifest, SIZES } from "./icons.js";
import { plainSchemas } from "./schemas.js";

const home = dirname(createRequire(import.meta.url).resolve("onnxruntime-web"));
const ORT = ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"];
const BUILT = join(import.meta.dirname, "../edgefr/page");

/** The runtime lies beside the page, as it came; so do what makes the page installable. */
const beside = {
  name: "beside-the-page",
  generateBundle(this: { emitFile(file: { type: "asset"; fileName: string; source: Uint8Array | string }): void }) {
    for (const name of ORT)
      this.emitFile({ type: "asset", fileName: `ort/${name}`, source: readFileSync(join(home, name)) });
    for (const size of SIZES) this.emitFile({ type: "asset", fileName: `icon-${size}.png`, source: icon(size) });
    this.emitFile({ type: "asset", fileName: "manifest.webmanifest", source: manifest });
  },
};

/** The service worker is told which files there are, and of what content: a page that changed is kept anew. */
const listed = {
  name: "listed-in-the-service-worker",
  closeBundle() {
    const names = readdirSync(BUILT, { recursive: true, withFileTypes: true })
      .filter((one) => one.isFile() && one.name !== "sw.js")
      .map((one) => join(one.parentPath, one.name).slice(BUILT.length)).sort();
    const digest = createHash("sha256");
    for (const name of names) digest.update(name).update(readFileSync(join(BUILT, name)));
    const [files, version] = [["/", ...names.filter((name) => name !== "/index.html")], digest.digest("hex").slice(0, 16)];
    const [path, head] = [join(BUILT, "sw.js"), `const FILES=${JSON.stringify(files)},VERSION="${version}";\n`];
    writeFileSync(path, head + readFileSync(path, "utf-8"));
  },
};

/** The page of `edgefr demo`, built into the Python package, where a wheel finds it. */
export default defineConfig({
  root: "page", base: "./", plugins: [plainSchemas, beside, listed],
  build: {
    outDir: BUILT, emptyOutDir: true, target: "es2022", modulePreload: false, // a worker has no document
    rollupOptions: {
      input: { index: "page/index.html", worker: "page/worker.ts", sw: "page/sw.ts" },
      external: ["onnxruntime-web/wasm"],
      output: {
        paths: { "onnxruntime-web/wasm": "/ort/ort.wasm.min.mjs" },
        entryFileNames: "[name].js", assetFileNames: "[name][extname]", chunkFileNames: "[name].js",
      },
    },
  },
});
