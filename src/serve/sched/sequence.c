/* SPDX-License-Identifier: Apache-2.0
 * sequence.c - sequence batching: requests of one sequence go to the same instance, one at a time, in order. A
 * sequence has a place at an instance from its START to its END, or until it is idle for too long. If no place is
 * free, it waits in the backlog. The strategies: direct: a place is a row of the instance's batches; rows without a
 * request get a filler request (READY false). oldest: places are candidates, whose requests form batches like those of
 * the dynamic batcher, the oldest first. iterative_sequence: a request may be scheduled again (proa_infer_reschedule),
 * and is a sequence of its own. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/sched/sequence.h"
#include <string.h>

#define TABLE_SIZE 4096 /* chains */

/* ---- the table of sequences that may get more requests ---- */

static bool has_name(const proa_infer *r)
{
    return r->sequence_name && *r->sequence_name;
}

static proa_sequence **chain_of(proa_sequences *q, uint64_t id, const char *name)
{
    uint64_t hash = name ? proa_str_hash(proa_str_c(name)) : id * 0x9E3779B97F4A7C15u >> 20;
    return &q->table[hash % TABLE_SIZE];
}

static proa_sequence *find_sequence(proa_sequences *q, const proa_infer *r)
{
    const char *name = has_name(r) ? r->sequence_name : NULL;
    for (proa_sequence *s = *chain_of(q, r->sequence_id, name); s; s = s->next_same)
        if (name ? s->name && strcmp(s->name, name) == 0 : !s->name && s->id == r->sequence_id) return s;
    return NULL;
}

static void unlist_sequence(proa_sequences *q, proa_sequence *s)
{
    if (!s->listed) return;
    for (proa_sequence **at = chain_of(q, s->id, s->name); *at; at = &(*at)->next_same)
        if (*at == s) {
            *at = s->next_same;
            break;
        }
    s->listed = false;
}

/* ---- places and the backlog ---- */

static void take_place(proa_sequences *q, proa_sequence *s, proa_sequence_place *place)
{
    PROA_UNUSED(q);
    place->sequence = s;
    s->place = place;
    s->expires_ns = PROA_ALARM_NEVER;
}

static proa_sequence_place *free_place(const proa_sequences *q)
{
    for (int i = 0; i < q->rows * q->scheduler->slots_count; i++)
        if (!q->places[i].sequence) return &q->places[i];
    return NULL;
}

static void backlog_remove(proa_sequences *q, proa_sequence *s)
{
    if (s->prev) s->prev->next = s->next;
    else q->backlog = s->next;
    if (s->next) s->next->prev = s->prev;
    else q->backlog_last = s->prev;
    s->next = s->prev = NULL;
}

static proa_sequence *sequence_new(proa_sequences *q, const proa_infer *r)
{
    proa_sequence *s = proa_calloc(1, sizeof *s + (size_t)q->states_count * sizeof s->states[0]);
    s->id = r->sequence_id;
    s->name = has_name(r) ? proa_strdup(r->sequence_name) : NULL;
    s->expires_ns = PROA_ALARM_NEVER;
    s->listed = true;
    proa_sequence **at = chain_of(q, s->id, s->name);
    s->next_same = *at;
    *at = s;
    proa_sequence_place *place = free_place(q);
    if (place) {
        take_place(q, s, place);
        return s;
    }
    s->prev = q->backlog_last;
    if (q->backlog_last) q->backlog_last->next = s;
    else q->backlog = s;
    q->backlog_last = s;
    return s;
}

/* The sequence has no request left: its place goes to the next one of the backlog. */
static void sequence_end(proa_sequences *q, proa_sequence *s)
{
    proa_sequence_place *place = s->place;
    unlist_sequence(q, s);
    if (!place) backlog_remove(q, s);
    for (int i = 0; i < q->states_count; i++) proa_tensor_release(&s->states[i]);
    free(s->name);
    free(s);
    if (!place) return;
    place->sequence = NULL;
    proa_sequence *next = q->backlog;
    if (!next) return;
    backlog_remove(q, next);
    take_place(q, next, place);
}

static void end_if_over(proa_sequences *q, proa_sequence *s)
{
    if (!s->listed && !s->running && !s->head) sequence_end(q, s);
}

/* ---- the requests of a sequence ---- */

static void push_last(proa_sequence *s, proa_infer *r)
{
    r->next = NULL;
    r->ticket.prev = s->tail;
    r->ticket.queued = true;
    if (s->tail) s->tail->next = r;
    else s->head = r;
    s->tail = r;
}

