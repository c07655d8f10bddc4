/* SPDX-License-Identifier: Apache-2.0
 * failing_malloc.c - a library to preload: malloc and its kin, mmap and pthread_create, one call of which can be made
 * to fail.
 *
 * A driver (tests/wire/test_alloc_failures.py) and this library share a file, named by FAILING_MALLOC, that both map:
 * `struct control`. The driver sets `mode`; the library counts blocks that are in use and, in RECORD, notes each
 * different chain of callers that allocates. In FAIL the next allocation of the chain `target` returns NULL with
 * ENOMEM, once. A chain is the hash of up to DEPTH return addresses as offsets into their modules, so that it is the
 * same in the next process; an address that repeats the one before it (recursion) counts once.
 * Threads: any. The unwinder is the compiler's own; it is warmed up before the first mode is set. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { OFF, RECORD, FAIL };
enum { DEPTH = 24, SKIP = 3, CHAINS = 1 << 16, SHOWN = 16, MODULES = 64 };

/* As the driver reads it: 8-byte little-endian words in this order. */
struct control {
    atomic_uint_fast64_t mode, target, failed; /* failed: how often the target was hit */
    atomic_uint_fast64_t blocks, bytes;        /* in use */
    atomic_uint_fast64_t chains;               /* in the table */
    uint64_t where[SHOWN];                     /* offsets of the chain that failed, innermost first */
    uint64_t module[SHOWN];                    /* which module each lies in: its index among those loaded */
    atomic_uint_fast64_t table[CHAINS];        /* hashes, open addressing; 0: free */
};

static struct control *shared;
static __thread int inside;
static struct {
    uintptr_t from, to;
} modules[MODULES];
static int modules_count;

/* The executable segments of what is loaded, so that an address becomes an offset without a lock. */
static int add_module(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    uintptr_t to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > to)
            to = info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (modules_count < MODULES) {
        modules[modules_count].from = info->dlpi_addr;
        modules[modules_count++].to = info->dlpi_addr + to;
    }
    return 0;
}

struct chain {
    int skip, count;
    uint64_t hash, last;
    uint64_t where[SHOWN], module[SHOWN];
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg)
{
    struct chain *c = arg;
    if (c->skip-- > 0) return _URC_NO_REASON;
    uintptr_t at = _Unwind_GetIP(context);
    uint64_t offset = at, module = MODULES;
    for (int i = 0; i < modules_count; i++)
        if (at >= modules[i].from && at < modules[i].to) {
            offset = at - modules[i].from;
            module = (uint64_t)i;
            break;
        }
    if (offset == c->last) return _URC_NO_REASON;
    c->last = offset;
    if (c->count < SHOWN) c->where[c->count] = offset, c->module[c->count] = module;
    c->hash = (c->hash ^ (offset + (module << 48))) * 0x9e3779b97f4a7c15u;
    c->hash ^= c->hash >> 29;
    return ++c->count < DEPTH ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void note(uint64_t hash)
{
    for (uint64_t at = hash % CHAINS, tries = 0; tries < CHAINS; tries++, at = (at + 1) % CHAINS) {
        uint_fast64_t seen = atomic_load(&shared->table[at]);
        if (seen == 0 && atomic_compare_exchange_strong(&shared->table[at], &seen, hash)) {
            atomic_fetch_add(&shared->chains, 1);
            return;
        }
        if (seen == hash) return;
    }
}

/* Whether this allocation is to fail. */
static int fails(void)
{
    uint_fast64_t mode = shared ? atomic_load_explicit(&shared->mode, memory_order_relaxed) : OFF;
    if (mode == OFF || inside) return 0;
    inside = 1;
    struct chain c = {.skip = SKIP, .hash = 1469598103934665603u};
    _Unwind_Backtrace(step, &c);
    int fail = 0;
    if (!c.hash) c.hash = 1;
    if (mode == RECORD) note(c.hash);
    uint_fast64_t wanted = c.hash;
    if (mode == FAIL && atomic_compare_exchange_strong(&shared->target, &wanted, 0)) {
        memcpy(shared->where, c.where, sizeof c.where);
        memcpy(shared->module, c.module, sizeof c.module);
        atomic_fetch_add(&shared->failed, 1);
        errno = ENOMEM;
        fail = 1;
    }
    inside = 0;
    return fail;
}

static void *count_in(void *ptr)
{
    if (ptr && shared) {
        atomic_fetch_add_explicit(&shared->blocks, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&shared->bytes, malloc_usable_size(ptr), memory_order_relaxed);
    }
    return ptr;
}

static void count_out(void *ptr)
{
    if (ptr && shared) {
        atomic_fetch_sub_explicit(&shared->blocks, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&shared->bytes, malloc_usable_size(ptr), memory_order_relaxed);
    }
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : count_in(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : count_in(__libc_calloc(count, bytes));
}

void *realloc(void *ptr, size_t bytes)
{
    if (fails()) return NULL;
    size_t before = ptr && shared ? malloc_usable_size(ptr) : 0;
    void *moved = __libc_realloc(ptr, bytes);
    if (!shared || (!moved && bytes)) return moved;
    if (ptr) {
        atomic_fetch_sub_explicit(&shared->blocks, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&shared->bytes, before, memory_order_relaxed);
    }
    return count_in(moved);
}

void *memalign(size_t align, size_t bytes)
{
    return fails() ? NULL : count_in(__libc_memalign(align, bytes));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : count_in(__libc_memalign(align, bytes));
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    void *ptr = fails() ? NULL : count_in(__libc_memalign(align, bytes));
    if (!ptr) return ENOMEM;
    *out = ptr;
    return 0;
}

void free(void *ptr)
{
    count_out(ptr);
    __libc_free(ptr);
}

/* Memory straight from the kernel, and threads, which need a stack. Not counted as blocks. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    return fails() ? MAP_FAILED : next(at, bytes, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return fails() ? EAGAIN : next(thread, attributes, start, arg);
}

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("FAILING_MALLOC");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    unsetenv("FAILING_MALLOC"); /* children have a memory of their own */
    unsetenv("LD_PRELOAD");
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return;
    struct chain c = {.skip = 0};
    inside = 1;
    dl_iterate_phdr(add_module, NULL);
    _Unwind_Backtrace(step, &c);
    inside = 0;
    shared = map;
}
