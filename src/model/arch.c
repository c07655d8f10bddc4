/* SPDX-License-Identifier: Apache-2.0
 * arch.c - finds the row of an architecture, derives sizes from its configuration, and checks their ranges. */
#include "model/arch.h"

#include "base/checked.h"
#include "base/limits.h"
#include "model/derive.h"
#include "model/multimodal.h"
#include <math.h>
#include <string.h>

static const char *const reg_names[] = {
#define ROW(name, text) text,
    PROA_REG_LIST(ROW)
#undef ROW
};
static const char *const slot_names[] = {
#define ROW(name, text, split) text, text ".bias",
    PROA_SLOT_LIST(ROW)
#undef ROW
};
static const proa_split slot_splits[] = {
#define ROW(name, text, split)                                                                               \
    PROA_SPLIT_##split, PROA_SPLIT_##split >= PROA_SPLIT_COLUMNS ? PROA_SPLIT_NONE : PROA_SPLIT_##split,
    PROA_SLOT_LIST(ROW)
#undef ROW
};
static const char *const step_names[] = {
#define ROW(name, text) text,
    PROA_STEP_LIST(ROW)
#undef ROW
};

const char *proa_reg_name(proa_reg reg)
{
    return reg_names[reg];
}

const char *proa_slot_name(proa_weight_slot slot)
{
    return slot_names[slot];
}

proa_split proa_slot_split(proa_weight_slot slot)
{
    return slot_splits[slot];
}

bool proa_slot_ffn(proa_weight_slot slot)
{
    switch (slot & ~1U) {
    case PROA_SLOT_UP:
    case PROA_SLOT_UP_1:
    case PROA_SLOT_UP_2:
    case PROA_SLOT_UP_3:
    case PROA_SLOT_DOWN:
    case PROA_SLOT_DOWN_1:
    case PROA_SLOT_DOWN_2:
    case PROA_SLOT_DOWN_3: return true;
    default: return false;
    }
}

const char *proa_step_name(proa_step_op op)
{
    return step_names[op];
}

static bool has_hf(const proa_arch *arch, proa_str name)
{
    for (const char *const *hf = arch->hf; *hf; hf++)
        if (proa_str_is(name, *hf)) return true;
    return false;
}

const proa_json *proa_arch_text(const proa_arch *arch, const proa_json *config)
{
    if (arch->text) return proa_multimodal_text(config);
    return arch->text_config ? proa_json_get(config, arch->text_config) : NULL;
}

static bool has_key(const proa_arch *arch, const proa_json *config)
{
    const proa_json *text = proa_arch_text(arch, config);
    return !arch->key || proa_json_get(config, arch->key) || proa_json_get(text, arch->key);
}

/* The error names the two closest architectures, to show a typing error or a near relative. */
static proa_status fail_unknown(proa_str name, proa_err *err)
{
    char wanted[128];
    const char *best[2] = {"", ""};
    int least[2] = {1000, 1000};
    snprintf(wanted, sizeof wanted, "%.*s", (int)proa_min64((int64_t)name.len, 127), name.ptr);
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++)
        for (const char *const *hf = (*row)->hf; *hf; hf++) {
            int d = proa_str_distance(wanted, *hf);
            if (d < least[0]) {
                least[1] = least[0], best[1] = best[0];
                least[0] = d, best[0] = *hf;
            } else if (d < least[1]) {
                least[1] = d, best[1] = *hf;
            }
        }
    return PROA_FAIL(err, UNSUPPORTED, "architecture '%s' is not supported; closest known: %s, %s", wanted,
                     best[0], best[1]);
}

/* A row of the class, or NULL: the first one that has its key or whose model_type is that of the file, else the first
 * one. */
static const proa_arch *find_class(const proa_json *config, proa_str class, proa_str type)
{
    const proa_arch *found = NULL;
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        if (!has_hf(*row, class) || !has_key(*row, config)) continue;
        if ((*row)->key || proa_str_is(type, (*row)->model_type)) return *row;
        if (!found) found = *row;
    }
    return found;
}

/* A file that names no class is not one of a classifier. */
static bool opens_type(const proa_arch *arch, proa_str type)
{
    return proa_str_is(type, arch->model_type) && arch->outputs != PROA_DIM_LABELS;
}

static proa_status find_row(const proa_arch **out, const proa_json *config, proa_err *err)
{
    proa_str name = proa_json_str(proa_json_at(proa_json_get(config, "architectures"), 0));
    proa_str type = {"", 0};
    *out = name.len ? find_class(config, name, proa_json_str(proa_json_get(config, "model_type"))) : NULL;
    if (*out) return PROA_OK;
    if (name.len) return fail_unknown(name, err);
    PROA_TRY(proa_json_get_str(&type, config, "model_type", err));
    if (!type.len)
        return PROA_FAIL(err, INVALID, "neither 'architectures' nor 'model_type' says what the model is");
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++)
        if (opens_type(*row, type) && has_key(*row, config)) return *out = *row, PROA_OK;
    return fail_unknown(type, err);
}

