/* SPDX-License-Identifier: Apache-2.0
 * dom.js - elements from code. Texts become text nodes; nothing here reads HTML. */

export const $ = (id) => document.getElementById(id);

function setProperty(node, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "class") node.setAttribute("class", value);
  else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else node.setAttribute(name, value === true ? "" : value);
}

/* el("p", {class: "hint", onclick: f}, "text", node): null and undefined children are left out. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) setProperty(node, name, value);
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/* The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) setProperty(node, name, value);
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

/* An icon of index.html's symbols; the button around it has the label. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: "#i-" + name }));
}

export function iconButton(name, label, onclick) {
  return el("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick }, icon(name));
}

/* Sets a text only when it changes: screen readers announce a status each time it is set. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/* Copies a text. Pages without TLS have no clipboard interface (but on localhost): there a selection is copied. */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "sr-only", "aria-hidden": "true", tabindex: "-1" });
  const focused = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}

/* A button that copies textOf() and shows for a moment that it has. */
export function copyButton(label, textOf) {
  const button = iconButton("copy", label, async () => {
    await copyText(textOf());
    button.replaceChildren(icon("check"));
    button.setAttribute("aria-label", "Copied");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", label);
    }, 1500);
  });
  return button;
}

/* Options of a select, with the chosen one kept where it is still there. */
export function setOptions(select, values, labelOf = (v) => v) {
  const same = select.options.length === values.length && values.every((v, i) => select.options[i].value === v);
  if (same) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((v) => new Option(labelOf(v), v)));
  if (values.includes(chosen)) select.value = chosen;
}

/* Asks in the dialog `confirm`; true: yes. */
export function confirmDialog(text, yes) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/* ---- numbers for people ---- */

export function number(x) {
  if (!Number.isFinite(x)) return "–";
  if (x >= 1e9) return (x / 1e9).toFixed(1) + " G";
  if (x >= 1e6) return (x / 1e6).toFixed(1) + " M";
  if (x >= 1e4) return (x / 1e3).toFixed(1) + " k";
  return x >= 100 || Number.isInteger(x) ? Math.round(x).toString() : x.toFixed(1);
}

/* A duration of that many milliseconds. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms >= 60000) return (ms / 60000).toFixed(1) + " min";
  if (ms >= 1000) return (ms / 1000).toFixed(2) + " s";
  if (ms >= 100) return ms.toFixed(0) + " ms";
  return ms >= 10 ? ms.toFixed(1) + " ms" : ms.toFixed(2) + " ms";
}

export function percent(x) {
  return Number.isFinite(x) ? Math.round(100 * x) + " %" : "–";
}
