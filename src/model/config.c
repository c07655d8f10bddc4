/* SPDX-License-Identifier: Apache-2.0
 * config.c - reads the keys of config.json, rotary positions, sliding windows and token ids. */
#include "model/config.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

proa_status proa_config_read_act(proa_act *act, const proa_json *json, const char *key, proa_act fallback,
                                 proa_err *err)
{
    proa_str name = {"", 0};
    *act = fallback;
    PROA_TRY(proa_json_get_str(&name, json, key, err));
    if (name.len == 0 || proa_act_find(name, act)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s': unknown activation '%.*s'", key, (int)name.len, name.ptr);
}

bool proa_config_is_null(const proa_json *json, const char *key)
{
    for (proa_json_iter it = proa_json_begin(json); proa_json_next(&it);)
        if (proa_str_is(it.key, key)) return proa_json_kind(it.value) == PROA_JSON_NULL;
    return false;
}

static proa_status read_key(proa_config *c, const proa_json *json, const proa_key *key, proa_err *err)
{
    void *field = (char *)c + key->offset;
    if (key->required && !proa_json_get(json, key->key))
        return PROA_FAIL(err, INVALID, "'%s' is missing", key->key);
    switch (key->kind) {
    case PROA_KEY_INT:
        if (!proa_json_get(json, key->key)) {
            bool null = key->null_is_zero && proa_config_is_null(json, key->key);
            bool unread = *(int64_t *)field <= 0; /* 0, or -1 of an id */
            if (unread && !null) *(int64_t *)field = (int64_t)key->fallback;
            return PROA_OK;
        }
        return proa_json_get_int(field, json, key->key, (int64_t)key->min, (int64_t)key->max, err);
    case PROA_KEY_DOUBLE:
        *(double *)field = key->fallback;
        return proa_json_get_double(field, json, key->key, key->min, key->max, err);
    case PROA_KEY_BOOL:
        *(bool *)field = key->fallback != 0;
        return proa_json_get_bool(field, json, key->key, err);
    case PROA_KEY_ACT: return proa_config_read_act(&c->act, json, key->key, (proa_act)key->fallback, err);
    }
    return PROA_OK;
}

proa_status proa_config_read(proa_config *c, const proa_json *json, const proa_key *keys, proa_err *err)
{
    for (const proa_key *key = keys; key->key; key++) PROA_TRY(read_key(c, json, key, err));
    return PROA_OK;
}

proa_status proa_config_read_rotary_dim(proa_config *c, const proa_json *json, double part, proa_err *err)
{
    const char *key = "partial_rotary_factor";
    int64_t head_dim = c->head_dim ? c->head_dim : c->hidden / c->heads;
    PROA_TRY(proa_json_get_double(&part, json, key, 0, 1, err));
    PROA_TRY(proa_json_get_double(&part, proa_json_get(json, "rope_parameters"), key, 0, 1, err));
    c->rotary_dim = (int64_t)((double)head_dim * part);
    return PROA_OK;
}

proa_status proa_config_read_labels(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str type = {"", 0};
    int64_t named = proa_json_len(proa_json_get(json, "id2label"));
    if (named > 0) c->labels = named;
    if (c->labels == 0) c->labels = 2;
    PROA_TRY(proa_json_get_int(&c->labels, json, "num_labels", 1, PROA_LABELS_MAX, err));
    PROA_TRY(proa_json_get_str(&type, json, "problem_type", err));
    c->regression = proa_str_is(type, "regression") || c->labels == 1;
    return PROA_OK;
}

proa_status proa_config_check_relative(const proa_config *c, proa_err *err)
{
    if (c->context > PROA_RELATIVE_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT, "relative positions of %lld tokens are too many, at most %d are taken",
                         (long long)c->context, PROA_RELATIVE_CONTEXT_MAX);
    if (c->head_dim > PROA_RELATIVE_HEAD_MAX)
        return PROA_FAIL(err, LIMIT, "heads of %lld with relative positions are too large, at most %d are taken",
                         (long long)c->head_dim, PROA_RELATIVE_HEAD_MAX);
    return PROA_OK;
}

/* Reads the frequencies of the layers with a window. Only a rope_parameters with an object for each layer type has
 * them. */
static proa_status read_local_rope(proa_config *c, const proa_json *rope, proa_arena *arena, proa_err *err)
{
    c->local_rope.theta = c->rope.theta;
    return proa_rope_read(&c->local_rope, rope, c->context, c->rotary_dim, arena, err);
}

proa_status proa_config_read_rope(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    if (!rope) rope = proa_json_get(json, "rope_scaling");
    const proa_json *full = proa_json_get(rope, "full_attention"),
                    *local = proa_json_get(rope, "sliding_attention");
    if (c->rope.theta == 0) c->rope.theta = 10000;
    PROA_TRY(proa_json_get_double(&c->rope.theta, json, "rope_theta", 1, 1e12, err));
    PROA_TRY(proa_json_get_int(&c->rope.original, json, "original_max_position_embeddings", 1,
                               PROA_CONTEXT_MAX, err));
    if (local) PROA_TRY(read_local_rope(c, local, arena, err));
    if (full || local) rope = full;
    if (rope) PROA_TRY(proa_rope_read(&c->rope, rope, c->context, c->rotary_dim, arena, err));
    c->context = proa_rope_context(&c->rope, c->context);
    return PROA_OK;
}

/* Layers of the decoder, or of an encoder that has none. */
static int64_t main_layers(const proa_config *c)
{
    return c->layers ? c->layers : c->encoder_layers;
}

static proa_status read_layer_types(proa_config *c, const proa_json *types, proa_err *err)
{
    int64_t layers = main_layers(c);
    if (proa_json_len(types) != layers)
        return PROA_FAIL(err, INVALID, "'layer_types' has %lld entries for %lld layers",
                         (long long)proa_json_len(types), (long long)layers);
    for (int64_t i = 0; i < layers; i++) {
        proa_str type = proa_json_str(proa_json_at(types, i));
        c->window_layers[i] = proa_str_is(type, c->window_chunked ? "chunked_attention" : "sliding_attention");
        if (!c->window_layers[i] && !proa_str_is(type, "full_attention"))
            return PROA_FAIL(err, UNSUPPORTED, "'layer_types' entry %lld is '%.*s'", (long long)i,
                             (int)type.len, type.ptr);
    }
    return PROA_OK;
}

/* null: there is no window; missing: that which c->window holds. */
static proa_status read_window_size(proa_config *c, const proa_json *json, const char *key, proa_err *err)
{
    if (proa_config_is_null(json, key)) c->window = 0;
    PROA_TRY(proa_json_get_int(&c->window, json, key, 0, PROA_CONTEXT_MAX, err));
    c->window_used = c->window > 0;
    return PROA_OK;
}

proa_status proa_config_read_common_window(proa_config *c, const proa_json *json, proa_err *err)
{
    return read_window_size(c, json, "sliding_window", err);
}

proa_status proa_config_read_window(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "layer_types");
    PROA_TRY(read_window_size(c, json, c->window_chunked ? "attention_chunk_size" : "sliding_window", err));
    PROA_TRY(proa_json_get_bool(&c->window_used, json, "use_sliding_window", err));
    if (c->window == 0) c->window_used = false;
    if (!c->window_used) return PROA_OK;
    c->window_layers = PROA_ARENA_NEW(arena, bool, main_layers(c));
    if (types) return read_layer_types(c, types, err);
    if (c->window_pattern > 0) {
        PROA_TRY(proa_json_get_int(&c->window_pattern, json, "_sliding_window_pattern", 1, PROA_LAYERS_MAX, err));
        PROA_TRY(proa_json_get_int(&c->window_pattern, json, "sliding_window_pattern", 1, PROA_LAYERS_MAX, err));
    }
    PROA_TRY(proa_json_get_int(&c->window_from, json, "max_window_layers", 0, PROA_LAYERS_MAX, err));
    for (int64_t i = 0; i < main_layers(c); i++)
        c->window_layers[i] = c->window_pattern > 0 ? (i + 1) % c->window_pattern != 0 : i >= c->window_from;
    return PROA_OK;
}

