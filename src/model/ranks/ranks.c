/* SPDX-License-Identifier: Apache-2.0
 * ranks.c - the ranks of a model: their threads, or their processes, and calls that run in all of them. */
#include "model/ranks/ranks.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "comm/gate.h"
#include "model/lora/lora.h"
#include "model/ranks/states.h"
#include "model/run.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The first broadcast of a call has so many bytes, which is all of most calls. A second one has the rest. */
enum { FIRST_BYTES = 4096, SIZE_BYTES = 16 };

/* How many calls ranks that are threads may be behind rank 0. */
enum { CALLS_AHEAD = 8 };

struct proa_ranks {
    int32_t count, threads; /* threads: those that run, of ranks 1 and up */
    proa_model *model[PROA_RANKS_MAX];
    const proa_kv *kv[PROA_RANKS_MAX];
    float *states[PROA_RANKS_MAX]; /* recurrent states; NULL: rank 0, or there are none */
    proa_rank_message message;     /* the call, of processes */
    /* threads */
    pthread_t thread[PROA_RANKS_MAX];
    proa_err err[PROA_RANKS_MAX];
    /* Call n, counted from 0, in element n % CALLS_AHEAD: threads read it where rank 0 has written it. */
    proa_rank_message called[CALLS_AHEAD];
    atomic_int left[CALLS_AHEAD]; /* ranks that are not done with it */
    proa_gate start, end;         /* calls that have begun, and that all ranks have done */
    uint32_t calls;
    /* processes */
    proa_comm *control;
    proa_rank_hooks hooks;
    bool by_mpi, stages; /* stages: there is more than one */
    char first[FIRST_BYTES];
};

proa_model *proa_ranks_model(const proa_model *m, int32_t rank)
{
    return m->group ? m->group->model[rank] : (proa_model *)(uintptr_t)m;
}

void proa_ranks_set_kv(proa_model *m, int32_t rank, const proa_kv *kv)
{
    if (m->group) m->group->kv[rank] = kv;
}

void proa_ranks_set_states(proa_model *m, int32_t rank, float *memory)
{
    if (m->group) m->group->states[rank] = memory;
}

proa_comm *proa_ranks_control(const proa_model *m)
{
    return m->group ? m->group->control : NULL;
}

void proa_ranks_reserve(proa_model *m, int64_t pages)
{
    enum { PAGES_MAX = 1 << 14 }; /* a step with more of them takes memory */
    proa_ranks *g = m->group;
    if (!g) return;
    int64_t bytes = proa_rank_call_room(m, proa_min64(pages, PAGES_MAX));
    if (g->control) proa_rank_message_room(&g->message, bytes);
    for (int32_t i = 0; i < CALLS_AHEAD && !g->control; i++) proa_rank_message_room(&g->called[i], bytes);
}

/* ---- one rank ---- */

proa_status proa_ranks_check(const proa_model *m, proa_err *err)
{
    proa_comm *const comms[] = {m->comm, m->pipe};
    PROA_TRY(m->device->failed(m->device, err));
    for (size_t i = 0; i < PROA_COUNT(comms); i++)
        if (comms[i] && comms[i]->stopped && comms[i]->stopped(comms[i]))
            return PROA_FAIL(err, UNAVAILABLE, "rank %d: the collectives were stopped", m->rank);
    return PROA_OK;
}

void proa_ranks_rejoin(proa_model *m, const proa_rank_comms *comms)
{
    m->comm = comms->stage;
    m->pipe = comms->pipe;
    m->pipe_waits = comms->pipe_waits;
    m->group->control = comms->control;
}

static proa_status connect_devices(proa_model *m, const proa_rank_hooks *hooks, proa_err *err)
{
    const proa_rank_comms *comms = NULL;
    if (!hooks->connect) return PROA_OK;
    PROA_TRY(hooks->connect(hooks->arg, &comms, err));
    proa_ranks_rejoin(m, comms);
    return PROA_OK;
}

