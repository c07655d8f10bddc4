/* SPDX-License-Identifier: Apache-2.0
 * place.c - outputs of an encoder that stay on its GPU, for a step of an ensemble that reads them there. The engine
 *           writes each row to its place in one buffer of the request (proa_request.head_to). */
#include "backends/llm/contract.h"

#include "base/checked.h"
#include "kernels/elements.h"

/* ---- the GPU ---- */

/* The GPU that all replicas are on; -1: they are on several, or on the host. */
static int32_t common_gpu(const proa_llm_model *s)
{
    for (int32_t i = 1; i < proa_fleet_count(s->fleet); i++) {
        proa_info info;
        proa_engine_info(proa_fleet_engine(s->fleet, i), &info);
        if (info.gpu != s->info.gpu) return -1;
    }
    return s->info.gpu;
}

void proa_llm_places_open(proa_llm_model *s)
{
    proa_err err = {.status = PROA_OK};
    int32_t gpu = s->info.kind == PROA_KIND_ENCODER && s->contract->places ? common_gpu(s) : -1;
    if (gpu < 0 || proa_gpu_stream_open(&s->gpu, gpu, &err) == PROA_OK) return;
    PROA_LOG(WARNING, "model '%s': outputs are copied to the host, since %s",
             proa_served_model_name(s->model), err.text);
}

void proa_llm_places_close(proa_llm_model *s)
{
    proa_gpu_stream_close(&s->gpu);
}

/* ---- a request ---- */

static size_t bytes_of(const proa_llm_request *req, int64_t rows)
{
    return (size_t)(rows * req->llm_model->info.outputs) * sizeof(float);
}

/* Where the rows of each prompt begin. False: one has no row, so there would be nothing to pool. */
static bool find_rows(proa_llm_request *req, proa_llm_place place)
{
    req->rows_first = PROA_ARENA_NEW(&req->infer->arena, int64_t, req->count + 1);
    for (int64_t i = 0; i < req->count; i++) {
        int64_t rows = place == PROA_LLM_PLACE_ROWS ? req->prompts[i].request.ids_count : 1;
        if (rows < 1) return false;
        req->rows_first[i + 1] = req->rows_first[i] + rows;
    }
    return true;
}

void proa_llm_places_take(proa_llm_request *req)
{
    proa_llm_model *s = req->llm_model;
    proa_err err = {.status = PROA_OK};
    if (!s->gpu.device || !req->infer->device_replies || req->infer->generation) return;
    proa_llm_place place = s->contract->places(req);
    if (place == PROA_LLM_PLACE_HOST || !find_rows(req, place)) return;
    if (proa_gpu_buffer(&s->gpu, &req->rows, bytes_of(req, req->rows_first[req->count]), &err) != PROA_OK)
        return; /* without memory there the rows go to the host */
    for (int64_t i = 0; i < req->count; i++) {
        proa_request *r = &req->prompts[i].request;
        float *to = (float *)(void *)req->rows->data + req->rows_first[i] * s->info.outputs;
        if (place == PROA_LLM_PLACE_HEAD) r->head_to = to;
        else if (place == PROA_LLM_PLACE_POOLED) r->pooled_to = to;
        else r->rows_to = to, r->task = PROA_TASK_ROWS; /* hidden states, which these rows are */
    }
}

static void launch_scores(proa_llm_model *s, const proa_llm_request *req, proa_buffer *out)
{
    int64_t width = s->info.outputs;
    const proa_elements e = {.op = PROA_MAP_SIGMOID,
                             .args = 1,
                             .data = {req->rows->data},
                             .type = {PROA_ELEMENT_F32},
                             .out = out->data,
                             .out_type = PROA_ELEMENT_F32,
                             .count = req->count * width};
    if (s->scores == PROA_SCORES_SIGMOID) s->gpu.ops->map_elements(&s->gpu.ctx, &e);
    else s->gpu.ops->softmax_elements(&s->gpu.ctx, &e, width);
}

proa_status proa_llm_places_scores(proa_llm_request *req, proa_buffer **out, proa_err *err)
{
    proa_llm_model *s = req->llm_model;
    if (s->scores == PROA_SCORES_PLAIN) {
        *out = proa_buffer_hold(req->rows);
        return PROA_OK;
    }
    PROA_TRY(proa_gpu_buffer(&s->gpu, out, bytes_of(req, req->count), err));
    pthread_mutex_lock(&s->gpu_lock);
    proa_gpu_stream_begin(&s->gpu);
    launch_scores(s, req, *out);
    proa_status status = proa_gpu_stream_wait(&s->gpu, err);
    pthread_mutex_unlock(&s->gpu_lock);
    if (status != PROA_OK) proa_buffer_drop(*out), *out = NULL;
    return status;
}

/* Under gpu_lock. first: where the rows of each prompt begin, on the GPU. */
static proa_status run_pool(proa_llm_request *req, proa_pool_mode mode, bool unit, proa_buffer *out, proa_err *err)
{
    proa_gpu_stream *g = &req->llm_model->gpu;
    proa_buffer *first;
    proa_gpu_stream_begin(g);
    PROA_TRY(proa_gpu_upload(g, &first, req->rows_first, (size_t)(req->count + 1) * sizeof *req->rows_first, err));
    g->ops->pool_rows(&g->ctx, (float *)(void *)out->data, (const float *)(const void *)req->rows->data,
                      (const int64_t *)(const void *)first->data, req->count, req->llm_model->info.outputs,
                      mode, unit);
    proa_status status = proa_gpu_stream_wait(g, err);
    proa_buffer_drop(first);
    return status;
}

proa_status proa_llm_places_pool(proa_llm_request *req, proa_pool_mode mode, bool unit, proa_buffer **out,
                                 proa_err *err)
{
    proa_llm_model *s = req->llm_model;
    PROA_TRY(proa_gpu_buffer(&s->gpu, out, bytes_of(req, req->count), err));
    pthread_mutex_lock(&s->gpu_lock);
    proa_status status = run_pool(req, mode, unit, *out, err);
    pthread_mutex_unlock(&s->gpu_lock);
    if (status != PROA_OK) proa_buffer_drop(*out), *out = NULL;
    return status;
}
