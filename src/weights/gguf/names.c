/* SPDX-License-Identifier: Apache-2.0
 * names.c - the tensors of GGUF architectures, and what the Hugging Face classes call them. */
#include "weights/gguf/arch.h"

#include "base/checked.h"
#include <string.h>

/* clang-format off */
#define EMBEDDING_AND_HEAD(table, norm, head) \
    {"token_embd", table, 0}, {"output_norm", norm, 0}, {"output", head, 0}
#define ROPE_FACTORS \
    {"rope_freqs", NULL, PROA_GGUF_DROPPED}, {"rope_factors_long", NULL, PROA_GGUF_DROPPED}, \
    {"rope_factors_short", NULL, PROA_GGUF_DROPPED}
#define END {NULL, NULL, 0}

#define L "model.layers.%d."
#define COMMON_LLAMA \
    EMBEDDING_AND_HEAD("model.embed_tokens", "model.norm", "lm_head"), \
    ROPE_FACTORS, \
    {"blk.%d.attn_norm",   L "input_layernorm",          0}, \
    {"blk.%d.attn_v",      L "self_attn.v_proj",         0}, \
    {"blk.%d.attn_output", L "self_attn.o_proj",         0}, \
    {"blk.%d.ffn_gate",    L "mlp.gate_proj",            0}, \
    {"blk.%d.ffn_up",      L "mlp.up_proj",              0}, \
    {"blk.%d.ffn_down",    L "mlp.down_proj",            0}

const proa_gguf_name proa_gguf_llama_names[] = {
    COMMON_LLAMA,
    {"blk.%d.ffn_norm",    L "post_attention_layernorm", 0},
    {"blk.%d.attn_q",      L "self_attn.q_proj",         PROA_GGUF_ROTATED_Q},
    {"blk.%d.attn_k",      L "self_attn.k_proj",         PROA_GGUF_ROTATED_K},
    {"blk.%d.attn_rot_embd", NULL,                       PROA_GGUF_DROPPED},
    END};
const proa_gguf_name proa_gguf_qwen_names[] = {
    COMMON_LLAMA,
    {"blk.%d.ffn_norm",    L "post_attention_layernorm", 0},
    {"blk.%d.attn_q",      L "self_attn.q_proj",         0},
    {"blk.%d.attn_k",      L "self_attn.k_proj",         0},
    {"blk.%d.attn_q_norm", L "self_attn.q_norm",         0},
    {"blk.%d.attn_k_norm", L "self_attn.k_norm",         0},
    END};
const proa_gguf_name proa_gguf_gemma2_names[] = {
    COMMON_LLAMA,
    {"blk.%d.attn_q",      L "self_attn.q_proj",         0},
    {"blk.%d.attn_k",      L "self_attn.k_proj",         0},
    {"blk.%d.post_attention_norm", L "post_attention_layernorm", 0},
    {"blk.%d.ffn_norm",    L "pre_feedforward_layernorm", 0},
    {"blk.%d.post_ffw_norm", L "post_feedforward_layernorm", 0},
    END};
#undef L

#define L "transformer.h.%d."
const proa_gguf_name proa_gguf_gpt2_names[] = {
    EMBEDDING_AND_HEAD("transformer.wte", "transformer.ln_f", "lm_head"),
    {"position_embd",      "transformer.wpe",            0},
    {"blk.%d.attn_norm",   L "ln_1",                     0},
    {"blk.%d.attn_qkv",    L "attn.c_attn",              0},
    {"blk.%d.attn_output", L "attn.c_proj",              0},
    {"blk.%d.ffn_norm",    L "ln_2",                     0},
    {"blk.%d.ffn_up",      L "mlp.c_fc",                 0},
    {"blk.%d.ffn_down",    L "mlp.c_proj",               0},
    END};
#define COMMON_BLOOM \
    {"blk.%d.attn_qkv",    L "self_attention.query_key_value", 0}, \
    {"blk.%d.attn_output", L "self_attention.dense",     0}, \
    {"blk.%d.ffn_up",      L "mlp.dense_h_to_4h",        0}, \
    {"blk.%d.ffn_down",    L "mlp.dense_4h_to_h",        0}
