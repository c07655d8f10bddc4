/* SPDX-License-Identifier: Apache-2.0
 * requests.js - the view Requests: recent requests, each with its timeline. */
import { $, duration, el, number, setOptions, svg } from "./dom.js";
import { betweenTokens, firstToken, onFigures, requests } from "./figures.js";

const SHOWN_MAX = 100, WIDTH = 300, HEIGHT = 14;

let paused = false, drawn = "";
const opened = new Set(); /* numbers of the rows that show their details */

/* ---- the timeline ---- */

/* The parts of a request's time, in microseconds since it was received: {kind, from, to}. */
function parts(r) {
  const started = r.started_us ?? r.ended_us, first = r.first_token_us;
  const list = [{ kind: "wait", name: "waiting", from: 0, to: started }];
  if (first === undefined) list.push({ kind: "run", name: "computing", from: started, to: r.ended_us });
  else list.push({ kind: "prefill", name: "prefill", from: started, to: first }, { kind: "decode", name: "decode", from: first, to: r.ended_us });
  return list.filter((p) => p.to > p.from);
}

/* All timelines have one scale, so that long requests look long. */
function timeline(r, longest) {
  const x = (us) => us / longest * WIDTH;
  const label = parts(r).map((p) => `${p.name} ${duration((p.to - p.from) / 1000)}`).join(", ");
  const bars = parts(r).map((p) => svg("rect", { class: "part " + p.kind, x: x(p.from).toFixed(2), y: 2,
    width: Math.max(0.75, x(p.to) - x(p.from)).toFixed(2), height: HEIGHT - 4 }));
  const first = r.first_token_us === undefined ? null
    : svg("line", { class: "first", x1: x(r.first_token_us), x2: x(r.first_token_us), y1: 0, y2: HEIGHT });
  return svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label || "no time" },
    svg("title", {}, label), ...bars, first);
}

/* ---- one request ---- */

const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

function fact(name, value, kind) {
  return value ? el("div", { class: kind }, el("dt", {}, name), el("dd", {}, value)) : null;
}

function details(r) {
  const at = (name, us) => fact(name, us !== undefined && duration(us / 1000));
  const rate = 1000 / betweenTokens(r);
  return el("dl", { class: "facts" },
    at("Read and queued at", r.queued_us), at("In a batch at", r.started_us), at("First token at", r.first_token_us), at("Ended at", r.ended_us),
    fact("Between tokens", Number.isFinite(rate) && duration(1000 / rate)), fact("Tokens/s", Number.isFinite(rate) && number(rate)),
    fact("Prompt from the cache", r.prompt_tokens && `${r.cached_tokens} of ${r.prompt_tokens} tokens`),
    fact("Sequences", r.sequences > 1 && r.sequences), fact("Version", r.version), fact("Id", r.id || "none", "wide"));
}

function setPaused(value) {
  paused = value;
  $("requests-pause").setAttribute("aria-pressed", String(paused));
}

/* Rows stay where they are while somebody reads one. */
function toggle(number) {
  if (!opened.delete(number)) opened.add(number);
  if (opened.has(number)) setPaused(true);
  drawn = "";
  draw(true);
  $("request-table").querySelector(`button[data-number="${number}"]`)?.focus();
}

function rows(r, longest) {
  const open = opened.has(r.number), time = clock(r.received_ms), good = r.status === 200;
  const button = el("button", { type: "button", class: "quiet expand", "data-number": r.number, "aria-expanded": String(open),
    onclick: () => toggle(r.number) }, time, el("span", { class: "sr-only" }, `, details of request ${r.number}`));
  const cell = (label, text, kind) => el("td", { "data-label": label, class: kind }, text);
  const row = el("tr", { class: open ? "open" : null }, el("td", { class: "time" }, button), cell("Model", r.model, "model"),
    el("td", { "data-label": "Result", class: good ? "good" : "bad" }, good ? "ok" : `${r.status} ${r.result}`),
    cell("Tokens in", r.prompt_tokens ? String(r.prompt_tokens) : "–", "n"), cell("Tokens out", r.new_tokens ? String(r.new_tokens) : "–", "n"),
    cell("First token", duration(firstToken(r)), "n"), cell("Total", duration(r.ended_us / 1000), "n"),
    el("td", { class: "line" }, timeline(r, longest)));
  return open ? [row, el("tr", { class: "more" }, el("td", { colspan: "8" }, details(r)))] : [row];
}

/* ---- the table ---- */

function shownRequests() {
  const model = $("requests-model").value, kind = $("requests-kind").value;
  const some = requests.filter((r) => (!model || r.model === model) && (kind !== "bad" || r.status !== 200));
  if (kind === "slow") some.sort((a, b) => b.ended_us - a.ended_us);
  return some.slice(0, SHOWN_MAX);
}

function draw(always = false) {
  if ($("view-requests").hidden || (paused && !always)) return;
  setOptions($("requests-model"), ["", ...new Set(requests.map((r) => r.model))], (n) => n || "all");
  const list = shownRequests(), now = list.map((r) => r.number).join() + $("requests-kind").value;
  $("no-requests").hidden = list.length > 0;
  if (now === drawn) return;
  drawn = now;
  const longest = Math.max(1, ...list.map((r) => r.ended_us)), focused = document.activeElement?.dataset?.number;
  $("request-table").tBodies[0].replaceChildren(...list.flatMap((r) => rows(r, longest)));
  if (focused) $("request-table").querySelector(`button[data-number="${focused}"]`)?.focus();
}

export function showRequests() {
  draw(true);
}

export function startRequests() {
  $("requests-pause").addEventListener("click", () => {
    setPaused(!paused);
    draw();
  });
  for (const id of ["requests-model", "requests-kind"]) $(id).addEventListener("change", () => draw(true));
  onFigures(() => draw());
}
