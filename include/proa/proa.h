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
 * Threads: submit, cancel, stats, encode, decode, chat and info may be called from any thread at any time. step and run
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

typedef struct proa_engine proa_engine;

/* Called while a model loads: `what` is being done, and `part` of it, from 0 to 1, is finished. */
typedef void proa_progress_fn(void *arg, const char *what, double part);

/* A folder in the format of the PEFT library: a low-rank adapter (LoRA), or a prompt table (prompt tuning, p-tuning,
 * prefix tuning), whose tokens come before the prompts of the requests that use it. An encoder-decoder takes tables. */
typedef struct proa_adapter_source {
    const char *name, *path;
} proa_adapter_source;

typedef struct proa_engine_options {
    const char *device; /* "cpu" (default), "cuda" or "cuda:N" */
    /* "exact": weights keep the checkpoint's type and arithmetic is in f32. Widening bf16 and f16 is exact, so the
     * result is that of "f32" with half the memory. "auto" (default): as "exact", except that with a bf16 checkpoint a
     * CPU keeps keys and values in bf16 and, where that is faster, rounds the inputs of matrices to bf16. "f32":
     * weights in f32. "f16": weights, keys and values in f16. "bf16": weights, keys and values in bf16, and the inputs
     * of matrices too where the CPU is faster with them. */
    const char *dtype;
    const char *quant; /* "none", "int8", "int4"; on a GPU also "fp8" */
    const char *kv_dtype; /* keys and values: "auto" (follows dtype), "f32", "bf16", "f16"; on a GPU also "fp8" */
    int32_t threads;      /* 0: all CPUs that this process may use */
    /* Sequences running at once, each beam counts as one. 0: sequences_default; fewer where the recurrent states of so
     * many would take too much of the memory that the weights leave (proa_info). */
    int32_t sequences_max;
    int32_t sequences_default; /* 0: 16, on a GPU 256 */
    int32_t step_tokens; /* token budget of a step; 0: 512, on a GPU 2048, for encoders on a GPU 16384 */
    /* Prompt tokens at most in a step in which other sequences decode. 0: step_tokens if that was given; otherwise it
     * is planned, and prompt_slowdown limits it further. */
    int32_t prompt_rows;
    /* A step with prompts may take this many times as long as a step in which all running sequences decode, estimated
     * from earlier steps. 0: 1.5, or no limit if prompt_rows or step_tokens was given. */
    float prompt_slowdown;
    int64_t kv_tokens; /* room for keys and values, in tokens of all running sequences; 0: see proa_info */
    float kv_share; /* if kv_tokens is 0: the share (0 to 1) of the memory left by the weights that keys and values
                           take, at most sequences_max whole contexts; 0: 0.9 on a GPU */
    const char *prefix_cache; /* "on" (default): keys and values of finished requests stay in memory until it is needed,
                                 and requests with the same prefix reuse them; "off" */
    /* Host memory for pages that are evicted from the prefix cache of a GPU; they are copied back when they are needed.
     * Bytes, with K, M or G for units of 1024; "off" (default); "auto": off on a CPU; on a GPU 4G, at most a quarter of
     * the available memory and four times the pages on the GPU. If prompts never repeat, the copies cost 4 % of the
     * throughput. */
    const char *prefix_host_memory;
    /* A folder where cached prefixes are kept as files, for later processes and for others that run at the same time;
     * NULL: none. It must belong to this user alone. The size is the limit of all its files, as above, default 16G; the
     * least recently used go first. */
    const char *prefix_dir, *prefix_dir_size;
    /* "max_utilization" (default): a request is admitted when there is room for the tokens that it has. When room runs
     * out, the youngest request of the lowest priority is preempted and continues later. "guaranteed_no_evict": a
     * request is admitted when there is room for all that it may need, and is never preempted. */
    const char *policy;
    proa_progress_fn *progress;
    void *progress_arg;
    /* Speculative decoding: several draft tokens are verified in one pass; the output does not change. "none"; "ngram":
     * drafts are looked up in the sequence's own text, which helps where text repeats; "draft": they come from
     * draft_model; "medusa", "eagle": from the heads in draft_model, as trees. Default: what draft_model contains, or
     * "none" without one. */
    const char *speculation;
    /* Path of a smaller decoder with the same vocabulary, or of a folder of heads; NULL: none. */
    const char *draft_model;
    int32_t draft_tokens; /* for a sequence in one pass, at most; 0: 16, or 64 for trees */
    bool detach_files; /* true: the model's files are not read after it was opened, so they may be overwritten or
                          removed. Embedding tables, which are otherwise mapped, are then copied into memory */
    const proa_adapter_source *adapters; /* [adapters_count] loaded when the model is; of models of one stack */
    int32_t adapters_count;
    /* How many different low-rank adapters a batch may use; 0: adapters_count, or adapters_max. If all of these are 0,
     * the engine takes no adapters. */
    int32_t adapter_slots;
    int32_t adapters_max; /* loaded at one time, kept in host memory; 0: adapter_slots, at least adapters_count */
    int32_t adapter_rank; /* the largest rank; 0: that of the given adapters, at least 16 */
    /* How low-rank adapters are multiplied. "exact": in f32 beside weights in f32, otherwise in 16 bits. "auto"
     * (default): the same, but beside weights in fp8 steps of 17 to 64 rows multiply them in fp8 too, on GPUs of the
     * Hopper class. "fp8": as "auto", and weights of another type are refused. */
    const char *adapter_dtype;
    /* Ranks that each compute a part of every layer (tensor parallelism); 0 or 1: one. On GPUs each rank has one, from
     * `device` on; on the CPU each has a part of the threads. */
    int32_t tensor_parallel;
    /* Stages that each have a range of the layers (pipeline parallelism), with tensor_parallel ranks each; 0 or 1:
     * one. */
    int32_t pipeline_parallel;
    /* Expert parallelism: each rank of tensor_parallel has some of a mixture's experts, instead of a part of each. */
    bool expert_parallel;
    /* What the ranks are: "thread": threads of this process; "process": processes of this host, spread over its NUMA
     * nodes; "mpi": the processes that mpirun has started. NULL: "mpi" under mpirun, otherwise "thread". */
    const char *ranks;
    /* How ranks add up a product whose inputs are divided among them. "terms" (default): each computes a term, and the
     * terms are added. "whole": each gathers all inputs and computes whole sums for some columns, in the order of one
     * rank, so that any number of ranks gives the same bits; slower, on the CPU only. */
    const char *rank_sums;
} proa_engine_options;

