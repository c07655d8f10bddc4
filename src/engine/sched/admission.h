/* SPDX-License-Identifier: Apache-2.0
 * admission.h - which requests run: their slots, the pages that they are promised, and preemption. Private to
 * src/engine.
 * Owner:   the engine. Threads: the stepping thread.
 * Way in:  README.md has the policies. */
#ifndef PROA_ENGINE_SCHED_ADMISSION_H
#define PROA_ENGINE_SCHED_ADMISSION_H

#include "engine/sched/sequence.h"

/* A slot is one row of each of the three tables; a request holds `width` neighbouring slots. */
typedef struct proa_slots {
    int32_t *memory;                       /* [PROA_TABLES][sequences_max][cap] entries of all page tables */
    int64_t cap;                           /* pages of one table */
    proa_page_table *self, *spare, *cross; /* [sequences_max]: own pages; next step's, for beams; encoder's */
    bool *used;                            /* [sequences_max] */
    int32_t first_free;                    /* every slot below it is used */
} proa_slots;

/* Admits waiting requests, as long as there are slots and pages. */
void proa_admission_step(proa_engine *e);
/* Before a pass: each running request is promised pages for its known tokens. Requests are preempted if there are too
 * few. */
void proa_admission_reserve(proa_engine *e);

#endif
