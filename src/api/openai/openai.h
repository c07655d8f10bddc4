/* SPDX-License-Identifier: Apache-2.0
 * openai.h - OpenAI's API: a job, from the body of an HTTP request to requests of inference and back.
 * Owner:   a job is made for an exchange and frees itself when it was answered (or its client has gone) and the last of
 *          its requests of inference has ended.
 * Threads: the loop of the exchange.
 * Way in:  proa_openai (openai.c), then job.c, read.c, infer.c, reply.c, write.c. */
#ifndef PROA_API_OPENAI_OPENAI_H
#define PROA_API_OPENAI_OPENAI_H

#include "api/frontend.h"
#include "base/json.h"
#include "base/limits.h"
#include "options/options.h"
#include "serve/generation.h"

/* ---- errors in OpenAI's form: error.c ---- */

typedef struct proa_oai_error {
    int status;        /* of HTTP */
    const char *type;  /* "invalid_request_error" */
    const char *param; /* the member of the body that is wrong, or NULL */
    const char *code;  /* "model_not_found", or NULL */
    uint64_t whole;    /* of a proa_err: its whole text */
    char text[500];
} proa_oai_error;

/* 400 invalid_request_error; always false, so that a check can return it. */
bool proa_oai_bad(proa_oai_error *e, const char *param, const char *fmt, ...) PROA_PRINTF(3, 4);
/* What a failure of the server core is in OpenAI's terms. */
void proa_oai_error_of(proa_oai_error *e, const proa_err *err);
/* {"error":{"message","type","param","code"}} */
void proa_oai_error_json(proa_buf *out, const proa_oai_error *e);

/* ---- jobs ---- */

typedef enum proa_oai_kind {
    PROA_OAI_COMPLETION,
    PROA_OAI_CHAT,
    PROA_OAI_EMBEDDING,
    PROA_OAI_RESPONSE, /* OpenAI's responses: api/responses */
    PROA_OAI_MESSAGE,  /* Anthropic's: api/anthropic */
    PROA_OAI_COUNT,    /* its count_tokens */
    PROA_OAI_RERANK,
    PROA_OAI_SCORE,
    PROA_OAI_TOKENIZE,
    PROA_OAI_DETOKENIZE,
    PROA_OAI_KINDS
} proa_oai_kind;

struct proa_oai;

/* A part of an answer that is a list of items (parts.c): reasoning, a text, or a tool call. */
typedef struct proa_oai_item {
    proa_part_kind kind; /* REASONING, CONTENT or CALL */
    int32_t index;       /* in the answer */
    const char *call_id; /* of a call; else NULL */
    proa_str name;       /* of the function that is called */
    proa_buf text;       /* so far: the text, or the arguments as JSON */
    proa_buf logprobs;   /* of its tokens as JSON, without the brackets */
    bool ended;
} proa_oai_item;

/* What is different between the operations: one row for each kind (forms.c). */
typedef struct proa_oai_form {
    const char *id;        /* what ids of its answers begin with */
    const char *what;      /* for errors: "does not do embeddings" */
    const char *operation; /* in traces: gen_ai.operation.name; NULL: none */
    bool chat;             /* the prompt is a list of messages */
    bool choices;          /* it generates: there are choices, and it may stream */
    bool typed;            /* only models that take typed generations do it */
    /* The body, whose model is found: options, task and prompts. False with job->error. */
    bool (*read)(struct proa_oai *job);
    /* A stream: what choice `index` has that was not sent; and what follows the last choice. */
    void (*write_chunk)(struct proa_oai *job, int32_t index);
    void (*end_stream)(struct proa_oai *job);
    /* For answers that are a list of items; NULL otherwise. They write to job->out: begin_stream what precedes the
     * items, begin_item and end_item the ends of one, grow_item the text and log-probabilities that are new in it. */
    void (*begin_stream)(struct proa_oai *job);
    void (*begin_item)(struct proa_oai *job, const proa_oai_item *item);
    void (*grow_item)(struct proa_oai *job, const proa_oai_item *item, proa_str text, proa_str logprobs);
    void (*end_item)(struct proa_oai *job, const proa_oai_item *item);
    /* Not a stream: the whole answer. False with job->error. */
    bool (*put_answer)(struct proa_oai *job, proa_buf *out);
    void (*put_error)(proa_buf *out, const proa_oai_error *e);
    void (*put_failure)(struct proa_oai *job); /* the error as the last event of a stream, into job->out */
} proa_oai_form;
extern const proa_oai_form proa_oai_forms[PROA_OAI_KINDS];
void proa_oai_fail(proa_http_exchange *x, const proa_oai_form *form, const proa_oai_error *e); /* error.c */

