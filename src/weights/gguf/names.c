/* SPDX-License-Identifier: Apache-2.0
 * names.c - the tensors of GGUF architectures, and what the Hugging Face classes call them. */
#include "weights/gguf/arch.h"

#include "base/checked.h"
#include <string.h>

/* clang-format off */
#define EMBEDDING_AND_HEAD(table, norm, head) \
    {"token_embd", table, 0, 0}, {"output_norm", norm, 0, 0}, {"output", head, 0, 0}
#define ROPE_FACTORS \
    {"rope_freqs", NULL, PROA_GGUF_DROPPED, 0}, {"rope_factors_long", NULL, PROA_GGUF_DROPPED, 0}, \
    {"rope_factors_short", NULL, PROA_GGUF_DROPPED, 0}
/* A tensor of a layer. */
#define T(gguf, hf)        {"blk.%d." gguf, L hf, 0, 0}
#define USE(use, gguf, hf) {"blk.%d." gguf, L hf, PROA_GGUF_##use, 0}
#define FORM(form, gguf, hf) {"blk.%d." gguf, L hf, PROA_GGUF_AS_IS, form}
#define END                {NULL, NULL, 0, 0}

#define L "model.layers.%d."
#define EMBEDDING_AND_NORM EMBEDDING_AND_HEAD("model.embed_tokens", "model.norm", "lm_head")
#define ROTATED_Q_AND_K    USE(ROTATED_Q, "attn_q", "self_attn.q_proj"), USE(ROTATED_K, "attn_k", "self_attn.k_proj")
#define PLAIN_Q_AND_K      T("attn_q", "self_attn.q_proj"), T("attn_k", "self_attn.k_proj")
#define NORMED_Q_AND_K     T("attn_q_norm", "self_attn.q_norm"), T("attn_k_norm", "self_attn.k_norm")
#define NORMS              T("attn_norm", "input_layernorm"), T("ffn_norm", "post_attention_layernorm")
#define V_AND_O            T("attn_v", "self_attn.v_proj"), T("attn_output", "self_attn.o_proj")
#define GATED_FFN          T("ffn_gate", "mlp.gate_proj"), T("ffn_up", "mlp.up_proj"), T("ffn_down", "mlp.down_proj")
#define UNGATED_FFN        T("ffn_up", "mlp.up_proj"), T("ffn_down", "mlp.down_proj")
#define LLAMA              EMBEDDING_AND_NORM, ROPE_FACTORS, V_AND_O, GATED_FFN
#define EXPERTS_OF_FFN \
    USE(EXPERTS, "ffn_gate_exps", "mlp.experts.%d.gate_proj"), \
    USE(EXPERTS, "ffn_up_exps",   "mlp.experts.%d.up_proj"), \
    USE(EXPERTS, "ffn_down_exps", "mlp.experts.%d.down_proj")
#define SHARED_EXPERT(module) \
    T("ffn_gate_shexp", module ".gate_proj"), T("ffn_up_shexp", module ".up_proj"), \
    T("ffn_down_shexp", module ".down_proj")
#define SIGMOID_ROUTER \
    T("ffn_gate_inp",     "mlp.gate"), \
    T("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"), \
    USE(OLDER, "exp_probs_b", "mlp.gate.e_score_correction_bias") /* without an ending */
#define MIXTRAL_EXPERTS \
    T("ffn_gate_inp", "block_sparse_moe.gate"), \
    USE(EXPERTS, "ffn_gate_exps", "block_sparse_moe.experts.%d.w1"), \
    USE(EXPERTS, "ffn_down_exps", "block_sparse_moe.experts.%d.w2"), \
    USE(EXPERTS, "ffn_up_exps",   "block_sparse_moe.experts.%d.w3")

const proa_gguf_name proa_gguf_llama_names[] = {
    LLAMA, NORMS, ROTATED_Q_AND_K, {"blk.%d.attn_rot_embd", NULL, PROA_GGUF_DROPPED, 0}, END};
const proa_gguf_name proa_gguf_qwen_names[] = {LLAMA, NORMS, PLAIN_Q_AND_K, NORMED_Q_AND_K, END};
/* Without biases. */
const proa_gguf_name proa_gguf_eurobert_names[] = {
    {"token_embd", "model.embed_tokens", 0, 0}, {"output_norm", "model.norm", 0, 0}, NORMS,
    T("attn_q.weight",   "self_attn.q_proj.weight"),
    T("attn_k.weight",   "self_attn.k_proj.weight"),
    T("attn_v.weight",   "self_attn.v_proj.weight"),
    T("attn_output.weight", "self_attn.o_proj.weight"),
    T("ffn_gate.weight", "mlp.gate_proj.weight"),
    T("ffn_up.weight",   "mlp.up_proj.weight"),
    T("ffn_down.weight", "mlp.down_proj.weight"),
    END};
/* Its norms have no weights. */
const proa_gguf_name proa_gguf_olmo_names[] = {
    {"token_embd", "model.embed_tokens", 0, 0}, {"output", "lm_head", 0, 0},
    ROPE_FACTORS, ROTATED_Q_AND_K, V_AND_O, GATED_FFN, END};
const proa_gguf_name proa_gguf_arcee_names[] = {
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, ROTATED_Q_AND_K, V_AND_O, UNGATED_FFN, END};
const proa_gguf_name proa_gguf_nemotron_names[] = {
    EMBEDDING_AND_NORM, NORMS, PLAIN_Q_AND_K, V_AND_O, UNGATED_FFN, END};