static proa_status run_call(proa_model *m, proa_rank_call *call, proa_err *err)
{
    const proa_rank_hooks *hooks = m->group ? &m->group->hooks : NULL;
    switch (call->kind) {
    case PROA_CALL_LOAD: return proa_run_load(m, call, err);
    case PROA_CALL_PAGES:
        proa_ranks_reserve(m, call->count);
        if (m->rank > 0 && hooks->take_pages) return hooks->take_pages(hooks->arg, call->count, err);
        break;
    case PROA_CALL_COPY:
        if (m->rank > 0 && hooks->copy) hooks->copy(hooks->arg, &call->copy);
        break;
    case PROA_CALL_STATES:
        if (m->rank > 0 && hooks->take_states) return hooks->take_states(hooks->arg, call->count, err);
        break;
    case PROA_CALL_COPY_STATE:
        if (m->rank > 0 && hooks->copy_state) hooks->copy_state(hooks->arg, &call->state_copy);
        break;
    case PROA_CALL_ENCODE: proa_run_encode(m, call); break;
    case PROA_CALL_DECODE: proa_run_decode(m, call); break;
    case PROA_CALL_HEAD: proa_run_output_head(m, call); break;
    case PROA_CALL_OUTPUTS: proa_run_send_outputs(m, call); break;
    case PROA_CALL_ENCODED: return proa_run_encoded(m, call, err);
    case PROA_CALL_SAMPLE: proa_run_sample(m, call); break;
    case PROA_CALL_SAMPLED: return proa_run_sampled(m, call, err);
    case PROA_CALL_TOP_K: proa_run_top_k(m, call); break;
    case PROA_CALL_HIDDEN: proa_run_hidden_states(m, call); break;
    case PROA_CALL_TAPPED: proa_run_tapped_states(m, call); break;
    case PROA_CALL_CONNECT: return connect_devices(m, hooks, err);
    case PROA_CALL_KEYS: proa_run_append(m, call); break;
    case PROA_CALL_ADAPTER: proa_run_adapter(m, call->adapter_slot, call->layer, call->image); break;
    default: break;
    }
    return PROA_OK;
}

static bool has_result(const proa_rank_call *call)
{
    return call->kind == PROA_CALL_LOAD || call->kind == PROA_CALL_PAGES || call->kind == PROA_CALL_STATES ||
           call->kind == PROA_CALL_CONNECT;
}

/* Reads a call into *call, and what the rank must have of rank 0 into m. False: it is broken. */
static bool read_call(proa_model *m, proa_rank_message *message, proa_rank_call *call)
{
    *call = (proa_rank_call){.kind = PROA_CALL_END};
    proa_rank_call_message(message, call, m);
    call->kv = m->group->kv[m->rank];
    call->batch.states_memory = m->group->states[m->rank];
    m->encoder_ticket = call->encoder_ticket;
    m->outputs_stay = call->outputs_stay;
    m->hidden_wanted = call->hidden_wanted;
    return !message->broken;
}

static void write_call(proa_model *m, proa_rank_message *message, proa_rank_call *call)
{
    call->encoder_ticket = m->encoder_ticket;
    call->outputs_stay = m->outputs_stay;
    call->hidden_wanted = m->hidden_wanted;
    call->taps = m->taps;
    proa_rank_message_write(message);
    proa_rank_call_message(message, call, m);
}

/* ---- ranks that are threads ---- */

/* The thread of one rank. */
static void *run_calls(void *arg)
{
    proa_model *m = arg;
    proa_ranks *g = m->group;
    proa_rank_message message = {.bytes = NULL};
    for (uint32_t seen = 0;; seen++) {
        proa_rank_call call;
        proa_gate_wait(&g->start, seen, NULL);
        proa_rank_message_read_shared(&message, &g->called[seen % CALLS_AHEAD]);
        bool whole = read_call(m, &message, &call);
        PROA_ASSERT(whole);
        if (call.kind == PROA_CALL_END) break;
        g->err[m->rank].status = run_call(m, &call, &g->err[m->rank]);
        if (atomic_fetch_sub(&g->left[seen % CALLS_AHEAD], 1) == 1) proa_gate_open(&g->end);
    }
    proa_rank_message_release(&message);
    return NULL;
}