static bool some_layer(const proa_config *c, bool (*has)(const proa_config *c, int64_t layer))
{
    for (int64_t i = 0; i < main_layers(c); i++)
        if (has(c, i)) return true;
    return false;
}

bool proa_config_has_ffn(const proa_config *c, int64_t layer)
{
    if (!c->ffn_layers) return true;
    return layer < 0 ? some_layer(c, proa_config_has_ffn) : c->ffn_layers[layer];
}

bool proa_config_has_experts(const proa_config *c, int64_t layer)
{
    if (layer < 0) return c->experts > 0 && some_layer(c, proa_config_has_experts);
    return c->experts > 0 && proa_config_has_ffn(c, layer) && (!c->expert_layers || c->expert_layers[layer]);
}

bool proa_config_has_dense(const proa_config *c, int64_t layer)
{
    if (layer < 0) return some_layer(c, proa_config_has_dense);
    return proa_config_has_ffn(c, layer) && !proa_config_has_experts(c, layer);
}

bool proa_config_recurs_alone(const proa_config *c, int64_t layer)
{
    if (layer >= 0) return proa_config_recurs(c, layer) && !proa_config_attends(c, layer);
    for (int64_t i = 0; i < c->layers; i++)
        if (proa_config_recurs_alone(c, i)) return true;
    return false;
}

