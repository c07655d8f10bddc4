/* SPDX-License-Identifier: Apache-2.0
 * chart.js - a line chart as SVG: series over time with axes, a legend, and the values under the pointer. */
import { el, setText, svg } from "./dom.js";

const HEIGHT = 180, LEFT = 54, RIGHT = 10, TOP = 10, BOTTOM = 24;

/* The next of 1, 2, 5 x 10^n that is not below x. */
function niceTop(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 5, 10].map((m) => m * power).find((t) => t >= x * 0.999999);
}

function pathOf(points, xOf, yOf) {
  let path = "", pen = false;
  for (const [at, value] of points) {
    if (!Number.isFinite(value)) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${xOf(at).toFixed(1)} ${yOf(value).toFixed(1)}`;
    if (!pen) path += "h0.01"; /* a point alone is a dot by its round cap */
    pen = true;
  }
  return path;
}

/* "0.00 ms" is 0, "50.0 ms" is 50 ms. */
const short = (text) => /^[0.]+( |$)/.test(text) ? "0" : text.replace(/\.0+(?=\D|$)/, "");

function axes(width, top, span, unit, yOf) {
  const nodes = [];
  for (const share of [0, 0.5, 1]) {
    const y = yOf(top * share);
    nodes.push(svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, short(unit(top * share))));
  }
  for (const share of [0, 0.5, 1]) {
    const seconds = span * (1 - share), anchor = ["start", "middle", "end"][share * 2];
    const text = share === 1 ? "now" : `−${seconds >= 120 || seconds % 60 === 0 ? seconds / 60 + " min" : seconds + " s"}`;
    nodes.push(svg("text", { x: LEFT + share * (width - LEFT - RIGHT), y: HEIGHT - 6, "text-anchor": anchor }, text));
  }
  return nodes;
}

/* {node, update}: update(series, end, span) with series [{name, points: [[ms, value], ...]}], span in seconds. A value
 * that is not finite is a gap. unit(value) is a value as text; ceiling: the axis never ends below it. */
export function chart(title, { unit, ceiling = 0 }) {
  const plot = svg("svg", { role: "img", "aria-label": title });
  const values = el("p", { class: "values" });
  const node = el("figure", { class: "chart" }, el("figcaption", {}, title), values, plot);
  let drawn = null, pointer = null, width = 0;

  const show = () => {
    if (!drawn) return;
    const { series, end, span, xOf } = drawn;
    const at = pointer === null ? null : end - span * 1000 * (1 - (pointer - LEFT) / (width - LEFT - RIGHT));
    const valueAt = (points) => at === null ? points.at(-1)?.[1]
      : points.reduce((best, p) => Math.abs(p[0] - at) < Math.abs(best[0] - at) ? p : best, [Infinity, NaN])[1];
    values.replaceChildren(...series.map((s, i) =>
      el("span", { class: "series-" + (i + 1) }, el("i"), `${s.name} `, el("b", {}, unit(valueAt(s.points) ?? NaN)))));
    plot.querySelector(".cursor")?.remove();
    if (at !== null) plot.append(svg("line", { class: "cursor", x1: xOf(at), x2: xOf(at), y1: TOP, y2: HEIGHT - BOTTOM }));
  };
  const update = (series, end, span) => {
    width = plot.clientWidth || 400; /* a unit is a pixel, so that texts have their size on a phone too */
    plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const high = Math.max(ceiling, ...series.flatMap((s) => s.points.map((p) => p[1]).filter(Number.isFinite)));
    const top = ceiling && high <= ceiling ? ceiling : niceTop(high);
    const xOf = (at) => LEFT + (1 - (end - at) / (span * 1000)) * (width - LEFT - RIGHT);
    const yOf = (value) => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    plot.replaceChildren(...axes(width, top, span, unit, yOf), ...series.map((s, i) =>
      svg("path", { class: "line series-" + (i + 1), d: pathOf(s.points, xOf, yOf) })));
    plot.setAttribute("aria-label", `${title}: ` + series.map((s) => `${s.name} ${unit(s.points.at(-1)?.[1] ?? NaN)}`).join(", "));
    drawn = { series, end, span, xOf };
    show();
  };
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    pointer = x >= LEFT && x <= width - RIGHT ? x : null;
    show();
  });
  plot.addEventListener("pointerleave", () => {
    pointer = null;
    show();
  });
  return { node, update };
}
