/* SPDX-License-Identifier: Apache-2.0
 * arena.c - shared memory: this side's allocator, and the view of the other side's arena. */
#include "process/arena.h"
#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_ALIGN 64
#define PAGE        4096

typedef _Atomic(uint64_t) word;

/* ---- a memfd of fixed size ---- */

static int sealed_memory(size_t bytes, proa_err *err)
{
    int fd = memfd_create("proa-python", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        PROA_FAIL(err, IO, "cannot make shared memory: %s", strerror(errno));
        return -1;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        PROA_FAIL(err, IO, "cannot make %zu bytes of shared memory: %s", bytes, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

static void *map_memory(int fd, size_t bytes, int protection, proa_err *err)
{
    void *map = mmap(NULL, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map != MAP_FAILED) return map;
    PROA_FAIL(err, NO_MEMORY, "cannot map %zu bytes of shared memory: %s", bytes, strerror(errno));
    return NULL;
}

/* The size of memory that another process has made. */
static proa_status memory_bytes(size_t *out, int fd, proa_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size <= (off_t)PROA_CHANNEL_DATA_BEGIN)
        return PROA_FAIL(err, INVALID, "descriptor %d is no shared memory", fd);
    *out = (size_t)st.st_size;
    return PROA_OK;
}

/* A sealed memfd of fixed size, mapped. */
static proa_status new_memory(int *fd, char **base, size_t bytes, int protection, proa_err *err)
{
    *fd = sealed_memory(bytes, err);
    if (*fd < 0) return PROA_IO;
    *base = map_memory(*fd, bytes, protection, err);
    if (*base) return PROA_OK;
    close(*fd);
    return PROA_NO_MEMORY;
}

/* ---- the arena of this side ---- */

/* What is to be done when a block is free. */
typedef struct free_callback {
    struct free_callback *next;
    void (*end)(void *arg);
    void *arg;
} free_callback;

typedef struct block {
    uint64_t at, end;
    int local_refs;  /* holders on this side */
    bool peer_holds; /* the other side has not returned it yet */
    free_callback *callbacks;
} block;

struct proa_shared_arena {
    atomic_int refs;
    int fd;
    char *base;
    size_t bytes, keep;
    pthread_mutex_t lock; /* of all below */
    block *blocks;        /* by place */
    int count, cap;
    uint64_t top; /* nothing at or above it was touched */
    int ring_next;
    size_t used;
    free_callback *due; /* callbacks of blocks that are free; unlock_arena calls them */
};

static proa_shared_arena *make_arena(int fd, char *base, size_t bytes, size_t keep)
{
    proa_shared_arena *a = proa_calloc(1, sizeof *a);
    atomic_init(&a->refs, 1);
    a->fd = fd;
    a->base = base;
    a->bytes = bytes;
    a->keep = keep;
    a->top = PROA_CHANNEL_DATA_BEGIN;
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

proa_status proa_shared_arena_new(proa_shared_arena **out, size_t bytes, size_t keep, proa_err *err)
{
    int fd;
    char *base;
    *out = NULL;
    PROA_TRY(new_memory(&fd, &base, bytes, PROT_READ | PROT_WRITE, err));
    *out = make_arena(fd, base, bytes, keep);
    return PROA_OK;
}

proa_status proa_shared_arena_open(proa_shared_arena **out, int fd, size_t keep, proa_err *err)
{
    size_t bytes = 0;
    *out = NULL;
    PROA_TRY(memory_bytes(&bytes, fd, err));
    char *base = map_memory(fd, bytes, PROT_READ | PROT_WRITE, err);
    if (!base) return PROA_NO_MEMORY;
    *out = make_arena(fd, base, bytes, keep);
    return PROA_OK;
}

static void run_callbacks(free_callback *n)
{
    while (n) {
        free_callback *next = n->next;
        n->end(n->arg);
        free(n);
        n = next;
    }
}

static void unlock_arena(proa_shared_arena *a)
{
    free_callback *due = a->due;
    a->due = NULL;
    pthread_mutex_unlock(&a->lock);
    run_callbacks(due);
}

proa_shared_arena *proa_shared_arena_retain(proa_shared_arena *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void proa_shared_arena_release(proa_shared_arena *a)
{
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < a->count; i++) run_callbacks(a->blocks[i].callbacks);
    munmap(a->base, a->bytes);
    close(a->fd);
    pthread_mutex_destroy(&a->lock);
    free(a->blocks);
    free(a);
}

int proa_shared_arena_fd(const proa_shared_arena *a)
{
    return a->fd;
}

char *proa_shared_arena_at(const proa_shared_arena *a, uint64_t at)
{
    return a->base + at;
}

/* The index of the first block that begins at `at` or after it. */
static int find_block(const proa_shared_arena *a, uint64_t at)
{
    int low = 0, high = a->count;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (a->blocks[mid].at < at) low = mid + 1;
        else high = mid;
    }
    return low;
}

static block *block_at(proa_shared_arena *a, uint64_t at)
{
    int i = find_block(a, at);
    return i < a->count && a->blocks[i].at == at ? &a->blocks[i] : NULL;
}

/* Returns to the system the touched memory above the last block, except the part that is kept. */
static void trim_arena(proa_shared_arena *a)
{
    uint64_t end = a->count ? a->blocks[a->count - 1].end : PROA_CHANNEL_DATA_BEGIN;
    uint64_t from = (end + a->keep + PAGE - 1) / PAGE * PAGE, to = a->top / PAGE * PAGE;
    if (to <= from) return;
    if (madvise(a->base + from, to - from, MADV_REMOVE) == 0) a->top = from;
}

static void remove_if_free(proa_shared_arena *a, block *b)
{
    if (b->local_refs || b->peer_holds) return;
    free_callback **last = &b->callbacks;
    while (*last) last = &(*last)->next;
    *last = a->due;
    a->due = b->callbacks;
    a->used -= b->end - b->at;
    a->count--;
    memmove(b, b + 1, (size_t)(a->blocks + a->count - b) * sizeof *b);
    trim_arena(a);
}

/* Takes the blocks that the other side has returned from the ring. An offset that is no block changes nothing. */
static void collect_freed(proa_shared_arena *a)
{
    word *ring = (word *)a->base;
    for (int i = 0; i < PROA_CHANNEL_RING; i++) {
        uint64_t at = atomic_load_explicit(&ring[a->ring_next], memory_order_acquire);
        if (!at) return;
        atomic_store_explicit(&ring[a->ring_next], 0, memory_order_release);
        a->ring_next = (a->ring_next + 1) % PROA_CHANNEL_RING;
        block *b = block_at(a, at);
        if (!b) continue;
        b->peer_holds = false;
        remove_if_free(a, b);
    }
}

/* The first gap that is wide enough: reusing low memory keeps it in the caches. */
static int find_gap(const proa_shared_arena *a, size_t bytes, uint64_t *at)
{
    uint64_t from = PROA_CHANNEL_DATA_BEGIN;
    for (int i = 0; i < a->count; i++) {
        if (a->blocks[i].at - from >= bytes) {
            *at = from;
            return i;
        }
        from = a->blocks[i].end;
    }
    if (a->bytes < from || a->bytes - from < bytes) return -1;
    *at = from;
    return a->count;
}

static void insert_block(proa_shared_arena *a, int i, uint64_t at, size_t bytes)
{
    if (a->count == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 16;
        a->blocks = proa_realloc(a->blocks, (size_t)a->cap * sizeof *a->blocks);
    }
    memmove(a->blocks + i + 1, a->blocks + i, (size_t)(a->count - i) * sizeof *a->blocks);
    a->blocks[i] = (block){.at = at, .end = at + bytes, .local_refs = 1, .peer_holds = true};
    a->count++;
    a->used += bytes;
    if (at + bytes > a->top) a->top = at + bytes;
}

uint64_t proa_shared_arena_alloc(proa_shared_arena *a, size_t bytes)
{
    uint64_t at = 0;
    if (bytes == 0 || bytes > a->bytes) return 0;
    bytes = (bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    pthread_mutex_lock(&a->lock);
    collect_freed(a);
    int i = find_gap(a, bytes, &at);
    if (i >= 0) insert_block(a, i, at, bytes);
    unlock_arena(a);
    return i >= 0 ? at : 0;
}

void proa_shared_arena_retain_block(proa_shared_arena *a, uint64_t at)
{
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, at);
    PROA_ASSERT(b && b->local_refs);
    b->local_refs++;
    unlock_arena(a);
}

void proa_shared_arena_release_block(proa_shared_arena *a, uint64_t at)
{
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, at);
    PROA_ASSERT(b && b->local_refs);
    b->local_refs--;
    remove_if_free(a, b);
    unlock_arena(a);
}

void proa_shared_arena_on_free(proa_shared_arena *a, uint64_t at, void (*end)(void *arg), void *arg)
{
    free_callback *n = proa_malloc(sizeof *n);
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, at);
    PROA_ASSERT(b);
    *n = (free_callback){b->callbacks, end, arg};
    b->callbacks = n;
    unlock_arena(a);
}

