/** The page of `edgefr demo`: one person's device in a tab, what it recommends and why, and what leaves it. */

import { Apart } from "../src/worker/apart.js";
import { reason } from "../src/errors.js";
import type { Preview } from "../src/join/index.js";
import { forgotten, person } from "./person.js";
import { draw } from "./picture.js";
import type { Look, Opened, Told } from "./worker.js";

const SHOWN = 6; // recommendations
const MORE = 10; // seconds beyond its own limit that a worker may be in one piece of work
const AGAIN = 3000; // milliseconds until a server that was away is looked for again
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
const asked = new URLSearchParams(location.search);
const limit = (name: string, usual: number): number => Number(asked.get(name)) || usual;
const limits = { maxSeconds: limit("max_seconds", 60), maxRamMb: limit("max_ram_mb", 1024) };
const begun = (heard?: (told: Told) => void) => new Apart(
  new Worker("/worker.js", { type: "module" }), limits.maxSeconds + MORE, heard,
);
const device = begun(heard);
let [taking, away]: [Promise<void> | null, boolean] = [null, false];
let now: Look | null = null;
let counts: Told["counts"] = { taken: 0, bytesUp: 0, bytesDown: 0 };
let [before, releasesBefore]: [string[], number | null] = [[], null];
let shown = TITLES;
let turn: Promise<unknown> = Promise.resolve();

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

const opened = await device.call<Opened>("open", me, limits).catch((error: unknown) => {
  document.querySelector("main")!.hidden = false;
  at("forget").onclick = () => void forget();
  fault(error);
  return new Promise<never>(() => {});
});