proa_status proa_arch_find(const proa_arch **out, const proa_json *config, proa_err *err)
{
    PROA_TRY(find_row(out, config, err));
    return (*out)->text ? proa_multimodal_find(out, *out, config, err) : PROA_OK;
}

const proa_arch *proa_arch_in_folder(const proa_arch *arch, bool embeds)
{
    if (!embeds) return arch;
    const proa_arch *bare = arch->embedder ? arch->embedder : proa_arch_of_form(arch, PROA_FORM_BARE);
    return bare ? bare : arch;
}

/* The range of every size, read or derived. The keys' own ranges bound what is read; these are what the rest of
 * the program relies on. A product of two sizes is far below the largest int64_t. */
static const struct size_range {
    const char *name;
    size_t offset; /* of an int64_t in proa_config */
    int64_t min, max;
} size_ranges[] = {
#define SIZE(field, lo, hi)                                                                                  \
    {                                                                                                        \
#field, offsetof(proa_config, field), lo, hi                                                         \
    }
    SIZE(vocab, 1, PROA_VOCAB_MAX),
    SIZE(input_vocab, 0, PROA_VOCAB_MAX),
    SIZE(hidden, 1, PROA_HIDDEN_MAX),
    SIZE(layers, 0, PROA_LAYERS_MAX),
    SIZE(encoder_layers, 0, PROA_LAYERS_MAX),
    SIZE(heads, 1, PROA_HEADS_MAX),
    SIZE(kv_heads, 1, PROA_HEADS_MAX),
    SIZE(head_dim, 1, PROA_HEAD_DIM_MAX),
    SIZE(rotary_dim, 0, PROA_HEAD_DIM_MAX),
    SIZE(ffn, 1, PROA_FFN_MAX),
    SIZE(encoder_heads, 0, PROA_HEADS_MAX),
    SIZE(encoder_ffn, 0, PROA_FFN_MAX),
    SIZE(context, 1, PROA_CONTEXT_MAX),
    SIZE(position_offset, 0, PROA_CONTEXT_MAX),
    SIZE(narrow, 0, PROA_HIDDEN_MAX),
    SIZE(ffns, 0, PROA_FFNS_MAX),
    SIZE(embed, 1, PROA_HIDDEN_MAX),
    SIZE(head_embed, 1, PROA_HIDDEN_MAX),
    SIZE(types, 0, PROA_TOKEN_TYPES_MAX),
    SIZE(tasks, 0, PROA_TOKEN_TYPES_MAX),
    SIZE(boxes, 0, PROA_CONTEXT_MAX),
    SIZE(adapter, 0, PROA_HIDDEN_MAX),
    SIZE(labels, 0, PROA_LABELS_MAX),
    SIZE(experts, 0, PROA_EXPERTS_MAX),
    SIZE(expert_ffn, 0, PROA_FFN_MAX),
    SIZE(shared_ffn, 0, PROA_FFN_MAX),
    SIZE(expert_latent, 0, PROA_HIDDEN_MAX),
    SIZE(q_lora, 0, PROA_HIDDEN_MAX),
    SIZE(kv_lora, 0, PROA_HEAD_DIM_MAX),
    SIZE(qk_nope, 0, PROA_HEAD_DIM_MAX),
    SIZE(qk_rope, 0, PROA_HEAD_DIM_MAX),
    SIZE(v_dim, 0, PROA_HEAD_DIM_MAX),
    SIZE(index_heads, 0, PROA_HEADS_MAX),
    SIZE(index_dim, 0, PROA_HEAD_DIM_MAX),
    SIZE(index_topk, 0, PROA_PICKED_MAX),
    SIZE(key_heads, 0, PROA_HEADS_MAX),
    SIZE(value_heads, 0, PROA_HEADS_MAX),
    SIZE(key_dim, 0, PROA_STATE_DIM_MAX),
    SIZE(value_dim, 0, PROA_STATE_DIM_MAX),
    SIZE(conv_taps, 0, PROA_CONV_WIDTH_MAX),
    SIZE(step_rank, 0, PROA_HIDDEN_MAX),
    SIZE(gate_rank, 0, PROA_HIDDEN_MAX),
    SIZE(window, 0, PROA_CONTEXT_MAX),
    SIZE(encoder_window, 0, PROA_CONTEXT_MAX),
    SIZE(window_from, 0, PROA_LAYERS_MAX),
    SIZE(rel_buckets, 0, PROA_BUCKETS_MAX),
    SIZE(rel_distance, 0, PROA_CONTEXT_MAX),
    SIZE(side_block, 0, PROA_CONTEXT_MAX),
    SIZE(input_context, 0, PROA_CONTEXT_MAX),
    SIZE(globals, -1, PROA_CONTEXT_MAX),
    SIZE(relative.span, 0, PROA_RELATIVE_CONTEXT_MAX),
    SIZE(relative.distance, 0, PROA_CONTEXT_MAX),
    SIZE(relative.clamp, 0, PROA_CONTEXT_MAX),
    SIZE(conv_width, 0, PROA_CONV_WIDTH_MAX),
    SIZE(draft_vocab, 0, PROA_VOCAB_MAX),
    SIZE(streams, 0, PROA_STREAMS_MAX),
    SIZE(laurel, 0, PROA_HIDDEN_MAX),
    SIZE(layer_input, 0, PROA_HIDDEN_MAX),
    SIZE(layer_vocab, 0, PROA_VOCAB_MAX),
    SIZE(other_head_dim, 0, PROA_HEAD_DIM_MAX),
    SIZE(other_kv_heads, 0, PROA_HEADS_MAX),
    SIZE(states, 0, PROA_TAPS_MAX *(int64_t)PROA_HIDDEN_MAX),
    SIZE(rope.original, 0, PROA_CONTEXT_MAX),
    SIZE(local_rope.original, 0, PROA_CONTEXT_MAX),
#undef SIZE
};

