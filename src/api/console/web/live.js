/* SPDX-License-Identifier: Apache-2.0
 * live.js - the view Live: tiles and charts of the last minutes. */
import { Chart } from "./chart.js";
import { $, duration, el, number, percent, setOptions, setText } from "./dom.js";
import { onFigures, samples } from "./figures.js";

/* ---- what is shown of a sample ---- */

const sum = (list, name) => list.reduce((total, m) => total + m[name], 0);

/* The value of rank `share` of a list; NaN: it is empty. */
function quantile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : NaN;
}

const all = (list, name) => list.flatMap((m) => m[name]);
const ratio = (list, above, below) => sum(list, below) ? sum(list, above) / sum(list, below) : NaN;

/* A series is a function of the samples of the chosen models at one moment. */
const CHARTS = [
  { title: "Throughput, tokens/s", unit: number, series: {
    generated: (m) => sum(m, "new_tokens"), prompt: (m) => sum(m, "prompt_tokens") } },
  { title: "Time to first token", unit: duration, series: {
    median: (m) => quantile(all(m, "first"), 0.5), "95 %": (m) => quantile(all(m, "first"), 0.95) } },
  { title: "Time between tokens", unit: duration, series: {
    median: (m) => quantile(all(m, "between"), 0.5), "95 %": (m) => quantile(all(m, "between"), 0.95) } },
  { title: "Requests", unit: number, series: {
    running: (m) => sum(m, "running"), waiting: (m) => sum(m, "waiting") } },
  { title: "KV pages", unit: percent, ceiling: 1, series: {
    used: (m) => ratio(m, "pages_used", "pages_total"), cached: (m) => ratio(m, "pages_cached", "pages_total") } },
  { title: "Prefix cache, tokens found", unit: percent, ceiling: 1, series: {
    hits: (m) => ratio(m, "prefix_hits", "prefix_queries") } },
];

const charts = CHARTS.map((c) => new Chart(c.title, c));
let paused = false;

const chosen = (sample) => Object.entries(sample.models)
  .filter(([name]) => !$("live-model").value || name === $("live-model").value).map(([, m]) => m);

/* ---- tiles: the last ten seconds ---- */

/* Of the machine: none without GPUs. The mean of several. */
function gpuTiles(recent) {
  const gpus = recent.at(-1)?.gpus ?? [], busy = recent.flatMap((s) => s.gpus).filter((g) => g.utilization !== null);
  return gpus.length ? [["GPU", percent(sum(busy, "utilization") / busy.length)],
    ["GPU memory", percent(ratio(gpus, "memory_used", "memory_total"))]] : [];
}

function tiles(recent) {
  const over = (name) => recent.length ? recent.reduce((t, s) => t + sum(chosen(s), name), 0) / recent.length : 0;
  const lists = (name) => recent.flatMap((s) => all(chosen(s), name)), now = recent.length ? chosen(recent.at(-1)) : [];
  return [["Requests/s", number(over("requests"))], ["Tokens/s", number(over("new_tokens"))],
    ["First token", duration(quantile(lists("first"), 0.5))], ["Between tokens", duration(quantile(lists("between"), 0.5))],
    ["Running", number(sum(now, "running"))], ["Waiting", number(sum(now, "waiting"))],
    ["KV pages", percent(ratio(now, "pages_used", "pages_total"))],
    ["Cache hits", percent(over("prefix_hits") / over("prefix_queries"))], ...gpuTiles(recent)];
}

function drawTiles(list) {
  const node = $("tiles");
  if (node.children.length !== list.length)
    node.replaceChildren(...list.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))));
  list.forEach(([, value], i) => setText(node.children[i].lastElementChild, value));
}

/* ---- the table ---- */

function tableRow(title, name, points, unit) {
  const values = points.map((p) => p[1]).filter(Number.isFinite);
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  return el("tr", {}, el("th", { scope: "row" }, `${title}: ${name}`),
    ...[points.at(-1)?.[1] ?? NaN, values.length ? mean : NaN, values.length ? Math.max(...values) : NaN]
      .map((v) => el("td", { class: "n" }, unit(v))));
}

function drawTable(drawn) {
  if (!$("live-table").open) return;
  $("live-table").querySelector("tbody").replaceChildren(...drawn.flatMap(({ spec, series }) =>
    series.map((s) => tableRow(spec.title, s.name, s.points, spec.unit))));
}

/* ---- drawing ---- */

function draw() {
  if (paused || $("view-live").hidden) return;
  const span = Number($("live-span").value), end = Date.now();
  const shown = samples.filter((s) => s.at >= end - span * 1000);
  setOptions($("live-model"), ["", ...new Set(samples.flatMap((s) => Object.keys(s.models)))], (n) => n || "all");
  const drawn = CHARTS.map((spec, i) => {
    const series = Object.entries(spec.series).map(([name, value]) =>
      ({ name, points: shown.map((s) => [s.at, value(chosen(s))]) }));
    charts[i].update(series, end, span);
    return { spec, series };
  });
  drawTiles(tiles(samples.filter((s) => s.at >= end - 10000)));
  drawTable(drawn);
}

export function showLive() {
  draw();
}

export function startLive() {
  $("charts").replaceChildren(...charts.map((c) => c.node));
  $("live-pause").addEventListener("click", () => {
    paused = !paused;
    $("live-pause").setAttribute("aria-pressed", paused);
    draw();
  });
  for (const id of ["live-model", "live-span", "live-table"])
    $(id).addEventListener(id === "live-table" ? "toggle" : "change", draw);
  onFigures(draw);
}
