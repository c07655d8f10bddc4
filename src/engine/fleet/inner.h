/* SPDX-License-Identifier: Apache-2.0
 * inner.h - what the files of this folder share. Private to src/engine/fleet. */
#ifndef PROA_ENGINE_FLEET_INNER_H
#define PROA_ENGINE_FLEET_INNER_H

#include "engine/access.h"
#include "engine/fleet/fleet.h"
#include "engine/sched/handoff.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct proa_replica {
    proa_engine *engine;
    atomic_llong queued;               /* prompt tokens of requests that have not emitted anything yet */
    atomic_int active;                 /* requests that are not done */
    atomic_ullong routed[PROA_ROUTES]; /* requests that it has got, by the reason */
    /* guarded by lock of the fleet */
    uint64_t failures;                 /* of its device, when it was looked at last */
    int64_t resting_until_ns, rest_ns; /* it takes no requests until then; how long the last rest was */
} proa_replica;

typedef struct proa_transfer proa_transfer;

/* A request on its way: its replica counts it until its last event. */
typedef struct proa_fleet_call {
    proa_fleet *fleet;
    struct proa_fleet_call *next, **link; /* in fleet->calls */
    int32_t replica;
    int64_t queued; /* what it adds to its replica's queue; 0: nothing any more */
    proa_event_fn *on_event;
    void *arg;
    proa_transfer *transfer; /* guarded by lock of the fleet: its prompt is on its way; or NULL */
    atomic_llong cached_most; /* of its prompt, whose pages were handed on and are found like cached ones; INT64_MAX */
} proa_fleet_call;

struct proa_transfer {
    proa_fleet *fleet;
    proa_transfer *next, **link; /* in fleet->transfers */
    proa_kv_handoff *handoff;    /* NULL once it is sent */
    int32_t prefill, decode;     /* replicas */
    uint64_t prompt_id, id; /* of the request for one token, at `prefill`; of the held one, at `decode` */
    int64_t queued;         /* what it adds to the queue of `prefill` */
    int64_t cached_there;   /* prompt tokens that `decode` had when it was submitted */
    int64_t cached;         /* that one of the two had; INT64_MAX: nothing was handed on */
    proa_fleet_call *call;  /* NULL once it has ended */
};

struct proa_fleet {
    proa_replica *replica;  /* [count] */
    int32_t count, prefill; /* replicas; the first `prefill` of them run prompts for the others */
    int64_t rest_ns;        /* the first rest of a replica */
    pthread_mutex_t lock;   /* of the rests, calls and transfers */
    proa_fleet_call *calls;
    proa_transfer *transfers;
    pthread_mutex_t sessions_lock; /* held while a request with a session is placed */
};

/* route.c: the replica for a request, among those from `first` to before `end`; -1: none of them takes requests, or has
 * its adapter. The one that has its session; -1: none, or it has no session. How many tokens its prompt has, at least
 * 1. */
int32_t proa_fleet_choose(const proa_fleet *f, const proa_request *r, int32_t first, int32_t end);
/* Why replica i was chosen for a request without a session. */
proa_route proa_fleet_why(const proa_fleet *f, int32_t i, const proa_request *r);
int32_t proa_fleet_find_session(const proa_fleet *f, const proa_request *r);
int64_t proa_fleet_prompt_cost(const proa_request *r);

/* transfer.c: submits the request of the call, whose replica generates its tokens, and has another one run its prompt.
 * request->on_event and arg are those of the call. */
PROA_MUST_CHECK proa_status proa_fleet_transfer(proa_fleet *f, int32_t prefill, proa_fleet_call *call,
                                                const proa_request *request, uint64_t *id, proa_err *err);
void proa_fleet_transfer_cancel(proa_fleet *f, int32_t decode, uint64_t id);
void proa_fleet_transfers_free(proa_fleet *f); /* when the engines are closed */

#endif
