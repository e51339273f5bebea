/** A device refuses this: one line says what and why. */
export class Refused extends Error {}

/** Nothing leaves this device: its own policy or ledger says so. */
export class Withheld extends Refused {}

/** What was thrown, as one line without control characters. */
export function reason(error: unknown): string {
  const said = error instanceof Error ? error.message : String(error);
  return (said.split("\n")[0] ?? "").replace(/[\p{C}]/gu, "?").slice(0, 300);
}
