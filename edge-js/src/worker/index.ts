export { Apart } from "./apart.js";
export { kept } from "./kept.js";
export { capMemory } from "./memory.js";
export { serve, type Calls } from "./serve.js";
