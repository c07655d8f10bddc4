/* SPDX-License-Identifier: Apache-2.0
 * cache.c - the response cache: an LRU of replies, keyed by a hash of the request; equal requests in flight share one
 * execution. */
#include "serve/cache.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/recycle.h"
#include "serve/sched/sched.h"
#include "serve/siphash.h"
#include <string.h>
#include <sys/random.h>

/* A kept reply, or a request in flight that equal requests wait for. */
typedef struct entry {
    struct entry *chain;         /* same place of the table */
    struct entry *older, *newer; /* kept ones, by use */
    uint64_t key[2];
    const proa_served_model *model;
    atomic_int refs;
    proa_reply *reply; /* NULL: still in flight */
    int64_t bytes;
    proa_infer *first, *last; /* waiting requests, linked by next and ticket.prev */
} entry;

struct proa_cache {
    pthread_mutex_t lock;
    uint64_t secret[2];
    entry **table;
    int64_t table_size; /* a power of two */
    int64_t count;      /* entries and flights */
    int64_t kept, bytes, bytes_max;
    entry *oldest, *newest;
    uint64_t hits, misses, evictions;
    atomic_uint_least64_t lookup_ns, insertion_ns; /* written without the lock */
    proa_alarm alarm;                              /* for waiting requests with a time-out */
};

/* ---- keys: parts are hashed apart and added up, so that their order does not matter ---- */

static void add_string(proa_siphash *h, const char *s, size_t len)
{
    uint64_t n = len;
    proa_siphash_add(h, &n, sizeof n);
    if (len) proa_siphash_add(h, s, len);
}

static void add_part(proa_siphash *h, uint64_t key[2])
{
    uint64_t part[2];
    proa_siphash_end(h, part);
    key[0] += part[0];
    key[1] += part[1] + (key[0] < part[0]);
}

static void add_input(const proa_cache *c, const proa_tensor *t, uint64_t key[2])
{
    proa_siphash h;
    int64_t head[3] = {'i', (int64_t)t->type, t->rank};
    proa_siphash_init(&h, c->secret);
    proa_siphash_add(&h, head, sizeof head);
    proa_siphash_add(&h, t->shape, (size_t)t->rank * sizeof t->shape[0]);
    add_string(&h, t->name, strlen(t->name));
    add_string(&h, t->data, t->bytes);
    add_part(&h, key);
}

static void add_param(const proa_cache *c, const proa_infer_param *p, uint64_t key[2])
{
    proa_siphash h;
    int64_t head[2] = {'p', (int64_t)p->kind};
    proa_siphash_init(&h, c->secret);
    proa_siphash_add(&h, head, sizeof head);
    add_string(&h, p->name.ptr, p->name.len);
    if (p->kind == PROA_PARAM_STRING) add_string(&h, p->s.ptr, p->s.len);
    else if (p->kind == PROA_PARAM_BOOL) proa_siphash_add(&h, &p->b, sizeof p->b);
    else proa_siphash_add(&h, &p->i, sizeof p->i); /* any of the 64-bit kinds */
    add_part(&h, key);
}

static void make_key(const proa_cache *c, proa_infer *r)
{
    proa_siphash h;
    int64_t head[3] = {'m', r->model->version, (int64_t)(intptr_t)r->model};
    r->cache_key[0] = r->cache_key[1] = 0;
    proa_siphash_init(&h, c->secret);
    proa_siphash_add(&h, head, sizeof head);
    add_string(&h, r->model->name, strlen(r->model->name));
    add_part(&h, r->cache_key);
    for (int32_t i = 0; i < r->inputs_count; i++) add_input(c, &r->inputs[i], r->cache_key);
    for (int32_t i = 0; i < r->params_count; i++) add_param(c, &r->params[i], r->cache_key);
    for (int32_t i = 0; i < r->outputs_count; i++) {
        proa_siphash_init(&h, c->secret);
        proa_siphash_add(&h, "o", 1);
        add_string(&h, r->outputs[i], strlen(r->outputs[i]));
        add_part(&h, r->cache_key);
    }
}

/* ---- the table; under the lock ---- */

static entry **place_of(const proa_cache *c, const uint64_t key[2])
{
    return &c->table[key[0] & (uint64_t)(c->table_size - 1)];
}

static entry *find_entry(const proa_cache *c, const uint64_t key[2])
{
    entry *e = *place_of(c, key);
    while (e && (e->key[0] != key[0] || e->key[1] != key[1])) e = e->chain;
    return e;
}