/* The same for factors: finite, and small enough for float32. */
static const struct factor_range {
    const char *name;
    size_t offset; /* of a double */
    double min, max;
} factor_ranges[] = {
#define FACTOR(field, lo, hi)                                                                                \
    {                                                                                                        \
#field, offsetof(proa_config, field), lo, hi                                                         \
    }
#define ROPE_FACTORS(rope)                                                                                   \
    FACTOR(rope.theta, 0, 1e12), FACTOR(rope.factor, 0, 1e6), FACTOR(rope.low, 0, 1e6),                      \
        FACTOR(rope.high, 0, 1e6), FACTOR(rope.scale, 0, 1e6), FACTOR(rope.long_scale, 0, 1e6)
    FACTOR(params_eps, 0, 1),
    FACTOR(recall_eps, 0, 1),
    FACTOR(decay_floor, -1e6, 0),
    FACTOR(latent_eps, 0, 1),
    FACTOR(norm_eps, 0, 1),
    FACTOR(attention_scale, 1e-6, 1e6),
    FACTOR(logit_scale, 1e-6, 1e6),
    FACTOR(embed_scale, 1e-6, 1e6),
    FACTOR(residual_scale, 1e-6, 1e6),
    FACTOR(attention_cap, 0, 1e30),
    FACTOR(logit_cap, 0, 1e30),
    FACTOR(expert_limit, 0, 1e30),
    FACTOR(expert_offset, -1e6, 1e6),
    FACTOR(alibi_max, 0, 64),
    FACTOR(alibi_scale, 0, 1e6),
    ROPE_FACTORS(rope),
    FACTOR(qkv_clip, 0, 1e30),
    FACTOR(stream_scale, 0, 1e6),
    ROPE_FACTORS(local_rope),
#undef ROPE_FACTORS
#undef FACTOR
};

/* Whether it is a size of what no layer has: 0. */
static bool is_of_nothing(const proa_config *c, size_t offset)
{
    bool of_heads = offset == offsetof(proa_config, heads) || offset == offsetof(proa_config, kv_heads) ||
                    offset == offsetof(proa_config, head_dim);
    if (of_heads) return !proa_config_attends(c, PROA_SOME_LAYER);
    return offset == offsetof(proa_config, ffn) && !proa_config_has_dense(c, PROA_SOME_LAYER);
}

static proa_status check_ranges(const proa_config *c, proa_err *err)
{
    for (size_t i = 0; i < PROA_COUNT(size_ranges); i++) {
        const struct size_range *r = &size_ranges[i];
        int64_t value;
        memcpy(&value, (const char *)c + r->offset, sizeof value);
        if (value == 0 && is_of_nothing(c, r->offset)) continue;
        if (value < r->min || value > r->max)
            return PROA_FAIL(err, INVALID, "the size '%s' is %lld, must be %lld to %lld", r->name,
                             (long long)value, (long long)r->min, (long long)r->max);
    }
    for (size_t i = 0; i < PROA_COUNT(factor_ranges); i++) {
        const struct factor_range *r = &factor_ranges[i];
        double value;
        memcpy(&value, (const char *)c + r->offset, sizeof value);
        if (!(value >= r->min && value <= r->max))
            return PROA_FAIL(err, INVALID, "the factor '%s' is %g, must be %g to %g", r->name, value, r->min,
                             r->max);
    }
    return PROA_OK;
}

static void default_rope_scales(proa_rope_params *p)
{
    if (p->scale == 0) p->scale = 1;
    if (p->long_scale == 0) p->long_scale = p->scale;
}

/* What route and experts rely on. */
static proa_status check_experts(const proa_config *c, proa_err *err)
{
    const proa_router *r = &c->router;
    if (c->experts == 0) return PROA_OK;
    if (c->expert_ffn == 0)
        return PROA_FAIL(err, INVALID, "%lld experts without a size", (long long)c->experts);
    if (r->chosen < 1 || r->chosen > c->experts)
        return PROA_FAIL(err, INVALID, "%d experts are chosen of %lld", r->chosen, (long long)c->experts);
    if (r->groups == 0) return PROA_OK;
    if (r->groups < 0 || c->experts % r->groups != 0 || r->chosen_groups < 1 || r->chosen_groups > r->groups)
        return PROA_FAIL(err, INVALID, "%d of %d groups of experts are chosen, of %lld experts",
                         r->chosen_groups, r->groups, (long long)c->experts);
    if (r->chosen > c->experts / r->groups * r->chosen_groups)
        return PROA_FAIL(err, INVALID, "%d experts cannot be chosen in %d groups of %lld", r->chosen,
                         r->chosen_groups, (long long)(c->experts / r->groups));
    return PROA_OK;
}

