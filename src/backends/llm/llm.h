/* SPDX-License-Identifier: Apache-2.0
 * llm.h - what the engine's contracts (engine, fastertransformer, tensorrtllm) share: a loaded model, a request on
 * its way through the engine, and the state of its sequences. Private to src/backends.
 * Owner:   a model belongs to its version; a request is in the arena of its proa_infer and ends with the final reply.
 * Threads: `read` runs on the caller's thread or a reader's, `emit` and `end` on the engine's; a model does not
 *          change after open, except for what `lock` guards.
 * Way in:  proa_llm_model_open, proa_llm_execute. */
#ifndef PROA_BACKENDS_LLM_LLM_H
#define PROA_BACKENDS_LLM_LLM_H

#include "backends/gpu/gpu.h"
#include "text/token_bytes.h"
#include "options/options.h"
#include "engine/access.h"
#include "engine/dense.h"
#include "engine/fleet/fleet.h"
#include "serve/backend.h"
#include "serve/config/config.h"
#include "serve/generation_read.h"
#include "text/template.h"
#include <pthread.h>

typedef struct proa_llm_model proa_llm_model;
typedef struct proa_llm_request proa_llm_request;

/* How much of a sequence earlier replies had. */
typedef enum proa_emitted { PROA_EMITTED_NOTHING, PROA_EMITTED_SOME, PROA_EMITTED_END } proa_emitted;

/* A dense layer behind the pooling, and the one behind it. */
typedef struct proa_sentence_dense {
    proa_dense layer;
    struct proa_sentence_dense *next;
} proa_sentence_dense;

/* What modules.json and 1_Pooling/config.json of a sentence-transformers folder say about embeddings. */
typedef struct proa_sentence_modules {
    proa_pooling pooling;       /* DEFAULT: nothing */
    proa_sentence_dense *dense; /* the first one; NULL: none */
    int64_t width;              /* of the last one; 0: there is none */
    bool normalize;
    const char *refused; /* why the folder's own embedding cannot be computed; NULL: it can */
} proa_sentence_modules;

/* When a request is answered. */
typedef enum proa_delivery {
    PROA_DELIVER_ALL,      /* once, when all prompts are done: the contract's `end` */
    PROA_DELIVER_PROMPTS,  /* each prompt when it is done */
    PROA_DELIVER_TOKENS,   /* each token: what is new */
    PROA_DELIVER_SNAPSHOTS /* each token: the whole sequence so far */
} proa_delivery;

/* The output state of one sequence: what was not emitted yet (streaming), or all of it. */
typedef struct proa_llm_output {
    int32_t index;           /* which of n; of beams and best_of the rank */
    proa_ids ids;            /* L tokens, end token included */
    proa_buf text;           /* without stop strings and special tokens */
    proa_buf logprobs;       /* float [L], with options.logprobs */
    proa_buf top;            /* proa_logprob [L][top_logprobs] */
    proa_buf logits, hidden; /* float [L][vocab], [L][hidden] */
    double sum;              /* of log-probabilities, of all tokens so far */
    float score;
    int64_t tokens; /* so far, emitted ones included */
    proa_emitted emitted;
    proa_finish finish;           /* NONE while it runs */
    const char *stop;             /* the stop string that ended it, of the request's options; NULL: none */
    proa_message_parser *parser;  /* with split; NULL before its first text */
    struct proa_part_list *parts; /* where the parser's events go, of the reply under way */
} proa_llm_output;

/* Token ids that something else owns. */
typedef struct proa_id_list {
    const int32_t *ptr;
    int64_t len;
} proa_id_list;

