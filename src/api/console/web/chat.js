/* SPDX-License-Identifier: Apache-2.0
 * chat.js - the view Chat: the list of conversations, the open one, sending, stopping, editing. */
import { explain, getJson } from "./api.js";
import { $, confirmDialog, el, iconButton, setOptions, setText } from "./dom.js";
import { onFigures } from "./figures.js";
import { onOptions, showOptions } from "./options.js";
import * as store from "./store.js";
import { answer, newTurn } from "./stream.js";
import { assistantTurn, emptyNote, errorPart, toolTurn, userTurn } from "./turns.js";

const REDRAW_MS = 60; /* an answer that grows is drawn at most so often, and a long one less often */

let open = store.create("", {});
let running = null; /* {turn, abort} */
let models = [];    /* of /figures */
let full = false;   /* the browser had no room for the open conversation */
let parents = {};   /* adapter: the model that it belongs to */

/* ---- modes ---- */

const modelOf = (name) => models.find((m) => m.name === (parents[name] || name));

function isChat(conversation) {
  const mode = conversation.options.mode || "auto";
  return mode === "auto" ? modelOf(conversation.model)?.chat !== false : mode === "chat";
}

const EXAMPLES = {
  "encoder-decoder": ["translate English to German: A dog runs through the snow."],
  text: ["It was a dark and stormy night", "The sea was calm, and the captain"],
  chat: ["Explain in three sentences what a KV cache is.", "Write a haiku about the sea.", "Compare TCP and UDP in a table."],
};

function examples() {
  const model = modelOf(open.model);
  if (!model) return [];
  return EXAMPLES[model.kind] || EXAMPLES[isChat(open) ? "chat" : "text"];
}

function showMode() {
  const plain = open.model && !isChat(open);
  setText($("mode-note"), plain ? "Each message is a prompt of its own; the answer goes on from it. " : "");
}

/* ---- drawing ---- */

const actions = { redraw: () => drawLog(), edit: editTurn, again: generateAgain, result: sendResults };

function turnNode(turn) {
  const at = open.turns.indexOf(turn);
  const context = { running: running?.turn === turn, plain: !isChat(open), last: at === open.turns.length - 1, actions };
  if (turn.role === "user") return userTurn(turn, context);
  return turn.role === "tool" ? toolTurn(turn) : assistantTurn(turn, context);
}

function atEnd() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
}

function toEnd() {
  $("log").scrollTop = $("log").scrollHeight;
}

function drawLog() {
  const note = emptyNote(open.model, examples(), (text) => {
    $("text").value = text;
    fitText();
    $("text").focus();
  });
  const room = errorPart({ message: "The browser has no room for this conversation.",
    detail: "Delete older conversations; this one is lost when the page is closed." });
  $("log").replaceChildren(...(open.turns.length ? open.turns.map(turnNode) : [note]), ...(full ? [room] : []));
  showMode();
}

/* Draws the answer that grows; the rest of the log stays as it is. */
function drawRunning(turn) {
  const follow = atEnd(), now = turnNode(turn), old = $("log").querySelector(".going");
  const focused = old?.querySelector("summary:focus");
  old?.replaceWith(now);
  if (focused) now.querySelector("summary")?.focus();
  if (follow) toEnd();
}

/* A function that draws the answer soon, once for all calls until then. */
function drawer(conversation, mine) {
  let timer = 0, took = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      if (open !== conversation || running !== mine) return;
      const start = performance.now();
      drawRunning(mine.turn);
      took = performance.now() - start;
    }, Math.max(REDRAW_MS, 4 * took));
  };
}

function drawList() {
  const items = store.list().map(({ id, title }) => {
    const name = title || "Without a title";
    const current = id === open.id ? "true" : null;
    return el("li", {}, el("button", { type: "button", class: "quiet name", "aria-current": current, onclick: () => show(id) }, name),
      iconButton("trash", `Delete ${name}`, () => removeOne(id, name)));
  });
  $("conversation-list").replaceChildren(...items);
}

function drawAll() {
  full = false;
  $("title").value = open.title;
  $("title").placeholder = "New conversation";
  if ([...$("model").options].some((o) => o.value === open.model)) $("model").value = open.model;
  showOptions(open.options);
  drawList();
  drawLog();
  toEnd();
}

/* ---- conversations ---- */

function hidePanels() {
  for (const panel of [$("conversations"), $("options")]) if (panel.matches(":popover-open")) panel.hidePopover();
}

function show(id) {
  stop();
  open = store.load(id) || store.create($("model").value, {});
  drawAll();
  hidePanels();
  $("text").focus();
}

