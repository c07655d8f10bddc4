/* SPDX-License-Identifier: Apache-2.0
 * comms.c - files in memory for the groups of ranks. */
#include "engine/ranks/comms.h"

#include "base/checked.h"
#include "kernels/connect.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* Whether there are several stages of several ranks: then those of a stage, and those across stages, are groups of
 * their own. */
static bool has_two_kinds(int32_t ranks, int32_t stages)
{
    return stages > 1 && stages < ranks;
}

static void clear_files(int (*fds)[PROA_RANK_FILES], int32_t ranks)
{
    for (int32_t i = 0; i < ranks; i++)
        for (int k = 0; k < PROA_RANK_FILES; k++) fds[i][k] = -1;
}

/* One file for the ranks first, first + step, ... */
static proa_status make_file(int (*fds)[PROA_RANK_FILES], int kind, int32_t first, int32_t step,
                             int32_t count, proa_err *err)
{
    int fd;
    PROA_TRY(proa_comm_shared_file(&fd, count, err));
    for (int32_t i = 0; i < count; i++) fds[first + i * step][kind] = fd;
    return PROA_OK;
}

proa_status proa_rank_files_make(int (*fds)[PROA_RANK_FILES], int32_t ranks, int32_t stages, proa_err *err)
{
    int32_t tensors = ranks / stages;
    clear_files(fds, ranks);
    PROA_TRY(make_file(fds, PROA_RANK_FILE_ALL, 0, 1, ranks, err));
    if (!has_two_kinds(ranks, stages)) return PROA_OK;
    for (int32_t i = 0; i < stages; i++)
        PROA_TRY(make_file(fds, PROA_RANK_FILE_STAGE, i * tensors, 1, tensors, err));
    for (int32_t i = 0; i < tensors; i++)
        PROA_TRY(make_file(fds, PROA_RANK_FILE_PIPE, i, tensors, stages, err));
    return PROA_OK;
}

static void close_file(int fd)
{
    if (fd >= 0) close(fd);
}

void proa_rank_files_close(int (*fds)[PROA_RANK_FILES], int32_t ranks, int32_t stages)
{
    int32_t tensors = ranks / stages;
    close_file(fds[0][PROA_RANK_FILE_ALL]);
    for (int32_t i = 0; i < stages; i++) close_file(fds[i * tensors][PROA_RANK_FILE_STAGE]);
    for (int32_t i = 0; i < tensors; i++) close_file(fds[i][PROA_RANK_FILE_PIPE]);
    clear_files(fds, ranks);
}

proa_status proa_rank_comms_open(proa_rank_comms *c, const int fds[PROA_RANK_FILES], int32_t rank,
                                 int32_t ranks, int32_t stages, proa_err *err)
{
    int32_t tensors = ranks / stages;
    *c = (proa_rank_comms){.control = NULL};
    PROA_TRY(proa_comm_open_shared(&c->control, fds[PROA_RANK_FILE_ALL], rank, ranks, err));
    if (stages == 1) c->stage = c->control;
    else if (tensors == 1) c->pipe = c->control;
    if (!has_two_kinds(ranks, stages)) return PROA_OK;
    PROA_TRY(proa_comm_open_shared(&c->stage, fds[PROA_RANK_FILE_STAGE], rank % tensors, tensors, err));
    return proa_comm_open_shared(&c->pipe, fds[PROA_RANK_FILE_PIPE], rank / tensors, stages, err);
}

static atomic_bool mpi_failed;

proa_status proa_rank_comms_open_mpi(proa_rank_comms *c, const proa_mpi *mpi, int32_t stages, proa_err *err)
{
    int32_t tensors = mpi->ranks / stages;
    *c = (proa_rank_comms){.by_mpi = true};
    PROA_TRY(mpi->open_comm(&c->control, 0, err));
    if (stages == 1) c->stage = c->control;
    else if (tensors == 1) c->pipe = c->control;
    if (!has_two_kinds(mpi->ranks, stages)) return PROA_OK;
    PROA_TRY(mpi->open_comm(&c->stage, mpi->rank / tensors, err));
    return mpi->open_comm(&c->pipe, mpi->rank % tensors, err);
}

void proa_rank_comms_mpi_fail(void)
{
    atomic_store(&mpi_failed, true);
}

bool proa_rank_comms_mpi_failed(void)
{
    return atomic_load(&mpi_failed);
}

/* ---- devices ---- */

/* Comms that are replaced or closed while another thread may stop the group, or look whether it was. */
static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;

static void stop_all(const proa_rank_comms *c)
{
    c->control->stop(c->control);
    if (c->stage) c->stage->stop(c->stage);
    if (c->pipe) c->pipe->stop(c->pipe);
}

void proa_rank_comms_stop(const proa_rank_comms *c)
{
    pthread_mutex_lock(&connecting);
    if (c->control) stop_all(c);
    pthread_mutex_unlock(&connecting);
}

static void replace_comm(const proa_rank_comms *c, proa_comm **comm, proa_comm *by)
{
    if (*comm != c->control) proa_comm_close(*comm);
    *comm = by;
}

/* Whether `own` is true in any rank. */
static bool is_any(proa_comm *control, bool own)
{
    bool any = own;
    for (int32_t rank = 0; rank < control->ranks; rank++) {
        bool theirs = own;
        control->broadcast(control, &theirs, sizeof theirs, rank);
        any = any || theirs;
    }
    return any;
}

proa_status proa_rank_comms_connect(proa_rank_comms *c, proa_device *d, int32_t stages, proa_err *err)
{
    proa_comm *control = c->control, *stage = NULL, *pipe = NULL;
    int32_t tensors = control->ranks / stages, rank = control->rank;
    proa_rank_line of_stage = {rank / tensors * tensors, 1, tensors},
                   of_pipe = {rank % tensors, tensors, stages};
    proa_status status = PROA_OK;
    bool stage_waits = false, pipe_waits = false; /* sums of a stage always do */
    if (d->host) return PROA_OK;
    if (tensors > 1) status = proa_device_connect(&stage, &stage_waits, d, control, of_stage, err);
    /* all ranks take part in what connects the stages, or none does */
    if (stages > 1 && !is_any(control, status != PROA_OK))
        status = proa_device_connect(&pipe, &pipe_waits, d, control, of_pipe, err);
    c->pipe_waits = is_any(control, pipe_waits);
    pthread_mutex_lock(&connecting);
    replace_comm(c, &c->stage, stage);
    replace_comm(c, &c->pipe, pipe);
    if (control->stopped(control)) stop_all(c);
    pthread_mutex_unlock(&connecting);
    return status;
}

bool proa_rank_comms_stopped(const proa_rank_comms *c)
{
    bool stopped = false;
    pthread_mutex_lock(&connecting);
    proa_comm *const comms[] = {c->stage, c->pipe};
    for (size_t i = 0; i < PROA_COUNT(comms); i++)
        stopped = stopped || (comms[i] && comms[i] != c->control && comms[i]->stopped(comms[i]));
    pthread_mutex_unlock(&connecting);
    return stopped;
}

/* ---- the end ---- */

void proa_rank_comms_close(proa_rank_comms *c)
{
    pthread_mutex_lock(&connecting);
    const proa_rank_comms old = *c;
    *c = (proa_rank_comms){.by_mpi = c->by_mpi};
    pthread_mutex_unlock(&connecting);
    if (old.stage != old.control) proa_comm_close(old.stage);
    if (old.pipe != old.control) proa_comm_close(old.pipe);
    proa_comm_close(old.control);
}
