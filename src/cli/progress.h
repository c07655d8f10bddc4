/* SPDX-License-Identifier: Apache-2.0
 * progress.h - one line on standard error while long work runs: only on a terminal, gone at the end.
 * Owner:   the caller's struct. Threads: one at a time.
 * Way in:  proa_progress_init, proa_progress_show as often as it likes, proa_progress_clear. */
#ifndef PROA_CLI_PROGRESS_H
#define PROA_CLI_PROGRESS_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_progress {
    bool on;    /* standard error is a terminal */
    bool drawn; /* there is a line to clear */
    int64_t start_ns, next_ns;
} proa_progress;

/* Nothing is drawn in the first moments, so that short work shows no bar. */
void proa_progress_init(proa_progress *p);
/* Whether it is time to draw, so that a caller need not format a text that is not shown. */
bool proa_progress_due(const proa_progress *p);
/* part in [0,1], or below 0 if the end is unknown: then there is no bar and no time left. text: what and how fast. */
void proa_progress_show(proa_progress *p, double part, const char *fmt, ...) PROA_PRINTF(3, 4);
void proa_progress_clear(proa_progress *p);
double proa_progress_seconds(const proa_progress *p); /* since init */

#endif
