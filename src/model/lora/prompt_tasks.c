/* SPDX-License-Identifier: Apache-2.0
 * prompt_tasks.c - prompt tables out of a model's own folder (weights/tasks.h). */
#include "base/alloc.h"
#include "model/lora/prompt_table.h"
#include "weights/tasks.h"

#include <stdlib.h>

/* The files' sizes are those that config.ini says, and so are the model's. */
static proa_status read_table(proa_prompt_table **out, const proa_model *m, const proa_task_table *task,
                              bool keys, proa_err *err)
{
    PROA_TRY(proa_prompt_table_new(out, m, task->tokens, keys, err));
    proa_prompt_table *table = *out;
    int64_t layers = keys ? m->config.layers : 1;
    PROA_ASSERT(task->table.view.shape[1] == layers * table->width);
    for (int64_t t = 0; t < table->tokens; t++)
        for (int64_t l = 0; l < layers; l++)
            proa_tensor_source_read(&task->table, t, l * table->width, table->width,
                                    table->values + (l * table->tokens + t) * table->width);
    return PROA_OK;
}

static proa_status read_tasks(proa_prompt_tasks *out, const proa_model *m, const proa_task_tables *from,
                              proa_err *err)
{
    out->task = proa_calloc((size_t)from->count, sizeof *out->task);
    out->keys = from->keys;
    for (; out->count < from->count; out->count++) {
        const proa_task_table *task = &from->task[out->count];
        proa_prompt_task *to = &out->task[out->count];
        to->name = proa_strdup(task->name), to->tokens = task->tokens;
        if (task->tokens == 0) continue;
        proa_status status = read_table(&to->table, m, task, from->keys, err);
        if (status != PROA_OK) return out->count++, proa_err_prefix(err, "task '%s'", task->name), status;
    }
    return proa_weights_check(from->files, err);
}

proa_status proa_prompt_tasks_read(proa_prompt_tasks *out, const proa_model *m, const char *path, proa_err *err)
{
    proa_task_tables tasks;
    *out = (proa_prompt_tasks){.start_id = -1};
    PROA_TRY(proa_task_tables_open(&tasks, path, err));
    out->start_id = tasks.start_id;
    proa_status status = tasks.count ? read_tasks(out, m, &tasks, err) : PROA_OK;
    proa_task_tables_close(&tasks);
    if (status == PROA_OK) return PROA_OK;
    proa_err_prefix(err, "%s", path);
    proa_prompt_tasks_release(out);
    return status;
}

void proa_prompt_tasks_release(proa_prompt_tasks *tasks)
{
    for (int32_t i = 0; i < tasks->count; i++) {
        proa_prompt_table_free(tasks->task[i].table);
        free(tasks->task[i].name);
    }
    free(tasks->task);
    *tasks = (proa_prompt_tasks){.start_id = -1};
}
