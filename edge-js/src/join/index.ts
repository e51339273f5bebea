export { Identity } from "./identity.js";
export { join, type Counts, type Tell } from "./join.js";
export { Server, type Patience } from "./server.js";