static void push_first(proa_sequence *s, proa_infer *r)
{
    r->next = s->head;
    r->ticket.prev = NULL;
    r->ticket.queued = true;
    if (s->head) s->head->ticket.prev = r;
    else s->tail = r;
    s->head = r;
}

static proa_infer *pop_first(proa_scheduler *sched, proa_sequence *s)
{
    proa_infer *r = s->head;
    s->head = r->next;
    if (s->head) s->head->ticket.prev = NULL;
    else s->tail = NULL;
    r->next = NULL;
    r->ticket.queued = false;
    atomic_fetch_sub(&sched->waiting, 1);
    proa_infer_watch(r, NULL);
    return r;
}

/* All that waits of a sequence ends, and so does the sequence. Under the lock. */
static void drop_sequence(proa_sequences *q, proa_sequence *s, proa_fail_reason reason)
{
    while (s->head) {
        proa_infer *r = pop_first(q->scheduler, s);
        r->ticket.reason = (uint8_t)(reason + 1);
        r->ticket.slot = NULL;
        proa_executor_end(q->scheduler, r);
    }
    unlist_sequence(q, s);
    end_if_over(q, s);
}

/* A cancelled request ends its sequence: later requests would miss it. */
static void on_cancel(proa_infer *r)
{
    proa_scheduler *s = r->model->scheduler;
    pthread_mutex_lock(&s->lock);
    bool queued = r->ticket.queued;
    if (queued) drop_sequence(s->state, r->ticket.slot, PROA_FAIL_CANCELED);
    pthread_mutex_unlock(&s->lock);
    if (queued) proa_executor_end_all(s);
    if (queued) proa_executor_wake(s); /* a sequence of the backlog may have got the place */
    atomic_store(&r->ticket.cancel_handled, true);
}

/* ---- in ---- */

static proa_status check_request(proa_sequences *q, proa_infer *r, proa_err *err)
{
    const char *model = q->scheduler->model->name;
    if (r->batch > 1)
        return PROA_FAIL(
            err, INVALID,
            "inference request to model '%s' must specify batch-size 1 due to requirements of sequence "
            "batcher",
            model);
    if (r->sequence_id == 0 && !has_name(r) && !q->iterative)
        return PROA_FAIL(
            err, INVALID,
            "inference request to model '%s' must specify a non-zero or non-empty correlation ID", model);
    if (atomic_load(&q->scheduler->waiting) < PROA_QUEUE_MAX) return PROA_OK;
    r->ticket.reason = PROA_FAIL_REJECTED + 1;
    return PROA_FAIL(err, UNAVAILABLE, "[request id: %s] Exceeds maximum queue size", proa_infer_log_id(r));
}

static proa_status must_start(const proa_sequences *q, const proa_infer *r, proa_err *err)
{
    char id[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)r->sequence_id);
    return PROA_FAIL(
        err, INVALID,
        "inference request for sequence %s to model '%s' must specify the START flag on the first request "
        "of the sequence",
        has_name(r) ? r->sequence_name : id, q->scheduler->model->name);
}

/* How long the backlog keeps its sequence. */
static void set_expiry(proa_sequence *s, const proa_infer *r)
{
    if (s->place) return;
    if (r->timeout_us && r->timeout_us < INT64_MAX / 4000) {
        int64_t at = r->times.queued + (int64_t)r->timeout_us * 1000;
        if (at < s->expires_ns) s->expires_ns = at;
    }
    if (r->deadline_ns && r->deadline_ns < s->expires_ns) s->expires_ns = r->deadline_ns;
}

/* Adds the request to its sequence, which its START flag creates. *alarm_ns: when the sequence expires. */
static proa_status join_sequence(proa_sequences *q, proa_infer *r, int64_t *alarm_ns, proa_err *err)
{
    bool own = false; /* an iterative request without a sequence of the client's: it is one by itself */
    if (q->iterative && r->sequence_id == 0 && !has_name(r)) {
        r->sequence_id = q->next_id++;
        r->sequence_start = own = true;
    }
    proa_sequence *s = own ? NULL : find_sequence(q, r); /* a client may use the same number for its own sequence */
    if (!r->sequence_start && !s) return must_start(q, r, err);
    if (r->sequence_start && s)
        PROA_LOG(WARNING,
                 "sequence %llu for model '%s' has a conflict. The previous sequence did not end before this "
                 "sequence "
                 "start. Previous sequence will be terminated early.",
                 (unsigned long long)r->sequence_id, q->scheduler->model->name);
    if (!s) s = sequence_new(q, r);
    s->last_ns = r->times.queued;
    r->ticket.slot = s;
    push_last(s, r);
    set_expiry(s, r);
    *alarm_ns = proa_min64(s->expires_ns, s->last_ns + q->idle_ns);
    if (r->sequence_end || own) unlist_sequence(q, s);
    proa_executor_pushed(q->scheduler);
    return PROA_OK;
}

