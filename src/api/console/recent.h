/* SPDX-License-Identifier: Apache-2.0
 * recent.h - the last PROA_RECENT_REQUESTS_MAX requests of inference that ended, with their times and token counts, for
 * /figures/requests. Prompts, answers and texts of errors are not kept.
 * Owner:   one ring in static memory, of the process, as the counters of sink.c.
 * Threads: any. Writers take a number with one atomic addition and then one of a few locks.
 * Way in:  sink.c calls proa_recent_add at each final reply. */
#ifndef PROA_API_CONSOLE_RECENT_H
#define PROA_API_CONSOLE_RECENT_H

#include "base/limits.h"
#include "base/str.h"
#include "serve/infer.h"

typedef struct proa_recent_request {
    uint64_t number;                                            /* from 1, in the order of their ends */
    char model[PROA_RECENT_NAME_MAX], id[PROA_RECENT_NAME_MAX]; /* UTF-8, cut at a character */
    int64_t version;
    int64_t received_ms; /* since 1970 */
    proa_status status;
    proa_infer_times times; /* as of the request */
    proa_infer_usage usage;
} proa_recent_request;

/* A request has its last reply (NULL: it ended without another). */
void proa_recent_add(const proa_infer *r, const proa_reply *reply);
/* Copies the oldest requests with a number above `since` to list[cap]; returns how many. Ends before a number that is
 * not yet written, so that `since` = the last number of the list misses none. */
int proa_recent_read(proa_recent_request *list, int cap, uint64_t since);
/* `since`, or the last number given if that is lower: the server has been started anew. */
uint64_t proa_recent_last(uint64_t since);
/* A JSON array of the same. */
void proa_recent_json(proa_buf *out, const proa_recent_request *list, int count);

#endif