/* Waits until the other ranks are at most `ahead` calls behind. */
static void wait_for_threads(proa_ranks *g, uint32_t ahead)
{
    for (uint32_t done; g->calls - (done = atomic_load(&g->end.value)) > ahead;)
        proa_gate_wait(&g->end, done, NULL);
}

/* In a pipeline on the host rank 0 returns when it has run its own part, while later stages still run theirs. Outputs
 * that stayed with the last stage are there when its thread has run the call. */
static bool goes_ahead(const proa_model *m, const proa_rank_call *call)
{
    bool waits = has_result(call) || call->kind == PROA_CALL_ENCODED;
    return m->device->host && m->plan.part.stages > 1 && !waits;
}

static void start_call(proa_model *m, proa_rank_call *call)
{
    proa_ranks *g = m->group;
    wait_for_threads(g, CALLS_AHEAD - 1);
    write_call(m, &g->called[g->calls % CALLS_AHEAD], call);
    atomic_store(&g->left[g->calls % CALLS_AHEAD], g->count - 1);
    g->calls++;
    proa_gate_open(&g->start);
}

static proa_status run_in_threads(proa_model *m, proa_rank_call *call, proa_err *err)
{
    proa_ranks *g = m->group;
    start_call(m, call);
    proa_status status = run_call(m, call, err);
    if (goes_ahead(m, call)) return status;
    wait_for_threads(g, 0);
    for (int32_t i = 1; i < g->count && status == PROA_OK; i++)
        if ((status = g->err[i].status) != PROA_OK && err) *err = g->err[i];
    return status;
}

void proa_ranks_wait(proa_model *m)
{
    if (m->group && !m->group->control) wait_for_threads(m->group, 0);
}

static proa_status start_threads(proa_ranks *g, proa_err *err)
{
    for (; g->threads < g->count - 1; g->threads++)
        if (pthread_create(&g->thread[g->threads], NULL, run_calls, g->model[g->threads + 1]) != 0)
            return PROA_FAIL(err, UNAVAILABLE, "cannot start the thread of rank %d", g->threads + 1);
    return PROA_OK;
}

/* ---- ranks that are processes ---- */

/* Copies bytes of rank 0 to all ranks. A broadcast may return only when all ranks have called it, but the later stages
 * of a pipeline are behind: there rank 0 sends a message to each. */
static void share_bytes(const proa_ranks *g, void *bytes, int64_t size)
{
    proa_comm *c = g->control;
    proa_view view = proa_view_2d(bytes, PROA_DTYPE_U8, 1, size);
    if (!g->stages) c->broadcast(c, bytes, size, 0);
    else if (c->rank > 0) c->recv(c, view, 0);
    else
        for (int32_t to = 1; to < c->ranks; to++) c->send(c, view, to);
}

static void send_call(proa_ranks *g)
{
    const proa_rank_message *message = &g->message;
    int64_t first = proa_min64(message->size, FIRST_BYTES - SIZE_BYTES), more = message->size - first;
    memcpy(g->first, &message->size, sizeof message->size);
    memcpy(g->first + SIZE_BYTES, message->bytes, (size_t)first);
    share_bytes(g, g->first, FIRST_BYTES);
    if (more) share_bytes(g, message->bytes + first, more);
}

/* False: the group was stopped. */
static bool receive_call(proa_ranks *g)
{
    int64_t size, first, more;
    share_bytes(g, g->first, FIRST_BYTES);
    if (g->control->stopped(g->control)) return false;
    memcpy(&size, g->first, sizeof size);
    if (size < 0 || size > PROA_RANK_CALL_BYTES_MAX) return false;
    first = proa_min64(size, FIRST_BYTES - SIZE_BYTES), more = size - first;
    proa_rank_message_read(&g->message, size);
    memcpy(g->message.bytes, g->first + SIZE_BYTES, (size_t)first);
    if (more) share_bytes(g, g->message.bytes + first, more);
    return !g->control->stopped(g->control);
}

