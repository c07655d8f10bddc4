/* SPDX-License-Identifier: Apache-2.0
 * arch_clip.c - the text encoder of CLIP: causal attention, layers that norm what they read. Its embedding is the last
 * row, that of the end token, before the projection to the space of images.
 * Facts: transformers' modeling_clip.py. */
#include "model/arch/arch_rows.h"

#define STACK PROA_STACK_ENCODER
#define MODEL "text_model."
#define LAYER MODEL "encoder.layers.%d."

/* clang-format off */
static const proa_key keys[] = {
    INTEGER   ("vocab_size",              vocab,          1, VOCAB,   49408),
    INTEGER   ("hidden_size",             hidden,         1, HIDDEN,  512),
    INTEGER   ("num_hidden_layers",       encoder_layers, 1, LAYERS,  12),
    INTEGER   ("num_attention_heads",     heads,          1, HEADS,   8),
    INTEGER   ("intermediate_size",       ffn,            1, FFN,     2048),
    INTEGER   ("max_position_embeddings", context,        1, CONTEXT, 77),
    EPSILON   ("layer_norm_eps",          1e-5),
    ACTIVATION("hidden_act",              QUICK_GELU),
    END_KEYS};
static const proa_name tensors[] = {
    TABLE (MODEL "embeddings.token_embedding.weight",    TOKENS,       VOCAB,   HIDDEN),
    TABLE (MODEL "embeddings.position_embedding.weight", POSITIONS,    CONTEXT, HIDDEN),
    VECTOR(LAYER "layer_norm1.weight",                   ATTN_NORM,    HIDDEN),
    VECTOR(LAYER "layer_norm1.bias",                     ATTN_NORM_B,  HIDDEN),
    MATRIX(LAYER "self_attn.q_proj.weight",              QKV,          Q,       HIDDEN),
    MATRIX(LAYER "self_attn.k_proj.weight",              QKV,          KV,      HIDDEN),
    MATRIX(LAYER "self_attn.v_proj.weight",              QKV,          KV,      HIDDEN),
    VECTOR(LAYER "self_attn.q_proj.bias",                QKV_B,        Q),
    VECTOR(LAYER "self_attn.k_proj.bias",                QKV_B,        KV),
    VECTOR(LAYER "self_attn.v_proj.bias",                QKV_B,        KV),
    MATRIX(LAYER "self_attn.out_proj.weight",            O,            HIDDEN,  Q),
    VECTOR(LAYER "self_attn.out_proj.bias",              O_B,          HIDDEN),
    VECTOR(LAYER "layer_norm2.weight",                   FFN_NORM,     HIDDEN),
    VECTOR(LAYER "layer_norm2.bias",                     FFN_NORM_B,   HIDDEN),
    MATRIX(LAYER "mlp.fc1.weight",                       UP,           FFN,     HIDDEN),
    VECTOR(LAYER "mlp.fc1.bias",                         UP_B,         FFN),
    MATRIX(LAYER "mlp.fc2.weight",                       DOWN,         HIDDEN,  FFN),
    VECTOR(LAYER "mlp.fc2.bias",                         DOWN_B,       HIDDEN),
    VECTOR(MODEL "final_layer_norm.weight",              FINAL_NORM,   HIDDEN),
    VECTOR(MODEL "final_layer_norm.bias",                FINAL_NORM_B, HIDDEN),
    END_TENSORS};
static const char *const prefixes[] = {MODEL, NULL}, *const ignored[] = {"position_ids", NULL};

static const proa_step embed[] = {EMBED(TOKENS), EMBED_TO(X, POSITIONS, OF_POS | ADD), END};
static const proa_step layer[] = {PRE_NORM_LAYER}, after[] = {NORM(X, X, FINAL_NORM), END};
static const proa_step headless[] = {GATHER(OUT), END};
/* clang-format on */

static proa_status finish_clip(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(c), PROA_UNUSED(json), PROA_UNUSED(arena), PROA_UNUSED(err);
    return PROA_OK;
}

/* clang-format off */
const proa_arch proa_arch_clip_text = {
    .name = "clip_text", .hf = STRINGS("CLIPTextModel"), .model_type = "clip_text_model", .kind = PROA_KIND_ENCODER,
    .norm = PROA_NORM_LAYER, .keys = keys, .names = tensors, .prefixes = prefixes, .ignored = ignored,
    .stacks = {[STACK] = {embed, layer, after, true}}, .head = headless, .head_rows = PROA_ROWS_ALL,
    .embeds = PROA_EMBEDS_LAST, .outputs = PROA_DIM_HIDDEN, .finish = finish_clip};
/* clang-format on */
