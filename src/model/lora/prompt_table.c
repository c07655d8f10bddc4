/* SPDX-License-Identifier: Apache-2.0
 * prompt_table.c - prompt tables: their sizes, and PEFT's files. */
#include "model/lora/prompt_table.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <stdlib.h>

/* ---- life ---- */

/* A table of input embeddings has the width of the encoder's, if there is an encoder; one of keys and values is the
 * decoder's. */
int64_t proa_prompt_table_width(const proa_model *m, bool keys)
{
    bool decoder = m->arch->kind == PROA_KIND_DECODER;
    const proa_params *p = &m->params[decoder ? PROA_STACK_DECODER : PROA_STACK_ENCODER];
    const proa_config *c = &m->config;
    int64_t heads = c->all_kv_heads ? c->all_kv_heads : c->kv_heads;
    return keys ? 2 * heads * c->head_dim : proa_params_find(p, p->layers, PROA_SLOT_TOKENS)->cols;
}

static int64_t layers_of(const proa_model *m, bool keys)
{
    return keys ? m->config.layers : 1;
}

static proa_status check_model(const proa_model *m, bool keys, proa_err *err)
{
    if (m->arch->kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "prompt tables of a %s: only models with a decoder take them",
                         m->arch->name);
    if (m->config.prefix_end >= 0)
        return PROA_FAIL(err, UNSUPPORTED, "prompt tables of a %s, whose prompts are read both ways",
                         m->arch->name);
    if (m->config.layer_input)
        return PROA_FAIL(err, UNSUPPORTED,
                         "prompt tables of a %s, whose layers have inputs of their own for each token",
                         m->arch->name);
    if (keys && proa_model_state(m))
        return PROA_FAIL(err, UNSUPPORTED,
                         "keys and values of virtual tokens of a %s, which has recurrent states", m->arch->name);
    if (keys && (m->config.other_heads || m->config.kv_sources))
        return PROA_FAIL(
            err, UNSUPPORTED,
            "keys and values of virtual tokens of a %s, whose layers have other heads or share them",
            m->arch->name);
    if (keys && m->config.kv_lora)
        return PROA_FAIL(err, UNSUPPORTED, "keys and values of virtual tokens of a %s, whose own are latent",
                         m->arch->name);
    return PROA_OK;
}

/* *bytes: of its numbers. */
static proa_status check_size(const proa_model *m, int64_t tokens, bool keys, int64_t *bytes, proa_err *err)
{
    int64_t most = proa_min64(m->config.context - 1, PROA_CONTEXT_MAX);
    PROA_TRY(check_model(m, keys, err));
    if (tokens < 1 || tokens > most)
        return PROA_FAIL(err, LIMIT, "a prompt table of %lld tokens, must be 1 to %lld", (long long)tokens,
                         (long long)most);
    int64_t width = proa_prompt_table_width(m, keys);
    if (!proa_mul(tokens, width * (int64_t)sizeof(float), bytes) ||
        !proa_mul(*bytes, layers_of(m, keys), bytes) || *bytes > PROA_PROMPT_TABLE_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "a prompt table of %lld tokens takes more than %lld MB",
                         (long long)tokens, (long long)(PROA_PROMPT_TABLE_BYTES_MAX / PROA_MIB));
    return PROA_OK;
}

proa_status proa_prompt_table_check(const proa_model *m, int64_t tokens, bool keys, proa_err *err)
{
    int64_t bytes = 0;
    return check_size(m, tokens, keys, &bytes, err);
}

proa_status proa_prompt_table_new(proa_prompt_table **out, const proa_model *m, int64_t tokens, bool keys,
                                  proa_err *err)
{
    int64_t bytes = 0;
    *out = NULL;
    PROA_TRY(check_size(m, tokens, keys, &bytes, err));
    *out = proa_malloc(sizeof **out + (size_t)bytes);
    **out = (proa_prompt_table){.tokens = tokens, .width = proa_prompt_table_width(m, keys), .keys = keys};
    return PROA_OK;
}

void proa_prompt_table_free(proa_prompt_table *table)
{
    free(table);
}

int64_t proa_prompt_table_count(const proa_model *m, const proa_prompt_table *table)
{
    return layers_of(m, table->keys) * table->tokens * table->width;
}

/* ---- PEFT's files ---- */

static const struct {
    const char *type;
    bool keys;
} types[] = {{"PROMPT_TUNING", false}, {"P_TUNING", false}, {"PREFIX_TUNING", true}};

bool proa_prompt_table_is_type(proa_str peft_type)
{
    for (size_t i = 0; i < PROA_COUNT(types); i++)
        if (proa_str_is(peft_type, types[i].type)) return true;
    return false;
}

static bool has_keys(const proa_json *config)
{
    proa_str type = proa_json_str(proa_json_get(config, "peft_type"));
    for (size_t i = 0; i < PROA_COUNT(types); i++)
        if (proa_str_is(type, types[i].type)) return types[i].keys;
    return false;
}

/* PEFT calls the embedding itself, and its encoder takes what it returns: where the scale is applied behind that, it
 * was trained without. */
static proa_status check_scale(const proa_model *m, bool keys, proa_err *err)
{
    if (keys || !m->config.embed_scale_apart || m->config.embed_scale == 1) return PROA_OK;
    return PROA_FAIL(
        err, UNSUPPORTED,
        "prompt tuning and p-tuning of a %s: PEFT trains them with embeddings without their scale",
        m->arch->name);
}

/* What the configuration says of the tensor. */
typedef struct table_shape {
    int64_t tokens, stacks; /* stacks: PEFT makes numbers for each, and uses those of the first */
} table_shape;