/* Opens a model: a Hugging Face folder (config.json, *.safetensors or pytorch_model*.bin, and for text a tokenizer), a
 * folder of OpenNMT-py (*.pt) or FasterTransformer (config.ini), or a single file such as a .gguf. On failure *out is
 * NULL. */
PROA_EXPORT proa_status proa_engine_open(proa_engine **out, const char *path,
                                         const proa_engine_options *options, proa_err *err);
/* Closes the engine. Running and waiting sequences get no more events. NULL is fine. */
PROA_EXPORT void proa_engine_close(proa_engine *engine);

typedef enum proa_kind {
    PROA_KIND_DECODER,         /* Llama, GPT: a prompt is continued */
    PROA_KIND_ENCODER_DECODER, /* T5: an input is encoded, an output is decoded from a start token */
    PROA_KIND_ENCODER          /* BERT: one output row for each input token */
} proa_kind;

typedef struct proa_info {
    const char *arch; /* "llama"; lives as long as the engine */
    proa_kind kind;
    int32_t vocab, hidden, layers, encoder_layers; /* hidden: width of the hidden states of events */
    int32_t context;                               /* tokens of one sequence at most */
    int32_t outputs; /* columns of ROWS: vocabulary, labels of a head, or hidden size */
    bool has_tokenizer, has_pooler;
    int32_t threads;
    const char *isa, *dtype, *quant, *kv_dtype; /* what is in use: "avx512_bf16", "bf16", "none", "bf16" */
    int64_t parameters, weight_bytes;           /* as stored in memory */
    int64_t kv_tokens, kv_bytes;                /* room for keys and values */
    int64_t memory_bytes;                       /* planned for this engine as a whole */
    int32_t bos_id, eos_id, decoder_start_id;   /* -1: none */
    const char *plan; /* text: sizes and arithmetic, with the option for each; lives as long as the engine */
    int32_t labels;   /* outputs of a head that classifies or rates an input; 0: the model has no such head */
    int32_t embedding; /* width of the input embeddings of tokens; mostly `hidden` */
    int32_t gpu;       /* the GPU it runs on, N of "cuda:N"; -1: the CPU */
    int32_t sequences; /* that can run at once */
} proa_info;

/* Fills *info. Any thread. */
PROA_EXPORT void proa_engine_info(const proa_engine *engine, proa_info *info);

typedef enum proa_task {
    PROA_TASK_GENERATE, /* tokens, one TOKEN event each (with beams: all at the end) */
    PROA_TASK_SCORE,    /* nothing is generated: PROMPT events with the log-probability of each given token */
    PROA_TASK_ROWS,     /* one forward pass over the given ids; ROWS events with the output of every position:
                           logits, or for encoders the head's output or hidden states */
    PROA_TASK_ENCODE /* the encoder alone; one ROWS event with its last hidden states, [input tokens, hidden] */
} proa_task;

typedef enum proa_early {
    PROA_EARLY_FALSE, /* transformers' early_stopping=False: stop when no better hypothesis is likely (default) */
    PROA_EARLY_TRUE, /* as soon as there are `beams` finished hypotheses */
    PROA_EARLY_NEVER /* only when no running beam can still win */
} proa_early;

#define PROA_END_IDS_MAX 16

/* Whose rules a request follows: the order of penalties and filters, and the meaning of a beam's score. */
typedef enum proa_style {
    PROA_STYLE_HF,    /* transformers (default) */
    PROA_STYLE_FT,    /* FasterTransformer */
    PROA_STYLE_TRTLLM /* TensorRT-LLM */
} proa_style;

