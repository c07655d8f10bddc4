/* SPDX-License-Identifier: Apache-2.0
 * prefix_cache.h - keys and values that requests share over time. Private to src/engine.
 * Owner:   the engine has the tree and its lower levels (kv/prefix_tree.h, kv/host_cache.h); ../prefix_levels.c opens
 *          them. Threads: the stepping thread, unless a function says otherwise. */
#ifndef PROA_ENGINE_SCHED_PREFIX_CACHE_H
#define PROA_ENGINE_SCHED_PREFIX_CACHE_H

#include "engine/sched/sequence.h"

/* At submit, on the caller's thread: makes the namespace of a request that may share. */
void proa_prefix_cache_prepare(const proa_engine *e, proa_engine_request *req, const proa_request *r);
/* The namespace in which a request of this engine would find its prompt's pages, which the caller releases; NULL: they
 * are not known before it is submitted. Any thread. */
proa_kv_namespace *proa_prefix_cache_space(proa_engine *e, const proa_request *r);

/* Before a chunk of its prompt is added to a batch: cached pages that continue the sequence become its own, and its
 * length grows. False: the next one is being read from a folder, and the sequence takes no part in this pass. */
bool proa_prefix_cache_reuse(proa_engine *e, proa_seq *seq);
/* How many tokens of the prompt the next chunk may run at most: to its end if there are recurrent states, from which
 * other sequences start, or to where such a state is kept. */
int64_t proa_prefix_cache_chunk(const proa_engine *e, const proa_seq *seq);
/* After a chunk was submitted, and before the sequence releases its pages: its full pages are given to the tree. */
void proa_prefix_cache_keep(proa_engine *e, proa_seq *seq);
/* After a chunk that began at token `begin` was submitted and its pages were given to the tree: its recurrent state is
 * kept if this is a place for it. */
void proa_prefix_cache_keep_state(proa_engine *e, proa_seq *seq, int64_t begin);
/* The same for the pages of an encoder's input. */
typedef enum proa_prefix_input {
    PROA_PREFIX_INPUT_MISS,
    PROA_PREFIX_INPUT_HIT, /* all of them were cached, and no pass is needed */
    PROA_PREFIX_INPUT_WAIT /* some are being read */
} proa_prefix_input;
proa_prefix_input proa_prefix_cache_reuse_input(proa_engine *e, proa_engine_request *req);
void proa_prefix_cache_keep_input(proa_engine *e, proa_engine_request *req);

/* Once a step: pages on their way to the folder and back move on. */
void proa_prefix_cache_poll(proa_engine *e);
/* There were no rows to run. If sequences wait for pages of the folder, or there is nothing to do but to write pages,
 * it returns when some were read or written. */
void proa_prefix_cache_wait(proa_engine *e);
/* The engine closes: what is yet to be written is written, within PROA_PREFIX_FLUSH_MS. */
void proa_prefix_cache_flush(proa_engine *e);

#endif
