/* SPDX-License-Identifier: Apache-2.0
 * clients.c - the order of waiting requests: by priority, then fairly between clients, then by arrival.
 *
 * Requests of one client and one priority wait in one queue. The queues of a priority take turns by deficit round robin
 * (Shreedhar and Varghese, 1996): a turn adds a quantum of tokens to the queue's deficit, which pays for the tokens of
 * its next requests. A client with many or with long requests so delays its own, not those of others. With one client
 * this is the order of arrival. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { QUANTUM = 2048, ANSWER_TOKENS = 512 }; /* tokens of a turn; what an answer counts at most */

/* ---- queues, found at submit and dropped at the end (under shared.lock) ---- */

static uint32_t bucket_of(const char *client, int32_t priority)
{
    uint32_t hash = 2166136261u ^ (uint32_t)priority; /* FNV-1a */
    for (; *client; client++) hash = (hash ^ (uint8_t)*client) * 16777619u;
    return hash % PROA_CLIENT_BUCKETS;
}

proa_client_queue *proa_client_queue_take(proa_engine_shared *shared, const char *client, int32_t priority)
{
    proa_client_queue **bucket = &shared->clients[bucket_of(client, priority)];
    for (proa_client_queue *q = *bucket; q; q = q->next_in_bucket)
        if (q->priority == priority && strcmp(q->client, client) == 0) return q->users++, q;
    proa_client_queue *q = proa_calloc(1, sizeof *q);
    q->client = proa_strdup(client);
    q->priority = priority;
    q->users = 1;
    proa_request_list_init(&q->requests);
    q->next_in_bucket = *bucket;
    *bucket = q;
    return q;
}

void proa_client_queue_drop(proa_engine_shared *shared, proa_client_queue *queue)
{
    proa_client_queue **link = &shared->clients[bucket_of(queue->client, queue->priority)];
    if (--queue->users > 0) return;
    while (*link != queue) link = &(*link)->next_in_bucket;
    *link = queue->next_in_bucket;
    free(queue->client);
    free(queue);
}

void proa_client_queues_free(proa_engine_shared *shared)
{
    for (int i = 0; i < PROA_CLIENT_BUCKETS; i++)
        for (proa_client_queue *q; (q = shared->clients[i]);) {
            shared->clients[i] = q->next_in_bucket;
            free(q->client);
            free(q);
        }
}

/* ---- the stepping thread: queues with requests ---- */

/* After the queues of its priority; first: before them. */
static void insert_queue(proa_waiting *w, proa_client_queue *queue, bool first)
{
    proa_client_queue **link = &w->queues;
    while (*link && (first ? (*link)->priority > queue->priority : (*link)->priority >= queue->priority))
        link = &(*link)->next;
    queue->next = *link;
    *link = queue;
}

static void remove_queue(proa_waiting *w, proa_client_queue *queue)
{
    proa_client_queue **link = &w->queues;
    while (*link != queue) link = &(*link)->next;
    *link = queue->next;
}

void proa_waiting_push(proa_waiting *w, proa_engine_request *req)
{
    proa_client_queue *queue = req->queue;
    if (!queue->requests.first) {
        queue->deficit = 0;
        insert_queue(w, queue, false);
    }
    proa_request_list_push(&queue->requests, req);
    w->count++;
}

/* What the request takes from its client's share: the tokens of its prompt, and of its answers as far as one can
 * know. */
static int64_t cost_of(const proa_engine_request *req)
{
    return req->input.count + req->prompt_count + req->width * proa_min64(req->new_max, ANSWER_TOKENS);
}

void proa_waiting_return(proa_waiting *w, proa_engine_request *req)
{
    proa_client_queue *queue = req->queue;
    if (queue->requests.first) remove_queue(w, queue);
    else queue->deficit = 0;
    insert_queue(w, queue, true);
    queue->deficit += cost_of(req); /* it had paid */
    proa_request_list_push_first(&queue->requests, req);
    w->count++;
}

proa_engine_request *proa_waiting_first(proa_waiting *w)
{
    for (proa_client_queue *queue; (queue = w->queues);) {
        if (queue->deficit >= cost_of(queue->requests.first)) return queue->requests.first;
        queue->deficit += QUANTUM;
        if (!queue->next || queue->next->priority < queue->priority)
            continue; /* the only one of its priority */
        w->queues = queue->next;
        insert_queue(w, queue, false);
    }
    return NULL;
}

proa_engine_request *proa_waiting_pop(proa_waiting *w)
{
    proa_engine_request *req = proa_waiting_first(w);
    if (!req) return NULL;
    proa_client_queue *queue = req->queue;
    queue->deficit -= cost_of(req);
    proa_request_list_pop(&queue->requests);
    if (!queue->requests.first) remove_queue(w, queue);
    w->count--;
    return req;
}

void proa_waiting_split(proa_waiting *w, proa_request_list *ended,
                        bool (*ends)(void *arg, proa_engine_request *req), void *arg)
{
    for (proa_client_queue **link = &w->queues; *link;) {
        proa_client_queue *queue = *link;
        w->count -= proa_request_list_split(&queue->requests, ended, ends, arg);
        if (queue->requests.first) link = &queue->next;
        else *link = queue->next;
    }
}
