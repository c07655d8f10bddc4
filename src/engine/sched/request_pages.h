/* SPDX-License-Identifier: Apache-2.0
 * request_pages.h - the pages that running requests hold, and how many may be promised to others. Private to
 * src/engine.
 * Owner:   the engine. Threads: the stepping thread.
 * Way in:  README.md says what a promise is; admission.c makes them. */
#ifndef PROA_ENGINE_SCHED_REQUEST_PAGES_H
#define PROA_ENGINE_SCHED_REQUEST_PAGES_H

#include "engine/sched/sequence.h"

/* Pages that a request holds, or will own when its sequences go on: full pages of the prompt, which its sequences
 * share, count once. */
int64_t proa_request_pages_held(const proa_engine *e, const proa_engine_request *req);
/* Pages that may be promised or taken beside those that are promised or held already. */
int64_t proa_request_pages_available(const proa_engine *e);
/* Pages for tokens [from, to) of a table. Cannot fail: they were promised. */
void proa_request_pages_take(proa_engine *e, proa_page_table *table, int64_t from, int64_t to);
/* After the last row of a prompt was submitted: the other sequences go on from the same pages. */
void proa_request_pages_fork(proa_engine *e, proa_engine_request *req);
/* The sequence runs no further: its pages are returned. */
void proa_request_pages_release(proa_engine *e, proa_seq *seq);

#endif