static void grow_table(proa_cache *c)
{
    entry **old = c->table;
    int64_t size = c->table_size;
    c->table_size *= 2;
    c->table = proa_calloc((size_t)c->table_size, sizeof(entry *));
    for (int64_t i = 0; i < size; i++)
        for (entry *e = old[i], *next; e; e = next) {
            entry **at = place_of(c, e->key);
            next = e->chain;
            e->chain = *at;
            *at = e;
        }
    free(old);
}

static void insert_entry(proa_cache *c, entry *e)
{
    if (c->count >= c->table_size) grow_table(c);
    entry **at = place_of(c, e->key);
    e->chain = *at;
    *at = e;
    c->count++;
}

static void entry_drop(entry *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1) return;
    proa_reply_free(e->reply);
    free(e);
}

static void use_unlink(proa_cache *c, entry *e)
{
    if (e->older) e->older->newer = e->newer;
    else c->oldest = e->newer;
    if (e->newer) e->newer->older = e->older;
    else c->newest = e->older;
}

static void use_link(proa_cache *c, entry *e)
{
    e->older = c->newest;
    e->newer = NULL;
    if (c->newest) c->newest->newer = e;
    else c->oldest = e;
    c->newest = e;
}

/* Removes an entry from the table, and a kept one from the order of use; drops the table's reference. */
static void remove_entry(proa_cache *c, entry *e)
{
    entry **at = place_of(c, e->key);
    while (*at != e) at = &(*at)->chain;
    *at = e->chain;
    c->count--;
    if (e->reply) {
        use_unlink(c, e);
        c->kept--;
        c->bytes -= e->bytes;
    }
    entry_drop(e);
}

/* ---- waiting requests; under the lock ---- */

static void wait_push(entry *e, proa_infer *r)
{
    r->ticket.queued = true;
    r->ticket.slot = e;
    r->next = NULL;
    r->ticket.prev = e->last;
    if (e->last) e->last->next = r;
    else e->first = r;
    e->last = r;
}

static void wait_remove(proa_infer *r)
{
    entry *e = r->ticket.slot;
    if (r->ticket.prev) r->ticket.prev->next = r->next;
    else e->first = r->next;
    if (r->next) r->next->ticket.prev = r->ticket.prev;
    else e->last = r->ticket.prev;
    r->next = r->ticket.prev = NULL;
    r->ticket.slot = NULL;
    r->ticket.queued = false;
}

/* All waiting requests that are not cancelled: a concurrent cancel ends its request itself. */
static proa_infer *wait_take_all(entry *e)
{
    proa_infer *head = NULL, **last = &head;
    while (e->first) {
        proa_infer *r = e->first;
        wait_remove(r);
        *last = r;
        last = &r->next;
    }
    return head;
}

static void on_cancel(proa_infer *r)
{
    proa_cache *c = r->model->cache;
    pthread_mutex_lock(&c->lock);
    bool ours = r->ticket.queued && r->ticket.slot;
    if (ours) wait_remove(r);
    pthread_mutex_unlock(&c->lock);
    if (ours) proa_scheduler_cancelled(r);
    atomic_store(&r->ticket.cancel_handled, true);
}

static int64_t expire_waiting(void *arg, int64_t now_ns)
{
    proa_cache *c = arg;
    proa_infer *out = NULL, **last = &out;
    int64_t next_ns = PROA_ALARM_NEVER;
    pthread_mutex_lock(&c->lock);
    for (int64_t i = 0; i < c->table_size; i++)
        for (entry *e = c->table[i]; e; e = e->chain)
            for (proa_infer *r = e->first, *after; r; r = after) {
                after = r->next;
                if (!r->ticket.expires_ns) continue;
                if (now_ns < r->ticket.expires_ns) {
                    if (r->ticket.expires_ns < next_ns) next_ns = r->ticket.expires_ns;
                    continue;
                }
                wait_remove(r);
                *last = r;
                last = &r->next;
            }
    pthread_mutex_unlock(&c->lock);
    for (proa_infer *r = out, *after; r; r = after) {
        proa_err err = {0};
        after = r->next;
        proa_scheduler_unwatch(r);
        proa_sched_queue_expired(r, &err);
        proa_scheduler_fail(r, &err, PROA_FAIL_REJECTED);
    }
    return next_ns == PROA_ALARM_NEVER || next_ns > now_ns + 5000000 ? next_ns : now_ns + 5000000;
}

/* ---- replies ---- */