/* One prompt: one request of the engine. */
typedef struct proa_prompt {
    proa_llm_request *req;
    const proa_generation *generation; /* what it is made of */
    int64_t row;                       /* of the batch */
    proa_request request;              /* the lists of its options are in the request's arena */
    proa_id_list ids, decoder_ids;     /* what `request` points to: the generation's, or `tokens` */
    proa_ids tokens;                   /* of a text or chat */
    proa_ids types;                    /* of the tokens of a text pair */
    int64_t start_tokens;       /* of the decoder's prompt, as the engine counts them; 0 for decoders */
    proa_str echo;              /* text that precedes each sequence's; empty: none */
    proa_str decoded;           /* DETOKENIZE: the text of its ids */
    bool split;                 /* texts are split into parts: by `setup` */
    proa_message_setup setup;   /* of each sequence's parser */
    proa_str begun;             /* the text that the prompt has of the message: the beginning of a call */
    const char *call_grammar;   /* that tool calls are held to; NULL: none */
    _Atomic uint64_t id;        /* the engine's; 0: not yet submitted */
    bool whole;                 /* sequences come whole, at the end: beams, best_of */
    proa_llm_output *output;    /* [output_count], known from the start unless whole */
    int32_t output_count, open; /* sequences; those that have not ended */
    proa_buf logprobs, top; /* of prompt tokens from the second on: float [P-1], proa_logprob [P-1][top] */
    bool wants_rows;        /* the prompt's logits too: in rows, by a pass of their own */
    proa_buf rows, pooled;  /* float [..][columns] */
    int64_t columns;
    int64_t prompt_tokens, new_tokens;
    int64_t cached_tokens;                   /* of prompt_tokens, found in the prefix cache */
    int64_t drafted_tokens, accepted_tokens; /* draft tokens, those that were right */
    proa_finish finish;                      /* of the whole; NONE while it runs */
    bool prompt_emitted;                     /* an earlier reply had the outputs about the prompt */
    int32_t scoring;                         /* further passes that have not ended */
    double queue_s, prompt_s, decode_s;
    int64_t arrived_ns;
} proa_prompt;

/* Where the rows of an encoder go that a reply is made of. */
typedef enum proa_llm_place {
    PROA_LLM_PLACE_HOST,
    PROA_LLM_PLACE_HEAD,   /* the head's stay on the GPU, */
    PROA_LLM_PLACE_POOLED, /* or those of the pooler, */
    PROA_LLM_PLACE_ROWS    /* or all rows of a model without a head */
} proa_llm_place;