void proa_shared_arena_cancel_send(proa_shared_arena *a, uint64_t at)
{
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, at);
    PROA_ASSERT(b);
    b->peer_holds = false;
    remove_if_free(a, b);
    unlock_arena(a);
}

uint64_t proa_shared_arena_share(proa_shared_arena *a, const void *data, size_t bytes)
{
    uintptr_t from = (uintptr_t)a->base, to = (uintptr_t)data;
    if (to <= from || to - from >= a->bytes) return 0;
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, to - from);
    bool shared = b && !b->peer_holds && bytes <= b->end - b->at;
    if (shared) b->peer_holds = true;
    unlock_arena(a);
    return shared ? to - from : 0;
}

bool proa_shared_arena_contains(proa_shared_arena *a, uint64_t block_begin, uint64_t at, uint64_t bytes)
{
    pthread_mutex_lock(&a->lock);
    block *b = block_at(a, block_begin);
    bool inside = b && at >= b->at && at <= b->end && bytes <= b->end - at;
    unlock_arena(a);
    return inside;
}

size_t proa_shared_arena_used(proa_shared_arena *a)
{
    pthread_mutex_lock(&a->lock);
    collect_freed(a);
    size_t used = a->used;
    unlock_arena(a);
    return used;
}

/* ---- the view of the other side's arena ---- */

