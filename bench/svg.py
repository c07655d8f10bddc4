# SPDX-License-Identifier: Apache-2.0
"""A line plot as SVG, in the form of src/cli/bench/plot.c: reads on light and on dark ground, logarithmic or linear
axes."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 440, 78, 24, 64, 104
COLOURS = ["#2f81d6", "#d9732b", "#3a9e6b", "#b06ad4", "#c95f7b", "#8a8f45"]
STYLE = """<style>
svg { font-family: system-ui, 'DejaVu Sans', sans-serif }
.ground { fill: #ffffff }
text { fill: #24292f }
.title { font-size: 17px; font-weight: 600 }
.sub, .label { font-size: 13px }
.tick { font-size: 12px }
.sub, .tick { fill: #57606a }
.grid { stroke: #57606a; stroke-opacity: 0.18 }
.axis { stroke: #57606a; fill: none }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 }
text { fill: #e6edf3 }
.sub, .tick { fill: #9da7b3 }
.grid { stroke: #9da7b3 }
.axis { stroke: #9da7b3 }
}
</style>"""


def short(value):
    """1000 as 1k, 1048576 as 1Mi where it is a power of two."""
    for power, name in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{int(value) >> power}{name}"
    for size, name in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


class Axis:
    def __init__(self, values, begin, end, log):
        self.begin, self.end, self.log = begin, end, log
        if log:
            self.low, self.high = min(values) / 1.15, max(values) * 1.15
        else:
            self.low, self.high = 0, max(values) * 1.08

    def place(self, value):
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self):
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if self.high / self.low > 1e3 else (1, 2, 5)
            return [t for d in decades for s in steps if self.low <= (t := s * 10.0**d) <= self.high]
        rough = self.high / 6
        step = next(s * 10 ** math.floor(math.log10(rough)) for s in (1, 2, 5, 10) if s * 10 ** math.floor(math.log10(rough)) >= rough)
        return [i * step for i in range(int(self.high / step) + 1)]


def text(x, y, kind, anchor, words):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def plot(title, subtitle, x_label, y_label, lines, x_log=True, y_log=False):
    """lines: {name: [(x, y), ...]}. Ticks of x stand at the points of the first line. Returns the SVG."""
    first = next(iter(lines.values()))
    x = Axis([p[0] for line in lines.values() for p in line], LEFT, WIDTH - RIGHT, x_log)
    y = Axis([p[1] for line in lines.values() for p in line], HEIGHT - BOTTOM, TOP, y_log)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
           STYLE, f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" class="ground"/>',
           text(LEFT, 28, "title", "start", title), text(LEFT, 48, "sub", "start", subtitle)]
    for value, _ in first:
        at = x.place(value)
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" class="grid"/>')
        out.append(text(at, HEIGHT - BOTTOM + 18, "tick", "middle", short(value)))
    for value in y.ticks():
        at = y.place(value)
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" class="grid"/>')
        out.append(text(LEFT - 8, at + 4, "tick", "end", short(value)))
    out.append(f'<path d="M{LEFT} {TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" class="axis"/>')
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40, "label", "middle", x_label))
    out.append(f'<g transform="translate(20 {(TOP + HEIGHT - BOTTOM) // 2}) rotate(-90)">' + text(0, 0, "label", "middle", y_label) + "</g>")
    at = LEFT
    for (name, points), colour in zip(lines.items(), COLOURS):
        path = " L".join(f"{x.place(a):.1f} {y.place(b):.1f}" for a, b in points)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x.place(a):.1f}" cy="{y.place(b):.1f}" r="4" fill="{colour}"/>' for a, b in points]
        out.append(f'<line x1="{at:.1f}" y1="{HEIGHT - 26}" x2="{at + 26:.1f}" y2="{HEIGHT - 26}" stroke="{colour}" stroke-width="2"/>')
        out.append(text(at + 32, HEIGHT - 22, "tick", "start", name))
        at += 54 + 6.6 * len(name)
    return "\n".join(out) + "\n</svg>\n"
