export { Bundle, type Files, type Terms } from "./bundle.js";
export { Device, type Options, type Recommendations } from "./device.js";
export { Refused } from "./errors.js";
export type { Runtime } from "./graph.js";
export { STRICT, type Policy } from "./policy.js";
export { databaseStore, memoryStore, type Store } from "./store.js";
