/* SPDX-License-Identifier: Apache-2.0
 * plot.c - writes a line plot as SVG. */
#include "cli/bench/plot.h"

#include <math.h>
#include <string.h>

/* The layout, in pixels. */
enum { WIDTH = 720, HEIGHT = 440, LEFT = 78, RIGHT = 24, TOP = 64, BOTTOM = 104, TICKS_MAX = 64 };

/* Colours with a contrast of 3:1 against white and against near-black, distinguishable for most
 * colour-blind readers. */
static const char *const colours[PROA_PLOT_LINES_MAX] = {"#2f81d6", "#d9732b", "#3a9e6b",
                                                         "#b06ad4", "#c95f7b", "#8a8f45"};

/* An axis: values [low, high] to pixels [from, to]. */
typedef struct axis {
    double low, high, from, to;
    bool log;
} axis;

static double place_value(const axis *a, double v)
{
    double low = a->low, high = a->high;
    if (a->log) v = log(v), low = log(low), high = log(high);
    return a->from + (v - low) / (high - low) * (a->to - a->from);
}

static bool is_drawable(const proa_plot *p, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!p->log_x || x > 0) && (!p->log_y || y > 0);
}

static void span_value(axis *a, double v, bool first)
{
    if (first || v < a->low) a->low = v;
    if (first || v > a->high) a->high = v;
}

/* Adds a margin around the values and avoids an empty range. Linear axes of amounts start at zero. */
static void widen_axis(axis *a, double margin)
{
    if (a->log) {
        a->low /= margin;
        a->high *= margin;
        return;
    }
    if (a->low > 0) a->low = 0;
    a->high += (a->high - a->low) * 0.08;
    if (a->high <= a->low) a->high = a->low + 1;
}

/* The nearest of 1, 2, 5 times a power of ten that is not above (or not below) v > 0. */
static double round_number(double v, bool up)
{
    double decade = pow(10, floor(log10(v))), lead = v / decade;
    if (up) return decade * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    return decade * (lead >= 5 ? 5 : lead >= 2 ? 2 : 1);
}

static void find_axes(const proa_plot *p, axis *x, axis *y)
{
    bool first = true;
    *x = (axis){.low = 1, .high = 2, .from = LEFT, .to = WIDTH - RIGHT, .log = p->log_x};
    *y = (axis){.low = 1, .high = 2, .from = HEIGHT - BOTTOM, .to = TOP, .log = p->log_y};
    for (int l = 0; l < p->lines; l++)
        for (int i = 0; i < p->line[l].count; i++) {
            if (!is_drawable(p, p->line[l].x[i], p->line[l].y[i])) continue;
            span_value(x, p->line[l].x[i], first);
            span_value(y, p->line[l].y[i], first);
            first = false;
        }
    widen_axis(x, 1.15);
    widen_axis(y, 1.05);
    if (y->log) { /* the ends are ticks, so that a narrow range has at least two */
        y->low = round_number(y->low, false);
        y->high = round_number(y->high, true);
    }
}

static void put_escaped(proa_output *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '<') proa_output_str(out, "&lt;");
        else if (*c == '>') proa_output_str(out, "&gt;");
        else if (*c == '&') proa_output_str(out, "&amp;");
        else proa_output_bytes(out, c, 1);
    }
}

static void text_at(proa_output *out, double x, double y, const char *class, const char *anchor, const char *text)
{
    proa_output_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
    put_escaped(out, text);
    proa_output_str(out, "</text>\n");
}

static void print_number(char text[24], double v)
{
    double size = fabs(v);
    if (size >= 1e6) snprintf(text, 24, "%gM", v / 1e6);
    else if (size >= 1e4) snprintf(text, 24, "%gk", v / 1e3);
    else snprintf(text, 24, "%g", v);
}

/* Round numbers from low to high: 1, 2, 5 of each decade on a logarithmic axis, about six steps on a linear one. */
static int round_ticks(const axis *a, double ticks[TICKS_MAX])
{
    static const double steps[] = {1, 2, 5};
    int n = 0;
    if (a->log) {
        bool only_decades = a->high / a->low > 1e4;
        for (double decade = pow(10, floor(log10(a->low))); decade <= a->high * 1.001; decade *= 10)
            for (int s = 0; s < (only_decades ? 1 : 3) && n < TICKS_MAX; s++)
                if (decade * steps[s] >= a->low * 0.999 && decade * steps[s] <= a->high * 1.001)
                    ticks[n++] = decade * steps[s];
        return n;
    }
    double rough = (a->high - a->low) / 6, decade = pow(10, floor(log10(rough))), step = decade * 10;
    for (int s = 2; s >= 0; s--)
        if (decade * steps[s] >= rough) step = decade * steps[s];
    for (double v = ceil(a->low / step) * step; v <= a->high && n < TICKS_MAX; v += step) ticks[n++] = v;
    return n;
}

static int point_ticks(const proa_plot *p, double ticks[TICKS_MAX])
{
    int n = 0;
    for (int i = 0; p->lines && i < p->line[0].count && n < TICKS_MAX; i++) ticks[n++] = p->line[0].x[i];
    return n;
}

