/* SPDX-License-Identifier: Apache-2.0
 * fake_ranks.c - a plug-in in place of libproa_cuda.so (PROA_CUDA_PLUGIN names it) for ranks in processes: GPUs whose
 * memory is the host's and whose ops are those of the CPU. They are connected as by the real one, by cards and
 * kernels/nccl.c; what they exchange goes through memory that the first rank of a line shares.
 *
 *   FAKE_GPUS=N       how many a process sees, at most 16; 2 without it
 *   FAKE_GPU_NAME=X   the UUID of all of them
 *   FAKE_GPU_FAILS=X  all but the first have failed once the file X exists: what they send to the host does not
 *                     arrive, and the failure is noticed by who waits for it, as on a real GPU
 *   FAKE_GPU_FREEZES=X  the threads of all ranks but the first stop between two calls once the file X exists
 *   FAKE_GPU_HANGS=X  all but the first hang once the file X exists: who waits for one waits without an end. The
 *                     others notice it after PROA_COLLECTIVES_WAIT seconds
 *
 * Threads: as kernels/device.h. */
#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/connect.h"
#include "kernels/plugin.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPUS_MAX = 16 };

static int gpus(void)
{
    const char *named = getenv("FAKE_GPUS");
    int count = named ? atoi(named) : 2;
    return count < GPUS_MAX ? count : GPUS_MAX;
}

/* ---- the device ---- */

static bool file_exists(const char *variable)
{
    const char *file = getenv(variable);
    return file && access(file, F_OK) == 0;
}

static bool has_failed(const proa_device *d)
{
    return d->gpu > 0 && file_exists("FAKE_GPU_FAILS");
}

/* Of each GPU, since threads may be its ranks: by ticket, what was sent after the failure; whether it was noticed. */
static atomic_bool lost[GPUS_MAX][2 * PROA_SEND_TICKETS], noticed[GPUS_MAX];

static void fake_send(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket)
{
    bool fails = has_failed(d);
    lost[d->gpu][ticket] = fails;
    if (bytes && !fails) memcpy(dst, src, (size_t)bytes);
}

static void fake_sent(proa_device *d, int ticket)
{
    while (d->gpu > 0 && file_exists("FAKE_GPU_HANGS")) pause();
    if (lost[d->gpu][ticket]) noticed[d->gpu] = true;
}

static proa_status fake_failed(proa_device *d, proa_err *err)
{
    while (d->gpu > 0 && file_exists("FAKE_GPU_FREEZES")) pause(); /* a rank asks after each call */
    if (!noticed[d->gpu]) return PROA_OK;
    usleep(50000); /* long enough for others to use what was sent before */
    return PROA_FAIL(err, INTERNAL, "the fake GPU has failed");
}

/* The reference needs scratch, which a model has on the host only, for the row between an expert's two products. */
static void scratch_experts(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                            const proa_experts *e)
{
    static _Thread_local _Alignas(64) char memory[1 << 20];
    if (!c->scratch) c->scratch = memory, c->scratch_bytes = sizeof memory;
    proa_ops_cpu(PROA_ISA_GENERIC)->experts(c, y, x, weights, ids, e);
}

static proa_ops fake_ops;
static pthread_once_t ops_are_filled = PTHREAD_ONCE_INIT;

static void fill_ops(void)
{
    fake_ops = *proa_ops_cpu(PROA_ISA_GENERIC);
    fake_ops.experts = scratch_experts;
}

PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err);
PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err)
{
    *out = NULL;
    if (version != proa_cuda_version()) return PROA_FAIL(err, UNSUPPORTED, "another version");
    if (index >= gpus())
        return PROA_FAIL(err, INVALID, "device 'cuda:%d': there are %d GPUs, numbered from 0", index, gpus());
    PROA_TRY(proa_device_open(out, "cpu", err));
    (*out)->name = "fake GPU", (*out)->host = false, (*out)->gpu = index;
    (*out)->send = fake_send, (*out)->sent = fake_sent, (*out)->failed = fake_failed;
    pthread_once(&ops_are_filled, fill_ops);
    (*out)->ops = &fake_ops;
    return PROA_OK;
}

