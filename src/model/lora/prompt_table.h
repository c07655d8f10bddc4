/* SPDX-License-Identifier: Apache-2.0
 * prompt_table.h - prompt tables: trained numbers that come before a prompt, or stand in it, in place of tokens of the
 * vocabulary. A row of a table is a virtual token. There are two kinds:
 *
 *   input embeddings   a row takes the place of a row of the model's embedding table (prompt tuning, Lester et al.
 *                      2021; p-tuning, Liu et al. 2021, of which checkpoints hold what its encoder has made)
 *   keys and values    a row is what attention reads of the token in each layer, rotated already (prefix tuning, Li
 *                      and Liang 2021); nothing is computed for it
 *
 * Of an encoder-decoder input embeddings are the encoder's, keys and values those of the decoder's self-attention.
 * Owner:   the caller, from proa_prompt_table_new or proa_prompt_table_read to proa_prompt_table_free.
 * Threads: a table does not change. proa_prompt_table_write is the stepping thread's. */
#ifndef PROA_MODEL_LORA_PROMPT_TABLE_H
#define PROA_MODEL_LORA_PROMPT_TABLE_H

#include "model/model.h"

typedef struct proa_prompt_table {
    int64_t tokens, width;
    bool keys; /* of keys and values */
    /* Input embeddings in memory of the device on which the model runs, which the table does not own; NULL: they are in
     * `values`, which are absent otherwise. */
    const float *device_values;
    /* Input embeddings: [tokens][width]. Keys and values: [layers][tokens][width], of a layer the keys of all heads,
     * then the values. */
    float values[];
} proa_prompt_table;

/* Numbers of one token, in one layer if the table is one of keys and values. */
int64_t proa_prompt_table_width(const proa_model *m, bool keys);
/* LIMIT if a table has too many tokens; UNSUPPORTED if the model takes none of this kind. */
PROA_MUST_CHECK proa_status proa_prompt_table_check(const proa_model *m, int64_t tokens, bool keys,
                                                    proa_err *err);
/* An empty table for the model, with these checks. */
PROA_MUST_CHECK proa_status proa_prompt_table_new(proa_prompt_table **out, const proa_model *m,
                                                  int64_t tokens, bool keys, proa_err *err);
void proa_prompt_table_free(proa_prompt_table *table); /* NULL is fine */
/* Numbers in it. */
int64_t proa_prompt_table_count(const proa_model *m, const proa_prompt_table *table);

/* Whether PEFT's `peft_type` is one of a prompt table. */
bool proa_prompt_table_is_type(proa_str peft_type);
/* From an adapter_config.json of such a type and its tensors; what: for errors, which name the key or the tensor. */
PROA_MUST_CHECK proa_status proa_prompt_table_read(proa_prompt_table **out, const proa_model *m,
                                                   const proa_weights *tensors, const proa_json *config,
                                                   const char *what, proa_err *err);

/* ---- prompt_tasks.c: tables that the model's own folder has ---- */

typedef struct proa_prompt_task {
    char *name;
    int64_t tokens; /* 0: it has no table */
    proa_prompt_table *table;
} proa_prompt_task;

/* FasterTransformer's tasks, which requests name by their numbers. */
typedef struct proa_prompt_tasks {
    proa_prompt_task *task; /* [count] */
    int32_t count;
    bool keys;        /* their tables are of keys and values */
    int64_t start_id; /* ids of its prompts from this one on are rows of a table; -1: the folder does not say it */
} proa_prompt_tasks;

/* Those of a folder; none, if it is of another form. Errors have one line with the file or the key. */
PROA_MUST_CHECK proa_status proa_prompt_tasks_read(proa_prompt_tasks *out, const proa_model *m,
                                                   const char *path, proa_err *err);
void proa_prompt_tasks_release(proa_prompt_tasks *tasks); /* all zero is fine; a table may have been taken out of it */

/* ---- ranks/model_calls.c: into pages ---- */

/* Writes the keys and values of tokens [first, end) into the pages of a sequence, in order with the passes, in each
 * rank those of its heads and layers. kv: as in
 * proa_model_decode. pages: those of the sequence, which has pages for `end` tokens. */
void proa_prompt_table_write(proa_model *m, const proa_kv *kv, const proa_prompt_table *table, int64_t first,
                             int64_t end, const int32_t *pages);

#endif
