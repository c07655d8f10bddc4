/* SPDX-License-Identifier: Apache-2.0
 * arch_deepseek.c - DeepSeek's first mixture, V2, V3 (R1) and V3.2, GLM-4.7-Flash, GLM-5, Youtu-LLM, A.X K1, Sarvam's
 * larger mixture, Kimi K2.5's text model, Kimi Linear, Mistral Small 4, MiniCPM 3: latent attention (Llama's in the
 * first mixture), and a mixture with shared experts after some dense layers (Youtu-LLM and MiniCPM 3 have dense ones
 * only, the latter with factors of embedding, branches and logits). Most layers of Kimi Linear have a gated delta rule
 * instead of attention, whose decays are those of each number of a key (Kimi Team 2025).
 *
 * Latent attention (DeepSeek-V2, 2024): a token's keys and values of all heads are products of one latent row c
 * [kv_lora], and all heads share the rotated part of the key r [qk_rope]. Instead of making keys [heads, qk_nope] and
 * values [heads, v_dim] from c, the product is moved to the query, q_nope . (K_h c) = (q_nope K_h) . c, and after the
 * sum over the context, sum w V_h c = V_h (sum w c). So attention is that of one key head [r, c] with `heads` queries
 * of the same width, and the pages hold kv_lora + qk_rope numbers a token, which are its values too. Scores are scaled
 * by the size of the heads that the checkpoint names.
 *
 * Sparse attention (DeepSeek V3.2, 2025; GLM-5): a row sees only the index_topk keys that an indexer scores highest. It
 * has queries of its own, made from the low rank of q, one key for a token, and a weight for each of its heads. In some
 * layers of GLM-5 rows see what an earlier layer picked.
 *
 * Routing: V2 takes the best of a softmax, V3 of sigmoids with a correction that only chooses; both may limit the
 * choice to the best groups; Mistral's is a softmax in groups. It also scales queries by their positions. Facts:
 * transformers' modeling_{deepseek_v2,deepseek_v3,deepseek_v32,glm4_moe_lite,glm_moe_dsa,kimi_k25,kimi_linear,
 * mistral4,minicpm3,youtu,axk1}.py, configuration_sarvam_mla.py, and DeepSeek's own modeling files. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"
#include <math.h>

#define STACK PROA_STACK_DECODER
#define LAYER "model.layers.%d."

/* clang-format off */
#define COMMON_KEYS \
    SIZE_KEYS (layers),                                                      \
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  2048), \
    EPSILON   ("rms_norm_eps",             1e-6),                            \
    ACTIVATION("hidden_act",               SILU),                            \
    SWITCH    ("tie_word_embeddings",      tied,           0),               \
    SWITCH    ("attention_bias",           attention_bias, 0),               \
    SWITCH    ("rope_interleave",          rope_pairs,     1)
#define SIZES(Q_LORA, KV_LORA, NOPE, ROPE, VALUE) \
    INTEGER   ("q_lora_rank",              q_lora,         0, HIDDEN,   Q_LORA),  \
    INTEGER   ("kv_lora_rank",             kv_lora,        1, HEAD_DIM, KV_LORA), \
    INTEGER   ("qk_nope_head_dim",         qk_nope,        1, HEAD_DIM, NOPE),    \
    INTEGER   ("qk_rope_head_dim",         qk_rope,        1, HEAD_DIM, ROPE),    \
    INTEGER   ("v_head_dim",               v_dim,          1, HEAD_DIM, VALUE)
#define ROUTED_KEYS(COUNT, SIZE) \
    INTEGER   ("n_routed_experts",         experts,        1, EXPERTS,  COUNT),   \
    INTEGER   ("moe_intermediate_size",    expert_ffn,     1, FFN,      SIZE),    \
    INTEGER   ("num_nextn_predict_layers", unused_layers,  0, LAYERS,   0)
static const proa_key v2_keys[] = {
    COMMON_KEYS,
    SIZES     (1536, 512, 128, 64, 128),
    ROUTED_KEYS(64, 1407),
    END_KEYS};
static const proa_key v3_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  4096),
    SIZES     (1536, 512, 128, 64, 128),
    ROUTED_KEYS(256, 2048),
    END_KEYS};
static const proa_key glm_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  202752),
    EPSILON   ("rms_norm_eps",             1e-5),
    SIZES     (768, 512, 192, 64, 256),
    ROUTED_KEYS(64, 1536),
    END_KEYS};
static const proa_key v1_keys[] = {
    LLAMA_KEYS(layers),
    REQUIRED  ("n_routed_experts",         experts,        EXPERTS),
    INTEGER   ("moe_intermediate_size",    expert_ffn,     1, FFN,      1407),
    END_KEYS};
static const proa_key sarvam_keys[] = {
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  4096),
    COMMON_KEYS,
    SIZES     (0, 512, 128, 64, 128),
    INTEGER   ("num_experts",              experts,        1, EXPERTS,  0), /* its name in published files */
    ROUTED_KEYS(128, 2048),
    END_KEYS};
#define INDEX_KEYS(COUNT) \
    INTEGER   ("index_topk",               index_topk,     1, CONTEXT,  2048),       \
    INTEGER   ("index_head_dim",           index_dim,      1, HEAD_DIM, 128),        \
    INTEGER   ("index_n_heads",            index_heads,    1, HEADS,    COUNT)
