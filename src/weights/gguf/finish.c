/* SPDX-License-Identifier: Apache-2.0
 * finish.c - members of config.json that no key of the metadata gives, by architecture. Those of models with recurrent
 *            layers are in recurrent.c, those of Gemma 3n and 4 in gemma.c. */
#include "weights/gguf/finish.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

bool proa_gguf_has_tensor(const proa_gguf *g, const char *name)
{
    return proa_gguf_find_tensor(g, name) != NULL;
}

static proa_status fail_part(const proa_gguf *g, const proa_gguf_arch *arch, const char *key, int64_t is,
                             int64_t must, proa_err *err)
{
    return PROA_FAIL(err, UNSUPPORTED, "%s: '%s.%s' is %lld; a %s with other than %lld is not supported",
                     g->what, arch->name, key, (long long)is, arch->hf, (long long)must);
}

/* The head size, of which all of keys, values and rotation must be. */
static proa_status read_head_dim(int64_t *out, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t hidden = 0, heads = 0, value = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "attention.head_count", err));
    *out = heads ? hidden / heads : 0;
    PROA_TRY(proa_gguf_arch_int(out, g, arch, "attention.key_length", err));
    value = *out;
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length", err));
    return value == *out ? PROA_OK : fail_part(g, arch, "attention.value_length", value, *out, err);
}

static proa_status refuse_other_rotation(const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    rotary = head_dim;
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    return rotary == head_dim ? PROA_OK : fail_part(g, arch, "rope.dimension_count", rotary, head_dim, err);
}

static void put_biases(proa_buf *json, const proa_gguf *g)
{
    proa_gguf_put_bool(json, "attention_bias", proa_gguf_has_tensor(g, "blk.0.attn_output.bias"));
    proa_gguf_put_bool(json, "mlp_bias", proa_gguf_has_tensor(g, "blk.0.ffn_down.bias"));
}

proa_status proa_gguf_finish_llama(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(refuse_other_rotation(g, arch, err));
    put_biases(json, g);
    return proa_gguf_put_rope(json, g, arch, err);
}

static bool has_key(const proa_gguf *g, const proa_gguf_arch *arch, const char *key)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    return proa_gguf_find(g, full) != NULL;
}

/* The sizes of DeepSeek's heads: those that attention has with the latent row as keys and values are other ones, and
 * files that have these name the heads' own by keys with "_mla". */
