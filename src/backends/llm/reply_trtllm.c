/* SPDX-License-Identifier: Apache-2.0
 * reply_trtllm.c - TensorRT-LLM's outputs: [batch, beams, length] without the end token, padded with -1. Outputs
 * that are configured but were not requested are one zero: an ensemble that maps them waits for all of them. */
#include "backends/llm/tensor_write.h"
#include "backends/llm/contract_trtllm.h"

#include "base/checked.h"
#include "base/limits.h"
#include <string.h>

/* The contents of one reply: rows of the batch, each with K sequences. */
typedef struct answer {
    proa_llm_request *req;
    const proa_trtllm_request *trtllm;
    proa_reply *reply;
    proa_prompt *const *p;          /* [B] */
    proa_llm_output *const *output; /* [B] each K in a row; fewer may have come: counts */
    const int32_t *counts;          /* [B] */
    int64_t B, K;
    bool part; /* of a stream: tokens that are new */
    bool last; /* of its prompts */
} answer;

static const proa_trtllm_prompt *trtllm_prompt_of(const answer *a, int64_t row)
{
    return &a->trtllm->prompt[a->p[row]->row];
}

static const proa_llm_output *output_at(const answer *a, int64_t i)
{
    return i % a->K < a->counts[i / a->K] ? a->output[i / a->K] + i % a->K : NULL;
}

static bool is_wanted(const answer *a, const char *name, proa_type *type)
{
    *type = proa_config_output_type(proa_served_model_config(a->req->llm_model->model), name);
    return *type != PROA_TYPE_INVALID && proa_infer_wants(a->req->infer, name);
}

/* Shapes lose their batch dimension where the configuration has none. */
static void add_ints(const answer *a, const char *name, const int64_t *shape, int32_t rank, const int32_t *from)
{
    proa_type type;
    int skip = !a->trtllm->batched;
    if (is_wanted(a, name, &type))
        proa_reply_typed_ints(a->req, a->reply, &(proa_output_spec){name, type, shape + skip, rank - skip}, from);
}

static void add_floats(const answer *a, const char *name, const int64_t *shape, int32_t rank, const float *from)
{
    proa_type type;
    int skip = !a->trtllm->batched;
    if (is_wanted(a, name, &type))
        proa_reply_typed_floats(a->req, a->reply, &(proa_output_spec){name, type, shape + skip, rank - skip},
                                from);
}

/* ---- tokens ---- */

/* The prompt comes before the tokens, except in a stream. */
static const proa_id_list *head_of(const answer *a, int64_t row)
{
    static const proa_id_list none;
    const proa_prompt *p = a->p[row];
    if (a->part || trtllm_prompt_of(a, row)->exclude_input) return &none;
    return p->req->llm_model->info.kind == PROA_KIND_ENCODER_DECODER ? &p->decoder_ids : &p->ids;
}

static void add_ids(const answer *a)
{
    int64_t n = a->B * a->K, width = 0;
    int32_t *lengths = PROA_ARENA_NEW(&a->reply->arena, int32_t, n);
    for (int64_t i = 0; i < n; i++) {
        const proa_llm_output *output = output_at(a, i);
        lengths[i] = (int32_t)(head_of(a, i / a->K)->len + (output ? proa_llm_visible_tokens(output) : 0));
        width = proa_max64(width, lengths[i]);
    }
    int32_t *ids = PROA_ARENA_NEW(&a->reply->arena, int32_t, n * width);
    for (int64_t i = 0; i < n * width; i++) ids[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        const proa_id_list *head = head_of(a, i / a->K);
        const proa_llm_output *output = output_at(a, i);
        int64_t visible = output ? proa_llm_visible_tokens(output) : 0;
        if (head->len) memcpy(ids + i * width, head->ptr, (size_t)head->len * sizeof *ids);
        if (visible) memcpy(ids + i * width + head->len, output->ids.ptr, (size_t)visible * sizeof *ids);
    }
    add_ints(a, "output_ids", (int64_t[]){a->B, a->K, width}, 3, ids);
    add_ints(a, "sequence_length", (int64_t[]){a->B, a->K}, 2, lengths);
}