/* Heads of the other shape. */
static proa_status derive_other_heads(proa_config *c, proa_err *err)
{
    if (c->other_kv_heads == 0) c->other_kv_heads = c->kv_heads;
    c->other_query_heads = c->heads;
    if (c->other_kv_heads < 1 || c->heads % c->other_kv_heads != 0)
        return PROA_FAIL(err, INVALID, "%lld heads are not a multiple of %lld key-value heads",
                         (long long)c->heads, (long long)c->other_kv_heads);
    if (c->other_head_dim < 2 || c->other_head_dim % 2 != 0)
        return PROA_FAIL(err, INVALID, "a head size of %lld, must be even", (long long)c->other_head_dim);
    return PROA_OK;
}

static proa_status derive_heads(proa_config *c, proa_err *err)
{
    if (c->head_dim == 0 && c->hidden % c->heads != 0)
        return PROA_FAIL(err, INVALID, "hidden size %lld is not a multiple of %lld heads",
                         (long long)c->hidden, (long long)c->heads);
    if (c->head_dim == 0) c->head_dim = c->hidden / c->heads;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->heads % c->kv_heads != 0)
        return PROA_FAIL(err, INVALID, "%lld heads are not a multiple of %lld key-value heads",
                         (long long)c->heads, (long long)c->kv_heads);
    if (c->attention_scale == 0) c->attention_scale = 1 / sqrt((double)c->head_dim);
    if (c->encoder_heads) c->encoder_head_dim = c->heads * c->head_dim / c->encoder_heads;
    return c->other_heads ? derive_other_heads(c, err) : PROA_OK;
}

/* Fills in sizes and scales that config.json may leave out, and checks those that depend on each other. */
static proa_status derive_sizes(proa_config *c, proa_err *err)
{
    if (proa_config_attends(c, PROA_SOME_LAYER)) PROA_TRY(derive_heads(c, err));
    else c->heads = c->kv_heads = c->head_dim = 0, c->attention_scale = 1;
    if (c->embed == 0) c->embed = c->hidden;
    if (c->head_embed == 0) c->head_embed = c->embed;
    if (c->logit_scale == 0) c->logit_scale = 1;
    if (c->embed_scale == 0) c->embed_scale = 1;
    if (c->residual_scale == 0) c->residual_scale = 1;
    default_rope_scales(&c->rope);
    default_rope_scales(&c->local_rope);
    PROA_TRY(check_experts(c, err));
    if (c->rotary_dim > c->head_dim || c->rotary_dim % 2 != 0)
        return PROA_FAIL(err, INVALID, "rotary size %lld must be even and at most the head size %lld",
                         (long long)c->rotary_dim, (long long)c->head_dim);
    return check_ranges(c, err);
}

proa_status proa_arch_configure(const proa_arch **out, proa_config *c, const proa_json *config,
                                const proa_json *generation, proa_arena *arena, proa_err *err)
{
    if (proa_json_kind(config) != PROA_JSON_OBJECT) return PROA_FAIL(err, CORRUPT, "not a JSON object");
    PROA_TRY(proa_arch_find(out, config, err));
    return proa_arch_configure_as(*out, c, config, generation, arena, err);
}

/* Whether each product of the layers reads rows that a step before it rounds. */
static bool rounds_inputs(const proa_arch *arch)
{
    bool rounded[PROA_REG_COUNT] = {false}, all = arch->kind == PROA_KIND_DECODER;
    for (const proa_step *s = arch->stacks[PROA_STACK_DECODER].layer; s && s->op != PROA_STEP_END; s++) {
        bool product = s->op == PROA_STEP_LINEAR || s->op == PROA_STEP_LINEAR_GATED ||
                       s->op == PROA_STEP_HEADS_LINEAR || s->op == PROA_STEP_EXPERTS;
        all = all && (!product || rounded[s->in]);
        rounded[s->out] = s->op == PROA_STEP_ROUND_ROWS;
    }
    return all;
}

/* Only the head, or the embedding, which is no product, may be left out. */
static proa_status check_whole_layers(const proa_json *quant, proa_err *err)
{
    const proa_json *list = proa_json_get(quant, "modules_to_not_convert");
    bool head = proa_json_kind(list) != PROA_JSON_ARRAY;
    for (int64_t i = 0; !head && i < proa_json_len(list); i++)
        head = proa_str_is(proa_json_str(proa_json_at(list, i)), "lm_head");
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        proa_str name = proa_json_str(proa_json_at(list, i));
        if (!proa_str_ends(name, proa_str_c("lm_head")) && !proa_str_ends(name, proa_str_c("embed_tokens")))
            return PROA_FAIL(err, UNSUPPORTED,
                             "'modules_to_not_convert' has '%.*s', which BitNet's layers cannot leave out",
                             (int)name.len, name.ptr);
    }
    return head ? PROA_OK
                : PROA_FAIL(
                      err, UNSUPPORTED,
                      "'modules_to_not_convert' has no 'lm_head': a head of BitNet's codes is not supported");
}

