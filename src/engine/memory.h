/* SPDX-License-Identifier: Apache-2.0
 * memory.h - how much memory an engine will take, computed before any is taken: proa_engine_open refuses to open a
 * model that does not fit, and proa explain prints the plan. */
#ifndef PROA_ENGINE_MEMORY_H
#define PROA_ENGINE_MEMORY_H

#include "model/model.h"
#include "text/tokenizer.h"

#define PROA_SEQUENCES_DEFAULT   16
#define PROA_STEP_TOKENS_DEFAULT 512
#define PROA_HEAD_ROWS           64  /* rows of logits at once: 32 MB at a vocabulary of 128k */
#define PROA_BEST_ROWS           512 /* rows of logits at once on a device that samples them: 256 MB */
#define PROA_TABLES              3   /* page tables of a slot: its own, the next step's, the encoder's */
#define PROA_SEQUENCE_TOKENS     128 /* tokens planned for each running sequence by default */

/* An engine's options, checked, with defaults filled in. */
typedef struct proa_sizes {
    proa_model_options model;
    int32_t sequences_max;
    int64_t step_tokens, kv_tokens; /* kv_tokens 0: not yet known (it follows from the model) */
    double kv_share;                /* part of the free memory, if kv_tokens is 0; 0: not used */
    int32_t threads;                /* 0: all */
    bool prefix_cache;              /* for models with keys and values */
    bool evicts;                    /* policy max_utilization: running requests can be preempted */
} proa_sizes;

/* In bytes. On a device the total is the device's only; tokenizer, bookkeeping and program are on the host. */
typedef struct proa_memory {
    int64_t weights, activations, scratch, kv, tokenizer, bookkeeping, program, total;
} proa_memory;

/* INVALID names the option, its value and its range. options may be NULL. */
PROA_MUST_CHECK proa_status proa_sizes_make(proa_sizes *s, const proa_engine_options *options, proa_err *err);
/* Fills kv_tokens when it is 0: the longest sequence, or PROA_SEQUENCE_TOKENS for each that may run. */
void proa_sizes_for_model(proa_sizes *s, const proa_model *m);
/* Pages of the pool, and entries of one sequence's page table. */
int64_t proa_sizes_pages(const proa_sizes *s);
int64_t proa_sizes_table(const proa_model *m);
/* LIMIT if the page tables of all slots have more entries than an int32 counts, by which kernels find them. */
PROA_MUST_CHECK proa_status proa_sizes_check(const proa_sizes *s, const proa_model *m, proa_err *err);
void proa_memory_plan(proa_memory *memory, const proa_sizes *s, const proa_model *m,
                      const proa_tokenizer *tokenizer);
/* NO_MEMORY with the sum, its parts and what would fit, if the model's device has less. */
PROA_MUST_CHECK proa_status proa_memory_check(const proa_memory *memory, const proa_model *m, proa_err *err);

#endif
