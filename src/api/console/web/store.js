/* SPDX-License-Identifier: Apache-2.0
 * store.js - conversations in localStorage: an index, and one entry for each conversation.
 *
 * A conversation is {id, title, model, options, turns, updated}. A turn is
 *   {role: "user", text},
 *   {role: "assistant", text, reasoning, calls: [{id, name, arguments}], model, stats, error, stopped}, or
 *   {role: "tool", id, name, text}, the result of a call. */

const INDEX = "proa.conversations", ONE = "proa.conversation.";

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise; /* another program has written there */
  }
}

/* False: the browser has no room. */
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/* [{id, title, updated}], the newest first. */
export function list() {
  const index = read(INDEX, []);
  return Array.isArray(index) ? index.filter((e) => e && typeof e.id === "string") : [];
}

export function create(model, options) {
  return { id: crypto.randomUUID?.() || String(Date.now() + Math.random()), title: "", model, options: { ...options },
    turns: [], updated: Date.now() };
}

export function load(id) {
  const one = read(ONE + id, null);
  return one && Array.isArray(one.turns) ? { options: {}, ...one } : null;
}

/* A conversation without turns is not kept. False: the browser has no room for it. */
export function save(conversation) {
  if (!conversation.turns.length) return true;
  conversation.updated = Date.now();
  const { id, title, updated } = conversation;
  const index = [{ id, title, updated }, ...list().filter((e) => e.id !== id)];
  return write(ONE + id, conversation) && write(INDEX, index);
}

export function remove(id) {
  localStorage.removeItem(ONE + id);
  write(INDEX, list().filter((e) => e.id !== id));
}

export function removeAll() {
  for (const { id } of list()) localStorage.removeItem(ONE + id);
  localStorage.removeItem(INDEX);
}

export function exportAll() {
  return JSON.stringify({ conversations: list().map((e) => load(e.id)).filter(Boolean) }, null, 1);
}

/* Calls back when another tab has changed something. */
export function onOtherTab(callback) {
  addEventListener("storage", (e) => e.key?.startsWith("proa.conversation") && callback());
}
