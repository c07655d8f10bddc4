/* SPDX-License-Identifier: Apache-2.0
 * sentence.c - what a folder of sentence-transformers says beside the model: modules.json lists the steps of an
 *              embedding, 1_Pooling/config.json the pooling, 2_Dense a dense layer, and config.json the activation of a
 *              cross-encoder. */
#include "backends/llm/llm.h"

#include "base/limits.h"
#include <string.h>

/* The keys of 1_Pooling/config.json; NULL pooling: not computed. */
static const struct {
    const char *key;
    proa_pooling pooling;
} modes[] = {{"pooling_mode_cls_token", PROA_POOLING_CLS},
             {"pooling_mode_mean_tokens", PROA_POOLING_MEAN},
             {"pooling_mode_lasttoken", PROA_POOLING_LAST},
             {"pooling_mode_max_tokens", PROA_POOLING_DEFAULT},
             {"pooling_mode_mean_sqrt_len_tokens", PROA_POOLING_DEFAULT},
             {"pooling_mode_weightedmean_tokens", PROA_POOLING_DEFAULT}};

/* "pooling_mode": "cls" of newer files. */
static const struct {
    const char *name;
    proa_pooling pooling;
} names[] = {{"cls", PROA_POOLING_CLS}, {"mean", PROA_POOLING_MEAN}, {"lasttoken", PROA_POOLING_LAST}};

typedef struct reader {
    proa_sentence_modules *out;
    const proa_files *files;
    int64_t hidden; /* width of the model's states */
    proa_arena *arena;
} reader;

static void refuse_module(reader *r, const char *what, const char *name)
{
    r->out->refused = proa_arena_printf(
        r->arena, "the model's own embedding has %s '%.100s', which is not supported", what, name);
}

static void read_pooling_name(reader *r, proa_str name)
{
    proa_pooling found = PROA_POOLING_DEFAULT;
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_is(name, names[i].name)) found = names[i].pooling;
    if (found == PROA_POOLING_DEFAULT) refuse_module(r, "the pooling", proa_arena_strdup(r->arena, name));
    else if (r->out->pooling != PROA_POOLING_DEFAULT)
        refuse_module(r, "a second pooling", proa_arena_strdup(r->arena, name));
    r->out->pooling = found;
}

/* Several modes are concatenated there; here one is computed. */
static void read_pooling(reader *r, const proa_json *config)
{
    proa_str name = proa_json_str(proa_json_get(config, "pooling_mode"));
    if (name.len > 0) {
        read_pooling_name(r, name);
        return;
    }
    for (size_t i = 0; i < PROA_COUNT(modes); i++) {
        if (!proa_json_bool(proa_json_get(config, modes[i].key))) continue;
        if (modes[i].pooling == PROA_POOLING_DEFAULT) refuse_module(r, "the pooling", modes[i].key);
        else if (r->out->pooling != PROA_POOLING_DEFAULT) refuse_module(r, "a second pooling", modes[i].key);
        r->out->pooling = modes[i].pooling;
    }
}

static proa_status read_pooling_file(reader *r, const char *folder, proa_err *err)
{
    const char *name = proa_arena_printf(r->arena, "%s/config.json", folder);
    proa_json *config = NULL;
    if (proa_path_climbs(name))
        return PROA_FAIL(err, INVALID, "modules.json names the path '%.100s'", folder);
    if (!proa_files_has(r->files, name)) return PROA_OK;
    PROA_TRY(proa_files_json(&config, r->files, name, PROA_CONFIG_BYTES_MAX, err));
    read_pooling(r, config);
    proa_json_free(config);
    return PROA_OK;
}

static void append_dense(reader *r, const proa_dense *layer)
{
    proa_sentence_dense **end = &r->out->dense;
    while (*end) end = &(*end)->next;
    *end = PROA_ARENA_NEW(r->arena, proa_sentence_dense, 1);
    (*end)->layer = *layer;
    r->out->width = layer->outputs;
}

/* A dense layer takes what the one before it gives, or the states of the model. What cannot be read is refused when an
 * embedding is requested. */