function showNew() {
  stop();
  open = store.create($("model").value, open.options);
  drawAll();
  hidePanels();
  $("text").focus();
}

async function removeOne(id, name) {
  if (!await confirmDialog(`Delete the conversation "${name}"?`, "Delete")) return;
  store.remove(id);
  if (id === open.id) showNew();
  else drawList();
  $("new").focus();
}

function keep(conversation) {
  full = !store.save(conversation);
  drawList();
}

/* ---- sending ---- */

function showButtons() {
  $("stop").hidden = !running;
  $("send").hidden = Boolean(running);
  $("send").disabled = !$("text").value.trim() || !open.model;
}

function stop() {
  running?.abort.abort();
}

/* What a screen reader hears of an answer, once it is whole. */
function announceEnd(turn) {
  const calls = turn.calls.map((c) => `Calls ${c.name}.`).join(" ");
  const text = turn.error ? `${turn.error.message} ${turn.error.detail}` : `${turn.text.slice(0, 600)} ${calls}`;
  setText($("announce"), turn.stopped ? "Stopped." : text.trim() || "The answer is empty.");
}

/* The answer to the turns so far. */
async function generate() {
  const conversation = open, turn = newTurn(open.model), mine = { turn, abort: new AbortController() };
  conversation.turns.push(turn);
  running = mine;
  showButtons();
  drawLog();
  toEnd();
  setText($("announce"), "The model is writing.");
  try {
    await answer(conversation, turn, isChat(conversation), mine.abort.signal, drawer(conversation, mine));
  } catch (error) {
    const { message, detail } = explain(error);
    turn.error = { message, detail };
  }
  if (running === mine) running = null;
  keep(conversation);
  showButtons();
  if (open !== conversation || running) return; /* another one is open, or the next answer runs */
  const follow = atEnd();
  drawLog();
  if (follow) toEnd();
  announceEnd(turn);
}

function send(text) {
  open.model = $("model").value;
  if (!open.title) open.title = text.trim().split("\n")[0].slice(0, 60);
  $("title").value = open.title;
  open.turns.push({ role: "user", text });
  keep(open);
  return generate();
}

/* The conversation goes on from the changed message; what followed it is dropped. */
function editTurn(turn, text) {
  stop();
  open.turns.splice(open.turns.indexOf(turn));
  send(text);
}

function generateAgain(turn) {
  stop();
  open.turns.splice(open.turns.indexOf(turn));
  open.model = $("model").value;
  generate();
}

function sendResults(turn, results) {
  open.turns.push(...results);
  keep(open);
  generate();
}

/* ---- models ---- */

/* The models that OpenAI's API lists and that write; asked again only when the figures show other ones. */
let known = "";
async function takeModels(figures) {
  const now = JSON.stringify(figures.models.map((m) => [m.name, m.version, m.state]));
  models = figures.models;
  if (now === known) return;
  const listed = (await getJson("v1/models")).data;
  known = now;
  parents = Object.fromEntries(listed.filter((m) => m.parent).map((m) => [m.id, m.parent]));
  const writes = new Set(models.filter((m) => m.kind !== "encoder").map((m) => m.name));
  const names = listed.filter((m) => writes.has(m.parent || m.id)).map((m) => m.id);
  setOptions($("model"), names);
  if (!names.includes(open.model)) open.model = $("model").value;
  $("model").value = open.model;
  showButtons();
  if (!running) drawLog();
}

/* ---- the page ---- */

function fitText() {
  const area = $("text");
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight + 2, innerHeight / 3) + "px";
  showButtons();
}

function listen() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value;
    if (running || !text.trim() || !$("model").value) return;
    $("text").value = "";
    fitText();
    send(text);
  });
  $("text").addEventListener("input", fitText);
  $("text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !event.target.closest("dialog, :popover-open")) stop();
  });
  $("stop").addEventListener("click", () => {
    stop();
    $("text").focus();
  });
  $("new").addEventListener("click", showNew);
  $("title").addEventListener("change", () => {
    open.title = $("title").value.trim();
    keep(open);
  });
  $("model").addEventListener("change", () => {
    open.model = $("model").value;
    keep(open);
    if (!running) drawLog();
  });
  onOptions((options) => {
    open.options = options;
    keep(open);
    if (running) return;
    if (!open.turns.length) drawLog();
    showMode();
  });
}

export function forgetAll() {
  store.removeAll();
  showNew();
}

export function startChat() {
  const newest = store.list()[0];
  open = (newest && store.load(newest.id)) || open;
  listen();
  drawAll();
  showButtons();
  store.onOtherTab(drawList);
  onFigures(takeModels);
}
