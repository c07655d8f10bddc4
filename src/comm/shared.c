/* SPDX-License-Identifier: Apache-2.0
 * shared.c - collectives over memory that all ranks see: threads of a process, or processes that map one file. Each
 * rank has two slots there. A collective runs in pieces of a slot: every rank writes its piece, all wait for each other
 * once, and every rank reads the pieces of all. The two slots alternate, so that no rank overwrites a piece that
 * another one still reads: before it writes to a slot again it has passed the barrier of the piece between, which all
 * ranks reach after they have read. What one rank sends to another goes through a ring of pieces that only these two
 * use. */
#include "comm/comm.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "comm/gate.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Small enough for the second-level cache of each rank, and large enough that the wait does not matter. */
#define SLOT_BYTES  (128 * 1024)
#define SLOT_VALUES (SLOT_BYTES / (int64_t)sizeof(float))
/* Pieces of a ring: a sender may be that many ahead of its receiver. Pieces that are never sent take no memory. */
#define RING_PIECES PROA_COMM_KEPT

/* Counts of the pieces that one rank has sent to another. */
typedef struct ring {
    PROA_ALIGNED(64) proa_gate sent;
    PROA_ALIGNED(64) proa_gate taken;
} ring;

typedef struct region {
    PROA_ALIGNED(64) atomic_uint arrived; /* ranks that wait at the barrier */
    PROA_ALIGNED(64) proa_gate gate;      /* barriers that were passed */
    PROA_ALIGNED(64) atomic_int open;     /* ranks that are not closed; of threads */
    atomic_int stopped;                   /* 1: no rank waits any more */
    /* slots [2][ranks][SLOT_BYTES], rings [ranks][ranks] by sender and receiver, and as many times their pieces
     * [RING_PIECES][SLOT_BYTES] */
    PROA_ALIGNED(64) char slot[];
} region;

typedef struct shared_comm {
    proa_comm base;
    region *region;
    size_t mapped; /* bytes of the region, if it is a file; 0: it is memory of this process */
    int turn;      /* which of the two slots is next */
} shared_comm;

static shared_comm *shared_of(proa_comm *c)
{
    return (shared_comm *)(void *)c;
}

static char *slot_of(const shared_comm *s, int32_t rank)
{
    return s->region->slot + ((int64_t)s->turn * s->base.ranks + rank) * SLOT_BYTES;
}

/* Returns when all ranks have called it, or the group was stopped. */
static void wait_for_ranks(proa_comm *c)
{
    region *r = shared_of(c)->region;
    uint32_t seen = atomic_load(&r->gate.value);
    if (atomic_fetch_add(&r->arrived, 1) + 1 < (uint32_t)c->ranks) {
        proa_gate_wait(&r->gate, seen, &r->stopped);
        return;
    }
    atomic_store(&r->arrived, 0);
    proa_gate_open(&r->gate);
}

/* The pieces of all ranks are in their slots. */
static void exchange_pieces(shared_comm *s, const float *piece, int64_t count)
{
    s->turn = !s->turn;
    memcpy(slot_of(s, s->base.rank), piece, (size_t)count * sizeof *piece);
    wait_for_ranks(&s->base);
}

static const float *piece_of(const shared_comm *s, int32_t rank)
{
    return (const float *)(const void *)slot_of(s, rank);
}

static void add_pieces(const shared_comm *s, float *values, int64_t count)
{
    memcpy(values, piece_of(s, 0), (size_t)count * sizeof *values);
    for (int32_t rank = 1; rank < s->base.ranks; rank++) {
        const float *piece = piece_of(s, rank);
        for (int64_t i = 0; i < count; i++) values[i] += piece[i];
    }
}

static bool is_dense_f32(proa_view v)
{
    return v.dtype == PROA_DTYPE_F32 && v.rank == 2 && (v.shape[0] <= 1 || v.stride[0] == v.shape[1]);
}

static void all_reduce(proa_comm *c, proa_view y, proa_view x, proa_view residual)
{
    shared_comm *s = shared_of(c);
    float *sum = proa_view_f32(x), *to = proa_view_f32(y);
    const float *more = residual.rank ? proa_view_f32(residual) : NULL;
    int64_t count = proa_view_count(x);
    PROA_ASSERT(is_dense_f32(x) && is_dense_f32(y) && (!more || is_dense_f32(residual)));
    for (int64_t at = 0, n; at < count; at += n) {
        n = proa_min64(count - at, SLOT_VALUES);
        exchange_pieces(s, sum + at, n);
        add_pieces(s, sum + at, n);
        for (int64_t i = at; i < at + n; i++) to[i] = more ? more[i] + sum[i] : sum[i];
    }
}

