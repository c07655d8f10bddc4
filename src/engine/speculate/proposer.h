/* SPDX-License-Identifier: Apache-2.0
 * proposer.h - the interface of proposers, which draft tokens for speculative decoding: one row of the table for each
 *              kind (prompt lookup, draft model, Medusa, EAGLE). Private to src/engine.
 * Owner:   the state of a proposer is a part of the engine, or of the sequence.
 * Threads: prepare runs on the thread that submits; everything else on the stepping thread.
 * Way in:  proa_proposer_find. speculate.c decides how many tokens each sequence drafts, calls propose, and verifies.
 *
 * The functions are called in this order:
 *
 *   prepare      at submit
 *   draft_limit  before a pass: how many tokens the sequence could draft
 *   offer        what these tokens cost and how likely they are right; from all offers speculate.c plans the sizes
 *   propose      writes the draft after the sequence's known tokens
 *                the pass runs the newest known token and the draft as one span; a token is sampled from each row
 *   follow       the pass was submitted
 *   observe, learn   for each sampled token, as it is compared with the draft
 *   settle       all are compared: seq->known counts the draft tokens that were right, and one more
 *   release      when the sequence ends */
#ifndef PROA_ENGINE_SPECULATE_PROPOSER_H
#define PROA_ENGINE_SPECULATE_PROPOSER_H

#include "engine/decode/draft.h"
#include "engine/decode/draft_tree.h"
#include "proa/proa.h"

typedef struct proa_engine_request proa_engine_request;
typedef struct proa_seq proa_seq;

/* The draft of one sequence, all of whose known tokens are on the host. propose writes ids [count] to
 * seq->ids + seq->count, which has room for `size` more; or it makes the tree seq->tree (decode/draft_tree.h). */
typedef struct proa_draft_chain {
    proa_seq *seq;
    int32_t size; /* the most tokens to draft, 1 or more */
    /* Where a draft stops. The chance of a token is the probability that it and all draft tokens before it are right.
     * */
    float least; /* a token with a lower chance is not worth its row in the pass */
    float more;  /* if the tokens so far have a lower chance, it is not worth the time to draft another one */
    float chance;  /* of the tokens drafted so far; 1 before the first */
    int32_t count; /* out: tokens that were drafted, 0 to size */
} proa_draft_chain;

/* A token that was drafted but left out of the pass, because its chance was too low. It is compared when the token at
 * its position is known, so that the engine also learns how often such tokens are right. */
typedef struct proa_dropped_token {
    int64_t position; /* 0: there is none */
    int32_t id;
    uint8_t chance; /* proa_draft_chance_of */
} proa_dropped_token;

/* A kind of proposer. Functions that it does not need are NULL. */
typedef struct proa_proposer {
    const char *name; /* of the options `speculation` */
    /* Allocates what the request's sequences need, so that steps allocate nothing. */
    void (*prepare)(const proa_engine *e, proa_engine_request *req);
    void (*release)(proa_seq *seq); /* frees what prepare allocated for the sequence */
    /* How many tokens could be drafted now, at most `size`. If the newest token of the sequence is in flight: after
     * that token, once the host knows it. */
    int32_t (*draft_limit)(const proa_engine *e, const proa_seq *seq, int32_t size);
    /* Refines the offer of the sequence, for a pass in which `sequences` sequences draft: chances, costs, the limit. */
    void (*offer)(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer);
    /* Drafts for all `count` sequences at once. */
    void (*propose)(proa_engine *e, proa_draft_chain *chains, int64_t count);
    /* A pass over the batch of e->step was submitted; the lengths of its sequences are still those before it. */
    void (*follow)(proa_engine *e);
    /* `id` is the next token of the sequence, which is not appended yet. */
    void (*observe)(proa_engine *e, proa_seq *seq, int32_t id);
    /* `id` is the token after the tip of the tree. */
    void (*learn)(proa_engine *e, const proa_draft_tree *tree, int32_t id);
    /* The draft of the sequence was verified: `accepted` of its tokens were right. */
    void (*settle)(proa_engine *e, proa_seq *seq, int32_t accepted);
    /* True: it ends a draft by itself when the chance gets too low, so the size need not be limited beforehand. */
    bool stops;
} proa_proposer;

enum { PROA_PROPOSERS = 5 };
#define PROA_PROPOSER_NAMES "none, ngram, draft, medusa or eagle"
/* The row of that name (speculate.c); "none" is a row without functions. NULL: there is none of that name. */
const proa_proposer *proa_proposer_find(const char *name);

extern const proa_proposer proa_propose_none, proa_propose_lookup;

/* ---- proposer.c: for proposers ---- */

/* `prepare` of proposers of trees. Each row of a tree has a history of its own, which logits processors and grammars do
 * not support; requests with those get chains. */
void proa_proposer_prepare_tree(const proa_engine *e, proa_engine_request *req);
/* Whether draft tokens may take pages. False: so few are free that another request would have to be preempted. */
bool proa_proposer_may_take_pages(const proa_engine *e, const proa_seq *seq);
/* For proposers that have keys and values of their own in the sequence's pages: takes the pages that a draft of `size`
 * tokens needs, from position draft_length on. False: too few pages are free. */
bool proa_proposer_take_pages(proa_engine *e, proa_seq *seq, int32_t size);

#endif