proa_status proa_gguf_finish_deepseek(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    /* What a file that lacks a key has none of, whatever the class of config.json takes then. */
    static const struct {
        const char *key, *name, *value;
    } absent[] = {{"attention.q_lora_rank", "q_lora_rank", "null"},
                  {"expert_shared_count", "n_shared_experts", "0"},
                  {"expert_group_count", "n_group", "1"},
                  {"expert_group_used_count", "topk_group", "1"},
                  {"leading_dense_block_count", "first_k_dense_replace", "0"},
                  {"expert_weights_scale", "routed_scaling_factor", "1.0"}};
    int64_t key = 0, value = 0, rope = 0;
    PROA_TRY(proa_gguf_arch_int(&key, g, arch, "attention.key_length", err));
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length", err));
    PROA_TRY(proa_gguf_arch_int(&key, g, arch, "attention.key_length_mla", err));
    PROA_TRY(proa_gguf_arch_int(&value, g, arch, "attention.value_length_mla", err));
    PROA_TRY(proa_gguf_arch_int(&rope, g, arch, "rope.dimension_count", err));
    if (key <= rope)
        return PROA_FAIL(err, INVALID, "%s: heads of %lld numbers, of which %lld rotate", g->what,
                         (long long)key, (long long)rope);
    proa_gguf_put_int(json, "qk_nope_head_dim", key - rope);
    proa_gguf_put_int(json, "v_head_dim", value);
    for (size_t i = 0; i < PROA_COUNT(absent); i++)
        if (!has_key(g, arch, absent[i].key))
            proa_buf_printf(json, ", \"%s\": %s", absent[i].name, absent[i].value);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Which layers see all positions: every n-th from the first on, by a number or by a list of those that do not. */
static proa_status put_global_layers(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    static const char key[] = "attention.sliding_window_pattern";
    char full[96];
    int64_t layers = 0, every = 3;
    const proa_gguf_value *list = NULL;
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    const proa_gguf_value *value = proa_gguf_find(g, full);
    bool is_list = value && value->type == PROA_GGUF_ARRAY;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    if (is_list) PROA_TRY(proa_gguf_get_array(&list, g, full, PROA_GGUF_BOOL, err));
    else PROA_TRY(proa_gguf_arch_int(&every, g, arch, key, err));
    if (every < 1 || (list && list->count != layers))
        return PROA_FAIL(err, INVALID, "%s: '%s' does not describe %lld layers", g->what, full,
                         (long long)layers);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        bool sliding = list ? list->at[i] != 0 : i % every != 0;
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", sliding ? "sliding" : "full");
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

proa_status proa_gguf_finish_modernbert(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                        proa_err *err)
{
    char key[96];
    double theta = 160000, local = 10000;
    proa_str act = {"gelu", 4};
    snprintf(key, sizeof key, "%s.hidden_activation", arch->name);
    PROA_TRY(proa_gguf_get_str(&act, g, key, err));
    PROA_TRY(proa_gguf_arch_number(&theta, g, arch, "rope.freq_base", err));
    PROA_TRY(proa_gguf_arch_number(&local, g, arch, "rope.freq_base_swa", err));
    proa_gguf_put_number(json, "global_rope_theta", theta);
    proa_gguf_put_number(json, "local_rope_theta", local);
    proa_buf_printf(json, ", \"hidden_activation\": ");
    proa_buf_json_str(json, act);
    return put_global_layers(g, arch, json, err);
}

/* llama.cpp's head reads the mean over the rows and activates by GELU. */
proa_status proa_gguf_finish_modernbert_cls(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                            proa_err *err)
{
    const proa_gguf_tensor *labels = proa_gguf_find_tensor(g, "cls.output.weight");
    if (labels && labels->rank == 2) proa_gguf_put_int(json, "num_labels", labels->shape[0]);
    return proa_gguf_finish_modernbert(g, arch, json, err);
}

/* The part of each head that is rotated, a little more: classes multiply it with the head size and round down. */
static proa_status put_rotated_part(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                    const char *key, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    rotary = head_dim;
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    double part = head_dim ? ((double)rotary + 0.25) / (double)head_dim : 0;
    proa_gguf_put_number(json, key, fmin(part, 1));
    return PROA_OK;
}

proa_status proa_gguf_finish_partial(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(put_rotated_part(g, arch, json, "partial_rotary_factor", err));
    proa_gguf_put_bool(json, "use_bias", proa_gguf_has_tensor(g, "blk.0.attn_output.bias"));
    proa_gguf_put_bool(json, "use_qkv_bias", proa_gguf_has_tensor(g, "blk.0.attn_q.bias"));
    return proa_gguf_put_rope(json, g, arch, err);
}

proa_status proa_gguf_finish_phi3(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t window = 0;
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    if (window) proa_gguf_put_int(json, "sliding_window", window);
    return proa_gguf_finish_partial(g, arch, json, err);
}

/* Biases of q, k and v alone. */
proa_status proa_gguf_finish_seed_oss(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    PROA_TRY(refuse_other_rotation(g, arch, err));
    proa_gguf_put_bool(json, "attention_bias", proa_gguf_has_tensor(g, "blk.0.attn_q.bias"));
    return proa_gguf_put_rope(json, g, arch, err);
}

proa_status proa_gguf_finish_nemotron(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    put_biases(json, g);
    return proa_gguf_finish_partial(g, arch, json, err);
}

/* Files of the text models of GLM-4.1V and GLM-4.6V have "rope.dimension_sections": of these llama.cpp's converter
 * stores the rows of each head in another order. */
proa_status proa_gguf_finish_glm(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    if (strcmp(arch->name, "glm4") == 0 && has_key(g, arch, "rope.dimension_sections"))
        return PROA_FAIL(err, UNSUPPORTED, "%s: a %s with 'rope.dimension_sections' is not supported",
                         g->what, arch->name);
    bool bias = proa_gguf_has_tensor(g, "blk.0.attn_q.bias") ||
                proa_gguf_has_tensor(g, "blk.0.attn_qkv.bias");
    proa_gguf_put_bool(json, "attention_bias", bias);
    return proa_gguf_finish_partial(g, arch, json, err);
}

proa_status proa_gguf_finish_glm4_moe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    proa_gguf_put_bool(json, "use_qk_norm", proa_gguf_has_tensor(g, "blk.0.attn_q_norm.weight"));
    return proa_gguf_finish_glm(g, arch, json, err);
}

proa_status proa_gguf_finish_ernie(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    proa_gguf_put_bool(json, "use_bias", proa_gguf_has_tensor(g, "blk.0.attn_output.bias"));
    PROA_TRY(refuse_other_rotation(g, arch, err));
    return proa_gguf_put_rope(json, g, arch, err);
}

proa_status proa_gguf_finish_minimax(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t rotary;
    PROA_TRY(read_head_dim(&rotary, g, arch, err));
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    proa_gguf_put_int(json, "rotary_dim", rotary);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Which layers are dense is what their tensors say; how many shared experts there are, the size of all of them. */
proa_status proa_gguf_finish_hy_v3(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers = 0, further = 0, shared = 0, size = 0;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&further, g, arch, "nextn_predict_layers", err));
    PROA_TRY(proa_gguf_arch_int(&size, g, arch, "expert_feed_forward_length", err));
    PROA_TRY(proa_gguf_arch_int(&shared, g, arch, "expert_shared_feed_forward_length", err));
    proa_gguf_put_int(json, "num_shared_experts", shared / proa_max64(size, 1));
    if (layers > PROA_LAYERS_MAX)
        return PROA_FAIL(err, LIMIT, "%s: '%s.block_count' is %lld, must be at most %d", g->what, arch->name,
                         (long long)layers, PROA_LAYERS_MAX);
    proa_buf_printf(json, ", \"mlp_layer_types\": [");
    for (int64_t i = 0; i < layers - further && !json->full; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)i);
        proa_buf_printf(json, "%s\"%s\"", i ? ", " : "", proa_gguf_has_tensor(g, name) ? "sparse" : "dense");
    }
    proa_buf_char(json, ']');
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* Phi-3.5-MoE, whose head has a bias. */
proa_status proa_gguf_finish_phimoe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    proa_gguf_put_bool(json, "lm_head_bias", proa_gguf_has_tensor(g, "output.bias"));
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* Every second layer has the window, beginning with the first. */
proa_status proa_gguf_finish_gpt_oss(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers = 0, window = 128;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    proa_gguf_put_int(json, "sliding_window", window);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++)
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", i % 2 ? "full" : "sliding");
    proa_buf_char(json, ']');
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* Which layers have the window: a list, or all but every fourth. */
proa_status proa_gguf_put_layer_types(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    char key[96];
    int64_t layers = 0;
    const proa_gguf_value *list = NULL;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch->name);
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_get_array(&list, g, key, PROA_GGUF_BOOL, err));
    if (list && list->count != layers)
        return PROA_FAIL(err, INVALID, "%s: '%s' has %lld entries for %lld layers", g->what, key,
                         (long long)list->count, (long long)layers);
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        bool sliding = list ? list->at[i] != 0 : (i + 1) % 4 != 0;
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", sliding ? "sliding" : "full");
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* The window is optional; without it all layers are alike. */
proa_status proa_gguf_finish_windows(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t window = 0;
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    if (window > 0) PROA_TRY(proa_gguf_put_layer_types(g, arch, json, err));
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* A Granite in all but the scale of scores, which is the usual one. Older files lack the other three, which are then
 * those of MiniCPM 2B. */
proa_status proa_gguf_finish_minicpm(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t head_dim = 0, hidden = 0, layers = 0;
    double embedding = 12, residual, logits;
    PROA_TRY(read_head_dim(&head_dim, g, arch, err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    if (head_dim < 1 || layers < 1)
        return PROA_FAIL(err, INVALID, "%s: minicpm needs a head size and layers above 0", g->what);
    residual = 1.4 / sqrt((double)layers), logits = (double)hidden / 256;
    PROA_TRY(proa_gguf_arch_number(&embedding, g, arch, "embedding_scale", err));
    PROA_TRY(proa_gguf_arch_number(&residual, g, arch, "residual_scale", err));
    PROA_TRY(proa_gguf_arch_number(&logits, g, arch, "logit_scale", err));
    proa_gguf_put_number(json, "attention_multiplier", 1 / sqrt((double)head_dim));
    proa_gguf_put_number(json, "embedding_multiplier", embedding);
    proa_gguf_put_number(json, "residual_multiplier", residual);
    proa_gguf_put_number(json, "logits_scaling", logits);
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* The sizes of experts are those of the tensors: older files have no keys for them. */
proa_status proa_gguf_finish_qwen_moe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                      proa_err *err)
{
    const proa_gguf_tensor *experts = proa_gguf_find_tensor(g, "blk.0.ffn_up_exps.weight");
    const proa_gguf_tensor *shared = proa_gguf_find_tensor(g, "blk.0.ffn_up_shexp.weight");
    if (experts && experts->rank == 3) proa_gguf_put_int(json, "moe_intermediate_size", experts->shape[1]);
    if (shared && shared->rank == 2)
        proa_gguf_put_int(json, "shared_expert_intermediate_size", shared->shape[0]);
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* llama.cpp knows the model whose heads are not normed by its 128 experts (Maverick). A window of 0 means a model
 * without chunks, whose layers have other positions. */
proa_status proa_gguf_finish_llama4(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t experts = 0, chunk = 8192;
    PROA_TRY(proa_gguf_arch_int(&experts, g, arch, "expert_count", err));
    PROA_TRY(proa_gguf_arch_int(&chunk, g, arch, "attention.sliding_window", err));
    if (chunk == 0) return fail_part(g, arch, "attention.sliding_window", chunk, 8192, err);
    proa_gguf_put_bool(json, "use_qk_norm", experts != 128);
    return proa_gguf_finish_llama(g, arch, json, err);
}

/* Scores are divided by the root of the head size; in the models of 27B, known by their layers, by that of hidden /
 * heads. */
proa_status proa_gguf_finish_gemma2(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers = 0, hidden = 0, heads = 1, scalar;
    PROA_TRY(refuse_other_rotation(g, arch, err));
    PROA_TRY(read_head_dim(&scalar, g, arch, err));
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "attention.head_count", err));
    if (layers == (strcmp(arch->name, "gemma3") == 0 ? 62 : 46) && heads) scalar = hidden / heads; /* 27B */
    proa_gguf_put_int(json, "query_pre_attn_scalar", scalar);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* EmbeddingGemma, whose layers with a window may have other frequencies. */
proa_status proa_gguf_finish_gemma_embedding(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                             proa_err *err)
{
    double local = 10000;
    PROA_TRY(proa_gguf_arch_number(&local, g, arch, "rope.freq_base_swa", err));
    proa_gguf_put_number(json, "rope_local_base_freq", local);
    return proa_gguf_finish_gemma2(g, arch, json, err);
}

proa_status proa_gguf_finish_gptneox(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(put_rotated_part(g, arch, json, "rotary_pct", err));
    return proa_gguf_put_rope(json, g, arch, err);
}

/* One key-value head: Falcon 7B. Else the newer layers, with one norm (Falcon 2) or two (40B). */
proa_status proa_gguf_finish_falcon(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t kv_heads = 1;
    PROA_TRY(proa_gguf_arch_int(&kv_heads, g, arch, "attention.head_count_kv", err));
    proa_gguf_put_bool(json, "new_decoder_architecture", kv_heads > 1);
    proa_gguf_put_bool(json, "bias", proa_gguf_has_tensor(g, "blk.0.attn_qkv.bias"));
    if (kv_heads > 1)
        proa_gguf_put_int(json, "num_ln_in_parallel_attn",
                          proa_gguf_has_tensor(g, "blk.0.attn_norm_2.weight") ? 2 : 1);
    return proa_gguf_put_rope(json, g, arch, err);
}

proa_status proa_gguf_finish_starcoder(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                       proa_err *err)
{
    int64_t kv_heads = 1;
    PROA_TRY(proa_gguf_arch_int(&kv_heads, g, arch, "attention.head_count_kv", err));
    proa_gguf_put_bool(json, "multi_query", kv_heads == 1);
    return PROA_OK;
}

proa_status proa_gguf_finish_mpt(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t hidden = 0, ffn = 0;
    double alibi = 0, clip = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&ffn, g, arch, "feed_forward_length", err));
    PROA_TRY(proa_gguf_arch_number(&alibi, g, arch, "attention.max_alibi_bias", err));
    PROA_TRY(proa_gguf_arch_number(&clip, g, arch, "attention.clamp_kqv", err));
    if (hidden && ffn) proa_gguf_put_int(json, "expansion_ratio", ffn / hidden);
    proa_buf_printf(json, ", \"attn_config\": {\"alibi\": %s", alibi > 0 ? "true" : "false");
    if (alibi > 0) proa_gguf_put_number(json, "alibi_bias_max", alibi);
    if (clip > 0) proa_gguf_put_number(json, "clip_qkv", clip);
    proa_buf_char(json, '}');
    return PROA_OK;
}

proa_status proa_gguf_finish_bert(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    const proa_gguf_tensor *types = proa_gguf_find_tensor(g, "token_types.weight");
    PROA_UNUSED(arch);
    PROA_UNUSED(err);
    if (types && types->rank == 2) proa_gguf_put_int(json, "type_vocab_size", types->shape[0]);
    return PROA_OK;
}

/* A gated FFN whose two parts are one matrix. Of the model for code, whose heads are normed, the class has them the
 * other way round than llama.cpp computes them. */
proa_status proa_gguf_finish_jina(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    static const char *const others[] = {"blk.0.ffn_gate.weight", "blk.0.ffn_up.bias",
                                         "blk.0.attn_q_norm.weight"};
    for (size_t i = 0; i < PROA_COUNT(others); i++)
        if (proa_gguf_has_tensor(g, others[i]))
            return PROA_FAIL(err, UNSUPPORTED, "%s: a %s with '%s' is not supported", g->what, arch->name,
                             others[i]);
    return proa_gguf_finish_bert(g, arch, json, err);
}

proa_status proa_gguf_finish_nomic(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    PROA_TRY(proa_gguf_finish_bert(g, arch, json, err));
    PROA_TRY(refuse_other_rotation(g, arch, err));
    return proa_gguf_put_rope(json, g, arch, err);
}

proa_status proa_gguf_finish_nomic_moe(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                       proa_err *err)
{
    bool inner = proa_gguf_has_tensor(g, "blk.0.ffn_up.bias");
    proa_gguf_put_bool(json, "qkv_proj_bias", proa_gguf_has_tensor(g, "blk.0.attn_qkv.bias"));
    proa_gguf_put_bool(json, "mlp_fc1_bias", inner);
    proa_gguf_put_bool(json, "mlp_fc2_bias", inner);
    return proa_gguf_finish_nomic(g, arch, json, err);
}