static void draw_axes(const proa_plot *p, const axis *x, const axis *y, proa_output *out)
{
    double ticks[TICKS_MAX];
    char text[24];
    int n = p->ticks_at_points ? point_ticks(p, ticks) : round_ticks(x, ticks);
    for (int i = 0; i < n; i++) {
        double at = place_value(x, ticks[i]);
        proa_output_printf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" class=\"grid\"/>\n", at,
                           TOP, at, HEIGHT - BOTTOM);
        print_number(text, ticks[i]);
        text_at(out, at, HEIGHT - BOTTOM + 18, "tick", "middle", text);
    }
    n = round_ticks(y, ticks);
    for (int i = 0; i < n; i++) {
        double at = place_value(y, ticks[i]);
        proa_output_printf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"grid\"/>\n", LEFT,
                           at, WIDTH - RIGHT, at);
        print_number(text, ticks[i]);
        text_at(out, LEFT - 8, at + 4, "tick", "end", text);
    }
    proa_output_printf(out, "<path d=\"M%d %d V%d H%d\" class=\"axis\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
                       WIDTH - RIGHT);
    text_at(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 40, "label", "middle", p->x_label);
    proa_output_printf(out, "<g transform=\"translate(20 %d) rotate(-90)\">", (TOP + HEIGHT - BOTTOM) / 2);
    text_at(out, 0, 0, "label", "middle", p->y_label);
    proa_output_str(out, "</g>\n");
}

static void draw_line(const proa_plot *p, const proa_plot_line *l, const axis *x, const axis *y,
                      const char *colour, proa_output *out)
{
    bool pen = false;
    proa_output_str(out, "<path d=\"");
    for (int i = 0; i < l->count; i++) {
        bool ok = is_drawable(p, l->x[i], l->y[i]);
        if (ok)
            proa_output_printf(out, "%s%.1f %.1f", pen ? " L" : "M", place_value(x, l->x[i]),
                               place_value(y, l->y[i]));
        pen = ok || pen;
    }
    proa_output_printf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", colour,
                       l->ceiling ? " stroke-dasharray=\"7 5\"" : "");
    for (int i = 0; i < l->count && !l->ceiling; i++)
        if (is_drawable(p, l->x[i], l->y[i]))
            proa_output_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                               place_value(x, l->x[i]), place_value(y, l->y[i]), colour);
}

/* Draws the names side by side below the x label; widths are estimated for a sans-serif font. */
static void draw_legend(const proa_plot *p, proa_output *out)
{
    double at = LEFT;
    for (int l = 0; l < p->lines; l++) {
        if (p->line[l].count == 0) continue;
        double y = HEIGHT - 26;
        proa_output_printf(
            out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
            at, y, at + 26, y, colours[l], p->line[l].ceiling ? " stroke-dasharray=\"7 5\"" : "");
        text_at(out, at + 32, y + 4, "tick", "start", p->line[l].name);
        at += 54 + 6.6 * (double)strlen(p->line[l].name);
    }
}

/* Puts the label on the side with more room, away from the line. */
static void draw_mark(const proa_plot *p, const axis *x, const axis *y, proa_output *out)
{
    if (!p->mark || !is_drawable(p, p->mark_x, p->mark_y)) return;
    double px = place_value(x, p->mark_x), py = place_value(y, p->mark_y);
    bool left = px > (LEFT + WIDTH - RIGHT) / 2.0;
    proa_output_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"9\" class=\"mark\"/>\n", px, py);
    double ty = py + 46 < HEIGHT - BOTTOM ? py + 38 : py - 30;
    proa_output_printf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"axis\"/>\n", px,
                       py + (ty > py ? 10 : -10), px, ty + (ty > py ? -12 : 5));
    text_at(out, px + (left ? 4 : -4), ty, "label", left ? "end" : "start", p->mark);
}

void proa_plot_write(const proa_plot *p, proa_output *out)
{
    axis x, y;
    find_axes(p, &x, &y);
    proa_output_printf(out,
                       "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                       "width=\"%d\" height=\"%d\" role=\"img\">\n",
                       WIDTH, HEIGHT, WIDTH, HEIGHT);
    /* a background of its own, dark in dark mode, so that colours do not depend on the page */
    proa_output_str(
        out,
        "<style>\nsvg { font-family: system-ui, 'DejaVu Sans', sans-serif }\n"
        ".ground { fill: #ffffff }\ntext { fill: #24292f }\n.title { font-size: 17px; font-weight: 600 }\n"
        ".sub, .label { font-size: 13px }\n.tick { font-size: 12px }\n.sub, .tick { fill: #57606a }\n"
        ".grid { stroke: #57606a; stroke-opacity: 0.18 }\n.axis { stroke: #57606a; fill: none }\n"
        ".mark { stroke: #24292f; stroke-width: 1.5; fill: none }\n"
        "@media (prefers-color-scheme: dark) {\n.ground { fill: #0d1117 }\ntext { fill: #e6edf3 }\n"
        ".sub, .tick { fill: #9da7b3 }\n.grid { stroke: #9da7b3 }\n.axis { stroke: #9da7b3 }\n"
        ".mark { stroke: #e6edf3 }\n}\n</style>\n");
    proa_output_printf(out, "<rect width=\"%d\" height=\"%d\" rx=\"6\" class=\"ground\"/>\n", WIDTH, HEIGHT);
    text_at(out, LEFT, 28, "title", "start", p->title);
    text_at(out, LEFT, 48, "sub", "start", p->subtitle);
    draw_axes(p, &x, &y, out);
    for (int l = 0; l < p->lines; l++)
        if (p->line[l].count) draw_line(p, &p->line[l], &x, &y, colours[l], out);
    draw_mark(p, &x, &y, out);
    draw_legend(p, out);
    proa_output_str(out, "</svg>\n");
}
