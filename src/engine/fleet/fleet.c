/* SPDX-License-Identifier: Apache-2.0
 * fleet.c - opens and closes replicas, passes requests to them and their events back. */
#include "engine/fleet/inner.h"

#include "base/alloc.h"
#include "base/cpu.h"
#include <stdlib.h>
#include <string.h>

/* ---- open and close ---- */

/* Threads of each replica on the host. */
static int32_t threads_of(const proa_engine_options *o, int32_t count)
{
    int32_t all = o->threads ? o->threads : proa_cpu_count(), each = all / count;
    if (count == 1) return o->threads;
    return each > 0 ? each : 1;
}

static proa_status open_replica(proa_fleet *f, int32_t i, const char *path,
                                const proa_engine_options *options, const char *device, proa_err *err)
{
    proa_engine_options o = *options;
    if (device) o.device = device;
    o.threads = threads_of(options, f->count);
    proa_status status = proa_engine_open(&f->replica[i].engine, path, &o, err);
    if (status != PROA_OK && f->count > 1) proa_err_prefix(err, "replica %d of %d", i, f->count);
    return status;
}

static proa_status check_prefill(const proa_fleet_options *fleet, const proa_engine_options *options,
                                 proa_err *err)
{
    if (fleet->prefill == 0) return PROA_OK;
    if (fleet->prefill < 0 || fleet->prefill >= fleet->count)
        return PROA_FAIL(err, INVALID,
                         "option 'disaggregate': prefill=%d of %d replicas, must leave one for decode",
                         fleet->prefill, fleet->count);
    if (options->prefix_cache && strcmp(options->prefix_cache, "off") == 0)
        return PROA_FAIL(err, INVALID, "option 'disaggregate' needs the prefix cache, which is off");
    return PROA_OK;
}

static proa_status check_model(const proa_fleet *f, proa_err *err)
{
    proa_info info;
    proa_engine_info(f->replica[0].engine, &info);
    if (!f->prefill) return PROA_OK;
    if (!proa_kv_handoff_reaches(f->replica[0].engine))
        return PROA_FAIL(
            err, UNSUPPORTED,
            "option 'disaggregate': keys and values of ranks in processes of their own are not handed on");
    if (proa_engine_has_states(f->replica[0].engine))
        return PROA_FAIL(err, UNSUPPORTED,
                         "option 'disaggregate': recurrent states of a %s are not handed on", info.arch);
    if (info.kind == PROA_KIND_DECODER) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "option 'disaggregate': a %s has an encoder, whose outputs are not handed on", info.arch);
}

static void connect_replicas(proa_fleet *f)
{
    for (int32_t from = 0; from < f->prefill; from++)
        for (int32_t to = f->prefill; to < f->count; to++)
            proa_kv_handoff_connect(f->replica[from].engine, f->replica[to].engine);
}

proa_status proa_fleet_open(proa_fleet **out, const char *path, const proa_engine_options *options,
                            const proa_fleet_options *fleet, proa_err *err)
{
    *out = NULL;
    if (fleet->count < 1 || fleet->count > PROA_REPLICAS_MAX)
        return PROA_FAIL(err, INVALID, "option 'replicas' is %d, must be 1 to %d", fleet->count,
                         PROA_REPLICAS_MAX);
    PROA_TRY(check_prefill(fleet, options, err));
    proa_fleet *f = proa_calloc(1, sizeof *f);
    f->replica = proa_calloc((size_t)fleet->count, sizeof *f->replica);
    f->count = fleet->count, f->prefill = fleet->prefill;
    f->rest_ns = (int64_t)1000000 * (fleet->rest_ms > 0 ? fleet->rest_ms : 1000);
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->sessions_lock, NULL);
    proa_status status = PROA_OK;
    for (int32_t i = 0; i < f->count && status == PROA_OK; i++)
        status = open_replica(f, i, path, options, fleet->device[i], err);
    if (status == PROA_OK) status = check_model(f, err);
    if (status == PROA_OK) connect_replicas(f);
    if (status != PROA_OK) return proa_fleet_close(f), status;
    *out = f;
    return PROA_OK;
}

void proa_fleet_close(proa_fleet *f)
{
    if (!f) return;
    proa_fleet_stop(f);
    for (int32_t i = 0; i < f->count; i++) proa_engine_close(f->replica[i].engine);
    proa_fleet_transfers_free(f);
    for (proa_fleet_call *call = f->calls, *next; call; call = next) {
        next = call->next;
        free(call);
    }
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->sessions_lock);
    free(f->replica);
    free(f);
}

proa_status proa_fleet_start(proa_fleet *f, proa_err *err)
{
    for (int32_t i = 0; i < f->count; i++) PROA_TRY(proa_engine_start(f->replica[i].engine, err));
    return PROA_OK;
}

void proa_fleet_stop(proa_fleet *f)
{
    for (int32_t i = 0; i < f->count; i++)
        if (f->replica[i].engine) proa_engine_stop(f->replica[i].engine);
}

