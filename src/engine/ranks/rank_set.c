/* SPDX-License-Identifier: Apache-2.0
 * rank_set.c - devices, threads and page memory of the ranks of a model; ranks that are processes. */
#include "engine/ranks/rank_set.h"

#include "base/checked.h"
#include "comm/numa.h"
#include "kernels/connect.h"
#include "base/cpu.h"
#include "base/thread.h"
#include "engine/memory.h"
#include "engine/ranks/device_name.h"
#include <sched.h>
#include <string.h>

static proa_status check_count(const char *option, int32_t count, int32_t most, proa_err *err)
{
    if (count >= 0 && count <= most) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %d, must be 0 to %d", option, count, most);
}

proa_status proa_rank_count(int32_t *ranks, int32_t tensor_parallel, int32_t pipeline_parallel, proa_err *err)
{
    PROA_TRY(check_count("tp", tensor_parallel, PROA_RANKS_MAX, err));
    int32_t tensors = tensor_parallel > 1 ? tensor_parallel : 1;
    PROA_TRY(check_count("pp", pipeline_parallel, PROA_RANKS_MAX / tensors, err));
    *ranks = tensors * (pipeline_parallel > 1 ? pipeline_parallel : 1);
    return PROA_OK;
}

/* A model on ranks of MPI has as many ranks as MPI has started processes. */
static proa_status check_mpi(proa_rank_set *s, proa_err *err)
{
    s->mpi = proa_mpi_world();
    if (!s->mpi)
        return PROA_FAIL(err, INVALID, "option 'ranks' is 'mpi', but mpirun has not started this process");
    if (s->mpi->ranks == s->count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "mpirun has started %d processes, the model has %d ranks (--tp, --pp)",
                     s->mpi->ranks, s->count);
}

static proa_status read_kind(proa_rank_set *s, const char *kind, proa_err *err)
{
    bool known = !kind || strcmp(kind, "thread") == 0 || strcmp(kind, "process") == 0 ||
                 strcmp(kind, "mpi") == 0;
    if (!known)
        return PROA_FAIL(err, INVALID, "option 'ranks' is '%s', must be thread, process or mpi", kind);
    if (!kind) kind = proa_mpi_world() ? "mpi" : "thread";
    bool threads = s->count == 1 || strcmp(kind, "thread") == 0;
    s->local = threads ? s->count : 1;
    if (threads) return PROA_OK;
    return strcmp(kind, "mpi") == 0 ? check_mpi(s, err) : PROA_OK;
}

/* A thread starts on the CPUs of the thread that creates it, so this one is bound to the node of the rank meanwhile. */
static proa_pool *make_pool(int32_t node, int threads)
{
    cpu_set_t before;
    bool binds = node >= 0 && sched_getaffinity(0, sizeof before, &before) == 0;
    if (binds) proa_numa_bind(node);
    proa_pool *pool = proa_pool_new(threads);
    if (binds) sched_setaffinity(0, sizeof before, &before);
    return pool;
}

proa_status proa_rank_set_open(proa_rank_set *s, const char *device, int32_t ranks, int threads,
                               const char *kind, proa_err *err)
{
    char name[32];
    int all = threads ? threads : proa_cpu_count();
    s->count = ranks;
    PROA_TRY(read_kind(s, kind, err));
    s->threads = s->count == 1 ? threads : (int)proa_max64(1, all / s->count);
    if (s->mpi && !threads) s->threads = 0; /* each has the CPUs that the launcher gives it */
    s->device_name = device;
    for (int32_t i = 0; i < s->local; i++) {
        s->pool[i] = make_pool(s->local < s->count && !s->mpi ? proa_numa_node_of(i, s->count) : -1, s->threads);
        const char *own = s->mpi ? proa_rank_local_device(name, device) : proa_rank_device_name(name, device, i);
        PROA_TRY(proa_device_open(&s->device[i], own, err));
    }
    return PROA_OK;
}

/* ---- processes ---- */

static proa_status wait_for_results(void *arg, proa_status status, proa_err *err)
{
    const proa_rank_set *s = arg;
    return proa_rank_processes_result(s->processes, status, err);
}

