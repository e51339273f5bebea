/** What does not agree within a bundle's learning, or is more than a device does, is refused (edge/learning.py). */

import type { Learning } from "./config.js";
import { Refused } from "./errors.js";

const [MOST_EXAMPLES, MOST_STEPS] = [2 ** 25, 1e6]; // of one round, all epochs

const repeats = (names: string[]): boolean => new Set(names).size < names.length;

export function checkLearning(learning: Learning, items: number): void {
  const { tensors, phases, negatives, vectors, vectors_data } = learning;
  const checks: [boolean, string][] = [
    [[tensors, phases].some((all) => repeats(all.map(({ name }) => name))), "names something twice"],
    [negatives > items, `draws ${negatives} negatives of ${items} items`],
    [!!vectors_data && !vectors, "has vectors_data of no graph"],
  ];
  for (const { name, dense, tables, lr } of phases) {
    const trained = [...dense, ...tables];
    const has = (kind: string) => (one: string) => tensors.some((t) => t.name === one && t.kind === kind);
    checks.push([!dense.every(has("dense")) || !tables.every(has("rows")), `trains in ${name} what it does not have`]);
    const rates = Object.keys(lr).sort().join() === trained.sort().join();
    checks.push([repeats(trained) || !rates, `trains in ${name} something twice, or at no rate`]);
  }
  const found = checks.find(([wrong]) => wrong);
  if (found) throw new Refused(`learning ${found[1]}; export again`);
}

/** Refuses a round on so many interactions that is more than a device does. */
export function checkWork({ phases, negatives, batch_size }: Learning, positives: number): void {
  for (const when of ["round", "final"]) {
    const epochs = phases.reduce((sum, phase) => sum + (phase.when === when ? phase.epochs : 0), 0);
    const examples = epochs * positives * (1 + negatives);
    if (examples > MOST_EXAMPLES || examples / batch_size > MOST_STEPS)
      throw new Refused(`${positives} interactions are more examples or steps than a device does in a round`);
  }
}