static const proa_key v32_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  163840),
    SIZES     (1536, 512, 128, 64, 128),
    INTEGER   ("num_experts",              experts,        1, EXPERTS,  0), /* an older name */
    ROUTED_KEYS(256, 2048),
    INDEX_KEYS(64),
    END_KEYS};
static const proa_key glm_dsa_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  202752),
    EPSILON   ("rms_norm_eps",             1e-5),
    SIZES     (2048, 512, 192, 64, 256),
    INTEGER   ("num_experts",              experts,        1, EXPERTS,  0),
    ROUTED_KEYS(256, 2048),
    INDEX_KEYS(32),
    END_KEYS};
static const proa_key mistral_keys[] = {
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  1048576),
    COMMON_KEYS,
    SIZES     (1024, 256, 64, 64, 128),
    ROUTED_KEYS(128, 2048),
    END_KEYS};
static const proa_key youtu_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  131072),
    SIZES     (1536, 512, 128, 64, 128),
    SWITCH    ("tie_word_embeddings",      tied,           1),
    END_KEYS};
static const proa_key axk1_keys[] = {
    COMMON_KEYS,
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  32768),
    SIZES     (1536, 512, 128, 64, 128),
    ROUTED_KEYS(192, 2048),
    END_KEYS};
static const proa_key kimi_keys[] = {
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,   1048576),
    COMMON_KEYS,
    INTEGER   ("model_max_length",         context,        1, CONTEXT,   1048576), /* its name in files */
    SIZES     (0, 512, 128, 64, 128),
    EPSILON   ("rms_norm_eps",             1e-5),
    INTEGER   ("num_experts",              experts,        1, EXPERTS,   256),
    INTEGER   ("moe_intermediate_size",    expert_ffn,     1, FFN,       1024),
    INTEGER   ("num_nextn_predict_layers", unused_layers,  0, LAYERS,    0),
    INTEGER   ("linear_head_dim",          key_dim,        1, STATE_DIM, 128),
    INTEGER   ("linear_num_heads",         value_heads,    1, HEADS,     32),
    INTEGER   ("linear_conv_kernel_dim",   conv_taps,      2, CONV_WIDTH, 4),
    END_KEYS};
static const proa_key minicpm_keys[] = {
    INTEGER   ("max_position_embeddings",  context,        1, CONTEXT,  32768),
    COMMON_KEYS,
    SIZES     (768, 256, 64, 32, 0),
    EPSILON   ("rms_norm_eps",             1e-5),
    SWITCH    ("tie_word_embeddings",      tied,           1),
    NUMBER    ("scale_emb",                embed_scale,    1e-6, 1e6,   12),
    NUMBER    ("scale_depth",              residual_scale, 1e-6, 1e6,   1.4),
    END_KEYS};

