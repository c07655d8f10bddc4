/* SPDX-License-Identifier: Apache-2.0
 * plugin.c - libproa_mpi.so: the world of MPI, and collectives over it. Sums are added in the order of the ranks by
 * each rank itself, so all have the same bits, those of ranks on one host. Waits are loops over MPI_Test: they end when
 * the group was stopped, and a rank that waits long for work sleeps between two tests. */
#include "comm/mpi/mpi.h"

#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Values that are summed at once: their parts of all ranks fit the second-level cache. */
enum { PIECE_VALUES = 16 * 1024, PLAIN_TESTS = 200, YIELDING_TESTS = 20000, SLEEP_NS = 50000, TAG = 1 };

/* A short message that the other rank may not have received. */
typedef struct kept_message {
    MPI_Request request;
    char *bytes; /* [PROA_COMM_KEPT_BYTES]; NULL: not used yet */
} kept_message;

typedef struct mpi_comm {
    proa_comm base;
    kept_message kept[PROA_COMM_KEPT];
    int next; /* of these: the oldest one */
    MPI_Comm comm;
    float *parts; /* [ranks][PIECE_VALUES] */
    atomic_bool stopped;
} mpi_comm;

static mpi_comm *mpi_of(proa_comm *c)
{
    return (mpi_comm *)(void *)c;
}

/* False: the group was stopped, and the request is abandoned: its buffers must stay. */
static bool complete_request(MPI_Request *request, atomic_bool *stopped)
{
    const struct timespec pause = {.tv_nsec = SLEEP_NS};
    int done = 0;
    for (int64_t tests = 0;; tests++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done) return true;
        if (atomic_load(stopped)) return false;
        if (tests > YIELDING_TESTS) nanosleep(&pause, NULL);
        else if (tests > PLAIN_TESTS) sched_yield();
    }
}

/* The pieces of all ranks in c->parts, one after the other. */
static bool gather_piece(mpi_comm *c, const float *own, int64_t count)
{
    MPI_Request request;
    MPI_Iallgather(own, (int)count, MPI_FLOAT, c->parts, (int)count, MPI_FLOAT, c->comm, &request);
    return complete_request(&request, &c->stopped);
}

static void all_reduce(proa_comm *base, proa_view y, proa_view x, proa_view residual)
{
    mpi_comm *c = mpi_of(base);
    float *sum = x.data, *to = y.data;
    const float *more = residual.rank ? residual.data : NULL;
    int64_t count = x.shape[0] * x.shape[1];
    for (int64_t at = 0, n; at < count && !atomic_load(&c->stopped); at += n) {
        n = count - at < PIECE_VALUES ? count - at : PIECE_VALUES;
        if (!gather_piece(c, sum + at, n)) return;
        for (int64_t i = 0; i < n; i++) {
            float value = c->parts[i];
            for (int64_t rank = 1; rank < base->ranks; rank++) value += c->parts[rank * n + i];
            to[at + i] = more ? more[at + i] + value : value;
        }
    }
}

static void put_columns(const mpi_comm *c, float *row, int64_t columns, int64_t width, int64_t at, int64_t n)
{
    for (int64_t rank = 0; rank < c->base.ranks; rank++) {
        int64_t first = rank * width + at, left = columns - first < n ? columns - first : n;
        if (left > 0) memcpy(row + first, c->parts + rank * n, (size_t)left * sizeof *row);
    }
}

static void gather_columns(proa_comm *base, proa_view y, proa_view x)
{
    mpi_comm *c = mpi_of(base);
    int64_t width = x.shape[1];
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t at = 0, n; at < width; at += n) {
            n = width - at < PIECE_VALUES ? width - at : PIECE_VALUES;
            if (!gather_piece(c, (float *)x.data + t * x.stride[0] + at, n)) return;
            put_columns(c, (float *)y.data + t * y.stride[0], y.shape[1], width, at, n);
        }
}

static int bytes_of(proa_view v)
{
    return (int)(v.shape[0] * v.shape[1] * proa_dtype_bytes(v.dtype));
}

/* False: there is no memory for a copy. */
static bool send_copy(mpi_comm *c, proa_view x, int32_t to)
{
    kept_message *k = &c->kept[c->next];
    if (!k->bytes) k->bytes = malloc(PROA_COMM_KEPT_BYTES);
    if (!k->bytes) return false;
    if (!complete_request(&k->request, &c->stopped)) return true;
    c->next = (c->next + 1) % PROA_COMM_KEPT;
    memcpy(k->bytes, x.data, (size_t)bytes_of(x));
    MPI_Isend(k->bytes, bytes_of(x), MPI_BYTE, to, TAG, c->comm, &k->request);
    return true;
}

