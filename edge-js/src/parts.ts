/** Parts of a device that few bundles need; a page downloads each once it opens a bundle that does. */

import { exchangeOf, type Config } from "./config.js";

export type Parts = Awaited<ReturnType<typeof partsOf>>;

/** The parts that a bundle needs, which refuse what does not agree within its config; null where it needs none. */
export async function partsOf(config: Config) {
  const { learning, window } = config;
  const sessions = window === null && !learning?.sessions ? null : await import("./sessions/index.js");
  const exchange = learning && exchangeOf(learning) ? await import("./exchange/index.js") : null;
  const replay = learning?.replay ? await import("./replay/index.js") : null;
  const noise = learning?.release.noised === "here" ? await import("./noise/index.js") : null;
  sessions?.check(config);
  exchange?.check(learning!);
  replay?.check(learning!);
  return { sessions, exchange, replay, noise };
}
