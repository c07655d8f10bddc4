/* SPDX-License-Identifier: Apache-2.0
 * gemma.c - members of the config.json of Gemma 4 and Gemma 3n, whose layers differ from each other: heads, sizes of
 *           FFNs, windows, layers that read the keys and values of earlier ones, thresholds.
 * Facts: llama.cpp's conversion/gemma.py, src/models/gemma4.cpp and gemma3n.cpp. */
#include "weights/gguf/finish.h"

#include "base/checked.h"
#include <math.h>

/* A number, or a list with one for each layer; NULL: the key is missing. */
static proa_status find_by_layer(const proa_gguf_value **out, const proa_gguf *g, const proa_gguf_arch *arch,
                                 const char *key, int64_t layers, proa_err *err)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    const proa_gguf_value *v = proa_gguf_find(g, full);
    *out = v;
    if (!v || v->type != PROA_GGUF_ARRAY || v->count == layers) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s: '%s' has %lld entries for %lld layers", g->what, full,
                     (long long)v->count, (long long)layers);
}

/* Its number for one layer; -1: it is no integer, or there is no value. */
static int64_t number_of(const proa_gguf_value *v, int64_t layer)
{
    int64_t number;
    return v && proa_gguf_int_at(&number, v, v->type == PROA_GGUF_ARRAY ? layer : 0) ? number : -1;
}

static proa_status fail_layer(const proa_gguf *g, const proa_gguf_arch *arch, const char *key, int64_t layer,
                              int64_t is, proa_err *err)
{
    return PROA_FAIL(err, UNSUPPORTED, "%s: '%s.%s' is %lld for layer %lld, which is not supported", g->what,
                     arch->name, key, (long long)is, (long long)layer);
}

static proa_status read_layers(int64_t *layers, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    *layers = 0;
    PROA_TRY(proa_gguf_arch_int(layers, g, arch, "block_count", err));
    if (*layers >= 1 && *layers <= PROA_LAYERS_MAX) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s: '%s.block_count' is %lld, must be 1 to %d", g->what, arch->name,
                     (long long)*layers, PROA_LAYERS_MAX);
}

static const proa_gguf_value *find_windows(const proa_gguf *g, const proa_gguf_arch *arch)
{
    char full[96];
    snprintf(full, sizeof full, "%s.attention.sliding_window_pattern", arch->name);
    return proa_gguf_find(g, full);
}

/* rope_parameters of the two kinds of layers; part: of the pairs that rotate where there is no window, 0: all. */
static proa_status put_two_ropes(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                 const char *type, double part, proa_err *err)
{
    double theta = 1e6, local = 1e4;
    PROA_TRY(proa_gguf_arch_number(&theta, g, arch, "rope.freq_base", err));
    PROA_TRY(proa_gguf_arch_number(&local, g, arch, "rope.freq_base_swa", err));
    proa_buf_printf(json, ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"%s\"", type);
    if (part > 0) proa_gguf_put_number(json, "partial_rotary_factor", part);
    proa_gguf_put_number(json, "rope_theta", theta);
    proa_buf_printf(json, "}, \"sliding_attention\": {\"rope_type\": \"default\"");
    proa_gguf_put_number(json, "rope_theta", local);
    proa_buf_printf(json, "}}");
    return PROA_OK;
}

/* llama.cpp assumes a cap of 30 where the key is missing; 0 is none. */
static proa_status put_logit_cap(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    double cap = 30;
    PROA_TRY(proa_gguf_arch_number(&cap, g, arch, "final_logit_softcapping", err));
    if (cap == 0) proa_buf_printf(json, ", \"final_logit_softcapping\": null");
    else proa_gguf_put_number(json, "final_logit_softcapping", cap);
    return PROA_OK;
}

static void put_layer_vocab(const proa_gguf *g, proa_buf *json)
{
    const proa_gguf_tensor *table = proa_gguf_find_tensor(g, "per_layer_token_embd.weight");
    if (table && table->rank == 2) proa_gguf_put_int(json, "vocab_size_per_layer_input", table->shape[0]);
}

/* ---- Gemma 4 ---- */

