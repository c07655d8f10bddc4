/* SPDX-License-Identifier: Apache-2.0
 * plot.h - a line plot as SVG that reads on light and on dark ground: axes with ticks, linear or logarithmic, a legend,
 * dashed lines for ceilings, one marked point with a label.
 * Owner:   points and texts belong to the caller until proa_plot_write returns.
 * Way in:  fill a proa_plot, proa_plot_write. */
#ifndef PROA_CLI_BENCH_PLOT_H
#define PROA_CLI_BENCH_PLOT_H

#include "cli/output.h"

enum { PROA_PLOT_POINTS_MAX = 64, PROA_PLOT_LINES_MAX = 6 };

typedef struct proa_plot_line {
    const char *name; /* in the legend */
    bool ceiling;     /* dashed, without dots */
    int count;
    double x[PROA_PLOT_POINTS_MAX], y[PROA_PLOT_POINTS_MAX];
} proa_plot_line;

typedef struct proa_plot {
    const char *title, *subtitle, *x_label, *y_label;
    bool log_x, log_y;    /* base 2 and base 10 ticks; values must be above 0 */
    bool ticks_at_points; /* x ticks stand at the first line's points, not at round numbers */
    proa_plot_line line[PROA_PLOT_LINES_MAX];
    int lines;
    const char *mark; /* a label at point (mark_x, mark_y); NULL: none */
    double mark_x, mark_y;
} proa_plot;

/* Lines without points are omitted; a plot without any line is only the frame. */
void proa_plot_write(const proa_plot *plot, proa_output *out);

#endif
