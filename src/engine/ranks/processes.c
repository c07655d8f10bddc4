/* SPDX-License-Identifier: Apache-2.0
 * processes.c - starts the processes of ranks, greets them, collects their results, and ends them. */
#include "engine/ranks/processes.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/log.h"
#include "comm/numa.h"
#include "comm/child.h"
#include "comm/meet.h"
#include "engine/ranks/device_name.h"
#include "engine/ranks/step_watch.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long ranks may take to end after they were asked to. */
#define END_NS ((int64_t)5000000000)
#define SILENT "the GPUs of the ranks do not reach each other any more"

struct proa_rank_processes {
    int32_t ranks, stages;
    const proa_mpi *mpi; /* NULL: this process has started them */
    pid_t pid[PROA_RANKS_MAX];
    int fd[PROA_RANKS_MAX]; /* until the links have them; -1: none */
    proa_links *links;      /* link i is to rank i + 1 */
    proa_rank_comms comms;
    proa_step_watch step; /* of rank 0 */
    int64_t wait_ns;
    proa_rank_notify *notify;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock: */
    int32_t results;                /* of the call that runs, from other ranks */
    proa_err first;                 /* the first failure among them */
    uint64_t model[PROA_RANKS_MAX]; /* the fingerprint of the model that each has opened */
    proa_err failure;               /* status OK: the group works */
    bool ends;                      /* it ends as it should */
    int32_t closed;                 /* links that were lost: ranks have ended */
};

/* ---- events of the links ---- */

/* Only the first reason is reported: when one rank is lost, the others end because of it. */
static void fail_group(proa_rank_processes *p, const char *text)
{
    pthread_mutex_lock(&p->lock);
    bool first = p->failure.status == PROA_OK;
    bool reports = first && !p->ends && p->notify;
    if (first) PROA_FAIL(&p->failure, UNAVAILABLE, "%s", text);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (!first) return;
    if (p->comms.by_mpi && !p->ends) proa_rank_comms_mpi_fail();
    proa_rank_comms_stop(&p->comms);
    if (reports) p->notify(p->arg, &p->failure);
}

/* A process that has closed its link is about to end, so its exit status is known soon. */
static void name_fate(const proa_rank_processes *p, int32_t rank, const char *why, char *text, size_t size)
{
    enum { TRIES = 20, TRY_US = 10000 };
    char fate[64] = "";
    for (int i = 0; i < TRIES && p->pid[rank] && !fate[0] && strcmp(why, "has ended") == 0; i++) {
        proa_child_fate(p->pid[rank], fate, sizeof fate);
        if (!fate[0]) usleep(TRY_US);
    }
    if (p->pid[rank])
        snprintf(text, size, "rank %d (process %d) %s", rank, (int)p->pid[rank], fate[0] ? fate : why);
    else snprintf(text, size, "rank %d %s", rank, why);
}

