/* SPDX-License-Identifier: Apache-2.0
 * chart.js - a line chart as SVG: series over time with axes, a legend, and the values under the pointer. */
import { el, svg } from "./dom.js";

const HEIGHT = 180, LEFT = 54, RIGHT = 10, TOP = 10, BOTTOM = 24;

/* The next of these numbers x 10^n that is not below x. */
function niceTop(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((t) => t >= x * 0.999999);
}

/* A point between two gaps is a dot. */
function pathOf(points, xOf, yOf) {
  const finite = (i) => i >= 0 && i < points.length && Number.isFinite(points[i][1]);
  return points.map(([at, value], i) => {
    if (!finite(i)) return "";
    const to = `${xOf(at).toFixed(1)} ${yOf(value).toFixed(1)}`;
    return finite(i - 1) ? "L" + to : "M" + to + (finite(i + 1) ? "" : "m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0");
  }).join("");
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

const last = (points) => points.at(-1)?.[1] ?? NaN;
const nearest = (points, at) =>
  points.reduce((best, p) => Math.abs(p[0] - at) < Math.abs(best[0] - at) ? p : best, [Infinity, NaN])[1];

/* A chart is an element, `node`. unit(value) is a value as text; the axis never ends below `ceiling`. */
export class Chart {
  #title; #unit; #ceiling; #plot; #values;
  #drawn = null;   /* {series, end, span, width, xOf} of the last update */
  #pointer = null; /* where the pointer is, in pixels of the plot */

  constructor(title, { unit, ceiling = 0 }) {
    this.#title = title;
    this.#unit = unit;
    this.#ceiling = ceiling;
    this.#plot = svg("svg", { role: "img", "aria-label": title });
    this.#values = el("p", { class: "values" });
    this.node = el("figure", { class: "chart" }, el("figcaption", {}, title), this.#values, this.#plot);
    this.#plot.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.#plot.addEventListener("pointerleave", () => this.#point(null));
  }

  /* series: [{name, points: [[ms, value], ...]}], at most two; a value that is not finite is a gap. The axis ends at
   * `end` and is `span` seconds long. */
  update(series, end, span) {
    const width = this.#plot.clientWidth || 400; /* a unit is a pixel: texts have their size on a phone too */
    const high = Math.max(this.#ceiling, ...series.flatMap((s) => s.points.map((p) => p[1]).filter(Number.isFinite)));
    const top = this.#ceiling && high <= this.#ceiling ? this.#ceiling : niceTop(high);
    const xOf = (at) => LEFT + (1 - (end - at) / (span * 1000)) * (width - LEFT - RIGHT);
    const yOf = (value) => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    const lines = series.map((s, i) => svg("path", { class: "line series-" + (i + 1), d: pathOf(s.points, xOf, yOf) }));
    const label = series.map((s) => `${s.name} ${this.#unit(last(s.points))}`).join(", ");
    this.#plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.#plot.setAttribute("aria-label", `${this.#title}: ${label}`);
    this.#plot.replaceChildren(...axes(width, top, span, this.#unit, yOf), ...lines);
    this.#drawn = { series, end, span, width, xOf };
    this.#showValues();
  }

  #point(x) {
    const width = this.#drawn?.width || 0;
    this.#pointer = x !== null && x >= LEFT && x <= width - RIGHT ? x : null;
    if (this.#drawn) this.#showValues();
  }

  /* The values under the pointer, or the last ones. */
  #showValues() {
    const { series, end, span, width, xOf } = this.#drawn;
    const at = this.#pointer === null ? null : end - span * 1000 * (1 - (this.#pointer - LEFT) / (width - LEFT - RIGHT));
    this.#values.replaceChildren(...series.map((s, i) => el("span", { class: "series-" + (i + 1) }, el("i"), `${s.name} `,
      el("b", {}, this.#unit(at === null ? last(s.points) : nearest(s.points, at))))));
    this.#plot.querySelector(".cursor")?.remove();
    if (at !== null) this.#plot.append(svg("line", { class: "cursor", x1: xOf(at), x2: xOf(at), y1: TOP, y2: HEIGHT - BOTTOM }));
  }
}
