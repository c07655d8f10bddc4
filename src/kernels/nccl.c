/* SPDX-License-Identifier: Apache-2.0
 * nccl.c - the functions of libnccl.so.2 that are used, and communicators that another thread can abort. They are made
 * non-blocking: a call that has to wait for other ranks returns "in progress" and is polled, so that it ends when the
 * group is stopped. ncclCommAbort returns when no recording (CUDA graph) has a kernel of the communicator any more, so
 * it runs in a thread of its own. */
#include "kernels/nccl.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- NCCL's binary interface (nccl.h of NCCL 2.14 and later) ---- */

enum { SUCCESS = 0, IN_PROGRESS = 7 };                              /* ncclResult_t */
enum { TYPE_BYTES = 1, TYPE_F16 = 6, TYPE_F32 = 7, TYPE_BF16 = 9 }; /* ncclDataType_t */
enum { SUM = 0 };                                                   /* ncclRedOp_t */
enum { VERSION_LEAST = 21400 };                                     /* the first with a configuration */
#define CONFIG_MAGIC 0xcafebeefU

typedef struct nccl_id {
    char bytes[PROA_NCCL_ID_BYTES];
} nccl_id;

/* ncclConfig_t as of 2.14: later versions take it and have their defaults for the rest. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;

typedef void *nccl_handle; /* ncclComm_t */

typedef struct nccl_library {
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(nccl_id *id);
    int (*CommInitRankConfig)(nccl_handle *comm, int ranks, nccl_id id, int rank, nccl_config *config);
    int (*CommGetAsyncError)(nccl_handle comm, int *result);
    int (*CommFinalize)(nccl_handle comm);
    int (*CommDestroy)(nccl_handle comm);
    int (*CommAbort)(nccl_handle comm);
    const char *(*GetErrorString)(int result);
    int (*AllReduce)(const void *x, void *y, size_t count, int type, int op, nccl_handle comm, void *stream);
    int (*AllGather)(const void *x, void *y, size_t count, int type, nccl_handle comm, void *stream);
    int (*Send)(const void *x, size_t count, int type, int peer, nccl_handle comm, void *stream);
    int (*Recv)(void *y, size_t count, int type, int peer, nccl_handle comm, void *stream);
} nccl_library;

static const char *const names[] = {
    "GetVersion", "GetUniqueId",    "CommInitRankConfig", "CommGetAsyncError", "CommFinalize", "CommDestroy",
    "CommAbort",  "GetErrorString", "AllReduce",          "AllGather",         "Send",         "Recv"};

/* ---- the library ---- */

static nccl_library nccl;
static int32_t nccl_version; /* 0: not opened */
static pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *library_name(void)
{
    const char *named = getenv("PROA_NCCL");
    return named && *named ? named : PROA_NCCL_LIBRARY;
}

static proa_status find_functions(void *library, proa_err *err)
{
    void *found[PROA_COUNT(names)];
    _Static_assert(sizeof found == sizeof nccl, "a function for each name");
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "nccl%s", names[i]);
        found[i] = dlsym(library, name);
        if (!found[i])
            return PROA_FAIL(err, UNSUPPORTED, "%s has no function '%s': NCCL %d.%d or newer is needed",
                             library_name(), name, VERSION_LEAST / 10000, VERSION_LEAST / 100 % 100);
    }
    memcpy(&nccl, found, sizeof nccl);
    return PROA_OK;
}

static proa_status open_library(proa_err *err)
{
    int version = 0;
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL); /* stays open: NCCL has threads */
    if (!library)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "GPUs of several hosts need NCCL: %s: install NVIDIA's package libnccl2, or name the "
            "library with PROA_NCCL (docs/ranks.md)",
            dlerror());
    PROA_TRY(find_functions(library, err));
    if (nccl.GetVersion(&version) != SUCCESS || version < VERSION_LEAST)
        return PROA_FAIL(err, UNSUPPORTED, "%s is NCCL %d.%d.%d, %d.%d or newer is needed", library_name(),
                         version / 10000, version / 100 % 100, version % 100, VERSION_LEAST / 10000,
                         VERSION_LEAST / 100 % 100);
    nccl_version = version;
    return PROA_OK;
}

