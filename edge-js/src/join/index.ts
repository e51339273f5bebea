export { Identity } from "./identity.js";
export { preview, type Preview } from "./preview.js";
export { join, type Counts, type Tell } from "./join.js";
export { Server, Unreachable, type Patience } from "./server.js";