bool proa_config_is_empty(const proa_config *c, int64_t layer)
{
    return layer >= 0 && !proa_config_has_ffn(c, layer) && !proa_config_attends(c, layer) &&
           !proa_config_recurs(c, layer);
}

/* What layers of a type have. */
static const struct mixer_type {
    const char *name;
    bool attends, recurs;
} mixer_types[] = {{"linear_attention", false, true},
                   {"mamba", false, true},
                   {"conv", false, true},
                   {"full_attention", true, false},
                   {"attention", true, false}};

static const struct mixer_type *find_mixer(proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(mixer_types); i++)
        if (proa_str_is(name, mixer_types[i].name)) return &mixer_types[i];
    return NULL;
}

void proa_config_mix(proa_config *c, int64_t layer, bool attends, bool recurs)
{
    c->attending_layers[layer] = attends;
    c->recurrent_layers[layer] = recurs;
}

void proa_config_mix_all(proa_config *c, bool attends, bool recurs, proa_arena *arena)
{
    c->recurrent_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    c->attending_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) proa_config_mix(c, i, attends, recurs);
}

proa_status proa_config_read_recurrent(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "layer_types");
    if (!types) types = proa_json_get(json, "layers_block_type");
    if (!types) return PROA_OK;
    if (proa_json_len(types) != c->layers)
        return PROA_FAIL(err, INVALID, "'layer_types' has %lld entries for %lld layers",
                         (long long)proa_json_len(types), (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        proa_str type = proa_json_str(proa_json_at(types, i));
        const struct mixer_type *mixer = find_mixer(type);
        if (!mixer)
            return PROA_FAIL(err, UNSUPPORTED, "'layer_types' entry %lld is '%.*s'", (long long)i,
                             (int)type.len, type.ptr);
        proa_config_mix(c, i, mixer->attends, mixer->recurs);
    }
    return PROA_OK;
}

proa_status proa_config_read_expert_layers(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t step = 1;
    const proa_json *dense = proa_json_get(json, "mlp_only_layers");
    PROA_TRY(proa_json_get_int(&step, json, "decoder_sparse_step", 1, PROA_LAYERS_MAX, err));
    c->expert_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->expert_layers[i] = (i + 1) % step == 0;
    for (int64_t i = 0; i < proa_json_len(dense); i++) {
        int64_t at = proa_json_int(proa_json_at(dense, i));
        if (at < 0 || at >= c->layers)
            return PROA_FAIL(err, INVALID, "'mlp_only_layers' names layer %lld of %lld", (long long)at,
                             (long long)c->layers);
        c->expert_layers[at] = false;
    }
    return PROA_OK;
}