/* How many pairs of a head rotate where there is no window, of how many: the divisors of the others are 1e30. */
static proa_status read_turning(const proa_gguf *g, int64_t pairs, int64_t *turning, proa_err *err)
{
    enum { UNTURNED_MIN = 1000000 };
    const proa_gguf_tensor *t = proa_gguf_find_tensor(g, "rope_freqs.weight");
    *turning = pairs;
    if (!t) return PROA_OK;
    const unsigned char *data = proa_gguf_f32_vector(g, t);
    bool known = data && t->shape[0] == pairs;
    for (int64_t i = 0; known && i < pairs; i++) {
        float divisor = proa_gguf_f32_at(data, i);
        if (divisor >= (float)UNTURNED_MIN && *turning == pairs) *turning = i;
        known = i < *turning ? divisor == 1 : divisor >= (float)UNTURNED_MIN;
    }
    if (known) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "%s: tensor 'rope_freqs.weight' is not %lld numbers of F32, first some that are 1, then "
                     "some that are 1e30",
                     g->what, (long long)pairs);
}

static proa_status put_gemma4_rope(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                   int64_t head_dim, proa_err *err)
{
    int64_t pairs = head_dim / 2, turning;
    PROA_TRY(read_turning(g, pairs, &turning, err));
    if (turning == pairs) return put_two_ropes(g, arch, json, "default", 0, err);
    return put_two_ropes(g, arch, json, "proportional", ((double)turning + 0.25) / (double)pairs, err);
}

/* Whether keys are values, too, where there is no window: there is no tensor for these. */
static bool lacks_values(const proa_gguf *g, int64_t layer)
{
    char name[48];
    snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)layer);
    return !proa_gguf_has_tensor(g, name);
}

/* Heads of keys and values with and without a window. */
typedef struct kv_shape {
    int64_t local, global; /* heads; 0: no such layer */
    bool lacking, having;  /* layers without a window that lack a tensor of values, or have one */
} kv_shape;

static proa_status read_kv_shape(kv_shape *out, const proa_gguf *g, const proa_gguf_arch *arch,
                                 int64_t layers, int64_t own, proa_err *err)
{
    static const char key[] = "attention.head_count_kv";
    const proa_gguf_value *heads, *windows = find_windows(g, arch);
    PROA_TRY(find_by_layer(&heads, g, arch, key, layers, err));
    *out = (kv_shape){0};
    for (int64_t i = 0; i < layers; i++) {
        bool local = windows->at[i] != 0 && i < layers - 1; /* the class has no window in the last layer */
        int64_t *of = local ? &out->local : &out->global, number = number_of(heads, i);
        if (number < 1 || number > PROA_HEADS_MAX || (*of && *of != number))
            return fail_layer(g, arch, key, i, number, err);
        *of = number;
        if (local || i >= own) continue;
        if (lacks_values(g, i)) out->lacking = true;
        else out->having = true;
    }
    return PROA_OK;
}

static proa_status put_gemma4_heads(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                    int64_t layers, int64_t own, int64_t *global_dim, proa_err *err)
{
    kv_shape kv;
    int64_t local_dim = 256;
    *global_dim = 512;
    PROA_TRY(proa_gguf_arch_int(global_dim, g, arch, "attention.key_length", err));
    PROA_TRY(proa_gguf_arch_int(&local_dim, g, arch, "attention.key_length_swa", err));
    PROA_TRY(read_kv_shape(&kv, g, arch, layers, own, err));
    if (kv.lacking && kv.having)
        return PROA_FAIL(err, UNSUPPORTED, "%s: keys are values in some layers without a window, not in all",
                         g->what);
    if (!kv.lacking && kv.local && kv.local != kv.global)
        return fail_layer(g, arch, "attention.head_count_kv", layers - 1, kv.global, err);
    proa_gguf_put_int(json, "head_dim", local_dim);
    proa_gguf_put_int(json, "global_head_dim", *global_dim);
    proa_gguf_put_int(json, "num_key_value_heads", kv.local ? kv.local : kv.global);
    proa_gguf_put_bool(json, "attention_k_eq_v", kv.lacking);
    if (kv.lacking) proa_gguf_put_int(json, "num_global_key_value_heads", kv.global);
    return PROA_OK;
}

/* One size; or that of the first layers, and twice that of those that share keys and values. */
static proa_status put_gemma4_ffn(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                  int64_t layers, int64_t own, proa_err *err)
{
    static const char key[] = "feed_forward_length";
    const proa_gguf_value *sizes;
    PROA_TRY(find_by_layer(&sizes, g, arch, key, layers, err));
    int64_t first = number_of(sizes, 0);
    bool wide = own < layers && number_of(sizes, own) != first;
    for (int64_t i = 0; i < layers; i++) {
        int64_t size = number_of(sizes, i);
        if (size < 1 || size > PROA_FFN_MAX || size != first * (wide && i >= own ? 2 : 1))
            return fail_layer(g, arch, key, i, size, err);
    }
    proa_gguf_put_int(json, "intermediate_size", first);
    proa_gguf_put_bool(json, "use_double_wide_mlp", wide);
    return PROA_OK;
}

