/* SPDX-License-Identifier: Apache-2.0
 * sequence.h - one sequence of a request: its tokens, its pages, its draft and its text. Private to src/engine.
 * Owner:   its request (request.h), which allocates it in submit and frees it after DONE.
 * Threads: the stepping thread, once the request is submitted.
 *
 * The tokens of a sequence are the prompt and then those that it generated. `known` of them exist; the keys and values
 * of the first `length` are in its pages. A step runs tokens [length, known), or as many of them as the budget allows,
 * and the logits of the last known token give the next one:
 *
 *   0            length        prompt_count              known
 *   |== in pages ==|== to be run ==|=== generated, to be run ===|
 *
 * So a prompt in chunks, one token a step, and a sequence whose pages were dropped are one case. */
#ifndef PROA_ENGINE_SCHED_SEQUENCE_H
#define PROA_ENGINE_SCHED_SEQUENCE_H

#include "base/str.h"
#include "engine/decode/draft.h"
#include "engine/decode/draft_tree.h"
#include "engine/decode/lookup.h"
#include "engine/decode/stop.h"
#include "engine/speculate/propose_eagle.h"
#include "engine/speculate/proposer.h"
#include "kv/prefix_tree.h"
#include "text/tokenizer.h"

/* One of `n` or `best_of`, a beam, or a candidate of contrastive search. Positions and counts are in tokens. */
struct proa_seq {
    proa_engine_request *req;
    int32_t index; /* in its request, from 0 */

    /* keys and values */
    proa_page_table *table; /* its pages, those of slot req->slot + index; NULL: its request is not admitted */
    int64_t length, known;  /* as above */
    proa_prefix_cursor cached; /* how many of its first pages are in the prefix tree, too */
    /* with recurrent states, in pages: how many begin the last request that was found to begin alike, as far as that is
     * known; and behind how many its state was kept or loaded last */
    int32_t shared_pages, state_pages;

    /* the newest token, while only the device knows it */
    int32_t sampled_at; /* its index among the ids sampled last; -1: the host knows it */
    int sampled_ticket; /* of the step that samples it: proa_inflight_step.ticket */

    /* tokens on the host */
    int32_t *ids;       /* [new_max] generated so far; NULL for beams and candidates after the first */
    int64_t count;      /* of ids */
    uint64_t seed;      /* of its random numbers: draw i depends on (seed, i) alone */
    double logprob_sum; /* of ids, natural logarithm; counted only if log-probabilities were requested */

    /* draft tokens (speculate.c) */
    int32_t drafts; /* how many follow the known tokens: [known, known + drafts) */
    int64_t rows_valid; /* rows of this step give tokens up to this position; lower once a draft token was wrong */
    /* With recurrent states: a draft token was wrong, so the pass that had it does not count, and its right tokens are
     * run again, before the newest one or with it. undo_length: `length` before that pass. */
    bool undone;
    int64_t undo_length;
    bool verifying;        /* a pass with its draft tokens is in flight: it takes no part in the next one */
    proa_draft_tree *tree; /* its drafts are a tree, in place of a chain after ids; NULL: they are always a chain */
    proa_draft_state draft;               /* how often its drafts were right so far */
    uint8_t draft_chance[PROA_DRAFT_MAX]; /* of its draft tokens to be right: proa_draft_chance_of */
    proa_dropped_token dropped;           /* the one after them, drafted but too unlikely to be run */
    /* prompt lookup: all tokens in one row (input, prompt, predicted, generated); zero without lookup */
    proa_lookup lookup;
    float lookup_right, lookup_expected; /* guesses that were right, and that were expected to be: decaying sums */
    /* a draft model or EAGLE heads: tokens [0, draft_length) have the drafter's own keys and values in the pages */
    int64_t draft_length;
    proa_eagle_states *states; /* EAGLE heads: hidden states that the head has not run; NULL: there are none */
    /* Medusa heads: its rows' hidden states of pass number state_pass are kept from number state_at on; state_row is
     * the row of the newest token among them */
    int64_t state_pass, state_at;
    int32_t state_row;

    /* output */
    proa_finish finish; /* why it ended; NONE while it runs */
    proa_detok *detok;  /* NULL without a tokenizer, and for beams */
    proa_stop stop;     /* what of its text may be the begin of a stop string */
    proa_buf piece;     /* text of the last token */
    proa_buf shown;     /* all text emitted so far, kept only if the results need it */
};

/* Whether its drafts are a tree; otherwise they are a chain after ids. */
static inline bool proa_seq_has_tree(const proa_seq *seq)
{
    return seq->tree && seq->drafts > 0;
}

/* request.c. Whether the sequence has tokens to run. A token that the host has not received may turn out to be an end
 * token, which costs one surplus row; that it reaches the length limit is known beforehand. */
bool proa_seq_has_rows(const proa_engine *e, const proa_seq *seq);

#endif