static proa_status enqueue_in_sequence(proa_scheduler *sched, proa_infer *r, proa_err *err)
{
    proa_sequences *q = sched->state;
    int64_t alarm_ns = PROA_ALARM_NEVER;
    PROA_TRY(check_request(q, r, err));
    proa_infer_watch(r, on_cancel);
    pthread_mutex_lock(&sched->lock);
    /* a cancel that arrives now finds it in no sequence; a later one waits for the lock */
    proa_status status = proa_infer_cancelled(r) ? proa_infer_refuse_cancelled(r, err)
                                                 : join_sequence(q, r, &alarm_ns, err);
    pthread_mutex_unlock(&sched->lock);
    if (status != PROA_OK) {
        proa_scheduler_unwatch(r);
        return status;
    }
    if (alarm_ns != PROA_ALARM_NEVER) proa_alarm_before(&sched->alarm, alarm_ns);
    if (sched->on_caller) proa_executor_wake(sched);
    return PROA_OK;
}

/* ---- batches ---- */

static proa_sequence *ready_at(const proa_sequences *q, int instance_slot, int row)
{
    proa_sequence *s = q->places[row * q->scheduler->slots_count + instance_slot].sequence;
    return s && s->head && !s->running ? s : NULL;
}

/* The request was cancelled before we took the lock: the sequence ends. */
static bool still_wanted(proa_sequences *q, proa_sequence *s)
{
    if (!proa_infer_cancelled(s->head)) return true;
    drop_sequence(q, s, PROA_FAIL_CANCELED);
    return false;
}

static proa_infer *start_sequence(proa_sequences *q, proa_sequence *s)
{
    s->running = true;
    return pop_first(q->scheduler, s);
}

/* Whether the rows of an instance that are ready may run, or when. */
static bool direct_waits(const proa_sequences *q, int ready, int64_t oldest_ns, int64_t now_ns, int64_t *again_ns)
{
    if (q->delay_ns == 0 || q->utilization <= 0 || atomic_load(&q->scheduler->stopping)) return false;
    if (now_ns - oldest_ns > q->delay_ns || (float)ready / (float)q->rows >= q->utilization) return false;
    *again_ns = oldest_ns + q->delay_ns + 1;
    return true;
}

static int take_direct(proa_sequences *q, proa_instance_slot *instance_slot, int64_t now_ns, bool peek,
                       int64_t *again_ns)
{
    int last = -1, ready = 0, count = 0;
    int64_t oldest_ns = INT64_MAX;
    proa_form f;
    proa_form_begin(&f, &q->rule);
    for (int row = 0; row < q->rows; row++) {
        proa_sequence *s = ready_at(q, instance_slot->index, row);
        if (!s || !still_wanted(q, s)) continue;
        if (!proa_form_add(&f, s->head)) continue; /* another shape: its row gets a filler */
        ready++;
        last = row;
        oldest_ns = proa_min64(oldest_ns, s->head->times.queued);
    }
    if (ready == 0 || direct_waits(q, ready, oldest_ns, now_ns, again_ns)) return 0;
    if (peek) return ready;
    const proa_infer *like = f.first;
    proa_form_begin(&f, &q->rule);
    for (int row = 0; row <= last; row++) {
        proa_sequence *s = ready_at(q, instance_slot->index, row);
        bool joins = s && proa_form_add(&f, s->head);
        instance_slot->batch[count++] = joins ? start_sequence(q, s) : proa_sequence_filler(q, like);
    }
    return count;
}

/* The ready sequences of an instance in q->candidates, the oldest request first. */
static int find_candidates(proa_sequences *q, int instance_slot)
{
    int count = 0;
    for (int row = 0; row < q->rows; row++) {
        proa_sequence *s = ready_at(q, instance_slot, row);
        if (!s || !still_wanted(q, s)) continue;
        int at = count++;
        for (; at > 0 && q->candidates[at - 1]->times.queued > s->head->times.queued; at--)
            q->candidates[at] = q->candidates[at - 1];
        q->candidates[at] = s->head;
    }
    return count;
}