/* BitNet's quantisation, of any class whose layers have the steps for it. */
static proa_status read_bitnet(proa_config *c, const proa_arch *arch, const proa_json *config, proa_err *err)
{
    const proa_json *quant = proa_json_get(config, "quantization_config");
    proa_str method = {"", 0}, layers = {"bitlinear", 9}, mode = {"offline", 7};
    if (proa_json_kind(quant) != PROA_JSON_OBJECT) return PROA_OK;
    PROA_TRY(proa_json_get_str(&method, quant, "quant_method", err));
    if (!proa_str_is(method, "bitnet")) return PROA_OK;
    PROA_TRY(proa_json_get_str(&layers, quant, "linear_class", err));
    PROA_TRY(proa_json_get_str(&mode, quant, "quantization_mode", err));
    bool given = proa_str_is(layers, "autobitlinear"), online = proa_str_is(mode, "online");
    if (!given && !proa_str_is(layers, "bitlinear"))
        return PROA_FAIL(err, UNSUPPORTED, "'linear_class' is '%.*s', not bitlinear or autobitlinear",
                         (int)layers.len, layers.ptr);
    if (!online && !proa_str_is(mode, "offline"))
        return PROA_FAIL(err, UNSUPPORTED, "'quantization_mode' is '%.*s', not online or offline",
                         (int)mode.len, mode.ptr);
    if (proa_json_bool(proa_json_get(quant, "use_rms_norm")))
        return PROA_FAIL(err, UNSUPPORTED,
                         "'use_rms_norm' true (norms within BitNet's products) is not supported");
    if (!rounds_inputs(arch))
        return PROA_FAIL(err, UNSUPPORTED, "'quant_method' bitnet is not supported of the architecture %s",
                         arch->name);
    PROA_TRY(check_whole_layers(quant, err));
    c->input_bits = 8, c->ternary_masters = given && online;
    return PROA_OK;
}

/* A text model's head is tied if its own configuration says so or the one around it does (Mistral 3 as transformers 5
 * saves it: false inside, true outside). A head that the file has is used all the same. */
static proa_status read_outer_tie(proa_config *c, const proa_json *text, const proa_json *config, proa_err *err)
{
    const char *tie = "tie_word_embeddings";
    bool inner = proa_json_get(text, tie) && c->tied;
    PROA_TRY(proa_json_get_bool(&c->tied, config, tie, err));
    c->tied = c->tied || inner;
    return PROA_OK;
}

/* What the keys of the layers say, without ids. text: NULL where config.json itself has them. */
static proa_status read_keys(const proa_arch *arch, proa_config *c, const proa_json *keys,
                             const proa_json *text, const proa_json *config, proa_arena *arena, proa_err *err)
{
    PROA_TRY(proa_config_read(c, keys, arch->keys, err));
    if (arch->form != PROA_FORM_TEXTS || proa_config_is_null(keys, "pad_token_id")) c->pad = -1; /* PAD */
    if (text) PROA_TRY(read_outer_tie(c, text, config, err));
    PROA_TRY(arch->finish(c, keys, arena, err));
    if (arch->origin) PROA_TRY(proa_arch_finish_form(arch, c, keys, config, err));
    if (c->bidirectional && arch->kind == PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "'use_bidirectional_attention' true is not supported");
    return derive_sizes(c, err);
}

proa_status proa_arch_configure_as(const proa_arch *arch, proa_config *c, const proa_json *config,
                                   const proa_json *generation, proa_arena *arena, proa_err *err)
{
    if (proa_json_kind(config) != PROA_JSON_OBJECT) return PROA_FAIL(err, CORRUPT, "not a JSON object");
    const proa_json *text = proa_arch_text(arch, config), *keys = text ? text : config;
    proa_json *whole = NULL;
    *c = (proa_config){.bos = -1, .pad = -1, .decoder_start = -1, .prefix_end = -1, .passed_over = -1};
    if (arch->text) PROA_TRY(proa_multimodal_keys(&whole, arch, keys, err));
    proa_status status = read_keys(arch, c, whole ? whole : keys, text, config, arena, err);
    proa_json_free(whole);
    if (status != PROA_OK) return status;
    PROA_TRY(read_bitnet(c, arch, config, err));
    if (text) PROA_TRY(proa_config_read_ids(c, text, err));
    PROA_TRY(proa_config_read_ids(c, config, err));
    if (arch->form == PROA_FORM_TEXTS && arch->head_rows == PROA_ROWS_LAST) c->passed_over = c->pad;
    return generation ? proa_config_read_ids(c, generation, err) : PROA_OK;
}

double proa_norm_epsilon(const proa_config *c, proa_weight_slot slot)
{
    const bool latent = slot == PROA_SLOT_K_NORM || slot == PROA_SLOT_Q_DOWN_NORM;
    const double own = latent ? c->latent_eps : slot == PROA_SLOT_RECALL_NORM ? c->recall_eps : 0;
    return own > 0 ? own : c->norm_eps;
}