/* x: some columns of some rows, which every rank has of its own. In y, the same rows, those of rank 0 begin at column
 * `at`, and those of each other rank `width` behind. */
static void gather_piece(shared_comm *s, proa_view y, proa_view x, int64_t at, int64_t width)
{
    int64_t rows = x.shape[0], n = x.shape[1], bytes = (int64_t)sizeof(float);
    s->turn = !s->turn;
    for (int64_t i = 0; i < rows; i++)
        memcpy(slot_of(s, s->base.rank) + i * n * bytes, proa_view_f32(x) + i * x.stride[0], (size_t)(n * bytes));
    wait_for_ranks(&s->base);
    for (int64_t rank = 0; rank < s->base.ranks; rank++) {
        int64_t first = rank * width + at, left = proa_min64(n, y.shape[1] - first);
        for (int64_t i = 0; i < rows && left > 0; i++)
            memcpy(proa_view_f32(y) + i * y.stride[0] + first, piece_of(s, (int32_t)rank) + i * n,
                   (size_t)(left * bytes));
    }
}

/* As many rows at a time as a slot takes; a row that is wider than a slot is gathered in parts. */
static void gather_columns(proa_comm *c, proa_view y, proa_view x)
{
    shared_comm *s = shared_of(c);
    int64_t width = x.shape[1], each = proa_max64(1, SLOT_VALUES / proa_max64(width, 1));
    PROA_ASSERT(x.dtype == PROA_DTYPE_F32 && y.dtype == PROA_DTYPE_F32 && x.shape[0] == y.shape[0]);
    for (int64_t t = 0, end; t < x.shape[0]; t = end) {
        end = proa_min64(t + each, x.shape[0]);
        proa_view from = proa_view_rows(x, t, end), to = proa_view_rows(y, t, end);
        for (int64_t at = 0, n; at < width; at += n) {
            n = proa_min64(width - at, SLOT_VALUES);
            gather_piece(s, to, proa_view_cols(from, at, at + n), at, width);
        }
    }
}

static bool is_stopped(proa_comm *c)
{
    return atomic_load(&shared_of(c)->region->stopped) != 0;
}

/* ---- messages ---- */

static ring *ring_of(const shared_comm *s, int32_t from, int32_t to)
{
    char *rings = s->region->slot + 2 * (int64_t)s->base.ranks * SLOT_BYTES;
    return (ring *)(void *)rings + (int64_t)from * s->base.ranks + to;
}

/* Piece `count` of a ring, counted from its first one. */
static char *ring_piece(const shared_comm *s, const ring *r, uint32_t count)
{
    int64_t ranks = s->base.ranks, number = r - ring_of(s, 0, 0);
    char *pieces = (char *)(ring_of(s, 0, 0) + ranks * ranks);
    return pieces + (number * RING_PIECES + count % RING_PIECES) * SLOT_BYTES;
}

static int64_t message_bytes(proa_view v)
{
    PROA_ASSERT(v.rank == 2 && (v.shape[0] <= 1 || v.stride[0] == v.shape[1]));
    return proa_view_count(v) * proa_dtype_bytes(v.dtype);
}

static void send_rows(proa_comm *c, proa_view x, int32_t to)
{
    shared_comm *s = shared_of(c);
    ring *r = ring_of(s, c->rank, to);
    const char *from = x.data;
    uint32_t count = atomic_load(&r->sent.value);
    for (int64_t left = message_bytes(x), n; left > 0; left -= n, from += n, count++) {
        n = proa_min64(left, SLOT_BYTES);
        while (count - atomic_load(&r->taken.value) == RING_PIECES && !is_stopped(c))
            proa_gate_wait(&r->taken, count - RING_PIECES, &s->region->stopped);
        memcpy(ring_piece(s, r, count), from, (size_t)n);
        proa_gate_open(&r->sent);
    }
}

