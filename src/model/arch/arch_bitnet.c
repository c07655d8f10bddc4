/* SPDX-License-Identifier: Apache-2.0
 * arch_bitnet.c - BitNet b1.58 (Ma et al. 2024): a Llama with a squared ReLU as the gate of its FFN, and a norm of what
 * attention and the FFN's gate give, before their last products. Its checkpoints round matrices to -1, 0 and 1 times a
 * scale, and the rows that these multiply to eight bits (quantization_config; arch.c). Facts: transformers'
 * modeling_bitnet.py, configuration_bitnet.py and integrations/bitnet.py. */
#include "model/arch/llama_rows.h"

#define STACK PROA_STACK_DECODER
#define BODY  "model."

/* clang-format off */
static const proa_key keys[] = {
    LLAMA_KEYS(layers),
    KV_HEADS  (5),
    EPSILON   ("rms_norm_eps", 1e-5),
    ACTIVATION("hidden_act",   RELU2),
    END_KEYS};

static const proa_name tensors[] = {
    LLAMA_ATTENTION_BIASES(BODY),
    LLAMA_BODY(BODY),
    VECTOR(BODY "layers.%d.self_attn.attn_sub_norm.weight", ATTN_INNER_NORM, Q),
    VECTOR(BODY "layers.%d.mlp.ffn_sub_norm.weight",        FFN_INNER_NORM,  FFN),
    LLAMA_HEAD(BODY, "lm_head.weight"),
    END_TENSORS};
static const char *const prefixes[] = {"model.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {
    LLAMA_QKV,
    ROTATE,
    KV_APPEND,
    ATTEND,
    NORM        (A, A, ATTN_INNER_NORM),
    ROUND_INPUTS(A),
    LINEAR      (A, X, O,    ADD),
    NORM        (X, N, FFN_NORM),
    ROUND_INPUTS(N),
    LINEAR_GATED(N, F, UP,   0),
    NORM        (F, F, FFN_INNER_NORM),
    ROUND_INPUTS(F),
    LINEAR      (F, X, DOWN, ADD),
    END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* The FFN has no biases. */
static proa_status finish_bitnet(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->mlp_bias = false;
    c->rope.theta = 500000;
    return proa_llama_finish(c, json, arena, err);
}

const proa_arch proa_arch_bitnet = {.name = "bitnet",
                                    .model_type = "bitnet",
                                    .hf = STRINGS("BitNetForCausalLM"),
                                    DECODER(RMS),
                                    .keys = keys,
                                    .names = tensors,
                                    .prefixes = prefixes,
                                    .ignored = ignored,
                                    .stacks = {CAUSAL(embed, layer)},
                                    .head = head,
                                    .finish = finish_bitnet,
                                    NO_HEADS};
