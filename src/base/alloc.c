/* SPDX-License-Identifier: Apache-2.0
 * alloc.c - allocation that never returns NULL, the memory reserve, budgeted pages, and memory
 * statistics. */
#include "base/alloc.h"

#include "base/limits.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static atomic_uint_fast64_t calls;

static PROA_COLD void abort_no_memory(size_t bytes)
{
    fprintf(stderr, "proa: out of memory: %zu bytes for bookkeeping\n", bytes);
    abort();
}

/* ---- the reserve ---- */

#define SLICES ((int)(PROA_RESERVE_BYTES / PROA_RESERVE_SLICE_BYTES))

static struct {
    pthread_mutex_t lock;
    void *slice[SLICES]; /* mapped and never touched, so that they cost address space and no memory */
    int held;            /* slices that are mapped: the first of the array */
    bool open;
    atomic_int missing; /* slices that were released; read without the lock */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Maps slices until the reserve is complete or the system refuses. */
static void reserve_fill(void)
{
    while (reserve.held < SLICES) {
        void *slice = mmap(NULL, (size_t)PROA_RESERVE_SLICE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (slice == MAP_FAILED) break;
        reserve.slice[reserve.held++] = slice;
    }
    atomic_store_explicit(&reserve.missing, SLICES - reserve.held, memory_order_relaxed);
}

bool proa_reserve_give(void)
{
    pthread_mutex_lock(&reserve.lock);
    bool given = reserve.open && reserve.held > 0;
    if (given) {
        munmap(reserve.slice[--reserve.held], (size_t)PROA_RESERVE_SLICE_BYTES);
        atomic_fetch_add_explicit(&reserve.missing, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&reserve.lock);
    return given;
}

bool proa_reserve_open(void)
{
    pthread_mutex_lock(&reserve.lock);
    reserve.open = true;
    reserve_fill();
    bool is_whole = reserve.held == SLICES;
    pthread_mutex_unlock(&reserve.lock);
    return is_whole;
}

int proa_reserve_missing(void)
{
    int missing = atomic_load_explicit(&reserve.missing, memory_order_relaxed);
    if (PROA_LIKELY(missing == 0)) return 0;
    pthread_mutex_lock(&reserve.lock);
    if (reserve.open) reserve_fill();
    missing = atomic_load_explicit(&reserve.missing, memory_order_relaxed);
    pthread_mutex_unlock(&reserve.lock);
    return missing;
}

/* ---- bookkeeping ---- */

typedef struct allocation {
    enum { MALLOC, CALLOC, REALLOC, ALIGNED } how;
    void *ptr;
    size_t count, bytes;
} allocation;

static void *attempt_allocation(const allocation *a)
{
    switch (a->how) {
    case CALLOC: return calloc(a->count, a->bytes);
    case REALLOC: return realloc(a->ptr, a->bytes);
    case ALIGNED: return aligned_alloc(64, a->bytes);
    case MALLOC: break;
    }
    return malloc(a->bytes);
}

/* After the system refused memory: releases slices of the reserve until the allocation succeeds. */
static PROA_COLD PROA_NO_INLINE void *from_reserve(allocation a)
{
    void *ptr = NULL;
    while (!ptr && proa_reserve_give()) ptr = attempt_allocation(&a);
    if (!ptr) abort_no_memory(a.bytes);
    return ptr;
}

static void count_call(void)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
}

void *proa_malloc(size_t bytes)
{
    count_call();
    void *ptr = malloc(bytes ? bytes : 1);
    return PROA_LIKELY(ptr) ? ptr : from_reserve((allocation){MALLOC, .bytes = bytes ? bytes : 1});
}

void *proa_calloc(size_t count, size_t bytes)
{
    count_call();
    allocation a = {CALLOC, .count = count ? count : 1, .bytes = bytes ? bytes : 1};
    void *ptr = calloc(a.count, a.bytes);
    return PROA_LIKELY(ptr) ? ptr : from_reserve(a);
}

void *proa_realloc(void *ptr, size_t bytes)
{
    count_call();
    void *moved = realloc(ptr, bytes ? bytes : 1);
    return PROA_LIKELY(moved) ? moved
                              : from_reserve((allocation){REALLOC, .ptr = ptr, .bytes = bytes ? bytes : 1});
}

void *proa_malloc_aligned_try(size_t bytes)
{
    count_call();
    if (PROA_UNLIKELY(bytes > SIZE_MAX / 2)) return NULL;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes ? 0 : 64));
}

void *proa_malloc_aligned(size_t bytes)
{
    if (PROA_UNLIKELY(bytes > SIZE_MAX / 2)) abort_no_memory(bytes);
    size_t rounded = (bytes + 63) / 64 * 64 + (bytes ? 0 : 64);
    void *ptr = proa_malloc_aligned_try(bytes);
    return PROA_LIKELY(ptr) ? ptr : from_reserve((allocation){ALIGNED, .bytes = rounded});
}

void *proa_realloc_try(void *ptr, size_t bytes)
{
    count_call();
    return realloc(ptr, bytes ? bytes : 1);
}

char *proa_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(proa_malloc(n), s, n);
}

#define HUGE_BYTES ((size_t)2 << 20)

/* Maps one huge page more than requested and unmaps what is outside the aligned range. */
static void *map_aligned(size_t bytes)
{
    char *raw = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    size_t before = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    if (before) munmap(raw, before);
    if (before < HUGE_BYTES) munmap(raw + before + bytes, HUGE_BYTES - before);
    madvise(raw + before, bytes, MADV_HUGEPAGE);
    return raw + before;
}

static size_t page_bytes(int64_t bytes)
{
    return ((size_t)bytes + 4095) / 4096 * 4096;
}

void *proa_pages_alloc(int64_t bytes)
{
    PROA_ASSERT(bytes > 0);
    if (bytes > INT64_MAX / 2) return NULL;
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    size_t size = page_bytes(bytes);
    if (size >= HUGE_BYTES) return map_aligned(size);
    void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return ptr == MAP_FAILED ? NULL : ptr;
}

void proa_pages_free(void *ptr, int64_t bytes)
{
    if (ptr) munmap(ptr, page_bytes(bytes));
}

static int64_t read_number(const char *path, const char *format)
{
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    char line[256];
    long long value = -1;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, format, &value) == 1) break;
    fclose(f);
    return value;
}

int64_t proa_memory_available(void)
{
    int64_t least = INT64_MAX;
    int64_t kib = read_number("/proc/meminfo", "MemAvailable: %lld kB");
    if (kib >= 0) least = kib * 1024;
    int64_t max = read_number("/sys/fs/cgroup/memory.max", "%lld"); /* the word "max" reads as no number */
    int64_t now = read_number("/sys/fs/cgroup/memory.current", "%lld");
    if (max >= 0 && now >= 0 && max - now < least) least = max > now ? max - now : 0;
    return least;
}

void proa_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

int64_t proa_memory_peak(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (int64_t)usage.ru_maxrss * 1024;
}

uint64_t proa_alloc_count(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}
