/* SPDX-License-Identifier: Apache-2.0
 * markdown.js - the Markdown that models write, as elements: headings, lists, tables, quotes, code, emphasis, links.
 * Safe by construction: every text becomes a text node, HTML stays text, links have http, https or mailto only, and
 * images are shown as links. Time is linear in the text but for nested quotes and lists, whose depth has a limit. */
import { copyButton, el } from "./dom.js";

const DEPTH_MAX = 8;

/* ---- inline ---- */

/* In the order of their precedence. Each has a length limit on what it may span, so that a text full of openings
 * cannot make the scan quadratic. */
const INLINE = new RegExp([
  "(?<ticks>`{1,3})(?<code>[^`](?:[^]{0,2000}?[^`])?)\\k<ticks>(?!`)",
  "!?\\[(?<label>[^\\]\\n]{1,500})\\]\\((?<href>[^\\s()<>]{1,1000}(?:\\([^\\s()<>]{0,200}\\))?)(?:\\s+\"[^\"\\n]{0,200}\")?\\)",
  "<(?<auto>https?:\\/\\/[^\\s<>]{1,1000})>",
  "(?<bare>https?:\\/\\/[^\\s<>\"'`*\\]]{1,1000}[^\\s<>\"'`*\\].,;:!?)])",
  "\\*\\*(?<strong>[^\\s*](?:[^\\n]{0,1000}?[^\\s])?)\\*\\*",
  "~~(?<strike>[^\\s~](?:[^\\n]{0,500}?[^\\s])?)~~",
  "\\*(?<em>[^\\s*](?:[^*\\n]{0,1000}?[^\\s*])?)\\*(?!\\*)",
  "(?<![\\w_])_(?<under>[^\\s_](?:[^_\\n]{0,1000}?[^\\s_])?)_(?!\\w)",
  "\\\\(?<escaped>[!-/:-@\\[-`{-~])",
  "(?<br> {2,}\\n|\\\\\\n)",
].join("|"), "u");

function link(href, ...children) {
  let safe = null;
  try {
    const url = new URL(href);
    if (["http:", "https:", "mailto:"].includes(url.protocol)) safe = url.href;
  } catch { /* a relative or broken address stays text */ }
  if (!safe) return el("span", {}, ...children, ` (${href})`);
  return el("a", { href: safe, target: "_blank", rel: "noopener noreferrer", title: safe }, ...children);
}

function inlineNode(groups, depth) {
  const { code, label, href, auto, bare, strong, strike, em, under, escaped } = groups;
  if (code !== undefined) return el("code", {}, code);
  if (label !== undefined) return link(href, ...inline(label, depth + 1));
  if (auto || bare) return link(auto || bare, auto || bare);
  if (strong !== undefined) return el("strong", {}, ...inline(strong, depth + 1));
  if (strike !== undefined) return el("del", {}, ...inline(strike, depth + 1));
  if (em !== undefined || under !== undefined) return el("em", {}, ...inline(em ?? under, depth + 1));
  return escaped !== undefined ? escaped : el("br");
}

/* Nodes and strings of a run of text. */
function inline(text, depth = 0) {
  const nodes = [];
  while (text) {
    const found = depth < DEPTH_MAX ? INLINE.exec(text) : null;
    if (!found) return [...nodes, text];
    if (found.index) nodes.push(text.slice(0, found.index));
    nodes.push(inlineNode(found.groups, depth));
    text = text.slice(found.index + found[0].length);
  }
  return nodes;
}

/* ---- blocks: each takes lines from `at` on and returns [node, next] or null ---- */

function codeBlock(lines, at) {
  const open = /^( {0,3})(`{3,}|~{3,})\s*([\w+#.-]{0,30})[^`]*$/.exec(lines[at]);
  if (!open) return null;
  const end = new RegExp(`^ {0,3}${open[2][0]}{${open[2].length},}\\s*$`);
  let next = at + 1;
  while (next < lines.length && !end.test(lines[next])) next++;
  const text = lines.slice(at + 1, next).join("\n");
  return [el("div", { class: "code-block" },
    el("div", { class: "code-head" }, el("span", {}, open[3] || "text"), copyButton("Copy the code", () => text)),
    el("pre", { tabindex: "0", role: "region", "aria-label": `Code, ${open[3] || "text"}` }, el("code", {}, text))), next + 1];
}

