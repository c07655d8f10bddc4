/* SPDX-License-Identifier: Apache-2.0
 * main.js - the console at /: views, settings, the state of the server. */
import { secrets } from "./api.js";
import { forgetAll, startChat } from "./chat.js";
import { $, confirmDialog, el, setText } from "./dom.js";
import { onFigures, onState, poll } from "./figures.js";
import { showLive, startLive } from "./live.js";
import { showModels, startModels } from "./models.js";
import { showRequests, startRequests } from "./requests.js";
import { exportAll } from "./store.js";

/* ---- views ---- */

const views = { chat: () => {}, models: showModels, live: showLive, requests: showRequests };
const titles = { chat: "Chat", models: "Models", live: "Live", requests: "Requests" };

function showView() {
  const chosen = location.hash.slice(1) in views ? location.hash.slice(1) : "chat";
  for (const name of Object.keys(views)) $("view-" + name).hidden = name !== chosen;
  for (const link of $("views").children) {
    if (link.hash === "#" + chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${titles[chosen]} – Proa console`;
  document.body.dataset.view = chosen;
  views[chosen]();
}

/* ---- settings ---- */

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  $("theme").value = theme;
}

function startTheme() {
  const kept = localStorage.getItem("proa.theme");
  setTheme(["light", "dark"].includes(kept) ? kept : "");
  $("theme").addEventListener("change", () => {
    localStorage.setItem("proa.theme", $("theme").value);
    setTheme($("theme").value);
  });
}

function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function startSettings() {
  $("open-settings").addEventListener("click", () => {
    $("settings-key").value = secrets.key;
    $("settings-header").value = secrets.header;
    $("settings").showModal();
  });
  $("settings").addEventListener("close", () => {
    secrets.key = $("settings-key").value.trim();
    secrets.header = $("settings-header").value.trim();
    poll();
  });
  $("export").addEventListener("click", () => download("proa-conversations.json", exportAll()));
  $("forget").addEventListener("click", async () => {
    if (await confirmDialog("Delete all conversations of this browser?", "Delete all")) forgetAll();
  });
  $("key-banner").addEventListener("submit", (event) => {
    event.preventDefault();
    secrets.key = $("key").value.trim();
    $("key").value = "";
    poll();
  });
}

/* ---- the state of the server ---- */

function startState() {
  onState((kind, text) => {
    setText($("state"), text);
    $("state").dataset.kind = kind;
    $("key-banner").hidden = kind !== "key";
  });
  onFigures((figures) => setText($("version"), `Proa ${figures.version}`));
}

startTheme();
startSettings();
startState();
startChat();
startModels();
startLive();
startRequests();
addEventListener("hashchange", () => {
  showView();
  $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
showView();
poll();
