/* SPDX-License-Identifier: Apache-2.0
 * sessions.c - the list of sessions: found by name, in the order of their last use. */
#include "engine/sessions.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct proa_engine_session {
    proa_sessions *set;
    proa_engine_session *newer, *older;
    int32_t *ids; /* [count] */
    int64_t count;
    bool held; /* by a request */
    char name[];
};

void proa_sessions_init(proa_sessions *s)
{
    *s = (proa_sessions){.count = 0};
    pthread_mutex_init(&s->lock, NULL);
}

/* ---- the list ---- */

static void unlink_session(proa_engine_session *session)
{
    proa_sessions *s = session->set;
    if (session->newer) session->newer->older = session->older;
    else s->newest = session->older;
    if (session->older) session->older->newer = session->newer;
    else s->oldest = session->newer;
    s->count--;
    s->tokens -= session->count;
}

static void push_newest(proa_engine_session *session)
{
    proa_sessions *s = session->set;
    session->newer = NULL;
    session->older = s->newest;
    if (s->newest) s->newest->newer = session;
    else s->oldest = session;
    s->newest = session;
    s->count++;
    s->tokens += session->count;
}

static void free_session(proa_engine_session *session)
{
    unlink_session(session);
    free(session->ids);
    free(session);
}

void proa_sessions_release(proa_sessions *s)
{
    while (s->newest) free_session(s->newest);
    pthread_mutex_destroy(&s->lock);
}

/* Drops sessions that no request holds, the oldest first, until the limits hold. */
static void drop_oldest(proa_sessions *s, int64_t count_max)
{
    for (proa_engine_session *session = s->oldest, *newer; session; session = newer) {
        newer = session->newer;
        if (s->count <= count_max && s->tokens <= PROA_SESSION_TOKENS_MAX) return;
        if (!session->held) free_session(session);
    }
}

static proa_engine_session *find_session(const proa_sessions *s, const char *name)
{
    for (proa_engine_session *session = s->newest; session; session = session->older)
        if (strcmp(session->name, name) == 0) return session;
    return NULL;
}

bool proa_sessions_has(proa_sessions *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    bool found = find_session(s, name) != NULL;
    pthread_mutex_unlock(&s->lock);
    return found;
}

static proa_engine_session *make_session(proa_sessions *s, const char *name)
{
    size_t len = strlen(name) + 1;
    drop_oldest(s, PROA_SESSIONS_MAX - 1);
    if (s->count >= PROA_SESSIONS_MAX) return NULL;
    proa_engine_session *session = proa_calloc(1, sizeof *session + len);
    session->set = s;
    memcpy(session->name, name, len);
    push_newest(session);
    return session;
}

/* ---- use ---- */

static proa_status hold_session(proa_sessions *s, proa_engine_session **out, const char *name,
                                bool must_exist, proa_err *err)
{
    proa_engine_session *session = find_session(s, name);
    if (!session && must_exist) return PROA_FAIL(err, NOT_FOUND, "session '%s' does not exist", name);
    if (session && session->held)
        return PROA_FAIL(err, UNAVAILABLE, "session '%s' is in use by another request", name);
    if (!session) session = make_session(s, name);
    if (!session) return PROA_FAIL(err, LIMIT, "%d sessions are in use", PROA_SESSIONS_MAX);
    session->held = true;
    *out = session;
    return PROA_OK;
}

proa_status proa_sessions_begin(proa_sessions *s, proa_engine_session **out, const char *name,
                                bool must_exist, proa_err *err)
{
    size_t len = strlen(name);
    if (len == 0 || len > PROA_SESSION_NAME_MAX)
        return PROA_FAIL(err, INVALID, "session_id has %zu bytes, must be 1 to %d", len, PROA_SESSION_NAME_MAX);
    pthread_mutex_lock(&s->lock);
    proa_status status = hold_session(s, out, name, must_exist, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

const int32_t *proa_session_tokens(const proa_engine_session *session, int64_t *count)
{
    *count = session->count;
    return session->ids;
}

static void set_tokens(proa_engine_session *session, const int32_t *prompt, int64_t prompt_count,
                       const int32_t *generated, int64_t count)
{
    int32_t *ids = proa_malloc((size_t)(prompt_count + count) * sizeof *ids);
    memcpy(ids, prompt, (size_t)prompt_count * sizeof *ids);
    if (count) memcpy(ids + prompt_count, generated, (size_t)count * sizeof *ids);
    free(session->ids);
    session->ids = ids;
    session->count = prompt_count + count;
}

void proa_sessions_end(proa_engine_session *session, const int32_t *prompt, int64_t prompt_count,
                       const int32_t *generated, int64_t count)
{
    proa_sessions *s = session->set;
    pthread_mutex_lock(&s->lock);
    session->held = false;
    unlink_session(session);
    if (prompt) set_tokens(session, prompt, prompt_count, generated, count);
    push_newest(session);
    if (!session->count) free_session(session); /* its first request did not end well */
    else drop_oldest(s, PROA_SESSIONS_MAX);
    pthread_mutex_unlock(&s->lock);
}

void proa_sessions_drop(proa_engine_session *session)
{
    proa_sessions *s = session->set;
    pthread_mutex_lock(&s->lock);
    free_session(session);
    pthread_mutex_unlock(&s->lock);
}
