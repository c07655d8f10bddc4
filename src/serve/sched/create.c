/* SPDX-License-Identifier: Apache-2.0
 * create.c - makes the scheduler that a model's configuration chooses, stops and frees it. */
#include "base/alloc.h"
#include "serve/cache.h"
#include "serve/core.h"
#include "serve/sched/order.h"
#include "serve/sched/sched.h"
#include <string.h>
#include <time.h>

/* ---- which kind ---- */

static const proa_scheduler_kind *kind_of(const proa_served_model *model)
{
    switch (model->config->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING: return &proa_sched_ensemble;
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING: return &proa_sched_sequence;
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        return model->flags & PROA_BACKEND_OWN_QUEUE ? &proa_sched_own : &proa_sched_dynamic;
    default: return model->flags & PROA_BACKEND_OWN_QUEUE ? &proa_sched_own : &proa_sched_direct;
    }
}

static bool keeps_order(const Inference__ModelConfig *config)
{
    switch (config->scheduling_choice_case) {
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING:
        return config->dynamic_batching->preserve_ordering;
    case INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING:
        return config->sequence_batching->strategy_choice_case ==
                   INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST &&
               config->sequence_batching->oldest->preserve_ordering;
    default: return false;
    }
}

/* One reply for a request, and the same for each that is equal. */
static bool is_cached(const proa_served_model *m, const proa_scheduler_kind *kind)
{
    return proa_served_model_uses_cache(m) && !m->decoupled && kind != &proa_sched_sequence;
}

static bool outputs_reshaped(const proa_served_model *model)
{
    for (int i = 0; i < model->outputs_count; i++)
        if (model->outputs[i].reshaped) return true;
    return false;
}

static int64_t expire_queued(void *arg, int64_t now_ns)
{
    proa_scheduler *s = arg;
    int64_t next = s->kind->expire ? s->kind->expire(s, now_ns) : proa_executor_expire(s, now_ns);
    /* Looking at a long queue for each of its requests would be quadratic: a millisecond is near enough. */
    return next == PROA_ALARM_NEVER || next > now_ns + 1000000 ? next : now_ns + 1000000;
}

proa_status proa_scheduler_new(proa_scheduler **out, proa_served_model *model, proa_err *err)
{
    proa_scheduler *s = proa_malloc_aligned(sizeof *s);
    memset(s, 0, sizeof *s);
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    s->model = model;
    s->kind = kind_of(model);
    s->reshapes = outputs_reshaped(model);
    s->cached = is_cached(model, s->kind);
    proa_stats_configure(model->stats, model->config);
    if (model->server && model->server->options.summary_latencies) proa_stats_summaries(model->stats);
    s->ended_last = &s->ended;
    s->order = keeps_order(model->config) ? proa_order_new(s) : NULL;
    proa_sched_queue_init(&s->queue, model->config->scheduling_choice_case ==
                                             INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING
                                         ? model->config->dynamic_batching
                                         : NULL);
    proa_status status = proa_alarm_open(&s->alarm, expire_queued, s, err);
    if (status == PROA_OK) status = s->kind->open(s, err);
    if (status == PROA_OK) {
        model->replied = proa_scheduler_replied;
        *out = s;
    } else proa_scheduler_free(s);
    return status;
}

void proa_scheduler_stop(proa_scheduler *s)
{
    atomic_store(&s->stopping, true);
    proa_executor_notify(s); /* batches that wait for more requests run now, but not on this thread */
}

void proa_scheduler_free(proa_scheduler *s)
{
    if (!s) return;
    /* Unloading polls here: a request that ends must not spend time on waking a waiting thread. */
    for (struct timespec nap = {.tv_nsec = 500000}; atomic_load(&s->busy) > 0;) nanosleep(&nap, NULL);
    proa_alarm_close(&s->alarm);
    proa_executor_close(s);
    s->kind->close(s);
    if (s->cached) proa_cache_forget(s->model->cache, s->model);
    proa_order_free(s->order);
    proa_sched_queue_release(&s->queue);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
