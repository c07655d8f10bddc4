/* SPDX-License-Identifier: Apache-2.0
 * llama_rows.c - what the rows of Llama's family read from config.json alike. */
#include "model/arch/llama_rows.h"

/* Llama itself has no window: a stray key is not read. */
proa_status proa_llama_finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = true;
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    c->rotary_dim = c->head_dim;
    return proa_config_read_rope(c, json, arena, err);
}

/* All layers have the window. With layer_types it is a Ministral, as for transformers' AutoModel. */
proa_status proa_mistral_finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    c->window = 4096;
    if (!proa_json_get(json, "layer_types")) return proa_config_read_common_window(c, json, err);
    return proa_config_read_window(c, json, arena, err);
}

/* transformers' Qwen configurations turn the window off unless use_sliding_window says otherwise. */
proa_status proa_qwen_finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    if (!proa_json_bool(proa_json_get(json, "use_sliding_window"))) return PROA_OK;
    c->window = 4096;
    if (c->window_from == 0) c->window_from = 28;
    return proa_config_read_window(c, json, arena, err);
}

proa_status proa_llama_read_three_windows(proa_config *c, const proa_json *json, int64_t window,
                                          proa_arena *arena, proa_err *err)
{
    c->window = window;
    PROA_TRY(proa_config_read_window(c, json, arena, err));
    if (c->window_used && !proa_json_get(json, "layer_types"))
        for (int64_t i = 0; i < c->layers; i++) c->window_layers[i] = i % 4 != 0;
    return PROA_OK;
}

proa_status proa_llama_check_residual(const proa_config *c, proa_err *err)
{
    if (!(c->attention_bias || c->mlp_bias) || c->residual_scale == 1) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "biases with outputs that are multiplied by %g are not supported",
                     c->residual_scale);
}
