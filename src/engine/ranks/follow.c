/* SPDX-License-Identifier: Apache-2.0
 * follow.c - a rank above 0 in a process of its own: a device, threads, its part of the weights, and memory for the
 * keys and values of its heads. */
#include "engine/ranks/follow.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/log.h"
#include "comm/child.h"
#include "comm/numa.h"
#include "engine/memory.h"
#include "engine/ranks/comms.h"
#include "engine/ranks/greeting.h"
#include "engine/ranks/device_name.h"
#include "engine/ranks/step_watch.h"
#include "kv/pages.h"
#include "kv/state_slots.h"
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct follower {
    int32_t rank, ranks, stages;
    int fd; /* until the links have it */
    proa_links *links;
    proa_rank_comms comms;
    proa_rank_message message; /* how to open the model: texts of `open` are in it */
    proa_rank_open open;
    proa_device *device;
    proa_pool *pool;
    proa_model *model;
    proa_kv_pages pages;
    proa_kv *kv; /* [kv_layers] */
    proa_state_slots states;
    uint64_t print;    /* proa_rank_model_print */
    atomic_bool ended; /* by rank 0: the link may close */
    atomic_bool lost;  /* rank 0 is */
    proa_step_watch step;
} follower;

/* ---- the link ---- */

/* Rank 0 has ended, or cannot be reached. A thread of this process may hang, so the process ends at once; one of MPI
 * may follow other models. */
static void lost_rank_0(void *arg, int32_t link, const char *why)
{
    follower *f = arg;
    PROA_UNUSED(link);
    if (atomic_load(&f->ended)) return;
    PROA_LOG(VERBOSE, "rank %d: rank 0 %s", f->rank, why);
    if (!f->comms.by_mpi) _exit(1);
    proa_rank_comms_stop(&f->comms);
    atomic_store(&f->lost, true);
}

/* Tells rank 0 that the collectives have failed or that a step hangs, unless rank 0 has ended the group itself. Whether
 * it was told. */
static bool tell_silence(follower *f)
{
    if (atomic_load(&f->ended) || atomic_load(&f->lost)) return false;
    if (!proa_rank_comms_stopped(&f->comms) && !proa_step_watch_hangs(&f->step)) return false;
    proa_links_send(f->links, 0, PROA_FRAME_SILENT, NULL, 0);
    return true;
}

/* On the thread of the links, since that of the rank may wait. */
static void check_comms(void *arg)
{
    follower *f = arg;
    if (tell_silence(f) && !f->comms.by_mpi) _exit(1);
}

static proa_status greet_rank_0(follower *f, proa_err *err)
{
    proa_rank_hello own, other;
    proa_link_frame frame = {.kind = PROA_FRAME_HELLO, .bytes = &other, .room = sizeof other};
    proa_rank_hello_make(&own, 0, 0, 0);
    PROA_TRY(proa_link_receive(f->fd, &frame, PROA_RANK_START_MS, err));
    PROA_TRY(proa_link_send(f->fd, PROA_FRAME_HELLO, &own, sizeof own, err));
    if (frame.size != (int64_t)sizeof other)
        return PROA_FAIL(err, INVALID, "rank 0 is another version of proa");
    PROA_TRY(proa_rank_hello_check(&other, 0, err));
    f->rank = other.rank, f->ranks = other.ranks, f->stages = other.stages;
    if (f->ranks < 2 || f->ranks > PROA_RANKS_MAX || f->rank < 1 || f->rank >= f->ranks || f->stages < 1 ||
        f->ranks % f->stages)
        return PROA_FAIL(err, CORRUPT, "rank %d of %d in %d stages", f->rank, f->ranks, f->stages);
    return PROA_OK;
}

static proa_status receive_open(follower *f, proa_err *err)
{
    proa_rank_message_read(&f->message, PROA_RANK_FRAME_MAX);
    proa_link_frame frame = {.kind = PROA_FRAME_OPEN, .bytes = f->message.bytes, .room = PROA_RANK_FRAME_MAX};
    PROA_TRY(proa_link_receive(f->fd, &frame, PROA_RANK_START_MS, err));
    f->message.size = frame.size;
    proa_rank_open_message(&f->message, &f->open);
    if (f->message.broken || !f->open.path)
        return PROA_FAIL(err, CORRUPT, "what rank 0 says of the model is broken");
    return PROA_OK;
}

static proa_status send_result(void *arg, proa_status status, proa_err *err)
{
    follower *f = arg;
    proa_rank_result r = {.status = (int32_t)status, .model = f->print};
    if (status != PROA_OK) snprintf(r.text, sizeof r.text, "%s", err->text);
    proa_links_send(f->links, 0, PROA_FRAME_RESULT, &r, sizeof r);
    return PROA_OK;
}

/* ---- what rank 0 calls beside the model ---- */

static proa_status take_pages(void *arg, int64_t count, proa_err *err)
{
    follower *f = arg;
    proa_model *m = f->model;
    PROA_TRY(proa_kv_pages_init(&f->pages, f->device, count, proa_kv_shape_of(m), err));
    f->kv = proa_calloc((size_t)m->kv_layers + 1, sizeof *f->kv);
    for (int32_t i = 0; i < m->kv_layers; i++) f->kv[i] = proa_kv_pages_layer(&f->pages, i);
    proa_ranks_set_kv(m, f->rank, f->kv);
    for (const proa_kv_pages *p = &f->pages; f->device->host && p; p = p->attached)
        proa_model_touch(f->pool, p->memory, p->bytes - 9 * p->count);
    return PROA_OK;
}