static proa_status read_own_layers(int64_t *own, const proa_gguf *g, const proa_gguf_arch *arch,
                                   int64_t layers, proa_err *err)
{
    int64_t shared = 0;
    PROA_TRY(proa_gguf_arch_int(&shared, g, arch, "attention.shared_kv_layers", err));
    *own = layers - shared;
    if (*own >= 1) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s: '%s.attention.shared_kv_layers' is %lld of %lld layers", g->what,
                     arch->name, (long long)shared, (long long)layers);
}

proa_status proa_gguf_finish_gemma4(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers, own, head_dim, experts = 0;
    const proa_gguf_value *windows = find_windows(g, arch);
    PROA_TRY(read_layers(&layers, g, arch, err));
    PROA_TRY(read_own_layers(&own, g, arch, layers, err));
    if (!windows)
        return PROA_FAIL(err, INVALID, "%s: '%s.attention.sliding_window_pattern' is missing", g->what,
                         arch->name);
    PROA_TRY(proa_gguf_put_layer_types(g, arch, json, err));
    PROA_TRY(put_gemma4_heads(g, arch, json, layers, own, &head_dim, err));
    PROA_TRY(put_gemma4_ffn(g, arch, json, layers, own, err));
    PROA_TRY(put_gemma4_rope(g, arch, json, head_dim, err));
    PROA_TRY(proa_gguf_arch_int(&experts, g, arch, "expert_count", err));
    proa_gguf_put_bool(json, "enable_moe_block", experts > 0);
    put_layer_vocab(g, json);
    return put_logit_cap(g, arch, json, err);
}

/* ---- Gemma 3n ---- */

static proa_status put_ffn_sizes(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                 int64_t layers, proa_err *err)
{
    static const char key[] = "feed_forward_length";
    const proa_gguf_value *sizes;
    PROA_TRY(find_by_layer(&sizes, g, arch, key, layers, err));
    proa_buf_printf(json, ", \"intermediate_size\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        int64_t size = number_of(sizes, i);
        if (size < 1 || size > PROA_FFN_MAX) return fail_layer(g, arch, key, i, size, err);
        proa_buf_printf(json, "%s%lld", i ? ", " : "", (long long)size);
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

/* The part of normally distributed gates below a threshold of so many standard deviations; -infinity: none. */
static proa_status put_thresholds(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,
                                  int64_t layers, proa_err *err)
{
    const proa_gguf_value *scales;
    PROA_TRY(find_by_layer(&scales, g, arch, "activation_sparsity_scale", layers, err));
    if (!scales) return PROA_OK;
    proa_buf_printf(json, ", \"activation_sparsity_pattern\": [");
    for (int64_t i = 0; i < layers && !json->full; i++) {
        double scale;
        bool known = scales->type == PROA_GGUF_ARRAY && proa_gguf_double_at(&scale, scales, i);
        if (!known || isnan(scale) || scale > 10)
            return PROA_FAIL(err, INVALID,
                             "%s: '%s.activation_sparsity_scale' must be a list of numbers up to 10", g->what,
                             arch->name);
        proa_buf_printf(json, "%s%.9g", i ? ", " : "", (double)(float)(erfc(-scale / sqrt(2)) / 2));
    }
    proa_buf_char(json, ']');
    return PROA_OK;
}

proa_status proa_gguf_finish_gemma3n(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json, proa_err *err)
{
    int64_t layers, own;
    const proa_gguf_tensor *laurel = proa_gguf_find_tensor(g, "blk.0.laurel_l.weight");
    PROA_TRY(read_layers(&layers, g, arch, err));
    PROA_TRY(read_own_layers(&own, g, arch, layers, err));
    if (laurel && laurel->rank == 2) proa_gguf_put_int(json, "laurel_rank", laurel->shape[0]);
    put_layer_vocab(g, json);
    if (find_windows(g, arch)) PROA_TRY(proa_gguf_put_layer_types(g, arch, json, err));
    PROA_TRY(put_ffn_sizes(g, arch, json, layers, err));
    PROA_TRY(put_thresholds(g, arch, json, layers, err));
    PROA_TRY(put_two_ropes(g, arch, json, "default", 0, err));
    return put_logit_cap(g, arch, json, err);
}