/* Token sequences ("words"): word w is ids[ends[w-1]..ends[w]), the first begins at 0. FasterTransformer's layout. */
typedef struct proa_words {
    const int32_t *ids, *ends;
    int32_t count;
} proa_words;

typedef struct proa_tokens {
    const int32_t *ids;
    int32_t count;
} proa_tokens;

/* values[w] belongs to word w. */
typedef struct proa_sequence_bias {
    proa_words words;
    const float *values;
} proa_sequence_bias;

typedef struct proa_bias {
    int32_t id;
    float value; /* added to the logit */
} proa_bias;

typedef struct proa_strings {
    const char *const *text; /* NUL-terminated UTF-8 */
    int32_t count;
} proa_strings;

/* Every option by name, in the order of the documentation. src/options/options.c has its range, default, help and
 * what the engines call it; docs/decoding.md and the command line's help are made from that table. */
#define PROA_OPTION_LIST(X)                                                                                  \
    X(max_tokens)                                                                                            \
    X(min_tokens)                                                                                            \
    X(temperature)                                                                                           \
    X(top_k)                                                                                                 \
    X(top_p)                                                                                                 \
    X(min_p)                                                                                                 \
    X(typical_p)                                                                                             \
    X(epsilon_cutoff)                                                                                        \
    X(eta_cutoff)                                                                                            \
    X(top_p_decay)                                                                                           \
    X(top_p_min)                                                                                             \
    X(top_p_reset_id)                                                                                        \
    X(seed)                                                                                                  \
    X(repetition_penalty)                                                                                    \
    X(presence_penalty)                                                                                      \
    X(frequency_penalty)                                                                                     \
    X(no_repeat_ngram)                                                                                       \
    X(encoder_repetition_penalty)                                                                            \
    X(encoder_no_repeat_ngram)                                                                               \
    X(logit_bias)                                                                                            \
    X(sequence_bias)                                                                                         \
    X(suppress_tokens)                                                                                       \
    X(begin_suppress_tokens)                                                                                 \
    X(exponential_decay_start)                                                                               \
    X(exponential_decay_factor)                                                                              \
    X(renormalize_logits)                                                                                    \
    X(allowed_words)                                                                                         \
    X(json_schema)                                                                                           \
    X(json_object)                                                                                           \
    X(regex)                                                                                                 \
    X(grammar)                                                                                               \
    X(choice)                                                                                                \
    X(banned_words)                                                                                          \
    X(banned_strings)                                                                                        \
    X(forced_bos_id)                                                                                         \
    X(forced_eos_id)                                                                                         \
    X(stop_words)                                                                                            \
    X(stop_strings)                                                                                          \
    X(end_ids)                                                                                               \
    X(ignore_eos)                                                                                            \
    X(n)                                                                                                     \
    X(best_of)                                                                                               \
    X(beams)                                                                                                 \
    X(style)                                                                                                 \
    X(length_penalty)                                                                                        \
    X(early_stopping)                                                                                        \
    X(beams_returned)                                                                                        \
    X(beam_groups)                                                                                           \
    X(diversity_penalty)                                                                                     \
    X(diversity_rate)                                                                                        \
    X(penalty_alpha)                                                                                         \
    X(logprobs)                                                                                              \
    X(top_logprobs)                                                                                          \
    X(prompt_logprobs)                                                                                       \
    X(return_logits)                                                                                         \
    X(return_hidden)                                                                                         \
    X(priority)                                                                                              \
    X(timeout_ms)                                                                                            \
    X(adapter)                                                                                               \
    X(speculation)                                                                                           \
    X(draft_tokens)                                                                                          \
    X(prediction)                                                                                            \
    X(draft_ids)

typedef enum proa_option {
#define PROA_OPTION_ENUM(name) PROA_OPTION_##name,
    PROA_OPTION_LIST(PROA_OPTION_ENUM)
#undef PROA_OPTION_ENUM
        PROA_OPTION_COUNT
} proa_option;

/* How to generate. A field that is zero has its default: that of the model's generation_config.json, or else the one
 * below. A field that is marked in `given` is used as it is, also if it is zero. Lists belong to the caller; submit
 * copies them. */