static proa_status connect_devices(void *arg, const proa_rank_comms **comms, proa_err *err)
{
    follower *f = arg;
    *comms = &f->comms;
    return proa_rank_comms_connect(&f->comms, f->device, f->stages, err);
}

static void note_step(void *arg, bool begins)
{
    follower *f = arg;
    proa_step_watch_note(&f->step, begins);
}

static void copy_tokens(void *arg, const proa_kv_copy *copy)
{
    const follower *f = arg;
    proa_kv_pages_copy(&f->pages, copy);
}

static proa_status take_states(void *arg, int64_t count, proa_err *err)
{
    follower *f = arg;
    PROA_TRY(proa_state_slots_init(&f->states, f->device, &(proa_state_counts){.sequences = count},
                                   proa_model_state(f->model), err));
    proa_ranks_set_states(f->model, f->rank, f->states.memory);
    return PROA_OK;
}

static void copy_state(void *arg, const proa_state_copy *copy)
{
    const follower *f = arg;
    proa_state_slots_copy(&f->states, copy);
}

/* ---- life ---- */

static proa_status open_rank(follower *f, proa_err *err)
{
    char name[32];
    const char *device = f->open.device;
    proa_numa_bind(f->open.node);
    f->pool = proa_pool_new(f->open.threads);
    if (f->comms.by_mpi) device = proa_rank_local_device(name, device);
    PROA_TRY(proa_device_open(&f->device, device, err));
    if (!f->device->host) f->step.limit_ns = (int64_t)f->open.wait_ms * 1000000;
    return proa_model_prepare(&f->model, f->open.path, &f->open.model, f->device, f->pool, err);
}

static proa_status follow_calls(follower *f, proa_err *err)
{
    enum { WAIT_US = 10000 };
    const proa_link_events events = {NULL, lost_rank_0, check_comms, f};
    const proa_rank_hooks hooks = {.take_pages = take_pages,
                                   .copy = copy_tokens,
                                   .take_states = take_states,
                                   .copy_state = copy_state,
                                   .result = send_result,
                                   .connect = connect_devices,
                                   .steps = note_step,
                                   .arg = f};
    proa_err why = {.status = PROA_OK};
    int fd = f->fd;
    f->fd = -1;
    PROA_TRY(proa_links_open(&f->links, &fd, 1, &events, err));
    proa_status status = open_rank(f, &why);
    if (status == PROA_OK) {
        f->print = proa_rank_model_print(f->model);
        status = proa_ranks_join(f->model, &f->comms, &hooks, &why);
    }
    PROA_TRY(send_result(f, status, &why));
    /* rank 0 has the reason, and closes the link */
    while (status != PROA_OK && !atomic_load(&f->lost)) usleep(WAIT_US);
    if (status != PROA_OK) return PROA_FAIL(err, UNAVAILABLE, "%s", why.text);
    status = proa_ranks_follow(f->model, err);
    if (status == PROA_OK) atomic_store(&f->ended, true);
    else tell_silence(f);
    return status;
}

static void release_all(follower *f)
{
    proa_kv_pages_release(&f->pages);
    proa_state_slots_release(&f->states);
    proa_model_free(f->model);
    if (f->comms.control) proa_rank_comms_close(&f->comms);
    proa_device_close(f->device);
    proa_pool_free(f->pool);
    proa_rank_message_release(&f->message);
    free(f->kv);
    proa_links_close(f->links);
    if (f->fd >= 0) close(f->fd);
}

static proa_status open_comms(follower *f, proa_err *err)
{
    int fds[PROA_RANK_FILES];
    for (int i = 0; i < PROA_RANK_FILES; i++) fds[i] = PROA_CHILD_FDS + 1 + i;
    proa_status status = proa_rank_comms_open(&f->comms, fds, f->rank, f->ranks, f->stages, err);
    for (int i = 0; i < PROA_RANK_FILES; i++) close(fds[i]); /* some may be missing */
    return status;
}

/* The link is open, and comms are, too, if MPI has them; of a process that rank 0 has started they are files. */
static proa_status follow_link(follower *f, bool files, proa_err *err)
{
    proa_status status = greet_rank_0(f, err);
    if (status == PROA_OK && files) status = open_comms(f, err);
    if (status == PROA_OK) status = receive_open(f, err);
    if (status == PROA_OK) status = follow_calls(f, err);
    release_all(f);
    return status;
}

static bool is_socket(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
}

proa_status proa_rank_follow(proa_err *err)
{
    follower f = {.fd = PROA_CHILD_FDS};
    if (!is_socket(f.fd))
        return PROA_FAIL(err, UNSUPPORTED, "'proa rank' is started by rank 0 (--ranks process)");
    prctl(PR_SET_NAME, "proa-rank");
    return follow_link(&f, true, err);
}

proa_status proa_rank_follow_link(int link, const proa_rank_comms *comms, proa_err *err)
{
    follower f = {.fd = link, .comms = *comms};
    return follow_link(&f, false, err);
}
