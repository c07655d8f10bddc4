/* SPDX-License-Identifier: Apache-2.0
 * launch.c - the processes of MPI: rank 0 announces each model that it opens, and the end. */
#include "engine/ranks/launch.h"

#include "base/alloc.h"
#include "base/log.h"
#include "comm/meet.h"
#include "comm/mpi/mpi.h"
#include "engine/ranks/comms.h"
#include "engine/ranks/follow.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define END_TEXT "end" /* what rank 0 announces when no model follows */

/* One model that this process follows. */
typedef struct followed {
    int link;
    int32_t stages;
    proa_rank_comms comms;
} followed;

static void *follow_model(void *arg)
{
    followed *f = arg;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_rank_follow_link(f->link, &f->comms, &err);
    if (status != PROA_OK) PROA_LOG(VERBOSE, "%s", err.text); /* rank 0 reports the reason */
    free(f);
    return NULL;
}

/* text: "STAGES INVITATION", which rank 0 announces before it opens a model (comm/mpi/mpi.h). Models are followed side
 * by side, each in a thread. */
static proa_status follow_announced(const proa_mpi *mpi, const char *text, proa_err *err)
{
    pthread_t thread;
    int used = 0;
    followed *f = proa_calloc(1, sizeof *f);
    if (sscanf(text, "%d %n", &f->stages, &used) != 1 || f->stages < 1 || mpi->ranks % f->stages)
        return free(f), PROA_FAIL(err, CORRUPT, "what rank 0 has announced is no model");
    proa_status status = proa_rank_comms_open_mpi(&f->comms, mpi, f->stages, err);
    if (status == PROA_OK) status = proa_meet_join(&f->link, text + used, mpi->rank, err);
    if (status == PROA_OK && pthread_create(&thread, NULL, follow_model, f) != 0)
        status = PROA_FAIL(err, UNAVAILABLE, "rank %d cannot start a thread", mpi->rank);
    if (status != PROA_OK) return free(f), status;
    pthread_detach(thread);
    return PROA_OK;
}

static proa_status follow_world(const proa_mpi *mpi, proa_err *err)
{
    char text[PROA_MPI_TEXT];
    for (;;) {
        PROA_TRY(mpi->announce(text, err));
        text[sizeof text - 1] = '\0';
        if (strcmp(text, END_TEXT) == 0) return PROA_OK;
        PROA_TRY(follow_announced(mpi, text, err));
    }
}

proa_status proa_launch_begin(bool *followed_world, proa_err *err)
{
    const proa_mpi *mpi;
    *followed_world = false;
    if (!proa_mpi_launched()) return PROA_OK;
    PROA_TRY(proa_mpi_open(&mpi, err));
    if (mpi->rank == 0) return PROA_OK;
    *followed_world = true;
    proa_status status = follow_world(mpi, err);
    mpi->end(status != PROA_OK);
    return status;
}

void proa_launch_end(void)
{
    const proa_mpi *mpi = proa_mpi_world();
    char text[PROA_MPI_TEXT] = END_TEXT;
    if (!mpi || mpi->rank) return;
    bool failed = proa_rank_comms_mpi_failed() || mpi->announce(text, NULL) != PROA_OK;
    mpi->end(failed);
}