static void note_step(const proa_ranks *g, const proa_rank_call *call, bool begins)
{
    if (!has_result(call) && g->hooks.steps) g->hooks.steps(g->hooks.arg, begins);
}

static proa_status run_in_processes(proa_model *m, proa_rank_call *call, proa_err *err)
{
    proa_ranks *g = m->group;
    note_step(g, call, true);
    write_call(m, &g->message, call);
    send_call(g);
    proa_status status = call->others_only ? PROA_OK : run_call(m, call, err);
    note_step(g, call, false);
    if (has_result(call) && g->hooks.result) return g->hooks.result(g->hooks.arg, status, err);
    return status;
}

proa_status proa_ranks_follow(proa_model *m, proa_err *err)
{
    proa_ranks *g = m->group;
    for (;;) {
        proa_rank_call call;
        proa_err why = {.status = PROA_OK};
        if (!receive_call(g))
            return PROA_FAIL(err, UNAVAILABLE, "rank %d: the other ranks have ended", m->rank);
        if (!read_call(m, &g->message, &call))
            return PROA_FAIL(err, CORRUPT, "rank %d: a call of rank 0 is broken", m->rank);
        if (call.kind == PROA_CALL_END) return PROA_OK;
        note_step(g, &call, true);
        proa_status status = run_call(m, &call, &why);
        note_step(g, &call, false);
        if (has_result(&call) && g->hooks.result) PROA_TRY(g->hooks.result(g->hooks.arg, status, &why));
        /* the process of a rank that has failed ends, which rank 0 notices */
        if (!has_result(&call) && status != PROA_OK) return proa_err_copy(err, &why);
        PROA_TRY(proa_ranks_check(m, err));
    }
}

/* ---- all ---- */

proa_status proa_ranks_run(proa_model *m, proa_rank_call *call, proa_err *err)
{
    if (!m->group) return run_call(m, call, err);
    return m->group->control ? run_in_processes(m, call, err) : run_in_threads(m, call, err);
}

static void end_threads(proa_model *m)
{
    proa_ranks *g = m->group;
    proa_rank_call end = {.kind = PROA_CALL_END};
    start_call(m, &end);
    for (int32_t i = 0; i < g->threads; i++) pthread_join(g->thread[i], NULL);
    for (int32_t i = 0; i < CALLS_AHEAD; i++) proa_rank_message_release(&g->called[i]);
    for (int32_t i = 1; i < g->count; i++) proa_model_free(g->model[i]);
}

static void end_processes(proa_model *m)
{
    proa_ranks *g = m->group;
    proa_rank_call end = {.kind = PROA_CALL_END};
    if (m->rank == 0 && !g->control->stopped(g->control)) {
        write_call(m, &g->message, &end);
        send_call(g);
    }
    m->comm = m->pipe = NULL; /* the caller closes them */
}

void proa_ranks_free(proa_model *m)
{
    proa_ranks *g = m->group;
    if (!g || (!g->control && m->rank != 0)) return;
    if (g->control) end_processes(m);
    else end_threads(m);
    m->group = NULL;
    if (g->by_mpi && g->control->stopped(g->control))
        return; /* an abandoned broadcast may still write to it */
    proa_rank_message_release(&g->message);
    free(g);
}

/* Opens what `count` ranks exchange: ranks first, first + step, ... */
static proa_status open_comm(proa_comm **out, proa_device *const *device, int32_t first, int32_t step,
                             int32_t count, proa_err *err)
{
    proa_device *of[PROA_RANKS_MAX];
    for (int32_t i = 0; i < count; i++) of[i] = device[first + i * step];
    return of[0]->open_comm ? of[0]->open_comm(out, of, count, err) : proa_comm_open_threads(out, count, err);
}