double proa_slot_factor(const proa_config *c, proa_weight_slot slot)
{
    switch (slot) {
    case PROA_SLOT_MIX: return c->factors.mix;
    case PROA_SLOT_MIX_OUT: return c->factors.mix_out;
    case PROA_SLOT_O: return c->factors.attention_out;
    case PROA_SLOT_UP: return c->factors.ffn_up;
    case PROA_SLOT_DOWN: return c->factors.ffn_out;
    case PROA_SLOT_SHARED_DOWN: return c->factors.shared_out;
    case PROA_SLOT_LAYER_PROJECT: return c->factors.layer_project;
    case PROA_SLOT_ROUTER: return c->factors.router;
    case PROA_SLOT_STREAM_ROUTER: return c->factors.stream_router;
    default: return 0;
    }
}

void proa_mix_parts(int64_t widths[5], const proa_config *c)
{
    const int64_t keys = c->key_heads * c->key_dim, values = c->value_heads * c->value_dim;
    const int64_t of[] = {values, keys, keys, c->value_heads, values};
    memcpy(widths, of, sizeof of);
}

int64_t proa_dim_size(const proa_config *c, proa_dim dim)
{
    switch (dim) {
    case PROA_DIM_NONE: return 0;
    case PROA_DIM_VOCAB: return c->vocab;
    case PROA_DIM_INPUT_VOCAB: return proa_config_input_vocab(c);
    case PROA_DIM_TOKENS: return c->vocab + c->extra_tokens;
    case PROA_DIM_HIDDEN: return c->hidden;
    case PROA_DIM_Q: return c->heads * c->head_dim;
    case PROA_DIM_KV: return c->kv_heads * c->head_dim;
    case PROA_DIM_QKV: return (c->heads + 2 * c->kv_heads) * c->head_dim;
    case PROA_DIM_HEAD: return c->head_dim;
    case PROA_DIM_HEADS: return c->heads;
    case PROA_DIM_FFN: return c->ffn;
    case PROA_DIM_ENCODER_FFN: return c->encoder_ffn ? c->encoder_ffn : c->ffn;
    case PROA_DIM_GATE_UP: return 2 * c->ffn;
    case PROA_DIM_EXPERTS: return c->experts;
    case PROA_DIM_EXPERT_FFN: return c->expert_ffn;
    case PROA_DIM_EXPERT_WIDTH: return c->expert_latent ? c->expert_latent : c->hidden;
    case PROA_DIM_EXPERT_GATED: return 2 * c->expert_ffn;
    case PROA_DIM_SHARED_FFN: return c->shared_ffn;
    case PROA_DIM_SHARED_GATED: return 2 * c->shared_ffn;
    case PROA_DIM_ONE: return 1;
    case PROA_DIM_Q_LORA: return c->q_lora;
    case PROA_DIM_Q_HEADS: return c->heads * (c->qk_nope + c->qk_rope);
    case PROA_DIM_LATENT: return c->kv_lora;
    case PROA_DIM_NOPE: return c->qk_nope;
    case PROA_DIM_VALUE: return c->v_dim;
    case PROA_DIM_VALUES: return c->heads * c->v_dim;
    case PROA_DIM_INDEX_Q: return c->index_heads * c->index_dim;
    case PROA_DIM_INDEX: return c->index_dim;
    case PROA_DIM_INDEX_HEADS: return c->index_heads;
    case PROA_DIM_CONTEXT: return c->context;
    case PROA_DIM_POSITIONS: return c->context + c->position_offset;
    case PROA_DIM_INPUT_POSITIONS: return proa_config_input_context(c) + c->position_offset;
    case PROA_DIM_EMBED: return c->embed;
    case PROA_DIM_TYPES: return c->types;
    case PROA_DIM_TASKS: return c->tasks;
    case PROA_DIM_BOXES: return c->boxes;
    case PROA_DIM_ADAPTER: return c->adapter;
    case PROA_DIM_HEAD_EMBED: return c->head_embed;
    case PROA_DIM_HEAD_REST: return c->hidden - c->embed;
    case PROA_DIM_NARROW: return c->narrow ? c->narrow : c->hidden;
    case PROA_DIM_ROTARY_HALF: return c->rotary_dim / 2;
    case PROA_DIM_SEGMENTS: return c->segments;
    case PROA_DIM_LABELS: return c->labels;
    case PROA_DIM_BUCKETS: return c->rel_buckets;
    case PROA_DIM_RELATIVE: return 2 * c->relative.span;
    case PROA_DIM_Q_GATED: return 2 * c->heads * c->head_dim;
    case PROA_DIM_MIX:
        return 2 * (proa_config_convolved_keys(c) + c->value_heads * c->value_dim) +
               (c->mix_rates ? c->value_heads : 0) + (c->mix_gated ? c->value_heads * c->value_dim : 0);
    case PROA_DIM_CONVOLVED: return 2 * proa_config_convolved_keys(c) + c->value_heads * c->value_dim;
    case PROA_DIM_RECALLED: return c->value_heads * c->value_dim;
    case PROA_DIM_RECALL_HEAD: return c->value_dim;
    case PROA_DIM_RECALL_KEYS: return c->key_heads * c->key_dim;
    case PROA_DIM_DECAYS: return c->value_heads * (c->channel_decays ? c->key_dim : 1);
    case PROA_DIM_RATES:
        if (c->step_rank) return c->value_heads * c->value_dim;
        return c->value_heads + proa_dim_size(c, PROA_DIM_DECAYS);
    case PROA_DIM_GATE_RANK: return c->gate_rank;
    case PROA_DIM_STEP_RANK: return c->step_rank;
    case PROA_DIM_PARAMS: return c->step_rank + 2 * c->key_heads * c->key_dim;
    case PROA_DIM_STATE: return c->key_dim;
    case PROA_DIM_RATE_HEADS: return c->value_heads;
    case PROA_DIM_TAPS: return c->conv_taps;
    case PROA_DIM_WINDOW: return c->conv_width * c->embed;
    case PROA_DIM_PAIR: return 2 * c->hidden;
    case PROA_DIM_LAYER_INPUT: return c->layer_input;
    case PROA_DIM_LAYER_INPUTS: return (c->layers ? c->layers : c->encoder_layers) * c->layer_input;
    case PROA_DIM_LAYER_VOCAB: return c->layer_vocab;
    case PROA_DIM_STREAMS: return c->streams;
    case PROA_DIM_STREAM_PAIRS: return c->streams * c->streams;
    case PROA_DIM_LAUREL: return c->laurel;
    case PROA_DIM_STATES: return c->states;
    case PROA_DIM_DRAFT_VOCAB: return c->draft_vocab;
    }
    return 0;
}