static void send_rows(proa_comm *base, proa_view x, int32_t to)
{
    mpi_comm *c = mpi_of(base);
    MPI_Request request;
    if (bytes_of(x) <= PROA_COMM_KEPT_BYTES && send_copy(c, x, to)) return;
    MPI_Isend(x.data, bytes_of(x), MPI_BYTE, to, TAG, c->comm, &request);
    complete_request(&request, &c->stopped);
}

static void receive_rows(proa_comm *base, proa_view y, int32_t from)
{
    mpi_comm *c = mpi_of(base);
    MPI_Request request;
    MPI_Irecv(y.data, bytes_of(y), MPI_BYTE, from, TAG, c->comm, &request);
    complete_request(&request, &c->stopped);
}

static void broadcast_bytes(proa_comm *base, void *bytes, int64_t size, int32_t root)
{
    mpi_comm *c = mpi_of(base);
    MPI_Request request;
    MPI_Ibcast(bytes, (int)size, MPI_BYTE, root, c->comm, &request);
    complete_request(&request, &c->stopped);
}

static void stop_comm(proa_comm *base)
{
    atomic_store(&mpi_of(base)->stopped, true);
}

static bool is_stopped(proa_comm *base)
{
    return atomic_load(&mpi_of(base)->stopped);
}

/* MPI_Comm_free is collective, so communicators end with the process; memory of abandoned requests stays. */
static void close_comm(proa_comm *base)
{
    mpi_comm *c = mpi_of(base);
    for (int i = 0; i < PROA_COMM_KEPT && !is_stopped(base); i++)
        if (complete_request(&c->kept[i].request, &c->stopped))
            free(c->kept[i].bytes), c->kept[i].bytes = NULL;
    if (is_stopped(base)) return;
    free(c->parts);
    free(c);
}

/* ---- the world ---- */

static atomic_bool world_stopped;

static proa_status announce_text(char text[PROA_MPI_TEXT], proa_err *err)
{
    MPI_Request request;
    MPI_Ibcast(text, PROA_MPI_TEXT, MPI_CHAR, 0, MPI_COMM_WORLD, &request);
    if (complete_request(&request, &world_stopped)) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "the other ranks have ended");
}

static proa_status open_group(proa_comm **out, int32_t group, proa_err *err)
{
    int rank, ranks;
    mpi_comm *c = calloc(1, sizeof *c);
    if (!c || MPI_Comm_split(MPI_COMM_WORLD, group, 0, &c->comm) != MPI_SUCCESS)
        return free(c), PROA_FAIL(err, UNAVAILABLE, "MPI cannot make a group of ranks");
    for (int i = 0; i < PROA_COMM_KEPT; i++) c->kept[i].request = MPI_REQUEST_NULL;
    MPI_Comm_rank(c->comm, &rank);
    MPI_Comm_size(c->comm, &ranks);
    c->base = (proa_comm){.rank = rank,
                          .ranks = ranks,
                          .all_reduce = all_reduce,
                          .gather_columns = gather_columns,
                          .send = send_rows,
                          .recv = receive_rows,
                          .close = close_comm,
                          .broadcast = broadcast_bytes,
                          .stop = stop_comm,
                          .stopped = is_stopped};
    c->parts = malloc((size_t)ranks * PIECE_VALUES * sizeof *c->parts);
    if (!c->parts) {
        MPI_Comm_free(&c->comm);
        free(c);
        return PROA_FAIL(err, NO_MEMORY, "no memory for sums of %d ranks", ranks);
    }
    *out = &c->base;
    return PROA_OK;
}

static void progress_world(void)
{
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

static void end_world(bool failed)
{
    atomic_store(&world_stopped, true);
    if (failed) MPI_Abort(MPI_COMM_WORLD, 1);
    else MPI_Finalize();
}

/* The rank among those of this host. */
static int local_rank(void)
{
    int local = 0;
    MPI_Comm host;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return 0;
    MPI_Comm_rank(host, &local);
    MPI_Comm_free(&host);
    return local;
}

PROA_EXPORT proa_status proa_mpi_start(int version, proa_mpi *out, proa_err *err);
proa_status proa_mpi_start(int version, proa_mpi *out, proa_err *err)
{
    int given = MPI_THREAD_SINGLE, rank, ranks;
    if (version != PROA_MPI_VERSION)
        return PROA_FAIL(err, UNSUPPORTED, PROA_MPI_PLUGIN " has version %d, this program needs %d",
                         PROA_MPI_VERSION, version);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &given) != MPI_SUCCESS || given != MPI_THREAD_MULTIPLE)
        return PROA_FAIL(err, UNSUPPORTED, "this MPI cannot be called by several threads (MPI_THREAD_MULTIPLE)");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    *out = (proa_mpi){rank, ranks, local_rank(), announce_text, open_group, progress_world, end_world};
    return PROA_OK;
}