/* The inputs that the model takes. */
typedef enum proa_oai_contract {
    PROA_OAI_NATIVE, /* src/backends/README.md: a text, ids or messages, and everything else in `options` */
    PROA_OAI_TEXT /* any model with text_input and text_output; numbers in inputs of their names where it has them */
} proa_oai_contract;

typedef struct proa_oai_params { /* of generation; has_*: the client gave it */
    int64_t max_tokens;          /* 0: until the end */
    double temperature, top_p, presence, frequency;
    int64_t n, best_of, seed, top_logprobs;
    bool has_max, has_top_p, has_presence, has_frequency, seeded;
    bool all_top_k;             /* top_k -1, by which vLLM's clients mean all tokens */
    bool logprobs, echo, score; /* score: no new token is wanted, only the prompt's log-probabilities */
    bool base64;                /* embeddings */
    int64_t dimensions;         /* 0: not given */
    proa_pooling pooling;       /* of vectors */
    proa_special special;
    bool plain_vectors;    /* not normalised */
    bool pieces;           /* tokenize: the tokens as texts too */
    int64_t top_n;         /* rerank */
    bool documents;        /* rerank: the results have them */
    bool cohere;           /* rerank: the form of Cohere's second version */
    const proa_json *stop; /* in the body's document */
    const char *cache_salt;
} proa_oai_params;

typedef struct proa_oai_choice { /* one sequence that the client gets */
    proa_buf text;               /* what came since it was last written */
    proa_buf reasoning;          /* the same of its reasoning */
    proa_buf calls;     /* tool calls as JSON, without the brackets: deltas of a stream, or whole ones */
    proa_buf arguments; /* of the call under way, where calls are written whole */
    bool called, split; /* it has a tool call; its text came in parts */
    proa_buf tokens, values, tops, offsets; /* log-probabilities as JSON, without the brackets; chat: tokens only */
    const char *finish;                     /* "stop", "length"; NULL: it runs */
    const char *stop;                       /* the stop string that ended it; NULL: none, or not known */
    int64_t count;                          /* tokens so far */
    int64_t characters;                     /* written so far, for text_offset */
    bool begun, end_sent;                   /* its first chunk was sent; its last one */
} proa_oai_choice;

typedef struct proa_oai_input { /* one prompt, in the body's document: a text or ids */
    const proa_json *prompt;
    const proa_json *pair; /* the second text of a pair; NULL: none */
} proa_oai_input;

typedef struct proa_oai_prompt { /* one request of inference */
    proa_sink sink;              /* first */
    struct proa_oai *job;
    bool live;
    int64_t tokens;            /* of the prompt */
    int64_t cached;            /* of these, found in the prefix cache */
    int64_t drafted, accepted; /* draft tokens, those that were right */
    proa_str text;             /* for echo without new tokens; NULL ptr: ids were given */
    proa_oai_choice echoed;    /* the log-probabilities of the prompt, for echo */
    float *vector;             /* embeddings: in the job's arena */
    int64_t width;
    float relevance; /* of a cross-encoder */
} proa_oai_prompt;