static void copy_param(proa_infer_param *to, const proa_infer_param *from, proa_arena *arena)
{
    proa_str name = to->name;
    *to = *from;
    to->name = name;
    if (from->kind == PROA_PARAM_STRING) to->s.ptr = proa_arena_strdup(arena, from->s);
}

proa_reply *proa_reply_copy(const proa_infer *r, const proa_reply *from)
{
    proa_reply *to = proa_reply_new(r);
    for (int32_t i = 0; i < from->outputs_count; i++) {
        proa_tensor *t = proa_reply_add(to, from->outputs[i].name);
        const char *name = t->name;
        proa_tensor_share(t, &from->outputs[i]);
        t->name = name;
    }
    for (int32_t i = 0; i < from->params_count; i++)
        copy_param(proa_reply_add_param(to, from->params[i].name.ptr), &from->params[i], &to->arena);
    return to;
}

/* A tensor inside a larger buffer (a request's body) would keep that whole buffer in memory. */
static void own_bytes(proa_tensor *t)
{
    if (!t->buffer || (!t->buffer->free_data && t->buffer->bytes <= t->bytes + 64)) return;
    proa_buffer *own = proa_buffer_new(t->bytes);
    memcpy(own->data, t->data, t->bytes);
    proa_copies_add(t->bytes);
    proa_buffer_drop(t->buffer);
    t->buffer = own;
    t->data = own->data;
}

/* The memory that a buffer with that many bytes takes: small buffers are allocated from blocks of fixed sizes. */
static size_t room_of(size_t bytes)
{
    size_t all = bytes + proa_recycle_bytes(PROA_RECYCLE_HEAD),
           small = proa_recycle_bytes(PROA_RECYCLE_BUFFER), medium = proa_recycle_bytes(PROA_RECYCLE_BUFFER4);
    if (!bytes) return 0;
    return all <= small ? small : all <= medium ? medium : all;
}

/* Memory that a reply takes as it is kept: its tensors, and the names, shapes and parameters in its arena. */
static int64_t bytes_of(const proa_reply *reply)
{
    size_t bytes = sizeof(entry) + proa_recycle_bytes(PROA_RECYCLE_REPLY) + reply->arena.bytes;
    for (int32_t i = 0; i < reply->outputs_count; i++) bytes += room_of(reply->outputs[i].bytes);
    return (int64_t)bytes;
}

/* A copy that holds nothing of the request; NULL if it does not fit. */
static proa_reply *copy_to_keep(const proa_cache *c, const proa_infer *leader, const proa_reply *reply,
                                int64_t *bytes)
{
    size_t data = 0;
    for (int32_t i = 0; i < reply->outputs_count; i++) data += reply->outputs[i].bytes;
    if (data > (size_t)c->bytes_max) return NULL;
    proa_reply *keep = proa_reply_copy(leader, reply);
    *bytes = bytes_of(keep);
    if (*bytes > c->bytes_max) {
        proa_reply_free(keep);
        return NULL;
    }
    for (int32_t i = 0; i < keep->outputs_count; i++) own_bytes(&keep->outputs[i]);
    return keep;
}

/* ---- the whole ---- */

proa_cache *proa_cache_new(int64_t bytes_max)
{
    proa_cache *c = proa_calloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->bytes_max = bytes_max;
    c->table_size = 1024;
    c->table = proa_calloc((size_t)c->table_size, sizeof(entry *));
    PROA_ASSERT(getrandom(c->secret, sizeof c->secret, 0) == sizeof c->secret);
    PROA_ASSERT(proa_alarm_open(&c->alarm, expire_waiting, c, NULL) == PROA_OK); /* when the server starts, once */
    return c;
}

