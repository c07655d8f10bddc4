/* SPDX-License-Identifier: Apache-2.0
 * submit.c - a request comes in: it is made from the caller's, and put into the inbox; held requests; cancellation. Any
 * thread. */
#include "engine/submit/submit.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/access.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include "engine/sched/prefix_cache.h"
#include <string.h>

/* Memory of the device for outputs of an encoder. */
static proa_status take_place(const proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    if ((r->head_to || r->pooled_to || r->rows_to) && r->task != PROA_TASK_ROWS)
        return PROA_FAIL(err, UNSUPPORTED, "head_to, pooled_to and rows_to are for task rows");
    if (r->head_to && !proa_engine_has_head_row(e))
        return PROA_FAIL(err, UNSUPPORTED, "head_to: this model's head does not compute one row of an input");
    if (r->pooled_to && !proa_engine_has_pooler(e))
        return PROA_FAIL(err, UNSUPPORTED, "pooled_to: this model has no pooler");
    if (r->rows_to && !proa_engine_is_headless(e))
        return PROA_FAIL(err, UNSUPPORTED, "rows_to: the rows of this model are not its outputs");
    req->input.place = (proa_encoder_place){.head = r->head_to, .pooled = r->pooled_to, .rows = r->rows_to};
    return PROA_OK;
}

static void take_visible(proa_engine_request *req, const proa_request *r)
{
    if (r->visible_ids_count <= 0) return;
    int32_t *ids = PROA_ARENA_NEW(&req->arena, int32_t, r->visible_ids_count);
    memcpy(ids, r->visible_ids, (size_t)r->visible_ids_count * sizeof *ids);
    req->visible = ids;
    req->visible_count = r->visible_ids_count;
}

static proa_status make_request(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    if (!r->on_event) return PROA_FAIL(err, INVALID, "a request needs on_event");
    if (r->task < PROA_TASK_GENERATE || r->task > PROA_TASK_ENCODE)
        return PROA_FAIL(err, INVALID, "unknown task %d", (int)r->task);
    req->task = r->task;
    req->emits_scores = r->scores;
    req->scores = r->scores || r->rows.scores;
    req->rows = r->rows;
    req->on_event = r->on_event;
    req->arg = r->arg;
    if (r->client && strlen(r->client) > PROA_CLIENT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "client: a name of %zu bytes, at most %d are taken", strlen(r->client),
                         PROA_CLIENT_BYTES_MAX);
    take_visible(req, r);
    PROA_TRY(proa_request_rows_check(e, r, err));
    PROA_TRY(take_place(e, req, r, err));
    PROA_TRY(proa_submit_hold_session(e, req, r, err));
    PROA_TRY(proa_adapters_ref(&e->adapters, r->options.adapter, &req->adapter, err));
    PROA_TRY(proa_submit_read_prompt(e, req, r, err));
    PROA_TRY(proa_submit_plan(e, req, &r->options, err));
    if (req->session && req->sequences != 1)
        return PROA_FAIL(err, INVALID, "a session has one sequence: 'n', 'best_of' and 'beams' must be 1");
    proa_prefix_cache_prepare(e, req, r);
    return PROA_OK;
}

/* ---- into the inbox ---- */

/* Under the lock: whether `count` more requests may wait. */
static proa_status check_room(const proa_engine *e, int64_t count, proa_err *err)
{
    if (e->shared.lost.status != PROA_OK) return PROA_FAIL(err, UNAVAILABLE, "%s", e->shared.lost.text);
    if (count <= PROA_WAITING_MAX - e->shared.stats.waiting) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "%d requests are waiting already, at most %d may wait",
                     e->shared.stats.waiting, PROA_WAITING_MAX);
}