/* A contract: how tensors become typed generations, and outputs become replies. */
typedef struct proa_contract {
    proa_status (*open)(proa_llm_model *s, proa_err *err); /* its own settings; NULL: none */
    /* Reads a request that consists of tensors: makes its generations (proa_llm_add_generations) and fills them in. */
    proa_status (*read)(proa_llm_request *req, proa_err *err);
    /* Refuses a generation, typed or read, whose options exclude each other or that the model does not support. NULL:
     * nothing to check. */
    proa_status (*check)(const proa_llm_request *req, const proa_generation *g, proa_err *err);
    /* For an encoder whose reply may stay on a GPU: the rows that `end` takes from there. NULL: none. */
    proa_llm_place (*places)(const proa_llm_request *req);
    bool bundles_beams; /* the beams of a prompt come in one reply */
    /* For all deliveries but ALL: these `count` sequences, one unless beams are bundled, have news. Afterwards they are
     * cleared, but for SNAPSHOTS. */
    void (*emit)(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
    void (*end)(proa_llm_request *req); /* all prompts are done: the one and final reply */
} proa_contract;

struct proa_llm_request {
    const proa_contract *contract;
    proa_llm_model *llm_model;
    proa_infer *infer;
    proa_arena arena;
    proa_generation *generations; /* [count]: the protocol's, or made of its tensors */
    proa_prompt *prompts;         /* [count] */
    int64_t count;
    proa_delivery delivery;
    bool running;             /* its first prompt is in a step; the engine's thread only */
    atomic_int pending;       /* prompts */
    atomic_bool stop_quietly; /* a cancel ends it with its output so far, not with an error */
    atomic_bool made;         /* prompts and count do not change any more */
    atomic_bool cancel_requested, cancel_done, failed;
    proa_err err;
    proa_buffer *rows; /* [..][outputs] f32 on the model's GPU, which the engine writes (place.c); NULL: none */
    int64_t *rows_first;            /* [count + 1] where those of each prompt begin; the last: their number */
    proa_llm_request *next, **link; /* in llm_model->live_requests */
    proa_llm_request *read_next;    /* of its reader */
    void *contract_data;            /* the contract's own */
};

typedef struct proa_token_counts { /* of token counts: 10, 50, 100, 500, 1000, more */
    uint64_t bucket[6], count, sum;
} proa_token_counts;

/* Threads that read what takes too long for a loop: chats, whose templates may take as long as they like to, and long
 * texts, behind which a chat of a line must not wait. */
enum { PROA_READER_CHATS, PROA_READER_LONG, PROA_READERS };
typedef struct proa_reader {
    proa_llm_model *llm_model;
    proa_llm_request *first, **last; /* under llm_model->lock, like all members */
    pthread_cond_t arrived;
    pthread_t thread;
    bool runs, used; /* used: since the memory was last trimmed */
} proa_reader;

struct proa_llm_model {
    const proa_contract *contract;
    const proa_served_model *model;
    proa_arena arena;
    proa_fleet *fleet;               /* its replicas, which run the requests */
    proa_engine *engine;             /* the first of them, for what is the same in all */
    proa_info info;                  /* of each */
    const proa_tokenizer *tokenizer; /* NULL: none */
    proa_token_bytes *token_bytes;   /* the bytes of each token; NULL without a tokenizer */
    char folder[4096];
    bool decoupled;
    int64_t queue_max;        /* waiting requests */
    int32_t sequences_max;    /* running ones */
    int32_t end_id, pad_id;   /* of the model's folder; -1: none */
    const char *const *label; /* names of an encoder's outputs, [labels] */
    int64_t labels;
    enum { PROA_SCORES_SOFTMAX, PROA_SCORES_SIGMOID, PROA_SCORES_PLAIN } scores;
    bool plain_relevance; /* of a cross-encoder: its output is the relevance as it is, without a sigmoid */
    proa_sentence_modules modules;
    proa_chat *chat;          /* engine: the folder's chat template; NULL: none */
    proa_message_form form;   /* of the model's messages: by its template, or as configured */
    bool exclude_input;       /* tensorrtllm */
    int variant;              /* fastertransformer */
    proa_gpu_stream gpu;      /* of an encoder whose outputs may stay on its GPU; else zeroed */
    pthread_mutex_t gpu_lock; /* guards its kernels: replicas share it */
    pthread_mutex_t lock;
    proa_llm_request *live_requests;
    proa_reader readers[PROA_READERS];
    bool readers_stop;
    proa_token_counts in, out;
    uint64_t rate_tokens; /* of the live figures: since when, and the count then */
    int64_t rate_ns;
    double rate;
};

/* ---- model.c ---- */
proa_status proa_llm_model_open(void **state, proa_served_model *model, const proa_contract *contract,
                                proa_err *err);
void proa_llm_model_close(void *state);
bool proa_llm_ready(void *state, proa_err *reason); /* whether a replica takes requests */
/* Instances share the model's state. */
proa_status proa_llm_instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err);
void proa_llm_instance_close(void *state);
/* The model's own parameter, or what the command line says for its backend; NULL: neither. */
const char *proa_llm_setting(const proa_served_model *model, const char *key);
/* A boolean parameter of the configuration: true, false, 1, 0, yes, no...; INVALID otherwise. */
proa_status proa_llm_parameter_flag(bool *out, const proa_served_model *model, const char *key, proa_err *err);
/* The folder that the configuration names by one of these keys, or the version's or the model's own. */
proa_status proa_llm_folder(char out[4096], const proa_served_model *model, const char *const *keys,
                            proa_err *err);

