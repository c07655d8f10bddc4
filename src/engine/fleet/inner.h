/* SPDX-License-Identifier: Apache-2.0
 * inner.h - what the files of this folder share. Private to src/engine/fleet. */
#ifndef PROA_ENGINE_FLEET_INNER_H
#define PROA_ENGINE_FLEET_INNER_H

#include "engine/access.h"
#include "engine/fleet/fleet.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct proa_replica {
    proa_engine *engine;
    atomic_llong queued; /* prompt tokens of requests that have not emitted anything yet */
    atomic_int active;   /* requests that are not done */
    /* guarded by lock of the fleet */
    uint64_t failures;                 /* of its device, when it was looked at last */
    int64_t resting_until_ns, rest_ns; /* it takes no requests until then; how long the last rest was */
} proa_replica;

struct proa_fleet {
    proa_replica *replica; /* [count] */
    int32_t count;
    pthread_mutex_t lock;          /* of the rests */
    pthread_mutex_t sessions_lock; /* held while a request with a session is placed */
};

/* route.c: the replica for a request; how many tokens its prompt has, at least 1. */
int32_t proa_fleet_choose(proa_fleet *f, const proa_request *r);
int64_t proa_fleet_prompt_cost(const proa_request *r);

#endif
