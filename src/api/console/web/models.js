/* SPDX-License-Identifier: Apache-2.0
 * models.js - the view Models: what the server has and what it does, loading and unloading. */
import { explain, post } from "./api.js";
import { $, confirmDialog, el, number, setText } from "./dom.js";
import { labelOf, onFigures, poll, samples } from "./figures.js";

let figures = { models: [], control: "none" };
let index = [];            /* of the repository, in explicit mode */
const busy = new Map();    /* name: "loading" or "unloading" */

/* ---- one model ---- */

const states = { READY: "ready", LOADING: "loading", UNLOADING: "unloading", UNAVAILABLE: "not loaded" };

function stateBadge(model) {
  const doing = busy.get(model.name), ready = model.state === "READY";
  const text = doing || states[model.state] || "not loaded";
  const kind = doing || model.state === "LOADING" ? "wait" : ready ? "good" : model.reason && model.reason !== "unloaded" ? "bad" : "off";
  return el("span", { class: "badge " + kind }, text);
}

function fact(name, value) {
  return value === undefined || value === "" ? null : el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function pagesFact(model) {
  if (!model.pages_total || model.kind === "encoder") return null;
  const text = `${model.pages_used} of ${model.pages_total} pages`;
  return el("div", { class: "wide" }, el("dt", {}, "KV memory"), el("dd", {},
    el("meter", { max: model.pages_total, value: model.pages_used, "aria-label": `KV memory: ${text}` }), ` ${text}`,
    model.pages_cached ? `, ${model.pages_cached} cached` : ""));
}

function facts(model) {
  const now = samples.at(-1)?.models[labelOf(model, figures.models)];
  if (model.state !== "READY") return null;
  return el("dl", { class: "facts" },
    fact("Requests", number(model.requests || 0)), fact("Failed", number(model.failures || 0)),
    fact("Running", model.running), fact("Waiting", number((model.queue || 0) + (model.waiting || 0))),
    fact("Tokens/s", model.new_tokens === undefined || model.kind === "encoder" ? undefined : number(now?.new_tokens || 0)),
    fact("Cache hits", model.prefix_queries ? Math.round(100 * model.prefix_hits / model.prefix_queries) + " %" : undefined),
    pagesFact(model));
}

function description(model) {
  const parts = [model.version && `version ${model.version}`, model.arch || model.backend, model.kind, model.dtype,
    model.quant && model.quant !== "none" ? model.quant : "", model.context && `${model.context} tokens of context`,
    model.chat ? "chat template" : ""];
  return parts.filter(Boolean).join(" · ");
}

/* ---- loading ---- */

async function change(name, action, doing) {
  busy.set(name, doing);
  draw();
  setText($("models-message"), `${name} is ${doing}.`);
  try {
    await post(`v2/repository/models/${encodeURIComponent(name)}/${action}`, {});
    setText($("models-message"), action === "load" ? `${name} is loaded.` : `${name} is being unloaded.`);
  } catch (error) {
    const { message, detail } = explain(error);
    setText($("models-message"), `${name}: ${message} ${detail}`);
  }
  busy.delete(name);
  await readIndex();
  poll();
}

async function unload(name) {
  const yes = await confirmDialog(`Unload ${name}? Requests that run are finished first; new ones are refused.`, "Unload");
  if (yes) change(name, "unload", "unloading");
}

function buttons(model) {
  if (figures.control !== "explicit") return null;
  const ready = model.state === "READY", disabled = busy.has(model.name);
  const button = (text, label, onclick) => el("button", { type: "button", disabled, "aria-label": label, onclick }, text);
  return el("div", { class: "row" },
    button(ready ? "Reload" : "Load", `${ready ? "Reload" : "Load"} ${model.name}`, () => change(model.name, "load", "loading")),
    ready ? button("Unload", `Unload ${model.name}`, () => unload(model.name)) : null);
}

/* ---- the list ---- */

/* Models of the figures, and those of the repository that were never loaded. */
function allModels() {
  const known = new Set(figures.models.map((m) => m.name));
  const others = index.filter((m) => !known.has(m.name)).map((m) => ({ ...m, state: m.state || "UNAVAILABLE" }));
  return [...figures.models, ...others].sort((a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

function card(model) {
  const failed = model.state !== "READY" && model.reason && model.reason !== "unloaded";
  return el("li", { class: "card", "data-name": model.name },
    el("div", { class: "card-head" }, el("h2", {}, model.name), stateBadge(model), buttons(model)),
    description(model) ? el("p", { class: "hint" }, description(model)) : null,
    failed ? el("p", { class: "error detail" }, model.reason) : null, facts(model));
}

const notes = {
  none: "The server loads its models at its start only. Start it with --model-control-mode explicit to load and unload here.",
  poll: "The server follows changes of the model repository by itself (--model-control-mode poll).",
  explicit: "",
};

let drawn = "";
function draw() {
  if ($("view-models").hidden) return;
  const now = JSON.stringify([figures.models, figures.control, index, [...busy]]);
  if (now === drawn) return;
  drawn = now;
  const focused = document.activeElement?.getAttribute("aria-label");
  setText($("control-note"), notes[figures.control] || "");
  $("model-list").replaceChildren(...allModels().map(card));
  if (focused) $("model-list").querySelector(`button[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

async function readIndex() {
  if (figures.control !== "explicit") return;
  try {
    index = await (await post("v2/repository/index", {})).json();
  } catch (error) {
    index = [];
    const { message, detail } = explain(error);
    setText($("models-message"), `The list of the repository is not available. ${message} ${detail}`);
  }
  draw();
}

export function showModels() {
  drawn = "";
  draw();
  readIndex();
}

export function startModels() {
  onFigures((now) => {
    const first = figures.control !== now.control;
    figures = now;
    draw();
    if (first) readIndex();
  });
}
