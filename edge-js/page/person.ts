/** Who this tab is: one person of this browser, whom no other tab is at the same time. */

const PEOPLE = "edgefr people";

/** Holds a person's name until the tab is closed; false: another tab has it. */
function held(name: string): Promise<boolean> {
  return new Promise((told) => {
    void navigator.locks.request(`edgefr ${name}`, { ifAvailable: true }, (lock) => {
      told(lock !== null);
      return lock ? new Promise(() => {}) : undefined;
    });
  });
}

const known = (): string[] => JSON.parse(localStorage.getItem(PEOPLE) ?? "[]") as string[];

/** The person that this tab was, or one whose tab was closed, or somebody new. */
export async function person(): Promise<string> {
  const before = sessionStorage.getItem(PEOPLE);
  const found = known();
  for (const name of [...found.filter((one) => one === before), ...found]) {
    if (await held(name)) return kept(name);
  }
  const name = crypto.randomUUID();
  await held(name);
  localStorage.setItem(PEOPLE, JSON.stringify([...known(), name]));
  return kept(name);
}

export function forgotten(name: string): void {
  localStorage.setItem(PEOPLE, JSON.stringify(known().filter((one) => one !== name)));
  sessionStorage.removeItem(PEOPLE);
}

function kept(name: string): string {
  sessionStorage.setItem(PEOPLE, name);
  return name;
}
