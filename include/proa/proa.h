/* SPDX-License-Identifier: Apache-2.0
 * proa.h - the engine as a library: open a model folder, submit sequences, receive tokens.
 *
 *     proa_engine *engine;
 *     proa_err err = {0};
 *     if (proa_engine_open(&engine, "models/classics-10m", NULL, &err) != PROA_OK) ...err.text...
 *     proa_request request = {.text = "It was", .on_event = show, .options = {.max_tokens = 64}};
 *     proa_engine_submit(engine, &request, NULL, &err);
 *     proa_engine_run(engine);      // calls show() for every token, returns when nothing is left
 *     proa_engine_close(engine);
 *
 * Owner:   the caller owns the engine and the memory of a request, which is copied by proa_engine_submit.
 * Threads: submit, cancel, stats, encode, decode and info may be called from any thread at any time. step and run
 *          belong to one thread at a time (or to none: proa_engine_start makes one). Events are delivered on the
 *          thread that steps; inside a callback, submit and cancel are allowed, step, run, stop and close are not.
 * Errors:  functions return proa_status and fill err (which may be NULL). A request that fails after it was
 *          accepted ends with a PROA_EVENT_DONE whose finish is PROA_FINISH_ERROR.
 * In every options struct zero means "the default". */
#ifndef PROA_PROA_H
#define PROA_PROA_H

#include "proa/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifndef PROA_EXPORT
#define PROA_EXPORT __attribute__((visibility("default")))
#endif

typedef struct proa_engine proa_engine;

/* Called with a part in [0,1] while a model loads. */
typedef void proa_progress_fn(void *arg, const char *what, double part);

typedef struct proa_engine_options {
    const char *device;    /* "cpu" */
    const char *dtype;     /* "auto": weights as the checkpoint has them, arithmetic in f32 (bf16 and f16 weights are
                              widened exactly, so the result is that of "f32" at half the bytes); "f32": the same
                              result, f32 weights in memory; "f16": weights and keys/values in f16; "bf16": weights,
                              keys/values and matrix inputs in bf16 */
    const char *quant;     /* "none" or "int8" */
    int32_t threads;       /* 0: all CPUs that this process may use */
    int32_t sequences_max; /* running at once, each beam counts as one; default 64 */
    int32_t step_tokens;   /* token budget of a step; default 512, at least the longest encoder input is planned */
    int64_t kv_tokens;     /* room for keys and values, in tokens of all running sequences; 0: see proa_info */
    proa_progress_fn *progress;
    void *progress_arg;
} proa_engine_options;

/* Opens a Hugging Face folder (config.json, *.safetensors, and for text a tokenizer). On failure *out is NULL. */
PROA_EXPORT proa_status proa_engine_open(proa_engine **out, const char *path, const proa_engine_options *options,
                                         proa_err *err);
/* Running and waiting sequences get no more events. NULL is fine. */
PROA_EXPORT void proa_engine_close(proa_engine *engine);

typedef enum proa_kind {
    PROA_KIND_DECODER,         /* Llama, GPT: a prompt is continued */
    PROA_KIND_ENCODER_DECODER, /* T5: an input is encoded, an output is decoded from a start token */
    PROA_KIND_ENCODER          /* BERT: rows in, rows out */
} proa_kind;

typedef struct proa_info {
    const char *arch;       /* "llama"; lives as long as the engine */
    proa_kind kind;
    int32_t vocab, hidden, layers, encoder_layers;
    int32_t context;        /* tokens of one sequence at most */
    int32_t outputs;        /* columns of ROWS: vocabulary, labels of a head, or hidden size */
    bool has_tokenizer, has_pooler;
    int32_t threads;
    const char *isa, *dtype, *quant; /* what is in use: "avx512_bf16", "bf16", "none" */
    int64_t parameters, weight_bytes; /* as stored in memory */
    int64_t kv_tokens, kv_bytes;      /* room for keys and values */
    int64_t memory_bytes;             /* planned for this engine as a whole */
    int32_t bos_id, eos_id, decoder_start_id; /* -1: none */
} proa_info;

PROA_EXPORT void proa_engine_info(const proa_engine *engine, proa_info *info);

typedef enum proa_task {
    PROA_TASK_GENERATE, /* tokens, one TOKEN event each (with beams: all at the end) */
    PROA_TASK_ROWS      /* one forward pass over the given ids; ROWS events with the output of every position:
                           logits, or for encoders the head's output or hidden states */
} proa_task;

typedef enum proa_early {
    PROA_EARLY_FALSE, /* transformers' early_stopping=False: stop when no better hypothesis is likely (default) */
    PROA_EARLY_TRUE,  /* as soon as there are `beams` finished hypotheses */
    PROA_EARLY_NEVER  /* only when no running beam can still win */
} proa_early;

#define PROA_END_IDS_MAX 16

/* How to generate. Fields whose zero is a meaningful value that differs from the default are also taken as zero
 * when their PROA_GIVEN_ bit is set in `given`. */
