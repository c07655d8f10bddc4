/* SPDX-License-Identifier: Apache-2.0
 * proposer.h - who drafts tokens: a row of the table of proposers for each kind of speculation. Private to src/engine.
 * Owner:   what a proposer keeps is a part of the engine, or of the sequence.
 * Threads: prepare on the thread that submits; everything else on the stepping thread.
 * Way in:  proa_proposer_find; speculate.c decides how many tokens are drafted for whom, calls propose, and verifies.
 *
 * The life of a draft:
 *
 *   propose   before a pass: ids are written after the sequence's known tokens
 *             the pass runs the newest known token and the draft as one span, and a token is sampled from each row
 *   settle    the sampled tokens have been compared: seq->known counts those that were right, and one more */
#ifndef PROA_ENGINE_SPECULATE_PROPOSER_H
#define PROA_ENGINE_SPECULATE_PROPOSER_H

#include "engine/decode/draft.h"
#include "engine/decode/draft_tree.h"
#include "proa/proa.h"

typedef struct proa_engine_request proa_engine_request;
typedef struct proa_seq proa_seq;

/* The draft of one sequence, whose known tokens the host has: ids [count] are written to seq->ids + seq->count, for
 * which there is room. Or they are the nodes of a tree, seq->tree (decode/draft_tree.h). */
typedef struct proa_draft_chain {
    proa_seq *seq;
    int32_t size; /* tokens at most, 1 or more */
    float least; /* chance to be right, of a token and those before it, below which it is not worth its row, */
    float more;  /* and of those before it, below which it is not worth the time to draft it */
    float chance;  /* 1; then that of the tokens drafted so far */
    int32_t count; /* set: tokens that were drafted, 0 to size */
} proa_draft_chain;

/* A token that was drafted and not verified, because it seemed too unlikely. It is compared once the token at its
 * position is known, so that it is also learnt how often unlikely tokens are right. */
typedef struct proa_dropped_token {
    int64_t position; /* 0: there is none */
    int32_t id;
    uint8_t chance; /* proa_draft_chance_of */
} proa_dropped_token;

/* Functions that are NULL have nothing to do. */
typedef struct proa_proposer {
    const char *name; /* of the options `speculation` */
    /* Allocates what the request's sequences need, so that steps allocate nothing. */
    void (*prepare)(const proa_engine *e, proa_engine_request *req);
    void (*release)(proa_seq *seq); /* what prepare took for it */
    /* How many tokens could be drafted, at most `size`; if the newest token of the sequence is in flight, after that
     * one, once the host knows it. */
    int32_t (*draft_limit)(const proa_engine *e, const proa_seq *seq, int32_t size);
    /* Refines the offer of the sequence if that many draft together: chances, costs, a lower limit. */
    void (*offer)(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer);
    void (*propose)(proa_engine *e, proa_draft_chain *chains, int64_t count);
    /* A pass over the batch of e->step was submitted; lengths are those before it. */
    void (*follow)(proa_engine *e);
    /* The next token of the sequence is known; before it is appended. */
    void (*observe)(proa_engine *e, proa_seq *seq, int32_t id);
    /* The token after the tip of a tree is known. */
    void (*learn)(proa_engine *e, const proa_draft_tree *tree, int32_t id);
    /* The draft of the sequence was verified: that many of its `drafts` tokens were right. */
    void (*settle)(proa_engine *e, proa_seq *seq, int32_t accepted);
    /* Whether it stops a draft by itself where it gets unsure, so that its size need not be limited beforehand. */
    bool stops;
} proa_proposer;

enum { PROA_PROPOSERS = 5 };
#define PROA_PROPOSER_NAMES "none, ngram, draft, medusa or eagle"
/* speculate.c. NULL: no proposer has this name. "none" has a row with no functions. */
const proa_proposer *proa_proposer_find(const char *name);

extern const proa_proposer proa_propose_none, proa_propose_lookup;

/* ---- proposer.c: for proposers ---- */

/* `prepare` of those who draft trees. A tree's rows have histories of their own, which logits processors and grammars
 * do not get: with those the drafts are chains. */
void proa_proposer_prepare_tree(const proa_engine *e, proa_engine_request *req);
/* False: so few pages are free that draft tokens take none. Then no request is preempted for them. */
bool proa_proposer_may_take_pages(const proa_engine *e, const proa_seq *seq);
/* For proposers with keys and values of their own in the sequence's pages: pages for these rows, from draft_length on,
 * of a draft of so many tokens. False: there are too few. */
bool proa_proposer_take_pages(proa_engine *e, proa_seq *seq, int32_t size);

#endif
