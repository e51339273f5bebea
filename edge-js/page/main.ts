/** The page of `edgefr demo`: one person's device in a tab, what it recommends and why, and what leaves it. */

import * as runtime from "onnxruntime-web/wasm";
import { databaseStore, Device, type Runtime } from "../src/index.js";
import { Identity, join, preview, Server, type Counts } from "../src/join/index.js";
import { reason } from "../src/errors.js";
import { forgotten, person } from "./person.js";
import { draw } from "./picture.js";

runtime.env.wasm.numThreads = 1;
runtime.env.wasm.wasmPaths = "/ort/";

const SHOWN = 6; // recommendations
const NEAR = 0.3; // least cosine that is worth telling
const TITLES = matchMedia("(max-width: 46rem)").matches ? 12 : 48; // shown at once

const at = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const say = (id: string, text: string): void => {
  if (at(id).textContent !== text) at(id).textContent = text;
};
const number = (value: number): string => String(Number(value.toPrecision(3)));
const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

const me = await person().catch((error: unknown) => {
  document.querySelector("main")!.hidden = false;
  fault(error);
  return new Promise<never>(() => {});
});
const [identities, states] = [databaseStore(`identity ${me}`), databaseStore(`device ${me}`)];
let stop: AbortController | null = null;
let counts: Pick<Counts, "taken" | "bytesUp" | "bytesDown"> = { taken: 0, bytesUp: 0, bytesDown: 0 };
let before: string[] = [];
let shown = TITLES;
let turn: Promise<unknown> = Promise.resolve();
let taking: Promise<void> = Promise.resolve();

/** One thing after another: what a tap and a round ask for never mixes. */
function next(work: () => Promise<void>): Promise<void> {
  const done = turn.then(work).catch(fault);
  turn = done;
  return done;
}

function fault(error: unknown): void {
  at("fault").hidden = false;
  say("fault", `${reason(error)}. If it stays so, delete your state below and reload.`);
}

async function opened(): Promise<{ device: Device; identity: Identity }> {
  const identity = await Identity.of(identities);
  const server = new Server(location.origin, identity);
  if (!identity.user) {
    const answer = await fetch("/people", { method: "POST" });
    const told = await answer.text();
    if (!answer.ok) throw new Error(told.trim());
    await server.enrol((JSON.parse(told) as { code: string }).code);
  }
  const options = { runtime: runtime as unknown as Runtime, user: identity.user! };
  return { device: await Device.open(server.bundle(), states, options), identity };
}

const { device, identity } = await opened().catch((error: unknown) => {
  document.querySelector("main")!.hidden = false;
  at("forget").onclick = () => void forget();
  fault(error);
  return new Promise<never>(() => {});
});

const releasesBefore = device.status().releases;

/** Titles that are looked for, those that were liked first. */
function showItems(): void {
  const asked = at<HTMLInputElement>("find").value.trim().toLowerCase();
  const found = device.catalogue().filter(({ title }) => title.toLowerCase().includes(asked));
  found.sort((a, b) => Number(b.had) - Number(a.had));
  say("found", `${plural(found.length, "title")}${asked ? " found" : ""}, ${device.status().interactions} liked`);
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.id : undefined;
  at("items").replaceChildren(...found.slice(0, shown).map(({ id, title, had }, n) => {
    const button =
      Object.assign(document.createElement("button"), { type: "button", textContent: title, tabIndex: n ? -1 : 0 });
    button.dataset.id = id;
    button.setAttribute("aria-pressed", String(had));
    button.onclick = () => void (had || next(() => like(id)));
    const entry = document.createElement("li");
    entry.append(button);
    return entry;
  }));
  at("more").hidden = found.length <= shown;
  if (focused) at("items").querySelector<HTMLElement>(`[data-id="${CSS.escape(focused)}"]`)?.focus();
}

/** Arrow keys go from title to title; a tab stop is the list as a whole. */
function arrows(event: KeyboardEvent): void {
  const buttons = [...at("items").querySelectorAll("button")];
  const place = buttons.indexOf(event.target as HTMLButtonElement);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined || place < 0) return;
  event.preventDefault();
  const wanted = buttons[(place + step + buttons.length) % buttons.length];
  for (const button of buttons) button.tabIndex = button === wanted ? 0 : -1;
  wanted.focus();
}

async function like(id: string): Promise<void> {
  await device.note([id]);
  await learned();
}

/** Local training on all that was liked, and what it changes on the page. */
async function learned(): Promise<void> {
  if (device.status().interactions && device.learning.phases.some((phase) => phase.when === "final"))
    await device.personalise();
  await show();
}

async function show(): Promise<void> {
  showItems();
  const { basis, items } = await device.recommend(SHOWN);
  const entries: HTMLElement[] = [];
  for (const { id, title } of items) {
    const entry = document.createElement("li");
    const [name, because] = [document.createElement("b"), document.createElement("small")];
    [name.textContent, because.textContent] = [title, basis === "model" ? await why(id) : "From the list for new people"];
    if (before.length && !before.includes(id)) entry.className = "new";
    entry.append(name, because);
    entries.push(entry);
  }
  at("list").replaceChildren(...entries);
  const changed = before.length ? items.filter(({ id }) => !before.includes(id)).length : 0;
  before = items.map(({ id }) => id);
  showStatus(changed, items.length);
  if (device.status().interactions) await pictures();
}

