/** A device decides for itself: its policy says what may leave it, and its own ledger when it stops. */

import type { Promise_, Release } from "./config.js";

/** What a device's owner lets it release. The defaults are strict, as the Python device's. */
export interface Policy {
  trust: "local" | "central"; unprotected: boolean; signed: boolean; tensors: string[] | null;
  epsilon: number; delta: number; leastNoise: number; largestClip: number; releasesPerDay: number; leastCohort: number;
  /** Updates leave under the masks of a secure sum alone. */
  sealed: boolean;
}

export const STRICT: Policy = {
  trust: "local", unprotected: false, epsilon: 10, delta: 1e-5, leastNoise: 0.1, largestClip: 100,
  releasesPerDay: 100, leastCohort: 10, signed: true, tensors: null, sealed: false,
};

const NEAR = 1 + 1e-9;
const LAWS = ["discrete-gaussian", "discrete-laplace"];

/** Why a bundle's updates may not leave, in one line; null: they may. */
export function refuses(
  policy: Policy, release: Release, promise: Promise_ | null, signedBy: string | null, leaving: string[],
): string | null {
  const broken = promise ? brokenBy(release, promise) : [];
  if (broken.length) return `the bundle promises more than it does: ${broken.join("; ")}; do not use it`;
  const found: string[] = [];
  if (policy.signed && signedBy === null) found.push("policy signed: no trusted key has signed the bundle");
  const others = leaving.filter((name) => policy.tensors && !policy.tensors.includes(name));
  if (others.length) found.push(`policy tensors: ${others[0]} would leave the device`);
  if (!promise && !policy.unprotected) found.push("policy unprotected: the bundle promises nothing for its updates");
  if (promise) found.push(...beyond(policy, promise, signedBy));
  const clip = promise ? promise.clip : release.clip;
  if (clip !== null && clip > policy.largestClip * NEAR)
    found.push(`policy largestClip: updates are clipped to ${clip}`);
  return found.length ? found.join("; ") : null;
}

function beyond(policy: Policy, promise: Promise_, signedBy: string | null): string[] {
  const central = promise.trust === "central";
  const reasons: [boolean, string][] = [
    [central && signedBy === null, "policy trust: only a signed bundle says which server adds the noise"],
    [central && policy.trust === "local", "policy trust: the server would see the sum before noise is added to it"],
    [central && promise.cohort < policy.leastCohort, `policy leastCohort: sums of ${promise.cohort} would be opened`],
    [promise.multiplier * NEAR < policy.leastNoise, `policy leastNoise: noise of ${promise.multiplier} sensitivities`],
    [promise.delta > policy.delta * NEAR, `policy delta: what is promised has delta ${promise.delta}`],
    [promise.epsilon > policy.epsilon * NEAR, `policy epsilon: its rounds would spend epsilon ${promise.epsilon}`],
  ];
  return reasons.filter(([holds]) => holds).map(([, why]) => why);
}

/** What a promise says and the bundle's own settings, by which the device works, do not keep. */
function brokenBy(release: Release, promise: Promise_): string[] {
  const found: string[] = [];
  if (release.noised !== (promise.trust === "local" ? "here" : "server"))
    found.push(`noise is added ${release.noised}`);
  if (promise.trust === "local" && promise.adjacency !== "replace-one")
    found.push(`each upload is seen, which ${promise.adjacency} does not cover`);
  if (release.noise !== promise.mechanism || !LAWS.includes(promise.mechanism))
    found.push(`${promise.mechanism} noise is promised, it has ${release.noise}`);
  if (release.weights !== "uniform") found.push("the number of interactions leaves the device too");
  if (release.norm !== promise.norm || release.clip === null || release.clip > promise.clip * NEAR || !release.step) {
    return [...found, "updates are not clipped as promised"];
  }
  let sensitivity = (promise.adjacency === "replace-one" ? 2 : 1) * release.clip;
  const steps = Math.max(1, Math.floor((sensitivity / release.step) * NEAR));
  if (promise.steps && promise.steps !== steps) found.push(`the sensitivity is ${steps} steps, not ${promise.steps}`);
  if (promise.steps && promise.norm === "l1") sensitivity = steps * release.step;
  if (promise.multiplier > (release.scale / sensitivity) * NEAR) found.push("the noise is less than promised");
  return found;
}

export interface Entry {
  round: number; seconds: number; mechanism: string; multiplier: number; steps: number;
}

/** One release under a promise, as it is counted. */
export function entryOf(promise: Promise_ | null, round: number, seconds: number): Entry {
  if (!promise) return { round, seconds, mechanism: "none", multiplier: 0, steps: 0 };
  return { round, seconds, mechanism: promise.mechanism, multiplier: promise.multiplier, steps: promise.steps };
}

/** Why a release may not leave now; null: it may. */
export function exceeds(policy: Policy, ledger: Entry[], next: Entry): string | null {
  const newest = Math.max(next.seconds, ...ledger.map((one) => one.seconds));
  const recent = ledger.filter((one) => one.seconds > newest - 86400).length;
  if (recent >= policy.releasesPerDay) return `policy releasesPerDay: ${recent} updates have left in 24 hours`;
  const epsilon = spent([...ledger, next], policy.delta);
  if (epsilon <= policy.epsilon || (epsilon === Infinity && policy.unprotected)) return null;
  return `policy epsilon: one more release would make it ${epsilon.toPrecision(4)}, of ${policy.epsilon}`;
}

/** The epsilon at `delta` of all releases together; Infinity where one had no noise that is counted here. */
export function spent(ledger: Entry[], delta: number): number {
  if (!ledger.length) return 0;
  if (ledger.every((one) => one.mechanism === "discrete-laplace"))
    return ledger.reduce((sum, one) => sum + 1 / one.multiplier, 0);
  const known = ledger.map((one) => {
    const sigma = one.multiplier * one.steps; // as in privacy/mechanisms/gaussian.py
    const counts = one.mechanism === "discrete-gaussian" && sigma >= 10;
    return counts ? one.multiplier * Math.sqrt(1 - (3 / sigma) ** 2) * (1 - 2 ** -40) : 0;
  });
  const mu = Math.sqrt(known.reduce((sum, multiplier) => sum + 1 / multiplier ** 2, 0));
  return Number.isFinite(mu) ? gaussianEpsilon(mu, delta) : Infinity;
}

/** The epsilon of mu-GDP at delta (Dong, Roth & Su 2022, Cor. 2.13), rounded up. */
export function gaussianEpsilon(mu: number, delta: number): number {
  const over =
    (epsilon: number) => tail(epsilon / mu - mu / 2) - Math.exp(epsilon + logTail(epsilon / mu + mu / 2)) > delta;
  let [low, high] = [0, 1];
  while (over(high)) high *= 2;
  for (let n = 0; n < 100; n++) {
    const middle = (low + high) / 2;
    if (over(middle)) low = middle;
    else high = middle;
  }
  return high * (1 + 1e-9);
}

const tail = (x: number): number => (x < 0 ? 1 - Math.exp(logTail(-x)) : Math.exp(logTail(x)));

/** The logarithm of P(N(0, 1) > x), x >= 0: a series near 0, a continued fraction beyond. */
function logTail(x: number): number {
  if (x < 3) {
    let [term, sum] = [x, x];
    for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum) && n < 200; n++) sum += term *= (x * x) / (2 * n + 1);
    return Math.log(0.5 - (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI));
  }
  let fraction = x;
  for (let n = 200; n > 0; n--) fraction = x + n / fraction;
  return (-x * x) / 2 - Math.log(fraction * Math.sqrt(2 * Math.PI));
}
