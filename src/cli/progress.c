/* SPDX-License-Identifier: Apache-2.0
 * progress.c - draws the progress line on a terminal. */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/wrap.h"
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { QUIET_MS = 300, DRAW_MS = 100, BAR_CELLS = 24, LINE_BYTES = 512 };

void proa_progress_init(proa_progress *p)
{
    const char *term = getenv("TERM");
    int64_t now = proa_clock_ns();
    *p = (proa_progress){.on = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0,
                         .start_ns = now,
                         .next_ns = now + (int64_t)QUIET_MS * 1000000};
}

bool proa_progress_due(const proa_progress *p)
{
    return p->on && proa_clock_ns() >= p->next_ns;
}

double proa_progress_seconds(const proa_progress *p)
{
    return (double)(proa_clock_ns() - p->start_ns) * 1e-9;
}

/* "  [#####....]  42 % " with eighths of a cell, or nothing. Returns the columns that it takes. */
static int print_bar(char *out, size_t size, double part)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (part < 0) return out[0] = '\0', 0;
    if (part > 1) part = 1;
    int full = (int)(part * BAR_CELLS * 8);
    size_t n = 0;
    for (int i = 0; i < BAR_CELLS; i++) {
        int fill = full - 8 * i;
        n += (size_t)snprintf(out + n, size - n, "%s", fill >= 8 ? "█" : eighths[fill < 0 ? 0 : fill]);
    }
    snprintf(out + n, size - n, "▕%3.0f %%  ", part * 100);
    return BAR_CELLS + 8;
}

static void time_left(char *out, size_t size, double seconds, double part)
{
    out[0] = '\0';
    if (part <= 0.005 || seconds < 1) return;
    double left = seconds * (1 - part) / part;
    if (left < 99.5) snprintf(out, size, "  %.0f s left", left);
    else if (left < 5940) snprintf(out, size, "  %.0f min left", left / 60);
    else snprintf(out, size, "  %.1f h left", left / 3600);
}

void proa_progress_show(proa_progress *p, double part, const char *fmt, ...)
{
    if (!proa_progress_due(p)) return;
    p->next_ns = proa_clock_ns() + (int64_t)DRAW_MS * 1000000;
    char line[LINE_BYTES], cells[LINE_BYTES], left[32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    int columns = proa_terminal_columns(STDERR_FILENO) - 1;
    int used = print_bar(cells, sizeof cells, part);
    time_left(left, sizeof left, proa_progress_seconds(p), part);
    int room = columns - used - (int)strlen(left);
    fprintf(stderr, "\r%s%.*s%s\033[K", cells, room > 0 ? room : 0, line, left);
    fflush(stderr);
    p->drawn = true;
}

void proa_progress_clear(proa_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr), fflush(stderr);
    p->drawn = false;
}
