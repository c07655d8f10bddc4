/* SPDX-License-Identifier: Apache-2.0
 * trace.c - sums the time of each kind of step and prints a table when the model is closed. */
#include "model/trace.h"

#include "base/alloc.h"
#include <stdio.h>
#include <stdlib.h>

/* The kind of a step is its opcode and its weight slot: "linear up" and "linear down" are two kinds. */
struct proa_step_trace {
    struct {
        int64_t count, ns;
    } row[PROA_STEP_COUNT][PROA_SLOT_COUNT];
};

proa_step_trace *proa_step_trace_open(void)
{
    return getenv("PROA_TRACE") ? proa_calloc(1, sizeof(proa_step_trace)) : NULL;
}

void proa_step_trace_add(proa_step_trace *t, const proa_step *step, int64_t ns)
{
    t->row[step->op][step->w].count++;
    t->row[step->op][step->w].ns += ns;
}

void proa_step_trace_close(proa_step_trace *t)
{
    if (!t) return;
    fprintf(stderr, "%-28s %10s %12s %10s\n", "step", "count", "ms in all", "us each");
    for (int op = 0; op < PROA_STEP_COUNT; op++)
        for (int slot = 0; slot < PROA_SLOT_COUNT; slot++) {
            int64_t count = t->row[op][slot].count;
            double us = (double)t->row[op][slot].ns * 1e-3;
            char name[64];
            if (!count) continue;
            snprintf(name, sizeof name, "%s %s", proa_step_name((proa_step_op)op),
                     slot ? proa_slot_name((proa_weight_slot)slot) : "");
            fprintf(stderr, "%-28s %10lld %12.2f %10.2f\n", name, (long long)count, us * 1e-3,
                    us / (double)count);
        }
    free(t);
}
