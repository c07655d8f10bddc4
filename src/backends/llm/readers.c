/* SPDX-License-Identifier: Apache-2.0
 * readers.c - threads that read long texts and chats, so that an event loop does not wait for them. */
#include "backends/llm/request.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/thread.h"

/* Under the lock. When no long text came for a while, freed memory goes back to the system. */
static void wait_for_requests(proa_llm_model *s, proa_reader *r)
{
    if (!r->used) {
        pthread_cond_wait(&r->arrived, &s->lock);
        return;
    }
    if (!proa_cond_wait_ms(&r->arrived, &s->lock, PROA_TRIM_MS)) return;
    r->used = false;
    pthread_mutex_unlock(&s->lock);
    proa_memory_trim();
    pthread_mutex_lock(&s->lock);
}

static proa_llm_request *next_request(proa_reader *r)
{
    proa_llm_model *s = r->llm_model;
    pthread_mutex_lock(&s->lock);
    while (!r->first && !s->readers_stop) wait_for_requests(s, r);
    proa_llm_request *req = r->first;
    if (req) r->first = req->read_next;
    if (!r->first) r->last = &r->first;
    r->used |= r == &s->readers[PROA_READER_LONG];
    pthread_mutex_unlock(&s->lock);
    return req;
}

static void *reading_thread(void *arg)
{
    proa_reader *r = arg;
    for (proa_llm_request *req; (req = next_request(r)) != NULL;) r->read(req);
    return NULL;
}

bool proa_llm_reader_take(proa_reader *r, proa_llm_request *req)
{
    proa_llm_model *s = r->llm_model;
    pthread_mutex_lock(&s->lock);
    if (!r->runs) r->runs = pthread_create(&r->thread, NULL, reading_thread, r) == 0;
    bool runs = r->runs;
    if (runs) {
        *r->last = req;
        r->last = &req->read_next;
        pthread_cond_signal(&r->arrived);
    }
    pthread_mutex_unlock(&s->lock);
    return runs;
}

void proa_llm_readers_start(proa_llm_model *s, void (*read)(proa_llm_request *req))
{
    for (int i = 0; i < PROA_READERS; i++) {
        proa_reader *r = &s->readers[i];
        *r = (proa_reader){.llm_model = s, .read = read};
        r->last = &r->first;
        proa_cond_init(&r->arrived);
    }
}

void proa_llm_readers_stop(proa_llm_model *s)
{
    pthread_mutex_lock(&s->lock);
    s->readers_stop = true;
    for (int i = 0; i < PROA_READERS; i++) pthread_cond_signal(&s->readers[i].arrived);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < PROA_READERS; i++) {
        if (s->readers[i].runs) pthread_join(s->readers[i].thread, NULL);
        pthread_cond_destroy(&s->readers[i].arrived);
    }
}