/** Titles that are looked for, those that were liked first. */
function showItems(): void {
  const asked = at<HTMLInputElement>("find").value.trim().toLowerCase();
  const own = new Set(now?.had);
  const found = opened.items.filter(({ title }) => title.toLowerCase().includes(asked));
  found.sort((a, b) => Number(own.has(b.id)) - Number(own.has(a.id)));
  say("found", `${plural(found.length, "title")}${asked ? " found" : ""}, ${own.size} liked`);
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.id : undefined;
  at("items").replaceChildren(...found.slice(0, shown).map(({ id, title }, n) => {
    const had = own.has(id);
    const button =
      Object.assign(document.createElement("button"), { type: "button", textContent: title, tabIndex: n ? -1 : 0 });
    button.dataset.id = id;
    button.setAttribute("aria-pressed", String(had));
    button.onclick = () => void (had || next(() => learned([id])));
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

/** Local training on all that was liked, and what it changes on the page. */
async function learned(items: string[] = []): Promise<void> {
  say("basis", "Learning …");
  await device.call("like", items);
  await show();
}

async function show(): Promise<void> {
  now = await device.call<Look>("look", SHOWN);
  showItems();
  const entries = now.list.map(({ id, title, why }) => {
    const entry = document.createElement("li");
    const [name, because] = [document.createElement("b"), document.createElement("small")];
    [name.textContent, because.textContent] = [title, why];
    if (before.length && !before.includes(id)) entry.className = "new";
    entry.append(name, because);
    return entry;
  });
  at("list").replaceChildren(...entries);
  const changed = before.length ? now.list.filter(({ id }) => !before.includes(id)).length : 0;
  before = now.list.map(({ id }) => id);
  showStatus(now.status, changed, entries.length);
  if (now.status.interactions) await pictures();
}

function showStatus(status: Look["status"], changed: number, count: number): void {
  const { interactions, round, epsilon, epsilonLimit, withheld, stateBytes, stopped, user } = status;
  const likes = plural(interactions, "like");
  const anew = changed ? `${changed} of ${count} are new.` : "The list stayed as it was.";
  const cut = stopped ? ` Training stopped at its limit of ${limits.maxSeconds} seconds.` : "";
  const none = count ? "Nothing liked yet." : "Nothing liked yet, and the bundle has no list for new people.";
  say("basis", interactions ? `Learned here from ${likes}, after round ${round}. ${anew}${cut}` : none);
  say("who", `You are ${user}.`);
  say("epsilon", `epsilon ${number(epsilon)} of ${epsilonLimit}`);
  Object.assign(at<HTMLMeterElement>("spent"), { max: epsilonLimit, value: Math.min(epsilon, epsilonLimit) });
  const { clip } = opened;
  const noise = clip ? `Each update is clipped to ${number(clip)} and gets noise in this tab.` : "There is no guarantee.";
  const stops = `The tab stops by itself at epsilon ${epsilonLimit}.`;
  const few = "With few people noise drowns what is learned together: your list changes mostly by what this tab learns alone.";
  say("promise", withheld ? `Nothing may leave this tab: ${withheld}.` : `${noise} ${stops} ${few}`);
  at<HTMLButtonElement>("part").disabled = !interactions || (withheld !== null && !taking);
  say("sent", String(counts.taken));
  say("bytes", `${counts.bytesUp.toLocaleString("en")}, ${counts.bytesDown.toLocaleString("en")}`);
  const kept = `${Math.ceil(stateBytes / 1024)} KB of numbers that were learned, a key that signs your requests`;
  say("state", `Your ${likes}, ${kept}, and the list of updates that left. They are in this browser's database.`);
  if (!taking) showIdle(status);
}

/** What is said of rounds while this tab takes part in none. */
function showIdle({ interactions, releases }: Look["status"]): void {
  releasesBefore ??= releases;
  const left = releases > releasesBefore; // counted before training, so also where an answer was lost
  const idle = `You take part in no round${left ? " now" : ". Nothing has left this tab since it was opened"}.`;
  const waits = "The server is not reached. This tab goes on learning by itself, and waits for the server.";
  say("stands", away ? waits : interactions ? idle : "Like something, then take part.");
}

/** Whether the server is there: its page's service worker is the one file that is never kept. */
async function reach(): Promise<void> {
  const before = away;
  away = !(await fetch("/sw.js", { cache: "no-store" }).then(({ ok }) => ok, () => false));
  if (away) setTimeout(() => void reach(), AGAIN);
  if (away !== before && now && !taking) showIdle(now.status);
}

async function pictures(): Promise<void> {
  const found = await device.call<Preview>("preview");
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

/** What the worker tells of a round. */
function heard({ round, stands, counts: all }: Told): void {
  counts = all;
  const gone = away;
  away = stands === "away";
  if (gone && !away) void reach();
  say("stands", {
    waiting: `Waiting for round ${round + 1}. It opens when the one before is over.`,
    learning: `Round ${round} has begun: training on your likes.`,
    taken: `Round ${round}: your update was taken. Waiting for the others, until the server's time is over.`,
    late: `Round ${round} closed before your update came.`,
    unsafe: `Round ${round} goes on without you: this tab refused how its sum was made up.`,
    rested: `Round ${round} goes on without you: your budget is spent.`,
    over: "The server has no more rounds. You have its last update.",
    away: "The server is not reached. This tab goes on learning by itself, and waits for the server to take part.",
  }[stands]);
  if (stands === "taken" || stands === "over") void next(learned);
}

/** Takes part until the worker says why it no longer does. */
async function takePart(): Promise<void> {
  at("part").classList.add("on");
  say("part", "Stop taking part");
  const end = await device.call<string>("part").catch(reason);
  taking = null;
  at("part").classList.remove("on");
  say("part", "Take part in rounds");
  await next(learned);
  if (end) say("stands", end);
  void reach();
}

async function forget(): Promise<void> {
  if (!confirm("Delete your likes, what was learned from them, and your key? Updates that left cannot be called back."))
    return;
  if (taking) await device.call("stop");
  await taking;
  await turn;
  device.end("the state is deleted");
  await begun().call("forget", me);
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
at("part").onclick = () => void (taking ? device.call("stop") : (taking = takePart()));
for (const change of ["online", "offline"]) addEventListener(change, () => void reach());
at("forget").onclick = () => void forget();
document.querySelector("main")!.hidden = false;
await next(learned);
performance.mark("first recommendation");
await reach();
await navigator.serviceWorker.register("/sw.js").catch(() => null); // without one the page works while the server does
