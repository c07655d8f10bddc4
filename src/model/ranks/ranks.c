/* SPDX-License-Identifier: Apache-2.0
 * ranks.c - the ranks of a model: their threads, and jobs that run in all of them. */
#include "model/ranks/ranks.h"

#include "base/alloc.h"
#include "comm/gate.h"
#include <pthread.h>
#include <stdlib.h>

struct proa_ranks {
    int32_t count, threads; /* threads: those that run, of ranks 1 and up */
    proa_model *model[PROA_RANKS_MAX];
    pthread_t thread[PROA_RANKS_MAX];
    /* Written by rank 0 before it opens `start`; stays until all ranks are done. */
    proa_rank_job *job; /* NULL: the threads end */
    void *arg;
    proa_gate start, end;
    atomic_int left; /* ranks that are not done with the job */
};

proa_model *proa_ranks_model(const proa_model *m, int32_t rank)
{
    return m->group ? m->group->model[rank] : (proa_model *)(uintptr_t)m;
}

/* The thread of one rank. */
static void *run_jobs(void *arg)
{
    proa_model *m = arg;
    proa_ranks *g = m->group;
    for (uint32_t seen = 0;; seen++) {
        proa_gate_wait(&g->start, seen);
        if (!g->job) return NULL;
        g->job(m, g->arg);
        if (atomic_fetch_sub(&g->left, 1) == 1) proa_gate_open(&g->end);
    }
}

void proa_ranks_run(proa_model *m, proa_rank_job *job, void *arg)
{
    proa_ranks *g = m->group;
    if (!g) {
        job(m, arg);
        return;
    }
    uint32_t seen = atomic_load(&g->end.value);
    for (int32_t i = 1; i < g->count; i++) {
        g->model[i]->encoder_ticket = m->encoder_ticket;
        g->model[i]->hidden_wanted = m->hidden_wanted;
    }
    g->job = job, g->arg = arg;
    atomic_store(&g->left, g->count - 1);
    proa_gate_open(&g->start);
    job(m, arg);
    proa_gate_wait(&g->end, seen);
}

void proa_ranks_free(proa_model *m)
{
    proa_ranks *g = m->group;
    if (!g || m->rank != 0) return;
    g->job = NULL;
    proa_gate_open(&g->start);
    for (int32_t i = 0; i < g->threads; i++) pthread_join(g->thread[i], NULL);
    for (int32_t i = 1; i < g->count; i++) proa_model_free(g->model[i]);
    m->group = NULL;
    free(g);
}

static proa_status start_threads(proa_ranks *g, proa_err *err)
{
    for (; g->threads < g->count - 1; g->threads++)
        if (pthread_create(&g->thread[g->threads], NULL, run_jobs, g->model[g->threads + 1]) != 0)
            return PROA_FAIL(err, UNAVAILABLE, "cannot start the thread of rank %d", g->threads + 1);
    return PROA_OK;
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
    if (m->device->host || (m->config.hidden % 8 == 0 && m->config.head_dim % 4 == 0)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "%d ranks on GPUs: the hidden size %lld must be a multiple of 8, that of a head, "
                     "%lld, of 4",
                     m->ranks, (long long)m->config.hidden, (long long)m->config.head_dim);
}

static proa_status prepare_group(proa_ranks *g, const char *path, const proa_model_options *options,
                                 proa_device *const *device, proa_pool *const *pool, proa_err *err)
{
    proa_model_options o = *options;
    o.ranks = g->count;
    for (int32_t i = 0; i < g->count; i++) {
        o.rank = i;
        PROA_TRY(proa_model_prepare(&g->model[i], path, &o, device[i], pool[i], err));
        g->model[i]->group = g;
    }
    PROA_TRY(check_widths(g->model[0], err));
    PROA_TRY(connect_ranks(g, device, err));
    return start_threads(g, err);
}

proa_status proa_ranks_prepare(proa_model **out, const char *path, const proa_model_options *options,
                               proa_device *const *device, proa_pool *const *pool, int32_t ranks, proa_err *err)
{
    *out = NULL;
    if (ranks <= 1) return proa_model_prepare(out, path, options, device[0], pool[0], err);
    PROA_ASSERT(ranks <= PROA_RANKS_MAX);
    proa_ranks *g = proa_calloc(1, sizeof *g);
    g->count = ranks;
    proa_status status = prepare_group(g, path, options, device, pool, err);
    if (status == PROA_OK) *out = g->model[0];
    else if (g->model[0]) proa_model_free(g->model[0]);
    else free(g);
    return status;
}