/* ---- sentence.c ---- */
/* Reads s->modules and s->plain_relevance from the model's folder. What it cannot compute is refused when an embedding
 * is requested: the model may still be served for other tasks. */
PROA_MUST_CHECK proa_status proa_llm_read_sentence(proa_llm_model *s, const proa_json *config, proa_err *err);

/* ---- metrics.c ---- */
void proa_llm_count_tokens(proa_llm_model *s, int64_t prompt_tokens, int64_t new_tokens);
void proa_llm_metrics(void *state, const char *labels, proa_buf *out);
void proa_llm_figures(void *state, proa_buf *out);
/* Adapters of the engine (serve/backend.h). */
proa_status proa_llm_load_adapter(void *state, const char *name, const char *path, proa_err *err);
proa_status proa_llm_unload_adapter(void *state, const char *name, proa_err *err);
void proa_llm_adapters(void *state, proa_see_adapter_fn *see, void *arg);
bool proa_llm_has_adapter(const proa_llm_model *s, const char *name); /* whether one of that name is loaded */
void proa_llm_metrics_trtllm(void *state, const char *labels, proa_buf *out);

/* What the backends of this folder have in common in their tables (proa_backend). They differ in the contract that
 * their model_open takes, in the completed configuration and in metrics. */
#define PROA_LLM_BACKEND_CALLS                                                                               \
    .model_close = proa_llm_model_close, .instance_open = proa_llm_instance_open,                            \
    .instance_close = proa_llm_instance_close, .execute = proa_llm_execute, .ready = proa_llm_ready,         \
    .figures = proa_llm_figures, .load_adapter = proa_llm_load_adapter,                                      \
    .unload_adapter = proa_llm_unload_adapter, .adapters = proa_llm_adapters

/* ---- request.c ---- */
/* A backend's `execute`, of all contracts: reads each request, submits it to the engine, and sees to the replies. */
void proa_llm_execute(void *instance_state, proa_infer *const *requests, int count);
/* `read` makes its generations, zeroed: one for each row of the batch. */
proa_generation *proa_llm_add_generations(proa_llm_request *req, int64_t count);
/* Reads a request and submits its prompts, or fails it; on the caller's thread or a reader's. */
void proa_llm_request_read(proa_llm_request *req);
/* Cancels the other live calls of requests with this call's id; they end with what they have generated. Returns how
 * many. */
int proa_llm_stop_others(const proa_llm_request *self);
/* Sends a reply; with `final` the call is over and must not be touched. */
void proa_llm_reply(proa_llm_request *req, proa_reply *reply, bool final);
/* Tokens without the end token that ended them. */
int64_t proa_llm_visible_tokens(const proa_llm_output *output);

/* ---- place.c ---- */
void proa_llm_places_open(proa_llm_model *s);
void proa_llm_places_close(proa_llm_model *s);
/* Before its prompts are submitted: the rows of a request that may stay on the GPU get their places there. */
void proa_llm_places_take(proa_llm_request *req);
/* The scores that belong to req->rows, which are logits, on the GPU; *out is the caller's. */
PROA_MUST_CHECK proa_status proa_llm_places_scores(proa_llm_request *req, proa_buffer **out, proa_err *err);
/* One vector of each prompt's rows, likewise; unit: of length 1. */
PROA_MUST_CHECK proa_status proa_llm_places_pool(proa_llm_request *req, proa_pool_mode mode, bool unit,
                                                 proa_buffer **out, proa_err *err);

/* ---- readers.c ---- */
void proa_llm_readers_start(proa_llm_model *s); /* makes the readers, whose threads start when they are needed */
/* Stops the readers; no call is left. */
void proa_llm_readers_stop(proa_llm_model *s);
/* Queues a request for the reader. False if its thread could not be started: then the caller reads the request. */
bool proa_llm_reader_take(proa_reader *r, proa_llm_request *req);

/* ---- prompt.c: a typed generation becomes a request of the engine ---- */

/* Fills in p's ids, echo and request from p->generation; tokenises its text, renders its chat. INVALID, UNSUPPORTED if
 * the model cannot do the task. */
