/* SPDX-License-Identifier: Apache-2.0
 * generation.h - a text generation as typed values: what proa_infer.generation asks for, and what proa_reply.generated
 *                answers. Neither is printed and parsed on the way between a protocol and the engine.
 *
 * A model takes typed generations if its backend says so (proa_served_model_takes_generation). Such a request has no
 * tensors, no parameters and no requested outputs; its replies have no outputs. All other models, steps of ensembles
 * and calls of Python models get the same request as tensors, and answer with tensors. The backends of language models
 * read tensors into the same struct, one for each row of the batch, before they do anything else with them.
 *
 * Owner:   both structs and everything in them are in the arena of their request or reply, but for the tree of a chat,
 *          which the request frees, or its reader before that, and texts that tensors of the request hold. Texts of
 *          tokens belong to the model version, which the request holds.
 * Threads: written by one thread before the request is sent, or before the reply is; read only afterwards. */
#ifndef PROA_SERVE_GENERATION_H
#define PROA_SERVE_GENERATION_H

#include "base/json.h"
#include "proa/proa.h"

typedef enum proa_generation_task {
    PROA_GENERATION_TEXT,     /* new tokens */
    PROA_GENERATION_SCORE,    /* none: the log-probabilities of the prompt */
    PROA_GENERATION_ROWS,     /* the model's outputs at each position of the prompt */
    PROA_GENERATION_EMBED,    /* one vector */
    PROA_GENERATION_CLASSIFY, /* a score for each of the model's labels */
    PROA_GENERATION_ENCODE, /* the encoder's hidden states at each position of the prompt; has no typed reply */
    PROA_GENERATION_TOKENIZE,   /* nothing is computed: the token ids of the prompt */
    PROA_GENERATION_DETOKENIZE, /* nothing is computed: the text of the prompt's ids */
    PROA_GENERATION_DEFAULT /* the model's own: TEXT; of encoders CLASSIFY if they have labels, else EMBED */
} proa_generation_task;

/* Are the tokenizer's special tokens ("<s>", "[CLS]") added to a prompt? */
typedef enum proa_special {
    PROA_SPECIAL_DEFAULT, /* to a text, not to a chat: its template writes them */
    PROA_SPECIAL_ADD,
    PROA_SPECIAL_NONE
} proa_special;

/* Which vector is the embedding of a prompt. */
typedef enum proa_pooling {
    PROA_POOLING_DEFAULT, /* what the model's folder says, else LAST of a decoder, MEAN of most encoders */
    PROA_POOLING_MEAN,
    PROA_POOLING_CLS, /* the first position's */
    PROA_POOLING_POOLER,
    PROA_POOLING_LAST
} proa_pooling;

/* Which tools the answer to a chat may call. */
typedef enum proa_tool_choice {
    PROA_TOOL_CHOICE_NONE, /* no tools are given */
    PROA_TOOL_CHOICE_AUTO,
    PROA_TOOL_CHOICE_REQUIRED, /* any, and at least one */
    PROA_TOOL_CHOICE_NAMED     /* `tool` */
} proa_tool_choice;

/* How the text of a chat becomes a message. */
typedef struct proa_message_options {
    bool split; /* into content, reasoning and tool calls, if the model has forms of them */
    bool hide_reasoning, one_call;
    proa_tool_choice choice;
    proa_str tool;
} proa_message_options;

typedef struct proa_generation {
    proa_generation_task task;
    bool stream;          /* a reply for each token; else one reply */
    bool echo;            /* the prompt precedes the text of each sequence */
    bool normalize;       /* EMBED: the vector gets length 1 */
    bool prompt_logits;   /* TEXT: the logits of the prompt too */
    proa_pooling pooling; /* EMBED */
    proa_special special; /* of a text or chat */
    /* The prompt, one of: */
    proa_str text; /* NULL ptr: none */
    const int32_t *ids;
    int64_t ids_count;
    proa_str text_pair;      /* with text: a second one of an encoder's input; NULL ptr: none */
    const int32_t *type_ids; /* with ids: [type_ids_count == ids_count] their token types; NULL: all 0 */
    int64_t type_ids_count;
    proa_json *chat; /* an object: messages, tools, documents, ...: the variables of the model's template */
    proa_message_options message; /* with a chat */
    proa_str chat_text;    /* the same as JSON, of a chat whose tree is too large to wait; NULL ptr: none */
    const float *embedded; /* ENCODE: [ids_count][hidden] input embeddings in place of ids; NULL: none */
    const float *prompt_table; /* [prompt_table_rows][embedding]: proa_request.prompt_table; NULL: none */
    int64_t prompt_table_rows;
    const char *cache_salt;            /* of proa_request; NULL: none */
    const char *session;               /* of proa_request.session_id, from a sequence id; NULL: none */
    bool session_starts, session_ends; /* without starts it must exist */
    const int32_t *decoder_ids; /* of an encoder-decoder, start token included; NULL: the model's start token */
    int64_t decoder_ids_count;

    /* Its settings or options could not be read: the model answers with this, and counts it as a request that failed.
     * NULL: they could. */
    const proa_err *refused;
    size_t prompt_bytes;  /* about: long ones are read by a thread of their own */
    proa_options options; /* each in its range; not yet checked against the model */
} proa_generation;

