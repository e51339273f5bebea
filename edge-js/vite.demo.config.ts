import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { defineConfig } from "vite";
import { plainSchemas } from "./schemas.js";

const home = dirname(createRequire(import.meta.url).resolve("onnxruntime-web"));
const ORT = ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"];

/** The runtime lies beside the page, as it came. */
const runtime = {
  name: "runtime-beside",
  generateBundle(this: { emitFile(file: { type: "asset"; fileName: string; source: Uint8Array }): void }) {
    for (const name of ORT)
      this.emitFile({ type: "asset", fileName: `ort/${name}`, source: readFileSync(join(home, name)) });
  },
};

/** The page of `edgefr demo`, built into the Python package, where a wheel finds it. */
export default defineConfig({
  root: "page", base: "./", plugins: [plainSchemas, runtime],
  build: {
    outDir: "../../edgefr/page", emptyOutDir: true, target: "es2022", modulePreload: { polyfill: false },
    rollupOptions: {
      external: ["onnxruntime-web/wasm"],
      output: {
        paths: { "onnxruntime-web/wasm": "/ort/ort.wasm.min.mjs" },
        entryFileNames: "[name].js", assetFileNames: "[name][extname]", chunkFileNames: "[name].js",
      },
    },
  },
});
