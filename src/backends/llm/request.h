/* SPDX-License-Identifier: Apache-2.0
 * request.h - a request on its way through the engine: its prompts, each a request of the engine, and the output state
 *             of each of their sequences. Private to src/backends.
 * Owner:   a request is in the arena of its proa_infer and ends with the final reply.
 * Threads: it is read on the caller's thread or a reader's; from submit on its prompts belong to the engine's thread.
 * Way in:  proa_llm_execute. */
#ifndef PROA_BACKENDS_LLM_REQUEST_H
#define PROA_BACKENDS_LLM_REQUEST_H

#include "backends/llm/llm.h"
#include "options/options.h"
#include "serve/generation_read.h"

/* ---- output ---- */

/* When a request is answered. */
typedef enum proa_delivery {
    PROA_DELIVER_ALL,      /* once, when all prompts are done: the contract's `end` */
    PROA_DELIVER_PROMPTS,  /* each prompt when it is done */
    PROA_DELIVER_TOKENS,   /* after each token: what is new */
    PROA_DELIVER_SNAPSHOTS /* after each token: the whole sequence so far */
} proa_delivery;

/* How much of a sequence earlier replies had. */
typedef enum proa_emitted { PROA_EMITTED_NOTHING, PROA_EMITTED_SOME, PROA_EMITTED_END } proa_emitted;

/* The output state of one sequence: what has not been emitted yet (streaming), or all of it. L tokens. */
typedef struct proa_llm_output {
    int32_t index;           /* which of n; of beams and best_of the rank */
    proa_ids ids;            /* [L], end token included */
    proa_buf text;           /* without stop strings and special tokens */
    proa_buf logprobs;       /* float [L], with options.logprobs */
    proa_buf top;            /* proa_logprob [L][top_logprobs] */
    proa_buf logits, hidden; /* float [L][vocab], [L][hidden] */
    double sum;              /* of the log-probabilities of all tokens so far */
    float score;
    int64_t tokens; /* so far, emitted ones included */
    proa_emitted emitted;
    proa_finish finish;           /* NONE while it runs */
    const char *stop;             /* the stop string of the options that ended it; NULL: none */
    proa_message_parser *parser;  /* with proa_prompt.split; NULL before the first text */
    struct proa_part_list *parts; /* where the parser puts the parts of the reply that is being made */
} proa_llm_output;

/* ---- prompts ---- */

/* Token ids that something else owns. */
typedef struct proa_id_list {
    const int32_t *ptr;
    int64_t len;
} proa_id_list;

/* One prompt: one request of the engine. P prompt tokens. */
typedef struct proa_prompt {
    proa_llm_request *req;
    const proa_generation *generation; /* what it is made of */
    int64_t row;                       /* of the batch */
    /* input */
    proa_request request;          /* the lists of its options are in the request's arena */
    proa_id_list ids, decoder_ids; /* what `request` points to: the generation's, or `tokens` */
    proa_ids tokens;               /* of a text or chat */
    proa_ids types;                /* token types of a text pair */
    int64_t start_tokens;          /* of the decoder's prompt, as the engine counts them; 0 for decoders */
    proa_str echo;                 /* text that precedes the text of each sequence; empty: none */
    proa_str decoded;              /* task DETOKENIZE: the text of the ids */
    /* messages of a chat */
    bool split;               /* texts are split into parts (reasoning, content, tool calls), by `setup` */
    proa_message_setup setup; /* of each sequence's parser */
    proa_str begun;           /* the beginning of a tool call, which the prompt already has */
    const char *call_grammar; /* the grammar of tool calls; NULL: none */
    /* progress */
    _Atomic uint64_t id;        /* the engine's; 0: not submitted yet */
    bool whole;                 /* sequences come complete, at the end: beams, best_of */
    proa_llm_output *output;    /* [output_count], known from the start unless whole */
    int32_t output_count, open; /* sequences; those that have not ended */
    proa_finish finish;         /* of the prompt; NONE while it runs */
    bool prompt_emitted;        /* an earlier reply had the outputs about the prompt */
    int32_t scoring;            /* further passes that have not ended */
    /* output about the prompt */
    proa_buf logprobs, top; /* of prompt tokens from the second on: float [P-1], proa_logprob [P-1][top] */
    bool wants_rows;        /* the logits of the prompt are wanted too: in `rows`, by a pass of their own */
    proa_buf rows, pooled;  /* float [..][columns] */
    int64_t columns;
    /* statistics */
    int64_t prompt_tokens, new_tokens;
    int64_t cached_tokens;                   /* of the prompt tokens, found in the prefix cache */
    int64_t drafted_tokens, accepted_tokens; /* draft tokens, and those that were right */
    double queue_s, prompt_s, decode_s;
    int64_t arrived_ns;
} proa_prompt;