int32_t proa_fleet_count(const proa_fleet *f)
{
    return f->count;
}

proa_engine *proa_fleet_engine(const proa_fleet *f, int32_t i)
{
    PROA_ASSERT(i >= 0 && i < f->count);
    return f->replica[i].engine;
}

/* ---- requests ---- */

/* The number of the replica is part of the id. */
static uint64_t id_in_fleet(uint64_t id, int32_t replica)
{
    return id * PROA_REPLICAS_MAX + (uint64_t)replica;
}

static void link_call(proa_fleet_call *call)
{
    proa_fleet *f = call->fleet;
    pthread_mutex_lock(&f->lock);
    call->next = f->calls;
    call->link = &f->calls;
    if (call->next) call->next->link = &call->next;
    f->calls = call;
    pthread_mutex_unlock(&f->lock);
}

static void end_call(proa_fleet_call *call)
{
    proa_fleet *f = call->fleet;
    pthread_mutex_lock(&f->lock);
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    if (call->transfer) call->transfer->call = NULL;
    pthread_mutex_unlock(&f->lock);
    free(call);
}

static void count_less(proa_fleet_call *call, bool done)
{
    proa_replica *replica = &call->fleet->replica[call->replica];
    atomic_fetch_sub_explicit(&replica->queued, call->queued, memory_order_relaxed);
    call->queued = 0;
    if (done) atomic_fetch_sub_explicit(&replica->active, 1, memory_order_relaxed);
}

static void pass_event(const proa_event *event)
{
    proa_fleet_call *call = event->arg;
    proa_event e = *event;
    bool done = e.kind == PROA_EVENT_DONE;
    e.arg = call->arg;
    e.request = id_in_fleet(event->request, call->replica);
    if (done || (e.kind != PROA_EVENT_BEGIN && call->queued)) count_less(call, done);
    int64_t cached_most = atomic_load_explicit(&call->cached_most, memory_order_relaxed);
    if (e.cached_tokens > cached_most) e.cached_tokens = cached_most;
    call->on_event(&e);
    if (done) end_call(call);
}

/* Counts the request before it is submitted: its events may come at once. */
static proa_fleet_call *new_call(proa_fleet *f, int32_t replica, const proa_request *r, int64_t queued)
{
    proa_fleet_call *call = proa_malloc(sizeof *call);
    *call = (proa_fleet_call){.fleet = f, .replica = replica, .queued = queued > 1 ? queued : 1};
    call->on_event = r->on_event, call->arg = r->arg;
    atomic_init(&call->cached_most, INT64_MAX);
    atomic_fetch_add_explicit(&f->replica[replica].queued, call->queued, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->replica[replica].active, 1, memory_order_relaxed);
    link_call(call);
    return call;
}

/* The prompt runs on replica `prefill`; -1: where its tokens are generated, too. */
static proa_status submit_to(proa_fleet *f, int32_t i, int32_t prefill, const proa_request *request,
                             uint64_t *id, proa_err *err)
{
    proa_engine *engine = f->replica[i].engine;
    int64_t rest = proa_fleet_prompt_cost(request) - proa_engine_cached_tokens(engine, request);
    proa_fleet_call *call = new_call(f, i, request, prefill < 0 ? rest : 1);
    proa_request r = *request;
    uint64_t own = 0;
    r.on_event = pass_event, r.arg = call;
    proa_status status = prefill < 0 ? proa_engine_submit(engine, &r, &own, err)
                                     : proa_fleet_transfer(f, prefill, call, &r, &own, err);
    if (status == PROA_OK) {
        if (id) *id = id_in_fleet(own, i);
        return PROA_OK;
    }
    count_less(call, true);
    end_call(call);
    return status;
}

/* Whether another replica should run the request's prompt: it is long enough, most of it is not cached here, and its
 * pages can be used. */
static bool is_worth_moving(const proa_fleet *f, int32_t decode, const proa_request *r)
{
    const proa_options *o = &r->options;
    bool usable = r->task == PROA_TASK_GENERATE && r->ids && !r->session_id && !r->prompt_table &&
                  !o->prompt_logprobs && o->penalty_alpha <= 0;
    return usable &&
           r->ids_count - proa_engine_cached_tokens(f->replica[decode].engine, r) > PROA_HANDOFF_TOKENS_MIN;
}

/* Where no replica of the right kind takes requests, any other is taken, and at last the first one: it may be well
 * again, or its error is the answer. */
