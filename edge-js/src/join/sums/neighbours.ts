/** How many shares open a secret, and how many devices must agree: each device works it out (privacy/neighbours.py). */

/** So many devices and fewer are all neighbours of each other; of more, a device has at least so many neighbours. */
export const EVERYBODY = 100;
/** Neighbours of a device, at most: shares for many more would take it minutes. */
export const MOST_NEIGHBOURS = 512;

const HELPERS = 10; // one in so many devices tells a server all it knows, at most
const BOUND = 2 ** -40 / (1 << 16); // the chance of more helpers than are counted with, for each of the most devices

/** How many shares open a secret of a device with so many neighbours; more than there are: there can be no sum. */
export function threshold(neighbours: number): number {
  return Math.floor((neighbours + helping(neighbours)) / 2) + 1;
}

/** How many of so many devices must have signed the same: two statements cannot both have that many. */
export function quorum(devices: number): number {
  return Math.floor((devices + Math.ceil(devices / HELPERS)) / 2) + 1;
}

/** How many of the neighbours may help the server; of many, which are drawn, by independent draws. */
function helping(neighbours: number): number {
  if (neighbours < EVERYBODY) return Math.min(Math.ceil((neighbours + 1) / HELPERS), neighbours);
  const part = 1 / HELPERS + (1 + 1 / HELPERS) / neighbours;
  const logs = [0]; // of factorials
  for (let n = 1; n <= neighbours; n++) logs.push(logs[n - 1] + Math.log(n));
  let chance = 0;
  for (let number = neighbours; number >= 0; number--) {
    const rest = neighbours - number;
    const ways = logs[neighbours] - logs[number] - logs[rest];
    chance += Math.exp(ways + number * Math.log(part) + rest * Math.log1p(-part));
    if (chance > BOUND) return number;
  }
  return 0;
}