static int64_t widest_output(const answer *a)
{
    int64_t width = 0;
    for (int64_t i = 0; i < a->B * a->K; i++)
        if (output_at(a, i)) width = proa_max64(width, proa_llm_visible_tokens(output_at(a, i)));
    return width;
}

static void add_log_probs(const answer *a)
{
    int64_t n = a->B * a->K, width = widest_output(a);
    float *sums = PROA_ARENA_NEW(&a->reply->arena, float, n),
          *each = PROA_ARENA_NEW(&a->reply->arena, float, n *width);
    for (int64_t i = 0; i < n; i++) {
        const proa_llm_output *output = output_at(a, i);
        if (!output || !trtllm_prompt_of(a, i / a->K)->log_probs) continue;
        sums[i] = (float)output->sum;
        int64_t have = proa_min64(proa_llm_visible_tokens(output),
                                  (int64_t)(output->logprobs.len / sizeof(float)));
        if (have) memcpy(each + i * width, output->logprobs.ptr, (size_t)have * sizeof(float));
    }
    add_floats(a, "cum_log_probs", (int64_t[]){a->B, a->K}, 2, sums);
    add_floats(a, "output_log_probs", (int64_t[]){a->B, a->K, width}, 3, each);
}

/* ---- logits ---- */

static void add_context_logits(const answer *a)
{
    int64_t V = 1, L = 1;
    const float zero = 0;
    for (int64_t i = 0; i < a->B; i++) {
        if (!trtllm_prompt_of(a, i)->context_logits || !a->last || !a->p[i]->rows.len) continue;
        V = a->p[i]->columns;
        L = proa_max64(L, (int64_t)(a->p[i]->rows.len / sizeof(float)) / V);
    }
    if (V == 1) {
        add_floats(a, "context_logits", (int64_t[]){1, 1, 1}, 3, &zero);
        return;
    }
    float *all = PROA_ARENA_NEW(&a->reply->arena, float, a->B *L *V);
    for (int64_t i = 0; i < a->B; i++)
        if (trtllm_prompt_of(a, i)->context_logits && a->p[i]->rows.len)
            memcpy(all + i * L * V, a->p[i]->rows.ptr, a->p[i]->rows.len);
    add_floats(a, "context_logits", (int64_t[]){a->B, L, V}, 3, all);
}

static void add_generation_logits(const answer *a)
{
    int64_t n = a->B * a->K, width = widest_output(a), V = a->req->llm_model->info.outputs;
    const float zero = 0;
    bool any = false;
    for (int64_t i = 0; i < a->B; i++) any = any || trtllm_prompt_of(a, i)->generation_logits;
    if (!any) {
        add_floats(a, "generation_logits", (int64_t[]){1, 1, 1, 1}, 4, &zero);
        return;
    }
    float *all = PROA_ARENA_NEW(&a->reply->arena, float, n *width *V);
    for (int64_t i = 0; i < n; i++) {
        const proa_llm_output *output = output_at(a, i);
        size_t bytes = output ? (size_t)(proa_llm_visible_tokens(output) * V) * sizeof(float) : 0;
        if (bytes && bytes <= output->logits.len) memcpy(all + i * width * V, output->logits.ptr, bytes);
    }
    add_floats(a, "generation_logits", (int64_t[]){a->B, a->K, width, V}, 4, all);
}

/* ---- numbers of a request ---- */

static void add_one(const answer *a, const char *name, int32_t value)
{
    add_ints(a, name, (int64_t[]){1, 1}, 2, &value);
}

static void add_time(const answer *a, const char *name, int64_t value)
{
    proa_type type;
    void *data = NULL;
    int skip = !a->trtllm->batched;
    const int64_t shape[] = {1, 1};
    if (!is_wanted(a, name, &type) || proa_type_bytes(type) != 8) return;
    proa_reply_add_array(a->reply, name, type, shape + skip, 2 - skip, &data);
    memcpy(data, &value, sizeof value);
}