/* Under the lock. to: the inbox, or the list of those that are held. */
static uint64_t enqueue_request(proa_engine *e, proa_engine_request *req, proa_request_list *to, const char *client)
{
    req->id = ++e->shared.next_id;
    req->usage.submitted_ns = proa_clock_ns();
    if (req->options.timeout_ms > 0)
        req->deadline_ns = req->usage.submitted_ns + (int64_t)1000000 * req->options.timeout_ms;
    req->queue = proa_client_queue_take(&e->shared, client ? client : "", req->options.priority);
    req->live_next = e->shared.live;
    req->live_link = &e->shared.live;
    if (e->shared.live) e->shared.live->live_link = &req->live_next;
    e->shared.live = req;
    proa_request_list_push(to, req);
    e->shared.stats.submitted++;
    e->shared.stats.waiting++;
    return req->id;
}

/* All or none. The stepping thread finds them together. ids: [count] or NULL. */
static proa_status enqueue_all(proa_engine *e, proa_engine_request *const *reqs, const proa_request *requests,
                               int64_t count, proa_request_list *to, uint64_t *ids, proa_err *err)
{
    pthread_mutex_lock(&e->shared.lock);
    proa_status status = check_room(e, count, err);
    for (int64_t i = 0; i < count && status == PROA_OK; i++) {
        uint64_t id = enqueue_request(e, reqs[i], to, requests[i].client);
        if (ids) ids[i] = id;
    }
    if (status == PROA_OK) {
        atomic_store_explicit(&e->shared.work_signalled, true, memory_order_relaxed);
        pthread_cond_signal(&e->shared.work);
    }
    pthread_mutex_unlock(&e->shared.lock);
    return status;
}

static proa_status submit_to(proa_engine *e, const proa_request *requests, int64_t count,
                             proa_request_list *to, uint64_t *ids, proa_err *err)
{
    proa_status status = PROA_OK;
    proa_engine_request **reqs = proa_calloc((size_t)count, sizeof(proa_engine_request *));
    for (int64_t i = 0; i < count && status == PROA_OK; i++) {
        reqs[i] = proa_calloc(1, sizeof *reqs[i]);
        status = make_request(e, reqs[i], &requests[i], err);
    }
    if (status == PROA_OK) status = enqueue_all(e, reqs, requests, count, to, ids, err);
    for (int64_t i = 0; i < count && status != PROA_OK; i++)
        if (reqs[i]) proa_engine_request_free(reqs[i]);
    free(reqs);
    return status;
}

proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id, proa_err *err)
{
    return submit_to(engine, request, 1, &engine->shared.inbox, id, err);
}

proa_status proa_engine_submit_all(proa_engine *engine, const proa_request *requests, int64_t count,
                                   uint64_t *ids, proa_err *err)
{
    if (count < 1 || count > PROA_WAITING_MAX)
        return PROA_FAIL(err, LIMIT, "'count' of requests is %lld, must be 1 to %d", (long long)count,
                         PROA_WAITING_MAX);
    return submit_to(engine, requests, count, &engine->shared.inbox, ids, err);
}

proa_status proa_engine_hold(proa_engine *engine, const proa_request *request, uint64_t *id, proa_err *err)
{
    return submit_to(engine, request, 1, &engine->shared.held, id, err);
}

/* ---- held requests, cancellation ---- */

static bool has_id(void *arg, proa_engine_request *req)
{
    return req->id == *(const uint64_t *)arg;
}

/* Under the lock. A held request that is cancelled ends as soon as others do. */
static void release_held(proa_engine_shared *shared, uint64_t id)
{
    if (!proa_request_list_split(&shared->held, &shared->inbox, has_id, &id)) return;
    atomic_store_explicit(&shared->work_signalled, true, memory_order_relaxed);
    pthread_cond_signal(&shared->work);
}

void proa_engine_release(proa_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->shared.lock);
    release_held(&engine->shared, id);
    pthread_mutex_unlock(&engine->shared.lock);
}

void proa_engine_cancel(proa_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->shared.lock);
    release_held(&engine->shared, id);
    for (proa_engine_request *req = engine->shared.live; req; req = req->live_next)
        if (req->id == id) atomic_store_explicit(&req->cancelled, true, memory_order_release);
    pthread_mutex_unlock(&engine->shared.lock);
}
