import { defineConfig } from "vite";
import { plainSchemas } from "./schemas.js";

/** The page of the conformance kit; its runtime is served beside it, as it came. */
export default defineConfig({
  plugins: [plainSchemas],
  build: {
    lib: { entry: { page: "test/page.ts" }, formats: ["es"] },
    rollupOptions: {
      external: ["onnxruntime-web/wasm"],
      output: { paths: { "onnxruntime-web/wasm": "/ort/ort.wasm.min.mjs" }, codeSplitting: false }, // one file is served
    },
    outDir: "dist", emptyOutDir: false, target: "es2022",
  },
});