/* MOE: what the names of the mixture begin with. */
#define FFN_TENSORS(MOE) \
    LLAMA_DENSE_TENSORS(LAYER "mlp."), \
    MATRIX_IF(EXPERTS, LAYER MOE "gate.weight",               ROUTER,      EXPERTS,    HIDDEN), \
    SHARED_MATRIX(LAYER MOE "shared_experts.gate_proj.weight", SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER MOE "shared_experts.up_proj.weight",   SHARED_UP,   SHARED_FFN, HIDDEN),     \
    SHARED_MATRIX(LAYER MOE "shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN,     SHARED_FFN)
#define TENSORS(MOE) \
    TABLE    ("model.embed_tokens.weight",                    TOKENS,      VOCAB,      HIDDEN), \
    VECTOR   (LAYER "input_layernorm.weight",                 ATTN_NORM,   HIDDEN),             \
    ATTENTION(ROWS, "q_a_proj.weight",       Q_DOWN,      MATRIX, Q_LORA,  HIDDEN, IF(Q_LORA)), \
    ATTENTION(ROWS, "q_a_layernorm.weight",  Q_DOWN_NORM, VECTOR, Q_LORA,  NONE,   IF(Q_LORA)), \
    ATTENTION(ROWS, "q_b_proj.weight",       Q,           MATRIX, Q_HEADS, Q_LORA, IF(Q_LORA)), \
    ATTENTION(ROWS, "q_proj.weight",         Q,           MATRIX, Q_HEADS, HIDDEN, IF(Q_WHOLE)), \
    ATTENTION(ROPE_FIRST, "kv_a_proj_with_mqa.weight", KV_DOWN, MATRIX, HEAD, HIDDEN, 0),       \
    ATTENTION(ROWS, "kv_a_layernorm.weight", K_NORM,      VECTOR, LATENT,  NONE,   0),          \
    ATTENTION(HEAD_KEYS,   "kv_b_proj.weight", Q_LATENT, TRANSPOSED, LATENT, NOPE, PROA_OF_HEADS), \
    ATTENTION(HEAD_VALUES, "kv_b_proj.weight", V_UP,      MATRIX, VALUE,   LATENT, PROA_OF_HEADS), \
    ATTENTION(ROWS, "o_proj.weight",         O,           MATRIX, HIDDEN,  VALUES, 0),          \
    ATTENTION(ROWS, "q_a_proj.bias",         Q_DOWN_B,    VECTOR, Q_LORA,  NONE,   IF(ATTN_BIAS) | IF(Q_LORA)), \
    ATTENTION(ROPE_FIRST, "kv_a_proj_with_mqa.bias", KV_DOWN_B, VECTOR, HEAD, NONE, IF(ATTN_BIAS)), \
    ATTENTION(ROWS, "o_proj.bias",           O_B,         VECTOR, HIDDEN,  NONE,   IF(ATTN_BIAS)), \
    VECTOR   (LAYER "post_attention_layernorm.weight",        FFN_NORM,    HIDDEN),             \
    FFN_TENSORS(MOE),                                                                                \
    VECTOR   ("model.norm.weight",                            FINAL_NORM,  HIDDEN),             \
    MATRIX_IF(UNTIED, "lm_head.weight",                       HEAD,        VOCAB,      HIDDEN), \
    TIED_HEAD("model.embed_tokens.weight"),                                                     \
    END_TENSORS
#define ATTENTION(LOAD, name, SLOT, ROLE, ROWS, COLS, flags) \
    TENSOR_LOADED(LOAD, LAYER "self_attn." name, SLOT, ROLE, ROWS, COLS, (flags) | IF(ATTENDS))
#define SHARED_MATRIX(name, SLOT, ROWS, COLS) TENSOR(name, SLOT, MATRIX, ROWS, COLS, IF(EXPERTS) | IF(SHARED))

#define APART_TENSORS \
    LLAMA_EXPERT_TENSORS(LAYER "mlp.")
#define EXPERTS_OF(FORM, name, SLOT, ROWS, COLS) \
    TENSOR(LAYER "mlp.experts." name, SLOT, MATRIX, ROWS, COLS, PROA_PER_EXPERT | IF(EXPERTS) | IF(EXPERTS_##FORM))
static const proa_name v1_tensors[] = {
    LLAMA_ATTENTION_BIASES("model."),
    APART_TENSORS,
    FFN_TENSORS("mlp."),
    LLAMA_ATTENTION("model."),
    LLAMA_HEAD("model.", "lm_head.weight"),
    END_TENSORS};
static const proa_name v2_tensors[] = {APART_TENSORS, TENSORS("mlp.")};
static const proa_name mistral_tensors[] = {
    EXPERTS_OF(STACKED, "gate_up_proj",        EXPERT_UP,   EXPERT_GATED, HIDDEN), /* as transformers 5 saves them */
    EXPERTS_OF(STACKED, "down_proj",           EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    EXPERTS_OF(APART,   "%d.gate_proj.weight", EXPERT_UP,   EXPERT_FFN,   HIDDEN),
    EXPERTS_OF(APART,   "%d.up_proj.weight",   EXPERT_UP,   EXPERT_FFN,   HIDDEN),
    EXPERTS_OF(APART,   "%d.down_proj.weight", EXPERT_DOWN, HIDDEN,       EXPERT_FFN),
    TENSORS("mlp.")};
#define V3_TENSORS \
    APART_TENSORS, \
    VECTOR_IF(EXPERTS, LAYER "mlp.gate.e_score_correction_bias", CORRECTION, EXPERTS)
static const proa_name v3_tensors[] = {V3_TENSORS, TENSORS("mlp.")};
/* A norm behind the mixture; dense layers of published files have one, too, that is not used. */
static const proa_name axk1_tensors[] = {
    APART_TENSORS,
    TENSOR(LAYER "mlp.gate.e_score_correction_bias", CORRECTION,   VECTOR, EXPERTS, NONE, IF(EXPERTS) | IF(PRESENT)),
    VECTOR_IF(EXPERTS, LAYER "post_mlp_layernorm.weight", FFN_OUT_NORM, HIDDEN),
    TENSOR(LAYER "post_mlp_layernorm.weight", FFN_OUT_NORM, VECTOR, HIDDEN, NONE, PROA_UNUSED | IF(DENSE)),
    TENSORS("mlp.")};
static const proa_name sparse_tensors[] = {
    V3_TENSORS,
    MATRIX_IF(PICKS, LAYER "self_attn.indexer.wq_b.weight",         INDEX_Q,      INDEX_Q,     Q_LORA),
    MATRIX_IF(PICKS, LAYER "self_attn.indexer.wk.weight",           INDEX_K,      INDEX,       HIDDEN),
    VECTOR_IF(PICKS, LAYER "self_attn.indexer.k_norm.weight",       INDEX_NORM,   INDEX),
    VECTOR_IF(PICKS, LAYER "self_attn.indexer.k_norm.bias",         INDEX_NORM_B, INDEX),
    MATRIX_IF(PICKS, LAYER "self_attn.indexer.weights_proj.weight", INDEX_W,      INDEX_HEADS, HIDDEN),
    TENSORS("mlp.")};

/* Kimi Linear: layers with a delta rule. */
#define DELTA LAYER "self_attn."
#define MOE   "block_sparse_moe."
#define DELTA_MATRIX(name, SLOT, ROWS, COLS) MATRIX_IF(RECURS, DELTA name, SLOT, ROWS, COLS)
static const proa_name kimi_tensors[] = {
    DELTA_MATRIX("q_proj.weight",   MIX,         RECALL_KEYS, HIDDEN),
    DELTA_MATRIX("k_proj.weight",   MIX,         RECALL_KEYS, HIDDEN),
    DELTA_MATRIX("v_proj.weight",   MIX,         RECALLED,    HIDDEN),
    DELTA_MATRIX("b_proj.weight",   RATES,       RATE_HEADS,  HIDDEN),
    DELTA_MATRIX("f_a_proj.weight", DECAY_DOWN,  GATE_RANK,   HIDDEN),
    DELTA_MATRIX("f_b_proj.weight", DECAY_UP,    DECAYS,      GATE_RANK),
    DELTA_MATRIX("g_a_proj.weight", GATE_DOWN,   GATE_RANK,   HIDDEN),
    DELTA_MATRIX("g_b_proj.weight", GATE_UP,     RECALLED,    GATE_RANK),
    DELTA_MATRIX("o_proj.weight",   MIX_OUT,     HIDDEN,      RECALLED),
    DELTA_CONVOLUTIONS(DELTA),
    VECTOR_IF(RECURS, DELTA "A_log",         DECAY,       RATE_HEADS),
    VECTOR_IF(RECURS, DELTA "dt_bias",       DECAY_B,     DECAYS),
    VECTOR_IF(RECURS, DELTA "o_norm.weight", RECALL_NORM, RECALL_HEAD),
    EXPERT_MATRIX_IF(EXPERTS, LAYER MOE "experts.%d.w1.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, LAYER MOE "experts.%d.w3.weight", EXPERT_UP,   EXPERT_FFN, HIDDEN),
    EXPERT_MATRIX_IF(EXPERTS, LAYER MOE "experts.%d.w2.weight", EXPERT_DOWN, HIDDEN,     EXPERT_FFN),
    VECTOR_IF(EXPERTS, LAYER MOE "gate.e_score_correction_bias", CORRECTION, EXPERTS),
    TENSORS(MOE)};
/* transformers 5 saves dense FFNs so, too. */
static const char *const kimi_aliases[] = {"mlp.gate_proj.weight", MOE "gate_proj.weight", "mlp.up_proj.weight",
                                           MOE "up_proj.weight", "mlp.down_proj.weight", MOE "down_proj.weight", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

/* Kimi K2.5 and Mistral Small 4 beside a vision tower: published names, and those of transformers 5. */
static const char *const text_aliases[] = {
    "model.", "language_model.model.", "model.", "model.language_model.", "lm_head.", "language_model.lm_head.", NULL};
static const char *const unused[] = {"vision_tower.", "mm_projector.", "multi_modal_projector.", "model.vision_tower.",
                                     "model.mm_projector.", "model.multi_modal_projector.", NULL};

#define AT IF(ATTENDS)
#define IN IF(RECURS)
static const proa_step embed[] = {EMBED_TO(X, TOKENS, SCALED), ROPE_TABLE_IF(ROTARY), END};
#define BEFORE_ATTENTION \
    NORM        (X, N,    ATTN_NORM),                                   \
    LINEAR      (N, QD,   Q_DOWN,      AT | IF(Q_LORA)),                \
    STEP        (NORM, QD, QD, Q_DOWN_NORM, AT | IF(Q_LORA)),           \
    LINEAR      (QD, QH,  Q,           AT | IF(Q_LORA)),                \
    LINEAR      (N, QH,   Q,           AT | IF(Q_WHOLE)),               \
    HEADS_LINEAR(QH, QKV, Q_LATENT,    AT | KEEP),                      \
    LINEAR      (N, QKV,  KV_DOWN,     AT | OF_K),                      \
    K_NORM_IF   (ATTENDS, K_NORM),                                      \
    SCALE_QUERIES(AT),                                                  \
    STEP_BARE   (ROPE, QKV, QKV,       AT | PROA_INTERLEAVED | IF(ROPE_PAIRS) | IF(ROTARY)), \
    STEP_BARE   (ROPE, QKV, QKV,       AT | IF(ROPE_HALVES) | IF(ROTARY)), \
    STEP_BARE   (KV_APPEND, QKV, NONE, AT)
#define BEHIND_ATTENTION \
    HEADS_LINEAR(A, AV,   V_UP,        AT),                             \
    LINEAR      (AV, X,   O,           AT | ADD | RESIDUAL)
#define DENSE_FFN \
    NORM        (X, N,    FFN_NORM),                                    \
    LINEAR_GATED(N, F,    UP,          IF(DENSE))
#define FFNS \
    DENSE_FFN,                                                          \
    LINEAR      (F, X,    DOWN,        ADD | RESIDUAL | IF(DENSE)),     \
    LLAMA_EXPERTS,                                                      \
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS) | IF(SHARED)),       \
    LINEAR      (F, X,    SHARED_DOWN, ADD | IF(EXPERTS) | IF(SHARED))
static const proa_step layer[] = {BEFORE_ATTENTION, ATTEND, BEHIND_ATTENTION, FFNS, END};
static const proa_step kimi_layer[] = {
    BEFORE_ATTENTION,
    STEP_BARE    (ATTEND, QKV, A,        AT),
    BEHIND_ATTENTION,
    LINEAR       (N, MIX,  MIX,          IN),
    LINEAR       (N, RATES, RATES,       IN),
    LINEAR       (N, PARAMS, DECAY_DOWN, IN | IF(GATES_LOW)),
    LINEAR       (PARAMS, RATES, DECAY_UP, IN | IF(GATES_LOW) | BEHIND),
    LINEAR       (N, PARAMS, GATE_DOWN,  IN | IF(GATES_LOW)),
    LINEAR       (PARAMS, MIX, GATE_UP,  IN | IF(GATES_LOW) | BEHIND),
    RECALL_DELTA,
    FFNS,
    END};
static const proa_step sparse_layer[] = {
    BEFORE_ATTENTION,
    LINEAR       (QD, INDEX_Q, INDEX_Q, IF(PICKS)),
    LINEAR       (N,  INDEX_K, INDEX_K, IF(PICKS)),
    LINEAR       (N,  INDEX_W, INDEX_W, IF(PICKS)),
    PICK_KEYS    (INDEX_NORM),
    ATTEND_PICKED,
    BEHIND_ATTENTION,
    FFNS,
    END};
static const proa_step axk1_layer[] = {
    BEFORE_ATTENTION,
    ATTEND,
    BEHIND_ATTENTION,
    DENSE_FFN,
    LINEAR      (F, D,    DOWN,        IF(DENSE)),
    LINEAR      (N, ROUTER, ROUTER, IF(EXPERTS)),
    ROUTE       (CORRECTION),
    EXPERTS     (N, D,                 0),
    LINEAR_GATED(N, F,    SHARED_UP,   IF(EXPERTS) | IF(SHARED)),
    LINEAR      (F, D,    SHARED_DOWN, ADD | IF(EXPERTS) | IF(SHARED)),
    STEP_BARE   (ADD, D, X,            IF(DENSE)),
    STEP        (NORM, D, X, FFN_OUT_NORM, PROA_ADD | IF(EXPERTS)),
    END};
static const proa_step v1_layer[] = {LLAMA_QKV, ROTATE, LLAMA_ATTEND, FFNS, END};
static const proa_step head[] = {LM_HEAD(SCALED)};
/* clang-format on */

/* The first layers, and those between the multiples of moe_layer_freq, are dense. */
static proa_status read_expert_layers(proa_config *c, const proa_json *json, int64_t dense, proa_arena *arena,
                                      proa_err *err)
{
    int64_t step = 1;
    PROA_TRY(proa_json_get_int(&dense, json, "first_k_dense_replace", 0, PROA_LAYERS_MAX, err));
    PROA_TRY(proa_json_get_int(&step, json, "moe_layer_freq", 1, PROA_LAYERS_MAX, err));
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = i >= dense && i % step == 0;
    return PROA_OK;
}

/* Of the mixture, as DeepSeek and Kimi Linear call them. */
static const struct router_keys {
    const char *chosen, *shared, *groups, *renormalise;
} router_keys = {"num_experts_per_tok", "n_shared_experts", "n_group", "norm_topk_prob"},
  kimi_router_keys = {"num_experts_per_token", "num_shared_experts", "num_expert_group", "moe_renormalize"};

/* What c->router and c->shared_ffn, as a number of experts, hold is where the file does not say it. */
static proa_status read_router(proa_config *c, const proa_json *json, const struct router_keys *names,
                               proa_err *err)
{
    double scale = c->router.scale > 0 ? (double)c->router.scale : 1;
    int64_t chosen = c->router.chosen ? c->router.chosen : 8, shared = c->shared_ffn,
            groups = c->router.groups, chosen_groups = c->router.chosen_groups;
    PROA_TRY(proa_json_get_int(&chosen, json, names->chosen, 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&shared, json, names->shared, 0, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&groups, json, names->groups, 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_int(&chosen_groups, json, "topk_group", 1, PROA_EXPERTS_MAX, err));
    PROA_TRY(proa_json_get_double(&scale, json, "routed_scaling_factor", 1e-6, 1e6, err));
    PROA_TRY(proa_json_get_bool(&c->router.renormalise, json, names->renormalise, err));
    c->shared_ffn = shared * c->expert_ffn;
    c->router.chosen = (int32_t)chosen;
    c->router.scale = (float)scale;
    c->router.groups = groups > 1 ? (int32_t)groups : 0;
    c->router.chosen_groups = (int32_t)chosen_groups;
    return PROA_OK;
}

/* YaRN with mscale_all_dim makes scores larger, too: DeepSeek's attention factor, squared. */
static double attention_scale(const proa_config *c)
{
    const proa_rope_params *rope = &c->rope;
    double scale = 1 / sqrt((double)(c->qk_nope + c->qk_rope));
    bool longer = rope->kind == PROA_ROPE_YARN && rope->mscale_all > 0;
    double factor = longer ? proa_rope_mscale(rope->factor, rope->mscale_all) : 1;
    return scale * factor * factor;
}

/* dense: how many of the first layers are dense where the file does not say it. */
static proa_status finish_deepseek(proa_config *c, const proa_json *json, int64_t dense, proa_arena *arena,
                                   proa_err *err)
{
    c->gated = true;
    c->kv_heads = 1;
    if (proa_config_is_null(json, "q_lora_rank")) c->q_lora = 0;
    c->head_dim = c->kv_lora + c->qk_rope;
    c->rotary_dim = c->qk_rope;
    c->latent_eps = 1e-6; /* those norms have the default of their class */
    PROA_TRY(read_expert_layers(c, json, dense, arena, err));
    PROA_TRY(read_router(c, json, &router_keys, err));
    PROA_TRY(proa_config_read_rope(c, json, arena, err));
    c->attention_scale = attention_scale(c);
    return PROA_OK;
}

/* A softmax over all experts. Keys of groups and of a factor came with V2. */
static proa_status finish_v1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    PROA_TRY(read_expert_layers(c, json, 0, arena, err));
    PROA_TRY(read_router(c, json, &router_keys, err));
    c->router.groups = 0;
    c->router.scale = 1;
    return PROA_OK;
}

/* Renormalised weights are not scaled. */
static proa_status finish_v2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    proa_str method = {"greedy", 6};
    PROA_TRY(proa_json_get_str(&method, json, "topk_method", err));
    c->rope_pairs = true;
    c->shared_ffn = 2;
    PROA_TRY(finish_deepseek(c, json, 0, arena, err));
    c->router.group_best = 1;
    if (proa_str_is(method, "greedy")) c->router.groups = 0;
    if (c->router.renormalise) c->router.scale = 1;
    return PROA_OK;
}

/* What DeepSeek V3's class has where the file does not say it; 0 groups: as many as that. */
static proa_status finish_v3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (!c->router.groups) c->router.groups = 8, c->router.chosen_groups = 4;
    c->router.renormalise = true;
    c->router.scale = 2.5f;
    c->shared_ffn = 1;
    PROA_TRY(finish_deepseek(c, json, 3, arena, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    return PROA_OK;
}

/* A.X K1: DeepSeek V3 with a norm behind the mixture. */
static proa_status finish_axk1(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    PROA_TRY(finish_v3(c, json, arena, err));
    if (!proa_json_get(json, "first_k_dense_replace")) PROA_TRY(read_expert_layers(c, json, 1, arena, err));
    return proa_config_read_ffn_types(c, json, err);
}

/* The indexer of sparse attention. */
static proa_status finish_index(proa_config *c, proa_err *err)
{
    if (c->q_lora == 0) return PROA_FAIL(err, INVALID, "sparse attention needs a 'q_lora_rank'");
    if (c->index_dim < c->qk_rope)
        return PROA_FAIL(err, INVALID, "'index_head_dim' is %lld, less than the %lld rotated numbers",
                         (long long)c->index_dim, (long long)c->qk_rope);
    c->index_topk = proa_min64(c->index_topk, c->context);
    c->other_kv_heads = 1;
    c->other_head_dim = c->index_dim;
    return PROA_OK;
}

static proa_status finish_v32(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope_pairs = true;
    PROA_TRY(finish_v3(c, json, arena, err));
    PROA_TRY(proa_config_read_ffn_types(c, json, err));
    return finish_index(c, err);
}

/* What the letter, or the word, says of a layer's indexer. */
static proa_status set_picking(proa_config *c, int64_t at, proa_str type, proa_err *err)
{
    c->picking_layers[at] = proa_str_is(type, "full") || proa_str_is(type, "F");
    if (!c->picking_layers[at] && !proa_str_is(type, "shared") && !proa_str_is(type, "S"))
        return PROA_FAIL(err, UNSUPPORTED, "the indexer of layer %lld is '%.*s'", (long long)at,
                         (int)type.len, type.ptr);
    return PROA_OK;
}

/* One entry for each layer: a list of words, or a string of letters. */
static proa_status read_picking_types(proa_config *c, const proa_json *types, proa_err *err)
{
    proa_str letters = proa_json_str(types);
    bool list = proa_json_kind(types) == PROA_JSON_ARRAY;
    int64_t count = list ? proa_json_len(types) : (int64_t)letters.len;
    if (count != c->layers)
        return PROA_FAIL(err, INVALID, "%lld types of indexers for %lld layers", (long long)count,
                         (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        proa_str type = list ? proa_json_str(proa_json_at(types, i)) : (proa_str){letters.ptr + i, 1};
        PROA_TRY(set_picking(c, i, type, err));
    }
    return PROA_OK;
}

/* GLM-5: layers may see the keys that an earlier one picked. */
static proa_status read_picking_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "indexer_types");
    int64_t step = 1, offset = 2;
    if (!types) types = proa_json_get(json, "index_topk_pattern");
    PROA_TRY(proa_json_get_int(&step, json, "index_topk_freq", INT32_MIN, INT32_MAX, err));
    PROA_TRY(proa_json_get_int(&offset, json, "index_skip_topk_offset", INT32_MIN, INT32_MAX, err));
    c->picking_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        c->picking_layers[i] = proa_max64(i - offset + 1, 0) % proa_max64(step, 1) == 0;
    if (types) PROA_TRY(read_picking_types(c, types, err));
    if (c->picking_layers[0]) return PROA_OK;
    return PROA_FAIL(err, INVALID, "the first layer has no indexer");
}

static proa_status finish_glm_dsa(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->router.groups = c->router.chosen_groups = 1;
    c->index_pairs = true;
    PROA_TRY(finish_v32(c, json, arena, err));
    return read_picking_layers(c, json, arena, err);
}

/* Sarvam's larger mixture: DeepSeek V3, whose numbers published files have under other names. */
static proa_status finish_sarvam(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->shared_ffn = 1;
    PROA_TRY(proa_json_get_int(&c->shared_ffn, json, "num_shared_experts", 0, PROA_EXPERTS_MAX, err));
    c->router.renormalise = true;
    c->router.scale = 2.5f;
    PROA_TRY(finish_deepseek(c, json, 1, arena, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    return PROA_OK;
}

/* Mistral4Config has this scaling where config.json has none, or null. */
static void set_mistral_rope(proa_config *c, double *beta)
{
    c->rope.kind = PROA_ROPE_YARN;
    c->rope.factor = 128, c->rope.beta_fast = 32, c->rope.beta_slow = 1;
    c->rope.mscale = c->rope.mscale_all = 1;
    c->rope.original = 8192;
    c->rope.truncate = true;
    c->rope.scale = 1;
    *beta = 0.1;
}

static proa_status finish_mistral(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double beta = 0;
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    if (!rope) rope = proa_json_get(json, "rope_scaling");
    if (!rope) set_mistral_rope(c, &beta);
    c->shared_ffn = 1;
    c->router.renormalise = true;
    c->router.chosen = 4;
    PROA_TRY(finish_deepseek(c, json, 0, arena, err));
    c->router.group_best = 2;
    PROA_TRY(proa_json_get_double(&beta, rope, "llama_4_scaling_beta", 0, 1e6, err));
    if (beta > 0 && c->rope.original > 0)
        c->query_scale = (proa_query_scale){.beta = (float)beta, .length = (int32_t)c->rope.original};
    return PROA_OK;
}

/* MiniCPM 3: scale_depth is for all layers together, null for none; the head's input is divided by
 * hidden_size / dim_model_base. */
static proa_status finish_minicpm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t base = proa_config_is_null(json, "dim_model_base") ? c->hidden : 256;
    PROA_TRY(proa_json_get_int(&base, json, "dim_model_base", 1, PROA_HIDDEN_MAX, err));
    if (c->v_dim == 0) c->v_dim = c->hidden / c->heads;
    c->logit_scale = (double)base / (double)c->hidden;
    c->residual_scale = proa_config_is_null(json, "scale_depth") ? 1
                                                                 : c->residual_scale / sqrt((double)c->layers);
    c->rope_pairs = false;
    PROA_TRY(proa_llama_check_residual(c, err));
    return finish_deepseek(c, json, 0, arena, err);
}

/* Youtu-LLM: latent attention and dense FFNs. */
static proa_status finish_youtu(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    return finish_deepseek(c, json, 0, arena, err);
}

/* GLM-4.7-Flash: DeepSeek V3 with numbers of its own where a key is missing. */
static proa_status finish_glm(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->shared_ffn = 1;
    c->router.renormalise = true;
    c->router.chosen = 4;
    c->router.scale = 1.8f;
    PROA_TRY(finish_deepseek(c, json, 1, arena, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    return proa_config_read_ffn_types(c, json, err);
}

/* Published files count the layers from 1. */
static proa_status read_kimi_list(proa_config *c, const proa_json *lists, const char *key, bool attends,
                                  proa_err *err)
{
    const proa_json *list = proa_json_get(lists, key);
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        int64_t at = proa_json_int(proa_json_at(list, i));
        if (at < 1 || at > c->layers)
            return PROA_FAIL(err, INVALID, "'%s' names layer %lld of %lld", key, (long long)at,
                             (long long)c->layers);
        proa_config_mix(c, at - 1, attends, !attends);
    }
    return PROA_OK;
}

/* layer_types, or the lists of linear_attn_config, or every fourth layer attends, but not the first. */
static proa_status read_kimi_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *linear = proa_json_get(json, "linear_attn_config");
    proa_config_mix_all(c, false, true, arena);
    for (int64_t i = 4; i < c->layers; i += 4) proa_config_mix(c, i, true, false);
    if (proa_json_get(linear, "full_attn_layers") && proa_json_get(linear, "kda_layers")) {
        PROA_TRY(read_kimi_list(c, linear, "full_attn_layers", true, err));
        PROA_TRY(read_kimi_list(c, linear, "kda_layers", false, err));
    }
    PROA_TRY(proa_json_get_int(&c->key_dim, linear, "head_dim", 1, PROA_STATE_DIM_MAX, err));
    PROA_TRY(proa_json_get_int(&c->value_heads, linear, "num_heads", 1, PROA_HEADS_MAX, err));
    PROA_TRY(proa_json_get_int(&c->conv_taps, linear, "short_conv_kernel_size", 2, PROA_CONV_WIDTH_MAX, err));
    c->key_heads = c->value_heads;
    c->value_dim = c->key_dim;
    return proa_config_read_recurrent(c, json, err);
}

/* Kimi Linear: no rotary positions, a decay for each number of a key. */
static proa_status finish_kimi(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->gated = c->channel_decays = c->gates_apart = c->recall_sigmoid = true;
    c->conv_act = c->act;
    c->latent_eps = 1e-6; /* whatever rms_norm_eps says */
    if (proa_config_is_null(json, "q_lora_rank")) c->q_lora = 0;
    c->kv_heads = 1;
    c->head_dim = c->kv_lora + c->qk_rope;
    PROA_TRY(read_kimi_layers(c, json, arena, err));
    c->gate_rank = c->key_dim;
    c->shared_ffn = 1;
    c->router = (proa_router){.renormalise = true, .scale = 2.446f};
    PROA_TRY(read_expert_layers(c, json, 1, arena, err));
    PROA_TRY(proa_config_read_ffn_types(c, json, err));
    PROA_TRY(read_router(c, json, &kimi_router_keys, err));
    c->router.kind = PROA_ROUTER_SIGMOID;
    c->router.group_best = 2;
    c->attention_scale = attention_scale(c);
    return PROA_OK;
}

/* clang-format off */
#define ROW_OF(type, classes, keylist, tensors, finisher) \
    .name = type, .model_type = type, .hf = classes, DECODER(RMS), .keys = keylist, .names = tensors,        \
    .ignored = ignored, .stacks = {CAUSAL(embed, layer)}, .head = head, .finish = finisher
#define ROW(type, class, keylist, tensors, finisher, ...) \
    {ROW_OF(type, STRINGS(class), keylist, tensors, finisher), __VA_ARGS__}
#define IN_MULTIMODAL .text_config = "text_config", .prefix_aliases = text_aliases, .unused_parts = unused

const proa_arch proa_arch_deepseek =
    {.name = "deepseek", .model_type = "deepseek", .hf = STRINGS("DeepseekForCausalLM"), DECODER(RMS), .keys = v1_keys,
     .names = v1_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, v1_layer)}, .head = head, .finish = finish_v1};
const proa_arch proa_arch_deepseek_v2 =
    ROW("deepseek_v2", "DeepseekV2ForCausalLM", v2_keys, v2_tensors, finish_v2, HEADS(TEXTS, "DeepseekV2"));
const proa_arch proa_arch_deepseek_v3 =
    ROW("deepseek_v3", "DeepseekV3ForCausalLM", v3_keys, v3_tensors, finish_v3, HEADS(TEXTS | TOKENS, "DeepseekV3"));
const proa_arch proa_arch_glm4_moe_lite =
    ROW("glm4_moe_lite", "Glm4MoeLiteForCausalLM", glm_keys, v3_tensors, finish_glm, NO_HEADS);
const proa_arch proa_arch_youtu = ROW("youtu", "YoutuForCausalLM", youtu_keys, v2_tensors, finish_youtu, NO_HEADS);
const proa_arch proa_arch_axk1 = {
    .name = "axk1", .model_type = "axk1", .hf = STRINGS("AXK1ForCausalLM"), DECODER(RMS), .keys = axk1_keys,
    .names = axk1_tensors, .ignored = ignored, .stacks = {CAUSAL(embed, axk1_layer)}, .head = head,
    .finish = finish_axk1, HEADS(TEXTS | TOKENS, "AXK1")};
#define SPARSE_ROW(type, class, keylist, finisher) \
    {.name = type, .model_type = type, .hf = STRINGS(class), DECODER(RMS), .keys = keylist, .names = sparse_tensors, \
     .ignored = ignored, .stacks = {CAUSAL(embed, sparse_layer)}, .head = head, .finish = finisher}
const proa_arch proa_arch_deepseek_v32 =
    SPARSE_ROW("deepseek_v32", "DeepseekV32ForCausalLM", v32_keys, finish_v32);
const proa_arch proa_arch_glm_moe_dsa =
    SPARSE_ROW("glm_moe_dsa", "GlmMoeDsaForCausalLM", glm_dsa_keys, finish_glm_dsa);
/* transformers 5 has no class of its own for it: it saves that of DeepSeek V3. */
const proa_arch proa_arch_sarvam_mla = {
    ROW_OF("sarvam_mla", STRINGS("SarvamMLAForCausalLM", "DeepseekV3ForCausalLM"), sarvam_keys, v3_tensors,
           finish_sarvam)};
const proa_arch proa_arch_kimi_k25 = {
    ROW_OF("kimi_k25",
           STRINGS("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration",
                   "KimiVLForConditionalGeneration"),
           v3_keys, v3_tensors, finish_v3), IN_MULTIMODAL};
/* Alone, and as the text model of a Mistral 3. */
const proa_arch proa_arch_mistral4 = {
    ROW_OF("mistral4", STRINGS("Mistral4ForCausalLM", "Mistral3ForConditionalGeneration"), mistral_keys,
           mistral_tensors, finish_mistral), .key = "kv_lora_rank", IN_MULTIMODAL, HEADS(TEXTS | TOKENS, "Mistral4")};
const proa_arch proa_arch_kimi_linear = {
    .name = "kimi_linear", .model_type = "kimi_linear", .hf = STRINGS("KimiLinearForCausalLM"), DECODER(RMS),
    .keys = kimi_keys, .names = kimi_tensors, .aliases = kimi_aliases, .ignored = ignored,
    .stacks = {CAUSAL(embed, kimi_layer)}, .head = head, .finish = finish_kimi};
const proa_arch proa_arch_minicpm3 = {
    ROW_OF("minicpm3", STRINGS("MiniCPM3ForCausalLM"), minicpm_keys, v2_tensors, finish_minicpm),
    HEADS(TEXTS, "MiniCPM3")};
/* clang-format on */