PROA_MUST_CHECK proa_status proa_llm_make_prompt(proa_prompt *p, proa_err *err);
/* Does this task need the engine? The others are answered from the tokenizer. */
bool proa_llm_task_computes(proa_generation_task task);
/* The pooling of an embedding, where the generation leaves it to the model. */
proa_pooling proa_llm_pooling(const proa_prompt *p);
/* A client's JSON: what is wrong with it is INVALID, or LIMIT. */
PROA_MUST_CHECK proa_status proa_llm_parse_json(proa_json **out, proa_str text, const char *what, proa_err *err);

/* ---- prompt.c: the texts of a chat as messages ---- */

/* The form of the model's messages: parameters tool_parser and reasoning_parser, or settings, or by its template. */
PROA_MUST_CHECK proa_status proa_llm_read_form(proa_llm_model *s, proa_err *err);
/* Sets p->split and what goes with it, by the chat and the text that its template made of it; a call that must come is
 * begun at the end of *text. */
PROA_MUST_CHECK proa_status proa_llm_prepare_message(proa_prompt *p, const proa_json *chat, proa_buf *text,
                                                     proa_err *err);
/* The parts of the text that a sequence has now; in the arena. At its end also what was held back. */
void proa_llm_split_text(proa_prompt *p, proa_llm_output *output, proa_generated_sequence *to, proa_arena *arena);

/* ---- tensor_read.c: numbers, texts and options from tensors and parameters ---- */

/* Element i as a number; false if there is none or it is no number. Unsigned 32-bit ones from 2^31 on are negative. */
bool proa_element_int(const proa_tensor *t, int64_t i, int64_t *out);
bool proa_element_double(const proa_tensor *t, int64_t i, double *out);
int64_t proa_tensor_count(const proa_tensor *t);
/* Element `row` of an input with one number for each row of the batch, or one for all. False: not there. */
bool proa_input_int(const proa_infer *r, const char *name, int64_t row, int64_t *out);
bool proa_input_bool(const proa_infer *r, const char *name, int64_t row, bool *out);
/* The only string of an input; NULL ptr: not there. */
proa_str proa_input_text(const proa_infer *r, const char *name);
/* What a tensor holds for one row of a batch of `rows` requests. */
typedef struct proa_tensor_row {
    const proa_tensor *t;
    int64_t row, rows;
} proa_tensor_row;
/* Its numbers as token ids, in the arena. */
proa_status proa_input_ids(proa_tensor_row in, proa_arena *arena, const int32_t **ids, int64_t *count,
                           proa_err *err);
/* Of a tensor [..., count, width] of floats its vectors as f32, in the arena. */
proa_status proa_input_vectors(proa_tensor_row in, int64_t width, proa_arena *arena, const float **values,
                               int64_t *count, proa_err *err);
/* Its value of an option. An empty tensor leaves the option as it is. */
proa_status proa_option_read(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                             proa_arena *arena, proa_err *err);
/* UNSUPPORTED if an input of these names (NULL-terminated) is there and not empty. */
proa_status proa_refuse_inputs(const proa_infer *r, const char *const *names, proa_err *err);

/* ---- config.c: configurations that say nothing of tensors ---- */
typedef struct proa_io_row {
    const char *name;
    Inference__DataType type;
    int rank;
    int64_t dims[4];
    unsigned flags; /* PROA_IO_* */
} proa_io_row;
enum { PROA_IO_OPTIONAL = 1, PROA_IO_SCALAR = 2 /* reshape [] */, PROA_IO_RAGGED = 4 };
/* Adds rows up to one without a name. */
void proa_config_inputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena);
void proa_config_outputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena);
void proa_config_decoupled(Inference__ModelConfig *c, bool decoupled, proa_arena *arena);
proa_type proa_config_output_type(const Inference__ModelConfig *c, const char *name); /* INVALID: no such output */

#endif