typedef struct proa_options {
    bool given[PROA_OPTION_COUNT]; /* [PROA_OPTION_length_penalty] = true ... */
    /* how long */
    int32_t max_tokens; /* new tokens; 0: until the end token or the context is full; for encoder-decoders at most
                           twice the input's tokens, or 64 if that is more */
    int32_t min_tokens; /* no end token before that many new tokens */
    /* which token */
    float temperature; /* hf: 0 is greedy, else sample from softmax(logits / temperature); ft, trtllm: greedy is
                             top_k 1, or top_k and top_p 0, and temperature (default 1) only scales */
    int32_t top_k;     /* 0: all tokens; else the k most likely (hf: ties at the k-th value stay; ft, trtllm:
                             exactly k) */
    float top_p;       /* 1: all; else the smallest set of most likely tokens whose mass reaches top_p; hf: 0,
                             if given, is the most likely token */
    float min_p;       /* 0: all; else tokens at least min_p times as likely as the most likely one */
    float typical_p;   /* 1, the default: all; else the most typical tokens whose mass reaches typical_p */
    float epsilon_cutoff;   /* 0: all; else tokens with a probability of at least epsilon_cutoff */
    float eta_cutoff;       /* 0: all; else of at least min(eta, sqrt(eta) * exp(-entropy)) */
    float top_p_decay;      /* 0 or 1: none; after each token top_p = max(top_p * decay, top_p_min) */
    float top_p_min;        /* default 1e-6 */
    int32_t top_p_reset_id; /* token that sets top_p back; 0: none unless given */
    uint64_t seed;          /* of the random draws; sequence i of n uses proa_seed_of(seed, i) */
    /* penalties */
    float repetition_penalty; /* default 1: none; > 1 makes tokens of prompt and output less likely */
    float presence_penalty;   /* subtracted once from tokens that were generated (ft: prompt too) */
    float frequency_penalty;  /* subtracted for each time that a token was generated */
    int32_t no_repeat_ngram;  /* no sequence of that many tokens occurs twice; 0: off */
    float encoder_repetition_penalty; /* default 1: none; > 1 makes tokens of the encoder's input (of the prompt, where
                                         there is no encoder) likelier */
    int32_t encoder_no_repeat_ngram; /* no sequence of that many tokens of the encoder's input (of the prompt, where
                                        there is no encoder) occurs in the output; 0: off */
    const proa_bias *logit_bias;
    int32_t logit_bias_count;
    proa_sequence_bias sequence_bias;  /* added to a token that would complete the sequence */
    proa_tokens suppress_tokens;       /* never generated */
    proa_tokens begin_suppress_tokens; /* never the first new token (or the second, after a forced one) */
    int32_t exponential_decay_start; /* after that many new tokens end tokens get likelier: logit l becomes */
    float exponential_decay_factor;  /* l + |l| (factor^(new tokens - start) - 1); default 1: none */
    bool renormalize_logits;         /* log-softmax after all processors: changes beam scores */
    proa_words allowed_words;        /* the output consists of these words; it may end after each */
    /* at most one of these five constrains the whole output; NULL, false or empty: none */
    const char *json_schema;     /* JSON that this schema accepts */
    bool json_object;            /* a JSON object */
    const char *regex;           /* text that the whole expression matches */
    const char *grammar;         /* text of a grammar in GBNF or in Lark's form */
    proa_strings choice;         /* one of these texts */
    proa_words banned_words;     /* never completed */
    proa_strings banned_strings; /* the same as text, with and without a space before */
    int32_t forced_bos_id;       /* the token after a prompt of one; -1, or 0 unless given: not forced */
    int32_t forced_eos_id;     /* the last token that max_tokens allows; -1, or 0 unless given: not forced */
    proa_words stop_words;     /* end the sequence; their tokens are in the output */
    proa_strings stop_strings; /* end the sequence; the text is cut before them, and never shown in part */
    int32_t end_ids[PROA_END_IDS_MAX]; /* replace the model's own when end_ids_count > 0 */
    int32_t end_ids_count;
    bool ignore_eos; /* end tokens neither end the sequence nor count as ends in beam search */
    /* how many */
    int32_t n; /* sequences of one prompt, which share its pages; default 1 */
    int32_t best_of; /* that many are generated, and the n with the highest mean log-probability returned; default n */
    int32_t beams; /* 0 or 1: no beam search */
    proa_style style;
    float length_penalty; /* hf: score = sum of log-probabilities / length^penalty, default 1; ft and trtllm: the
                             same on their length, default 0 */
    proa_early early_stopping; /* trtllm: default TRUE; ft does not read it */
    int32_t beams_returned;    /* 0: all */
    int32_t beam_groups;       /* hf: diverse beam search in groups; default 1 */
    float diversity_penalty;   /* hf: subtracted for each earlier group that chose the token in this step */
    float diversity_rate; /* added to a beam's score for the ranking: ft: times the rank among its siblings; trtllm:
                                times the beam's index */
    float penalty_alpha; /* > 0 with top_k > 1: contrastive search */
    /* what else to return */
    bool logprobs;        /* log-probability of each token, in its TOKEN event */
    int32_t top_logprobs; /* and those of that many most likely tokens */
    bool prompt_logprobs; /* PROMPT events before the first token */
    bool return_logits;   /* the raw logits in TOKEN events */
    bool return_hidden;   /* the hidden state that the head read, in TOKEN events */
    /* when */
    int32_t priority;   /* requests with a higher one are admitted first, and preempt others; default 0 */
    int32_t timeout_ms; /* from submit on; then the request ends with an error; 0: none */
    /* with which weights */
    const char *adapter; /* name of an adapter (proa_engine_load_adapter); NULL: the model alone */
    /* speculative decoding: none of these changes the output */
    const char *speculation; /* as in proa_engine_options; NULL: the engine's, or "ngram" with one of the next two */
    int32_t draft_tokens; /* in a pass, at most; 0: the engine's */
    const char *prediction; /* text that the output is expected to repeat in part; prompt lookup drafts from it */
    proa_tokens draft_ids; /* token ids with which the output is expected to begin */
} proa_options;