static int take_oldest(proa_sequences *q, proa_instance_slot *instance_slot, int64_t now_ns, bool peek,
                       int64_t *again_ns)
{
    proa_form f;
    int found = find_candidates(q, instance_slot->index);
    proa_form_begin(&f, &q->rule);
    for (int i = 0; i < found && proa_form_add(&f, q->candidates[i]); i++) {
    }
    int count = proa_form_ready(&f, now_ns, atomic_load(&q->scheduler->stopping), again_ns);
    for (int i = 0; i < count && !peek; i++)
        instance_slot->batch[i] = start_sequence(q, q->candidates[i]->ticket.slot);
    return count;
}

static int take_sequences(proa_scheduler *sched, proa_instance_slot *instance_slot, int64_t now_ns, bool peek,
                          int64_t *again_ns)
{
    proa_sequences *q = sched->state;
    return q->oldest ? take_oldest(q, instance_slot, now_ns, peek, again_ns)
                     : take_direct(q, instance_slot, now_ns, peek, again_ns);
}

static void prepare_sequences(proa_scheduler *sched, proa_instance_slot *instance_slot, int count)
{
    for (int i = 0; i < count; i++)
        if (!instance_slot->batch[i]->ticket.filler)
            proa_sequence_prepare(sched->state, instance_slot->batch[i]);
}

/* ---- out ---- */

static bool sequence_replied(proa_scheduler *sched, proa_infer *r, proa_reply *reply, bool final)
{
    proa_sequences *q = sched->state;
    proa_sequence *s = r->ticket.slot;
    if (r->ticket.filler) {
        proa_reply_free(reply);
        if (final) proa_infer_drop(r);
        return false;
    }
    if (!s) return true; /* it ended in the queue */
    if (reply && reply->error.status == PROA_OK) proa_sequence_take_states(q, s, reply);
    if (!final) return true;
    pthread_mutex_lock(&sched->lock);
    s->running = false;
    s->last_ns = proa_clock_ns();
    end_if_over(q, s);
    bool more = atomic_load(&sched->waiting) > 0;
    pthread_mutex_unlock(&sched->lock);
    r->ticket.slot = NULL;
    if (more) proa_executor_wake(sched);
    return true;
}

static bool is_iterative(const proa_scheduler *sched)
{
    return sched->kind == &proa_sched_sequence && ((const proa_sequences *)sched->state)->iterative;
}

/* With Triton's text: the backend asks for what the model's configuration does not have. */
static void refuse_reschedule(proa_infer *r)
{
    proa_err err = {0};
    PROA_FAIL(&err, INTERNAL,
              "[request id: %s] Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while "
              "the model is not configured to handle such a flag.",
              proa_infer_log_id(r));
    proa_infer_fail(r, &err);
}

void proa_infer_reschedule(proa_infer *r)
{
    proa_scheduler *sched = r->model->scheduler;
    if (r->ticket.filler) { /* the scheduler's own: no client waits for a reply */
        proa_infer_drop(r);
        return;
    }
    if (!is_iterative(sched)) {
        refuse_reschedule(r);
        return;
    }
    proa_infer_hold(r);
    proa_infer_watch(r, on_cancel); /* before it is queued: a cancel from now on finds it there, or is seen below */
    pthread_mutex_lock(&sched->lock);
    bool cancelled = proa_infer_cancelled(r);
    if (!cancelled) {
        proa_sequence *s = r->ticket.slot;
        r->sequence_start = false;
        s->running = false;
        push_first(s, r);
        proa_executor_pushed(sched);
    }
    pthread_mutex_unlock(&sched->lock);
    if (cancelled) proa_scheduler_cancelled(r);
    proa_infer_drop(r);
    if (!cancelled && sched->on_caller) proa_executor_wake(sched);
}

/* ---- time ---- */

/* An idle sequence has ended: its place is free. */
static int64_t end_idle(proa_sequences *q, int64_t now_ns)
{
    int64_t next = PROA_ALARM_NEVER;
    for (int i = 0; i < q->rows * q->scheduler->slots_count; i++) {
        proa_sequence *s = q->places[i].sequence;
        if (!s || s->running || s->head) continue; /* looked at again when its request has ended: see below */
        if (now_ns - s->last_ns >= q->idle_ns) sequence_end(q, s);
        else next = proa_min64(next, s->last_ns + q->idle_ns);
    }
    return next;
}

static int64_t end_expired(proa_sequences *q, int64_t now_ns)
{
    int64_t next = PROA_ALARM_NEVER;
    for (proa_sequence *s = q->backlog, *after; s; s = after) {
        after = s->next;
        if (now_ns >= s->expires_ns) drop_sequence(q, s, PROA_FAIL_REJECTED);
        else next = proa_min64(next, s->expires_ns);
    }
    return next;
}

