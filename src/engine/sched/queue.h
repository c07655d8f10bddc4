/* SPDX-License-Identifier: Apache-2.0
 * queue.h - requests that wait: arrival, cancellation and deadlines (queue.c), and whose turn it is (clients.c).
 * Private to src/engine.
 * Owner:   the engine. The queue of a client and a priority lives while requests hold it.
 * Threads: each struct and function names its own. */
#ifndef PROA_ENGINE_SCHED_QUEUE_H
#define PROA_ENGINE_SCHED_QUEUE_H

#include "engine/sched/request_list.h"

typedef struct proa_engine_shared proa_engine_shared;

/* Waiting requests of one client and one priority. */
typedef struct proa_client_queue {
    /* guarded by shared.lock */
    struct proa_client_queue *next_in_bucket;
    char *client;
    int32_t priority;
    int32_t users; /* requests that hold it, waiting and running */
    /* the stepping thread's */
    struct proa_client_queue *next; /* in proa_waiting.queues, if it has requests */
    proa_request_list requests;
    int64_t deficit; /* tokens that its next requests may cost, before it is the next client's turn */
} proa_client_queue;

/* All waiting requests. The stepping thread's. */
typedef struct proa_waiting {
    proa_client_queue *queues; /* with requests: by falling priority, those of one priority in the order of turns */
    int32_t count;             /* requests */
} proa_waiting;

/* Once a step: takes over what was submitted, ends requests that were cancelled or are overdue, and admits waiting
 * ones. False: there were none. The stepping thread. */
bool proa_queue_update(proa_engine *e);

/* The queue of a client's requests of one priority, which is made if there is none; drop gives it back. Under
 * shared.lock. free: of all, when the engine closes. */
proa_client_queue *proa_client_queue_take(proa_engine_shared *shared, const char *client, int32_t priority);
void proa_client_queue_drop(proa_engine_shared *shared, proa_client_queue *queue);
void proa_client_queues_free(proa_engine_shared *shared);

/* The stepping thread. */
void proa_waiting_push(proa_waiting *w, proa_engine_request *req);
/* A request that was preempted: it is first among those of its priority. */
void proa_waiting_return(proa_waiting *w, proa_engine_request *req);
/* Whose turn it is; it stays until it is popped. NULL: none waits. */
proa_engine_request *proa_waiting_first(proa_waiting *w);
proa_engine_request *proa_waiting_pop(proa_waiting *w);
/* Moves requests for which ends() is true to the list `ended`. */
void proa_waiting_split(proa_waiting *w, proa_request_list *ended,
                        bool (*ends)(void *arg, proa_engine_request *req), void *arg);

#endif