static void lost_rank(void *arg, int32_t link, const char *why)
{
    char text[160];
    proa_rank_processes *p = arg;
    name_fate(p, link + 1, why, text, sizeof text);
    fail_group(p, text);
    pthread_mutex_lock(&p->lock);
    p->closed++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void received_result(void *arg, int32_t link, uint32_t kind, const void *bytes, int64_t size)
{
    proa_rank_processes *p = arg;
    proa_rank_result r;
    if (kind == PROA_FRAME_SILENT) fail_group(p, SILENT);
    if (kind != PROA_FRAME_RESULT || size != (int64_t)sizeof r) return;
    memcpy(&r, bytes, sizeof r);
    r.text[sizeof r.text - 1] = '\0';
    bool known = r.status >= 0 && r.status < PROA_STATUS_COUNT;
    pthread_mutex_lock(&p->lock);
    p->results++;
    p->model[link + 1] = r.model;
    if (r.status != PROA_OK && p->first.status == PROA_OK)
        proa_err_set(&p->first, known ? (proa_status)r.status : PROA_INTERNAL, __FILE__, __LINE__,
                     "rank %d: %s", link + 1, r.text);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* On the thread of the links, since the stepping thread may wait for a GPU that hangs. */
static void check_comms(void *arg)
{
    proa_rank_processes *p = arg;
    if (proa_step_watch_hangs(&p->step)) fail_group(p, SILENT);
    (void)!proa_rank_processes_check(p, NULL);
}

/* ---- the start ---- */

static proa_status start_process(proa_rank_processes *p, int32_t rank, const int files[PROA_RANK_FILES],
                                 proa_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return PROA_FAIL(err, IO, "cannot make a socket: %s", strerror(errno));
    p->fd[rank] = pair[0];
    int fds[1 + PROA_RANK_FILES] = {pair[1]};
    memcpy(fds + 1, files, PROA_RANK_FILES * sizeof *files);
    proa_status status = proa_child_start(&p->pid[rank], fds, 1 + PROA_RANK_FILES, err);
    close(pair[1]);
    return status;
}

static proa_status greet_rank(const proa_rank_processes *p, int32_t rank, proa_err *err)
{
    proa_rank_hello own, other;
    proa_link_frame frame = {.kind = PROA_FRAME_HELLO, .bytes = &other, .room = sizeof other};
    int fd = p->fd[rank];
    proa_rank_hello_make(&own, rank, p->ranks, p->stages);
    PROA_TRY(proa_link_send(fd, PROA_FRAME_HELLO, &own, sizeof own, err));
    PROA_TRY(proa_link_receive(fd, &frame, PROA_RANK_START_MS, err));
    if (frame.size != (int64_t)sizeof other)
        return PROA_FAIL(err, INVALID, "rank %d is another version of proa", rank);
    return proa_rank_hello_check(&other, rank, err);
}

/* by_mpi: each rank chooses its device itself, since only it knows which ranks are on its host. */
static proa_status send_open(int fd, const proa_rank_open *common, int32_t rank, int32_t ranks, bool by_mpi,
                             proa_err *err)
{
    char device[32];
    proa_rank_message m = {.bytes = NULL};
    proa_rank_open open = *common;
    if (!by_mpi) open.device = proa_rank_device_name(device, common->device, rank);
    open.node = open.node < 0 ? -1 : proa_numa_node_of(rank, ranks);
    open.model.rank = rank, open.model.ranks = ranks;
    proa_rank_message_write(&m);
    proa_rank_open_message(&m, &open);
    proa_status status = PROA_OK;
    if (m.size > PROA_RANK_FRAME_MAX) status = PROA_FAIL(err, LIMIT, "the path of the model is too long");
    else status = proa_link_send(fd, PROA_FRAME_OPEN, m.bytes, m.size, err);
    proa_rank_message_release(&m);
    return status;
}

static proa_status greet_all(proa_rank_processes *p, const proa_rank_open *open, proa_err *err)
{
    for (int32_t rank = 1; rank < p->ranks; rank++) {
        char fate[160];
        proa_err why = {.status = PROA_OK};
        proa_status status = greet_rank(p, rank, &why);
        if (status == PROA_OK) status = send_open(p->fd[rank], open, rank, p->ranks, p->comms.by_mpi, &why);
        if (status == PROA_OK) continue;
        if (status == PROA_INVALID) return PROA_FAIL(err, INVALID, "%s", why.text);
        name_fate(p, rank, strstr(why.text, "ended") ? "has ended" : why.text, fate, sizeof fate);
        return PROA_FAIL(err, UNAVAILABLE, "%s before it was ready", fate);
    }
    return PROA_OK;
}

static proa_status watch_ranks(proa_rank_processes *p, proa_err *err)
{
    const proa_link_events events = {received_result, lost_rank, check_comms, p};
    int fds[PROA_RANKS_MAX];
    for (int32_t i = 1; i < p->ranks; i++) fds[i - 1] = p->fd[i], p->fd[i] = -1;
    return proa_links_open(&p->links, fds, p->ranks - 1, &events, err);
}

static proa_status start_here(proa_rank_processes *p, proa_err *err)
{
    int files[PROA_RANKS_MAX][PROA_RANK_FILES];
    proa_status status = proa_rank_files_make(files, p->ranks, p->stages, err);
    if (status == PROA_OK) status = proa_rank_comms_open(&p->comms, files[0], 0, p->ranks, p->stages, err);
    for (int32_t rank = 1; rank < p->ranks && status == PROA_OK; rank++)
        status = start_process(p, rank, files[rank], err);
    proa_rank_files_close(files, p->ranks, p->stages);
    return status;
}

/* Processes of MPI wait until rank 0 announces a model. Only one model is announced at a time. */
static proa_status meet_mpi(proa_rank_processes *p, const proa_mpi *mpi, proa_err *err)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    char text[PROA_MPI_TEXT], invitation[PROA_MPI_TEXT - 16];
    int fd;
    PROA_TRY(proa_meet_invite(&fd, invitation, sizeof invitation, err));
    snprintf(text, sizeof text, "%d %s", p->stages, invitation);
    pthread_mutex_lock(&turn);
    proa_status status = mpi->announce(text, err);
    if (status == PROA_OK) status = proa_rank_comms_open_mpi(&p->comms, mpi, p->stages, err);
    pthread_mutex_unlock(&turn);
    if (status == PROA_OK) status = proa_meet_accept(fd, invitation, p->fd, p->ranks, err);
    close(fd);
    return status;
}

static proa_status start_all(proa_rank_processes *p, const proa_rank_open *open, const proa_mpi *mpi,
                             proa_err *err)
{
    PROA_TRY(mpi ? meet_mpi(p, mpi, err) : start_here(p, err));
    PROA_TRY(greet_all(p, open, err));
    return watch_ranks(p, err);
}

proa_status proa_rank_processes_start(proa_rank_processes **out, const proa_rank_open *open,
                                      const proa_mpi *mpi, proa_rank_notify *notify, void *arg, proa_err *err)
{
    proa_rank_processes *p = proa_calloc(1, sizeof *p);
    int32_t ranks = open->model.ranks;
    PROA_ASSERT(ranks > 1 && ranks <= PROA_RANKS_MAX);
    p->ranks = ranks, p->stages = open->model.stages > 1 ? open->model.stages : 1;
    p->mpi = mpi, p->notify = notify, p->arg = arg, p->wait_ns = (int64_t)open->wait_ms * 1000000;
    for (int32_t i = 0; i < ranks; i++) p->fd[i] = -1;
    pthread_mutex_init(&p->lock, NULL);
    proa_cond_init(&p->changed);
    proa_status status = start_all(p, open, mpi, err);
    *out = status == PROA_OK ? p : NULL;
    if (status == PROA_OK) return PROA_OK;
    proa_rank_processes_close(p);
    return status;
}

/* ---- the group ---- */

/* Under the lock. A message of MPI may leave only while this process calls MPI: other ranks may still wait for the call
 * whose results are awaited here. */
static void wait_for_change(proa_rank_processes *p)
{
    if (!p->mpi) {
        pthread_cond_wait(&p->changed, &p->lock);
        return;
    }
    pthread_mutex_unlock(&p->lock);
    p->mpi->progress();
    pthread_mutex_lock(&p->lock);
    proa_cond_wait_ms(&p->changed, &p->lock, 1);
}

proa_status proa_rank_processes_result(proa_rank_processes *p, proa_status status, proa_err *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->results < p->ranks - 1 && p->failure.status == PROA_OK) wait_for_change(p);
    const proa_err *why = p->first.status != PROA_OK ? &p->first : &p->failure;
    if (status == PROA_OK && why->status != PROA_OK) {
        status = why->status;
        if (err) *err = *why;
    }
    p->results = 0;
    p->first = (proa_err){.status = PROA_OK};
    pthread_mutex_unlock(&p->lock);
    return status;
}

