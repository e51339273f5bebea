import { defineConfig } from "vite";
import { plainSchemas } from "./schemas.js";

/** The library: one file beside the runtime, and what Node alone needs. */
export default defineConfig({
  plugins: [plainSchemas],
  build: {
    lib: {
      entry: {
        "edgefr-edge": "src/index.ts", node: "src/node.ts", join: "src/join/index.ts", words: "src/words.ts",
        worker: "src/worker/index.ts", text: "src/text/index.ts",
      },
      formats: ["es"],
    },
    rollupOptions: { external: [/^node:/, /^onnxruntime-/], output: { minify: true, chunkFileNames: "[name].js" } },
    target: "es2022",
  },
  test: { include: ["test/*.test.ts"], isolate: false }, // a process for all files: each would load the runtimes anew
} as Parameters<typeof defineConfig>[0]);