const proa_gguf_name proa_gguf_seed_oss_names[] = {
    LLAMA, PLAIN_Q_AND_K,
    T("attn_norm",           "input_layernorm"),
    T("post_attention_norm", "post_attention_layernorm"),
    END};
#define GLM \
    EMBEDDING_AND_NORM, NORMS, PLAIN_Q_AND_K, V_AND_O, \
    T("ffn_up",   "mlp.gate_up_proj"), \
    T("ffn_down", "mlp.down_proj")
const proa_gguf_name proa_gguf_glm_names[] = {GLM, END};
const proa_gguf_name proa_gguf_glm4_names[] = {
    GLM,
    T("post_attention_norm", "post_self_attn_layernorm"),
    T("post_ffw_norm",       "post_mlp_layernorm"),
    END};
const proa_gguf_name proa_gguf_mixtral_names[] = {LLAMA, NORMS, ROTATED_Q_AND_K, MIXTRAL_EXPERTS, END};
const proa_gguf_name proa_gguf_phimoe_names[] = {LLAMA, NORMS, PLAIN_Q_AND_K, MIXTRAL_EXPERTS, END};
const proa_gguf_name proa_gguf_qwen_moe_names[] = {
    LLAMA, NORMS, PLAIN_Q_AND_K, NORMED_Q_AND_K,
    EXPERTS_OF_FFN,
    SHARED_EXPERT("mlp.shared_expert"),
    T("ffn_gate_inp", "mlp.gate"),
    USE(ROW, "ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    END};
#define DENSE_OR_EXPERTS \
    LLAMA, PLAIN_Q_AND_K, NORMED_Q_AND_K, EXPERTS_OF_FFN, SHARED_EXPERT("mlp.shared_experts")
const proa_gguf_name proa_gguf_dots1_names[] = {DENSE_OR_EXPERTS, NORMS, SIGMOID_ROUTER, END};
#define NEXT_TOKENS(part) {"blk.%d.nextn." part, NULL, PROA_GGUF_DROPPED, 0}
#define NEXT_TOKENS_PARTS \
    NEXT_TOKENS("eh_proj"), NEXT_TOKENS("enorm"), NEXT_TOKENS("hnorm"), NEXT_TOKENS("embed_tokens"), \
    NEXT_TOKENS("shared_head_head"), NEXT_TOKENS("shared_head_norm") /* of the layer that predicts further tokens */
const proa_gguf_name proa_gguf_glm4_moe_names[] = {
    DENSE_OR_EXPERTS, SIGMOID_ROUTER,
    T("attn_norm",           "input_layernorm"),
    T("post_attention_norm", "post_attention_layernorm"),
    NEXT_TOKENS_PARTS,
    END};
const proa_gguf_name proa_gguf_minimax_names[] = {
    LLAMA, NORMS, PLAIN_Q_AND_K, NORMED_Q_AND_K, MIXTRAL_EXPERTS,
    T("exp_probs_b.bias",    "block_sparse_moe.e_score_correction_bias"),
    END};
/* Without biases of attention. */
#define UNBIASED_DENSE_OR_EXPERTS \
    EMBEDDING_AND_NORM, ROPE_FACTORS, GATED_FFN, NORMED_Q_AND_K, EXPERTS_OF_FFN, SHARED_EXPERT("mlp.shared_experts"), \
    T("attn_q.weight", "self_attn.q_proj.weight"), T("attn_k.weight", "self_attn.k_proj.weight"), \
    T("attn_v.weight", "self_attn.v_proj.weight"), T("attn_output.weight", "self_attn.o_proj.weight")
const proa_gguf_name proa_gguf_afmoe_names[] = {
    UNBIASED_DENSE_OR_EXPERTS,
    T("attn_gate.weight",    "self_attn.gate_proj.weight"),
    T("attn_norm",           "input_layernorm"),
    T("post_attention_norm", "post_attention_layernorm"),
    T("ffn_norm",            "pre_mlp_layernorm"),
    T("post_ffw_norm",       "post_mlp_layernorm"),
    T("ffn_gate_inp",        "mlp.router.gate"),
    T("exp_probs_b.bias",    "mlp.expert_bias"),
    END};
const proa_gguf_name proa_gguf_exaone_moe_names[] = {
    UNBIASED_DENSE_OR_EXPERTS, NORMS, SIGMOID_ROUTER, NEXT_TOKENS_PARTS, END};
const proa_gguf_name proa_gguf_hy_v3_names[] = {
    UNBIASED_DENSE_OR_EXPERTS, NORMS, NEXT_TOKENS_PARTS,
    T("ffn_gate_inp",        "mlp.gate"),
    FORM(PROA_GGUF_NO_ENDING, "exp_probs_b", "mlp.gate.e_score_correction_bias"),
    END};
const proa_gguf_name proa_gguf_ernie_moe_names[] = {
    DENSE_OR_EXPERTS, NORMS,
    T("ffn_gate_inp",     "mlp.gate"),
    T("exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"),
    END};
#define HUNYUAN \
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, PLAIN_Q_AND_K, V_AND_O, \
    T("attn_q_norm", "self_attn.query_layernorm"), T("attn_k_norm", "self_attn.key_layernorm")
const proa_gguf_name proa_gguf_hunyuan_names[] = {HUNYUAN, GATED_FFN, END};
const proa_gguf_name proa_gguf_hunyuan_moe_names[] = {
    HUNYUAN, EXPERTS_OF_FFN, SHARED_EXPERT("mlp.shared_mlp"), T("ffn_gate_inp", "mlp.gate.wg"), END};
/* The class has the gates and the other half of each expert in one matrix. */
const proa_gguf_name proa_gguf_llama4_names[] = {
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, PLAIN_Q_AND_K, V_AND_O,
    T("ffn_gate",             "feed_forward.gate_proj"),
    T("ffn_up",               "feed_forward.up_proj"),
    T("ffn_down",             "feed_forward.down_proj"),
    T("ffn_gate_inp",         "feed_forward.router"),
    T("ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj"),
    T("ffn_up_exps.weight",   "feed_forward.experts.gate_up_proj#2"),
    T("ffn_down_exps.weight", "feed_forward.experts.down_proj"),
    SHARED_EXPERT("feed_forward.shared_expert"),
    END};
/* The class has the gates and the other half of all experts in one tensor. */
#define GRANITE_EXPERTS \
    T("ffn_gate_inp",         "block_sparse_moe.router.layer"), \
    T("ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight"), \
    T("ffn_up_exps.weight",   "block_sparse_moe.input_linear.weight#2"), \
    T("ffn_down_exps",        "block_sparse_moe.output_linear")
#define GRANITE_SHARED_EXPERTS \
    GRANITE_EXPERTS, \
    T("ffn_gate_shexp.weight", "shared_mlp.input_linear.weight"), \
    T("ffn_up_shexp.weight",   "shared_mlp.input_linear.weight#2"), \
    T("ffn_down_shexp",        "shared_mlp.output_linear")
const proa_gguf_name proa_gguf_granite_moe_names[] = {
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, ROTATED_Q_AND_K, V_AND_O, GRANITE_EXPERTS, END};
const proa_gguf_name proa_gguf_granite_shared_names[] = {
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, ROTATED_Q_AND_K, V_AND_O, GRANITE_SHARED_EXPERTS, END};
/* Mamba-2. in_proj makes gates, what is convolved, and rates: in the order of the class. */
#define MAMBA_OF(module) \
    USE(STORED, "ssm_in",    module ".in_proj"), \
    T("ssm_conv1d",          module ".conv1d"), \
    T("ssm_dt.bias",         module ".dt_bias"), \
    FORM(PROA_GGUF_NO_ENDING | PROA_GGUF_COLUMN | PROA_GGUF_NEGATED_EXP, "ssm_a", module ".A_log"), \
    FORM(PROA_GGUF_NO_ENDING | PROA_GGUF_COLUMN, "ssm_d", module ".D"), \
    FORM(PROA_GGUF_BY_GROUPS, "ssm_norm", module ".norm"), \
    T("ssm_out",             module ".out_proj")
#define MAMBA MAMBA_OF("mamba")
/* Mamba-1. */
#define MAMBA1_OF(module) \
    T("ssm_in",              module ".in_proj"), \
    T("ssm_conv1d",          module ".conv1d"), \
    T("ssm_x",               module ".x_proj"), \
    T("ssm_dt",              module ".dt_proj"), \
    FORM(PROA_GGUF_NO_ENDING | PROA_GGUF_NEGATED_EXP, "ssm_a", module ".A_log"), \
    FORM(PROA_GGUF_NO_ENDING, "ssm_d", module ".D"), \
    T("ssm_out",             module ".out_proj")
/* The gated delta rule: q and gates of each head follow each other in attn_q, as the class has them. */
#define DELTA \
    EMBEDDING_AND_NORM, V_AND_O, NORMED_Q_AND_K, \
    T("attn_norm",           "input_layernorm"), \
    T("post_attention_norm", "post_attention_layernorm"), \
    USE(STORED, "attn_q",    "self_attn.q_proj"), \
    T("attn_k",              "self_attn.k_proj"), \
    T("ssm_norm",            "linear_attn.norm"), \
    NEXT_TOKENS_PARTS
#define DELTA_ROUTED \
    SHARED_EXPERT("mlp.shared_expert"), \
    T("ffn_gate_inp", "mlp.gate"), \
    USE(ROW, "ffn_gate_inp_shexp", "mlp.shared_expert_gate")
#define TILED_DECAY \
    {"blk.%d.ssm_a", L "linear_attn.A_log", PROA_GGUF_TILED_ROWS, PROA_GGUF_NO_ENDING | PROA_GGUF_NEGATED_EXP}
#define TILED_DELTA \
    USE(TILED_VALUES, "attn_qkv",    "linear_attn.in_proj_qkv"), \
    USE(TILED_ROWS,   "attn_gate",   "linear_attn.in_proj_z"), \
    USE(TILED_ROWS,   "ssm_beta",    "linear_attn.in_proj_b"), \
    USE(TILED_ROWS,   "ssm_alpha",   "linear_attn.in_proj_a"), \
    USE(TILED_VALUES, "ssm_conv1d",  "linear_attn.conv1d"), \
    USE(TILED_ROWS,   "ssm_dt.bias", "linear_attn.dt_bias"), \
    TILED_DECAY, \
    USE(TILED_COLS,   "ssm_out",     "linear_attn.out_proj")
const proa_gguf_name proa_gguf_qwen3_next_names[] = {
    DELTA, EXPERTS_OF_FFN, DELTA_ROUTED,
    T("attn_qkv.weight",  "linear_attn.in_proj_qkvz.weight"),
    T("attn_gate.weight", "linear_attn.in_proj_qkvz.weight#2"),
    USE(OLDER, "ssm_in",  "linear_attn.in_proj_qkvz"),
    USE(STORED, "ssm_ba", "linear_attn.in_proj_ba"),
    T("ssm_conv1d",       "linear_attn.conv1d"),
    T("ssm_dt.bias",      "linear_attn.dt_bias"),
    FORM(PROA_GGUF_NO_ENDING | PROA_GGUF_NEGATED_EXP, "ssm_a", "linear_attn.A_log"),
    T("ssm_out",          "linear_attn.out_proj"),
    END};
const proa_gguf_name proa_gguf_qwen3_5_names[] = {DELTA, GATED_FFN, TILED_DELTA, END};
/* The class has the gates and the other half of each expert in one matrix. */
const proa_gguf_name proa_gguf_qwen3_5_moe_names[] = {
    DELTA, TILED_DELTA, DELTA_ROUTED,
    T("ffn_gate_exps.weight", "mlp.experts.gate_up_proj"),
    T("ffn_up_exps.weight",   "mlp.experts.gate_up_proj#2"),
    T("ffn_down_exps.weight", "mlp.experts.down_proj"),
    /* both of them, by another option of a converter */
    USE(OLDER, "ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    END};
#define GRANITE_HYBRID EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS, ROTATED_Q_AND_K, V_AND_O, MAMBA
const proa_gguf_name proa_gguf_granite_hybrid_names[] = {
    GRANITE_HYBRID,
    T("ffn_gate.weight", "shared_mlp.input_linear.weight"),
    T("ffn_up.weight",   "shared_mlp.input_linear.weight#2"),
    T("ffn_down",        "shared_mlp.output_linear"),
    END};
const proa_gguf_name proa_gguf_granite_hybrid_moe_names[] = {
    GRANITE_HYBRID, GRANITE_SHARED_EXPERTS, END};
/* Bamba and Falcon-H1: a plain FFN, with names of its own. */
#define PLAIN_MAMBA \
    EMBEDDING_AND_HEAD("model.embed_tokens", "model.final_layernorm", "lm_head"), ROPE_FACTORS, V_AND_O, MAMBA, \
    T("attn_norm", "input_layernorm"), \
    T("ffn_gate",  "feed_forward.gate_proj"), \
    T("ffn_up",    "feed_forward.up_proj"), \
    T("ffn_down",  "feed_forward.down_proj")
const proa_gguf_name proa_gguf_bamba_names[] = {
    PLAIN_MAMBA, ROTATED_Q_AND_K, T("ffn_norm", "pre_ff_layernorm"), END};
const proa_gguf_name proa_gguf_falcon_h1_names[] = {
    PLAIN_MAMBA, PLAIN_Q_AND_K, FORM(PROA_GGUF_NO_ENDING, "ffn_norm", "pre_ff_layernorm.weight"), END};
const proa_gguf_name proa_gguf_jamba_names[] = {
    EMBEDDING_AND_HEAD("model.embed_tokens", "model.final_layernorm", "lm_head"), PLAIN_Q_AND_K, V_AND_O,
    MAMBA1_OF("mamba"),
    T("attn_norm",           "input_layernorm"),
    T("ssm_dt_norm",         "mamba.dt_layernorm"),
    T("ssm_b_norm",          "mamba.b_layernorm"),
    T("ssm_c_norm",          "mamba.c_layernorm"),
    T("ffn_norm",            "pre_ff_layernorm"),
    T("ffn_gate",            "feed_forward.gate_proj"),
    T("ffn_up",              "feed_forward.up_proj"),
    T("ffn_down",            "feed_forward.down_proj"),
    T("ffn_gate_inp",        "feed_forward.router"),
    USE(EXPERTS, "ffn_gate_exps", "feed_forward.experts.%d.gate_proj"),
    USE(EXPERTS, "ffn_up_exps",   "feed_forward.experts.%d.up_proj"),
    USE(EXPERTS, "ffn_down_exps", "feed_forward.experts.%d.down_proj"),
    END};
/* LFM2, whose last norm has the name of another. */
#define LFM2 \
    {"token_embd", "model.embed_tokens", 0, 0}, {"token_embd_norm", "model.embedding_norm", 0, 0}, \
    {"output", "lm_head", 0, 0}, \
    ROPE_FACTORS, PLAIN_Q_AND_K, \
    T("attn_norm",              "operator_norm"), \
    T("attn_v",                 "self_attn.v_proj"), \
    T("attn_output",            "self_attn.out_proj"), \
    T("attn_q_norm",            "self_attn.q_layernorm"), \
    T("attn_k_norm",            "self_attn.k_layernorm"), \
    USE(STORED, "shortconv.in_proj", "conv.in_proj"), \
    T("shortconv.conv",         "conv.conv"), \
    T("shortconv.out_proj",     "conv.out_proj"), \
    T("ffn_norm",               "ffn_norm"), \
    T("ffn_gate",               "feed_forward.w1"), \
    T("ffn_down",               "feed_forward.w2"), \
    T("ffn_up",                 "feed_forward.w3")
const proa_gguf_name proa_gguf_lfm2_names[] = {LFM2, END};
const proa_gguf_name proa_gguf_lfm2_moe_names[] = {
    LFM2,
    T("ffn_gate_inp",           "feed_forward.gate"),
    T("exp_probs_b.bias",       "feed_forward.expert_bias"),
    USE(EXPERTS, "ffn_gate_exps", "feed_forward.experts.%d.w1"),
    USE(EXPERTS, "ffn_down_exps", "feed_forward.experts.%d.w2"),
    USE(EXPERTS, "ffn_up_exps",   "feed_forward.experts.%d.w3"),
    END};
/* The class has the gates and the other half of each expert in one matrix. */
const proa_gguf_name proa_gguf_gpt_oss_names[] = {
    EMBEDDING_AND_NORM, PLAIN_Q_AND_K, V_AND_O,
    T("attn_norm",            "input_layernorm"),
    T("attn_sinks.weight",    "self_attn.sinks"),
    T("post_attention_norm",  "post_attention_layernorm"),
    T("ffn_gate_inp",         "mlp.router"),
    T("ffn_gate_exps.weight", "mlp.experts.gate_up_proj"),
    T("ffn_up_exps.weight",   "mlp.experts.gate_up_proj#2"),
    T("ffn_gate_exps.bias",   "mlp.experts.gate_up_proj_bias"),
    T("ffn_up_exps.bias",     "mlp.experts.gate_up_proj_bias#2"),
    T("ffn_down_exps.weight", "mlp.experts.down_proj"),
    T("ffn_down_exps.bias",   "mlp.experts.down_proj_bias"),
    END};
const proa_gguf_name proa_gguf_gemma2_names[] = {
    LLAMA, PLAIN_Q_AND_K, NORMED_Q_AND_K,
    T("attn_norm",           "input_layernorm"),
    T("post_attention_norm", "post_attention_layernorm"),
    T("ffn_norm",            "pre_feedforward_layernorm"),
    T("post_ffw_norm",       "post_feedforward_layernorm"),
    END};
/* Without biases. Layers may have inputs of their own, from a table and a product. */
#define GEMMA4 \
    EMBEDDING_AND_NORM, ROPE_FACTORS, GATED_FFN, T("attn_q_norm", "self_attn.q_norm"), \
    {"per_layer_token_embd", "model.embed_tokens_per_layer", 0, 0}, \
    {"per_layer_model_proj", "model.per_layer_model_projection", 0, 0}, \
    {"per_layer_proj_norm",  "model.per_layer_projection_norm", 0, 0}, \
    T("attn_q.weight",       "self_attn.q_proj.weight"), \
    T("attn_output.weight",  "self_attn.o_proj.weight"), \
    T("inp_gate",            "per_layer_input_gate"), \
    T("proj",                "per_layer_projection"), \
    T("post_norm",           "post_per_layer_input_norm"), \
    T("attn_norm",           "input_layernorm"), \
    T("post_attention_norm", "post_attention_layernorm"), \
    T("ffn_norm",            "pre_feedforward_layernorm"), \
    T("post_ffw_norm",       "post_feedforward_layernorm")
const proa_gguf_name proa_gguf_gemma4_names[] = {
    GEMMA4,
    T("attn_k.weight",       "self_attn.k_proj.weight"),
    T("attn_v.weight",       "self_attn.v_proj.weight"),
    T("attn_k_norm",         "self_attn.k_norm"),
    USE(STORED, "layer_output_scale.weight", "layer_scalar"),
    T("post_ffw_norm_1",     "post_feedforward_layernorm_1"),
    T("pre_ffw_norm_2",      "pre_feedforward_layernorm_2"),
    T("post_ffw_norm_2",     "post_feedforward_layernorm_2"),
    T("ffn_gate_inp.scale",  "router.scale"),
    T("ffn_gate_inp",        "router.proj"),
    T("ffn_down_exps.scale", "router.per_expert_scale"),
    T("ffn_gate_up_exps.weight", "experts.gate_up_proj"),
    T("ffn_down_exps.weight", "experts.down_proj"),
    USE(OLDER, "ffn_gate_exps.weight", "experts.gate_up_proj"),
    USE(OLDER, "ffn_up_exps.weight",   "experts.gate_up_proj#2"),
    END};
const proa_gguf_name proa_gguf_gemma3n_names[] = {
    GEMMA4,
    FORM(PROA_GGUF_EVERY_LAYER, "attn_k.weight",      "self_attn.k_proj.weight"),
    FORM(PROA_GGUF_EVERY_LAYER, "attn_v.weight",      "self_attn.v_proj.weight"),
    FORM(PROA_GGUF_EVERY_LAYER, "attn_k_norm.weight", "self_attn.k_norm.weight"),
    {"altup_proj",        "model.altup_projections.%d", PROA_GGUF_PARTS, 0},
    {"altup_unembd_proj", "model.altup_unembed_projections.%d", PROA_GGUF_PARTS, 0},
    T("altup_router_norm",   "altup.router_norm"),
    T("altup_router",        "altup.modality_router"),
    T("altup_predict_coef",  "altup.prediction_coefs"),
    T("altup_correct_coef",  "altup.correction_coefs"),
    T("altup_correct_scale.weight", "altup.correct_output_scale"),
    T("laurel_l",            "laurel.linear_left"),
    T("laurel_r",            "laurel.linear_right"),
    T("laurel_post_norm",    "laurel.post_laurel_norm"),
    END};
const proa_gguf_name proa_gguf_olmo2_names[] = {
    LLAMA, PLAIN_Q_AND_K, NORMED_Q_AND_K,
    T("post_attention_norm", "post_attention_layernorm"),
    T("post_ffw_norm",       "post_feedforward_layernorm"),
    END};
/* Latent attention: kv_b_proj is stored by head, its keys transposed as they are used (#2: its values), or in older
 * files as the class has it. */
#define LATENT \
    EMBEDDING_AND_NORM, NORMS, GATED_FFN, \
    T("attn_q",            "self_attn.q_proj"), \
    T("attn_q_a",          "self_attn.q_a_proj"), \
    T("attn_q_a_norm",     "self_attn.q_a_layernorm"), \
    T("attn_q_b",          "self_attn.q_b_proj"), \
    USE(STORED, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"), \
    T("attn_kv_a_norm",    "self_attn.kv_a_layernorm"), \
    USE(OLDER, "attn_kv_b", "self_attn.kv_b_proj"), \
    T("attn_k_b.weight",   "self_attn.kv_b_proj.weight"), \
    T("attn_v_b.weight",   "self_attn.kv_b_proj.weight#2"), \
    T("attn_output",       "self_attn.o_proj"), \
    SHARED_EXPERT("mlp.shared_experts")
const proa_gguf_name proa_gguf_deepseek_names[] = {
    LATENT, SIGMOID_ROUTER, EXPERTS_OF_FFN, NEXT_TOKENS_PARTS, END};
const proa_gguf_name proa_gguf_mistral4_names[] = {
    LATENT,
    T("ffn_gate_inp",            "mlp.gate"),
    T("ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"),
    T("ffn_down_exps.weight",    "mlp.experts.down_proj"),
    USE(OLDER, "ffn_gate_exps.weight", "mlp.experts.gate_up_proj"),
    USE(OLDER, "ffn_up_exps.weight",   "mlp.experts.gate_up_proj#2"),
    END};
/* Baichuan-13B has ALiBi and no rotary positions; q and k are stored in the order of rotations nevertheless. */
const proa_gguf_name proa_gguf_baichuan_names[] = {
    EMBEDDING_AND_NORM, NORMS, GATED_FFN,
    USE(ROTATED_Q, "attn_q.weight", "self_attn.W_pack.weight"),
    USE(ROTATED_K, "attn_k.weight", "self_attn.W_pack.weight#2"),
    T("attn_v.weight", "self_attn.W_pack.weight#3"),
    T("attn_output",   "self_attn.o_proj"),
    END};
const proa_gguf_name proa_gguf_phi2_names[] = {
    EMBEDDING_AND_HEAD("model.embed_tokens", "model.final_layernorm", "lm_head"),
    PLAIN_Q_AND_K,
    T("attn_norm",   "input_layernorm"),
    T("attn_v",      "self_attn.v_proj"),
    T("attn_output", "self_attn.dense"),
    T("ffn_up",      "mlp.fc1"),
    T("ffn_down",    "mlp.fc2"),
    END};
const proa_gguf_name proa_gguf_phi3_names[] = {
    EMBEDDING_AND_NORM, ROPE_FACTORS, NORMS,
    T("attn_qkv",    "self_attn.qkv_proj"),
    T("attn_output", "self_attn.o_proj"),
    T("ffn_up",      "mlp.gate_up_proj"),
    T("ffn_down",    "mlp.down_proj"),
    END};
const proa_gguf_name proa_gguf_starcoder2_names[] = {
    EMBEDDING_AND_NORM, NORMS, PLAIN_Q_AND_K, V_AND_O, T("ffn_up", "mlp.c_fc"), T("ffn_down", "mlp.c_proj"), END};
#undef L

#define L "transformer.h.%d."
const proa_gguf_name proa_gguf_gpt2_names[] = {
    EMBEDDING_AND_HEAD("transformer.wte", "transformer.ln_f", "lm_head"),
    {"position_embd", "transformer.wpe", 0, 0},
    T("attn_norm",   "ln_1"),
    T("attn_qkv",    "attn.c_attn"),
    T("attn_output", "attn.c_proj"),
    T("ffn_norm",    "ln_2"),
    T("ffn_up",      "mlp.c_fc"),
    T("ffn_down",    "mlp.c_proj"),
    END};
#define FALCON \
    EMBEDDING_AND_HEAD("transformer.word_embeddings", "transformer.ln_f", "lm_head"), \
    T("attn_qkv",    "self_attention.query_key_value"), \
    T("attn_output", "self_attention.dense"), \
    T("ffn_up",      "mlp.dense_h_to_4h"), \
    T("ffn_down",    "mlp.dense_4h_to_h")
const proa_gguf_name proa_gguf_falcon7b_names[] = {FALCON, T("attn_norm", "input_layernorm"), END};
const proa_gguf_name proa_gguf_falcon40b_names[] = {FALCON, T("attn_norm", "ln_mlp"), T("attn_norm_2", "ln_attn"), END};
const proa_gguf_name proa_gguf_bloom_names[] = {
    FALCON, NORMS, {"token_embd_norm", "transformer.word_embeddings_layernorm", 0, 0}, END};
#undef L

#define L "layers.%d."
const proa_gguf_name proa_gguf_modernbert_names[] = {
    {"token_embd",      "embeddings.tok_embeddings", 0, 0},
    {"token_embd_norm", "embeddings.norm", 0, 0},
    {"output_norm",     "final_norm", 0, 0},
    {"cls",             "head.dense", 0, 0},
    {"cls.norm",        "head.norm", 0, 0},
    {"cls.output",      "classifier", 0, 0},
    T("attn_norm",   "attn_norm"),
    T("attn_qkv",    "attn.Wqkv"),
    T("attn_output", "attn.Wo"),
    T("ffn_norm",    "mlp_norm"),
    T("ffn_up",      "mlp.Wi"),
    T("ffn_down",    "mlp.Wo"),
    END};
#undef L

#define L "gpt_neox.layers.%d."
const proa_gguf_name proa_gguf_gptneox_names[] = {
    EMBEDDING_AND_HEAD("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
    NORMS,
    T("attn_qkv",    "attention.query_key_value"),
    T("attn_output", "attention.dense"),
    T("ffn_up",      "mlp.dense_h_to_4h"),
    T("ffn_down",    "mlp.dense_4h_to_h"),
    END};
#undef L

#define L "transformer.blocks.%d."
const proa_gguf_name proa_gguf_mpt_names[] = {
    EMBEDDING_AND_HEAD("transformer.wte", "transformer.norm_f", "lm_head"),
    {"position_embd", "transformer.wpe", 0, 0},
    T("attn_norm",   "norm_1"),
    T("attn_qkv",    "attn.Wqkv"),
    T("attn_output", "attn.out_proj"),
    T("ffn_norm",    "norm_2"),
    T("ffn_up",      "ffn.up_proj"),
    T("ffn_down",    "ffn.down_proj"),
    END};
#undef L

#define L "nomic_bert.encoder.layers.%d."
#define NOMIC \
    {"token_embd",      "nomic_bert.embeddings.word_embeddings", 0, 0}, \
    {"token_types",     "nomic_bert.embeddings.token_type_embeddings", 0, 0}, \
    {"token_embd_norm", "nomic_bert.emb_ln", 0, 0}, \
    T("attn_qkv",          "attn.Wqkv"), \
    T("attn_output",       "attn.out_proj"), \
    T("attn_output_norm",  "norm1"), \
    T("ffn_down",          "mlp.fc2"), \
    T("layer_output_norm", "norm2")
const proa_gguf_name proa_gguf_nomic_names[] = {NOMIC, T("ffn_gate", "mlp.fc12"), T("ffn_up", "mlp.fc11"), END};
/* The bias of all experts together has no name. */
const proa_gguf_name proa_gguf_nomic_moe_names[] = {
    NOMIC,
    T("ffn_up",               "mlp.fc1"),
    T("ffn_gate_inp",         "mlp.router.layer"),
    T("ffn_up_exps.weight",   "mlp.experts.mlp.w1"),
    T("ffn_down_exps.weight", "mlp.experts.mlp.w2"),
    END};
#undef L

#define L "roberta.encoder.layers.%d."
const proa_gguf_name proa_gguf_jina_v3_names[] = {
    {"token_embd",      "roberta.embeddings.word_embeddings", 0, 0},
    {"token_types",     "roberta.embeddings.token_type_embeddings", 0, 0},
    {"token_embd_norm", "roberta.emb_ln", 0, 0},
    T("attn_qkv",          "mixer.Wqkv"),
    T("attn_output",       "mixer.out_proj"),
    T("attn_output_norm",  "norm1"),
    T("ffn_up",            "mlp.fc1"),
    T("ffn_down",          "mlp.fc2"),
    T("layer_output_norm", "norm2"),
    {"", "roberta.pooler.dense", PROA_GGUF_UNWRITTEN, 0},
    END};
#undef L

#define L "bert.encoder.layer.%d."
#define BERT \
    {"token_embd",      "bert.embeddings.word_embeddings", 0, 0}, \
    {"token_types",     "bert.embeddings.token_type_embeddings", 0, 0}, \
    {"token_embd_norm", "bert.embeddings.LayerNorm", 0, 0}, \
    T("attn_q",            "attention.self.query"), \
    T("attn_k",            "attention.self.key"), \
    T("attn_v",            "attention.self.value"), \
    T("attn_output",       "attention.output.dense"), \
    T("attn_output_norm",  "attention.output.LayerNorm"), \
    {"", "bert.pooler.dense", PROA_GGUF_UNWRITTEN, 0}
const proa_gguf_name proa_gguf_bert_names[] = {
    BERT,
    {"position_embd",   "bert.embeddings.position_embeddings", 0, 0},
    T("ffn_up",            "intermediate.dense"),
    T("ffn_down",          "output.dense"),
    T("layer_output_norm", "output.LayerNorm"),
    END};
const proa_gguf_name proa_gguf_jina_names[] = {
    BERT,
    T("ffn_up",            "mlp.gated_layers"),
    T("ffn_down",          "mlp.wo"),
    T("layer_output_norm", "mlp.layernorm"),
    END};
#undef L

#define S(stack, gguf, hf) {stack "c.blk.%d." gguf, stack "coder.block.%d.layer." hf, 0, 0}
#define SELF_ATTENTION(stack) \
    S(stack, "attn_norm",  "0.layer_norm"), \
    S(stack, "attn_q",     "0.SelfAttention.q"), \
    S(stack, "attn_k",     "0.SelfAttention.k"), \
    S(stack, "attn_v",     "0.SelfAttention.v"), \
    S(stack, "attn_o",     "0.SelfAttention.o"), \
    S(stack, "attn_rel_b", "0.SelfAttention.relative_attention_bias")
#define FFN(stack, at, up) \
    S(stack, "ffn_norm", at ".layer_norm"), \
    S(stack, "ffn_gate", at ".DenseReluDense.wi_0"), \
    S(stack, "ffn_up",   at ".DenseReluDense." up), \
    S(stack, "ffn_down", at ".DenseReluDense.wo")
#define T5(up) \
    {"token_embd", "shared", 0, 0}, {"output", "lm_head", 0, 0}, \
    {"enc.output_norm", "encoder.final_layer_norm", 0, 0}, {"dec.output_norm", "decoder.final_layer_norm", 0, 0}, \
    SELF_ATTENTION("en"), FFN("en", "1", up), SELF_ATTENTION("de"), FFN("de", "2", up), \
    S("de", "cross_attn_norm", "1.layer_norm"), \
    S("de", "cross_attn_q",    "1.EncDecAttention.q"), \
    S("de", "cross_attn_k",    "1.EncDecAttention.k"), \
    S("de", "cross_attn_v",    "1.EncDecAttention.v"), \
    S("de", "cross_attn_o",    "1.EncDecAttention.o"), \
    {"dec.blk.%d.cross_attn_rel_b", NULL, PROA_GGUF_DROPPED, 0} /* of no use: there are no relative positions */
const proa_gguf_name proa_gguf_t5_names[] = {T5("wi"), END};
const proa_gguf_name proa_gguf_gated_t5_names[] = {T5("wi_1"), END};
#define T5_ENCODER(up) \
    {"token_embd", "shared", 0, 0}, {"enc.output_norm", "encoder.final_layer_norm", 0, 0}, SELF_ATTENTION("en"), \
    FFN("en", "1", up)
const proa_gguf_name proa_gguf_t5_encoder_names[] = {T5_ENCODER("wi"), END};
const proa_gguf_name proa_gguf_gated_t5_encoder_names[] = {T5_ENCODER("wi_1"), END};

/* Layers of one part each, whose norm is attn_norm: Mamba-2, Nemotron-H. */
#undef L
#define L "backbone.layers.%d."
#define BACKBONE \
    EMBEDDING_AND_HEAD("backbone.embeddings", "backbone.norm_f", "lm_head"), T("attn_norm", "norm"), MAMBA_OF("mixer")
/* Nothing is rotated, but the converter orders the rows as if it were. */
#define NEMOTRON_H \
    BACKBONE, \
    USE(ROTATED_Q, "attn_q", "mixer.q_proj"), USE(ROTATED_K, "attn_k", "mixer.k_proj"), T("attn_v", "mixer.v_proj"), \
    T("attn_output", "mixer.o_proj"), T("ffn_up", "mixer.up_proj"), T("ffn_down", "mixer.down_proj")
const proa_gguf_name proa_gguf_mamba2_names[] = {BACKBONE, END};
const proa_gguf_name proa_gguf_mamba_names[] = {
    EMBEDDING_AND_HEAD("backbone.embeddings", "backbone.norm_f", "lm_head"), T("attn_norm", "norm"), MAMBA1_OF("mixer"),
    END};
const proa_gguf_name proa_gguf_nemotron_h_names[] = {NEMOTRON_H, END};
const proa_gguf_name proa_gguf_nemotron_h_moe_names[] = {
    NEMOTRON_H,
    T("ffn_gate_inp",     "mixer.gate"),
    T("exp_probs_b.bias", "mixer.gate.e_score_correction_bias"),
    USE(EXPERTS, "ffn_up_exps",   "mixer.experts.%d.up_proj"),
    USE(EXPERTS, "ffn_down_exps", "mixer.experts.%d.down_proj"),
    T("ffn_up_shexp",     "mixer.shared_experts.up_proj"),
    T("ffn_down_shexp",   "mixer.shared_experts.down_proj"),
    T("ffn_latent_down",  "mixer.fc1_latent_proj"),
    T("ffn_latent_up",    "mixer.fc2_latent_proj"),
    NEXT_TOKENS("eh_proj"), NEXT_TOKENS("enorm"), NEXT_TOKENS("hnorm"), NEXT_TOKENS("shared_head_norm"),
    {"blk.%d.post_attention_norm", NULL, PROA_GGUF_DROPPED, 0}, /* of the layer that predicts further tokens */
    END};
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

static bool is_whole(const char *whole, const char *pattern, proa_str ending)
{
    size_t body = strlen(pattern);
    return strncmp(whole, pattern, body) == 0 && proa_str_is(ending, whole + body);
}

const proa_gguf_name *proa_gguf_name_of(const proa_gguf_arch *arch, const char *pattern, proa_str *ending)
{
    for (const proa_gguf_name *n = arch->names; n->gguf; n++) {
        if (strcmp(n->gguf, pattern) == 0) return n;
        if (!is_whole(n->gguf, pattern, *ending)) continue;
        ending->len = 0;
        return n;
    }
    return NULL;
}
