/* SPDX-License-Identifier: Apache-2.0
 * guard.c - the SIGBUS handler behind guarded mappings. */
#include "base/guard.h"

#include "base/alloc.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* A slot is free while end is 0. begin is written before end, and end is cleared first, so that the
 * handler, which may run on any thread at any time, never sees half a range. */
struct proa_guard {
    atomic_uintptr_t begin, end;
    atomic_bool broken;
};

enum { CHUNK_SLOTS = 64 };
typedef struct chunk {
    _Atomic(struct chunk *) next;
    proa_guard slot[CHUNK_SLOTS];
} chunk;

static chunk first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards taking slots and adding chunks */
static atomic_bool any_broken;
static struct sigaction before;
static uintptr_t page_bytes;

static proa_guard *find_guard(uintptr_t at)
{
    for (chunk *c = &first; c; c = atomic_load(&c->next))
        for (int i = 0; i < CHUNK_SLOTS; i++) {
            proa_guard *g = &c->slot[i];
            if (at < atomic_load(&g->end) && at >= atomic_load(&g->begin)) return g;
        }
    return NULL;
}

/* On Linux mmap is a plain system call, so a signal handler may call it. */
static bool replace_page(uintptr_t at)
{
    void *page = (void *)(at - at % page_bytes);
    return mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    proa_guard *g = find_guard((uintptr_t)info->si_addr);
    if (g && replace_page((uintptr_t)info->si_addr)) {
        atomic_store(&g->broken, true);
        atomic_store(&any_broken, true);
        return; /* the instruction is run again */
    }
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else sigaction(SIGBUS, &before, NULL); /* the instruction runs again and ends the process */
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

void proa_guards_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_handler);
}

/* Returns a free slot; adds a chunk to the list if there is none. The lock is held. */
static proa_guard *free_slot(void)
{
    chunk *last = &first;
    for (chunk *c = &first; c; last = c, c = atomic_load(&c->next))
        for (int i = 0; i < CHUNK_SLOTS; i++)
            if (!atomic_load(&c->slot[i].end)) return &c->slot[i];
    chunk *new_chunk = proa_calloc(1, sizeof *new_chunk);
    atomic_store(&last->next, new_chunk);
    return &new_chunk->slot[0];
}

proa_guard *proa_guard_add(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    proa_guard *g = free_slot();
    atomic_store(&g->broken, false);
    atomic_store(&g->begin, (uintptr_t)ptr);
    atomic_store(&g->end, (uintptr_t)ptr + (bytes ? bytes : 1));
    pthread_mutex_unlock(&lock);
    return g;
}

void proa_guard_remove(proa_guard *guard)
{
    if (!guard) return;
    pthread_mutex_lock(&lock);
    atomic_store(&guard->end, 0);
    pthread_mutex_unlock(&lock);
}

bool proa_guard_broken(const proa_guard *guard)
{
    return guard && atomic_load(&guard->broken);
}

bool proa_guards_any_broken(void)
{
    return atomic_load_explicit(&any_broken, memory_order_relaxed);
}
