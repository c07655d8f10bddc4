/* SPDX-License-Identifier: Apache-2.0
 * bench.h - what `proa bench` measured, between measuring (measure.c, with floors from
 * cost.c) and showing (show.c).
 * Owner:   cmd_bench.c. All rates are a second; bytes are those that one decoding step must read. */
#ifndef PROA_CLI_BENCH_BENCH_H
#define PROA_CLI_BENCH_BENCH_H

#include "cli/output.h"
#include "cli/session.h"
#include "model/model.h"

enum { PROA_BENCH_BATCHES_MAX = 32 };

typedef struct proa_bench_row {
    int64_t batch;
    double decode_rate; /* new tokens of all sequences while every sequence decodes */
    double step_s;      /* median time of a decode step; for an encoder the time of one batch alone */
    double bytes_rate,
        share; /* bytes of weights and KV cache that a step reads, per second; share of the measured bandwidth */
    double step_share; /* least time (reading or multiplying at the measured rates, whichever is longer) over step_s */
    double ready_s; /* from submission until every sequence has its first token; for an encoder the time of a batch
                       among others */
    double ready_share;              /* as step_share, for the prefill of these prompts */
    double total_rate;               /* new tokens over the whole time: prefill, encoder and decoding */
    double prompt_rate;              /* prompt tokens per second until every sequence has its first token */
    double first_s;                  /* submission to first token, median over the sequences */
    double between_s, between_p99_s; /* time between two tokens of a sequence, including prefills of others */
    double sequence_rate; /* encoder: sequences per second, with the next batch queued if a batch fills a step of a
                             GPU */
} proa_bench_row;

/* Cost of the matrix products and of attention, from the plan. A multiplication and an addition are two
 * ops. */
typedef struct proa_bench_cost {
    proa_kind kind;
    int64_t step_bytes, all_bytes; /* weight bytes that a decode step of one row reads; of all matrices */
    int64_t expert_bytes;          /* of the first, of experts: more rows choose more of them */
    double chosen;                 /* the part of the experts that a row chooses; 0: there are none */
    double row, encoder_row, head; /* ops of one row of a stack, of one row of the head */
    double pair, encoder_pair;     /* ops of attention for one query and one key, all layers and heads */
} proa_bench_cost;

typedef struct proa_bench {
    proa_common common; /* first: see session.h */
    const char *batches_text, *plot;
    int64_t prompt, tokens, repeats, top_k, adapters;
    const char *adapter_modules; /* NULL: all */
    double temperature;
    bool csv;

    const proa_session *session;
    int32_t *batches;
    int64_t count;
    double bandwidth;    /* bytes a second, measured before anything else */
    int64_t cache_bytes; /* 0: unknown */
    double matrix_rate;  /* ops a second of matrix products in the weights' type; 0: not measured */
    proa_bench_cost cost;
    double token_bytes; /* keys and values of one token */
    proa_bench_row row[PROA_BENCH_BATCHES_MAX];
    int knee; /* index of the first batch size whose doubling gains less than 20 %; -1: none */
} proa_bench;

void proa_bench_cost_of(proa_bench_cost *cost, const proa_model *m);
/* The least time of a decode step, and of the prefill of a batch, in seconds. */
double proa_bench_step_floor(const proa_bench *b, int64_t batch);
double proa_bench_prompt_floor(const proa_bench *b, int64_t batch);
/* Bytes that a decode step of `batch` sequences reads when half of the new tokens are in the KV cache. */
double proa_bench_step_bytes(const proa_bench *b, int64_t batch);
bool proa_bench_is_encoder(const proa_bench *b);
bool proa_bench_in_cache(const proa_bench *b);

/* Measures one batch size. */
PROA_MUST_CHECK proa_status proa_bench_measure(proa_bench *b, proa_bench_row *row, proa_err *err);
/* Largest KV cache of one sequence, in tokens: whole pages. */
int64_t proa_bench_sequence_tokens(const proa_bench *b, int64_t batch);
/* New tokens of a sequence until all `batch` sequences have decoded b->tokens steps together. */
int64_t proa_bench_max_tokens(const proa_bench *b, int64_t batch);

void proa_bench_show_table(const proa_bench *b, proa_output *out);
void proa_bench_show_json(const proa_bench *b, proa_output *out);
void proa_bench_show_csv(const proa_bench *b, proa_output *out);
void proa_bench_show_plot(const proa_bench *b, proa_output *out);

#endif
