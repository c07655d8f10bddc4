/* SPDX-License-Identifier: Apache-2.0
 * dynamic.c - dynamic batching: waiting requests are joined to batches by the rule of form.h.
 * Batches respect priorities; each priority level has its own time-out and size. */
#include "serve/sched/batch_io.h"
#include "serve/sched/form.h"
#include "serve/sched/sched.h"

static proa_status open_dynamic(proa_scheduler *s, proa_err *err)
{
    const Inference__ModelDynamicBatching *d = s->model->config->dynamic_batching;
    proa_form_rule *rule = PROA_ARENA_NEW(&s->model->arena, proa_form_rule, 1);
    proa_form_rule_init(rule, s->model, d->preferred_batch_size, d->n_preferred_batch_size,
                        d->max_queue_delay_microseconds);
    s->state = rule;
    s->eager = rule->delay_ns == 0;
    return proa_executor_open(s, rule->requests_max, err);
}

static void close_dynamic(proa_scheduler *s)
{
    PROA_ASSERT(s->queue.count == 0);
}

/* Adds the waiting requests in order. False: a request was moved back meanwhile, so the order has changed. */
static bool gather_batch(proa_scheduler *s, proa_form *f, int64_t now_ns)
{
    proa_form_begin(f, s->state);
    for (proa_infer *r = proa_sched_queue_first(&s->queue), *next; r; r = next) {
        next = proa_sched_queue_next(&s->queue, r);
        if (!proa_executor_check(s, r, now_ns)) {
            if (r->ticket.queued) return false;
        } else if (!proa_form_add(f, r)) {
            break;
        }
    }
    return true;
}

static int pick_batch(proa_scheduler *s, proa_instance_slot *slot, int count)
{
    int picked = 0;
    for (int i = 0; i < count; i++) {
        proa_infer *r = proa_sched_queue_first(&s->queue);
        if (proa_executor_dequeue(s, r)) slot->batch[picked++] = r;
    }
    return picked;
}

static int take_dynamic(proa_scheduler *s, proa_instance_slot *slot, int64_t now_ns, bool peek, int64_t *again_ns)
{
    proa_form f;
    int count, picked;
    do {
        while (!gather_batch(s, &f, now_ns)) {
        }
        count = proa_form_ready(&f, now_ns, atomic_load(&s->stopping), again_ns);
        s->wake_rows = count == 0 && f.count ? proa_form_wanted(&f) : 0;
        if (peek) return count;
        picked = pick_batch(s, slot, count);
    } while (count && !picked); /* all were cancelled */
    return picked;
}

static void prepare_batch(proa_scheduler *s, proa_instance_slot *slot, int count)
{
    if (s->model->config->n_batch_input) proa_batch_inputs_add(s->model, slot->batch, count);
}

const proa_scheduler_kind proa_sched_dynamic = {
    .name = "dynamic",
    .open = open_dynamic,
    .close = close_dynamic,
    .enqueue = proa_executor_enqueue,
    .take = take_dynamic,
    .prepare = prepare_batch,
};
