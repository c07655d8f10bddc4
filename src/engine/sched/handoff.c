/* SPDX-License-Identifier: Apache-2.0
 * handoff.c - pages of a prompt from one engine's prefix cache to another's. */
#include "engine/sched/handoff.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/engine.h"
#include "engine/sched/device_failure.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/request_pages.h"
#include "kv/page_copy.h"
#include <stdlib.h>
#include <string.h>

struct proa_kv_handoff {
    proa_kv_handoff *next;
    proa_engine *from, *to;
    proa_kv_namespace *from_space, *to_space; /* adapters have other numbers in each engine */
    int32_t *ids;                             /* [tokens] */
    int64_t tokens;                           /* full pages; of those that were pinned, once it is */
    proa_page_table source, target;           /* pages of `from`, pages of `to` */
    bool begun;                               /* the target has its pages, and copies run */
    int64_t copies[PROA_KV_POOLS_MAX];        /* their numbers */
    void (*done)(void *arg);
    void *arg;
};

static proa_page_table new_table(int64_t tokens)
{
    int64_t pages = tokens / PROA_PAGE_TOKENS;
    return (proa_page_table){proa_calloc((size_t)pages, sizeof(int32_t)), 0, (int32_t)pages};
}

bool proa_kv_handoff_reaches(const proa_engine *e)
{
    return e->ranks.local == e->ranks.count;
}

void proa_kv_handoff_connect(proa_engine *from, proa_engine *to)
{
    int64_t copies[PROA_KV_POOLS_MAX];
    if (!proa_kv_pages_alike(&to->pages, &from->pages)) return;
    proa_kv_pages_fetch(&to->pages, NULL, &from->pages, NULL, 0, copies);
}

proa_kv_handoff *proa_kv_handoff_new(proa_engine *from, proa_engine *to, const proa_request *r)
{
    int64_t tokens = r->ids ? (r->ids_count - 1) / PROA_PAGE_TOKENS * PROA_PAGE_TOKENS : 0;
    bool reaches = proa_kv_handoff_reaches(from) && proa_kv_handoff_reaches(to);
    if (tokens <= 0 || !reaches || !proa_kv_pages_alike(&to->pages, &from->pages)) return NULL;
    proa_kv_handoff *h = proa_calloc(1, sizeof *h);
    *h = (proa_kv_handoff){.from = from, .to = to, .tokens = tokens};
    h->from_space = proa_prefix_cache_space(from, r);
    h->to_space = proa_prefix_cache_space(to, r);
    h->ids = proa_malloc((size_t)tokens * sizeof *h->ids);
    memcpy(h->ids, r->ids, (size_t)tokens * sizeof *h->ids);
    h->source = new_table(tokens), h->target = new_table(tokens);
    if (h->from_space && h->to_space) return h;
    proa_kv_handoff_free(h);
    return NULL;
}

/* Its namespaces are counted on the thread of their engine: each must have been dropped there, unless it has never been
 * used. */
void proa_kv_handoff_free(proa_kv_handoff *h)
{
    if (!h) return;
    proa_kv_namespace_release(h->from_space);
    proa_kv_namespace_release(h->to_space);
    free(h->source.page);
    free(h->target.page);
    free(h->ids);
    free(h);
}

int64_t proa_kv_handoff_pin(proa_kv_handoff *h)
{
    proa_engine *e = h->from;
    const proa_prefix_key prompt = {h->from_space, h->ids, h->tokens};
    h->tokens = e->prefix_broken ? 0 : proa_prefix_tree_pin(&e->prefixes, &prompt, &h->source);
    e->handoff_pages += h->source.count;
    return h->tokens;
}