static proa_status read_dense_file(reader *r, const char *folder, const char *type, proa_err *err)
{
    const char *name = proa_arena_printf(r->arena, "%s/config.json", folder);
    int64_t width = r->out->width ? r->out->width : r->hidden;
    proa_json *config = NULL;
    proa_dense layer;
    proa_err why = {.status = PROA_OK};
    if (proa_path_climbs(name))
        return PROA_FAIL(err, INVALID, "modules.json names the path '%.100s'", folder);
    if (!r->files->dir || !proa_files_has(r->files, name))
        return refuse_module(r, "the module", type), PROA_OK;
    PROA_TRY(proa_files_json(&config, r->files, name, PROA_CONFIG_BYTES_MAX, err));
    const char *path = proa_arena_printf(r->arena, "%s/%s", r->files->dir, folder);
    proa_status status = proa_dense_open(&layer, path, config, r->arena, &why);
    proa_json_free(config);
    if (status != PROA_OK) refuse_module(r, "a module Dense whose", why.text);
    else if (layer.inputs != width || r->out->normalize) refuse_module(r, "the module", type);
    else append_dense(r, &layer);
    return PROA_OK;
}

/* One step: "sentence_transformers.models.Pooling" with its folder. */
static proa_status read_module(reader *r, const proa_json *module, proa_err *err)
{
    const char *path = proa_arena_strdup(r->arena, proa_json_str(proa_json_get(module, "path")));
    const char *type = proa_arena_strdup(r->arena, proa_json_str(proa_json_get(module, "type"))),
               *dot = strrchr(type, '.'), *last = dot ? dot + 1 : type;
    if (strcmp(last, "Transformer") == 0) return PROA_OK;
    if (strcmp(last, "Pooling") == 0) return read_pooling_file(r, path, err);
    if (strcmp(last, "Dense") == 0) return read_dense_file(r, path, type, err);
    if (strcmp(last, "Normalize") == 0) r->out->normalize = true;
    else refuse_module(r, "the module", type);
    return PROA_OK;
}

proa_status proa_sentence_modules_read(proa_sentence_modules *out, const proa_files *files, int64_t hidden,
                                       proa_arena *arena, proa_err *err)
{
    reader r = {out, files, hidden, arena};
    proa_json *modules = NULL;
    proa_status status = PROA_OK;
    if (!proa_files_has(files, "modules.json")) return read_pooling_file(&r, "1_Pooling", err);
    PROA_TRY(proa_files_json(&modules, files, "modules.json", PROA_CONFIG_BYTES_MAX, err));
    if (proa_json_len(modules) > PROA_SENTENCE_MODULES_MAX)
        status = PROA_FAIL(err, LIMIT, "modules.json names %lld modules, at most %d are read",
                           (long long)proa_json_len(modules), PROA_SENTENCE_MODULES_MAX);
    for (int64_t i = 0; i < proa_json_len(modules) && status == PROA_OK; i++)
        status = read_module(&r, proa_json_at(modules, i), err);
    proa_json_free(modules);
    return status;
}

/* "torch.nn.modules.linear.Identity", by the key of this or of an earlier release. */
static void read_activation(proa_llm_model *s, const proa_json *config)
{
    proa_str now = proa_json_str(
        proa_json_get(proa_json_get(config, "sentence_transformers"), "activation_fn"));
    if (!now.len) now = proa_json_str(proa_json_get(config, "sbert_ce_default_activation_function"));
    s->plain_relevance = proa_str_ends(now, proa_str_c("Identity"));
}

proa_status proa_llm_read_sentence(proa_llm_model *s, const proa_json *config, proa_err *err)
{
    read_activation(s, config);
    PROA_TRY(proa_sentence_modules_read(&s->modules, proa_engine_files(s->engine), s->info.hidden, &s->arena,
                                        err));
    if (s->modules.pooling != PROA_POOLING_DEFAULT) return PROA_OK;
    if (proa_engine_embeds_first(s->engine)) s->modules.pooling = PROA_POOLING_CLS;
    if (proa_engine_embeds_last(s->engine)) s->modules.pooling = PROA_POOLING_LAST;
    return PROA_OK;
}
