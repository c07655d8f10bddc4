/* SPDX-License-Identifier: Apache-2.0
 * admission.h - which requests run, the slots and pages that they hold, and preemption. Private to src/engine.
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
/* After the last row of a prompt was submitted: the other sequences go on from the same pages. */
void proa_admission_fork(proa_engine *e, proa_engine_request *req);
/* The sequence runs no further: its pages are returned. */
void proa_admission_end_seq(proa_engine *e, proa_seq *seq);
/* Emits DONE. The request is in no list any more; it may have been running or waiting. error: why it failed, or
 * NULL. */
void proa_admission_finish(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error);
/* Pages for tokens [from, to) of a table. Cannot fail: they were promised. */
void proa_admission_take_pages(proa_engine *e, proa_page_table *table, int64_t from, int64_t to);
/* Pages that may be promised or taken beside those that are promised or held already. */
int64_t proa_admission_pages_available(const proa_engine *e);

#endif
