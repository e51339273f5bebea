"use strict";
// Every mark has its words in a <title>. They move into a tip that follows pointer and keys, and is read aloud.
const tip = document.getElementById("tip");
for (const title of document.querySelectorAll("svg title")) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}
let chosen = null;
function show(mark) {
  hide();
  chosen = mark;
  mark.classList.add("chosen");
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const at = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = at.width > 40 ? at.left + at.width / 2 : at.right;
  const room = document.documentElement.clientWidth - own.width - 8;
  tip.style.left = `${Math.max(8, Math.min(left + 10, room)) + window.scrollX}px`;
  const above = at.top - own.height - 8;
  tip.style.top = `${(above > 0 ? above : at.bottom + 8) + window.scrollY}px`;
}
function hide() {
  if (chosen) chosen.classList.remove("chosen");
  chosen = null;
  tip.hidden = true;
}
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest("[data-tip]");
  if (mark) show(mark);
  else if (chosen && !chosen.closest(".plot:focus")) hide();
});
// Within a chart: left and right along a line, up and down from line to line, Home and End to its ends.
for (const plot of document.querySelectorAll(".plot")) {
  const lines = [...plot.querySelectorAll("[data-line]")].map((line) => [...line.querySelectorAll("[data-tip]")]);
  const levels = [...plot.querySelectorAll(".hit")];
  if (levels.length) lines.push(levels);
  let row = 0, column = -1;
  plot.addEventListener("keydown", (event) => {
    const end = lines[row].length - 1;
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -end], End: [0, end] };
    if (event.key === "Escape") return hide();
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    row = (row + step[0] + lines.length) % lines.length;
    column = Math.max(0, Math.min(lines[row].length - 1, Math.max(column, step[1] > 0 ? -1 : 0) + step[1]));
    show(lines[row][column]);
  });
  plot.addEventListener("blur", hide);
}
// One device class is shown at a time, and marked in every table.
const select = document.getElementById("class");
function choose() {
  for (const panel of document.querySelectorAll("[data-panel]")) panel.classList.toggle("shown", panel.dataset.panel === select.value);
  for (const row of document.querySelectorAll("[data-class]")) row.classList.toggle("chosen", row.dataset.class === select.value);
}
if (select) {
  select.addEventListener("change", choose);
  choose();
}
// On a phone the first sections are open, and the others unfold when they are chosen.
const sections = [...document.querySelectorAll("section > details")];
if (window.matchMedia("(max-width: 640px)").matches) for (const one of sections.slice(2)) one.open = false;
function unfold() {
  const wanted = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const own = wanted && wanted.querySelector(":scope > details");
  if (own) own.open = true;
}
window.addEventListener("hashchange", unfold);
for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => setTimeout(unfold));
unfold();
// What is folded away is printed too.
window.addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not([open])")) {
    one.open = true;
    one.dataset.folded = "";
  }
});
window.addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll("details[data-folded]")) one.open = false;
});
