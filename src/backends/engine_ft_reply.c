/* SPDX-License-Identifier: Apache-2.0
 * engine_ft_reply.c - FasterTransformer's outputs: [batch, beams, length], prompt included for GPT, padded with the end
 * token. A stream gives the whole so far with each token. */
#include "backends/engine_ft.h"
#include "backends/llm/tensor_write.h"

#include "base/checked.h"
#include <string.h>

static const proa_ft_call *own_of(const proa_call *call)
{
    return call->own;
}

/* The type that the configuration gives an output; the usual one where it says nothing. */
static proa_type type_of(const proa_call *call, const char *name, proa_type usual)
{
    proa_type type = proa_config_output_type(proa_model_config(call->served->model), name);
    return type == PROA_TYPE_INVALID ? usual : type;
}

static bool is_configured(const proa_call *call, const char *name)
{
    return proa_config_output_type(proa_model_config(call->served->model), name) != PROA_TYPE_INVALID;
}

/* Sequence k of a prompt; fewer may have come than there are beams. */
static const proa_said *said_at(const proa_prompt *p, int64_t k)
{
    return k < p->said_count ? &p->said[k] : NULL;
}

static void fill_row(int32_t *to, int64_t width, const proa_prompt *p, const proa_said *said, bool with_prompt)
{
    int64_t at = 0;
    if (with_prompt) {
        memcpy(to, p->ids.ptr, (size_t)p->ids.len * sizeof *to);
        at = p->ids.len;
    }
    int64_t n = said ? proa_min64(said->ids.len, width - at) : 0;
    if (n) memcpy(to + at, said->ids.ptr, (size_t)n * sizeof *to);
}

static void add_ids(proa_call *call, proa_reply *reply)
{
    const proa_ft_call *own = own_of(call);
    bool gpt = call->served->variant == PROA_FT_GPT;
    int64_t B = call->count, K = own->beams, width = own->output_width + (gpt ? own->input_width : 0);
    int32_t *ids = PROA_ARENA_NEW(&reply->arena, int32_t, B * K * width);
    int32_t *lengths = PROA_ARENA_NEW(&reply->arena, int32_t, B * K);
    int32_t *inputs = PROA_ARENA_NEW(&reply->arena, int32_t, B * K);
    for (int64_t i = 0; i < B * K; i++) {
        const proa_prompt *p = &call->prompts[i / K];
        const proa_said *said = said_at(p, i % K);
        for (int64_t k = 0; k < width; k++) ids[i * width + k] = own->end_id[i / K];
        fill_row(ids + i * width, width, p, said, gpt);
        lengths[i] = (int32_t)((said ? said->ids.len : 0) + (gpt ? p->ids.len : 0));
        inputs[i] = (int32_t)p->ids.len;
    }
    proa_reply_typed_ints(call, reply, "output_ids", type_of(call, "output_ids", PROA_TYPE_UINT32),
                          (int64_t[]){B, K, width}, 3, ids);
    proa_reply_typed_ints(call, reply, "sequence_length", type_of(call, "sequence_length", PROA_TYPE_UINT32),
                          (int64_t[]){B, K}, 2, lengths);
    if (is_configured(call, "response_input_lengths"))
        proa_reply_typed_ints(call, reply, "response_input_lengths", PROA_TYPE_INT32, (int64_t[]){B, K}, 2,
                              inputs);
}

/* Zeros where nobody asked for them: an ensemble whose configuration maps these outputs waits for all of them. */
static void add_log_probs(proa_call *call, proa_reply *reply)
{
    const proa_ft_call *own = own_of(call);
    int64_t B = call->count, K = own->beams, width = own->output_width;
    float *sums = is_configured(call, "cum_log_probs")
                      ? proa_reply_floats(call, reply, "cum_log_probs", (int64_t[]){B, K}, 2, 0)
                      : NULL;
    float *each = is_configured(call, "output_log_probs")
                      ? proa_reply_floats(call, reply, "output_log_probs", (int64_t[]){B, K, width}, 3, 0)
                      : NULL;
    for (int64_t i = 0; i < B * K && own->log_probs; i++) {
        const proa_said *said = said_at(&call->prompts[i / K], i % K);
        if (!said) continue;
        if (sums) sums[i] = (float)said->sum;
        size_t bytes = (size_t)proa_min64((int64_t)said->logprobs.len, width * (int64_t)sizeof(float));
        if (each && bytes) memcpy(each + i * width, said->logprobs.ptr, bytes);
    }
}

static proa_reply *make_generated(proa_call *call)
{
    proa_reply *reply = proa_reply_new(call->infer);
    add_ids(call, reply);
    add_log_probs(call, reply);
    return reply;
}

/* Rows of hidden states, padded with zeros: [batch, columns of input_ids, hidden]. */
static proa_reply *make_hidden(proa_call *call)
{
    proa_reply *reply = proa_reply_new(call->infer);
    int64_t H = call->served->info.hidden, L = own_of(call)->input_width, B = call->count;
    float *rows = PROA_ARENA_NEW(&reply->arena, float, B *L *H);
    for (int64_t i = 0; i < B; i++) {
        const proa_buf *from = &call->prompts[i].rows;
        if (from->len) memcpy(rows + i * L * H, from->ptr, from->len);
    }
    proa_reply_typed_floats(call, reply, "output_hidden_state",
                            type_of(call, "output_hidden_state", PROA_TYPE_FP32), (int64_t[]){B, L, H}, 3, rows);
    return reply;
}

/* All rows move on in the same steps: the first that still runs speaks for all. */
void proa_ft_tell(proa_call *call, proa_prompt *p, proa_said *said, int32_t count, bool final)
{
    PROA_UNUSED(said);
    PROA_UNUSED(count);
    int64_t first = 0;
    while (first < call->count && call->prompts[first].finish != PROA_FINISH_NONE) first++;
    bool speaks = first < call->count && &call->prompts[first] == p;
    if (final || (speaks && p->finish == PROA_FINISH_NONE))
        proa_call_reply(call, make_generated(call), final);
}

void proa_ft_end(proa_call *call)
{
    bool generates = call->served->variant <= PROA_FT_T5;
    proa_call_reply(call, generates ? make_generated(call) : make_hidden(call), true);
}