/* Options from a JSON object whose members have the names of docs/decoding.md, {"temperature": 0.8, "stop_strings":
 * ["."]}; each is marked as given. INVALID names the member. The result, lists included, lives until
 * proa_options_free; a proa_options that is copied from it may be used meanwhile. */
PROA_EXPORT proa_status proa_options_new(proa_options **out, const char *json, proa_err *err);
PROA_EXPORT void proa_options_free(proa_options *options); /* NULL is fine */

/* The seed that sequence i of a request draws with: seed itself for 0, else a mix of both (SplitMix64). */
PROA_EXPORT uint64_t proa_seed_of(uint64_t seed, int32_t i);

typedef enum proa_event_kind {
    PROA_EVENT_TOKEN,
    PROA_EVENT_ROWS,
    PROA_EVENT_PROMPT, /* log-probabilities of prompt tokens */
    PROA_EVENT_DONE,
    PROA_EVENT_BEGIN, /* the request was admitted and takes part in the next step; not sent if it never ran */
    PROA_EVENT_SCORES /* a row of one beam in one step, with proa_request.scores */
} proa_event_kind;
typedef enum proa_finish {
    PROA_FINISH_NONE,
    PROA_FINISH_END,    /* an end token came */
    PROA_FINISH_STOP,   /* a stop word or stop string came */
    PROA_FINISH_LENGTH, /* max_tokens, or the context is full */
    PROA_FINISH_CANCELLED,
    PROA_FINISH_ERROR /* see event.error */
} proa_finish;

typedef struct proa_logprob {
    int32_t id;
    float logprob;
} proa_logprob;

/* One finished sequence: of a beam search, best first, or one of n. The prompt (and decoder start token) is not in
 * ids. */
typedef struct proa_beam_result {
    const int32_t *ids;
    int64_t count;
    float score;        /* beams: by the style's length penalty; else the mean log-probability a token */
    double logprob_sum; /* of its tokens; 0 unless known (beams, best_of > n, logprobs) */
    proa_finish finish;
    int32_t sequence;       /* which of n */
    const int32_t *parents; /* beams: [count] which beam of its step each token continued; NULL: not known */
    const char *text;       /* NULL without a tokenizer */
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
    int32_t sequence;        /* which of n; 0 */
    const proa_logprob *top; /* [top_count] most likely first, with options.top_logprobs */
    int32_t top_count;
    const float *logits, *hidden; /* [vocab], [hidden]; NULL unless requested */
    /* [vocab] with proa_request.scores: what the token was chosen by, -infinity where it could not be chosen: logits
     * after all processors, over the temperature. SCORES: of beam rows_first, log-probabilities after all processors,
     * before the beam's own score is added; its raw logits come in a SCORES event before, with return_logits */
    const float *scores;
    const char *stop_string; /* the one of options.stop_strings that ended the sequence; NULL: none did */
    /* ROWS: row-major [rows_count, columns] f32, rows rows_first.. of the sequence; pooled is NULL or [columns]
       with the last rows */
    const float *rows, *pooled;
    int64_t rows_first, rows_count, columns;
    /* PROMPT: of the tokens at positions rows_first.. (from 1 on), rows_count of them; ids are the tokens, and with
       options.top_logprobs prompt_top has [rows_count * top_count] entries */
    const float *prompt_logprobs;
    const int32_t *prompt_ids;
    const proa_logprob *prompt_top;
    /* DONE: why it ended; text has what the detokeniser held back. TOKEN: why it is its sequence's last, or NONE */
    proa_finish finish;
    const proa_err *error;
    const proa_beam_result *beams; /* beams and n > 1 */
    int32_t beams_count;
    double logprob_sum; /* of all tokens, with options.logprobs */
    int64_t prompt_tokens, new_tokens;
    int64_t cached_tokens;                   /* of prompt_tokens, whose keys and values were cached */
    int64_t drafted_tokens, accepted_tokens; /* draft tokens that were verified; of these, those that were right */
    double queue_s, prompt_s, decode_s; /* seconds until admission, then until the first token, then until DONE */
} proa_event;
typedef void proa_event_fn(const proa_event *event);

/* Where tensors of the caller are. All zero: in host memory. PROA_MEMORY_CUDA: in memory of the GPU on which the engine
 * runs (proa_info.gpu), which is read and written in place: nothing passes through the host. A model with several ranks
 * takes host memory only.
 * Owner: the caller, for both.
 * Order: calls with tensors on the GPU return before its kernels have ended. They read and write tensors after the work
 *        that `stream` has when they are called; work that is given to `stream` after they have returned comes after
 *        them, and may read outputs, and overwrite or free inputs. */
typedef enum proa_memory_kind { PROA_MEMORY_HOST, PROA_MEMORY_CUDA } proa_memory_kind;
typedef struct proa_tensor_memory {
    proa_memory_kind kind;
    int32_t gpu;  /* its number, N of "cuda:N" */
    void *stream; /* a cudaStream_t of that GPU; NULL: the default stream */
} proa_tensor_memory;

