/* SPDX-License-Identifier: Apache-2.0
 * route.c - which replica gets a request, and which replicas take none for a while. */
#include "engine/fleet/inner.h"

#include "base/clock.h"

#include <string.h>

/* What a request that runs adds to the cost of its replica, in prompt tokens. It adds a row to every step of a new one;
 * over some hundred steps that takes about as long as 64 rows of a prompt. */
#define ACTIVE_COST 64

#define RESTS_MAX   60 /* the longest rest, as a multiple of the first */

/* ---- replicas whose device has failed ---- */

/* Under f->lock. */
static bool is_resting(proa_replica *r, int64_t first_ns, int64_t now)
{
    uint64_t failures = proa_engine_failures(r->engine);
    if (failures == r->failures) return now < r->resting_until_ns;
    bool again = r->rest_ns && now < r->resting_until_ns + r->rest_ns; /* soon after the rest before */
    r->failures = failures;
    r->rest_ns = again ? 2 * r->rest_ns : first_ns;
    if (r->rest_ns > RESTS_MAX * first_ns) r->rest_ns = RESTS_MAX * first_ns;
    r->resting_until_ns = now + r->rest_ns;
    return true;
}

bool proa_fleet_serves(const proa_fleet *f, int32_t i)
{
    if (proa_engine_ready(f->replica[i].engine, NULL) != PROA_OK) return false;
    if (f->count == 1) return true;
    pthread_mutex_t *lock = (pthread_mutex_t *)&f->lock;
    pthread_mutex_lock(lock);
    bool resting = is_resting(&f->replica[i], f->rest_ns, proa_clock_ns());
    pthread_mutex_unlock(lock);
    return !resting;
}

bool proa_fleet_ready(const proa_fleet *f)
{
    for (int32_t i = 0; i < f->count; i++)
        if (proa_fleet_serves(f, i)) return true;
    return false;
}

/* ---- choosing ---- */

/* Prompt tokens of a request. A text is not tokenised for this: its tokens have about four bytes. */
static int64_t prompt_tokens(const proa_request *r)
{
    if (r->ids || r->embedded || r->encoder_outputs) return r->ids_count;
    return 1 + (int64_t)(r->text_len ? r->text_len : r->text ? strlen(r->text) : 0) / 4;
}

int64_t proa_fleet_prompt_cost(const proa_request *r)
{
    return prompt_tokens(r) > 0 ? prompt_tokens(r) : 1;
}

static int64_t cost_of(proa_replica *replica, const proa_request *r)
{
    int64_t cached = proa_engine_cached_tokens(replica->engine, r);
    return atomic_load_explicit(&replica->queued, memory_order_relaxed) + proa_fleet_prompt_cost(r) - cached +
           (int64_t)ACTIVE_COST * atomic_load_explicit(&replica->active, memory_order_relaxed);
}

proa_route proa_fleet_why(const proa_fleet *f, int32_t i, const proa_request *r)
{
    return proa_engine_cached_tokens(f->replica[i].engine, r) > 0 ? PROA_ROUTE_PREFIX : PROA_ROUTE_LOAD;
}

int32_t proa_fleet_find_session(const proa_fleet *f, const proa_request *r)
{
    for (int32_t i = 0; i < f->count && r->session_id; i++)
        if (proa_engine_has_session(f->replica[i].engine, r->session_id)) return i;
    return -1;
}

static void compare_name(void *arg, const char *name, const char *path)
{
    const char **sought = arg;
    PROA_UNUSED(path);
    if (*sought && strcmp(*sought, name) == 0) *sought = NULL;
}

/* Adapters that requests bring are dropped by each replica for itself. */
static bool has_adapter(const proa_engine *engine, const char *name)
{
    if (!name || !*name) return true;
    proa_engine_adapters(engine, compare_name, &name);
    return !name;
}

int32_t proa_fleet_choose(const proa_fleet *f, const proa_request *r, int32_t first, int32_t end)
{
    int32_t best = -1;
    int64_t least = 0;
    for (int32_t i = first; i < end; i++) {
        if (!proa_fleet_serves(f, i) || !has_adapter(f->replica[i].engine, r->options.adapter)) continue;
        int64_t cost = cost_of(&f->replica[i], r);
        if (best >= 0 && cost >= least) continue;
        best = i, least = cost;
    }
    return best;
}
