/* SPDX-License-Identifier: Apache-2.0
 * reply_ft.c - FasterTransformer's outputs: [batch, beams, length], prompt included for GPT, padded with the end
 * token. A stream gives the whole so far with each token. */
#include "backends/llm/contract_ft.h"
#include "backends/llm/tensor_write.h"

#include "base/checked.h"
#include <string.h>

static const proa_ft_request *ft_of(const proa_llm_request *req)
{
    return req->contract_data;
}

/* The type that the configuration gives an output; the usual one where it says nothing. */
static proa_type type_of(const proa_llm_request *req, const char *name, proa_type usual)
{
    proa_type type = proa_config_output_type(proa_served_model_config(req->llm_model->model), name);
    return type == PROA_TYPE_INVALID ? usual : type;
}

static bool is_configured(const proa_llm_request *req, const char *name)
{
    return proa_config_output_type(proa_served_model_config(req->llm_model->model), name) != PROA_TYPE_INVALID;
}

/* Sequence k of a prompt; fewer may have come than there are beams. */
static const proa_llm_output *output_at(const proa_prompt *p, int64_t k)
{
    return k < p->output_count ? &p->output[k] : NULL;
}

static void fill_row(int32_t *to, int64_t width, const proa_id_list *prompt, const proa_llm_output *output)
{
    int64_t at = prompt->len;
    if (at) memcpy(to, prompt->ptr, (size_t)at * sizeof *to);
    int64_t n = output ? proa_min64(output->ids.len, width - at) : 0;
    if (n) memcpy(to + at, output->ids.ptr, (size_t)n * sizeof *to);
}

static void add_ids(proa_llm_request *req, proa_reply *reply)
{
    const proa_ft_request *ft = ft_of(req);
    bool gpt = req->llm_model->variant == PROA_FT_GPT;
    int64_t B = req->count, K = ft->beams, width = ft->output_width + (gpt ? ft->input_width : 0);
    int32_t *ids = PROA_ARENA_NEW(&reply->arena, int32_t, B * K * width);
    int32_t *lengths = PROA_ARENA_NEW(&reply->arena, int32_t, B * K);
    int32_t *inputs = PROA_ARENA_NEW(&reply->arena, int32_t, B * K);
    for (int64_t i = 0; i < B * K; i++) {
        const proa_llm_output *output = output_at(&req->prompts[i / K], i % K);
        const proa_id_list none = {NULL, 0}, *prompt = gpt ? &ft->input[i / K] : &none;
        for (int64_t k = 0; k < width; k++) ids[i * width + k] = ft->end_id[i / K];
        fill_row(ids + i * width, width, prompt, output);
        lengths[i] = (int32_t)((output ? output->ids.len : 0) + prompt->len);
        inputs[i] = (int32_t)ft->input[i / K].len;
    }
    const int64_t each[] = {B, K, width};
    const proa_output_spec outputs[] = {
        {"output_ids", type_of(req, "output_ids", PROA_TYPE_UINT32), each, 3},
        {"sequence_length", type_of(req, "sequence_length", PROA_TYPE_UINT32), each, 2},
        {"response_input_lengths", PROA_TYPE_INT32, each, 2},
    };
    proa_reply_typed_ints(req, reply, &outputs[0], ids);
    proa_reply_typed_ints(req, reply, &outputs[1], lengths);
    if (is_configured(req, outputs[2].name)) proa_reply_typed_ints(req, reply, &outputs[2], inputs);
}

/* Zeros where they were not requested: an ensemble whose configuration maps these outputs waits for all of them. */
static void add_log_probs(proa_llm_request *req, proa_reply *reply)
{
    const proa_ft_request *ft = ft_of(req);
    int64_t B = req->count, K = ft->beams, width = ft->output_width;
    float *sums = is_configured(req, "cum_log_probs")
                      ? proa_reply_floats(req, reply, "cum_log_probs", (int64_t[]){B, K}, 2, 0)
                      : NULL;
    float *each = is_configured(req, "output_log_probs")
                      ? proa_reply_floats(req, reply, "output_log_probs", (int64_t[]){B, K, width}, 3, 0)
                      : NULL;
    for (int64_t i = 0; i < B * K && ft->log_probs; i++) {
        const proa_llm_output *output = output_at(&req->prompts[i / K], i % K);
        if (!output) continue;
        if (sums) sums[i] = (float)output->sum;
        size_t bytes = (size_t)proa_min64((int64_t)output->logprobs.len, width * (int64_t)sizeof(float));
        if (each && bytes) memcpy(each + i * width, output->logprobs.ptr, bytes);
    }
}

static proa_reply *make_generated(proa_llm_request *req)
{
    proa_reply *reply = proa_reply_new(req->infer);
    add_ids(req, reply);
    add_log_probs(req, reply);
    return reply;
}

/* Rows of hidden states, padded with zeros: [batch, columns of input_ids, hidden]. */
static proa_reply *make_hidden(proa_llm_request *req)
{
    proa_reply *reply = proa_reply_new(req->infer);
    int64_t H = req->llm_model->info.hidden, L = ft_of(req)->input_width, B = req->count;
    float *rows = PROA_ARENA_NEW(&reply->arena, float, B *L *H);
    for (int64_t i = 0; i < B; i++) {
        const proa_buf *from = &req->prompts[i].rows;
        if (from->len) memcpy(rows + i * L * H, from->ptr, from->len);
    }
    const proa_output_spec hidden = {"output_hidden_state", type_of(req, "output_hidden_state", PROA_TYPE_FP32),
                                     (int64_t[]){B, L, H}, 3};
    proa_reply_typed_floats(req, reply, &hidden, rows);
    return reply;
}

/* All rows move on in the same steps: the first that still runs speaks for all. */
void proa_ft_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final)
{
    PROA_UNUSED(output);
    PROA_UNUSED(count);
    int64_t first = 0;
    while (first < req->count && req->prompts[first].finish != PROA_FINISH_NONE) first++;
    bool speaks = first < req->count && &req->prompts[first] == p;
    if (final || (speaks && p->finish == PROA_FINISH_NONE)) proa_llm_reply(req, make_generated(req), final);
}

void proa_ft_end(proa_llm_request *req)
{
    bool generates = req->llm_model->variant <= PROA_FT_T5;
    proa_llm_reply(req, generates ? make_generated(req) : make_hidden(req), true);
}