/* The ranks of each stage, and those that have the same part of the layers of their stages. */
static proa_status connect_ranks(proa_ranks *g, proa_device *const *device, proa_err *err)
{
    const proa_rank_part *part = &g->model[0]->plan.part;
    proa_comm *comm[PROA_RANKS_MAX];
    int32_t tensors = part->tensors, stages = part->stages;
    for (int32_t stage = 0; stage < stages && tensors > 1; stage++) {
        PROA_TRY(open_comm(comm, device, stage * tensors, 1, tensors, err));
        for (int32_t i = 0; i < tensors; i++) g->model[stage * tensors + i]->comm = comm[i];
    }
    for (int32_t tensor = 0; tensor < tensors && stages > 1; tensor++) {
        PROA_TRY(open_comm(comm, device, tensor, tensors, stages, err));
        for (int32_t i = 0; i < stages; i++) g->model[tensor + i * tensors]->pipe = comm[i];
    }
    return PROA_OK;
}

/* Collectives between devices move whole units of 16 bytes of a row. */
static proa_status check_widths(const proa_model *m, proa_err *err)
{
    const proa_config *c = &m->config;
    int64_t head = c->head_dim % 4 ? c->head_dim : c->other_head_dim;
    int64_t inputs = m->plan.part.stages > 1 ? proa_dim_size(c, PROA_DIM_LAYER_INPUTS) : 0;
    if (!m->device->host && inputs % 4)
        return PROA_FAIL(err, UNSUPPORTED,
                         "%d ranks on GPUs: inputs of all layers, %lld numbers, must be a multiple of 4",
                         m->ranks, (long long)inputs);
    if (m->device->host || (c->hidden % 8 == 0 && head % 4 == 0 && c->expert_latent % 8 == 0)) return PROA_OK;
    return PROA_FAIL(
        err, UNSUPPORTED,
        "%d ranks on GPUs: the hidden size %lld and the width of experts %lld must be multiples of "
        "8, the size of a head, %lld, of 4",
        m->ranks, (long long)c->hidden, (long long)proa_dim_size(c, PROA_DIM_EXPERT_WIDTH), (long long)head);
}

static proa_status prepare_group(proa_ranks *g, const char *path, const proa_model_options *options,
                                 const proa_rank_places *places, proa_err *err)
{
    proa_model_options o = *options;
    o.ranks = g->count;
    for (int32_t i = 0; i < g->count; i++) {
        o.rank = i;
        PROA_TRY(proa_model_prepare(&g->model[i], path, &o, places->device[i], places->pool[i], err));
        g->model[i]->group = g;
    }
    PROA_TRY(check_widths(g->model[0], err));
    PROA_TRY(connect_ranks(g, places->device, err));
    return start_threads(g, err);
}

proa_status proa_ranks_prepare(proa_model **out, const char *path, const proa_model_options *options,
                               const proa_rank_places *places, proa_err *err)
{
    *out = NULL;
    if (places->count <= 1)
        return proa_model_prepare(out, path, options, places->device[0], places->pool[0], err);
    PROA_ASSERT(places->count <= PROA_RANKS_MAX);
    proa_ranks *g = proa_calloc(1, sizeof *g);
    g->count = places->count;
    proa_status status = prepare_group(g, path, options, places, err);
    if (status == PROA_OK) *out = g->model[0];
    else if (g->model[0]) proa_model_free(g->model[0]);
    else free(g);
    return status;
}

proa_status proa_ranks_join(proa_model *m, const proa_rank_comms *comms, const proa_rank_hooks *hooks,
                            proa_err *err)
{
    proa_ranks *g = proa_calloc(1, sizeof *g);
    PROA_ASSERT(comms->control->broadcast && comms->control->stopped && !m->group);
    g->count = m->ranks;
    g->model[m->rank] = m;
    g->hooks = *hooks;
    g->by_mpi = comms->by_mpi;
    g->stages = m->plan.part.stages > 1;
    m->group = g;
    proa_ranks_rejoin(m, comms);
    return check_widths(m, err);
}