proa_status proa_nccl_open(int32_t *version, proa_err *err)
{
    pthread_mutex_lock(&nccl_lock);
    proa_status status = nccl_version ? PROA_OK : open_library(err);
    *version = nccl_version;
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

proa_status proa_nccl_make_id(char id[PROA_NCCL_ID_BYTES], proa_err *err)
{
    nccl_id made;
    int result = nccl.GetUniqueId(&made);
    memcpy(id, made.bytes, sizeof made.bytes);
    if (result == SUCCESS) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "NCCL: %s (NCCL_DEBUG=WARN says more)", nccl.GetErrorString(result));
}

/* ---- a communicator ---- */

struct proa_nccl_comm {
    nccl_handle handle;
    proa_nccl_stop_fn *is_stopped; /* of what the ranks have beside it, while they join */
    void *arg;
    atomic_bool stopped;
    atomic_uint submitted; /* calls, for the GPU */
    pthread_t watcher;
    pthread_mutex_t lock; /* held in calls of NCCL: none begins once `stopped` */
    pthread_cond_t changed;
    /* under the lock: */
    const volatile uint32_t *ended; /* of the submitted calls; NULL: they are not watched */
    int64_t wait_ns;
    bool closes;
    bool aborted; /* by the watcher, when it has ended */
};

/* Polls a call that is in progress. The result, or IN_PROGRESS: the comm was stopped, or the time is over. */
static int settle_call(proa_nccl_comm *c, int result, int64_t until_ns)
{
    while (result == IN_PROGRESS && !atomic_load(&c->stopped) && proa_clock_ns() < until_ns) {
        sched_yield();
        if (c->is_stopped && c->is_stopped(c->arg)) atomic_store(&c->stopped, true);
        int asked = nccl.CommGetAsyncError(c->handle, &result);
        if (asked != SUCCESS) return asked;
    }
    return result;
}

static bool has_failed(int result)
{
    return result != SUCCESS && result != IN_PROGRESS;
}

/* What the watcher has seen: how many calls had ended, and since when there is no other one though some were
 * submitted. */
typedef struct watch {
    uint32_t ended;
    int64_t since_ns;
} watch;

/* NCCL itself waits without an end for a rank that is silent. The rest of the pass counts as waiting, too: a stage that
 * waits for rows cannot tell whether the one before computes them. */
static bool has_waited_long(const proa_nccl_comm *c, watch *w)
{
    int64_t now = proa_clock_ns();
    uint32_t ended = c->ended ? atomic_load((const volatile _Atomic uint32_t *)c->ended) : 0;
    bool waits = c->ended && (int32_t)(atomic_load(&c->submitted) - ended) > 0;
    if (!waits || ended != w->ended) *w = (watch){ended, now};
    return waits && now - w->since_ns > c->wait_ns;
}

/* Looks for failures ten times a second, and aborts a comm that was stopped. */
static void *watch_comm(void *arg)
{
    enum { LOOK_MS = 100 };
    proa_nccl_comm *c = arg;
    watch w = {0, proa_clock_ns()};
    pthread_mutex_lock(&c->lock);
    while (!c->closes && !atomic_load(&c->stopped)) {
        int result = SUCCESS;
        proa_cond_wait_ms(&c->changed, &c->lock, LOOK_MS);
        if (nccl.CommGetAsyncError(c->handle, &result) != SUCCESS || has_failed(result) || has_waited_long(c, &w))
            atomic_store(&c->stopped, true);
    }
    pthread_mutex_unlock(&c->lock);
    c->aborted = atomic_load(&c->stopped);
    if (c->aborted) nccl.CommAbort(c->handle);
    return NULL;
}