/* Puts it into a list of an engine, whose thread will look at it. */
static void post_handoff(proa_engine *e, proa_kv_handoff **list, proa_kv_handoff *h)
{
    proa_engine_shared *s = &e->shared;
    pthread_mutex_lock(&s->lock);
    h->next = NULL;
    while (*list) list = &(*list)->next;
    *list = h;
    atomic_store_explicit(&s->handoffs_wait, true, memory_order_relaxed);
    atomic_store_explicit(&s->work_signalled, true, memory_order_relaxed);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

void proa_kv_handoff_send(proa_kv_handoff *h, void (*done)(void *arg), void *arg)
{
    h->done = done, h->arg = arg;
    post_handoff(h->to, &h->to->shared.arriving, h);
}

/* ---- the stepping thread of `to` ---- */

/* Takes pages and begins to copy what the engine does not have yet. False: there are too few pages now. */
static bool begin_handoff(proa_engine *e, proa_kv_handoff *h)
{
    const proa_prefix_key prompt = {h->to_space, h->ids, h->tokens};
    proa_prefix_tree_pin(&e->prefixes, &prompt, &h->target);
    int32_t have = h->target.count, all = (int32_t)(h->tokens / PROA_PAGE_TOKENS);
    if (all > proa_request_pages_available(e) || !proa_page_table_grow(&e->pages, &h->target, h->tokens)) {
        proa_page_table_release(&e->pages, &h->target);
        return false;
    }
    e->handoff_pages += all;
    h->begun = true;
    proa_kv_pages_fetch(&e->pages, h->target.page + have, &h->from->pages, h->source.page + have, all - have,
                        h->copies);
    return true;
}

/* The pages belong to the tree from now on, where the held request finds them. */
static void keep_pages(proa_engine *e, proa_kv_handoff *h)
{
    proa_prefix_cursor at = {PROA_PREFIX_SELF, 0};
    const proa_prefix_key prompt = {h->to_space, h->ids, h->tokens};
    if (!e->device->host) proa_device_failure_check(e, NULL); /* a copy may have failed */
    if (!e->prefix_broken) proa_prefix_tree_insert(&e->prefixes, &at, &prompt, false, &h->target);
    e->handoff_pages -= h->target.count;
    proa_page_table_release(&e->pages, &h->target);
}

static void end_handoff(proa_engine *e, proa_kv_handoff *h)
{
    if (h->begun) keep_pages(e, h);
    proa_kv_namespace_release(h->to_space);
    h->to_space = NULL;
    void (*done)(void *arg) = h->done;
    void *arg = h->arg;
    post_handoff(h->from, &h->from->shared.returned, h);
    done(arg);
}

/* Whether it goes on waiting: for its copies, or for pages while requests run that will return some. */
static bool waits_on(proa_engine *e, proa_kv_handoff *h)
{
    if (h->begun) return !proa_kv_pages_fetched(&e->pages, h->copies);
    if (!h->tokens || e->prefix_broken) return false;
    if (!begin_handoff(e, h)) return e->running.count > 0 || e->handoff_pages > 0;
    return !proa_kv_pages_fetched(&e->pages, h->copies);
}

/* ---- a step ---- */

/* What was posted since the last step. */
static void take_posted(proa_engine *e)
{
    proa_engine_shared *s = &e->shared;
    pthread_mutex_lock(&s->lock);
    proa_kv_handoff *arriving = s->arriving, *returned = s->returned, **last = &e->handoffs;
    s->arriving = s->returned = NULL;
    atomic_store_explicit(&s->handoffs_wait, false, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    while (*last) last = &(*last)->next;
    *last = arriving;
    for (proa_kv_handoff *next; returned; returned = next) {
        next = returned->next;
        e->handoff_pages -= returned->source.count;
        proa_page_table_release(&e->pages, &returned->source);
        proa_kv_handoff_free(returned);
    }
}

bool proa_kv_handoff_step(proa_engine *e)
{
    if (atomic_load_explicit(&e->shared.handoffs_wait, memory_order_relaxed)) take_posted(e);
    for (proa_kv_handoff **link = &e->handoffs, *h; (h = *link);) {
        if (waits_on(e, h)) {
            link = &h->next;
            continue;
        }
        *link = h->next;
        end_handoff(e, h);
    }
    return e->handoffs != NULL;
}

void proa_kv_handoffs_free(proa_engine *e)
{
    proa_kv_handoff *lists[] = {e->handoffs, e->shared.arriving, e->shared.returned};
    for (size_t i = 0; i < PROA_COUNT(lists); i++)
        for (proa_kv_handoff *h = lists[i], *next; h; h = next) {
            next = h->next;
            proa_kv_handoff_free(h);
        }
    e->handoffs = e->shared.arriving = e->shared.returned = NULL;
}
