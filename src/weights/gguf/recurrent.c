/* SPDX-License-Identifier: Apache-2.0
 * recurrent.c - members of the config.json of models with recurrent layers, from the metadata of a GGUF file.
 * Facts: llama.cpp's conversion/ and src/models/. */
#include "weights/gguf/arch.h"

#include "base/checked.h"
#include <string.h>

/* ---- layers ---- */

/* Which layers recur: by a list of numbers of heads, or of bools, or all but every `interval`-th. */
typedef struct layer_list {
    const proa_gguf_value *heads, *recurrent; /* NULL: none */
    int64_t layers, interval;
} layer_list;

static proa_status read_layer_list(layer_list *out, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    char full[96];
    int64_t further = 0;
    *out = (layer_list){.interval = 4};
    PROA_TRY(proa_gguf_arch_int(&out->layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&further, g, arch, "nextn_predict_layers", err));
    PROA_TRY(proa_gguf_arch_int(&out->interval, g, arch, "full_attention_interval", err));
    if (!arch->recurrent_list) out->interval = 1;
    snprintf(full, sizeof full, "%s.attention.%s", arch->name,
             arch->recurrent_list ? "recurrent_layers" : "head_count_kv");
    const proa_gguf_value *v = proa_gguf_find(g, full);
    if (arch->recurrent_list) PROA_TRY(proa_gguf_get_array(&out->recurrent, g, full, PROA_GGUF_BOOL, err));
    else if (v && v->type == PROA_GGUF_ARRAY) out->heads = v;
    if (v && v->type == PROA_GGUF_ARRAY && v->count != out->layers)
        return PROA_FAIL(err, INVALID, "%s: '%s' has %lld entries for %lld layers", g->what, full,
                         (long long)v->count, (long long)out->layers);
    if (out->interval < 1)
        return PROA_FAIL(err, INVALID, "%s: '%s.full_attention_interval' is 0", g->what, arch->name);
    out->layers = proa_max64(out->layers - further, 0);
    return PROA_OK;
}

static bool layer_recurs(const layer_list *list, int64_t layer)
{
    int64_t heads = 1;
    if (list->recurrent) return list->recurrent->at[layer] != 0;
    if (list->heads) return proa_gguf_int_at(&heads, list->heads, layer) && heads == 0;
    return (layer + 1) % list->interval != 0;
}

