/* SPDX-License-Identifier: Apache-2.0
 * recovery.c - restarts the processes of ranks, with a pause that doubles. */
#include "engine/ranks/recovery.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"

#define PAUSE_FIRST_NS ((int64_t)500000000)
#define PAUSE_LAST_NS  (120 * PAUSE_FIRST_NS)
/* After ranks have run this long, the pause is the first one again. */
#define STEADY_NS      PAUSE_LAST_NS

void proa_recovery_notify(void *engine, const proa_err *why)
{
    proa_engine *e = engine;
    pthread_mutex_lock(&e->shared.lock);
    e->shared.lost = *why;
    atomic_store_explicit(&e->shared.work_signalled, true, memory_order_relaxed);
    pthread_cond_broadcast(&e->shared.work);
    pthread_mutex_unlock(&e->shared.lock);
    PROA_LOG(ERROR, "%s: the other ranks of the model are ended", why->text);
}

static void set_working(proa_engine *e)
{
    pthread_mutex_lock(&e->shared.lock);
    e->shared.lost = (proa_err){.status = PROA_OK};
    pthread_mutex_unlock(&e->shared.lock);
}

/* The new processes have no keys and values of what was cached. */
static void drop_cached_pages(proa_engine *e)
{
    proa_prefix_tree_clear(&e->prefixes);
    e->prefix_broken = false;
}

static void plan_next_try(proa_recovery *r, int64_t now)
{
    bool steady = r->restarted_ns && now - r->restarted_ns > STEADY_NS;
    r->pause_ns = r->pause_ns && !steady ? 2 * r->pause_ns : PAUSE_FIRST_NS;
    if (r->pause_ns > PAUSE_LAST_NS) r->pause_ns = PAUSE_LAST_NS;
    r->next_ns = now + r->pause_ns;
}

static void restart_ranks(proa_engine *e)
{
    proa_recovery *r = &e->recovery;
    proa_err why = {.status = PROA_OK};
    int64_t begin = proa_clock_ns();
    const proa_rank_memory memory = {e->pages.count, e->states.count + e->states.marks + e->states.kept};
    proa_status status = proa_rank_set_restart(&e->ranks, e->model, &memory, &why);
    int64_t now = proa_clock_ns();
    r->next_ns = 0;
    if (status != PROA_OK && e->ranks.mpi) {
        r->given_up = true;
        PROA_LOG(ERROR, "the model is unavailable until the whole job is started again: %s", why.text);
        return;
    }
    if (status != PROA_OK) {
        plan_next_try(r, now);
        PROA_LOG(ERROR, "cannot restart the ranks: %s; next try in %.1f s", why.text, (double)r->pause_ns / 1e9);
        return;
    }
    drop_cached_pages(e);
    proa_adapters_forget_slots(&e->adapters);
    e->now.rank_restarts++;
    r->restarted_ns = now;
    set_working(e);
    PROA_LOG(INFO, "%d ranks were restarted in %.1f s", e->ranks.count - e->ranks.local,
             (double)(now - begin) / 1e9);
}

int64_t proa_recovery_step(proa_engine *e)
{
    proa_recovery *r = &e->recovery;
    if (!e->ranks.processes || r->given_up || proa_rank_set_failed(&e->ranks, NULL) == PROA_OK) return 0;
    if (!r->next_ns) {
        e->now.rank_failures++;
        plan_next_try(r, proa_clock_ns());
    }
    if (!proa_inflight_any(e) && !e->running.count && proa_clock_ns() >= r->next_ns) restart_ranks(e);
    return r->next_ns;
}