static void free_comm(proa_nccl_comm *c)
{
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int join_group(proa_nccl_comm *c, proa_nccl_place place)
{
    nccl_id copy;
    nccl_config config = {sizeof config, CONFIG_MAGIC, VERSION_LEAST, 0};
    memcpy(copy.bytes, place.id, sizeof copy.bytes);
    int result = nccl.CommInitRankConfig(&c->handle, place.ranks, copy, place.rank, &config);
    return settle_call(c, result, proa_clock_ns() + (int64_t)PROA_RANK_START_MS * 1000000);
}

proa_status proa_nccl_join(proa_nccl_comm **out, proa_nccl_place place, proa_nccl_stop_fn *is_stopped,
                           void *arg, proa_err *err)
{
    proa_nccl_comm *c = proa_calloc(1, sizeof *c);
    *out = NULL;
    c->is_stopped = is_stopped, c->arg = arg, c->wait_ns = (int64_t)PROA_RANK_WAIT_MS * 1000000;
    pthread_mutex_init(&c->lock, NULL);
    proa_cond_init(&c->changed);
    int result = join_group(c, place);
    c->is_stopped = NULL;
    bool joined = result == SUCCESS, watched = joined && pthread_create(&c->watcher, NULL, watch_comm, c) == 0;
    if (watched) return *out = c, PROA_OK;
    if (c->handle) nccl.CommAbort(c->handle);
    bool stopped = atomic_load(&c->stopped);
    free_comm(c);
    if (joined) return PROA_FAIL(err, UNAVAILABLE, "cannot start a thread for NCCL");
    if (stopped) return PROA_FAIL(err, UNAVAILABLE, "the other ranks have ended");
    if (result == IN_PROGRESS)
        return PROA_FAIL(err, UNAVAILABLE, "NCCL: not all ranks have joined within %d s",
                         PROA_RANK_START_MS / 1000);
    return PROA_FAIL(err, UNAVAILABLE, "NCCL: %s (NCCL_DEBUG=WARN says more)", nccl.GetErrorString(result));
}

/* ---- calls ---- */

/* False: the comm was stopped, nothing may be called. */
static bool begin_call(proa_nccl_comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (!atomic_load(&c->stopped)) return true;
    pthread_mutex_unlock(&c->lock);
    return false;
}

static void end_call(proa_nccl_comm *c, int result)
{
    if (settle_call(c, result, proa_clock_ns() + c->wait_ns) != SUCCESS) atomic_store(&c->stopped, true);
    pthread_mutex_unlock(&c->lock);
}

void proa_nccl_all_reduce(proa_nccl_comm *c, void *y, const void *x, int64_t count, proa_dtype dtype, void *stream)
{
    int type = dtype == PROA_DTYPE_F16 ? TYPE_F16 : dtype == PROA_DTYPE_BF16 ? TYPE_BF16 : TYPE_F32;
    if (begin_call(c)) end_call(c, nccl.AllReduce(x, y, (size_t)count, type, SUM, c->handle, stream));
}

void proa_nccl_all_gather(proa_nccl_comm *c, void *y, const void *x, int64_t bytes, void *stream)
{
    if (begin_call(c)) end_call(c, nccl.AllGather(x, y, (size_t)bytes, TYPE_BYTES, c->handle, stream));
}

void proa_nccl_send(proa_nccl_comm *c, const void *x, int64_t bytes, int32_t to, void *stream)
{
    if (begin_call(c)) end_call(c, nccl.Send(x, (size_t)bytes, TYPE_BYTES, to, c->handle, stream));
}

void proa_nccl_recv(proa_nccl_comm *c, void *y, int64_t bytes, int32_t from, void *stream)
{
    if (begin_call(c)) end_call(c, nccl.Recv(y, (size_t)bytes, TYPE_BYTES, from, c->handle, stream));
}

/* ---- the limit ---- */

void proa_nccl_watch(proa_nccl_comm *c, const volatile uint32_t *ended, int32_t wait_ms)
{
    pthread_mutex_lock(&c->lock);
    c->ended = ended, c->wait_ns = (int64_t)wait_ms * 1000000;
    pthread_mutex_unlock(&c->lock);
}

void proa_nccl_submitted(proa_nccl_comm *c, uint32_t calls)
{
    atomic_fetch_add(&c->submitted, calls);
}

/* ---- the end ---- */

void proa_nccl_stop(proa_nccl_comm *c)
{
    atomic_store(&c->stopped, true);
    pthread_cond_broadcast(&c->changed); /* the watcher would look soon anyway */
}

bool proa_nccl_stopped(proa_nccl_comm *c)
{
    return atomic_load(&c->stopped);
}

/* What this rank has sent arrives before it goes; if another one has gone already, that is not waited for. */
static void leave_group(proa_nccl_comm *c)
{
    enum { LEAVE_NS = 2000000000 };
    int result = settle_call(c, nccl.CommFinalize(c->handle), proa_clock_ns() + LEAVE_NS);
    if (result == SUCCESS) nccl.CommDestroy(c->handle);
    else nccl.CommAbort(c->handle);
}

void proa_nccl_close(proa_nccl_comm *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closes = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->watcher, NULL);
    if (!c->aborted) leave_group(c);
    free_comm(c);
}
