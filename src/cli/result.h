/* SPDX-License-Identifier: Apache-2.0
 * result.h - everything that one request gave, gathered from its events; and the order of many.
 * Owner:   the caller; proa_result_release frees. Two hooks see text and rows as they come.
 * Threads: the one that steps the engine.
 * Way in:  a request with .on_event = proa_result_event and .arg = the result; or proa_request_queue_run for many. */
#ifndef PROA_CLI_RESULT_H
#define PROA_CLI_RESULT_H

#include "base/str.h"
#include "proa/proa.h"

/* The tokens of one sequence, with what belongs to each. */
typedef struct proa_sequence_result {
    int32_t *ids;
    float *logprobs;
    int64_t count, cap;
    proa_buf top;            /* proa_logprob [count][top_count] */
    proa_buf logits, hidden; /* float [count][vocab], [count][hidden] */
} proa_sequence_result;

/* One of several sequences of a request; its tokens are those of the same index in proa_result.seq. */
typedef struct proa_hypothesis {
    const int32_t *ids;
    int64_t count;
    float score;
    double logprob_sum;
    proa_finish finish;
    char *text; /* "" without a tokenizer */
} proa_hypothesis;

typedef struct proa_result proa_result;
struct proa_result {
    void *arg;                                                  /* the hooks' */
    int64_t index;                                              /* of the item in a batch */
    void (*on_text)(proa_result *r, proa_str text, int32_t id); /* NULL: none */
    void (*on_rows)(proa_result *r, const proa_event *event);   /* NULL: rows are gathered below */

    const int32_t *ids; /* new tokens: seq[0]'s, which is the first or best of several sequences */
    float *logprobs;
    int64_t count;
    proa_buf text;
    proa_sequence_result *seq; /* [seq_count]; memory of seq_cap */
    int32_t seq_count, seq_cap;
    proa_hypothesis *beams; /* of a beam search, of n and of best_of; best or first one first */
    int32_t beams_count;
    bool several;          /* n > 1 was requested: `text` is the first sequence's, and is set at the end */
    int32_t top_count;     /* most likely tokens beside each token */
    int64_t vocab, hidden; /* widths of the rows in proa_sequence_result */

    /* the prompt's tokens from the second on, [prompt_scored] */
    int64_t prompt_scored;
    proa_buf prompt_ids, prompt_logprobs, prompt_top; /* int32_t, float, proa_logprob [][top_count] */

    float *rows, *pooled; /* [rows_count][columns], [columns] or NULL */
    int64_t rows_count, columns;

    bool stop; /* a hook may set it to cancel the request before the next step */
    bool done;
    proa_finish finish;
    proa_err err; /* of PROA_FINISH_ERROR */
    int64_t prompt_tokens, new_tokens;
    int64_t drafted_tokens, accepted_tokens;
    double queue_s, prompt_s, decode_s;
};

void proa_result_init(proa_result *r);
void proa_result_clear(proa_result *r); /* as after init; hooks and memory are kept */
void proa_result_release(proa_result *r);
void proa_result_event(const proa_event *event);                     /* event->arg is the result */
proa_status proa_result_status(const proa_result *r, proa_err *err); /* OK, CANCELLED, or the request's own error */
const char *proa_finish_name(proa_finish finish);
/* New tokens per second after the first one; for a single token, over the whole time. */
double proa_result_rate(const proa_result *r);

/* Sets the text of a request, which may be empty: NULL or a length of zero alone would mean no text. */
void proa_request_set_text(proa_request *request, proa_str text);

/* Fills result.seq[i].logprobs and .top by another pass over prompt and tokens, for sequences that have
 * none: those of a beam search or of best_of. The request is the original one, with ids, not text. */
PROA_MUST_CHECK proa_status proa_result_score(proa_engine *engine, const proa_request *request,
                                              proa_result *r, int32_t i, proa_err *err);

/* Submits one request and steps until it is done; Ctrl-C cancels it. The result keeps what arrived until
 * then. */
PROA_MUST_CHECK proa_status proa_result_run(proa_engine *engine, const proa_request *request, proa_result *r,
                                            proa_err *err);

/* ln softmax(row)[id], summed in double. */
double proa_row_logprob(const float *row, int64_t count, int32_t id);
/* Encodes a text with the model's special tokens. The caller frees *ids. */
PROA_MUST_CHECK proa_status proa_encode_text(const proa_engine *engine, proa_str text, int32_t **ids,
                                             int64_t *count, proa_err *err);

/* Many requests, a window of them in flight, results in the order of submission. */
typedef struct proa_request_queue {
    proa_engine *engine;
    int64_t window; /* submitted and not yet handed to `done` */
    void *arg;
    /* Fills the content and options of item `index`; its pointers are copied before the next call. false at
     * the end. An error of one item goes to item_err, and its result has it. */
    bool (*next)(void *arg, int64_t index, proa_request *request, proa_err *item_err);
    /* Called once for each item, in order. false stops everything (the output has failed). */
    bool (*done)(void *arg, int64_t index, proa_result *r);
    void (*on_rows)(proa_result *r, const proa_event *event); /* NULL: gathered; r->arg is the batch's */
    void (*idle)(void *arg);                                  /* between steps: progress; NULL: none */
} proa_request_queue;
PROA_MUST_CHECK proa_status proa_request_queue_run(const proa_request_queue *queue, proa_err *err);

#endif