#define PROA_GIVEN_LENGTH_PENALTY (1u << 0)
typedef struct proa_options {
    uint32_t given;
    int32_t max_tokens;   /* new tokens; 0: until the end token or the context is full; for encoder-decoders at
                             most twice the input's tokens, or 64 if that is more */
    float temperature;    /* 0: greedy; else sample from softmax(logits / temperature) */
    int32_t top_k;        /* 0: all tokens; else the k most likely (ties at the k-th value stay, as in transformers) */
    float top_p;          /* 0 or 1: all; else the smallest set of most likely tokens whose mass reaches top_p */
    uint64_t seed;        /* of this sequence's own counter-based generator */
    int32_t beams;        /* 0 or 1: no beam search */
    float length_penalty; /* score = sum of log-probabilities / length^penalty; default 1 */
    proa_early early_stopping;
    int32_t beams_returned; /* 0: all */
    bool ignore_eos;        /* end tokens neither end the sequence nor count as ends in beam search */
    int32_t end_ids[PROA_END_IDS_MAX]; /* replace the model's own when end_ids_count > 0 */
    int32_t end_ids_count;
    bool logprobs;          /* log-probability of each token in its TOKEN event */
} proa_options;

typedef enum proa_event_kind { PROA_EVENT_TOKEN, PROA_EVENT_ROWS, PROA_EVENT_DONE } proa_event_kind;
typedef enum proa_finish {
    PROA_FINISH_NONE,
    PROA_FINISH_END,       /* an end token came */
    PROA_FINISH_LENGTH,    /* max_tokens, or the context is full */
    PROA_FINISH_CANCELLED,
    PROA_FINISH_ERROR      /* see event.error */
} proa_finish;

/* One finished hypothesis of a beam search, best first. The prompt (and decoder start token) is not in ids. */
typedef struct proa_beam_result {
    const int32_t *ids;
    int64_t count;
    float score;
    const char *text; /* NULL without a tokenizer */
    size_t text_len;
} proa_beam_result;

/* Valid during the callback only. */
typedef struct proa_event {
    proa_event_kind kind;
    uint64_t request; /* the id that submit gave */
    void *arg;        /* the request's */
    /* TOKEN */
    int32_t id;
    float logprob;    /* natural logarithm, of the model's own distribution; 0 unless options.logprobs */
    const char *text; /* whole characters that became complete (may be empty, not NULL); NUL-terminated */
    size_t text_len;
    /* ROWS: row-major [rows_count, columns] f32, rows rows_first.. of the sequence; pooled is NULL or [columns]
       with the last rows */
    const float *rows, *pooled;
    int64_t rows_first, rows_count, columns;
    /* DONE; text holds what the detokeniser still held back */
    proa_finish finish;
    const proa_err *error;
    const proa_beam_result *beams;
    int32_t beams_count;
    int64_t prompt_tokens, new_tokens;
    double queue_s, prompt_s, decode_s; /* waiting, until the first token, from then to the end */
} proa_event;
typedef void proa_event_fn(const proa_event *event);

typedef struct proa_request {
    proa_task task;
    const char *text;        /* UTF-8, tokenised with special tokens; or NULL with ids */
    size_t text_len;         /* 0: text is NUL-terminated */
    const int32_t *ids;      /* token ids, used as they are */
    int64_t ids_count;
    const int32_t *decoder_ids; /* encoder-decoder: the decoder's first tokens, start token included; NULL: the
                                   start token alone */
    int64_t decoder_ids_count;
    proa_options options;
    proa_event_fn *on_event;    /* required */
    void *arg;
} proa_request;

/* Checks and queues a request. *id (may be NULL) names it for cancel. INVALID, LIMIT: nothing was queued. */
PROA_EXPORT proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id,
                                           proa_err *err);
/* The request ends with a DONE event (CANCELLED) before the next step; its pages are free then. Unknown or finished
 * ids are ignored. */
PROA_EXPORT void proa_engine_cancel(proa_engine *engine, uint64_t id);

/* Runs one step: admits waiting sequences, one forward pass over at most step_tokens rows, delivers events. Returns
 * false if there was nothing to do. */
PROA_EXPORT bool proa_engine_step(proa_engine *engine);
/* Steps until nothing is left. */
PROA_EXPORT void proa_engine_run(proa_engine *engine);
/* A thread of the engine's own that steps whenever there is work, until stop. */
PROA_EXPORT proa_status proa_engine_start(proa_engine *engine, proa_err *err);
PROA_EXPORT void proa_engine_stop(proa_engine *engine);

typedef struct proa_stats {
    uint64_t steps, rows;                       /* forward passes, token rows in them */
    uint64_t prompt_tokens, new_tokens;
    uint64_t submitted, finished, cancelled, failed;
    int32_t running, waiting;
    int64_t pages_used, pages_free, pages_used_peak;
    double step_s;                              /* time inside forward passes */
} proa_stats;
PROA_EXPORT void proa_engine_stats(proa_engine *engine, proa_stats *stats);

/* Text to ids with the model's special tokens, and back. *count is the number there are; at most cap are written.
 * UNSUPPORTED if the folder has no tokenizer. */
PROA_EXPORT proa_status proa_engine_encode(const proa_engine *engine, const char *text, size_t text_len,
                                           int32_t *ids, int64_t cap, int64_t *count, proa_err *err);
PROA_EXPORT proa_status proa_engine_decode(const proa_engine *engine, const int32_t *ids, int64_t count,
                                           char *text, size_t cap, size_t *text_len, proa_err *err);

PROA_EXPORT const char *proa_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