static proa_status connect_devices(void *arg, const proa_rank_comms **comms, proa_err *err)
{
    const proa_rank_set *s = arg;
    *comms = proa_rank_processes_comms(s->processes);
    return proa_rank_processes_connect(s->processes, s->device[0], err);
}

static void note_step(void *arg, bool begins)
{
    const proa_rank_set *s = arg;
    proa_rank_processes_step(s->processes, begins);
}

/* Connects the devices of all ranks. */
static proa_status connect_all(const proa_rank_set *s, proa_model *m, proa_err *err)
{
    if (s->device[0]->host) return PROA_OK;
    return proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_CONNECT}, err);
}

static void wait_for_stages(void *arg)
{
    proa_ranks_wait(arg);
}

static void copy_in_processes(void *arg, const proa_kv_copy *copy)
{
    proa_rank_call call = {.kind = PROA_CALL_COPY, .copy = *copy};
    proa_status status = proa_ranks_run(arg, &call, NULL);
    PROA_UNUSED(status); /* a copy has no result */
}

static void copy_state_in_processes(void *arg, const proa_state_copy *copy)
{
    proa_rank_call call = {.kind = PROA_CALL_COPY_STATE, .state_copy = *copy};
    proa_status status = proa_ranks_run(arg, &call, NULL);
    PROA_UNUSED(status); /* a copy has no result */
}

/* Keeps a copy of how the processes are opened: the caller's texts may go. */
static void keep_open(proa_rank_set *s, const proa_rank_open *open)
{
    s->open = *open;
    proa_rank_message_write(&s->opened);
    proa_rank_open_message(&s->opened, &s->open);
    proa_rank_message_read(&s->opened, s->opened.size);
    proa_rank_open_message(&s->opened, &s->open);
}

static proa_status start_processes(proa_rank_set *s, proa_rank_processes **out, proa_err *err)
{
    return proa_rank_processes_start(out, &s->open, s->mpi, s->notify, s->notify_arg, err);
}

static proa_status prepare_processes(proa_rank_set *s, proa_model **m, const char *path,
                                     const proa_model_options *options, proa_err *err)
{
    proa_rank_open open = {.path = path, .device = s->device_name, .threads = s->threads, .model = *options};
    PROA_TRY(proa_collectives_wait_ms(&open.wait_ms, err));
    const proa_rank_hooks hooks = {
        .result = wait_for_results, .connect = connect_devices, .steps = note_step, .arg = s};
    open.model.rank = 0, open.model.ranks = s->count;
    open.node = s->mpi ? -1 : 0; /* the launcher binds processes to CPUs */
    keep_open(s, &open);
    PROA_TRY(start_processes(s, &s->processes, err));
    PROA_TRY(proa_model_prepare(m, path, &open.model, s->device[0], s->pool[0], err));
    s->print = proa_rank_model_print(*m);
    PROA_TRY(proa_rank_processes_opened(s->processes, s->print, err));
    s->joined = true;
    PROA_TRY(proa_ranks_join(*m, proa_rank_processes_comms(s->processes), &hooks, err));
    return connect_all(s, *m, err);
}

/* Their parts of the weights, pages and states, which rank 0 still has. */
static proa_status load_processes(const proa_rank_set *s, proa_model *m, const proa_rank_memory *memory,
                                  proa_err *err)
{
    proa_rank_call load = {.kind = PROA_CALL_LOAD, .others_only = true};
    PROA_TRY(connect_all(s, m, err));
    PROA_TRY(proa_ranks_run(m, &load, err));
    PROA_TRY(proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_PAGES, .count = memory->pages}, err));
    if (!memory->states) return PROA_OK;
    return proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_STATES, .count = memory->states}, err);
}