/* layer_types; *attending and *recurrent: the first layer of each kind, -1: none. */
static proa_status put_layer_types(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                   int64_t *attending, int64_t *recurrent, proa_err *err)
{
    layer_list list;
    *attending = *recurrent = -1;
    PROA_TRY(read_layer_list(&list, g, arch, err));
    proa_buf_printf(json, ", \"layer_types\": [");
    for (int64_t i = 0; i < list.layers && !json->full; i++) {
        int64_t *first = layer_recurs(&list, i) ? recurrent : attending;
        if (*first < 0) *first = i;
        proa_buf_printf(json, "%s\"%s_attention\"", i ? ", " : "", first == recurrent ? "linear" : "full");
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

static const proa_gguf_tensor *find_of_layer(const proa_gguf *g, int64_t layer, const char *name)
{
    char full[PROA_TENSOR_NAME_MAX + 1];
    snprintf(full, sizeof full, "blk.%lld.%s", (long long)layer, name);
    return layer < 0 ? NULL : proa_gguf_find_tensor(g, full);
}

/* The layers with attention as a list of numbers; *attending and *recurrent as put_layer_types has them. */
static proa_status put_attending_layers(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                        int64_t *attending, int64_t *recurrent, proa_err *err)
{
    layer_list list;
    *attending = *recurrent = -1;
    PROA_TRY(read_layer_list(&list, g, arch, err));
    proa_buf_printf(json, ", \"attn_layer_indices\": [");
    for (int64_t i = 0; i < list.layers && !json->full; i++) {
        bool recurs = layer_recurs(&list, i);
        int64_t *first = recurs ? recurrent : attending;
        if (!recurs) proa_buf_printf(json, "%s%lld", *first < 0 ? "" : ", ", (long long)i);
        if (*first < 0) *first = i;
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* ---- heads ---- */

/* The size of a head of values: ssm.inner_size is that of all. */
static proa_status put_value_dim(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                 const char *key, proa_err *err)
{
    int64_t inner = 0, heads = 0;
    PROA_TRY(proa_gguf_arch_int(&inner, g, arch, "ssm.inner_size", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "ssm.time_step_rank", err));
    if (heads < 1 || inner % heads != 0)
        return PROA_FAIL(err, INVALID, "%s: '%s.ssm.inner_size' is %lld, which are not %lld heads", g->what,
                         arch->name, (long long)inner, (long long)heads);
    proa_gguf_put_int(json, key, inner / heads);
    return PROA_OK;
}

/* Numbers of a head, and those of them that rotate; 0: the file does not say. */
static proa_status read_rotation(const proa_gguf *g, const proa_gguf_arch *arch, int64_t *head_dim,
                                 int64_t *rotary, proa_err *err)
{
    int64_t hidden = 0, heads = 0;
    *rotary = 0;
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    PROA_TRY(proa_gguf_arch_int(&heads, g, arch, "attention.head_count", err));
    *head_dim = heads ? hidden / heads : 0;
    PROA_TRY(proa_gguf_arch_int(head_dim, g, arch, "attention.key_length", err));
    return proa_gguf_arch_int(rotary, g, arch, "rope.dimension_count", err);
}

static proa_status refuse_part(const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t head_dim, rotary;
    PROA_TRY(read_rotation(g, arch, &head_dim, &rotary, err));
    if (rotary == 0 || rotary == head_dim) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "%s: '%s.rope.dimension_count' is %lld; a %s with other than %lld is not supported",
                     g->what, arch->name, (long long)rotary, arch->hf, (long long)head_dim);
}

static void put_mamba_biases(const proa_gguf *g, proa_buf *json, int64_t attending, int64_t recurrent)
{
    proa_gguf_put_bool(json, "mamba_conv_bias", find_of_layer(g, recurrent, "ssm_conv1d.bias") != NULL);
    proa_gguf_put_bool(json, "mamba_proj_bias", find_of_layer(g, recurrent, "ssm_in.bias") != NULL);
    proa_gguf_put_bool(json, "attention_bias", find_of_layer(g, attending, "attn_output.bias") != NULL);
}

/* ---- architectures ---- */

/* The only FFN of a model without experts, else that of all rows. */
static proa_status put_shared_ffn(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    const proa_gguf_tensor *one = proa_gguf_find_tensor(g, "blk.0.ffn_up.weight");
    int64_t size = 0, experts = 0;
    PROA_TRY(proa_gguf_arch_int(&experts, g, arch, "expert_count", err));
    PROA_TRY(proa_gguf_arch_int(&size, g, arch, "expert_shared_feed_forward_length", err));
    if (one && one->rank == 2) size = one->shape[0];
    if (experts == 0) proa_gguf_put_int(json, "num_local_experts", 0);
    if (size > 0) proa_gguf_put_int(json, "shared_intermediate_size", size);
    return PROA_OK;
}

/* Rotary positions are where the file says that the model was trained with them, which is the default. */
proa_status proa_gguf_finish_granite_hybrid(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                            proa_err *err)
{
    char key[96];
    bool rotary = true;
    int64_t attending, recurrent;
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", arch->name);
    PROA_TRY(proa_gguf_get_bool(&rotary, g, key, err));
    PROA_TRY(put_layer_types(g, arch, json, &attending, &recurrent, err));
    PROA_TRY(put_value_dim(g, arch, json, "mamba_d_head", err));
    PROA_TRY(put_shared_ffn(g, arch, json, err));
    if (rotary) PROA_TRY(refuse_part(g, arch, err));
    put_mamba_biases(g, json, attending, recurrent);
    proa_buf_printf(json, ", \"position_embedding_type\": \"%s\"", rotary ? "rope" : "nope");
    return rotary ? proa_gguf_put_rope(json, g, arch, err) : PROA_OK;
}

/* Bamba has the name of Granite 4, which has rotary positions on whole heads, or none. */
bool proa_gguf_is_bamba(const proa_gguf *g)
{
    static const proa_gguf_arch name = {.name = "granitehybrid"};
    int64_t head_dim, rotary, experts = 0;
    bool rotates = true;
    if (read_rotation(g, &name, &head_dim, &rotary, NULL) != PROA_OK) return false;
    if (proa_gguf_get_bool(&rotates, g, "granitehybrid.rope.scaling.finetuned", NULL) != PROA_OK)
        return false;
    if (proa_gguf_arch_int(&experts, g, &name, "expert_count", NULL) != PROA_OK) return false;
    return rotates && experts == 0 && rotary > 0 && 2 * rotary == head_dim;
}

proa_status proa_gguf_finish_bamba(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t attending, recurrent;
    PROA_TRY(put_attending_layers(g, arch, json, &attending, &recurrent, err));
    PROA_TRY(put_value_dim(g, arch, json, "mamba_d_head", err));
    put_mamba_biases(g, json, attending, recurrent);
    proa_gguf_put_bool(json, "mlp_bias", find_of_layer(g, 0, "ffn_down.bias") != NULL);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Each layer has attention and a state. The gate comes before the norm, where there is one; the factors of products
 * are in the weights. */
proa_status proa_gguf_finish_falcon_h1(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                       proa_err *err)
{
    PROA_TRY(refuse_part(g, arch, err));
    PROA_TRY(put_value_dim(g, arch, json, "mamba_d_head", err));
    put_mamba_biases(g, json, 0, 0);
    proa_gguf_put_bool(json, "mlp_bias", find_of_layer(g, 0, "ffn_down.bias") != NULL);
    proa_gguf_put_bool(json, "projectors_bias", find_of_layer(g, 0, "ssm_out.bias") != NULL);
    proa_gguf_put_bool(json, "mamba_rms_norm", find_of_layer(g, 0, "ssm_norm.weight") != NULL);
    proa_gguf_put_bool(json, "mamba_norm_before_gate", false);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* What llama.cpp runs under these names, and the class has not: layers that see both sides, windows, and other ways to
 * weigh experts than sigmoids (2). */
static proa_status refuse_other_lfm2(const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    bool causal = true;
    int64_t window = 0, weighing = 2;
    char key[96];
    snprintf(key, sizeof key, "%s.attention.causal", arch->name);
    PROA_TRY(proa_gguf_get_bool(&causal, g, key, err));
    PROA_TRY(proa_gguf_arch_int(&window, g, arch, "attention.sliding_window", err));
    PROA_TRY(proa_gguf_arch_int(&weighing, g, arch, "expert_gating_func", err));
    if (!causal)
        return PROA_FAIL(err, UNSUPPORTED, "%s: '%s' is false, which is not supported", g->what, key);
    if (window)
        return PROA_FAIL(err, UNSUPPORTED,
                         "%s: '%s.attention.sliding_window' is %lld; windows of %s are not supported",
                         g->what, arch->name, (long long)window, arch->hf);
    if (weighing == 2) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "%s: '%s.expert_gating_func' is %lld; of %s only 2 (sigmoid) is supported",
                     g->what, arch->name, (long long)weighing, arch->hf);
}

proa_status proa_gguf_finish_lfm2(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t attending, recurrent;
    PROA_TRY(refuse_other_lfm2(g, arch, err));
    PROA_TRY(refuse_part(g, arch, err));
    PROA_TRY(put_layer_types(g, arch, json, &attending, &recurrent, err));
    return proa_gguf_put_rope(json, g, arch, err);
}

/* Part of each head rotates; the class multiplies the part with the head size and rounds down. */
proa_status proa_gguf_finish_delta(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t attending, recurrent, head_dim = 256, rotary = 64;
    PROA_TRY(proa_gguf_arch_int(&head_dim, g, arch, "attention.key_length", err));
    PROA_TRY(proa_gguf_arch_int(&rotary, g, arch, "rope.dimension_count", err));
    PROA_TRY(put_layer_types(g, arch, json, &attending, &recurrent, err));
    PROA_TRY(put_value_dim(g, arch, json, "linear_value_head_dim", err));
    double part = ((double)rotary + 0.25) / (double)proa_max64(head_dim, 1);
    proa_gguf_put_number(json, "partial_rotary_factor", part < 1 ? part : 1);
    proa_gguf_put_bool(json, "attention_bias", find_of_layer(g, attending, "attn_q.bias") != NULL);
    return proa_gguf_put_rope(json, g, arch, err);
}

/* ---- layers of one part each ---- */

static bool layer_has(const proa_gguf *g, int64_t layer, const char *name)
{
    return find_of_layer(g, layer, name) != NULL;
}

/* The part of a layer, by its tensors: the metadata do not tell a dense FFN from a mixture. */
static const char *part_of_layer(const proa_gguf *g, int64_t layer)
{
    if (layer_has(g, layer, "ssm_in.weight")) return "linear_attention";
    if (layer_has(g, layer, "ffn_gate_inp.weight")) return "moe";
    return layer_has(g, layer, "ffn_up.weight") ? "mlp" : "full_attention";
}

/* *dense: the first layer with a dense FFN, -1: none; and likewise. */
static proa_status put_parts(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, int64_t *dense,
                             int64_t *mixture, int64_t *recurrent, proa_err *err)
{
    layer_list list;
    *dense = *mixture = *recurrent = -1;
    PROA_TRY(read_layer_list(&list, g, arch, err));
    proa_buf_printf(json, ", \"layers_block_type\": [");
    for (int64_t i = 0; i < list.layers && !json->full; i++) {
        const char *part = part_of_layer(g, i);
        int64_t *first = strcmp(part, "mlp") == 0                ? dense
                         : strcmp(part, "moe") == 0              ? mixture
                         : strcmp(part, "linear_attention") == 0 ? recurrent
                                                                 : NULL;
        if (first && *first < 0) *first = i;
        proa_buf_printf(json, "%s\"%s\"", i ? ", " : "", part);
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* The biases of Mamba-2's products and of its convolution. */
static void put_mixer_biases(const proa_gguf *g, proa_buf *json, int64_t recurrent)
{
    proa_gguf_put_bool(json, "use_conv_bias", layer_has(g, recurrent, "ssm_conv1d.bias"));
    proa_gguf_put_bool(json, "use_bias", layer_has(g, recurrent, "ssm_in.bias"));
}

proa_status proa_gguf_finish_nemotron_h(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                        proa_err *err)
{
    int64_t dense, mixture, recurrent;
    PROA_TRY(put_parts(g, arch, json, &dense, &mixture, &recurrent, err));
    PROA_TRY(put_value_dim(g, arch, json, "mamba_head_dim", err));
    put_mixer_biases(g, json, recurrent);
    const proa_gguf_tensor *up = find_of_layer(g, dense, "ffn_up.weight");
    if (up && up->rank == 2) proa_gguf_put_int(json, "intermediate_size", up->shape[0]);
    bool biased = layer_has(g, dense, "ffn_up.bias") || layer_has(g, mixture, "ffn_up_shexp.bias");
    proa_gguf_put_bool(json, "mlp_bias", biased);
    return PROA_OK;
}

/* What is convolved is `expand` times as wide as the residual stream. */
proa_status proa_gguf_finish_mamba2(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t inner = 0, hidden = 1;
    PROA_TRY(proa_gguf_arch_int(&inner, g, arch, "ssm.inner_size", err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    proa_gguf_put_int(json, "expand", inner / proa_max64(hidden, 1));
    put_mixer_biases(g, json, 0);
    return put_value_dim(g, arch, json, "head_dim", err);
}

/* ---- Mamba-1 ---- */

/* The file says nothing of the epsilon of these norms: llama.cpp takes that of the others. The class has its own. */
bool proa_gguf_is_falcon_mamba(const proa_gguf *g)
{
    bool normed = false;
    return proa_gguf_get_bool(&normed, g, "mamba.ssm.dt_b_c_rms", NULL) == PROA_OK && normed;
}

proa_status proa_gguf_finish_mamba(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t inner = 0;
    PROA_TRY(proa_gguf_arch_int(&inner, g, arch, "ssm.inner_size", err));
    proa_gguf_put_int(json, "intermediate_size", inner);
    put_mixer_biases(g, json, 0);
    return PROA_OK;
}

/* The layers of a list as every period-th one from `offset` on, which the class has in its place. */
typedef struct every {
    int64_t period, offset;
} every;

static every find_every(const bool *has, int64_t layers)
{
    every of = {layers + 1, layers}; /* none of them */
    int64_t first = 0;
    while (first < layers && !has[first]) first++;
    if (first == layers) return of;
    int64_t next = first + 1;
    while (next < layers && !has[next]) next++;
    of.offset = first;
    of.period = next < layers ? next - first : proa_max64(first + 1, layers - first);
    return of;
}

static proa_status put_every(const proa_gguf *g, proa_buf *json, const char *what, const bool *has,
                             int64_t layers, proa_err *err)
{
    char key[64];
    const every of = find_every(has, layers);
    for (int64_t i = 0; i < layers; i++)
        if (of.offset >= of.period || has[i] != (i % of.period == of.offset))
            return PROA_FAIL(err, UNSUPPORTED,
                             "%s: no '%s_layer_period' says which layers they are: layer %lld breaks it",
                             g->what, what, (long long)i);
    snprintf(key, sizeof key, "%s_layer_period", what);
    proa_gguf_put_int(json, key, of.period);
    snprintf(key, sizeof key, "%s_layer_offset", what);
    proa_gguf_put_int(json, key, of.offset);
    return PROA_OK;
}

/* Which layers have attention, and which a mixture. */
static proa_status put_jamba_layers(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                    int64_t *recurrent, proa_err *err)
{
    bool attends[PROA_LAYERS_MAX], routes[PROA_LAYERS_MAX], some = false;
    layer_list list;
    *recurrent = -1;
    PROA_TRY(read_layer_list(&list, g, arch, err));
    if (list.layers > PROA_LAYERS_MAX)
        return PROA_FAIL(err, INVALID, "%s: %lld layers, at most %d", g->what, (long long)list.layers,
                         PROA_LAYERS_MAX);
    for (int64_t i = 0; i < list.layers; i++) {
        attends[i] = !layer_recurs(&list, i);
        routes[i] = layer_has(g, i, "ffn_gate_inp.weight");
        some = some || routes[i];
        if (!attends[i] && *recurrent < 0) *recurrent = i;
    }
    if (!some) proa_gguf_put_int(json, "num_experts", 1);
    PROA_TRY(put_every(g, json, "attn", attends, list.layers, err));
    return some ? put_every(g, json, "expert", routes, list.layers, err) : PROA_OK;
}

proa_status proa_gguf_finish_jamba(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t inner = 0, hidden = 1, recurrent;
    PROA_TRY(put_jamba_layers(g, arch, json, &recurrent, err));
    PROA_TRY(proa_gguf_arch_int(&inner, g, arch, "ssm.inner_size", err));
    PROA_TRY(proa_gguf_arch_int(&hidden, g, arch, "embedding_length", err));
    if (hidden < 1 || inner < 1 || inner % hidden != 0)
        return PROA_FAIL(err, INVALID, "%s: 'jamba.ssm.inner_size' is %lld, no multiple of %lld", g->what,
                         (long long)inner, (long long)hidden);
    proa_gguf_put_int(json, "mamba_expand", inner / hidden);
    proa_gguf_put_bool(json, "mamba_conv_bias", layer_has(g, recurrent, "ssm_conv1d.bias"));
    proa_gguf_put_bool(json, "mamba_proj_bias", layer_has(g, recurrent, "ssm_in.bias"));
    return PROA_OK;
}
