/* SPDX-License-Identifier: Apache-2.0
 * recycle.c - free lists per thread for the memory of requests, replies and small buffers. */
#include "serve/recycle.h"

#include "base/alloc.h"
#include <pthread.h>

#define STASH_BATCHES 64 /* of each kind at most: 64 * 32 requests of 4 KiB are 8 MiB */

#if defined(__SANITIZE_ADDRESS__)
#define KEEP 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEP 0
#endif
#endif
#ifndef KEEP
#define KEEP 1
#endif

static const size_t sizes[PROA_RECYCLE_COUNT] = {
    [PROA_RECYCLE_INFER] = 4096,  [PROA_RECYCLE_REPLY] = 2048,   [PROA_RECYCLE_HEAD] = 64,
    [PROA_RECYCLE_BUFFER] = 1024, [PROA_RECYCLE_BUFFER4] = 4096,
};

/* An object that waits: its first bytes link it to the next, and the first of a batch to the next batch. */
typedef struct node {
    struct node *next, *batch;
} node;

typedef struct list {
    node *head;
    int count;
} list;

static _Thread_local list kept[PROA_RECYCLE_COUNT];
static _Thread_local int registered;

static struct {
    pthread_mutex_t lock;
    list batches[PROA_RECYCLE_COUNT];
} stash = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;

size_t proa_recycle_bytes(proa_recycle_kind kind)
{
    return sizes[kind];
}

static void free_all(node *n)
{
    while (n) {
        node *next = n->next;
        free(n);
        n = next;
    }
}

/* A chain of PROA_RECYCLE_BATCH objects for a thread whose list is empty. */
static void stash_put(proa_recycle_kind kind, node *chain)
{
    list *batches = &stash.batches[kind];
    pthread_mutex_lock(&stash.lock);
    if (batches->count < STASH_BATCHES) {
        chain->batch = batches->head;
        batches->head = chain;
        batches->count++;
        chain = NULL;
    }
    pthread_mutex_unlock(&stash.lock);
    free_all(chain);
}

static node *stash_take(proa_recycle_kind kind)
{
    list *batches = &stash.batches[kind];
    pthread_mutex_lock(&stash.lock);
    node *chain = batches->head;
    if (chain) {
        batches->head = chain->batch;
        batches->count--;
    }
    pthread_mutex_unlock(&stash.lock);
    return chain;
}

/* A thread ends: its lists are freed. */
static void thread_ends(void *unused)
{
    (void)unused;
    for (int k = 0; k < PROA_RECYCLE_COUNT; k++) {
        free_all(kept[k].head);
        kept[k] = (list){0};
    }
    registered = 0;
}

static void make_key(void)
{
    if (pthread_key_create(&at_exit, thread_ends) != 0) abort();
}

static PROA_NO_INLINE void register_thread(void)
{
    pthread_once(&once, make_key);
    pthread_setspecific(at_exit, &registered);
    registered = 1;
}

static PROA_NO_INLINE void *take_slowly(proa_recycle_kind kind)
{
    list *own = &kept[kind];
    node *chain = stash_take(kind);
    if (!chain) return proa_malloc_aligned(sizes[kind]);
    if (!registered) register_thread();
    own->head = chain->next;
    own->count = PROA_RECYCLE_BATCH - 1;
    return chain;
}

void *proa_recycle_take(proa_recycle_kind kind)
{
    list *own = &kept[kind];
    node *n = own->head;
    if (PROA_UNLIKELY(!n)) return take_slowly(kind);
    own->head = n->next;
    own->count--;
    return n;
}

/* The list is full: one batch stays, the other goes to the stash. */
static PROA_NO_INLINE void give_batch(proa_recycle_kind kind)
{
    list *own = &kept[kind];
    node *chain = own->head, *last = chain;
    for (int i = 1; i < PROA_RECYCLE_BATCH; i++) last = last->next;
    own->head = last->next;
    own->count -= PROA_RECYCLE_BATCH;
    last->next = NULL;
    stash_put(kind, chain);
}

void proa_recycle_give(proa_recycle_kind kind, void *object)
{
    if (!KEEP) {
        free(object);
        return;
    }
    list *own = &kept[kind];
    node *n = object;
    if (PROA_UNLIKELY(!registered)) register_thread();
    n->next = own->head;
    own->head = n;
    if (PROA_UNLIKELY(++own->count >= 2 * PROA_RECYCLE_BATCH)) give_batch(kind);
}
