/* SPDX-License-Identifier: Apache-2.0
 * The page at /: figures once a second, and a conversation whose answer comes as server-sent events. */
"use strict";

const $ = (id) => document.getElementById(id);
const key = () => sessionStorage.getItem("key") || "";
const headers = () => (key() ? { Authorization: "Bearer " + key() } : {});

/* ---- colours ---- */

const themes = ["", "light", "dark"];
const themeNames = { "": "as the system has them", light: "light", dark: "dark" };
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  $("theme").setAttribute("aria-label", "Colours: " + themeNames[theme]);
  $("theme").title = "Colours: " + themeNames[theme];
  localStorage.setItem("theme", theme);
}
$("theme").addEventListener("click", () =>
  setTheme(themes[(themes.indexOf(localStorage.getItem("theme") || "") + 1) % themes.length]));
setTheme(localStorage.getItem("theme") || "");

/* ---- figures ---- */

const history = { rate: [], tokens: [] };
let before = null;

function number(x) {
  if (x >= 1e6) return (x / 1e6).toFixed(1) + " M";
  if (x >= 1e4) return (x / 1e3).toFixed(1) + " k";
  return x >= 100 || Number.isInteger(x) ? Math.round(x).toString() : x.toFixed(1);
}

function line(name, value) {
  const list = history[name];
  list.push(value);
  if (list.length > 60) list.shift();
  const top = Math.max(...list, 1e-9);
  const points = list.map((v, i) => `${60 - list.length + i + 1},${(19 - 18 * v / top).toFixed(2)}`);
  $(name + "-line").firstElementChild.setAttribute("points", points.join(" "));
}

function sum(models, name) {
  return models.reduce((total, m) => total + (m[name] || 0), 0);
}

function cell(row, text, kind, label) {
  const td = row.insertCell();
  td.textContent = text;
  if (kind) td.className = kind;
  if (label) td.dataset.label = label;
  return td;
}

function showModel(body, m) {
  const row = body.insertRow(), ready = m.state === "READY";
  const name = cell(row, m.name, "name"), small = document.createElement("small");
  small.textContent = [m.version && "version " + m.version, m.arch, m.dtype,
    m.quant && m.quant !== "none" && m.quant].filter(Boolean).join(", ");
  name.append(small);
  if (!ready) {
    cell(row, m.state.toLowerCase() + (m.reason ? ": " + m.reason : ""), "not").colSpan = 7;
    return;
  }
  cell(row, "ready", "ready");
  cell(row, m.backend || "");
  cell(row, number(m.requests || 0), "n", "requests");
  cell(row, number(m.failures || 0), "n", "failed");
  cell(row, number((m.queue || 0) + (m.waiting || 0)), "n", "waiting");
  cell(row, m.tokens_per_second === undefined ? "" : number(m.tokens_per_second), "n", m.tokens_per_second === undefined ? "" : "tokens/s");
  const pages = cell(row, "", "", m.pages_total ? "pages" : "");
  if (!m.pages_total) return;
  const meter = document.createElement("meter");
  meter.max = m.pages_total;
  meter.value = m.pages_used;
  meter.title = `${m.pages_used} of ${m.pages_total}`;
  meter.textContent = meter.title;
  pages.append(meter, ` ${m.pages_used}/${m.pages_total}`);
  pages.classList.add("pages");
}

function showFigures(f) {
  const seconds = before ? (f.time_ms - before.time_ms) / 1000 : 0;
  const requests = sum(f.models, "requests") + sum(f.models, "failures");
  const rate = seconds > 0 ? Math.max(0, (requests - before.requests) / seconds) : 0;
  const tokens = sum(f.models, "tokens_per_second");
  before = { time_ms: f.time_ms, requests };
  $("rate").textContent = number(rate);
  $("tokens").textContent = number(tokens);
  $("flight").textContent = number(f.in_flight);
  $("queue").textContent = number(sum(f.models, "queue") + sum(f.models, "waiting"));
  $("pages").textContent = number(sum(f.models, "pages_used"));
  if (seconds > 0) line("rate", rate);
  line("tokens", tokens);
  const body = document.createElement("tbody");
  body.id = "models";
  f.models.forEach((m) => showModel(body, m));
  $("models").replaceWith(body);
  $("none").hidden = f.models.length > 0;
  const ready = f.models.filter((m) => m.state === "READY").length;
  $("state").className = "";
  say("state", `version ${f.version}, ${ready} of ${f.models.length} models ready`);
}