/* PEFT counts the stacks of a model by its task. */
static proa_status check_stacks(const proa_model *m, int64_t stacks, bool keys, proa_err *err)
{
    bool encoder = m->arch->kind == PROA_KIND_ENCODER_DECODER;
    if (stacks == (encoder ? 2 : 1) || (encoder && !keys)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'num_transformer_submodules' is %lld, of a %s it must be %d",
                     (long long)stacks, m->arch->name, encoder ? 2 : 1);
}

static proa_status check_config(const proa_model *m, const proa_json *config, table_shape *shape, proa_err *err)
{
    const proa_json *saved = proa_json_get(config, "modules_to_save");
    *shape = (table_shape){.stacks = m->arch->kind == PROA_KIND_ENCODER_DECODER ? 2 : 1};
    if (saved && proa_json_kind(saved) != PROA_JSON_NULL && proa_json_len(saved) > 0)
        return PROA_FAIL(err, UNSUPPORTED, "'modules_to_save': modules saved whole are not supported");
    PROA_TRY(proa_json_get_int(&shape->stacks, config, "num_transformer_submodules", 1, 2, err));
    PROA_TRY(check_stacks(m, shape->stacks, has_keys(config), err));
    PROA_TRY(proa_json_get_int(&shape->tokens, config, "num_virtual_tokens", 1, PROA_CONTEXT_MAX, err));
    return shape->tokens ? PROA_OK : PROA_FAIL(err, INVALID, "it has no 'num_virtual_tokens'");
}

static proa_status check_tensor(const proa_weights_tensor *t, int64_t rows, int64_t cols, proa_err *err)
{
    const proa_view *v = &t->source.view;
    char shape[64];
    bool known = v->dtype == PROA_DTYPE_F32 || v->dtype == PROA_DTYPE_F16 || v->dtype == PROA_DTYPE_BF16;
    if (!proa_tensor_source_is_plain(&t->source) || !known)
        return PROA_FAIL(err, UNSUPPORTED, "tensor '%s' is %s; f32, f16 and bf16 are supported", t->name,
                         proa_dtype_name(v->dtype));
    if (v->rank == 2 && v->shape[0] == rows && v->shape[1] == cols) return PROA_OK;
    return PROA_FAIL(err, INVALID, "tensor '%s' has shape %s, must be [%lld, %lld]", t->name,
                     proa_shape_text(shape, v->rank, v->shape), (long long)rows, (long long)cols);
}

/* Layers of which a row of the tensor has numbers: those of the encoder, if there is one, and a decoder with more of
 * them cannot be served. */
static proa_status layers_in_file(const proa_model *m, bool keys, int64_t *layers, proa_err *err)
{
    *layers = layers_of(m, keys);
    if (!keys || m->arch->kind != PROA_KIND_ENCODER_DECODER) return PROA_OK;
    *layers = m->config.encoder_layers;
    if (m->config.layers <= *layers) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "keys and values of virtual tokens of a %s with %lld encoder and %lld decoder layers",
                     m->arch->name, (long long)*layers, (long long)m->config.layers);
}

/* Where the row has the numbers of decoder layer l. PEFT repeats a row of an encoder-decoder, and divides both by layer
 * into keys and values of the self-attention and of the cross-attention, which it does not use: layer l has those that
 * the file has for layer 2 l, counted around. */
static int64_t place_of(const proa_model *m, int64_t l, int64_t layers)
{
    return m->arch->kind == PROA_KIND_ENCODER_DECODER ? 2 * l % layers : l;
}

/* Row t of the tensor has what the table has of token t: of each layer the keys, then the values. */
static void copy_rows(proa_prompt_table *table, const proa_model *m, int64_t layers,
                      const proa_tensor_source *from)
{
    for (int64_t t = 0; t < table->tokens; t++)
        for (int64_t l = 0; l < layers_of(m, table->keys); l++)
            proa_tensor_source_read(from, t, place_of(m, l, layers) * table->width, table->width,
                                    table->values + (l * table->tokens + t) * table->width);
}

static proa_status read_table(proa_prompt_table **out, const proa_model *m, const proa_weights *tensors,
                              const proa_json *config, proa_err *err)
{
    table_shape shape;
    int64_t layers;
    bool keys = has_keys(config);
    const proa_weights_tensor *t = proa_weights_find(tensors, "prompt_embeddings");
    PROA_TRY(check_config(m, config, &shape, err));
    PROA_TRY(check_scale(m, keys, err));
    PROA_TRY(proa_prompt_table_new(out, m, shape.tokens, keys, err));
    PROA_TRY(layers_in_file(m, keys, &layers, err));
    if (!t) return PROA_FAIL(err, INVALID, "it has no tensor 'prompt_embeddings'");
    if (proa_weights_count(tensors) > 1)
        return PROA_FAIL(err, UNSUPPORTED, "it has %lld tensors, 'prompt_embeddings' alone is supported",
                         (long long)proa_weights_count(tensors));
    PROA_TRY(check_tensor(t, keys ? shape.tokens : shape.tokens * shape.stacks, layers * (*out)->width, err));
    copy_rows(*out, m, layers, &t->source);
    return PROA_OK;
}

proa_status proa_prompt_table_read(proa_prompt_table **out, const proa_model *m, const proa_weights *tensors,
                                   const proa_json *config, const char *what, proa_err *err)
{
    *out = NULL;
    proa_status status = read_table(out, m, tensors, config, err);
    if (status == PROA_OK) return PROA_OK;
    proa_err_prefix(err, "%s", what);
    proa_prompt_table_free(*out);
    *out = NULL;
    return status;
}
