/* SPDX-License-Identifier: Apache-2.0
 * connect.cu - the GPU of a process and those of other processes (kernels/connect.h): memory for each other, exported
 * and opened by CUDA IPC, or NCCL. All ranks take part in each exchange of cards, also one that has failed, so that
 * none waits for another. */
#include "kernels/cuda/comm/comm.h"

extern "C" {
#include "base/alloc.h"
#include "kernels/connect.h"
#include "kernels/ipc.h"
}
#include <stdlib.h>
#include <string.h>

/* A rank on its way into a group. */
struct connection {
    gpu *g;
    proa_comm *control;
    proa_rank_line line;
    int32_t rank;       /* in the line */
    proa_gpu_card card; /* its own */
    proa_gpu_card *all; /* [control->ranks] */
    proa_err failure;   /* of the line: the same in all of its ranks */
    char **memory;      /* [line.count] of each rank; its own is in [rank]. NULL: not opened */
    bool peer;
    bool large; /* by NCCL, beside memory: what the first rank of the line has timed, or times now */
};

static void name_gpu(proa_gpu_card *card, int index)
{
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, index) != cudaSuccess) return;
    for (int i = 0; i < 16; i++) snprintf(card->gpu + 2 * i, 3, "%02x", (unsigned char)prop.uuid.bytes[i]);
}

static void note_failure(connection *c, proa_status status, const proa_err *why)
{
    proa_gpu_card_fail(&c->card, status, why);
}

static proa_status exchange_cards(connection *c, proa_err *err)
{
    return proa_gpu_cards_exchange(c->all, &c->card, c->control, err);
}

/* Whether the line has failed, by the cards of the last exchange. */
static bool has_failed(connection *c)
{
    return c->failure.status != PROA_OK || proa_gpu_cards_failed(c->all, c->line, &c->failure) != PROA_OK;
}

static const proa_gpu_card *card_of(const connection *c, int32_t i)
{
    return &c->all[c->line.first + i * c->line.step];
}

/* ---- memory ---- */

static void export_memory(connection *c)
{
    proa_err why = {};
    proa_status status = gpu_comm_memory(&c->memory[c->rank], c->g, c->line.count, &why);
    static_assert(sizeof c->card.memory == PROA_IPC_HANDLE_BYTES, "the handle of a card");
    if (status == PROA_OK)
        status = proa_cuda_ipc_export(c->g->index, c->memory[c->rank], c->card.memory, &why);
    note_failure(c, status, &why);
}

static void open_memory(connection *c)
{
    for (int32_t i = 0; i < c->line.count; i++) {
        proa_err why = {}, all = {};
        int64_t bytes;
        if (i == c->rank) continue;
        proa_status status = proa_cuda_ipc_open(c->g->index, card_of(c, i)->memory, (void **)&c->memory[i],
                                                &bytes, &why);
        if (status == PROA_OK) continue;
        c->memory[i] = NULL;
        PROA_FAIL(&all, UNSUPPORTED, "the memory of the GPU of rank %d cannot be opened: %s",
                  c->line.first + i * c->line.step, why.text);
        note_failure(c, PROA_UNSUPPORTED, &all);
        return;
    }
}

static void release_memory(connection *c)
{
    for (int32_t i = 0; i < c->line.count; i++)
        if (i != c->rank && c->memory[i]) proa_cuda_ipc_close(c->g->index, c->memory[i]);
    cudaFree(c->memory[c->rank]);
    memset(c->memory, 0, (size_t)c->line.count * sizeof *c->memory);
}

/* ---- NCCL ---- */

static bool is_stopped(void *arg)
{
    proa_comm *control = (proa_comm *)arg;
    return control->stopped && control->stopped(control);
}

/* The library, and an id by the first rank of the line. Beside memory it may be missing. */
static void open_nccl(connection *c)
{
    proa_err why = {};
    proa_status status = proa_nccl_open(&c->card.nccl, &why);
    if (status == PROA_OK && c->rank == 0) status = proa_nccl_make_id(c->card.nccl_id, &why);
    if (status != PROA_OK) c->card.nccl = 0;
    if (!c->peer) note_failure(c, status, &why);
}

static proa_status join_nccl(proa_comm **out, connection *c, proa_err *err)
{
    proa_nccl_comm *nccl = NULL;
    PROA_TRY(proa_gpu_cards_check_nccl(c->all, c->line, err));
    proa_nccl_place place = {card_of(c, 0)->nccl_id, c->rank, c->line.count};
    PROA_TRY(proa_nccl_join(&nccl, place, is_stopped, c->control, err));
    return gpu_comm_of_nccl(out, c->g, nccl, c->rank, c->line.count, c->all[0].wait_ms, err);
}

