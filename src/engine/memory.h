/* SPDX-License-Identifier: Apache-2.0
 * memory.h - how much memory an engine will take, computed before any is taken: proa_engine_open refuses to open a
 * model that does not fit, and proa explain prints the plan. */
#ifndef PROA_ENGINE_MEMORY_H
#define PROA_ENGINE_MEMORY_H

#include "kv/pages.h"
#include "kv/state_slots.h"
#include "model/model.h"
#include "text/tokenizer.h"

#define PROA_SEQUENCES_DEFAULT     16
#define PROA_STEP_TOKENS_DEFAULT   512
/* On a GPU, whose step takes longer to submit than a few hundred rows take to compute, and whose memory is the model's:
 * of what weights, activations and scratch leave, the KV cache takes this share. */
#define PROA_DEVICE_SEQUENCES      256
#define PROA_DEVICE_STEP_TOKENS    2048
/* A pass of an encoder-only model delays no tokens of others, and more rows make better use of a GPU: 128 inputs of 128
 * tokens. */
#define PROA_DEVICE_ENCODER_TOKENS 16384
#define PROA_DEVICE_KV_SHARE       0.9
#define PROA_HEAD_ROWS             64  /* rows of logits at once: 32 MB at a vocabulary of 128k */
#define PROA_BEST_ROWS             512 /* rows of logits at once on a device that samples them: 256 MB */
#define PROA_TABLES                3   /* page tables of a slot: its own, the next step's, the encoder's */
#define PROA_SEQUENCE_TOKENS       128 /* tokens planned for each running sequence by default */
/* With recurrent states there are as many sequences by default as have room for their states and for the keys and
 * values of so many tokens each. Of Qwen3-Next-80B these take 100 MB, and a state 79 MB. */
#define PROA_RECURRENT_TOKENS      4096

/* An engine's options, checked, with defaults filled in. */
typedef struct proa_sizes {
    proa_model_options model;
    int32_t sequences_max;
    bool sequences_planned;         /* it was not chosen: the model may make it smaller */
    int64_t step_tokens, kv_tokens; /* kv_tokens 0: not yet known (it follows from the model) */
    /* The most rows of prompts in a step that has decoding rows too (pacing/prompt_budget.h). 0: not yet known. */
    int64_t prompt_rows;
    double prompt_slowdown; /* proa_prompt_budget.slowdown */
    double kv_share;        /* part of the free memory, if kv_tokens is 0; 0: not used */
    int32_t threads;        /* 0: all */
    bool prefix_cache;      /* for models with keys and values */
    int32_t states_kept;    /* recurrent states of the prefix cache; 0: none */
    bool drafts;            /* the engine drafts tokens, whatever requests choose */
    int64_t host_bytes;     /* of its second level; -1: not yet known (it follows from the model) */
    int64_t folder_bytes;   /* of its third level; 0: there is none */
    bool evicts;            /* policy max_utilization: running requests can be preempted */
    int32_t adapters_max;   /* in memory */
    const proa_model *draft; /* the draft model, or an EAGLE head, with keys and values in the same pages; NULL */
    int64_t heads_bytes; /* of Medusa heads, of the hidden states that EAGLE heads read; 0: there are none */
} proa_sizes;

/* In bytes. On a device the total is the device's only; tokenizer, bookkeeping and program are on the host. */
typedef struct proa_memory {
    int64_t weights, activations, scratch, kv, tokenizer, bookkeeping, program, total;
    int64_t page_nodes; /* of bookkeeping, for each page in the total: its nodes of the prefix tree */
    int64_t adapters;   /* slots on a device; on the host all that may be loaded */
    int64_t host_cache; /* pages of the prefix cache in memory of the host; on a device not in the total */
    int64_t draft;      /* the draft model, but for its keys and values, or draft heads */
    int64_t states;     /* recurrent ones */
    int64_t page;       /* of kv */
} proa_memory;

/* What the KV pages of a model hold for each token. */
proa_kv_shape proa_kv_shape_of(const proa_model *m);

/* INVALID names the option, its value and its range. options may be NULL. */
PROA_MUST_CHECK proa_status proa_sizes_make(proa_sizes *s, const proa_engine_options *options, proa_err *err);
/* The number of sequences and the budget of a step by default, on the device of that name (NULL: cpu). encoder: of an
 * encoder-only model. */
int32_t proa_sizes_sequences(const char *device);
int32_t proa_sizes_step_tokens(const char *device, bool encoder);
/* Fills kv_tokens when it is 0: by kv_share, else the longest sequence, or PROA_SEQUENCE_TOKENS for each that may run;
 * and prompt_rows. Makes sequences_max smaller where it was not chosen and recurrent states would take too much. */
void proa_sizes_for_model(proa_sizes *s, const proa_model *m);
/* How many recurrent states there is memory for, if the model has some. */
proa_state_counts proa_sizes_states(const proa_sizes *s);
/* The plan in words, with the option that changes each part: one line without an end, at most PROA_PLAN_TEXT bytes. */
#define PROA_PLAN_TEXT 660
void proa_sizes_describe(char out[PROA_PLAN_TEXT], const proa_sizes *s, const proa_model *m);
/* Pages of the pool, pages of the prefix cache in memory of the host, and entries of one sequence's page table. */
int64_t proa_sizes_pages(const proa_sizes *s);
int64_t proa_sizes_host_pages(const proa_sizes *s, const proa_model *m);
int64_t proa_sizes_table(const proa_model *m);
/* LIMIT if the page tables of all slots have more entries than an int32 counts, by which kernels find them. */
PROA_MUST_CHECK proa_status proa_sizes_check(const proa_sizes *s, const proa_model *m, proa_err *err);
void proa_memory_plan(proa_memory *memory, const proa_sizes *s, const proa_model *m,
                      const proa_tokenizer *tokenizer);
/* NO_MEMORY with the sum, its parts and what would fit, if the model's device has less. */
PROA_MUST_CHECK proa_status proa_memory_check(const proa_memory *memory, const proa_model *m, proa_err *err);

#endif
