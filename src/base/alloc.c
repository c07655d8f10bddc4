/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static atomic_uint_fast64_t calls;

static PROA_COLD void die(size_t bytes)
{
    fprintf(stderr, "proa: out of memory: %zu bytes for bookkeeping\n", bytes);
    abort();
}

static void *checked(void *ptr, size_t bytes)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (PROA_UNLIKELY(!ptr)) die(bytes);
    return ptr;
}

void *proa_malloc(size_t bytes)
{
    return checked(malloc(bytes ? bytes : 1), bytes);
}

void *proa_calloc(size_t count, size_t bytes)
{
    return checked(calloc(count ? count : 1, bytes ? bytes : 1), bytes);
}

void *proa_realloc(void *ptr, size_t bytes)
{
    return checked(realloc(ptr, bytes ? bytes : 1), bytes);
}

void *proa_malloc_aligned(size_t bytes)
{
    if (PROA_UNLIKELY(bytes > SIZE_MAX / 2)) die(bytes);
    return checked(aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes ? 0 : 64)), bytes);
}

char *proa_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(proa_malloc(n), s, n);
}

#define HUGE_BYTES ((size_t)2 << 20)

/* Maps a surplus of one huge page and gives back what stands over on both sides. */
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