PROA_EXPORT int32_t proa_cuda_visible(void);
PROA_EXPORT int32_t proa_cuda_visible(void)
{
    return gpus();
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

/* What the plug-in's collectives have (kernels/cuda/comm/comm.cu, kernels/nccl.c). */
static bool (*was_stopped)(proa_comm *c);
static atomic_llong hangs_since;

static bool is_silent(proa_comm *c)
{
    int64_t never = 0, now = proa_clock_ns();
    int32_t wait_ms;
    if (was_stopped(c) || proa_collectives_wait_ms(&wait_ms, NULL) != PROA_OK) return true;
    if (!file_exists("FAKE_GPU_HANGS")) return false;
    atomic_compare_exchange_strong(&hangs_since, &never, now);
    return now - atomic_load(&hangs_since) > (int64_t)wait_ms * 1000000;
}

static proa_status agree(proa_gpu_card *all, proa_gpu_card *own, bool *waits, proa_comm *control,
                         proa_rank_line line, proa_err *err)
{
    bool peer;
    proa_err why = {.status = PROA_OK};
    PROA_TRY(proa_gpu_cards_exchange(all, own, control, err));
    PROA_TRY(proa_gpu_cards_failed(all, line, err));
    PROA_TRY(proa_gpu_cards_choose(&peer, all, line, err));
    *waits = !peer;
    if (!peer) proa_gpu_card_fail(own, proa_nccl_open(&own->nccl, &why), &why);
    PROA_TRY(proa_gpu_cards_exchange(all, own, control, err));
    PROA_TRY(proa_gpu_cards_failed(all, line, err));
    return proa_gpu_cards_check_nccl(all, line, err);
}

/* The file of a line, which its first rank has made, as the other processes find it. */
static proa_status open_line(proa_comm **out, proa_comm *control, proa_rank_line line, proa_err *err)
{
    char path[64] = "";
    int32_t rank = (control->rank - line.first) / line.step;
    int own = -1, fd = -1;
    proa_status status = rank == 0 ? proa_comm_shared_file(&own, line.count, err) : PROA_OK;
    for (int32_t first = 0; first < control->ranks; first++) { /* each rank may be the first one of a line */
        char theirs[sizeof path] = "";
        if (first == control->rank) snprintf(theirs, sizeof theirs, "/proc/%d/fd/%d", (int)getpid(), own);
        control->broadcast(control, theirs, sizeof theirs, first);
        if (first == line.first) memcpy(path, theirs, sizeof path);
    }
    if (status == PROA_OK) fd = open(path, O_RDWR | O_CLOEXEC);
    if (status == PROA_OK) status = proa_comm_open_shared(out, fd, rank, line.count, err);
    if (status == PROA_OK) was_stopped = (*out)->stopped, (*out)->stopped = is_silent;
    for (int32_t i = 0; i < control->ranks; i++) control->broadcast(control, path, sizeof path, i);
    if (fd >= 0) close(fd);
    if (own >= 0) close(own);
    return status;
}

PROA_EXPORT proa_status proa_cuda_connect_line(proa_comm **out, bool *waits, proa_device *d,
                                               proa_comm *control, proa_rank_line line, proa_err *err);
PROA_EXPORT proa_status proa_cuda_connect_line(proa_comm **out, bool *waits, proa_device *d,
                                               proa_comm *control, proa_rank_line line, proa_err *err)
{
    proa_gpu_card own, *all = proa_calloc((size_t)control->ranks, sizeof *all);
    fill_card(&own, d->gpu);
    proa_status status = agree(all, &own, waits, control, line, err);
    free(all);
    return status == PROA_OK ? open_line(out, control, line, err) : status;
}
