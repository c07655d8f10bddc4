/* SPDX-License-Identifier: Apache-2.0
 * retire.c - versions that were taken out of service: threads close each when its last reference is dropped. */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/core.h"
#include "serve/scheduler.h"
#include <errno.h>
#include <time.h>

/* Threads of their own close the versions that have left, each when its last holder has let go: a request's last drop
 * may come from a thread of the very scheduler that is to be freed. Several, since a backend may wait for processes. */

proa_retired *proa_retire(proa_server *s, proa_entry *e, proa_version_slot *slot, proa_retired *list)
{
    proa_retired *r = proa_calloc(1, sizeof *r);
    *r = (proa_retired){.model = slot->model, .entry = e, .number = ++s->retired_so_far, .next = list};
    atomic_store(&slot->model->state_now, PROA_STATE_UNLOADING);
    slot->unloading = r->number;
    slot->model = NULL;
    s->unloading++;
    return r;
}

void proa_retire_release(proa_server *s, proa_retired *list)
{
    while (list) {
        proa_retired *r = list;
        list = r->next;
        r->next = s->retired;
        s->retired = r;
        atomic_fetch_sub_explicit(&r->model->refs, 1, memory_order_acq_rel); /* the slot's */
    }
    pthread_cond_broadcast(&s->changed);
}

static proa_retired *take_drained(proa_server *s)
{
    for (proa_retired **at = &s->retired; *at; at = &(*at)->next) {
        proa_retired *r = *at;
        if (atomic_load_explicit(&r->model->refs, memory_order_acquire) != 0) continue;
        *at = r->next;
        return r;
    }
    return NULL;
}

/* Lock held; let go while the version closes, which may take its time. */
static void close_one(proa_server *s, proa_retired *r)
{
    int64_t version = r->model->version;
    pthread_mutex_unlock(&s->lock);
    PROA_LOG(INFO, "successfully unloaded '%s' version %lld", r->model->name, (long long)version);
    if (atomic_fetch_sub(&r->model->source->serving, 1) == 1) proa_agents_unload_begins(r->model->source);
    proa_served_model_close(r->model);
    pthread_mutex_lock(&s->lock);
    proa_version_slot *slot = proa_entry_slot(r->entry, version, false);
    if (slot && slot->unloading == r->number && slot->state == PROA_STATE_UNLOADING)
        proa_version_slot_set(slot, PROA_STATE_UNAVAILABLE, "unloaded");
    s->unloading--;
    pthread_cond_broadcast(&s->changed);
    free(r);
}

static void *reap_versions(void *arg)
{
    proa_server *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        proa_retired *r = take_drained(s);
        if (r) close_one(s, r);
        else if (s->ending && s->unloading == 0) break;
        else pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

proa_status proa_reaper_start(proa_server *s, proa_err *err)
{
    for (; s->reapers_count < PROA_REAPERS; s->reapers_count++) {
        int failed = pthread_create(&s->reapers[s->reapers_count], NULL, reap_versions, s);
        if (failed && s->reapers_count == 0)
            return PROA_FAIL(err, NO_MEMORY, "cannot start a thread: error %d", failed);
        if (failed) break; /* with fewer it only takes longer */
    }
    return PROA_OK;
}

bool proa_reaper_wait(proa_server *s, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    pthread_mutex_lock(&s->lock);
    while (s->unloading > 0 && pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT) continue;
    bool empty = s->unloading == 0;
    pthread_mutex_unlock(&s->lock);
    return empty;
}

void proa_reaper_stop(proa_server *s)
{
    if (!s->reapers_count) return;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    while (s->reapers_count) pthread_join(s->reapers[--s->reapers_count], NULL);
}
