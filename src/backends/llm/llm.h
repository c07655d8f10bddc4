/* SPDX-License-Identifier: Apache-2.0
 * llm.h - a loaded model of the three LLM backends (engine, fastertransformer, tensorrtllm): the engine with its
 *         replicas, the tokenizer, the settings, and the requests that are in it. Private to src/backends.
 * Owner:   a model belongs to its version.
 * Threads: a model does not change after open, except for what its `lock` guards.
 * Way in:  proa_llm_model_open. request.h has the requests, contract.h how tensors become requests and replies. */
#ifndef PROA_BACKENDS_LLM_LLM_H
#define PROA_BACKENDS_LLM_LLM_H

#include "backends/gpu/gpu.h"
#include "engine/access.h"
#include "engine/dense.h"
#include "engine/fleet/fleet.h"
#include "serve/backend.h"
#include "text/template.h"
#include "text/token_bytes.h"
#include <pthread.h>

typedef struct proa_contract proa_contract;       /* contract.h */
typedef struct proa_llm_request proa_llm_request; /* request.h */
typedef struct proa_llm_model proa_llm_model;

/* ---- parts of a model ---- */

/* A dense layer behind the pooling, and the one behind it. */
typedef struct proa_sentence_dense {
    proa_dense layer;
    struct proa_sentence_dense *next;
} proa_sentence_dense;

/* What modules.json and 1_Pooling/config.json of a sentence-transformers folder say about embeddings. */
typedef struct proa_sentence_modules {
    proa_pooling pooling;       /* DEFAULT: the files say nothing */
    proa_sentence_dense *dense; /* the first one; NULL: none */
    int64_t width;              /* outputs of the last one; 0: there is none */
    bool normalize;
    const char *refused; /* why the folder's own embedding cannot be computed; NULL: it can */
} proa_sentence_modules;

/* A histogram of tokens a request: up to 10, 50, 100, 500, 1000, and more. */
typedef struct proa_token_counts {
    uint64_t bucket[6], count, sum;
} proa_token_counts;

/* Threads that read requests which would keep an event loop too long: one for chats, whose templates may run for any
 * time, and one for long texts, so that a short chat does not wait for a long text. */
enum { PROA_READER_CHATS, PROA_READER_LONG, PROA_READERS };
typedef struct proa_reader {
    proa_llm_model *llm_model;
    void (*read)(proa_llm_request *req);
    proa_llm_request *first, **last; /* the queue; under llm_model->lock, like all members */
    pthread_cond_t arrived;
    pthread_t thread;
    bool runs; /* the thread was started */
    bool used; /* since memory was last returned to the system */
} proa_reader;

/* How the scores of a classification come from the logits. */
typedef enum proa_llm_scores {
    PROA_SCORES_SOFTMAX,
    PROA_SCORES_SIGMOID,
    PROA_SCORES_PLAIN /* a regression: the logits themselves */
} proa_llm_scores;

struct proa_llm_model {
    const proa_contract *contract;
    const proa_served_model *model;
    proa_arena arena;
    /* the engine */
    proa_fleet *fleet;   /* the replicas, which run the requests */
    proa_engine *engine; /* the first replica, for what is the same in all */
    proa_info info;      /* the same in all replicas */
    char folder[4096];
    bool decoupled;
    int64_t queue_max; /* requests that may wait */
    /* text */
    const proa_tokenizer *tokenizer; /* NULL: none */
    proa_token_bytes *token_bytes;   /* the bytes of each token; NULL without a tokenizer */
    int32_t end_id, pad_id;          /* of the model's folder; -1: none */
    proa_chat *chat;                 /* backend engine: the folder's chat template; NULL: none */
    proa_message_form form; /* how the model writes reasoning and tool calls: by its template, or as configured */
    /* encoders */
    const char *const *label; /* [labels] names of the outputs */
    int64_t labels;
    proa_llm_scores scores;
    bool plain_relevance; /* a cross-encoder whose output is the relevance itself, without a sigmoid */
    proa_sentence_modules modules;
    proa_gpu_stream gpu; /* where outputs stay on the GPU for the next step of an ensemble; else zeroed */
    pthread_mutex_t gpu_lock; /* guards its kernels, which all replicas share */
    /* contracts */
    bool exclude_input; /* tensorrtllm */
    int variant;        /* fastertransformer */
    /* guarded by the lock */
    pthread_mutex_t lock;
    proa_llm_request *live_requests;
    proa_reader readers[PROA_READERS];
    bool readers_stop;
    proa_token_counts in, out;
    /* for the rate of tokens in the live figures: the count at the last reading, its time, and the rate */
    uint64_t rate_tokens;
    int64_t rate_ns;
    double rate;
};

/* ---- model.c ---- */

/* Opens a version: *state is its proa_llm_model. */
proa_status proa_llm_model_open(void **state, proa_served_model *model, const proa_contract *contract,
                                proa_err *err);
void proa_llm_model_close(void *state);
bool proa_llm_ready(void *state, proa_err *reason); /* whether a replica takes requests */
/* Adapters of the engine (serve/backend.h). */
proa_status proa_llm_load_adapter(void *state, const char *name, const char *path, proa_err *err);
proa_status proa_llm_unload_adapter(void *state, const char *name, proa_err *err);
void proa_llm_adapters(void *state, proa_see_adapter_fn *see, void *arg);
bool proa_llm_has_adapter(const proa_llm_model *s, const char *name); /* whether one of that name is loaded */

/* ---- sentence.c ---- */

/* Reads s->modules and s->plain_relevance from the model's folder. */
PROA_MUST_CHECK proa_status proa_llm_read_sentence(proa_llm_model *s, const proa_json *config, proa_err *err);
/* Reads modules.json and the files that it names. hidden: the width of the model's states. A module that cannot be
 * computed is refused when an embedding is requested, since the model may be served for other tasks. Texts and weights
 * are in the arena. */
PROA_MUST_CHECK proa_status proa_sentence_modules_read(proa_sentence_modules *out, const proa_files *files,
                                                       int64_t hidden, proa_arena *arena, proa_err *err);

/* ---- metrics.c ---- */

void proa_llm_count_tokens(proa_llm_model *s, int64_t prompt_tokens, int64_t new_tokens); /* of a request that ended */
void proa_llm_metrics(void *state, const char *labels, proa_buf *out);
void proa_llm_metrics_trtllm(void *state, const char *labels, proa_buf *out);
void proa_llm_figures(void *state, proa_buf *out);

/* ---- readers.c ---- */

/* Prepares the readers, whose threads call read(); one starts when it is first needed. */
void proa_llm_readers_start(proa_llm_model *s, void (*read)(proa_llm_request *req));
void proa_llm_readers_stop(proa_llm_model *s); /* when no request is left */
/* Queues a request for the reader. False: its thread could not be started, so the caller reads the request. */
bool proa_llm_reader_take(proa_reader *r, proa_llm_request *req);

/* ---- place.c ---- */

void proa_llm_places_open(proa_llm_model *s); /* sets up s->gpu, if outputs may stay on the GPU */
void proa_llm_places_close(proa_llm_model *s);

#endif