proa_status proa_config_set_expert_layers(proa_config *c, proa_has_experts_fn *has, int64_t own,
                                          int64_t encoder, proa_arena *arena, proa_err *err)
{
    int64_t most = proa_max64(c->layers, c->encoder_layers);
    c->expert_layers = PROA_ARENA_NEW(arena, bool, most);
    for (int64_t i = 0; i < most; i++) {
        c->expert_layers[i] = has(i, i < c->layers ? own : encoder);
        if (i < c->layers && i < c->encoder_layers && has(i, own) != has(i, encoder))
            return PROA_FAIL(err, UNSUPPORTED,
                             "layer %lld has experts in one stack and not in the other: not supported",
                             (long long)i);
    }
    return PROA_OK;
}

proa_status proa_config_read_ffn_types(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *types = proa_json_get(json, "mlp_layer_types");
    if (!types) return PROA_OK;
    if (proa_json_len(types) != c->layers)
        return PROA_FAIL(err, INVALID, "'mlp_layer_types' has %lld entries for %lld layers",
                         (long long)proa_json_len(types), (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        proa_str type = proa_json_str(proa_json_at(types, i));
        c->expert_layers[i] = proa_str_is(type, "sparse");
        if (!c->expert_layers[i] && !proa_str_is(type, "dense"))
            return PROA_FAIL(err, UNSUPPORTED, "'mlp_layer_types' entry %lld is '%.*s'", (long long)i,
                             (int)type.len, type.ptr);
    }
    return PROA_OK;
}

bool proa_config_picks(const proa_config *c, int64_t layer)
{
    return c->index_topk > 0 && (layer < 0 || !c->picking_layers || c->picking_layers[layer]);
}

int64_t proa_config_picking(const proa_config *c, int64_t first, int64_t end)
{
    int64_t count = 0;
    for (int64_t i = first; i < end; i++) count += proa_config_picks(c, i);
    return count;
}

double proa_config_attention_scale(const proa_config *c, int64_t layer)
{
    return c->layer_scaled ? c->attention_scale / (double)(layer + 1) : c->attention_scale;
}

bool proa_config_recurs(const proa_config *c, int64_t layer)
{
    if (!c->recurrent_layers) return false;
    return layer < 0 ? proa_config_recurring(c, 0, main_layers(c)) > 0 : c->recurrent_layers[layer];
}

bool proa_config_attends(const proa_config *c, int64_t layer)
{
    if (!c->attending_layers) return true;
    return layer < 0 ? proa_config_attending(c, 0, main_layers(c)) > 0 : c->attending_layers[layer];
}

bool proa_config_has_other_heads(const proa_config *c, int64_t layer)
{
    return c->other_heads && layer >= 0 && c->other_heads[layer];
}

int64_t proa_config_head_dim(const proa_config *c, int64_t layer)
{
    return proa_config_has_other_heads(c, layer) ? c->other_head_dim : c->head_dim;
}

int64_t proa_config_heads(const proa_config *c, int64_t layer)
{
    return proa_config_has_other_heads(c, layer) ? c->other_query_heads : c->heads;
}

int64_t proa_config_kv_heads(const proa_config *c, int64_t layer)
{
    return proa_config_has_other_heads(c, layer) ? c->other_kv_heads : c->kv_heads;
}

int64_t proa_config_ffn(const proa_config *c, int64_t layer)
{
    return c->ffn_sizes && layer >= 0 ? c->ffn_sizes[layer] : c->ffn;
}

int64_t proa_config_rotary_dim(const proa_config *c, bool local)
{
    return c->other_heads && !local ? c->other_head_dim : c->rotary_dim;
}

bool proa_config_has_threshold(const proa_config *c, int64_t layer)
{
    if (!c->deviations) return false;
    return layer < 0 ? some_layer(c, proa_config_has_threshold) : c->deviations[layer] > (double)-INFINITY;
}

proa_status proa_config_share_kv(proa_config *c, int64_t shared, proa_arena *arena, proa_err *err)
{
    int64_t own = c->layers - shared;
    c->kv_sources = PROA_ARENA_NEW(arena, int32_t, c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        int64_t source = i < own ? i : own - 1;
        while (source >= 0 && proa_config_window(c, source) != proa_config_window(c, i)) source--;
        if (source < 0)
            return PROA_FAIL(err, INVALID,
                             "layer %lld shares keys and values, but no layer before layer %lld is of its "
                             "type",
                             (long long)i, (long long)own);
        c->kv_sources[i] = (int32_t)source;
    }
    return PROA_OK;
}

int64_t proa_config_kv_source(const proa_config *c, int64_t layer)
{
    return c->kv_sources ? c->kv_sources[layer] : layer;
}

bool proa_config_owns_kv(const proa_config *c, int64_t layer)
{
    if (layer < 0) return proa_config_attends(c, layer);
    return proa_config_attends(c, layer) && proa_config_kv_source(c, layer) == layer;
}

bool proa_config_k_is_v(const proa_config *c, int64_t layer)
{
    if (layer < 0) return c->k_is_v && some_layer(c, proa_config_k_is_v);
    return c->k_is_v && proa_config_has_other_heads(c, layer);
}

int64_t proa_config_kv_layers(const proa_config *c, int64_t first, int64_t end, bool other)
{
    int64_t count = 0;
    if (!c->attending_layers && !c->kv_sources && !c->other_heads) return other ? 0 : end - first;
    for (int64_t i = first; i < end; i++)
        count += proa_config_owns_kv(c, i) && proa_config_has_other_heads(c, i) == other;
    return count;
}

double proa_config_pair_ops(const proa_config *c, int64_t first, int64_t end)
{
    double ops = 0;
    for (int64_t i = first; i < end; i++)
        if (proa_config_attends(c, i))
            ops += 4.0 * (double)proa_config_heads(c, i) * (double)proa_config_head_dim(c, i);
    return ops;
}

static int64_t count_set(const bool *layers, int64_t first, int64_t end)
{
    int64_t count = 0;
    for (int64_t i = first; i < end; i++) count += layers[i];
    return count;
}

int64_t proa_config_attending(const proa_config *c, int64_t first, int64_t end)
{
    return c->attending_layers ? count_set(c->attending_layers, first, end) : end - first;
}

int64_t proa_config_recurring(const proa_config *c, int64_t first, int64_t end)
{
    return c->recurrent_layers ? count_set(c->recurrent_layers, first, end) : 0;
}

int64_t proa_config_convolved_keys(const proa_config *c)
{
    return c->step_rank ? 0 : c->key_heads * c->key_dim;
}

int64_t proa_config_layer_state(const proa_config *c)
{
    int64_t convolved = 2 * proa_config_convolved_keys(c) + c->value_heads * c->value_dim;
    return (c->conv_taps - 1) * convolved + c->value_heads * c->key_dim * c->value_dim;
}

int64_t proa_config_state(const proa_config *c)
{
    return proa_config_recurring(c, 0, main_layers(c)) * proa_config_layer_state(c);
}

proa_status proa_config_read_attention_window(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *list = proa_json_get(json, "attention_window");
    int64_t window = 512, count = proa_json_len(list);
    if (count == 0)
        PROA_TRY(proa_json_get_int(&window, json, "attention_window", 2, PROA_CONTEXT_MAX - 2, err));
    for (int64_t i = 0; i < count; i++) {
        int64_t other = proa_json_int(proa_json_at(list, i));
        if (i == 0) window = other;
        if (other != window || other < 2 || other >= PROA_CONTEXT_MAX)
            return PROA_FAIL(err, UNSUPPORTED,
                             "'attention_window' must be one number of 2 or more for all layers");
    }
    c->window = window / 2 + 1;
    c->window_used = true;
    return c->globals < 0 ? PROA_OK
                          : proa_json_get_int(&c->globals, json, "global_tokens", 0, PROA_CONTEXT_MAX, err);
}

proa_status proa_config_read_block_sparse(proa_config *c, const proa_json *json, proa_err *err)
{
    proa_str kind = {"block_sparse", 12};
    int64_t block = 64, random = 3;
    PROA_TRY(proa_json_get_str(&kind, json, "attention_type", err));
    PROA_TRY(proa_json_get_int(&block, json, "block_size", 1, PROA_CONTEXT_MAX, err));
    PROA_TRY(proa_json_get_int(&random, json, "num_random_blocks", 0, 1024, err));
    if (proa_str_is(kind, "block_sparse"))
        c->input_context = proa_min64(c->context, (5 + 2 * random) * block);
    else if (!proa_str_is(kind, "original_full"))
        return PROA_FAIL(err, UNSUPPORTED, "'attention_type' '%.*s' is not supported",
                         (int)proa_min64((int64_t)kind.len, 60), kind.ptr);
    return PROA_OK;
}

int64_t proa_config_globals(const proa_config *c, const int32_t *ids, int64_t count)
{
    int64_t first = count, ends = 0;
    if (c->globals >= 0) return proa_min64(c->globals, count);
    for (int64_t i = count - 1; i >= 0; i--)
        if (ids[i] == c->globals_end) first = i, ends++;
    return ends == c->globals_ends ? first : -1;
}

int32_t proa_config_window(const proa_config *c, int64_t layer)
{
    if (!c->window_used || (c->window_layers && !c->window_layers[layer])) return 0;
    return (int32_t)c->window;
}

int32_t proa_config_stack_window(const proa_config *c, bool decoder, int64_t layer)
{
    bool two = c->layers > 0 && c->encoder_layers > 0;
    if (two && decoder && !c->both_windows) return 0;
    if (!two || decoder || !c->both_windows) return proa_config_window(c, layer);
    bool used = !c->encoder_window_layers || c->encoder_window_layers[layer];
    return used ? (int32_t)c->encoder_window : 0;
}

/* Sizes that two stacks must have alike. */
static const struct same_size {
    const char *name;
    size_t offset; /* of an int64_t in proa_config */
} same_sizes[] = {{"hidden_size", offsetof(proa_config, hidden)},
                  {"vocab_size", offsetof(proa_config, vocab)},
                  {"num_attention_heads", offsetof(proa_config, heads)},
                  {"num_key_value_heads", offsetof(proa_config, kv_heads)},
                  {"head_dim", offsetof(proa_config, head_dim)},
                  {"type_vocab_size", offsetof(proa_config, types)}};

static proa_status check_alike(const proa_config *decoder, const proa_config *encoder, proa_err *err)
{
    const proa_rope_params *a = &decoder->rope, *b = &encoder->rope;
    for (size_t i = 0; i < PROA_COUNT(same_sizes); i++) {
        int64_t x, y;
        memcpy(&x, (const char *)decoder + same_sizes[i].offset, sizeof x);
        memcpy(&y, (const char *)encoder + same_sizes[i].offset, sizeof y);
        if (x != y)
            return PROA_FAIL(err, UNSUPPORTED,
                             "'%s' is %lld in the decoder and %lld in the encoder: not supported",
                             same_sizes[i].name, (long long)x, (long long)y);
    }
    if (a->kind != PROA_ROPE_PLAIN || b->kind != PROA_ROPE_PLAIN || a->theta != b->theta)
        return PROA_FAIL(err, UNSUPPORTED, "rotary positions must be plain ones of one base in both stacks");
    if (decoder->position_offset != encoder->position_offset)
        return PROA_FAIL(err, UNSUPPORTED,
                         "positions must begin with the same row of their tables in both stacks");
    bool same = decoder->attention_scale == encoder->attention_scale &&
                decoder->attention_cap == encoder->attention_cap && decoder->norm_eps == encoder->norm_eps &&
                decoder->act == encoder->act && decoder->attention_bias == encoder->attention_bias;
    if (same) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "scores, norms, activations and biases must be alike in both stacks");
}