static proa_status place_request(proa_fleet *f, const proa_request *r, uint64_t *id, proa_err *err)
{
    int32_t at = proa_fleet_find_session(f, r), prefill = -1;
    bool session = at >= 0;
    if (at < 0) at = proa_fleet_choose(f, r, f->prefill, f->count);
    if (at >= f->prefill && f->prefill && is_worth_moving(f, at, r))
        prefill = proa_fleet_choose(f, r, 0, f->prefill);
    if (at < 0) at = proa_fleet_choose(f, r, 0, f->prefill);
    if (at < 0) at = f->prefill;
    proa_route why = session ? PROA_ROUTE_SESSION : proa_fleet_why(f, at, r);
    atomic_fetch_add_explicit(&f->replica[at].routed[why], 1, memory_order_relaxed);
    return submit_to(f, at, prefill, r, id, err);
}

uint64_t proa_fleet_routed(const proa_fleet *f, int32_t i, proa_route why)
{
    return atomic_load_explicit(&f->replica[i].routed[why], memory_order_relaxed);
}

proa_status proa_fleet_submit(proa_fleet *f, const proa_request *request, uint64_t *id, proa_err *err)
{
    if (f->count == 1) return proa_engine_submit(f->replica[0].engine, request, id, err);
    if (!request->on_event) return PROA_FAIL(err, INVALID, "a request needs on_event");
    bool session = request->session_id != NULL;
    if (session) pthread_mutex_lock(&f->sessions_lock); /* two that begin one session go to one replica */
    proa_status status = place_request(f, request, id, err);
    if (session) pthread_mutex_unlock(&f->sessions_lock);
    return status;
}

void proa_fleet_cancel(proa_fleet *f, uint64_t id)
{
    int32_t replica = (int32_t)(id % PROA_REPLICAS_MAX);
    if (f->count == 1) proa_engine_cancel(f->replica[0].engine, id);
    if (f->count == 1 || replica >= f->count) return;
    if (f->prefill) proa_fleet_transfer_cancel(f, replica, id / PROA_REPLICAS_MAX);
    proa_engine_cancel(f->replica[replica].engine, id / PROA_REPLICAS_MAX);
}

/* ---- all replicas ---- */

static void add_stats(proa_stats *to, const proa_stats *s)
{
    to->steps += s->steps, to->rows += s->rows;
    to->prompt_tokens += s->prompt_tokens, to->new_tokens += s->new_tokens;
    to->drafted += s->drafted, to->accepted += s->accepted;
    to->submitted += s->submitted, to->finished += s->finished;
    to->cancelled += s->cancelled, to->failed += s->failed;
    to->preemptions += s->preemptions;
    to->preemptions_moved += s->preemptions_moved, to->preemptions_recomputed += s->preemptions_recomputed;
    to->running += s->running, to->waiting += s->waiting;
    to->pages_used += s->pages_used, to->pages_free += s->pages_free, to->pages_used_peak += s->pages_used_peak;
    to->pages_cached += s->pages_cached, to->pages_evicted += s->pages_evicted;
    to->prefix_queries += s->prefix_queries, to->prefix_hits += s->prefix_hits;
    to->prefix_hits_host += s->prefix_hits_host, to->prefix_hits_dir += s->prefix_hits_dir;
    to->pages_host += s->pages_host, to->pages_dir += s->pages_dir;
    to->resumed_tokens += s->resumed_tokens, to->resumed_tokens_host += s->resumed_tokens_host;
    to->step_s += s->step_s;
}

void proa_fleet_stats(const proa_fleet *f, proa_stats *stats)
{
    *stats = (proa_stats){.steps = 0};
    for (int32_t i = 0; i < f->count; i++) {
        proa_stats one;
        proa_engine_stats(f->replica[i].engine, &one);
        add_stats(stats, &one);
    }
}

/* An adapter of a path, or of rows. */
typedef struct adapter_source {
    const char *path;
    const proa_adapter_rows *rows;
} adapter_source;

static proa_status load_in_all(proa_fleet *f, const char *name, const adapter_source *from, proa_err *err)
{
    for (int32_t i = 0; i < f->count; i++) {
        proa_engine *e = f->replica[i].engine;
        proa_status status = from->rows ? proa_engine_load_adapter_rows(e, name, from->rows, err)
                                        : proa_engine_load_adapter(e, name, from->path, err);
        if (status == PROA_OK) continue;
        while (i-- > 0) (void)proa_engine_unload_adapter(f->replica[i].engine, name, NULL);
        return status;
    }
    return PROA_OK;
}

proa_status proa_fleet_load_adapter(proa_fleet *f, const char *name, const char *path, proa_err *err)
{
    return load_in_all(f, name, &(adapter_source){.path = path}, err);
}

proa_status proa_fleet_load_adapter_rows(proa_fleet *f, const char *name, const proa_adapter_rows *rows,
                                         proa_err *err)
{
    return load_in_all(f, name, &(adapter_source){.rows = rows}, err);
}

proa_status proa_fleet_unload_adapter(proa_fleet *f, const char *name, proa_err *err)
{
    proa_status status = PROA_OK;
    for (int32_t i = 0; i < f->count; i++) {
        proa_status one = proa_engine_unload_adapter(f->replica[i].engine, name, err);
        if (status == PROA_OK) status = one;
    }
    return status;
}