/* Screen readers hear a status only when it changes. */
function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

async function poll() {
  try {
    const answer = await fetch("figures", { headers: headers(), cache: "no-store" });
    $("key-row").hidden = answer.status !== 401 && !key();
    if (!answer.ok) throw new Error(answer.status === 401 ? "an API key is needed" : "status " + answer.status);
    const figures = await answer.json();
    showFigures(figures);
    await showChoices(figures.models);
  } catch (error) {
    $("state").className = "lost";
    say("state", error instanceof TypeError ? "the server does not answer" : error.message);
  }
  setTimeout(poll, document.hidden ? 5000 : 1000);
}

/* ---- the conversation ---- */

let known = "", chats = {}, turns = [], running = null;

/* The models that OpenAI's API lists; asked again only when the figures show other ones. */
async function showChoices(models) {
  const now = JSON.stringify(models.map((m) => [m.name, m.version, m.state]));
  if (now === known) return;
  const answer = await fetch("v1/models", { headers: headers() });
  if (!answer.ok) return;
  known = now;
  chats = Object.fromEntries(models.map((m) => [m.name, m.chat === true]));
  const generators = new Set(models.filter((m) => m.kind !== "encoder").map((m) => m.name));
  const names = (await answer.json()).data.map((m) => m.id).filter((n) => generators.has(n));
  const chosen = $("model").value;
  $("model").replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) $("model").value = chosen;
  else suggestMode();
  $("send").disabled = names.length === 0 || running !== null;
}

function suggestMode() {
  $("mode").value = chats[$("model").value] ? "chat" : "completion";
}

function add(kind, text) {
  const p = document.createElement("p");
  p.className = kind;
  p.textContent = text;
  $("log").append(p);
  $("log").scrollTop = $("log").scrollHeight;
  return p;
}

function request(text) {
  const chat = $("mode").value === "chat";
  const body = { model: $("model").value, max_tokens: Number($("max").value) || 120,
    temperature: Number($("temperature").value), stream: true, stream_options: { include_usage: true } };
  if (chat) body.messages = [...turns, { role: "user", content: text }];
  else body.prompt = text;
  return [chat ? "v1/chat/completions" : "v1/completions", body];
}

/* Calls event for each "data: ..." line of a stream. */
async function readEvents(answer, event) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const text of lines)
      if (text.startsWith("data: ") && text !== "data: [DONE]") event(JSON.parse(text.slice(6)));
  }
}

async function talk(text) {
  const [path, body] = request(text), chat = path.includes("chat"), start = performance.now();
  add("mine", text);
  const p = add("going", "");
  running = new AbortController();
  $("stop").disabled = false;
  $("send").disabled = true;
  let said = "", usage = null;
  try {
    const answer = await fetch(path, { method: "POST", signal: running.signal, body: JSON.stringify(body),
      headers: { ...headers(), "Content-Type": "application/json" } });
    if (!answer.ok) throw new Error(((await answer.json()).error || {}).message || "status " + answer.status);
    await readEvents(answer, (e) => {
      if (e.error) throw new Error(e.error.message);
      usage = e.usage || usage;
      for (const c of e.choices) said += chat ? c.delta.content || "" : c.text;
      p.textContent = said;
      $("log").scrollTop = $("log").scrollHeight;
    });
    if (chat) turns.push({ role: "user", content: text }, { role: "assistant", content: said });
  } catch (error) {
    if (error.name !== "AbortError") add("error", error.message);
    else if (chat) turns.push({ role: "user", content: text }, { role: "assistant", content: said });
  }
  p.className = "";
  if (!said) p.remove();
  const seconds = (performance.now() - start) / 1000;
  say("spent", usage ? `${usage.completion_tokens} tokens in ${seconds.toFixed(1)} s` : `${seconds.toFixed(1)} s`);
  running = null;
  $("stop").disabled = true;
  $("send").disabled = false;
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value;
  if (running || !text.trim() || !$("model").value) return;
  if ($("mode").value === "chat") $("text").value = "";
  talk(text);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.abort();
});
$("stop").addEventListener("click", () => running && running.abort());
$("clear").addEventListener("click", () => {
  turns = [];
  $("log").replaceChildren();
  say("spent", "");
  $("text").focus();
});
$("model").addEventListener("change", () => {
  turns = [];
  suggestMode();
});
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  known = "";
});
poll();