struct proa_shared_view {
    atomic_int refs;
    int fd;
    const char *base;
    word *ring; /* the start of the same memory, mapped writable */
    size_t bytes;
    pthread_mutex_t lock; /* of all below */
    int ring_next;
    uint64_t *waiting; /* blocks to return, waiting for a free word of the ring */
    size_t waiting_count, waiting_cap;
};

/* The ring is the begin of the same memory, mapped writable. Takes fd and base. */
static proa_status make_view(proa_shared_view **out, int fd, char *base, size_t bytes, proa_err *err)
{
    void *ring = map_memory(fd, PROA_CHANNEL_DATA_BEGIN, PROT_READ | PROT_WRITE, err);
    if (!ring) {
        munmap(base, bytes);
        close(fd);
        return PROA_NO_MEMORY;
    }
    proa_shared_view *v = proa_calloc(1, sizeof *v);
    atomic_init(&v->refs, 1);
    v->fd = fd;
    v->base = base;
    v->ring = ring;
    v->bytes = bytes;
    pthread_mutex_init(&v->lock, NULL);
    *out = v;
    return PROA_OK;
}

proa_status proa_shared_view_new(proa_shared_view **out, size_t bytes, proa_err *err)
{
    int fd;
    char *base;
    *out = NULL;
    PROA_TRY(new_memory(&fd, &base, bytes, PROT_READ, err));
    return make_view(out, fd, base, bytes, err);
}

proa_status proa_shared_view_open(proa_shared_view **out, int fd, proa_err *err)
{
    size_t bytes = 0;
    *out = NULL;
    PROA_TRY(memory_bytes(&bytes, fd, err));
    char *base = map_memory(fd, bytes, PROT_READ, err);
    return base ? make_view(out, fd, base, bytes, err) : PROA_NO_MEMORY;
}

proa_shared_view *proa_shared_view_retain(proa_shared_view *v)
{
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

void proa_shared_view_release(proa_shared_view *v)
{
    if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1) return;
    munmap((void *)v->base, v->bytes);
    munmap((void *)v->ring, PROA_CHANNEL_DATA_BEGIN);
    close(v->fd);
    pthread_mutex_destroy(&v->lock);
    free(v->waiting);
    free(v);
}

int proa_shared_view_fd(const proa_shared_view *v)
{
    return v->fd;
}

const char *proa_shared_view_check(const proa_shared_view *v, uint64_t at, uint64_t bytes)
{
    if (bytes == 0 || at < PROA_CHANNEL_DATA_BEGIN || at % BLOCK_ALIGN != 0) return NULL;
    if (at > v->bytes || bytes > v->bytes - at) return NULL;
    return v->base + at;
}

static bool push_view(proa_shared_view *v, uint64_t at)
{
    if (atomic_load_explicit(&v->ring[v->ring_next], memory_order_acquire)) return false;
    atomic_store_explicit(&v->ring[v->ring_next], at, memory_order_release);
    v->ring_next = (v->ring_next + 1) % PROA_CHANNEL_RING;
    return true;
}

void proa_shared_view_return_block(proa_shared_view *v, uint64_t at)
{
    pthread_mutex_lock(&v->lock);
    size_t done = 0;
    while (done < v->waiting_count && push_view(v, v->waiting[done])) done++;
    v->waiting_count -= done;
    if (done && v->waiting_count)
        memmove(v->waiting, v->waiting + done, v->waiting_count * sizeof *v->waiting);
    if (v->waiting_count || !push_view(v, at)) {
        if (v->waiting_count == v->waiting_cap) {
            v->waiting_cap = v->waiting_cap ? 2 * v->waiting_cap : 64;
            v->waiting = proa_realloc(v->waiting, v->waiting_cap * sizeof *v->waiting);
        }
        v->waiting[v->waiting_count++] = at;
    }
    pthread_mutex_unlock(&v->lock);
}
