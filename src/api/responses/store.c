/* SPDX-License-Identifier: Apache-2.0
 * store.c - a bounded store of responses in memory, the least recently used first out. A conversation is kept as JSON
 *           text: its tree would take up to 250 times as much. */
#include "api/responses/responses.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <pthread.h>
#include <string.h>

typedef struct entry {
    struct entry *newer, *older;
    uint64_t hash, owner;
    int64_t used_ns;
    char id[64];
    proa_str messages, answer; /* in the same block as the entry */
    size_t bytes;
} entry;

struct proa_response_store {
    pthread_mutex_t lock;
    entry ends; /* ends.older is the newest, ends.newer the oldest */
    int64_t count, bytes, keep_ns;
};

proa_response_store *proa_response_store_new(int64_t keep_ms)
{
    proa_response_store *s = proa_calloc(1, sizeof *s);
    s->keep_ns = keep_ms * 1000000;
    pthread_mutex_init(&s->lock, NULL);
    s->ends.newer = s->ends.older = &s->ends;
    return s;
}

static void unlink_entry(entry *e)
{
    e->newer->older = e->older;
    e->older->newer = e->newer;
}

static void link_newest(proa_response_store *s, entry *e)
{
    e->used_ns = proa_clock_ns();
    e->newer = &s->ends;
    e->older = s->ends.older;
    e->older->newer = e;
    s->ends.older = e;
}

static void drop_entry(proa_response_store *s, entry *e)
{
    unlink_entry(e);
    s->count--;
    s->bytes -= (int64_t)e->bytes;
    free(e);
}

void proa_response_store_free(proa_response_store *s)
{
    if (!s) return;
    while (s->count > 0) drop_entry(s, s->ends.newer);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static proa_str copy_text(char *to, proa_str text)
{
    if (text.len) memcpy(to, text.ptr, text.len);
    return (proa_str){to, text.len};
}

static entry *make_entry(const char *id, uint64_t owner, proa_str messages, proa_str answer)
{
    size_t bytes = sizeof(entry) + messages.len + answer.len;
    entry *e = proa_calloc(1, bytes);
    char *text = (char *)(e + 1);
    snprintf(e->id, sizeof e->id, "%s", id);
    e->hash = proa_str_hash(proa_str_c(e->id));
    e->owner = owner;
    e->messages = copy_text(text, messages);
    e->answer = copy_text(text + messages.len, answer);
    e->bytes = bytes;
    return e;
}

/* Entries are in the order of their last use, so those that are too old come first. */
static void drop_old(proa_response_store *s)
{
    int64_t oldest = proa_clock_ns() - s->keep_ns;
    while (s->count > 0 && s->ends.newer->used_ns <= oldest) drop_entry(s, s->ends.newer);
}

void proa_response_store_put(proa_response_store *s, const char *id, uint64_t owner, proa_str messages,
                             proa_str answer)
{
    if (messages.len + answer.len + sizeof(entry) > (size_t)PROA_RESPONSES_BYTES_MAX) return;
    entry *e = make_entry(id, owner, messages, answer);
    pthread_mutex_lock(&s->lock);
    drop_old(s);
    link_newest(s, e);
    s->count++;
    s->bytes += (int64_t)e->bytes;
    while (s->count > PROA_RESPONSES_MAX || s->bytes > PROA_RESPONSES_BYTES_MAX) drop_entry(s, s->ends.newer);
    pthread_mutex_unlock(&s->lock);
}

/* Under the lock. */
static entry *find_entry(proa_response_store *s, proa_str id, uint64_t owner)
{
    drop_old(s);
    uint64_t hash = proa_str_hash(id);
    for (entry *e = s->ends.older; e != &s->ends; e = e->older)
        if (e->hash == hash && e->owner == owner && proa_str_is(id, e->id)) return e;
    return NULL;
}

bool proa_response_store_get(proa_response_store *s, proa_str id, uint64_t owner, proa_buf *messages,
                             proa_buf *answer)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find_entry(s, id, owner);
    if (e) {
        unlink_entry(e);
        link_newest(s, e);
        if (messages) proa_buf_str(messages, e->messages);
        if (answer) proa_buf_str(answer, e->answer);
    }
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

bool proa_response_store_remove(proa_response_store *s, proa_str id, uint64_t owner)
{
    pthread_mutex_lock(&s->lock);
    entry *e = find_entry(s, id, owner);
    if (e) drop_entry(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}