proa_status proa_rank_set_restart(proa_rank_set *s, proa_model *m, const proa_rank_memory *memory, proa_err *err)
{
    proa_rank_processes *before = s->processes, *now;
    proa_err why = {.status = PROA_OK};
    if (proa_rank_processes_failed(before, &why) == PROA_OK) return PROA_OK;
    proa_rank_processes_end(before, &why); /* their memory is needed */
    if (s->mpi) return PROA_FAIL(err, UNAVAILABLE, "ranks of MPI are started by mpirun only");
    PROA_TRY(start_processes(s, &now, err));
    proa_status status = proa_rank_processes_opened(now, s->print, err);
    if (status != PROA_OK) return proa_rank_processes_close(now), status;
    proa_ranks_rejoin(m, proa_rank_processes_comms(now));
    s->processes = now;
    atomic_fetch_add(&s->restarts, 1);
    proa_rank_processes_close(before);
    status = load_processes(s, m, memory, &why);
    if (status == PROA_OK) return PROA_OK;
    proa_rank_processes_end(now, &why);
    if (err) *err = why;
    return status;
}

/* ---- all ---- */

proa_status proa_rank_set_prepare(proa_rank_set *s, proa_model **m, const char *path,
                                  const proa_model_options *options, proa_err *err)
{
    if (s->local < s->count) return prepare_processes(s, m, path, options, err);
    const proa_rank_places places = {s->device, s->pool, s->count};
    return proa_ranks_prepare(m, path, options, &places, err);
}

proa_status proa_rank_set_pages(proa_rank_set *s, proa_kv_pages *pages, proa_model *m, proa_err *err)
{
    for (int32_t i = 1; i < s->local; i++) {
        proa_kv_shape shape = proa_kv_shape_of(proa_ranks_model(m, i));
        shape.dtype = m->formats.kv;
        PROA_TRY(proa_kv_pages_init_attached(&s->pages[i], pages, s->device[i], shape, err));
    }
    if (s->local > 1) proa_kv_pages_set_settle(pages, wait_for_stages, m);
    if (s->local == s->count) return proa_ranks_reserve(m, pages->count), PROA_OK;
    proa_kv_pages_set_copied(pages, copy_in_processes, m);
    return proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_PAGES, .count = pages->count}, err);
}

proa_status proa_rank_set_states(proa_rank_set *s, proa_state_slots *states, proa_model *m, proa_err *err)
{
    if (!states->numbers) return PROA_OK;
    for (int32_t i = 1; i < s->local; i++) {
        proa_status status = proa_state_slots_init_attached(&s->states[i], states, s->device[i],
                                                            proa_model_state(proa_ranks_model(m, i)), err);
        if (status != PROA_OK) return status;
        proa_ranks_set_states(m, i, s->states[i].memory);
    }
    if (s->local > 1) proa_state_slots_set_settle(states, wait_for_stages, m);
    if (s->local == s->count) return PROA_OK;
    proa_state_slots_set_copied(states, copy_state_in_processes, m);
    return proa_ranks_run(
        m, &(proa_rank_call){.kind = PROA_CALL_STATES, .count = states->count + states->marks + states->kept},
        err);
}

void proa_rank_set_layers(const proa_rank_set *s, const proa_kv_pages *pages, proa_model *m, proa_kv *kv)
{
    for (int32_t rank = 0; rank < s->local; rank++) {
        proa_kv *own = kv + rank * m->kv_layers;
        for (int32_t layer = 0; layer < m->kv_layers; layer++)
            own[layer] = proa_kv_pages_layer(rank ? &s->pages[rank] : pages, layer);
        proa_ranks_set_kv(m, rank, own);
    }
}

proa_status proa_rank_set_failed(const proa_rank_set *s, proa_err *err)
{
    if (s->processes) PROA_TRY(proa_rank_processes_check(s->processes, err));
    for (int32_t i = 0; i < s->local; i++) PROA_TRY(s->device[i]->failed(s->device[i], err));
    return PROA_OK;
}

void proa_rank_set_release_pages(proa_rank_set *s)
{
    if (s->joined) proa_rank_processes_expect_end(s->processes);
    for (int32_t i = 1; i < s->local; i++) {
        proa_kv_pages_release(&s->pages[i]);
        proa_state_slots_release(&s->states[i]);
    }
}

void proa_rank_set_close(proa_rank_set *s)
{
    proa_rank_processes_close(s->processes);
    proa_rank_message_release(&s->opened);
    for (int32_t i = 0; i < s->local; i++) {
        proa_device_close(s->device[i]);
        proa_pool_free(s->pool[i]);
    }
}