typedef struct proa_oai {
    proa_api *api;
    proa_http_exchange *x; /* NULL: answered, or the client has gone */
    proa_arena arena;
    proa_oai_kind kind;
    const proa_oai_form *form;
    proa_generation_task task;
    proa_oai_contract contract;
    proa_served_model *model; /* held */
    const char *client;       /* of proa_infer; NULL: not known */
    proa_str name;            /* of the model or an adapter of it, as the client wrote it */
    const char *adapter;      /* NULL: the model itself */
    proa_oai_params params;
    const char *id;
    bool stream, usage; /* usage: the last chunk reports it */
    bool sending;       /* the head of the stream was sent */
    bool failed;
    proa_oai_error error;
    const proa_oai_input *inputs;     /* [prompts_count], while the body is there; NULL: a chat */
    int32_t first_count, pairs_count; /* rerank, score: texts before the second ones; scores */
    const proa_str *documents;        /* rerank: [pairs_count], to be returned */
    proa_oai_prompt *prompts;
    int32_t prompts_count, live; /* live: requests that run, and 1 while they are sent */
    proa_oai_choice *choices;    /* n for each prompt */
    int32_t choices_count;
    proa_json *body;              /* until the requests are sent, or until `chat` is made of it */
    size_t body_bytes;            /* of its text, decompressed */
    bool typed;                   /* the model takes typed generations */
    proa_options options;         /* typed */
    proa_str options_text;        /* else: JSON */
    proa_message_options message; /* of a chat */
    bool hide_tools;              /* tool_choice is none: the template does not see the tools */
    proa_json *chat;              /* what the template sees; NULL: chat_text */
    size_t chat_bytes;            /* of its text */
    proa_str chat_text;
    proa_str head; /* of each chunk: up to "choices":[ */
    /* of a response: */
    int64_t created, events; /* unix seconds; events of the stream so far */
    proa_str shown;          /* the members of the request that the answer repeats, as JSON */
    bool store;              /* it is kept when it is complete, for its owner, with `history`: */
    uint64_t owner;          /* the hash of the API key */
    proa_str history;        /* the list of messages up to the answer, as JSON */
    proa_oai_item *items;    /* [items_count] of a form that has them, in the arena */
    int32_t items_count, items_room;
    proa_buf out;
} proa_oai;

/* form: the row of that kind */
proa_oai *proa_oai_new(proa_api *api, proa_http_exchange *x, proa_oai_kind kind, const proa_oai_form *form);
void proa_oai_choice_init(proa_oai_choice *c);
/* grammar.c: response_format and vLLM's guided_... and structured_outputs are checked; which option of ours they set,
 * and from which value (NULL: a switch that is on). NULL: none. */
bool proa_oai_check_format(proa_oai *job);
const proa_option_row *proa_oai_grammar(const proa_oai *job, const proa_json **value);
void proa_oai_release(proa_oai *job); /* frees it if nothing runs and it was answered */
/* Ends it with job->error: as the answer, or as the stream's last words. Running requests are cancelled. */
void proa_oai_give_up(proa_oai *job);
void proa_oai_cancel(proa_oai *job);
uint64_t proa_oai_random(void); /* for ids and seeds */
int64_t proa_oai_started(void); /* unix seconds: models' "created" */
/* The model of that name, held: a model, an adapter (*adapter is then true; it may be NULL), or ORG/NAME of a hub. */
proa_status proa_oai_find_model(proa_api *api, const char *name, proa_served_model **out, bool *adapter,
                                proa_err *err);
bool proa_oai_has_input(const proa_served_model *model, const char *name);

/* ---- read.c and options.c: from the body ---- */

/* extensions/adapters.c: answers. */
void proa_oai_change_adapter(proa_api *api, proa_http_exchange *x, bool load);
/* Body, model and what the form reads; false with job->error. */
bool proa_oai_read(proa_oai *job);
bool proa_oai_check_fields(proa_oai *job); /* fields.c: each member of the body is one of the operation's */
bool proa_oai_read_generation(proa_oai *job); /* forms: completions, chats */
bool proa_oai_read_embedding(proa_oai *job);
bool proa_oai_read_pooling(proa_oai *job); /* pooling and normalisation of vectors */
/* The member `key` as job->inputs: a text, ids, or a list of either. */
bool proa_oai_read_prompts(proa_oai *job, const char *key);
bool proa_oai_read_ids(proa_oai *job, const proa_json *ids, const char *key); /* one prompt: a list, maybe empty */
proa_oai_input *proa_oai_add_inputs(proa_oai *job, int32_t count);
/* Checks the options of a generation that OpenAI has. */
bool proa_oai_read_options(proa_oai *job);
bool proa_oai_set_options(proa_oai *job);   /* job->options; false with job->error */
void proa_oai_print_options(proa_oai *job); /* job->options_text */
/* ---- parts.c: the parts of a message ---- */
/* They are added to its choice. */
void proa_oai_take_parts(const proa_oai *job, proa_oai_choice *c, const proa_generated_sequence *s);
/* A sequence's new parts, or its text if it is not split; a stream writes their events. The log-probabilities of c are
 * taken, too. */
