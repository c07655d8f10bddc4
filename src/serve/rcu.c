/* SPDX-License-Identifier: Apache-2.0
 * rcu.c - read-copy-update: readers take no lock, a writer waits for the readers of the old value. */
#include "serve/rcu.h"

#include "base/alloc.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The cache line of a thread: odd while it is inside. Lines are never freed: a line of an ended thread is reused. */
typedef struct line {
    atomic_ulong turns;
    atomic_bool taken;
    struct line *next;
} line;

static _Atomic(line *) lines; /* grows at the head only */
static _Thread_local line *mine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;

static void thread_ends(void *arg)
{
    line *own = arg;
    mine = NULL;
    atomic_store_explicit(&own->taken, false, memory_order_release);
}

static void make_key(void)
{
    if (pthread_key_create(&at_exit, thread_ends) != 0) abort();
}

static line *take_old(void)
{
    for (line *l = atomic_load_explicit(&lines, memory_order_acquire); l; l = l->next) {
        bool no = false;
        if (atomic_compare_exchange_strong(&l->taken, &no, true)) return l;
    }
    return NULL;
}

static PROA_NO_INLINE line *register_thread(void)
{
    pthread_once(&once, make_key);
    line *l = take_old();
    if (!l) {
        l = proa_malloc_aligned(sizeof *l); /* whole cache lines */
        atomic_init(&l->turns, 0);
        atomic_init(&l->taken, true);
        l->next = atomic_load(&lines);
        while (!atomic_compare_exchange_weak(&lines, &l->next, l)) continue;
    }
    pthread_setspecific(at_exit, l);
    mine = l;
    return l;
}

void proa_rcu_enter(void)
{
    line *l = mine ? mine : register_thread();
    unsigned long turns = atomic_load_explicit(&l->turns, memory_order_relaxed);
    PROA_DASSERT(turns % 2 == 0);
    /* before the load of the pointer in the one order of all: either the writer sees us inside, or we see its
     * pointer */
    atomic_exchange_explicit(&l->turns, turns + 1, memory_order_seq_cst);
}

void proa_rcu_leave(void)
{
    atomic_fetch_add_explicit(&mine->turns, 1, memory_order_release);
}

void proa_rcu_wait(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (line *l = atomic_load(&lines); l; l = l->next) {
        unsigned long turns = atomic_load(&l->turns);
        while (turns % 2 && atomic_load(&l->turns) == turns) sched_yield();
    }
}