int64_t proa_dim_in_layer(const proa_config *c, proa_dim dim, int64_t layer)
{
    int64_t head_dim = proa_config_head_dim(c, layer), kv_heads = proa_config_kv_heads(c, layer);
    int64_t heads = proa_config_heads(c, layer);
    switch (dim) {
    case PROA_DIM_Q: return heads * head_dim;
    case PROA_DIM_KV: return kv_heads * head_dim;
    case PROA_DIM_QKV: return (heads + 2 * kv_heads) * head_dim;
    case PROA_DIM_HEAD: return head_dim;
    case PROA_DIM_FFN: return proa_config_ffn(c, layer);
    case PROA_DIM_GATE_UP: return 2 * proa_config_ffn(c, layer);
    default: return proa_dim_size(c, dim);
    }
}

/* The largest of the sizes of all shapes of heads. */
static int64_t widest_heads(const proa_config *c, proa_dim dim)
{
    int64_t size = proa_dim_size(c, dim), encoder = c->encoder_heads * c->encoder_head_dim;
    size = proa_max64(size, dim == PROA_DIM_Q ? encoder : 3 * encoder);
    if (!c->other_heads) return size;
    if (dim == PROA_DIM_Q) return proa_max64(size, c->other_query_heads * c->other_head_dim);
    return proa_max64(size, (c->other_query_heads + 2 * c->other_kv_heads) * c->other_head_dim);
}

/* Of the products that write registers: not of the experts, whose FFN is their kernels' own. */
static int64_t widest_ffn(const proa_config *c)
{
    bool dense = proa_config_has_dense(c, PROA_SOME_LAYER) || c->shared_ffn == 0;
    return proa_max64(dense ? proa_max64(c->ffn, c->encoder_ffn) : 0, c->shared_ffn);
}