proa_status proa_config_join_stacks(proa_config *c, const proa_config *encoder, int64_t encoder_layers,
                                    proa_err *err)
{
    PROA_TRY(check_alike(c, encoder, err));
    c->encoder_layers = encoder_layers;
    if (encoder->ffn != c->ffn) c->encoder_ffn = encoder->ffn;
    if (encoder->context != c->context) c->input_context = encoder->context;
    return PROA_OK;
}

static bool some_layer_rotates(const proa_config *c, bool rotates)
{
    for (int64_t i = 0; i < main_layers(c); i++)
        if (c->rotated_layers[i] == rotates) return true;
    return false;
}

bool proa_config_rotates(const proa_config *c, int64_t layer)
{
    if (c->rotary_dim == 0 || !c->rotated_layers) return c->rotary_dim > 0;
    return layer < 0 ? some_layer_rotates(c, true) : c->rotated_layers[layer];
}

bool proa_config_lacks_rope(const proa_config *c, int64_t layer)
{
    if (c->rotary_dim == 0 || !c->rotated_layers) return c->rotary_dim == 0;
    return layer < 0 ? some_layer_rotates(c, false) : !c->rotated_layers[layer];
}

/* transformers takes ids that the vocabulary has not: those of a class (GPT-2's 50256) in the file of a small model, or
 * of a padding token that was never embedded. None of them can be generated, so they count as none. */