async function why(id: string): Promise<string> {
  const [{ title, cosine } = { title: "", cosine: 0 }] = await device.nearest(id, 1).catch(() => []);
  if (cosine < NEAR) return "Nothing you liked is near it: the model ranks it so";
  return `The model finds it ${Math.round(100 * cosine)}% like ${title}, which you liked`;
}

function showStatus(changed: number, count: number): void {
  const { interactions, round, epsilon, epsilonLimit, withheld, stateBytes, user } = device.status();
  const likes = plural(interactions, "like");
  const anew = changed ? `${changed} of ${count} are new.` : "The list stayed as it was.";
  const none = count ? "Nothing liked yet." : "Nothing liked yet, and the bundle has no list for new people.";
  say("basis", interactions ? `Learned here from ${likes}, after round ${round}. ${anew}` : none);
  say("who", `You are ${user}.`);
  say("epsilon", `epsilon ${number(epsilon)} of ${epsilonLimit}`);
  Object.assign(at<HTMLMeterElement>("spent"), { max: epsilonLimit, value: Math.min(epsilon, epsilonLimit) });
  const clip = device.bundle.manifest.privacy?.clip;
  const noise = clip ? `Each update is clipped to ${number(clip)} and gets noise in this tab.` : "There is no guarantee.";
  const stops = `The tab stops by itself at epsilon ${epsilonLimit}.`;
  const few = "With few people noise drowns what is learned together: your list changes mostly by what this tab learns alone.";
  say("promise", withheld ? `Nothing may leave this tab: ${withheld}.` : `${noise} ${stops} ${few}`);
  at<HTMLButtonElement>("part").disabled = !interactions || (withheld !== null && !stop);
  say("sent", String(counts.taken));
  say("bytes", `${counts.bytesUp.toLocaleString("en")}, ${counts.bytesDown.toLocaleString("en")}`);
  const kept = `${Math.ceil(stateBytes / 1024)} KB of numbers that were learned, a key that signs your requests`;
  say("state", `Your ${likes}, ${kept}, and the list of updates that left. They are in this browser's database.`);
  if (stop) return;
  const left = device.status().releases > releasesBefore; // counted before training, so also where an answer was lost
  const idle = `You take part in no round${left ? " now" : ". Nothing has left this tab since it was opened"}.`;
  say("stands", interactions ? idle : "Like something, then take part.");
}

async function pictures(): Promise<void> {
  const found = await preview(device);
  for (const one of document.querySelectorAll<HTMLElement>(".pictures")) one.hidden = false;
  const { length } = found.before;
  const [bytes, values] = [found.bytes, length].map((one) => one.toLocaleString("en"));
  say("size", `${bytes} bytes: ${values} numbers, as many for everybody, whatever they like.`);
  for (const name of ["before", "clipped", "noised"] as const) {
    const told = draw(at<HTMLCanvasElement>(name), found[name]);
    const text = `length ${number(told.length)}, largest ${number(told.largest)}`;
    say(`t-${name}`, text);
    at(name).setAttribute("aria-label", `Picture of ${length} numbers, ${text}`);
  }
}

/** Takes part until the server has no more rounds, the tab lets nothing more leave, or its owner stops. */
async function takePart(): Promise<void> {
  const own = (stop = new AbortController());
  at("part").classList.add("on");
  say("part", "Stop taking part");
  const earlier = { ...counts };
  let end = "";
  try {
    const server = new Server(location.origin, identity, {}, own.signal);
    const told = await join(device, server, [], (round, stands, now) => {
      const all = (name: keyof typeof counts) => earlier[name] + now[name];
      counts = { taken: all("taken"), bytesUp: all("bytesUp"), bytesDown: all("bytesDown") };
      say("stands", {
        waiting: `Waiting for round ${Math.max(round, device.status().round) + 1}. It opens when the one before is over.`,
        learning: `Round ${round} has begun: training on your likes.`,
        taken: `Round ${round}: your update was taken. Waiting for the others, until the server's time is over.`,
        late: `Round ${round} closed before your update came.`,
        rested: `Round ${round} goes on without you: your budget is spent.`,
        over: "The server has no more rounds. You have its last update.",
      }[stands]);
      if (stands === "taken" || stands === "over") void next(learned);
    });
    end = told.stopped ?? "The server has no more rounds.";
  } catch (error) {
    end = own.signal.aborted ? "" : reason(error);
  }
  stop = null;
  at("part").classList.remove("on");
  say("part", "Take part in rounds");
  await next(learned);
  if (end) say("stands", end);
}

async function forget(): Promise<void> {
  if (!confirm("Delete your likes, what was learned from them, and your key? Updates that left cannot be called back."))
    return;
  stop?.abort();
  await taking;
  await turn;
  await Promise.all([identities.remove(), states.remove()]);
  forgotten(me);
  location.reload();
}

at("find").oninput = () => {
  shown = TITLES;
  showItems();
};
at("items").onkeydown = arrows;
at("more").onclick = () => {
  shown += TITLES;
  showItems();
};
at("part").onclick = () => (stop ? stop.abort() : void (taking = takePart()));
at("forget").onclick = () => void forget();
document.querySelector("main")!.hidden = false;
await next(learned);
performance.mark("first recommendation");