proa_status proa_rank_processes_opened(proa_rank_processes *p, uint64_t print, proa_err *err)
{
    PROA_TRY(proa_rank_processes_result(p, PROA_OK, err));
    int32_t other = 0;
    pthread_mutex_lock(&p->lock);
    for (int32_t rank = p->ranks - 1; rank > 0; rank--)
        if (p->model[rank] != print) other = rank;
    pthread_mutex_unlock(&p->lock);
    if (other == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "rank %d has other files of the model than rank 0", other);
}

const proa_rank_comms *proa_rank_processes_comms(const proa_rank_processes *p)
{
    return &p->comms;
}

proa_status proa_rank_processes_failed(proa_rank_processes *p, proa_err *err)
{
    pthread_mutex_lock(&p->lock);
    proa_status status = p->failure.status;
    if (status != PROA_OK && err && err->status == PROA_OK) *err = p->failure;
    pthread_mutex_unlock(&p->lock);
    return status;
}

void proa_rank_processes_step(proa_rank_processes *p, bool begins)
{
    proa_step_watch_note(&p->step, begins);
}

proa_status proa_rank_processes_connect(proa_rank_processes *p, proa_device *d, proa_err *err)
{
    p->step.limit_ns = p->wait_ns; /* no step runs yet */
    return proa_rank_comms_connect(&p->comms, d, p->stages, err);
}

