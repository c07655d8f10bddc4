/* SPDX-License-Identifier: Apache-2.0
 * tasks.h - the prompt tables that a folder of FasterTransformer has beside its model: num_tasks of them, of the kind
 * prompt_learning_type of config.ini. The section task_N has name and length of task N.
 * Owner:   proa_task_tables_open to proa_task_tables_close; names and views live as long. */
#ifndef PROA_WEIGHTS_TASKS_H
#define PROA_WEIGHTS_TASKS_H

#include "weights/weights.h"

typedef struct proa_task_table {
    const char *name;
    int64_t tokens; /* 0: the task has no table */
    /* [tokens][columns]: input embeddings; or of each layer the keys of all heads, then the values */
    proa_tensor_source table;
} proa_task_table;

typedef struct proa_task_tables {
    proa_weights *files;   /* that the tables are in; NULL: there are none */
    proa_task_table *task; /* [count] by their numbers; in the arena of `files` */
    int32_t count;
    bool keys; /* tables of keys and values (prefix_prompt), not of input embeddings (p_prompt_tuning) */
    int64_t start_id; /* ids of prompts from this one on are rows of the tables; -1: config.ini does not say it */
} proa_task_tables;

/* Empty for a folder of another form. INVALID, LIMIT, NOT_FOUND, CORRUPT or UNSUPPORTED in one line. */
PROA_MUST_CHECK proa_status proa_task_tables_open(proa_task_tables *out, const char *dir, proa_err *err);
void proa_task_tables_close(proa_task_tables *tasks);

#endif