/* ---- requests ---- */

/* The rows of an encoder that a reply is made of, and where they are. */
typedef enum proa_llm_place {
    PROA_LLM_PLACE_HOST,   /* any, in host memory */
    PROA_LLM_PLACE_HEAD,   /* those of the head, on the GPU */
    PROA_LLM_PLACE_POOLED, /* those of the pooler, on the GPU */
    PROA_LLM_PLACE_ROWS    /* all rows of a model without a head, on the GPU */
} proa_llm_place;

struct proa_llm_request {
    const proa_contract *contract;
    proa_llm_model *llm_model;
    proa_infer *infer;
    proa_arena arena;
    proa_generation *generations; /* [count]: the protocol's, or made of its tensors */
    proa_prompt *prompts;         /* [count] */
    int64_t count;
    proa_delivery delivery;
    bool running;             /* the first prompt is in a step; the engine's thread only */
    atomic_int pending;       /* prompts that have not ended */
    atomic_bool stop_quietly; /* a cancel ends it with its output so far, not with an error */
    atomic_bool made;         /* prompts and count do not change any more */
    atomic_bool cancel_requested, cancel_done, failed;
    proa_err err;        /* the first error */
    proa_buffer *rows;   /* [..][outputs] f32 on the GPU, which the engine writes (place.c); NULL: none */
    int64_t *rows_first; /* [count + 1] first row of each prompt; the last: number of rows */
    proa_llm_request *next, **link; /* in llm_model->live_requests */
    proa_llm_request *read_next;    /* in the queue of a reader */
    void *contract_data;            /* the contract's own */
};

/* ---- request.c ---- */

/* `execute` of all contracts: reads each request, submits it to the engine, and sends the replies. */
void proa_llm_execute(void *instance_state, proa_infer *const *requests, int count);
/* Reads a request and submits its prompts, or fails it; on the caller's thread or a reader's. */
void proa_llm_request_read(proa_llm_request *req);

/* ---- prompt.c: a typed generation becomes a request of the engine ---- */

/* Fills in p's ids, echo and request from p->generation; tokenises its text, renders its chat. INVALID, or UNSUPPORTED
 * if the model cannot do the task. */
PROA_MUST_CHECK proa_status proa_llm_make_prompt(proa_prompt *p, proa_err *err);
/* Whether a task needs the engine; the others are answered with the tokenizer. */
bool proa_llm_task_computes(proa_generation_task task);
/* The pooling of an embedding: what the generation says, or else the model. */
proa_pooling proa_llm_pooling(const proa_prompt *p);
/* Parses a client's JSON, which errors call `what`: INVALID, or LIMIT. Free *out with proa_json_free. */
PROA_MUST_CHECK proa_status proa_llm_parse_json(proa_json **out, proa_str text, const char *what, proa_err *err);

/* How the model writes messages: by the parameters or settings tool_parser and reasoning_parser, or its template. */
PROA_MUST_CHECK proa_status proa_llm_read_form(proa_llm_model *s, proa_err *err);
/* Sets p->split and the members after it for a chat and the text that its template rendered. If the reply must be a
 * tool call, *text ends with the beginning of one. */
PROA_MUST_CHECK proa_status proa_llm_prepare_message(proa_prompt *p, const proa_json *chat, proa_buf *text,
                                                     proa_err *err);
/* Splits the text that a sequence has now into parts, in the arena. At the end of the sequence also text that was held
 * back because more was needed to tell what it is. */
void proa_llm_split_text(proa_prompt *p, proa_llm_output *output, proa_generated_sequence *to, proa_arena *arena);

/* ---- place.c: outputs of an encoder that stay on its GPU ---- */

/* Allocates req->rows before the prompts are submitted, if the rows of the request may stay on the GPU. */
void proa_llm_places_take(proa_llm_request *req);
/* Computes the scores of req->rows, which are logits, on the GPU; *out is the caller's. */
PROA_MUST_CHECK proa_status proa_llm_places_scores(proa_llm_request *req, proa_buffer **out, proa_err *err);
/* Pools the rows of each prompt into one vector, likewise; unit: of length 1. */
PROA_MUST_CHECK proa_status proa_llm_places_pool(proa_llm_request *req, proa_pool_mode mode, bool unit,
                                                 proa_buffer **out, proa_err *err);

#endif