proa_status proa_rank_processes_check(proa_rank_processes *p, proa_err *err)
{
    PROA_TRY(proa_rank_processes_failed(p, err));
    if (!proa_rank_comms_stopped(&p->comms)) return PROA_OK;
    fail_group(p, SILENT);
    return proa_rank_processes_failed(p, err);
}

/* Gives a rank that was asked to end 2 s to do so; in a group that has failed it is killed at once. */
static void end_process(proa_rank_processes *p, int32_t rank, bool failed)
{
    enum { TRIES = 400, TRY_US = 5000 };
    char fate[64] = "";
    for (int i = 0; i < TRIES && !fate[0] && p->pid[rank] > 0 && !failed; i++) {
        proa_child_fate(p->pid[rank], fate, sizeof fate);
        if (!fate[0]) usleep(TRY_US);
    }
    proa_child_end(p->pid[rank]);
    p->pid[rank] = 0;
}

/* Ranks that were asked to end close their links when they are done. If this side closed a link first, the rank would
 * take it for the loss of rank 0. */
static void wait_for_end(proa_rank_processes *p)
{
    int64_t until = proa_clock_ns() + END_NS;
    pthread_mutex_lock(&p->lock);
    while (p->ends && p->links && p->closed < p->ranks - 1 && proa_clock_ns() < until)
        proa_cond_wait_ms(&p->changed, &p->lock, 100);
    pthread_mutex_unlock(&p->lock);
}

static void end_processes(proa_rank_processes *p)
{
    wait_for_end(p);
    bool failed = proa_rank_processes_failed(p, NULL) != PROA_OK && !p->ends;
    proa_links_close(p->links);
    p->links = NULL;
    for (int32_t rank = 1; rank < p->ranks; rank++) {
        if (p->fd[rank] >= 0) close(p->fd[rank]);
        p->fd[rank] = -1;
        end_process(p, rank, failed);
    }
}

void proa_rank_processes_expect_end(proa_rank_processes *p)
{
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_mutex_unlock(&p->lock);
}

void proa_rank_processes_end(proa_rank_processes *p, const proa_err *why)
{
    fail_group(p, why->text);
    end_processes(p);
}

void proa_rank_processes_close(proa_rank_processes *p)
{
    if (!p) return;
    end_processes(p);
    if (p->comms.control) proa_rank_comms_close(&p->comms);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