static void receive_rows(proa_comm *c, proa_view y, int32_t from)
{
    shared_comm *s = shared_of(c);
    ring *r = ring_of(s, from, c->rank);
    char *to = y.data;
    uint32_t count = atomic_load(&r->taken.value);
    for (int64_t left = message_bytes(y), n; left > 0; left -= n, to += n, count++) {
        n = proa_min64(left, SLOT_BYTES);
        proa_gate_wait(&r->sent, count, &s->region->stopped);
        memcpy(to, ring_piece(s, r, count), (size_t)n);
        proa_gate_open(&r->taken);
    }
}

/* ---- all ranks ---- */

static void broadcast_bytes(proa_comm *c, void *bytes, int64_t size, int32_t root)
{
    shared_comm *s = shared_of(c);
    for (int64_t at = 0, n; at < size; at += n) {
        char *piece = (char *)bytes + at;
        n = proa_min64(size - at, SLOT_BYTES);
        s->turn = !s->turn;
        if (c->rank == root) memcpy(slot_of(s, root), piece, (size_t)n);
        wait_for_ranks(c);
        if (c->rank != root) memcpy(piece, slot_of(s, root), (size_t)n);
    }
}

static void stop_shared(proa_comm *c)
{
    region *r = shared_of(c)->region;
    atomic_store(&r->stopped, 1);
    proa_gate_wake(&r->gate);
}

static void close_shared(proa_comm *c)
{
    shared_comm *s = shared_of(c);
    if (s->mapped) munmap(s->region, s->mapped);
    else if (atomic_fetch_sub(&s->region->open, 1) == 1) free(s->region);
    free(s);
}

/* Bytes up to the rings, which follow the slots. */
static size_t slots_bytes(int32_t ranks)
{
    return sizeof(region) + 2 * (size_t)ranks * SLOT_BYTES;
}

static size_t region_bytes(int32_t ranks)
{
    size_t pairs = (size_t)ranks * (size_t)ranks;
    PROA_ASSERT(ranks >= 1 && ranks <= PROA_RANKS_MAX);
    return slots_bytes(ranks) + pairs * (sizeof(ring) + RING_PIECES * SLOT_BYTES);
}

static proa_comm *make_rank(region *r, int32_t rank, int32_t ranks, size_t mapped)
{
    shared_comm *s = proa_calloc(1, sizeof *s);
    s->base = (proa_comm){.rank = rank,
                          .ranks = ranks,
                          .all_reduce = all_reduce,
                          .gather_columns = gather_columns,
                          .send = send_rows,
                          .recv = receive_rows,
                          .close = close_shared,
                          .broadcast = broadcast_bytes,
                          .stop = stop_shared,
                          .stopped = is_stopped};
    s->region = r, s->mapped = mapped;
    return &s->base;
}

proa_status proa_comm_open_threads(proa_comm **out, int32_t ranks, proa_err *err)
{
    size_t bytes = region_bytes(ranks), slots = slots_bytes(ranks);
    region *r = aligned_alloc(64, bytes);
    if (!r) return PROA_FAIL(err, NO_MEMORY, "cannot take %zu bytes for %d ranks", bytes, ranks);
    memset(r, 0, sizeof *r);
    memset((char *)r + slots, 0, (size_t)ranks * (size_t)ranks * sizeof(ring));
    atomic_store(&r->open, ranks);
    for (int32_t rank = 0; rank < ranks; rank++) out[rank] = make_rank(r, rank, ranks, 0);
    return PROA_OK;
}

proa_status proa_comm_shared_file(int *fd, int32_t ranks, proa_err *err)
{
    size_t bytes = region_bytes(ranks);
    *fd = memfd_create("proa-ranks", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0) return PROA_OK;
    PROA_FAIL(err, NO_MEMORY, "cannot make %zu bytes of shared memory for %d ranks: %s", bytes, ranks,
              strerror(errno));
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return PROA_NO_MEMORY;
}

proa_status proa_comm_open_shared(proa_comm **out, int fd, int32_t rank, int32_t ranks, proa_err *err)
{
    size_t bytes = region_bytes(ranks);
    struct stat file;
    if (fstat(fd, &file) != 0 || (size_t)file.st_size != bytes)
        return PROA_FAIL(err, CORRUPT, "shared memory of ranks is not for %d of them", ranks);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED)
        return PROA_FAIL(err, NO_MEMORY, "cannot map %zu bytes of shared memory: %s", bytes, strerror(errno));
    *out = make_rank(memory, rank, ranks, bytes);
    return PROA_OK;
}

void proa_comm_close(proa_comm *c)
{
    if (c) c->close(c);
}
