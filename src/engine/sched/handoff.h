/* SPDX-License-Identifier: Apache-2.0
 * handoff.h - the keys and values of a prompt go from the prefix cache of one engine to that of another with the same
 * model, so that a request whose prompt ran in the first is decoded in the second (disaggregated prefill: DistServe,
 * Zhong et al. 2024; Splitwise, Patel et al. 2024).
 *
 *     from's thread                      to's thread
 *     =============                      ===========
 *     pin: the tree's pages of the
 *          prompt get a reference
 *     send ----------------------------> takes pages of its pool, begins to copy
 *                                        ... steps go on ...
 *                                        copied: the pages are given to its tree, done() is called
 *     drops the references <------------ returned
 *
 * The request itself is submitted to the second engine beforehand, and held there until done() releases it. It then
 * finds its pages in the prefix cache like those of any earlier request, and runs the rest of its prompt: at least its
 * last token, at most 64. If pages are missing, for whatever reason, it computes them.
 *
 * Owner:   a handoff belongs to the caller until it is sent, then to the engines.
 * Threads: each function names its own. */
#ifndef PROA_ENGINE_SCHED_HANDOFF_H
#define PROA_ENGINE_SCHED_HANDOFF_H

#include "base/compiler.h"
#include "proa/proa.h"

typedef struct proa_kv_handoff proa_kv_handoff;

/* Whether pages of this engine can be handed on: not those of ranks in processes of their own. */
bool proa_kv_handoff_reaches(const proa_engine *e);
/* Before the engines run: opens the way between their devices, so that the first handoff does not wait for it. */
void proa_kv_handoff_connect(proa_engine *from, proa_engine *to);
/* Prepares to hand on the full pages of a request's prompt. NULL: they cannot be shared (proa_prefix_cache_space), or
 * the engines have different page formats. Copies what it needs of the request. Any thread. */
proa_kv_handoff *proa_kv_handoff_new(proa_engine *from, proa_engine *to, const proa_request *r);
void proa_kv_handoff_free(proa_kv_handoff *h); /* before it is pinned; NULL is fine */
/* The pages that are in from's pool now stay there. Returns their tokens. The stepping thread of `from`, in a callback
 * or between steps. */
int64_t proa_kv_handoff_pin(proa_kv_handoff *h);
/* done(arg) is called on the stepping thread of `to`, with no lock held. Any thread. */
void proa_kv_handoff_send(proa_kv_handoff *h, void (*done)(void *arg), void *arg);

/* As proa_engine_submit, but the request waits until proa_engine_release; cancelled, it ends. Any thread. Unknown ids,
 * and those of requests that are not held, are ignored. */
PROA_MUST_CHECK proa_status proa_engine_hold(proa_engine *engine, const proa_request *request, uint64_t *id,
                                             proa_err *err);
void proa_engine_release(proa_engine *engine, uint64_t id);

/* Once a step: handoffs from and to this engine go on. True: some are under way to it. */
bool proa_kv_handoff_step(proa_engine *e);
/* The engine closes. */
void proa_kv_handoffs_free(proa_engine *e);

#endif
