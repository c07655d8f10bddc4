/* SPDX-License-Identifier: Apache-2.0
 * beam_state.h - the inside of a beam search, for beam.c (its life), beam_parts.c (candidates, running beams, results)
 *                and the steps of the styles, which are made of these: beam_hf.c, beam_group.c, beam_pool.c.
 * A step has three parts: candidates are offered and the best are kept in order; some of these end, the others
 * become the running beams; it is decided whether the search is over. Sums, keys, ties and what ends are those of
 * kernels/beam_step.h with the parameters in `step`, which a device gets too. The styles add the finished sequences
 * and the end of the search. */
#ifndef PROA_ENGINE_DECODE_BEAM_STATE_H
#define PROA_ENGINE_DECODE_BEAM_STATE_H

#include "base/compiler.h"
#include "base/limits.h"
#include "engine/decode/beam.h"
#include "kernels/beam_step.h"

/* Scores that mean "none". transformers: of beams that do not exist yet and of empty places among the finished;
 * also added to candidates that must not be chosen. FasterTransformer and TensorRT-LLM: of beams that do not exist
 * yet. */
#define PROA_BEAM_NONE    (-1.0e9F)
#define PROA_BEAM_NONE_FT (-1.0e20F)

/* A continuation of a running beam. Ranked by key, then parent, then tie, lower first. key: proa_beam_key, and of a
 * sampled search the Gumbel number added. */
typedef struct proa_candidate {
    float key;
    float sum;     /* what the beam's score becomes */
    float logprob; /* as the caller gave it */
    int32_t parent, tie, token;
    bool ended; /* hf without groups: token is an end id, or the length limit is reached */
} proa_candidate;

/* A sequence that ended with `token` after the running beam `parent` of the step before. */
typedef struct proa_place {
    double score, total;
    float sum;
    bool finished; /* hf: false in an empty place */
    int32_t parent, token;
    int64_t length;
} proa_place;

/* How often a token was chosen by the groups before, in a table with open addressing. */
typedef struct proa_chosen {
    int32_t token, count; /* count 0: free */
} proa_chosen;

struct proa_beam {
    proa_beam_options o; /* end_ids points to the copy below */
    int32_t end_ids[PROA_EOS_MAX];
    int32_t groups, group_size;
    int64_t kept;          /* C: candidates that a step (or a group's) keeps */
    int64_t each;          /* M */
    int64_t length;        /* L: steps done, the current one included */
    proa_beam_params step; /* of the current step */
    bool over, pooled_all, closed;
    const float *numbers; /* [K][M] of the current step, the caller's; NULL unless sampled */
    int32_t results;
    char *memory;
    int64_t bytes;
    /* in memory; K beams */
    proa_candidate *best; /* [C] a heap, worst first, while candidates are offered; then best first */
    int64_t best_count;
    float *score;                 /* [K] of running beams: what candidates add to */
    float *sum;                   /* [K] the same; hf: without the -1e9 of ended ones */
    double *total, *total_old;    /* [K] sum of the caller's log-probabilities */
    int64_t *lived, *lived_old;   /* [K] ft without pool: tokens, up to the end token */
    proa_beam_hyp *hyp, *hyp_old; /* [K] as the slots of a device (op_decode.h); groups, and ft without pool */
    float *rank;                  /* hf: [K + C] values to rank */
    int32_t *order;               /* hf: [K] */
    proa_place *place;            /* hf: [K] best first; groups: [G][K/G + 1] beside the slots; pool: [2 K] */
    proa_place *place_old;        /* hf: [K] */
    int32_t place_count;          /* pool */
    proa_chosen *chosen;          /* [chosen_size], a power of two, at least 2 K */
    int64_t chosen_size;
    proa_beam_result *result; /* [returned] */
    int32_t *parent, *token;  /* [max_new][K] history: the tree of all sequences */
    int32_t *ids, *parents;   /* [returned][max_new] of the results */
};

/* Row of beam i in the caller's lists: in the first step all beams have row 0. */
static inline int64_t proa_beam_row(const proa_beam *b, int32_t i)
{
    return b->length > 1 ? i * b->each : 0;
}
static inline int32_t *proa_beam_parents(const proa_beam *b, int64_t step)
{
    return b->parent + step * b->o.beams;
}
static inline int32_t *proa_beam_tokens(const proa_beam *b, int64_t step)
{
    return b->token + step * b->o.beams;
}

/* length^length_penalty in f32, kept away from 0 and infinity. */
float proa_beam_norm(const proa_beam *b, int64_t length);
/* The same, but 1 where FasterTransformer and TensorRT-LLM do not divide: without a penalty, and for length 1. */
float proa_beam_length_divisor(const proa_beam *b, int64_t length);

/* The best candidates of beams [first, first + count), in order, into b->best: step.kept of them. backwards: the last
 * beam is offered first, which changes the time only. */
void proa_beam_find_best(proa_beam *b, int32_t first, int32_t count, bool backwards, const int32_t *tokens,
                         const float *logprobs);

/* How many beams of earlier groups chose the token in this step; one more does; a step begins. */
int32_t proa_beam_chosen_count(const proa_beam *b, int32_t token);
void proa_beam_count_chosen(proa_beam *b, int32_t token);
void proa_beam_clear_chosen(proa_beam *b);

/* Candidate c becomes running beam i of the next step. Once for each beam, after proa_beam_turn. */
void proa_beam_turn(proa_beam *b); /* saves the state of the beams of the step before */
void proa_beam_run(proa_beam *b, int32_t i, const proa_candidate *c);
proa_place proa_beam_place_of(const proa_beam *b, const proa_candidate *c, double score);
/* Running beam i as a place, with its score. */
proa_place proa_beam_running(const proa_beam *b, int32_t i, double score);

/* The k largest of x[n], largest first, among equals the lower index first. */
void proa_beam_rank(int32_t *order, int32_t k, const float *x, int64_t n);
/* The place as the next result, unless it descends from a beam that did not exist. */
void proa_beam_report(proa_beam *b, const proa_place *p);

/* The styles. A step: L counts it already; sets over. close: the results, after at least one step. */
void proa_beam_step_hf(proa_beam *b, const int32_t *tokens, const float *logprobs);
void proa_beam_close_hf(proa_beam *b);
void proa_beam_step_groups(proa_beam *b, const int32_t *tokens, const float *logprobs);
void proa_beam_close_groups(proa_beam *b);
/* Parameters of a step that only groups have. */
void proa_beam_search_groups(const proa_beam *b, int64_t length, proa_beam_params *s);
void proa_beam_step_pool(proa_beam *b, const int32_t *tokens, const float *logprobs); /* ft with pool, trtllm */
void proa_beam_close_pool(proa_beam *b);
void proa_beam_step_plain(proa_beam *b, const int32_t *tokens, const float *logprobs); /* ft without */
void proa_beam_close_plain(proa_beam *b);

#endif
