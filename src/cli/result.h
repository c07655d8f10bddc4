/* SPDX-License-Identifier: Apache-2.0
 * result.h - everything that one request gave, gathered from its events; and the order of many.
 * Owner:   the caller; proa_result_release frees. Two hooks see text and rows as they come.
 * Threads: the one that steps the engine.
 * Way in:  a request with .on_event = proa_result_event and .arg = the result; or proa_queue_run for many. */
#ifndef PROA_CLI_RESULT_H
#define PROA_CLI_RESULT_H

#include "base/str.h"
#include "proa/proa.h"

typedef struct proa_hypothesis {
    int32_t *ids;
    int64_t count;
    float score;
    char *text; /* "" without a tokenizer */
} proa_hypothesis;

typedef struct proa_result proa_result;
struct proa_result {
    void *arg;                                                  /* the hooks' */
    int64_t index;                                              /* of the item in a batch */
    void (*on_text)(proa_result *r, proa_str text, int32_t id); /* NULL: none */
    void (*on_rows)(proa_result *r, const proa_event *event);   /* NULL: rows are gathered below */

    int32_t *ids; /* new tokens; of the best beam if there are beams */
    float *logprobs;
    int64_t count, cap;
    proa_buf text;
    proa_hypothesis *beams;
    int32_t beams_count;

    float *rows, *pooled; /* [rows_count][columns], [columns] or NULL */
    int64_t rows_count, columns;

    bool stop; /* a hook may set it: the request is cancelled before the next step */
    bool done;
    proa_finish finish;
    proa_err err; /* of PROA_FINISH_ERROR */
    int64_t prompt_tokens, new_tokens;
    double queue_s, prompt_s, decode_s;
};

void proa_result_init(proa_result *r);
void proa_result_clear(proa_result *r); /* as after init; hooks and memory are kept */
void proa_result_release(proa_result *r);
void proa_result_event(const proa_event *event);                     /* event->arg is the result */
proa_status proa_result_status(const proa_result *r, proa_err *err); /* OK, CANCELLED, or the request's own error */
const char *proa_finish_name(proa_finish finish);
/* New tokens a second after the first one; of a single token, over the whole time. */
double proa_result_rate(const proa_result *r);

/* The text of a request; it may be empty, which a NULL or a length of zero would not say. */
void proa_request_set_text(proa_request *request, proa_str text);

/* Submits one request and steps until it is done; Ctrl-C cancels it. The result keeps what had come until then. */
PROA_MUST_CHECK proa_status proa_result_run(proa_engine *engine, const proa_request *request, proa_result *r,
                                            proa_err *err);

/* ln softmax(row)[id], summed in double. */
double proa_row_logprob(const float *row, int64_t count, int32_t id);
/* The ids of a text with the model's special tokens. *ids is the caller's to free. */
PROA_MUST_CHECK proa_status proa_ids_of_text(const proa_engine *engine, proa_str text, int32_t **ids,
                                             int64_t *count, proa_err *err);
/* The text of ids; *text is the caller's to free, "" without a tokenizer. */
void proa_text_of_ids(const proa_engine *engine, const int32_t *ids, int64_t count, char **text);

/* Many requests, a window of them in flight, results in the order of submission. */
typedef struct proa_queue {
    proa_engine *engine;
    int64_t window; /* submitted and not yet handed to `done` */
    void *arg;
    /* Fills the request's content and options for item `index`; what it points to is copied before the next call.
     * false at the end. A failure of one item is put into item_err, and its result then carries it. */
    bool (*next)(void *arg, int64_t index, proa_request *request, proa_err *item_err);
    /* Called once for each item in order. false stops everything (the output is gone). */
    bool (*done)(void *arg, int64_t index, proa_result *r);
    void (*on_rows)(proa_result *r, const proa_event *event); /* NULL: gathered; r->arg is the batch's */
    void (*idle)(void *arg);                                  /* between steps: progress; NULL: none */
} proa_queue;
PROA_MUST_CHECK proa_status proa_queue_run(const proa_queue *queue, proa_err *err);

#endif
