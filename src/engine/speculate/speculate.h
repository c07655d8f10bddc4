/* SPDX-License-Identifier: Apache-2.0
 * speculate.h - draft tokens: how many for whom, by which proposer (proposer.h), and which of them were right. Private
 * to src/engine.
 * Owner:   the engine. Threads: the stepping thread, but for the functions of submit. */
#ifndef PROA_ENGINE_SPECULATE_SPECULATE_H
#define PROA_ENGINE_SPECULATE_SPECULATE_H

#include "engine/sched/request.h"

/* What is known about the drafts of one proposer, for greedy or for sampled text. */
typedef struct proa_drafts_kind {
    proa_draft_state first; /* with whose rate sequences begin: the mean over all */
    proa_draft_account account;
    int64_t drafted; /* tokens of the last pass */
} proa_drafts_kind;

enum { PROA_DRAFT_KINDS = 2 * PROA_PROPOSERS };

typedef struct proa_speculation {
    const proa_proposer *proposer; /* of requests that do not choose one */
    int64_t tokens_max;            /* of one draft */
    /* of the next pass: [sequences_max] sequences that could draft, and those of one proposer that do */
    proa_draft_offer *offers;
    proa_seq **seqs; /* of each offer */
    proa_draft_chain *chains;
    float *chances; /* [sequences_max][PROA_DRAFT_MAX] of offers of prompt lookup */
    proa_drafts_kind kinds[PROA_DRAFT_KINDS];
    proa_lookup_rates lookup_rates[2]; /* of sampled text; of greedy text */
    proa_draft_times times;
    int64_t drafts_in_row;  /* passes with drafts since the last one without */
    double drafting_ns;     /* to draft those of the last pass */
    int64_t drafted, right; /* draft tokens of the last pass; those that were right */
    double pause_ns;        /* between passes of which the second was not submitted ahead: a decaying mean */
    int64_t last_end_ns;    /* of the last pass */
    int64_t proposed_ns;    /* when the drafts of the last pass were ready */
} proa_speculation;

/* When the engine opens: arrays and what is known at first. */
void proa_speculate_init(proa_engine *e);
/* At submit, on the caller's thread: chooses the request's proposer, and allocates what it needs. INVALID names the
 * option. release: what prepare took for its sequences. */
PROA_MUST_CHECK proa_status proa_speculate_prepare(const proa_engine *e, proa_engine_request *req, proa_err *err);
void proa_speculate_release(proa_engine_request *req);

/* While a step is in flight: whether the next pass waits for its tokens, because it would have draft tokens then that
 * are worth the wait, or because draft tokens are in flight. */
bool proa_speculate_waits(proa_engine *e);
/* Before the arrays of a pass are built: drafts tokens for sequences that decode. */
void proa_speculate_propose(proa_engine *e);
/* Whether the next pass has room for the rows that were undone (proa_seq.undone) beside one of each sequence. */
bool proa_speculate_runs_undone(const proa_engine *e);
/* A decoder pass was submitted: proposers run their part of it. Before lengths are advanced. */
void proa_speculate_follow(proa_engine *e);
/* Whether the token that a row gives for this position is the sequence's next one: all draft tokens before it were
 * right. */
bool proa_speculate_row_counts(const proa_seq *seq, int64_t position, int32_t node);
/* The token at this position is known now; compares it with the draft token there. After `known` was raised, before the
 * token is appended. */
void proa_speculate_sampled(proa_engine *e, proa_seq *seq, int64_t position, int32_t id);
/* The sequence ends; draft tokens after its last token are dropped. */
void proa_speculate_end(proa_engine *e, proa_seq *seq);
/* A pass with that many rows, all of which were sampled, has just ended with its sampling. It was submitted at
 * begin_ns. */
void proa_speculate_step_time(proa_engine *e, int64_t rows, int64_t begin_ns);

#endif