static void add_perf_metrics(const answer *a)
{
    const proa_prompt *p = a->p[0];
    bool reported = trtllm_prompt_of(a, 0)->perf_metrics && a->last;
    int64_t tokens = reported ? p->prompt_tokens + p->new_tokens : 0;
    int32_t pages = (int32_t)proa_ceil_div(tokens, PROA_PAGE_TOKENS);
    int32_t reused = reported ? (int32_t)proa_ceil_div(p->cached_tokens, PROA_PAGE_TOKENS) : 0;
    int64_t arrived = reported ? p->arrived_ns : 0,
            scheduled = arrived + (reported ? (int64_t)(p->queue_s * 1e9) : 0);
    int64_t first = scheduled + (reported ? (int64_t)(p->prompt_s * 1e9) : 0);
    const float rate = reported && p->drafted_tokens ? (float)p->accepted_tokens / (float)p->drafted_tokens : 0;
    add_one(a, "kv_cache_alloc_new_blocks", pages - reused);
    add_one(a, "kv_cache_reused_blocks", reused);
    add_one(a, "kv_cache_alloc_total_blocks", pages);
    add_time(a, "arrival_time_ns", arrived);
    add_time(a, "first_scheduled_time_ns", scheduled);
    add_time(a, "first_token_time_ns", first);
    add_time(a, "last_token_time_ns", first + (reported ? (int64_t)(p->decode_s * 1e9) : 0));
    add_floats(a, "acceptance_rate", (int64_t[]){1, 1}, 2, &rate);
    add_one(a, "total_accepted_draft_tokens", reported ? (int32_t)p->accepted_tokens : 0);
    add_one(a, "total_draft_tokens", reported ? (int32_t)p->drafted_tokens : 0);
}

static void add_counts(const answer *a)
{
    const proa_llm_output *output = output_at(a, 0);
    add_one(a, "batch_index", (int32_t)a->p[0]->row);
    add_one(a, "sequence_index", output && a->counts[0] == 1 ? output->index : 0);
    add_one(a, "num_input_tokens", (int32_t)a->p[0]->ids.len);
    add_one(a, "num_output_tokens", output ? (int32_t)output->tokens : 0);
}

static void send_reply(answer *a, bool final)
{
    proa_type type;
    a->trtllm = a->req->contract_data;
    a->reply = proa_reply_new(a->req->infer);
    add_ids(a);
    add_log_probs(a);
    add_context_logits(a);
    add_generation_logits(a);
    add_counts(a);
    add_perf_metrics(a);
    if (is_wanted(a, "context_phase_params", &type))
        add_ints(a, "context_phase_params", (int64_t[]){1, 0}, 2, NULL);
    proa_llm_reply(a->req, a->reply, final);
}

void proa_trtllm_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final)
{
    answer a = {.req = req, .p = &p, .output = &output, .counts = &count, .B = 1, .K = count};
    a.part = req->delivery == PROA_DELIVER_TOKENS;
    a.last = p->finish != PROA_FINISH_NONE;
    send_reply(&a, final);
}

void proa_trtllm_end(proa_llm_request *req)
{
    if (!req->contract_data) { /* it stopped another one: no reply */
        proa_llm_reply(req, proa_reply_new(req->infer), true);
        return;
    }
    answer a = {.req = req, .B = req->count, .K = 1, .last = true};
    proa_prompt **p = PROA_ARENA_NEW(&req->arena, proa_prompt *, a.B);
    proa_llm_output **output = PROA_ARENA_NEW(&req->arena, proa_llm_output *, a.B);
    int32_t *counts = PROA_ARENA_NEW(&req->arena, int32_t, a.B);
    for (int64_t i = 0; i < a.B; i++) {
        p[i] = &req->prompts[i];
        output[i] = p[i]->output;
        counts[i] = p[i]->output_count;
        a.K = proa_max64(a.K, counts[i]);
    }
    a.p = p, a.output = output, a.counts = counts;
    send_reply(&a, true);
}