/* Log-probabilities of consecutive tokens; `tops` alternatives for each, most likely first. */
typedef struct proa_generated_tokens {
    int64_t count, tops;
    const int32_t *ids;    /* [count] */
    const float *logprobs; /* [count]; NaN: the first token of a prompt has none */
    const proa_str *texts; /* [count]; the bytes of a token need not be whole characters; NULL: no tokenizer */
    const int32_t *top_ids;    /* [count * tops], or NULL; -1: none, of the first token of a prompt */
    const float *top_logprobs; /* the same; NaN: none */
    const proa_str *top_texts; /* the same; NULL also without a tokenizer */
} proa_generated_tokens;

/* A part of a message, in the order of the text. */
typedef enum proa_part_kind {
    PROA_PART_CONTENT,   /* text */
    PROA_PART_REASONING, /* text */
    PROA_PART_CALL,      /* a tool call begins: the function's name and an id */
    PROA_PART_ARGUMENTS, /* text: what is added to the call's JSON */
    PROA_PART_CALL_END
} proa_part_kind;

typedef struct proa_generated_part {
    proa_part_kind kind;
    int32_t call;   /* of calls: from 0 in each sequence */
    proa_str text;  /* of a call that begins: the function's name */
    const char *id; /* of a call that begins */
} proa_generated_part;

/* What a reply adds to one sequence; a reply that does not stream has all of it. */
typedef struct proa_generated_sequence {
    int32_t index;                    /* which of n */
    proa_finish finish;               /* NONE: it runs */
    proa_str text;                    /* whole characters; may be empty */
    const proa_generated_part *parts; /* [parts_count] of the text, if `split` */
    int64_t parts_count;
    const char *stop; /* with STOP: the stop string that came, of the generation's options; NULL: not known */
    int64_t tokens;   /* of the sequence so far; negative: not known */
    const int32_t *ids; /* [ids_count] of this reply; not set in replies that were made of tensors */
    int64_t ids_count;
    float sum;                   /* of log-probabilities so far, with `sums` */
    float score;                 /* with `scores` */
    proa_generated_tokens added; /* count 0: no log-probabilities were wanted */
    const float *logits;         /* [ids_count][logits_columns], or NULL */
    const float *hidden;         /* [ids_count][hidden_columns], or NULL */
} proa_generated_sequence;

/* CLASSIFY: [count] labels of the model with their logits and scores. */
typedef struct proa_generated_classes {
    int64_t count, best;
    const float *logits, *scores;
    const char *const *labels;
    float relevance; /* of a pair of texts, of a cross-encoder: a head with one output. NaN: it has more */
} proa_generated_classes;

typedef struct proa_generated {
    const proa_generated_sequence *sequences;
    int64_t count;
    int64_t prompt_tokens;                   /* negative: not known */
    int64_t cached_tokens;                   /* of these, found in the prefix cache; in the last reply */
    int64_t drafted_tokens, accepted_tokens; /* draft tokens, those that were right; in the last reply */
    proa_generation_task task;
    int32_t pad_id;              /* fills ids of shorter sequences, where a protocol sends a rectangle */
    bool no_texts;               /* the model has no tokenizer: texts are empty */
    bool split;                  /* texts are in parts too */
    bool logprobs, sums, scores; /* of all sequences */
    int64_t tops;                /* alternatives of each token of all sequences; 0: none */
    int64_t logits_columns, hidden_columns; /* 0: not wanted */
    const proa_generated_tokens *prompt;    /* NULL: not wanted, or in an earlier reply */
    const float *embedding;                 /* EMBED: [embedding_count]; NULL: none */
    int64_t embedding_count;
    const float *rows; /* ROWS: [rows_count][rows_columns] */
    int64_t rows_count, rows_columns;
    const proa_generated_classes *classes; /* CLASSIFY */
    const int32_t *ids;                    /* TOKENIZE: [ids_count] */
    const proa_str *pieces; /* TOKENIZE: [ids_count] as the vocabulary has them; NULL: no tokenizer */
    int64_t ids_count;
    proa_str text;   /* DETOKENIZE */
    int64_t context; /* TOKENIZE: the most tokens that the model takes, prompt and answer together */
} proa_generated;

#endif