/* Rows of a request in memory of the caller, beside those of its events. Rows in memory of the GPU that runs the model
 * do not pass through the host, if tokens are chosen there. Else the host has them and they are uploaded: with
 * typical_p, epsilon_cutoff, eta_cutoff, a top_p that decays, or log-probabilities of rows that processors change; of
 * beams that are sampled or have logits processors. Rows are complete with the DONE event, on a GPU in the order of its
 * stream; those of tokens after a sequence's last are undefined. */
typedef struct proa_request_rows {
    float *logits; /* GENERATE: what proa_event.logits is, for sequences and beams; NULL: not wanted */
    float *scores; /* GENERATE: what proa_event.scores is; NULL: not wanted */
    float *hidden; /* ENCODE: [ids_count, hidden] what its ROWS event has, which is not sent then; NULL: not wanted */
    int64_t steps, stride; /* GENERATE: of token i < steps of sequence or beam s, row i * stride + s, [outputs] */
    proa_tensor_memory memory;
} proa_request_rows;

typedef struct proa_request {
    proa_task task;
    const char *text;      /* UTF-8, tokenised with special tokens; or NULL with ids */
    size_t text_len;       /* 0: text is NUL-terminated */
    const char *text_pair; /* encoders: a second text, joined to the first as the tokenizer does; NULL: none */
    size_t text_pair_len;  /* 0: text_pair is NUL-terminated */
    const int32_t *ids;    /* token ids, used as they are */
    int64_t ids_count;
    /* models with a decoder: [prompt_table_rows, proa_info.embedding] input embeddings of the tokens vocab, vocab + 1,
     * ..., which may occur anywhere in ids (TensorRT-LLM's prompt_embedding_table); copied. Requests with equal tables
     * share cached keys and values. NULL: none */
    const float *prompt_table;
    int64_t prompt_table_rows;
    proa_tensor_memory prompt_table_memory; /* on a GPU the table is not copied: it stays until the DONE event, and the
                                               request shares no cached keys and values */
    const int32_t *type_ids; /* encoders: [ids_count] token types of ids (segments); NULL: all 0 */
    const float *embedded; /* encoders: vectors in place of text and ids, as the embedding makes them (its norm
                              applied): [ids_count, hidden]; copied. NULL: none */
    const float *encoder_outputs; /* encoder-decoders: the encoder's last hidden states, in place of text and ids:
                                     [ids_count, hidden]; copied. NULL: none */
    proa_tensor_memory encoder_outputs_memory; /* on a GPU they are not copied: they stay until the DONE event */
    const int32_t *decoder_ids; /* encoder-decoder: the decoder's first tokens, start token included; NULL: the
                                   start token alone */
    int64_t decoder_ids_count;
    const char *session_id; /* decoders: a conversation of that name. Its tokens so far, prompts and answers, come
                               before this prompt, whose text gets no special tokens then; NULL: none. The request has
                               one sequence. Requests that fail or are cancelled leave the session as it was */
    bool session_continues; /* fails with NOT_FOUND if there is no such session, instead of beginning one */
    bool session_begins;    /* begins a new session; an earlier one of that name is forgotten */
    bool session_ends;      /* the session ends with this request */
    const char *cache_salt; /* requests share cached keys and values only with those of the same salt; NULL: "" */
    const int32_t *visible_ids; /* special tokens whose text is emitted like that of others; copied */
    int64_t visible_ids_count;
    /* encoders: memory of the device on which the model runs, for the row of the model's head [outputs], that of its
     * pooler [outputs], and the rows of a model without a head [input tokens, outputs]. Complete at DONE, and not
     * written after. A request that has one of them gets no ROWS events. UNSUPPORTED if the model has no such row. All
     * NULL: the outputs come in events */
    float *head_to, *pooled_to, *rows_to;
    bool scores; /* TOKEN events have scores, a beam search sends SCORES events: transformers' output_scores */
    proa_request_rows rows; /* all zero: none */
    proa_options options;
    const char *client;      /* who sent it: among requests of one priority clients take turns; NULL: "" */
    proa_event_fn *on_event; /* required */
    void *arg;
} proa_request;

/* Loads and unloads adapters while the engine runs. Any thread. load: EXISTS if the name is taken, LIMIT if there are
 * adapters_max already, or an error of the folder. unload: NOT_FOUND; requests that use the adapter finish with it. */
PROA_EXPORT proa_status proa_engine_load_adapter(proa_engine *engine, const char *name, const char *path,
                                                 proa_err *err);
PROA_EXPORT proa_status proa_engine_unload_adapter(proa_engine *engine, const char *name, proa_err *err);
/* Returns how many are loaded. see (may be NULL) is called for each, in the order of loading; it must not call the
 * engine. */
PROA_EXPORT int32_t proa_engine_adapters(const proa_engine *engine,
                                         void (*see)(void *arg, const char *name, const char *path), void *arg);

