/* SPDX-License-Identifier: Apache-2.0
 * ft_tasks.c - prompt tables of a folder of FasterTransformer: model.prompt_table.NAME.weight.bin [tokens][hidden] of
 * p-tuning; of prefix tuning model.prefix_prompt.NAME.weight.RANK.bin [layers][2][heads / ranks][tokens][head], keys
 * and values as attention reads them.
 * Facts: NVIDIA/FasterTransformer, examples/pytorch/{gpt,t5}/utils/nemo_*ckpt_convert.py,
 * examples/pytorch/gptneox/utils/huggingface_jp_gptneox_convert.py, src/fastertransformer/models/gptj/GptJWeight.cc. */
#include "base/alloc.h"
#include "base/checked.h"
#include "weights/ft.h"
#include "weights/tasks.h"

#include <stdio.h>
#include <string.h>

/* FasterTransformer's PromptLearningType. A soft prompt comes with a request. */
enum { NO_PROMPT, SOFT_PROMPT, PREFIX_PROMPT, P_PROMPT_TUNING };

/* Learned positions and T5's are counted with a prefix or without: FasterTransformer has prefixes of these. */
static bool takes_prefixes(const char *section)
{
    return strcmp(section, "gptj") == 0 || strcmp(section, "gptneox") == 0;
}

/* ---- config.ini ---- */

static proa_status read_kind(const proa_ft *ft, const char *section, proa_task_tables *out)
{
    int64_t count = 0, type = NO_PROMPT, start = -1;
    PROA_TRY(proa_ini_int(&ft->ini, section, "num_tasks", 0, PROA_LORA_ADAPTERS_MAX, &count, ft->err));
    PROA_TRY(proa_ini_int(&ft->ini, section, "prompt_learning_type", NO_PROMPT, P_PROMPT_TUNING, &type, ft->err));
    PROA_TRY(proa_ini_int(&ft->ini, section, "prompt_learning_start_id", 0, INT32_MAX, &start, ft->err));
    if (type == P_PROMPT_TUNING) out->start_id = start; /* no id of a prompt stands for a token of a prefix */
    if (count == 0 || type == NO_PROMPT || type == SOFT_PROMPT) return PROA_OK;
    if (type == PREFIX_PROMPT && !takes_prefixes(section))
        return FAIL_FT(ft, UNSUPPORTED, "[%s] prompt_learning_type is 2 (prefix_prompt), which %s have",
                       section, "[gptj] and [gptneox]");
    out->keys = type == PREFIX_PROMPT;
    out->count = (int32_t)count;
    out->task = PROA_ARENA_NEW(&ft->w->arena, proa_task_table, count);
    return PROA_OK;
}

/* The name is a part of a file's. */
static proa_status check_name(const proa_ft *ft, const char *section, proa_str name)
{
    bool plain = name.len > 0 && name.len < PROA_FT_NAME_MAX / 2;
    for (size_t i = 0; plain && i < name.len; i++)
        plain = (unsigned char)name.ptr[i] >= ' ' && name.ptr[i] != '/';
    if (plain) return PROA_OK;
    return FAIL_FT(ft, INVALID, "[%s] task_name must be 1 to %d characters of a file's name", section,
                   PROA_FT_NAME_MAX / 2 - 1);
}

/* Some converters put the model's section before that of a task. */
static proa_status read_task(const proa_ft *ft, const char *model, int32_t number, proa_task_table *task)
{
    char section[64];
    proa_str name = {"", 0};
    snprintf(section, sizeof section, "task_%d", number);
    if (!proa_ini_has_section(&ft->ini, section))
        snprintf(section, sizeof section, "%s_task_%d", model, number);
    if (!proa_ini_find(&ft->ini, section, "task_name", &name))
        return FAIL_FT(ft, INVALID, "[task_%d] has no task_name", number);
    PROA_TRY(check_name(ft, section, name));
    task->name = proa_arena_strdup(&ft->w->arena, name);
    return proa_ini_int(&ft->ini, section, "prompt_length", 0, PROA_CONTEXT_MAX, &task->tokens, ft->err);
}

/* ---- tables ---- */

static proa_status open_embeddings(proa_ft *ft, proa_task_table *task)
{
    char name[PROA_FT_NAME_MAX];
    const char *data = NULL;
    int64_t columns = ft->dim[PROA_FT_HIDDEN];
    int32_t file;
    snprintf(name, sizeof name, "model.prompt_table.%s.weight.bin", task->name);
    PROA_TRY(proa_ft_open_file(ft, name, task->tokens * columns, &data, &file));
    task->table = proa_tensor_source_of(proa_view_2d((void *)(uintptr_t)data, ft->dtype, task->tokens, columns));
    return PROA_OK;
}

