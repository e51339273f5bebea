import { defineConfig } from "vite";
import { plainSchemas } from "./schemas.js";

/** The runners of the conformance kit: for Node, and one that puts a page in Chromium to it. */
export default defineConfig({
  plugins: [plainSchemas],
  build: {
    ssr: true, outDir: "dist", emptyOutDir: false, target: "node20", minify: false,
    rollupOptions: {
      input: {
        runner: "test/runner.ts", chromium: "test/chromium.ts", tabs: "test/tabs.ts", demo: "test/demo.ts",
        figures: "test/figures.ts", offline: "test/offline.ts", corpus: "test/corpus.ts",
        shots: "test/shots.ts", nodes: "test/nodes.ts",
      },
      external: ["onnxruntime-node", "onnxruntime-web", "playwright-core"],
    },
  },
});