function heading(lines, at) {
  const found = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/.exec(lines[at]);
  if (!found) return null;
  /* The page has h1 and h2 of its own. */
  return [el("p", { class: "h" + found[1].length, role: "heading", "aria-level": Math.min(6, found[1].length + 2) },
    ...inline(found[2])), at + 1];
}

function rule(lines, at) {
  return /^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(lines[at]) ? [el("hr"), at + 1] : null;
}

function quote(lines, at, depth) {
  if (!/^ {0,3}>/.test(lines[at])) return null;
  let next = at;
  const inner = [];
  while (next < lines.length && /^ {0,3}>/.test(lines[next])) inner.push(lines[next++].replace(/^ {0,3}> ?/, ""));
  return [el("blockquote", {}, ...blocks(inner, depth + 1)), next];
}

const ITEM = /^( {0,7})([-*+]|\d{1,9}[.)])(\s+)(?=\S)/;

/* The lines of one item: its first, and those that are indented further. */
function itemLines(lines, at, found) {
  const width = found[0].length, inner = [lines[at].slice(width)];
  let next = at + 1;
  for (; next < lines.length; next++) {
    const line = lines[next], indent = /^ */.exec(line)[0].length;
    if (line.trim() && indent <= found[1].length && (ITEM.test(line) || !lines[next - 1].trim())) break;
    if (line.trim() && indent <= found[1].length && (starts(lines, next))) break;
    inner.push(line.slice(Math.min(indent, width)));
  }
  return [inner, next];
}

function list(lines, at, depth) {
  let found = ITEM.exec(lines[at]);
  if (!found) return null;
  const ordered = /\d/.test(found[2]);
  const start = ordered && parseInt(found[2], 10) !== 1 ? parseInt(found[2], 10) : null;
  const node = el(ordered ? "ol" : "ul", { start });
  while (found && /\d/.test(found[2]) === ordered) {
    const [inner, next] = itemLines(lines, at, found);
    node.append(el("li", {}, ...blocks(inner, depth + 1, true)));
    at = next;
    found = at < lines.length ? ITEM.exec(lines[at]) : null;
  }
  return [node, at];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));

function table(lines, at) {
  if (!lines[at].includes("|") || !/^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?$/.test(lines[at + 1] || "")) return null;
  const names = cells(lines[at]), body = el("tbody");
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|") && lines[next].trim()) {
    const row = cells(lines[next++]);
    body.append(el("tr", {}, ...names.map((_, i) => el("td", {}, ...inline(row[i] || "")))));
  }
  const head = el("tr", {}, ...names.map((n) => n ? el("th", { scope: "col" }, ...inline(n)) : el("td")));
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, head), body)), next];
}

const STARTS = [codeBlock, heading, rule, quote, list, table];
const starts = (lines, at) => /^ {0,3}(```|~~~|#{1,6}\s|>)/.test(lines[at]) || ITEM.test(lines[at]);

function paragraph(lines, at, tight) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && !starts(lines, next)) next++;
  const nodes = [];
  lines.slice(at, next).forEach((line, i) => {
    if (i) nodes.push(el("br")); /* models mean their line ends */
    nodes.push(...inline(line.trim()));
  });
  return [tight ? el("span", { class: "item" }, ...nodes) : el("p", {}, ...nodes), next];
}

function blocks(lines, depth = 0, tight = false) {
  const nodes = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    let taken = null;
    for (const start of depth < DEPTH_MAX ? STARTS : []) if ((taken = start(lines, at, depth))) break;
    const [node, next] = taken || paragraph(lines, at, tight && nodes.length === 0);
    nodes.push(node);
    at = next;
  }
  return nodes;
}

/* The elements of a text. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
}