/* ---- both ---- */

/* Memory is opened where that is possible. If a rank cannot, all of its line use NCCL, if that is allowed. */
static proa_status agree_on_memory(connection *c, proa_err *err)
{
    PROA_TRY(exchange_cards(c, err));
    if (!has_failed(c) && proa_gpu_cards_choose(&c->peer, c->all, c->line, &c->failure) == PROA_OK && c->peer)
        open_memory(c);
    PROA_TRY(exchange_cards(c, err));
    bool may_change = c->peer && c->all[0].collectives == PROA_COLLECTIVES_AUTO;
    if (!may_change || proa_gpu_cards_failed(c->all, c->line, NULL) == PROA_OK) return PROA_OK;
    c->peer = false;
    c->card.status = PROA_OK;
    return PROA_OK;
}

static proa_status connect_line(proa_comm **out, connection *c, proa_err *err)
{
    proa_err why = {};
    proa_status status = proa_gpu_card_make(&c->card, &why);
    note_failure(c, status, &why);
    name_gpu(&c->card, c->g->index);
    if (c->card.collectives == PROA_COLLECTIVES_AUTO)
        c->card.nccl_from = gpu_comm_large_from(c->g, c->line.count);
    if (c->card.collectives != PROA_COLLECTIVES_NCCL) export_memory(c);
    PROA_TRY(agree_on_memory(c, err));
    c->large = c->peer && c->all[0].collectives == PROA_COLLECTIVES_AUTO && card_of(c, 0)->nccl_from != 0;
    if ((!c->peer || c->large) && c->failure.status == PROA_OK) open_nccl(c);
    PROA_TRY(exchange_cards(c, err));
    if (has_failed(c)) return proa_err_copy(err, &c->failure);
    if (!c->peer) return join_nccl(out, c, err);
    PROA_TRY(gpu_comm_of_process(out, c->g, c->memory, c->rank, c->line.count, c->all[0].wait_ms, err));
    memset(c->memory, 0, (size_t)c->line.count * sizeof *c->memory); /* they are the comm's */
    return PROA_OK;
}

/* Beside memory NCCL is an addition: where a rank does not have it, its line does without. */
static proa_status join_beside(proa_comm **out, connection *c, proa_comm *peer, proa_err *err)
{
    for (int32_t i = 0; i < c->line.count; i++) c->large = c->large && card_of(c, i)->nccl > 0;
    if (!c->large) return PROA_OK;
    PROA_TRY(join_nccl(out, c, err));
    if (card_of(c, 0)->nccl_from == GPU_COMM_TIMES) c->card.nccl_from = gpu_comm_time_both(c->g, peer, *out);
    return PROA_OK;
}

/* What the first rank of the line has timed counts. All lines take part in the last exchange. */
static proa_status connect_both(proa_comm **out, connection *c, proa_err *err)
{
    proa_comm *nccl = NULL;
    proa_status status = connect_line(out, c, err);
    if (status == PROA_OK) status = join_beside(&nccl, c, *out, err);
    if (status == PROA_OK) status = exchange_cards(c, err);
    else (void)!exchange_cards(c, NULL);
    int64_t from = card_of(c, 0)->nccl_from;
    if (nccl && status == PROA_OK && from > 0) gpu_comm_set_large(*out, nccl, from);
    else if (nccl) nccl->close(nccl);
    if (status != PROA_OK && *out) (*out)->close(*out), *out = NULL;
    return status;
}

extern "C" __attribute__((visibility("default"))) proa_status proa_cuda_connect_line(
    proa_comm **out, bool *waits, proa_device *d, proa_comm *control, proa_rank_line line, proa_err *err)
{
    connection c = {gpu_enter(d), control, line, (control->rank - line.first) / line.step};
    *out = NULL;
    c.all = (proa_gpu_card *)proa_calloc((size_t)control->ranks, sizeof *c.all);
    c.memory = (char **)proa_calloc((size_t)line.count, sizeof *c.memory);
    proa_status status = connect_both(out, &c, err);
    *waits = !c.peer;
    release_memory(&c); /* what the comm did not take */
    free(c.memory);
    free(c.all);
    return status;
}

extern "C" __attribute__((visibility("default"))) int32_t proa_cuda_visible(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