#define COMMON_FALCON \
    EMBEDDING_AND_HEAD("transformer.word_embeddings", "transformer.ln_f", "lm_head"), \
    COMMON_BLOOM
const proa_gguf_name proa_gguf_falcon7b_names[] = {
    COMMON_FALCON,
    {"blk.%d.attn_norm",   L "input_layernorm",          0},
    END};
const proa_gguf_name proa_gguf_falcon40b_names[] = {
    COMMON_FALCON,
    {"blk.%d.attn_norm",   L "ln_mlp",                   0},
    {"blk.%d.attn_norm_2", L "ln_attn",                  0},
    END};
const proa_gguf_name proa_gguf_bloom_names[] = {
    COMMON_FALCON,
    {"token_embd_norm",    "transformer.word_embeddings_layernorm", 0},
    {"blk.%d.attn_norm",   L "input_layernorm",          0},
    {"blk.%d.ffn_norm",    L "post_attention_layernorm", 0},
    END};
#undef L

#define L "gpt_neox.layers.%d."
const proa_gguf_name proa_gguf_gptneox_names[] = {
    EMBEDDING_AND_HEAD("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
    {"blk.%d.attn_norm",   L "input_layernorm",          0},
    {"blk.%d.ffn_norm",    L "post_attention_layernorm", 0},
    {"blk.%d.attn_qkv",    L "attention.query_key_value", 0},
    {"blk.%d.attn_output", L "attention.dense",          0},
    {"blk.%d.ffn_up",      L "mlp.dense_h_to_4h",        0},
    {"blk.%d.ffn_down",    L "mlp.dense_4h_to_h",        0},
    END};
#undef L

#define L "transformer.blocks.%d."
const proa_gguf_name proa_gguf_mpt_names[] = {
    EMBEDDING_AND_HEAD("transformer.wte", "transformer.norm_f", "lm_head"),
    {"position_embd",      "transformer.wpe",            0},
    {"blk.%d.attn_norm",   L "norm_1",                   0},
    {"blk.%d.attn_qkv",    L "attn.Wqkv",                0},
    {"blk.%d.attn_output", L "attn.out_proj",            0},
    {"blk.%d.ffn_norm",    L "norm_2",                   0},
    {"blk.%d.ffn_up",      L "ffn.up_proj",              0},
    {"blk.%d.ffn_down",    L "ffn.down_proj",            0},
    END};
#undef L
/* clang-format on */

/* Digits of a layer's number at text[0..len), at most 6; 0: none. */
static size_t count_digits(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && n < 6 && text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

proa_str proa_gguf_split_name(char pattern[PROA_TENSOR_NAME_MAX + 1], int64_t *layer, proa_str name)
{
    size_t point = name.len, block = 0, n = 0;
    const char *mark;
    while (point > 0 && name.ptr[point - 1] != '.') point--;
    size_t body = point ? point - 1 : name.len; /* without an ending: all of it */
    memcpy(pattern, name.ptr, body);
    pattern[body] = 0;
    *layer = -1;
    if ((mark = strstr(pattern, "blk."))) {
        block = (size_t)(mark - pattern) + 4;
        n = count_digits(name.ptr + block, body - block);
    }
    if (n > 0 && name.ptr[block + n] == '.') {
        *layer = 0;
        for (size_t i = 0; i < n; i++) *layer = 10 * *layer + (name.ptr[block + i] - '0');
        snprintf(pattern + block, PROA_TENSOR_NAME_MAX + 1 - block, "%%d%.*s", (int)(body - block - n),
                 name.ptr + block + n);
    }
    return (proa_str){name.ptr + body, name.len - body};
}

const proa_gguf_name *proa_gguf_name_of(const proa_gguf_arch *arch, const char *pattern)
{
    for (const proa_gguf_name *n = arch->names; n->gguf; n++)
        if (strcmp(n->gguf, pattern) == 0) return n;
    return NULL;
}
