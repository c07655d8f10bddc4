/* SPDX-License-Identifier: Apache-2.0
 * sessions.h - conversations that go on without sending their prompt again: a session keeps the tokens of its last
 * request, prompt and answer, and the next request of that name begins with them. Their keys and values are not kept
 * here: those that are still in the prefix cache are reused, the others are computed again.
 * Owner:   the engine. A request holds its session from submit until its end; meanwhile no other request may use it.
 * Threads: any. */
#ifndef PROA_ENGINE_SESSIONS_H
#define PROA_ENGINE_SESSIONS_H

#include "base/compiler.h"
#include "proa/proa.h"
#include <pthread.h>

typedef struct proa_engine_session proa_engine_session;
typedef struct proa_sessions {
    pthread_mutex_t lock;
    proa_engine_session *newest, *oldest; /* in the order of their last use */
    int64_t count, tokens;                /* tokens of all */
} proa_sessions;

void proa_sessions_init(proa_sessions *s);
void proa_sessions_release(proa_sessions *s); /* when no request holds one */

/* Finds the session of that name, or makes one without tokens. NOT_FOUND if it must exist and does not; UNAVAILABLE
 * while another request holds it; LIMIT if PROA_SESSIONS_MAX are held; INVALID for an empty or too long name. */
PROA_MUST_CHECK proa_status proa_sessions_begin(proa_sessions *s, proa_engine_session **out, const char *name,
                                                bool must_exist, proa_err *err);
/* Whether there is a session of that name, held or not. */
bool proa_sessions_has(proa_sessions *s, const char *name);
/* The tokens of a session that the caller holds, valid until it lets go; *count may be 0. */
const int32_t *proa_session_tokens(const proa_engine_session *session, int64_t *count);
/* The request ends: the session has these tokens then, prompt and generated. prompt NULL: what it had before. Sessions
 * that were not used for the longest time are dropped where there are too many tokens. */
void proa_sessions_end(proa_engine_session *session, const int32_t *prompt, int64_t prompt_count,
                       const int32_t *generated, int64_t count);
/* The request ends, and the session with it. */
void proa_sessions_drop(proa_engine_session *session);

#endif
