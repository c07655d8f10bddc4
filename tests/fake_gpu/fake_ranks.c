/* SPDX-License-Identifier: Apache-2.0
 * fake_ranks.c - a plug-in in place of libproa_cuda.so (PROA_CUDA_PLUGIN names it) for ranks in processes: GPUs whose
 * memory is the host's and whose ops are those of the CPU. They are connected as by the real one, by cards and
 * kernels/nccl.c; what they exchange goes through the comm that connected them. Ranks of all processes are one line.
 *
 *   FAKE_GPUS=N       how many a process sees; 2 without it
 *   FAKE_GPU_NAME=X   the UUID of all of them
 *
 * Threads: as kernels/device.h. */
#include "base/alloc.h"
#include "kernels/connect.h"
#include <stdlib.h>
#include <string.h>

typedef struct fake_comm {
    proa_comm base;
    proa_comm *control; /* the caller's */
} fake_comm;

static int gpus(void)
{
    const char *named = getenv("FAKE_GPUS");
    return named ? atoi(named) : 2;
}

/* ---- the device ---- */

PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err);
PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err)
{
    *out = NULL;
    if (version != PROA_CUDA_VERSION) return PROA_FAIL(err, UNSUPPORTED, "another version");
    if (index >= gpus())
        return PROA_FAIL(err, INVALID, "device 'cuda:%d': there are %d GPUs, numbered from 0", index, gpus());
    PROA_TRY(proa_device_open(out, "cpu", err));
    (*out)->name = "fake GPU", (*out)->host = false, (*out)->gpu = index;
    (*out)->ops = proa_ops_cpu(PROA_ISA_GENERIC); /* the reference needs no scratch of the host */
    return PROA_OK;
}

PROA_EXPORT int32_t proa_cuda_visible(void);
PROA_EXPORT int32_t proa_cuda_visible(void)
{
    return gpus();
}

/* ---- collectives ---- */

static proa_comm *control_of(proa_comm *c)
{
    return ((fake_comm *)(void *)c)->control;
}

static void all_reduce(proa_comm *c, proa_view y, proa_view x, proa_view residual)
{
    control_of(c)->all_reduce(control_of(c), y, x, residual);
}

static void gather_columns(proa_comm *c, proa_view y, proa_view x)
{
    control_of(c)->gather_columns(control_of(c), y, x);
}

static void send_rows(proa_comm *c, proa_view x, int32_t to)
{
    control_of(c)->send(control_of(c), x, to);
}

static void receive_rows(proa_comm *c, proa_view y, int32_t from)
{
    control_of(c)->recv(control_of(c), y, from);
}

static void stop_comm(proa_comm *c)
{
    control_of(c)->stop(control_of(c));
}

static bool is_stopped(proa_comm *c)
{
    return control_of(c)->stopped(control_of(c));
}

static void close_comm(proa_comm *c)
{
    free(c);
}

/* ---- connecting ---- */

static void fill_card(proa_gpu_card *card, int gpu)
{
    proa_err why = {.status = PROA_OK};
    proa_status status = proa_gpu_card_make(card, &why);
    proa_gpu_card_fail(card, status, &why);
    snprintf(card->gpu, sizeof card->gpu, "%s", getenv("FAKE_GPU_NAME") ? getenv("FAKE_GPU_NAME") : "");
    if (!card->gpu[0]) snprintf(card->gpu, sizeof card->gpu, "gpu-%d", gpu);
}

static proa_status agree(proa_gpu_card *all, proa_gpu_card *own, proa_comm *control, proa_rank_line line,
                         proa_err *err)
{
    bool peer;
    proa_err why = {.status = PROA_OK};
    PROA_TRY(proa_gpu_cards_exchange(all, own, control, err));
    PROA_TRY(proa_gpu_cards_failed(all, line, err));
    PROA_TRY(proa_gpu_cards_choose(&peer, all, line, err));
    if (!peer) proa_gpu_card_fail(own, proa_nccl_open(&own->nccl, &why), &why);
    PROA_TRY(proa_gpu_cards_exchange(all, own, control, err));
    PROA_TRY(proa_gpu_cards_failed(all, line, err));
    return proa_gpu_cards_check_nccl(all, line, err);
}

PROA_EXPORT proa_status proa_cuda_connect(proa_comm **out, proa_device *d, proa_comm *control,
                                          proa_rank_line line, proa_err *err);
PROA_EXPORT proa_status proa_cuda_connect(proa_comm **out, proa_device *d, proa_comm *control,
                                          proa_rank_line line, proa_err *err)
{
    proa_gpu_card own, *all = proa_calloc((size_t)control->ranks, sizeof *all);
    fill_card(&own, d->gpu);
    proa_status status = line.count == control->ranks ? PROA_OK : PROA_FAIL(err, UNSUPPORTED, "several lines");
    if (status == PROA_OK) status = agree(all, &own, control, line, err);
    free(all);
    if (status != PROA_OK) return status;
    fake_comm *c = proa_calloc(1, sizeof *c);
    c->base = (proa_comm){.rank = control->rank,
                          .ranks = control->ranks,
                          .all_reduce = all_reduce,
                          .gather_columns = gather_columns,
                          .send = send_rows,
                          .recv = receive_rows,
                          .close = close_comm,
                          .stop = stop_comm,
                          .stopped = is_stopped};
    c->control = control;
    *out = &c->base;
    return PROA_OK;
}
