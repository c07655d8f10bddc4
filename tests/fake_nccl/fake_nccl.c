/* SPDX-License-Identifier: Apache-2.0
 * fake_nccl.c - a library in place of libnccl.so.2 (PROA_NCCL names it) whose ranks are threads of one process and
 * whose memory is the host's. Communicators are non-blocking, as kernels/nccl.c makes them: a call is in progress until
 * all ranks have made it.
 *
 *   FAKE_NCCL_VERSION=N   what ncclGetVersion says; 22809 without it
 *   FAKE_NCCL_FAILS=1     each communicator fails when it is asked after it has joined
 *
 * Threads: any. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, IN_PROGRESS = 7, TYPE_F32 = 7 };
enum { RANKS_MAX = 8, GROUPS_MAX = 64 };

typedef struct id {
    char bytes[128];
} id;

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

typedef struct group {
    id name;
    int ranks, joined, arrived, done; /* arrived: ranks in the sum that waits; done: sums that are complete */
    const float *x[RANKS_MAX];
    float *y[RANKS_MAX];
} group;

typedef struct comm {
    group *g;
    int rank, calls; /* sums that this rank has asked for */
    bool finalized;
} comm;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static group groups[GROUPS_MAX];
static int groups_count, ids;

/* For tests: communicators that have ended one way or the other. */
EXPORT atomic_int fake_nccl_aborted, fake_nccl_destroyed;

EXPORT int ncclGetVersion(int *version);
EXPORT const char *ncclGetErrorString(int result);
EXPORT int ncclGetUniqueId(id *out);
EXPORT int ncclCommInitRankConfig(comm **out, int ranks, id name, int rank, const config *c);
EXPORT int ncclCommGetAsyncError(const comm *c, int *result);
EXPORT int ncclCommFinalize(comm *c);
EXPORT int ncclCommDestroy(comm *c);
EXPORT int ncclCommAbort(comm *c);
EXPORT int ncclAllReduce(const float *x, float *y, size_t count, int type, int op, comm *c, void *stream);
EXPORT int ncclAllGather(const void *x, void *y, size_t count, int type, comm *c, void *stream);
EXPORT int ncclSend(const void *x, size_t count, int type, int peer, comm *c, void *stream);
EXPORT int ncclRecv(void *y, size_t count, int type, int peer, comm *c, void *stream);

int ncclGetVersion(int *version)
{
    const char *named = getenv("FAKE_NCCL_VERSION");
    *version = named ? atoi(named) : 22809;
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "unhandled system error" : "invalid argument";
}

int ncclGetUniqueId(id *out)
{
    pthread_mutex_lock(&lock);
    memset(out, 0, sizeof *out);
    ids++;
    memcpy(out->bytes, &ids, sizeof ids);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static group *find_group(const id *name, int ranks)
{
    for (int i = 0; i < groups_count; i++)
        if (memcmp(&groups[i].name, name, sizeof *name) == 0) return &groups[i];
    groups[groups_count] = (group){.name = *name, .ranks = ranks};
    return &groups[groups_count++];
}

int ncclCommInitRankConfig(comm **out, int ranks, id name, int rank, const config *c)
{
    if (c->magic != 0xcafebeef || c->version < 21400 || c->blocking || ranks > RANKS_MAX || rank >= ranks)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    *out = calloc(1, sizeof **out);
    (*out)->g = find_group(&name, ranks), (*out)->rank = rank;
    (*out)->g->joined++;
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(const comm *c, int *result)
{
    pthread_mutex_lock(&lock);
    bool joined = c->g->joined >= c->g->ranks;
    *result = joined && c->calls <= c->g->done ? SUCCESS : IN_PROGRESS;
    if (joined && getenv("FAKE_NCCL_FAILS") && c->calls) *result = SYSTEM_ERROR;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void add_up(group *g, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < g->ranks; r++) sum += g->x[r][i];
        for (int r = 0; r < g->ranks; r++) g->y[r][i] = sum;
    }
    g->arrived = 0, g->done++;
}

/* Only sums of f32. */
int ncclAllReduce(const float *x, float *y, size_t count, int type, int op, comm *c, void *stream)
{
    (void)stream;
    if (type != TYPE_F32 || op != 0) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    group *g = c->g;
    g->x[c->rank] = x, g->y[c->rank] = y;
    c->calls++;
    if (++g->arrived == g->ranks) add_up(g, count);
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclAllGather(const void *x, void *y, size_t count, int type, comm *c, void *stream)
{
    (void)x, (void)y, (void)count, (void)type, (void)c, (void)stream;
    return INVALID_ARGUMENT;
}

int ncclSend(const void *x, size_t count, int type, int peer, comm *c, void *stream)
{
    (void)x, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    return INVALID_ARGUMENT;
}

int ncclRecv(void *y, size_t count, int type, int peer, comm *c, void *stream)
{
    (void)y, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    return INVALID_ARGUMENT;
}

int ncclCommFinalize(comm *c)
{
    c->finalized = true;
    return SUCCESS;
}

int ncclCommDestroy(comm *c)
{
    if (c->finalized) atomic_fetch_add(&fake_nccl_destroyed, 1);
    free(c);
    return SUCCESS;
}

int ncclCommAbort(comm *c)
{
    atomic_fetch_add(&fake_nccl_aborted, 1);
    free(c);
    return SUCCESS;
}
