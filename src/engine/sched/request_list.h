/* SPDX-License-Identifier: Apache-2.0
 * request_list.h - lists of requests, linked by proa_engine_request.next. Private to src/engine.
 * Owner:   the engine owns the requests. A request is in one list at most.
 * Threads: those of the list: the inbox and the held ones under shared.lock, all others the stepping thread. */
#ifndef PROA_ENGINE_SCHED_REQUEST_LIST_H
#define PROA_ENGINE_SCHED_REQUEST_LIST_H

#include "engine/speculate/proposer.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_request_list {
    proa_engine_request *first, **last; /* last: where the next one is linked */
    int32_t count;
} proa_request_list;

void proa_request_list_init(proa_request_list *list);
void proa_request_list_push(proa_request_list *list, proa_engine_request *req);
void proa_request_list_push_first(proa_request_list *list, proa_engine_request *req);
proa_engine_request *proa_request_list_pop(proa_request_list *list); /* the first; NULL: the list is empty */
/* Moves requests for which moves() is true to the end of another list, in order; returns how many. */
int32_t proa_request_list_split(proa_request_list *list, proa_request_list *to,
                                bool (*moves)(void *arg, proa_engine_request *req), void *arg);

#endif