static void prefix_file(char name[PROA_FT_NAME_MAX], const proa_task_table *task, int32_t rank)
{
    snprintf(name, PROA_FT_NAME_MAX, "model.prefix_prompt.%s.weight.%d.bin", task->name, rank);
}

/* The ranks that have a file of the task. */
static proa_status count_ranks(const proa_ft *ft, const proa_task_table *task, int32_t *ranks)
{
    char name[PROA_FT_NAME_MAX];
    int64_t heads = ft->dim[PROA_FT_HEADS];
    for (*ranks = 0; *ranks <= PROA_FT_RANKS_MAX; ++*ranks) {
        prefix_file(name, task, *ranks);
        if (!proa_ft_has_file(ft, name)) break;
    }
    if (*ranks == 0) return FAIL_FT(ft, NOT_FOUND, "the folder has no file %s", name);
    if (*ranks <= PROA_FT_RANKS_MAX && heads % *ranks == 0) return PROA_OK;
    return FAIL_FT(ft, INVALID, "task '%s': %lld heads cannot be shared by %d ranks", task->name,
                   (long long)heads, *ranks);
}

/* A rank's file: for each of its heads, keys and values of each layer apart, [tokens][head]. */
static proa_status add_prefix_of_rank(proa_ft *ft, const proa_task_table *task, int32_t rank, int32_t ranks,
                                      proa_tensor_pieces *pieces, proa_tensor_piece *piece)
{
    char name[PROA_FT_NAME_MAX];
    const char *data = NULL;
    int64_t heads = ft->dim[PROA_FT_HEADS], own = heads / ranks, head = ft->dim[PROA_FT_HIDDEN] / heads;
    int64_t parts = 2 * ft->dim[PROA_FT_LAYERS], numbers = task->tokens * head;
    int32_t file;
    prefix_file(name, task, rank);
    PROA_TRY(proa_ft_open_file(ft, name, parts * own * numbers, &data, &file));
    for (int64_t i = 0; i < parts * own; i++) {
        const char *at = data + i * numbers * proa_dtype_bytes(ft->dtype);
        proa_tensor_piece *p = &piece[pieces->count++];
        p->view = proa_view_2d((void *)(uintptr_t)at, ft->dtype, task->tokens, head);
        p->col = (i / own * heads + rank * own + i % own) * head;
    }
    return PROA_OK;
}

static proa_status open_prefix(proa_ft *ft, proa_task_table *task)
{
    int64_t heads = ft->dim[PROA_FT_HEADS], parts = 2 * ft->dim[PROA_FT_LAYERS];
    int64_t columns = parts * ft->dim[PROA_FT_HIDDEN];
    int32_t ranks;
    PROA_TRY(count_ranks(ft, task, &ranks));
    proa_tensor_piece *piece = PROA_ARENA_NEW(&ft->w->arena, proa_tensor_piece, parts * heads);
    proa_tensor_pieces *pieces = PROA_ARENA_NEW(&ft->w->arena, proa_tensor_pieces, 1);
    *pieces = (proa_tensor_pieces){.cols = columns, .piece = piece};
    for (int32_t rank = 0; rank < ranks; rank++)
        PROA_TRY(add_prefix_of_rank(ft, task, rank, ranks, pieces, piece));
    task->table = proa_tensor_source_of(proa_view_2d(pieces, ft->dtype, task->tokens, columns));
    task->table.encoding = PROA_ENCODING_PIECES;
    return PROA_OK;
}

/* ---- the folder ---- */

static proa_status read_tasks(proa_ft *ft, proa_buf *text, void *arg)
{
    proa_task_tables *out = arg;
    const proa_ft_model *model;
    PROA_TRY(proa_ft_read_model(ft, &model, text));
    PROA_TRY(read_kind(ft, model->section, out));
    for (int32_t i = 0; i < out->count; i++) {
        proa_task_table *task = &out->task[i];
        PROA_TRY(read_task(ft, model->section, i, task));
        if (task->tokens == 0) continue;
        PROA_TRY(out->keys ? open_prefix(ft, task) : open_embeddings(ft, task));
    }
    return PROA_OK;
}

proa_status proa_task_tables_open(proa_task_tables *out, const char *dir, proa_err *err)
{
    *out = (proa_task_tables){.start_id = -1};
    if (!proa_weights_is_ft(dir)) return PROA_OK;
    out->files = proa_weights_new();
    proa_status status = proa_ft_open(out->files, dir, "config.ini", read_tasks, out, err);
    if (status != PROA_OK) proa_task_tables_close(out);
    return status;
}

void proa_task_tables_close(proa_task_tables *tasks)
{
    proa_weights_close(tasks->files);
    *tasks = (proa_task_tables){.start_id = -1};
}