int64_t proa_reg_width(const proa_arch *arch, const proa_config *c, proa_reg reg)
{
    switch (reg) {
    case PROA_REG_X:
    case PROA_REG_N:
    case PROA_REG_D:
    case PROA_REG_EXPERT_D:
    case PROA_REG_KEPT:
    case PROA_REG_MEANS:
    case PROA_REG_BLOCKS:
    case PROA_REG_H:
    case PROA_REG_HN: return c->hidden;
    case PROA_REG_QKV:
    case PROA_REG_BLOCK_QKV:
        return widest_heads(c, PROA_DIM_QKV) + (c->attention_gate ? proa_dim_size(c, PROA_DIM_Q) : 0);
    case PROA_REG_A:
    case PROA_REG_CQ: return widest_heads(c, PROA_DIM_Q);
    case PROA_REG_U: return (c->gated ? 2 : 1) * widest_ffn(c);
    case PROA_REG_F: return widest_ffn(c);
    case PROA_REG_ROUTER: return c->experts;
    case PROA_REG_EXPERT_W:
    case PROA_REG_EXPERT_IDS: return c->router.chosen;
    case PROA_REG_EXPERT_IN:
    case PROA_REG_EXPERT_OUT: return c->expert_latent;
    case PROA_REG_GATE: return 1;
    case PROA_REG_QD: return c->q_lora;
    case PROA_REG_QH: return proa_dim_size(c, PROA_DIM_Q_HEADS);
    case PROA_REG_AV: return proa_dim_size(c, PROA_DIM_VALUES);
    case PROA_REG_CKV: return 2 * proa_dim_size(c, PROA_DIM_KV);
    case PROA_REG_ROPE: return proa_config_rotary_dim(c, false);
    case PROA_REG_LOCAL_ROPE:
    case PROA_REG_BLOCK_ROPE: return c->rotary_dim;
    case PROA_REG_E: return c->embed;
    case PROA_REG_NARROW: return c->narrow;
    case PROA_REG_HE: return c->head_embed;
    case PROA_REG_WINDOWS: return proa_dim_size(c, PROA_DIM_WINDOW);
    case PROA_REG_HEADS_PART: return proa_dim_size(c, PROA_DIM_Q);
    case PROA_REG_HEADS_ALL: return c->all_heads * c->head_dim;
    case PROA_REG_OUT_PART: return c->head_split;
    case PROA_REG_PART: return c->sum_split ? c->sum_split : proa_dim_size(c, PROA_DIM_NARROW);
    case PROA_REG_EXPERT_PART: return c->sum_split ? c->latent_split : c->expert_latent;
    case PROA_REG_SUM_PART: return c->sum_part;
    case PROA_REG_SUM_PADDED: return c->sum_padded;
    case PROA_REG_SUM_IN: return c->sum_inputs;
    case PROA_REG_MIX: return proa_dim_size(c, PROA_DIM_MIX);
    case PROA_REG_MIXED: return proa_dim_size(c, PROA_DIM_CONVOLVED);
    case PROA_REG_PARAMS: /* rounded as SQUARES */
        return c->gate_rank ? c->gate_rank : proa_round_up(proa_dim_size(c, PROA_DIM_PARAMS), 8);
    case PROA_REG_RATES: return proa_dim_size(c, PROA_DIM_RATES);
    case PROA_REG_RECALL: return proa_dim_size(c, PROA_DIM_RECALLED);
    case PROA_REG_SQUARES: return proa_round_up(c->recall_groups, 4); /* devices add 16 bytes at a time */
    case PROA_REG_MOMENTS_PART: return 4;
    case PROA_REG_MOMENTS: return 4 * c->gate_parts;
    case PROA_REG_PAIR: return proa_dim_size(c, PROA_DIM_PAIR);
    case PROA_REG_STATES: return c->states;
    case PROA_REG_LAYER_INPUTS:
    case PROA_REG_LAYER_PROJECT: return proa_dim_size(c, PROA_DIM_LAYER_INPUTS);
    case PROA_REG_LAYER_GATE: return c->layer_input;
    case PROA_REG_STREAMS:
    case PROA_REG_HEAD_STREAMS: return c->streams * c->hidden;
    case PROA_REG_HEAD_OTHERS: return c->streams ? (c->streams - 1) * c->hidden : 0;
    case PROA_REG_STREAM_MODES: return c->streams;
    case PROA_REG_STREAM_COEFS: return c->streams * c->streams;
    case PROA_REG_LAUREL: return c->laurel;
    case PROA_REG_INDEX_Q: return proa_dim_size(c, PROA_DIM_INDEX_Q);
    case PROA_REG_INDEX_K: return c->index_dim;
    case PROA_REG_INDEX_W: return c->index_heads;
    case PROA_REG_PICKED: return c->index_topk;
    case PROA_REG_PICKED_KEYS: return proa_picked_numbers(c->index_topk, c->kv_heads * c->head_dim);
    case PROA_REG_OUT: return proa_dim_size(c, arch->outputs);
    case PROA_REG_NONE:
    case PROA_REG_COUNT: break;
    }
    return 0;
}

bool proa_arch_has_one_row(const proa_arch *arch)
{
    return arch->kind == PROA_KIND_ENCODER && arch->head_rows != PROA_ROWS_ALL;
}

bool proa_arch_projects(const proa_arch *arch)
{
    return arch->kind == PROA_KIND_ENCODER && arch->outputs == PROA_DIM_HEAD_EMBED;
}

bool proa_arch_decodes_input(const proa_arch *arch)
{
    return arch->kind == PROA_KIND_ENCODER && arch->stacks[PROA_STACK_DECODER].layer;
}

/* Whether all conditions among the flags hold. */
static bool conditions_hold(proa_flags flags, const proa_config *c, int64_t layer)
{
    const bool holds[PROA_CONDITION_COUNT] = {
#define HOLDS(name, holds) holds,
        PROA_CONDITION_LIST(HOLDS)
#undef HOLDS
    };
    for (int i = 0; i < PROA_CONDITION_COUNT; i++)
        if (flags >> (PROA_CONDITION_SHIFT + i) & 1 && !holds[i]) return false;
    return true;
}

int64_t proa_name_copies(const proa_name *name, const proa_config *c)
{
    if (name->flags & PROA_PER_EXPERT) return c->experts;
    if (name->flags & (PROA_PER_HEAD | PROA_OF_HEADS)) return c->heads;
    return name->flags & PROA_PER_KV_HEAD ? c->kv_heads : 1;
}

bool proa_name_applies(const proa_name *name, const proa_config *c, int64_t layer)
{
    return !proa_config_is_empty(c, layer) && conditions_hold(name->flags, c, layer);
}

bool proa_step_applies(const proa_step *step, const proa_config *c, int64_t layer)
{
    return !proa_config_is_empty(c, layer) && conditions_hold(step->flags, c, layer);
}
