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

proa_status proa_llama_finish_window(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    return proa_config_read_window(c, json, arena, err);
}

/* transformers' Qwen configurations turn the window off unless use_sliding_window says otherwise. */
proa_status proa_qwen_finish(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (!proa_json_bool(proa_json_get(json, "use_sliding_window")))
        return proa_llama_finish(c, json, arena, err);
    c->window_from = 28;
    return proa_llama_finish_window(c, json, arena, err);
}