void proa_cache_free(proa_cache *cache)
{
    if (!cache) return;
    proa_alarm_close(&cache->alarm);
    while (cache->oldest) remove_entry(cache, cache->oldest);
    PROA_ASSERT(cache->count == 0);
    free(cache->table);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

void proa_cache_forget(proa_cache *cache, const proa_served_model *model)
{
    pthread_mutex_lock(&cache->lock);
    for (entry *e = cache->oldest, *next; e; e = next) {
        next = e->newer;
        if (e->model == model) remove_entry(cache, e);
    }
    pthread_mutex_unlock(&cache->lock);
}

static void begin_inflight(proa_cache *c, proa_infer *r)
{
    entry *e = proa_calloc(1, sizeof *e);
    atomic_init(&e->refs, 1);
    memcpy(e->key, r->cache_key, sizeof e->key);
    e->model = r->model;
    insert_entry(c, e);
    r->ticket.cache_inflight = e;
}

/* Under the lock. No entry: a miss. An entry without a reply: an equal request is in flight. */
static proa_cache_result lookup_locked(proa_cache *c, proa_infer *r, bool watched, entry **kept)
{
    entry *e = find_entry(c, r->cache_key);
    if (!e) {
        begin_inflight(c, r);
        c->misses++;
        return PROA_CACHE_MISS;
    }
    if (e->reply) {
        use_unlink(c, e);
        use_link(c, e);
        atomic_fetch_add(&e->refs, 1);
        *kept = e;
        c->hits++;
        return PROA_CACHE_HIT;
    }
    if (watched && proa_infer_cancelled(r)) return PROA_CACHE_CANCELLED;
    if (watched) wait_push(e, r);
    return PROA_CACHE_WAIT;
}

proa_cache_result proa_cache_lookup(proa_cache *cache, proa_infer *r, proa_reply **reply)
{
    entry *kept = NULL;
    int64_t start_ns = proa_clock_ns();
    make_key(cache, r);
    proa_sched_queue_set_expiry(r, 0);
    int64_t expires_ns = r->ticket.expires_ns;
    pthread_mutex_lock(&cache->lock);
    proa_cache_result how = lookup_locked(cache, r, false, &kept);
    pthread_mutex_unlock(&cache->lock);
    if (how == PROA_CACHE_WAIT) { /* watch first, then queue: see executor.c */
        proa_infer_watch(r, on_cancel);
        pthread_mutex_lock(&cache->lock);
        how = lookup_locked(cache, r, true, &kept);
        pthread_mutex_unlock(&cache->lock);
        if (how != PROA_CACHE_WAIT) proa_scheduler_unwatch(r);
        else if (expires_ns) proa_alarm_before(&cache->alarm, expires_ns);
    }
    if (kept) {
        *reply = proa_reply_copy(r, kept->reply);
        entry_drop(kept);
    }
    if (kept || how == PROA_CACHE_MISS)
        atomic_fetch_add(&cache->lookup_ns, (uint64_t)(proa_clock_ns() - start_ns));
    return how;
}

/* answered: the waiting requests get the leader's reply, whether it is kept or not. */
static proa_infer *end_inflight(proa_cache *c, proa_infer *leader, bool answered, proa_reply *keep, int64_t bytes)
{
    entry *e = leader->ticket.cache_inflight;
    leader->ticket.cache_inflight = NULL;
    pthread_mutex_lock(&c->lock);
    proa_infer *waited = wait_take_all(e);
    for (proa_infer *r = answered ? waited : NULL; r; r = r->next) c->hits++;
    if (keep) {
        e->reply = keep;
        e->bytes = bytes;
        use_link(c, e);
        c->kept++;
        c->bytes += bytes;
        for (; c->bytes > c->bytes_max; c->evictions++) remove_entry(c, c->oldest);
    } else {
        remove_entry(c, e);
    }
    pthread_mutex_unlock(&c->lock);
    for (proa_infer *r = waited; r; r = r->next) proa_scheduler_unwatch(r);
    return waited;
}

proa_infer *proa_cache_store(proa_cache *cache, proa_infer *leader, const proa_reply *reply)
{
    int64_t bytes = 0, start_ns = proa_clock_ns();
    proa_reply *keep = copy_to_keep(cache, leader, reply, &bytes);
    proa_infer *waited = end_inflight(cache, leader, true, keep, bytes);
    if (keep) atomic_fetch_add(&cache->insertion_ns, (uint64_t)(proa_clock_ns() - start_ns));
    return waited;
}

proa_infer *proa_cache_abandon(proa_cache *cache, proa_infer *leader)
{
    return end_inflight(cache, leader, false, NULL, 0);
}

int64_t proa_cache_bytes(proa_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    int64_t bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

void proa_cache_read(proa_cache *cache, proa_cache_stats *figures)
{
    pthread_mutex_lock(&cache->lock);
    *figures = (proa_cache_stats){.entries = cache->kept,
                                  .used = (double)cache->bytes / (double)cache->bytes_max,
                                  .lookups = cache->hits + cache->misses,
                                  .hits = cache->hits,
                                  .misses = cache->misses,
                                  .evictions = cache->evictions};
    pthread_mutex_unlock(&cache->lock);
    figures->lookup_ns = atomic_load(&cache->lookup_ns);
    figures->insertion_ns = atomic_load(&cache->insertion_ns);
}
