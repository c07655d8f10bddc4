/* SPDX-License-Identifier: Apache-2.0
 * turns.js - a turn of a conversation as elements. Actions are functions of chat.js: edit, again, result. */
import { copyButton, duration, el, icon, iconButton, number } from "./dom.js";
import { markdown } from "./markdown.js";

/* ---- parts of an answer ---- */

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; /* not yet whole, or not JSON at all */
  }
}

const chosenOpen = new WeakMap(); /* turn: whether the user has opened or closed its reasoning */

/* Open while the model reasons, closed afterwards, unless the user chose. */
function reasoningPart(turn, running) {
  if (!turn.reasoning) return null;
  const reasons = running && !turn.text;
  const details = el("details", { class: "reasoning", open: chosenOpen.get(turn) ?? reasons });
  details.append(
    el("summary", { onclick: () => chosenOpen.set(turn, !details.open) }, reasons ? "Reasoning…" : "Reasoning"),
    el("div", { class: "markdown" }, ...markdown(turn.reasoning)));
  return details;
}

function callPart(call) {
  return el("div", { class: "call" },
    el("p", { class: "call-head" }, icon("tool"), " Calls ", el("code", {}, call.name || "…")),
    el("pre", { tabindex: "0", role: "region", "aria-label": `Arguments of ${call.name}` },
      el("code", {}, pretty(call.arguments || "{}"))));
}

/* A form for the results of an answer's calls: the tools are the user's. */
function resultForm(turn, actions) {
  const fields = turn.calls.map((call) =>
    el("label", {}, `Result of ${call.name}`, el("textarea", { rows: "2", required: true, "data-id": call.id, "data-name": call.name })));
  return el("form", { class: "results", onsubmit: (event) => {
    event.preventDefault();
    actions.result(turn, [...event.target.querySelectorAll("textarea")].map((t) =>
      ({ role: "tool", id: t.dataset.id, name: t.dataset.name, text: t.value })));
  } }, ...fields, el("button", { type: "submit" }, fields.length > 1 ? "Send the results" : "Send the result"));
}

const finishes = { length: "stopped at the token limit", content_filter: "ended by a filter" };

function statsText(turn) {
  const s = turn.stats || {}, parts = [];
  if (s.new_tokens !== undefined) parts.push(`${s.new_tokens} tokens`);
  if (s.rate) parts.push(`${number(s.rate)} tokens/s`);
  if (s.first_ms) parts.push(`first after ${duration(s.first_ms)}`);
  if (s.prompt_tokens) parts.push(`prompt ${s.prompt_tokens}` + (s.cached_tokens ? `, ${s.cached_tokens} cached` : ""));
  if (turn.stopped) parts.push("stopped");
  else if (finishes[turn.finish]) parts.push(finishes[turn.finish]);
  return parts.join(" · ");
}

export function errorPart({ message, detail }) {
  return el("div", { class: "error" }, el("p", {}, message), detail && el("p", { class: "detail" }, detail));
}

/* ---- turns ---- */

/* text: the answer of a model without a chat template is shown as it is. */
function answerBody(turn, running, plain) {
  const text = plain ? [el("p", { class: "plain-text" }, turn.text.trimStart())] : markdown(turn.text);
  return [reasoningPart(turn, running),
    turn.text ? el("div", { class: "markdown" }, ...text) : null,
    ...turn.calls.map(callPart),
    running ? el("p", { class: "running" }, el("span", { class: "sr-only" }, "The model is writing")) : null,
    turn.error ? errorPart(turn.error) : null];
}

export function assistantTurn(turn, { running, plain, last, actions }) {
  const waits = last && !running && turn.calls.length > 0 && !turn.stopped && !turn.error;
  return el("article", { class: "turn assistant" + (running ? " going" : ""), "aria-label": turn.model },
    el("h2", { class: "who" }, turn.model),
    el("div", { class: "body" }, ...answerBody(turn, running, plain)),
    waits ? resultForm(turn, actions) : null,
    running ? null : el("div", { class: "actions" },
      turn.text ? copyButton("Copy the answer", () => turn.text) : null,
      iconButton("again", turn.error ? "Try again" : "Generate again", () => actions.again(turn)),
      el("span", { class: "stats" }, statsText(turn))));
}

function editForm(turn, actions) {
  const area = el("textarea", { rows: Math.min(12, turn.text.split("\n").length + 1), "aria-label": "Edit the message" });
  area.value = turn.text;
  const send = () => area.value.trim() && actions.edit(turn, area.value);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") actions.redraw();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  return el("div", { class: "edit" }, area, el("div", { class: "row end" },
    el("button", { type: "button", onclick: actions.redraw }, "Cancel"),
    el("button", { type: "button", class: "primary", onclick: send }, "Send")));
}

export function userTurn(turn, { actions }) {
  const body = el("div", { class: "body" }, el("p", { class: "plain-text" }, turn.text));
  const edit = () => {
    body.replaceChildren(editForm(turn, actions));
    tools.hidden = true;
    body.querySelector("textarea").focus();
  };
  const tools = el("div", { class: "actions" }, copyButton("Copy the message", () => turn.text),
    iconButton("edit", "Edit the message", edit));
  return el("article", { class: "turn user", "aria-label": "You" }, el("h2", { class: "who sr-only" }, "You"), body, tools);
}

export function toolTurn(turn) {
  return el("article", { class: "turn tool", "aria-label": `Result of ${turn.name}` },
    el("h2", { class: "who" }, icon("tool"), ` Result of ${turn.name}`),
    el("div", { class: "body" }, el("pre", { tabindex: "0", role: "region", "aria-label": `Result of ${turn.name}` },
      el("code", {}, pretty(turn.text)))));
}

export function emptyNote(model, examples, use) {
  return el("div", { class: "welcome" },
    el("h2", {}, model ? "What shall the model write?" : "No model is ready to talk"),
    model ? el("p", { class: "hint" }, `Messages go to ${model} on this server and nowhere else.`)
      : el("p", { class: "hint" }, "The view Models shows which models there are and in which state."),
    el("div", { class: "examples" }, ...examples.map((text) =>
      el("button", { type: "button", onclick: () => use(text) }, text))));
}