void proa_oai_take_items(proa_oai *job, proa_oai_choice *c, const proa_generated_sequence *s, bool split);
void proa_oai_write_items(proa_oai *job, int32_t index); /* forms: write_chunk */
void proa_oai_end_item(proa_oai *job);                   /* the open item, if there is one */
void proa_oai_end_items(proa_oai *job); /* the same; without any item, an empty text is one */
/* ---- chat.c: messages and tools ---- */
/* Also sets job->message: which tools may be called, and how reasoning is answered. */
bool proa_oai_check_chat(proa_oai *job);
/* job->chat or job->chat_text; the body is not needed afterwards. */
bool proa_oai_take_chat(proa_oai *job);
/* ---- json.c ---- */
void proa_oai_put_json(proa_buf *out, const proa_json *j);
void proa_oai_put_number(proa_buf *out, double value);
/* The member `key` of the body in [min, max]; *value is kept if there is none. *given, unless NULL, is set if there is
 * one. False with job->error. */
bool proa_oai_number(proa_oai *job, const char *key, double min, double max, double *value, bool *given);
bool proa_oai_whole(proa_oai *job, const char *key, int64_t min, int64_t max, int64_t *value, bool *given);
bool proa_oai_flag(proa_oai_error *e, const proa_json *body, const char *key, bool *value);

/* ---- infer.c: to the server core ---- */

/* Makes a request of inference for each prompt and sends it; the job answers by itself from here on. */
void proa_oai_send(proa_oai *job);

/* ---- tensors.c: for models that take no typed generations ---- */

/* Inputs, parameters and requested outputs by the model's contract; prompt: not for a chat. */
void proa_oai_add_tensors(const proa_oai *job, proa_infer *r, const proa_json *prompt);
/* What a reply holds: as the model gave it, or made of its outputs, in its arena. */
const proa_generated *proa_oai_generated(const proa_oai *job, proa_reply *reply);

/* ---- reply.c: what comes back ---- */

void proa_oai_on_reply(proa_sink *sink, proa_reply *reply, bool final);

/* ---- extensions/tokens.c: /tokenize and /detokenize ---- */
bool proa_oai_read_tokenize(proa_oai *job);
bool proa_oai_read_detokenize(proa_oai *job);
/* The answer is written from the reply, whose lists may be long. */
void proa_oai_take_tokens(proa_oai *job, const proa_generated *g);
bool proa_oai_put_tokens(proa_oai *job, proa_buf *out);
/* ---- extensions/rerank.c: /rerank and /score ---- */
bool proa_oai_read_rerank(proa_oai *job);
bool proa_oai_read_score(proa_oai *job);
bool proa_oai_put_rerank(proa_oai *job, proa_buf *out);
bool proa_oai_put_score(proa_oai *job, proa_buf *out);

/* ---- logprobs.c ---- */

/* Adds log-probabilities to a choice's lists, as JSON. */
void proa_oai_take_logprobs(const proa_oai *job, proa_oai_choice *c, const proa_generated_tokens *tokens);
/* Those of the prompt, for echo. */
void proa_oai_take_prompt(const proa_oai *job, proa_oai_prompt *p, const proa_generated_tokens *tokens);
void proa_oai_put_logprobs(const proa_oai *job, proa_buf *out, const proa_oai_choice *c);

/* ---- write.c: what the client gets ---- */

void proa_oai_chat_chunk(proa_oai *job, int32_t index); /* forms: chats, completions, embeddings */
void proa_oai_completion_chunk(proa_oai *job, int32_t index);
void proa_oai_end_stream(proa_oai *job);
bool proa_oai_put_completion(proa_oai *job, proa_buf *out);
bool proa_oai_put_embeddings(proa_oai *job, proa_buf *out);
void proa_oai_put_failure(proa_oai *job);
void proa_oai_clear_choice(proa_oai_choice *c); /* all that it has was sent */
int64_t proa_oai_prompt_tokens(const proa_oai *job);
int64_t proa_oai_cached_tokens(const proa_oai *job); /* of these; known when the last reply is there */
void proa_oai_write_end(proa_oai *job);              /* all have ended: answers, and releases it */
bool proa_oai_stream_open(proa_oai *job);            /* sends the head once; false: there is no client */
void proa_oai_stream_send(proa_oai *job);            /* job->out; too much of it in the queue ends the job */
void proa_oai_stream_end(proa_oai *job);             /* job->out, and the end of the exchange */

#endif
