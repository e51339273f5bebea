import { defineConfig } from "vite";

/** The schemas as a device needs them: without what is said to people. */
export const plainSchemas = {
  name: "plain-schemas",
  enforce: "pre" as const,
  transform(code: string, id: string) {
    const keep = (key: string, value: unknown) => (["description", "title", "$schema", "default"].includes(key) && (typeof value !== "object" || value === null) ? undefined : value);
    return id.includes("docs/schemas/") ? JSON.stringify(JSON.parse(code), keep) : undefined;
  },
};

/** The library: one file beside the runtime, and what Node alone needs. */
export default defineConfig({
  plugins: [plainSchemas],
  build: {
    lib: { entry: { "edgefr-edge": "src/index.ts", node: "src/node.ts", join: "src/join/index.ts" }, formats: ["es"] },
    rollupOptions: { external: [/^node:/, /^onnxruntime-/], output: { minify: true } },
    target: "es2022",
  },
  test: { include: ["test/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