/* A low-rank adapter as TensorRT-LLM's tensors have it. Row i of weights is A [D,K], then B [N,D] with the scale, of
 * module config[i][0] in layer config[i][1], of rank D = config[i][2]; the rest of the row is ignored. The modules are
 * LoraManager's ids: 0 attn_qkv, 1 to 3 attn_q, attn_k, attn_v, 4 attn_dense, 5 mlp_h_to_4h (of a gated FFN the gate),
 * 6 mlp_4h_to_h, 7 mlp_gate (the other one), 18 mlp_gate_up. */
typedef struct proa_adapter_rows {
    const float *weights;  /* [rows][width] */
    const int32_t *config; /* [rows][3] */
    int64_t rows, width;
} proa_adapter_rows;
/* As proa_engine_load_adapter. If there are adapters_max already, the one of those loaded in this way that no request
 * uses and that was used least recently is unloaded. */
PROA_EXPORT proa_status proa_engine_load_adapter_rows(proa_engine *engine, const char *name,
                                                      const proa_adapter_rows *rows, proa_err *err);

/* Checks and queues a request. *id (may be NULL) names it for cancel. INVALID, LIMIT: nothing was queued. */
PROA_EXPORT proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id,
                                           proa_err *err);
/* Checks and queues several requests at once. Those for which there is room start in the same step, which is not
 * certain if they are submitted one by one to an engine that runs. ids: [count], or NULL. On an error, which is that of
 * the first faulty request, nothing was queued. LIMIT: also if count is not 1 to the most that may wait. */
PROA_EXPORT proa_status proa_engine_submit_all(proa_engine *engine, const proa_request *requests,
                                               int64_t count, uint64_t *ids, proa_err *err);
/* The request ends with a DONE event (PROA_FINISH_CANCELLED) before the next step, and its pages are freed. Unknown and
 * finished ids are ignored. */
PROA_EXPORT void proa_engine_cancel(proa_engine *engine, uint64_t id);

/* Runs one step: admits waiting sequences, one forward pass over at most step_tokens rows, delivers events. Returns
 * false if there was nothing to do. */
PROA_EXPORT bool proa_engine_step(proa_engine *engine);
/* Runs steps until nothing is left to do. */
PROA_EXPORT void proa_engine_run(proa_engine *engine);
/* Starts a thread of the engine that runs a step whenever there is work; stop ends it. */
PROA_EXPORT proa_status proa_engine_start(proa_engine *engine, proa_err *err);
PROA_EXPORT void proa_engine_stop(proa_engine *engine);

typedef struct proa_stats {
    uint64_t steps, rows; /* forward passes, token rows in them */
    uint64_t prompt_tokens, new_tokens;
    uint64_t drafted, accepted; /* draft tokens that were verified; how many of them were right */
    uint64_t submitted, finished, cancelled, failed;
    uint64_t preemptions; /* of running requests, whose pages others needed */
    /* of these: those whose pages can be copied to host memory and back; those whose tokens are computed again */
    uint64_t preemptions_moved, preemptions_recomputed;
    int32_t running, waiting;
    int64_t pages_used, pages_free, pages_used_peak; /* pages that are only cached count as free */
    int64_t pages_cached;                            /* in the prefix cache, also those in use */
    uint64_t pages_evicted;                          /* from the cache since the start */
    uint64_t prefix_queries, prefix_hits; /* prompt tokens that could have been cached; those that were */
    uint64_t prefix_hits_host,
        prefix_hits_dir;           /* of the hits: copied back from memory of the host, read from files */
    int64_t pages_host, pages_dir; /* kept there now */
    /* tokens of preempted requests that were not computed again, since their pages were still there; of these, copied
     * back from memory of the host or read from files */
    uint64_t resumed_tokens, resumed_tokens_host;
    double step_s;                         /* time inside forward passes */
    uint64_t rank_failures, rank_restarts; /* of ranks that are processes */
} proa_stats;
PROA_EXPORT void proa_engine_stats(proa_engine *engine, proa_stats *stats);

/* Text to ids with the model's special tokens, and back. *count is the number of ids; at most cap are written, so a
 * larger *count means that the caller needs more room. UNSUPPORTED if the folder has no tokenizer. Any thread. */
PROA_EXPORT proa_status proa_engine_encode(const proa_engine *engine, const char *text, size_t text_len,
                                           int32_t *ids, int64_t cap, int64_t *count, proa_err *err);
/* The same without the special tokens that the tokenizer adds, for text that has its own: a rendered chat. */
PROA_EXPORT proa_status proa_engine_encode_plain(const proa_engine *engine, const char *text, size_t text_len,
                                                 int32_t *ids, int64_t cap, int64_t *count, proa_err *err);
PROA_EXPORT proa_status proa_engine_decode(const proa_engine *engine, const int32_t *ids, int64_t count,
                                           char *text, size_t cap, size_t *text_len, proa_err *err);

/* A chat as the prompt that the model's template makes of it. request: a JSON object with messages, and if wanted
 * tools, documents, add_generation_prompt (true), continue_final_message, chat_template_kwargs (OpenAI's names).
 * *text_len is the length; at most cap bytes are written. NOT_FOUND if the folder has no chat template. Any thread. */