static bool has_id(const proa_config *c, int64_t id)
{
    return id >= 0 && id < c->vocab;
}

static proa_status read_end_ids(proa_config *c, const proa_json *json, proa_err *err)
{
    const proa_json *eos = proa_json_get(json, "eos_token_id");
    bool list = proa_json_kind(eos) == PROA_JSON_ARRAY;
    int64_t count = list ? proa_json_len(eos) : eos ? 1 : 0;
    if (!eos) return PROA_OK; /* the value of an earlier file stays */
    if (count > PROA_END_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "'eos_token_id' lists %lld ids, at most %d are taken", (long long)count,
                         PROA_END_IDS_MAX);
    c->end_count = 0;
    for (int64_t i = 0; i < count; i++) {
        const proa_json *id = list ? proa_json_at(eos, i) : eos;
        if (proa_json_kind(id) != PROA_JSON_INT)
            return PROA_FAIL(err, INVALID, "'eos_token_id' must be an integer or a list of integers");
        if (has_id(c, proa_json_int(id))) c->end_ids[c->end_count++] = (int32_t)proa_json_int(id);
    }
    return PROA_OK;
}

proa_status proa_config_read_ids(proa_config *c, const proa_json *json, proa_err *err)
{
    static const struct {
        const char *key;
        size_t offset;
    } ids[] = {{"bos_token_id", offsetof(proa_config, bos)},
               {"pad_token_id", offsetof(proa_config, pad)},
               {"decoder_start_token_id", offsetof(proa_config, decoder_start)}};
    for (size_t i = 0; i < PROA_COUNT(ids); i++) {
        int64_t *id = (int64_t *)(void *)((char *)c + ids[i].offset);
        PROA_TRY(proa_json_get_int(id, json, ids[i].key, INT32_MIN, INT32_MAX, err));
        if (!has_id(c, *id)) *id = -1;
    }
    return read_end_ids(c, json, err);
}

void proa_config_alibi(const proa_config *c, float *slopes)
{
    int64_t whole = 1, heads = c->all_heads ? c->all_heads : c->heads;
    while (2 * whole <= heads) whole *= 2;
    for (int64_t i = 0; i < c->heads; i++) {
        int64_t h = c->first_head + i;
        double place = h < whole ? (double)(h + 1) : (double)(h - whole) + 0.5;
        double slope = exp2(-c->alibi_max * place / (double)whole);
        slopes[i] = (float)(c->alibi_scale > 0 ? slope * c->alibi_scale : slope);
    }
}
