/* SPDX-License-Identifier: Apache-2.0
 * request_rows.c - rows of a request in memory of the caller (proa_request_rows); encoder outputs and input embeddings
 *                  on a GPU. */
#include "engine/request_rows.h"

#include "engine/engine.h"
#include <string.h>

/* ---- checks ---- */

static proa_status check_memory(const proa_engine *e, const char *what, const proa_tensor_memory *memory,
                                proa_err *err)
{
    int32_t gpu = e->model->device->gpu;
    if (memory->kind == PROA_MEMORY_HOST) return PROA_OK;
    if (memory->kind != PROA_MEMORY_CUDA)
        return PROA_FAIL(err, INVALID, "%s: 'kind' of memory is %d, must be 0 (host) or 1 (CUDA)", what,
                         (int)memory->kind);
    if (gpu < 0)
        return PROA_FAIL(err, INVALID, "%s: memory of cuda:%d, the model runs on the CPU", what, memory->gpu);
    if (memory->gpu != gpu)
        return PROA_FAIL(err, INVALID, "%s: memory of cuda:%d, the model runs on cuda:%d", what, memory->gpu,
                         gpu);
    if (e->model->ranks > 1)
        return PROA_FAIL(err, UNSUPPORTED, "%s: memory of cuda:%d, a model of %d ranks takes the host's",
                         what, gpu, e->model->ranks);
    return PROA_OK;
}

static proa_status check_generate(const proa_request *r, proa_err *err)
{
    const proa_request_rows *rows = &r->rows;
    if (r->task != PROA_TASK_GENERATE)
        return PROA_FAIL(err, INVALID, "rows: logits and scores are of requests that generate");
    if (rows->steps < 1 || rows->stride < 1)
        return PROA_FAIL(err, INVALID, "rows: 'steps' is %lld and 'stride' %lld, must be at least 1",
                         (long long)rows->steps, (long long)rows->stride);
    if (r->options.penalty_alpha > 0)
        return PROA_FAIL(err, UNSUPPORTED, "rows: contrastive search has no logits and scores");
    if (r->options.best_of > 1 && r->options.best_of > r->options.n)
        return PROA_FAIL(err, UNSUPPORTED, "rows: 'best_of' has no logits and scores");
    return PROA_OK;
}

proa_status proa_request_rows_check(const proa_engine *e, const proa_request *r, proa_err *err)
{
    const proa_request_rows *rows = &r->rows;
    if (r->encoder_outputs) PROA_TRY(check_memory(e, "encoder_outputs", &r->encoder_outputs_memory, err));
    if (r->prompt_table) PROA_TRY(check_memory(e, "prompt_table", &r->prompt_table_memory, err));
    if (rows->hidden && r->task != PROA_TASK_ENCODE)
        return PROA_FAIL(err, INVALID, "rows: hidden states are of the task encode");
    if (rows->hidden && proa_arch_projects(e->model->arch))
        return PROA_FAIL(err, UNSUPPORTED, "rows: the hidden states of a %s are made by its head: ask for rows",
                         e->model->arch->name);
    if (rows->logits || rows->scores) PROA_TRY(check_generate(r, err));
    if (!rows->logits && !rows->scores && !rows->hidden) return PROA_OK;
    return check_memory(e, "rows", &rows->memory, err);
}

/* ---- order with the caller's work ---- */

enum { MEMORIES = 3 };

/* The caller's memory that a request reads or writes. */
static void list_memories(const proa_tensor_memory *all[MEMORIES], const proa_engine_request *req)
{
    all[0] = &req->rows.memory, all[1] = &req->input.memory, all[2] = &req->table_memory;
}

void proa_request_rows_begin(proa_engine *e, const proa_engine_request *req)
{
    const proa_tensor_memory *all[MEMORIES];
    proa_device *d = e->model->device;
    list_memories(all, req);
    for (int i = 0; i < MEMORIES; i++)
        if (all[i]->kind == PROA_MEMORY_CUDA) d->wait_for_stream(d, all[i]->stream);
}

void proa_request_rows_end(proa_engine *e, const proa_engine_request *req)
{
    const proa_tensor_memory *all[MEMORIES];
    proa_device *d = e->model->device;
    list_memories(all, req);
    for (int i = 0; i < MEMORIES; i++)
        if (all[i]->kind == PROA_MEMORY_CUDA) d->make_stream_wait(d, all[i]->stream);
}

/* ---- rows ---- */

float *proa_request_row(const proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                        int32_t sequence)
{
    int64_t columns = e->model->plan.width[PROA_REG_OUT];
    return rows && step < req->rows.steps ? rows + (step * req->rows.stride + sequence) * columns : NULL;
}

void proa_request_row_put(proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                          int32_t sequence, const float *values)
{
    proa_device *d = e->model->device;
    float *to = proa_request_row(e, req, rows, step, sequence);
    int64_t bytes = e->model->plan.width[PROA_REG_OUT] * (int64_t)sizeof *values;
    if (!to || !values) return;
    if (req->rows.memory.kind == PROA_MEMORY_CUDA) d->upload(d, to, values, bytes);
    else memcpy(to, values, (size_t)bytes);
}
