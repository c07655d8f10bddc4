/* SPDX-License-Identifier: Apache-2.0
 * place.c - outputs of an encoder that stay on its GPU, for a step of an ensemble that reads them there. The engine
 *           writes each row to its place in one buffer of the request (proa_request.head_to). */
#include "backends/llm/llm.h"

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

static size_t bytes_of(const proa_llm_request *req)
{
    return (size_t)(req->count * req->llm_model->info.outputs) * sizeof(float);
}

void proa_llm_places_take(proa_llm_request *req)
{
    proa_llm_model *s = req->llm_model;
    proa_err err = {.status = PROA_OK};
    if (!s->gpu.device || !req->infer->device_replies || req->infer->generation) return;
    proa_llm_place place = s->contract->places(req);
    if (place == PROA_LLM_PLACE_HOST || proa_gpu_buffer(&s->gpu, &req->rows, bytes_of(req), &err) != PROA_OK)
        return; /* without memory there the rows go to the host */
    for (int64_t i = 0; i < req->count; i++) {
        float *to = (float *)(void *)req->rows->data + i * s->info.outputs;
        if (place == PROA_LLM_PLACE_HEAD) req->prompts[i].request.head_to = to;
        else req->prompts[i].request.pooled_to = to;
    }
}

/* The probabilities of rows of logits, in a new buffer. */
static proa_status compute_scores(proa_llm_model *s, const proa_llm_request *req, proa_buffer **out, proa_err *err)
{
    int64_t width = s->info.outputs;
    PROA_TRY(proa_gpu_buffer(&s->gpu, out, bytes_of(req), err));
    const proa_elements e = {.op = PROA_MAP_SIGMOID,
                             .args = 1,
                             .data = {req->rows->data},
                             .type = {PROA_ELEMENT_F32},
                             .out = (*out)->data,
                             .out_type = PROA_ELEMENT_F32,
                             .count = req->count * width};
    pthread_mutex_lock(&s->gpu_lock);
    proa_gpu_stream_begin(&s->gpu);
    if (s->scores == PROA_SCORES_SIGMOID) s->gpu.ops->map_elements(&s->gpu.ctx, &e);
    else s->gpu.ops->softmax_elements(&s->gpu.ctx, &e, width);
    proa_status status = proa_gpu_stream_wait(&s->gpu, err);
    pthread_mutex_unlock(&s->gpu_lock);
    if (status != PROA_OK) proa_buffer_drop(*out);
    return status;
}

proa_status proa_llm_places_scores(proa_llm_request *req, proa_buffer **out, proa_err *err)
{
    *out = NULL;
    if (req->llm_model->scores != PROA_SCORES_PLAIN) return compute_scores(req->llm_model, req, out, err);
    *out = proa_buffer_hold(req->rows);
    return PROA_OK;
}