static bool any_busy(const proa_sequences *q)
{
    for (int i = 0; i < q->rows * q->scheduler->slots_count; i++) {
        const proa_sequence *s = q->places[i].sequence;
        if (s && (s->running || s->head)) return true;
    }
    return false;
}

static int64_t expire_sequences(proa_scheduler *sched, int64_t now_ns)
{
    proa_sequences *q = sched->state;
    pthread_mutex_lock(&sched->lock);
    int64_t next = end_idle(q, now_ns);
    next = proa_min64(next, end_expired(q, now_ns));
    if (any_busy(q)) next = proa_min64(next, now_ns + q->idle_ns);
    pthread_mutex_unlock(&sched->lock);
    proa_executor_end_all(sched);
    if (atomic_load(&sched->waiting) > 0) proa_executor_wake(sched);
    return next;
}

/* ---- the scheduler ---- */

static void read_strategy(proa_sequences *q, const Inference__ModelSequenceBatching *c, proa_served_model *m)
{
    const Inference__ModelSequenceBatching__StrategyOldest *o = NULL;
    const Inference__ModelSequenceBatching__StrategyDirect *d = NULL;
    if (c->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST) o = c->oldest;
    if (c->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT) d = c->direct;
    uint64_t delay_us = o ? o->max_queue_delay_microseconds : d ? d->max_queue_delay_microseconds : 0;
    proa_form_rule_init(&q->rule, m, o ? o->preferred_batch_size : NULL, o ? o->n_preferred_batch_size : 0,
                        delay_us);
    q->oldest = o != NULL;
    q->utilization = d ? d->minimum_slot_utilization : 0;
    q->delay_ns = q->rule.delay_ns;
    q->rows = q->rule.requests_max;
    if (o) q->rows = o->max_candidate_sequences > 1 ? o->max_candidate_sequences : 1;
    if (q->rows > PROA_BATCH_REQUESTS_MAX) q->rows = PROA_BATCH_REQUESTS_MAX;
}

static proa_status open_sequence(proa_scheduler *s, proa_err *err)
{
    proa_served_model *m = s->model;
    const Inference__ModelSequenceBatching *c = m->config->sequence_batching;
    proa_sequences *q = PROA_ARENA_NEW(&m->arena, proa_sequences, 1);
    s->state = q;
    s->pinned = true;
    s->expired_text = "timeout of the corresponding sequence has been expired";
    q->scheduler = s;
    q->batched = m->batch_max > 0;
    q->iterative = c->iterative_sequence;
    q->next_id = 1;
    uint64_t idle_us = c->max_sequence_idle_microseconds ? c->max_sequence_idle_microseconds : 1000000;
    q->idle_ns = idle_us < INT64_MAX / 4000 ? (int64_t)idle_us * 1000 : INT64_MAX / 4;
    read_strategy(q, c, m);
    q->table = PROA_ARENA_NEW(&m->arena, proa_sequence *, TABLE_SIZE);
    q->candidates = PROA_ARENA_NEW(&m->arena, proa_infer *, q->rows);
    q->places = PROA_ARENA_NEW(&m->arena, proa_sequence_place, (int64_t)q->rows * m->instances_count);
    for (int i = 0; i < q->rows * m->instances_count; i++)
        q->places[i] = (proa_sequence_place){.instance_slot = i % m->instances_count,
                                             .row = i / m->instances_count};
    PROA_TRY(proa_sequence_inputs_open(q, err));
    return proa_executor_open(s, q->oldest ? q->rule.requests_max : q->rows, err);
}

static void close_sequence(proa_scheduler *s)
{
    proa_sequences *q = s->state;
    if (!q) return;
    PROA_ASSERT(!q->backlog);
    for (int i = 0; q->places && i < q->rows * s->model->instances_count; i++)
        if (q->places[i].sequence) sequence_end(q, q->places[i].sequence);
    proa_sequence_inputs_close(q);
}

static bool admits_request(const proa_infer *r)
{
    return !r->sequence_start; /* a sequence that has begun continues to its end */
}

const proa_scheduler_kind proa_sched_sequence = {
    .name = "sequence",
    .open = open_sequence,
    .close = close_sequence,
    .enqueue = enqueue_in_sequence,
    .take = take_sequences,
    .prepare = prepare_sequences,
    .replied = sequence_replied,
    .expire = expire_sequences,
    .admits = admits_request,
};