PROA_EXPORT proa_status proa_engine_chat(proa_engine *engine, const char *request, char *text, size_t cap,
                                         size_t *text_len, proa_err *err);

/* ---- a decoding loop of your own ----
 *
 * A decoder session runs the model without choosing tokens: the caller passes tokens of sequences, gets logits or
 * hidden states, and chooses tokens, forks and reorders sequences itself.
 *
 *     proa_decoder_session_open(&session, engine, &(proa_decoder_session_options){.sequences = 4}, &err);
 *     proa_decoder_session_encode(session, &input, NULL, &err); // encoder-decoders: the encoder's input
 *     proa_decoder_session_step(session, &prompt, 1, &out, &err); // out.logits: [1, outputs]
 *     proa_decoder_session_fork(session, 0, 1, &err);         // sequence 1 goes on from the same tokens
 *
 * Sequences share pages of keys and values that they have in common; a page is copied when one of them writes to it.
 * Sessions and requests of one engine may run at the same time; a request waits while sessions hold the room it needs.
 * Owner:   the caller; all sessions are closed before their engine.
 * Threads: one call at a time for each session. With proa_engine_start a call may come from any thread but that of the
 *          events: it runs between two steps of the engine. Without it a call counts as a step. */
typedef struct proa_decoder_session proa_decoder_session;

typedef struct proa_decoder_session_options {
    int32_t sequences;  /* 0: 1; at most the engine's sequences_max */
    int64_t tokens_max; /* of one sequence; 0: the model's context */
} proa_decoder_session_options;

/* UNSUPPORTED: the model has no decoder, or sees its prompts both ways (GLM). */
PROA_EXPORT proa_status proa_decoder_session_open(proa_decoder_session **out, proa_engine *engine,
                                                  const proa_decoder_session_options *options, proa_err *err);
PROA_EXPORT void proa_decoder_session_close(proa_decoder_session *session); /* NULL is fine */

/* Tokens to append to one sequence. */
typedef struct proa_decoder_session_input {
    int32_t sequence;
    /* [count]; NULL with embeddings. Those on a GPU are not checked: they must be in the vocabulary */
    const int32_t *ids;
    /* [count, proa_info.embedding] input embeddings in place of the model's own (transformers' inputs_embeds); of an
     * encoder: [count, hidden]. NULL with ids */
    const float *embeddings;
    int64_t count;
    proa_tensor_memory memory; /* of ids or embeddings; ids of one call that are on a GPU are in one array */
} proa_decoder_session_input;

/* What a call returns: memory of the caller, in the order of the inputs. NULL: not wanted. */
typedef struct proa_decoder_session_output {
    float *logits; /* [rows, proa_info.outputs]; rows: one for each input, that of its last token */
    float *hidden; /* [rows, proa_info.hidden], what the head's last product reads (after the final norm) */
    bool all_rows; /* rows: one for each token */
    proa_tensor_memory memory; /* of both */
} proa_decoder_session_output;

/* Appends tokens to sequences, one input for each at most, and runs them in one pass. INVALID, LIMIT, or NO_MEMORY if
 * there is no room for their keys and values: nothing was run. */
PROA_EXPORT proa_status proa_decoder_session_step(proa_decoder_session *session,
                                                  const proa_decoder_session_input *inputs, int32_t count,
                                                  const proa_decoder_session_output *output, proa_err *err);
/* Sequence i becomes what parents[i] was, for i < count: the beams of a search after a step. */
PROA_EXPORT proa_status proa_decoder_session_reorder(proa_decoder_session *session, const int32_t *parents,
                                                     int32_t count, proa_err *err);
/* `to` becomes what `from` is, with its encoder memory. */
PROA_EXPORT proa_status proa_decoder_session_fork(proa_decoder_session *session, int32_t from, int32_t to,
                                                  proa_err *err);
/* The sequence keeps its first `tokens` tokens; with 0 it also loses its encoder memory. */
PROA_EXPORT proa_status proa_decoder_session_truncate(proa_decoder_session *session, int32_t sequence,
                                                      int64_t tokens, proa_err *err);
/* Tokens that the sequence has; -1: there is no such sequence. */
PROA_EXPORT int64_t proa_decoder_session_length(const proa_decoder_session *session, int32_t sequence);
/* Encoder-decoders: runs the encoder over the input, whose output becomes the encoder memory of input->sequence.
 * output->hidden [count, hidden] gets the encoder's last hidden states; output NULL: not wanted. The sequence begins
 * anew. */
PROA_EXPORT proa_status proa_decoder_session_encode(proa_decoder_session *session,
                                                    const proa_decoder_session_input *input,
                                                    const proa_decoder_session_output *output, proa_err *err);
/* The same with given hidden states, input->embeddings [count, hidden], in place of the encoder's. */
PROA_EXPORT proa_status proa_decoder_session_set_encoder_outputs(proa_decoder_session *session,
                                                                 const proa_decoder_session_input *input,
                                                                 proa_err *err);

PROA_EXPORT const char *proa_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
