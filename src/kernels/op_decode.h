/* SPDX-License-Identifier: Apache-2.0
 * op_decode.h - the arguments of the ops that choose tokens (decode.def): sampling, logits processors, beam search.
 * Shapes:  V columns of logits (the vocabulary), K beams, M candidates of a beam.
 * Layout:  plain numbers and offsets, so that a device can run a step before the host has seen the tokens of the step
 *          before it.
 * Owner:   the structs own nothing; the engine owns the lists. Threads: plain values. */
#ifndef PROA_KERNELS_OP_DECODE_H
#define PROA_KERNELS_OP_DECODE_H

#include "base/limits.h"
#include <stdbool.h>
#include <stdint.h>

/* ---- sampling ---- */

/* How one token is drawn from a row of logits [V]. Candidates are cut in the order of the members:
 * engine/decode/sampler.h has the formulas. */
typedef struct proa_sample_params {
    float temperature; /* 0: greedy, the first index of the largest logit; the other members are ignored */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 0: all */
    float rest;        /* 1 - top_p, computed in double before top_p was rounded to float */
    float min_p;       /* 0: all */
    /* The order in which top_p sums probabilities. 0: from the least likely token up. 1: from the most likely token
     * down (FasterTransformer, TensorRT-LLM); then exactly top_k tokens stay, and the last one loses what exceeds
     * top_p. */
    int32_t falling;
    double uniform; /* random, in [0,1): chosen is the first candidate, by rising id, whose running sum exceeds this
                       part of the whole */
    /* [V], where the op runs; NULL: not wanted. Gets logits / temperature, -infinity where a cut dropped the token. It
     * is not written for greedy rows and for rows whose sum is not a number. */
    float *kept;
} proa_sample_params;

/* ---- logits processors (formulas: engine/decode/logits_processor.h) ---- */

enum { PROA_LOGITS_LAST_TOKEN = -2 }; /* as the id of a mask: the last token itself */

/* One entry changes one column of a row. */
typedef struct proa_logits_entry {
    int32_t id;
    union {
        float value; /* of a bias */
        /* Of a seen token: how often the history has it; 0: only the repetition penalty applies. Of a mask: the token
         * that must be last for the mask to apply; -1: any. */
        int32_t number;
    };
} proa_logits_entry;

/* The logits processors of a row, applied in this order: biases, the scale of all logits, penalties of tokens that the
 * history has (seen tokens), masks. A column has at most one bias and is at most once among the seen tokens. */
typedef struct proa_logits_row {
    int32_t first; /* index of the row's first entry; the row has biases, then seen tokens, then masks */
    int32_t bias_count, seen_count, mask_count;
    float scale;
    float repetition; /* 0: none */
    float presence, frequency;
    int32_t presence_first; /* 1: subtract presence before frequency */
    int32_t last;           /* 1: the last token, whose id only the device knows, counts as seen once more */
    int32_t only; /* 1 + the only token that may come next: its logit becomes 0, all others -infinity; 0: any may */
} proa_logits_row;

/* ---- beam search (engine/decode/beam.h; formulas: beam_step in decode.def, and beam_step.h) ---- */

enum { PROA_BEAM_CANDIDATES_MAX = 2048, PROA_DEVICE_BEAMS_MAX = 64 };

/* One step of a search: K beams with M candidates each, in G groups of Q = K / G beams that are stepped one after the
 * other. Steps are compared as bytes, so the struct has no padding. */
typedef struct proa_beam_params {
    /* Only with groups: a finished sequence has the score sum / length; no running sequence can get a better score than
     * sum / reach. */
    double length, reach;
    int32_t beams;  /* K, 2 to PROA_DEVICE_BEAMS_MAX */
    int32_t each;   /* M; Q * M is at most PROA_BEAM_CANDIDATES_MAX */
    int32_t groups; /* G, a divisor of K; 1: no groups */
    int32_t kept;   /* C, Q to Q * M: candidates of a group from which its next beams are taken */
    /* Rows of candidates: K; in the first step 1, because all beams are equal: they share the row, and only the first
     * beam of each group is alive. */
    int32_t rows;
    /* Where the search is in proa_beam_lists. */
    int32_t row, at;   /* its first row in `sums`; its first candidate in `ids` and `logits` */
    int32_t state, to; /* its first beam in `scores` and `hyps`; in `tokens` and `parents` */
    float none;        /* score of a beam that is not alive: -1e9 or less */
    /* key = sum / divisor + rate * rank, rank: of the candidate in its list, modulo K; by_beam 1: the beam instead. */
    float divisor, rate;
    int32_t by_beam;
    int32_t by_token; /* the first of equal keys of a beam. 1: the lower token (keys are sums then: divisor 1, rate 0);
                         0: the lower rank */
    int32_t pushed; /* 1: candidates that end have `none` added to their sum; 0: they come after all others */
    /* Only with groups. */
    float penalty; /* subtracted from a log-probability for each beam of an earlier group that chose the same token */
    int32_t pad;        /* the token that the beams of a group choose once the group is done */
    int32_t first_come; /* 1: a group is done when it has Q finished sequences; 0: when also no running sequence can
                           reach a better score */
    /* 1: a beam that has ended stays among the others; its only candidate is its end token, at no cost. Once the first
     * beam has ended, all keys use its divisor. There are no groups, C is K, and nothing is pushed. */
    int32_t keep_ended;
    int32_t end_count, end_ids[PROA_EOS_MAX];
} proa_beam_params;

/* A finished hypothesis; there is one slot for each beam. With groups, slot i has the i-th finished score of its group
 * in order of arrival, and the slot of the group's first beam also has worst, count and done. With keep_ended, a slot
 * has the end of its own beam. */
typedef struct proa_beam_hyp {
    double score;
    double worst;  /* of the group's scores */
    int32_t count; /* of the group's scores, at most Q */
    int32_t done;  /* 1: the group is done, or the beam has ended */
    float divisor; /* of the beam's length when it ended */
    int32_t token; /* that ended the beam */
} proa_beam_hyp;

/* What the searches of a step read and write. proa_beam_params has the offsets of each search. */
typedef struct proa_beam_lists {
    /* Read: [row][M] the candidates of a row, the largest logit first; [row] log(sum(exp)) over all columns. */
    int32_t *ids;
    float *logits, *sums;
    /* Read, and replaced by those of the next step: [beam]. Hypotheses are used only with groups or keep_ended. */
    float *scores;
    proa_beam_hyp *hyps;
    /* Written: [beam] of the next step, its token and the beam of this step that it continues. */
    int32_t *tokens, *parents;
} proa_beam_lists;

/* Page tables of a search whose beams continue those of the step before (op reorder_kv). The tables of its beams are
 * contiguous and have tokens / PROA_PAGE_TOKENS + 1 pages each. */
typedef struct proa_kv_reorder {
    int32_t source, table; /* index in the pages of the first beam's table: before, and after */
    int32_t beams, tokens; /* K; tokens in the pages of each beam */
    int32_t from;          /* index in `parents` of the first beam's parent */
} proa_kv_reorder;

#endif
