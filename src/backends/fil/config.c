/* SPDX-License-Identifier: Apache-2.0
 * config.c - reads the configuration of a fil model, completes it, and checks its tensors against the
 * forest. */
#include "backends/fil/fil.h"

#include "backends/tensors/io_table.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/config/config.h"
#include <math.h>
#include <string.h>

/* the value of Triton's example; a row of 100 features is 400 bytes */
#define BATCH_USUAL 32768

/* ---- parameters ---- */

/* Values of model_type and the file that each expects. Triton's default is the first: the old binary
 * format, which XGBoost has dropped. The format of such a file is detected. */
static const struct {
    const char *word, *file;
    proa_forest_format format;
} kinds[] = {
    {"xgboost", "xgboost.model", PROA_FOREST_AUTO},
    {"xgboost_json", "xgboost.json", PROA_FOREST_XGBOOST_JSON},
    {"xgboost_ubj", "xgboost.ubj", PROA_FOREST_XGBOOST_UBJ},
    {"lightgbm", "model.txt", PROA_FOREST_LIGHTGBM},
    {"treelite_checkpoint", "checkpoint.tl", PROA_FOREST_TREELITE},
};

static proa_status read_bool(bool *out, const Inference__ModelConfig *c, const char *key, proa_err *err)
{
    const char *text = proa_config_parameter(c, key);
    if (!text) return PROA_OK;
    *out = strcmp(text, "true") == 0;
    if (*out || strcmp(text, "false") == 0) return PROA_OK;
    return PROA_FAIL(err, INTERNAL, "Expected 'true' or 'false' for parameter '%s', got: '%s'", key, text);
}

/* A text that is no number counts as absent, as in Triton. */
static int64_t read_int(const Inference__ModelConfig *c, const char *key, int64_t usual)
{
    const char *text = proa_config_parameter(c, key);
    char *end = NULL;
    long long value = text ? strtoll(text, &end, 10) : 0;
    return text && end != text ? value : usual;
}

static proa_status read_threshold(float *out, const Inference__ModelConfig *c, proa_err *err)
{
    const char *text = proa_config_parameter(c, "threshold");
    char *end = NULL;
    *out = 0.5f;
    if (!text) return PROA_OK;
    *out = strtof(text, &end);
    if (end == text || !isfinite(*out)) return PROA_FAIL(err, INVALID, "Bad input for parameter threshold");
    return PROA_OK;
}

static void warn_of_removed(const Inference__ModelConfig *c)
{
    static const struct {
        const char *old, *now;
    } removed[] = {{"algo", "layout"},
                   {"threads_per_tree", "chunk_size"},
                   {"output_class", "is_classifier"},
                   {"storage_type", NULL},
                   {"blocks_per_sm", NULL}};
    for (size_t i = 0; i < PROA_COUNT(removed); i++) {
        if (!proa_config_parameter(c, removed[i].old)) continue;
        PROA_LOG(WARNING, "The `%s` parameter has been removed in 25.09 release.%s%s%s", removed[i].old,
                 removed[i].now ? " Use `" : "", removed[i].now ? removed[i].now : "",
                 removed[i].now ? "` instead." : "");
    }
    if (proa_config_parameter(c, "use_experimental_optimizations"))
        PROA_LOG(
            WARNING,
            "parameter use_experimental_optimizations has no effect: one way of computing is the fastest");
}

/* is_classifier, or its older name, of which only true and false count. */
static proa_status read_is_classifier(bool *out, const Inference__ModelConfig *c, proa_err *err)
{
    const char *old = proa_config_parameter(c, "output_class");
    bool is_true = old && strcmp(old, "true") == 0;
    *out = is_true;
    if (is_true || (old && strcmp(old, "false") == 0)) return PROA_OK;
    if (!proa_config_parameter(c, "is_classifier"))
        return PROA_FAIL(err, INVALID, "Required parameter is_classifier not found in config");
    return read_bool(out, c, "is_classifier", err);
}

static proa_status read_kind(proa_fil_settings *s, const Inference__ModelConfig *c, proa_err *err)
{
    const char *word = proa_config_parameter(c, "model_type");
    for (size_t i = 0; i < PROA_COUNT(kinds); i++) {
        if (word && strcmp(kinds[i].word, word) != 0) continue;
        s->format = kinds[i].format;
        s->file = c->default_model_filename[0] ? c->default_model_filename : kinds[i].file;
        return PROA_OK;
    }
    return PROA_FAIL(err, UNSUPPORTED, "%s not recognized as a valid serialization format.", word);
}

proa_status proa_fil_read(proa_fil_settings *s, const Inference__ModelConfig *config, bool warn, proa_err *err)
{
    bool ignored;
    *s = (proa_fil_settings){.threshold = 0.5f};
    if (warn) warn_of_removed(config);
    PROA_TRY(read_bool(&s->predict_proba, config, "predict_proba", err));
    PROA_TRY(read_kind(s, config, err));
    PROA_TRY(read_bool(&ignored, config, "xgboost_allow_unknown_field", err));
    PROA_TRY(read_is_classifier(&s->is_classifier, config, err));
    if (s->is_classifier) PROA_TRY(read_threshold(&s->threshold, config, err));
    PROA_TRY(read_bool(&ignored, config, "use_experimental_optimizations", err));
    int64_t threads = read_int(config, "cpu_nthread", -1);
    s->threads = threads < 1 ? 0 : threads > PROA_THREADS_MAX ? PROA_THREADS_MAX : (int32_t)threads;
    return PROA_OK;
}

/* ---- the forest ---- */

proa_status proa_fil_forest(proa_forest **out, const proa_fil_settings *s, const char *version_path, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_forest *f = NULL;
    PROA_TRY(proa_path_join(path, version_path, s->file, err));
    PROA_TRY(proa_forest_open(&f, path, s->format, err));
    /* As in Triton: scores of many classes are probabilities, whatever the objective is. */
    if (s->predict_proba && f->task == PROA_FOREST_MULTICLASS)
        f->transform = f->leaf_size > 1 ? PROA_FOREST_IDENTITY : PROA_FOREST_SOFTMAX;
    *out = f;
    return PROA_OK;
}

/* ---- tensors ---- */

static proa_fil_answer answer_of(const proa_fil_settings *s, const proa_forest *f, int64_t width)
{
    if (!s->is_classifier) return PROA_FIL_SCORES;
    if (!s->predict_proba) return f->classes > 1 ? PROA_FIL_BEST : PROA_FIL_THRESHOLD;
    return f->outputs == 1 && width == 2 ? PROA_FIL_BOTH : PROA_FIL_SCORES;
}

static int64_t width_of(proa_fil_answer answer, const proa_forest *f)
{
    return answer == PROA_FIL_SCORES ? f->outputs : answer == PROA_FIL_BOTH ? 2 : f->targets;
}

/* Product of the dimensions, with `open` for open ones; saturated. */
static int64_t elements_of(const int64_t *dims, size_t count, int64_t open)
{
    int64_t n = 1;
    for (size_t i = 0; i < count; i++)
        if (__builtin_mul_overflow(n, dims[i] < 0 ? open : dims[i], &n)) return INT64_MAX;
    return n;
}

static void set_output(proa_fil_output *out, const int64_t *dims, size_t count, int64_t width)
{
    int64_t fixed = elements_of(dims, count, 1);
    *out = (proa_fil_output){.width = width, .rank = 1};
    for (size_t i = 0; i < count && out->rank < PROA_SERVE_RANK_MAX; i++) {
        int64_t d = dims[i] < 0 ? width / (fixed ? fixed : 1) : dims[i];
        if (dims[i] != 1) out->shape[out->rank++] = d;
    }
}

static proa_status check_output(const Inference__ModelOutput *o, int64_t width, proa_fil_output *out,
                                proa_err *err)
{
    const int64_t *dims = o->reshape ? o->reshape->shape : o->dims;
    size_t count = o->reshape ? o->reshape->n_shape : o->n_dims, open = 0;
    for (size_t i = 0; i < count; i++) open += dims[i] < 0;
    int64_t fixed = elements_of(dims, count, 1);
    if (o->data_type != INFERENCE__DATA_TYPE__TYPE_FP32)
        return PROA_FAIL(err, INVALID, "output '%s' must be TYPE_FP32", o->name);
    if (open > 1 || fixed < 1 || (open ? width % fixed != 0 : width != fixed))
        return PROA_FAIL(err, INVALID,
                         "output '%s' has %lld elements a row in the configuration, the forest gives %lld",
                         o->name, (long long)fixed, (long long)width);
    set_output(out, dims, count, width);
    return PROA_OK;
}

static proa_status check_input(const Inference__ModelConfig *c, const proa_forest *f, proa_err *err)
{
    const Inference__ModelInput *in = NULL;
    for (size_t i = 0; i < c->n_input && !in; i++)
        if (strcmp(c->input[i]->name, PROA_FIL_INPUT) == 0) in = c->input[i];
    if (!in) return PROA_FAIL(err, INVALID, "the configuration has no input '" PROA_FIL_INPUT "'");
    if (in->data_type != INFERENCE__DATA_TYPE__TYPE_FP32)
        return PROA_FAIL(err, INVALID, "input '" PROA_FIL_INPUT "' must be TYPE_FP32");
    int64_t features = in->reshape ? elements_of(in->reshape->shape, in->reshape->n_shape, f->features)
                                   : elements_of(in->dims, in->n_dims, f->features);
    if (features == f->features) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "input '" PROA_FIL_INPUT "' has %lld features in the configuration, the forest has %d",
                     (long long)features, f->features);
}

proa_status proa_fil_tensors(proa_fil_outputs *to, const Inference__ModelConfig *c,
                             const proa_fil_settings *s, const proa_forest *f, proa_err *err)
{
    const Inference__ModelOutput *out = proa_config_output(c, PROA_FIL_OUTPUT),
                                 *values = proa_config_output(c, PROA_FIL_SHAP);
    if (c->max_batch_size < 1)
        return PROA_FAIL(err, INVALID, "max_batch_size must be greater than 0: rows of the input are a batch");
    PROA_TRY(check_input(c, f, err));
    if (!out) return PROA_FAIL(err, INTERNAL, "No output with name " PROA_FIL_OUTPUT " in configuration.");
    bool is_two = (out->reshape ? elements_of(out->reshape->shape, out->reshape->n_shape, 0)
                                : elements_of(out->dims, out->n_dims, 0)) == 2;
    to->answer = answer_of(s, f, is_two ? 2 : 1);
    PROA_TRY(check_output(out, width_of(to->answer, f), &to->scores, err));
    to->has_shap = values != NULL;
    if (!values) return PROA_OK;
    return check_output(values, (int64_t)f->outputs * (f->features + 1), &to->shap, err);
}

/* ---- what is open ---- */

static void add_parameter(Inference__ModelConfig *c, const char *key, const char *value, proa_arena *arena)
{
    typedef Inference__ModelConfig__ParametersEntry entry;
    entry **list = PROA_ARENA_NEW(arena, entry *, (int64_t)c->n_parameters + 1),
          *e = PROA_ARENA_NEW(arena, entry, 1);
    if (c->n_parameters) memcpy(list, c->parameters, c->n_parameters * sizeof(void *));
    inference__model_config__parameters_entry__init(e);
    e->key = proa_arena_strdup(arena, proa_str_c(key));
    e->value = PROA_ARENA_NEW(arena, Inference__ModelParameter, 1);
    inference__model_parameter__init(e->value);
    e->value->string_value = proa_arena_strdup(arena, proa_str_c(value));
    list[c->n_parameters++] = e;
    c->parameters = list;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PROA_PATH_MAX];
    return name[0] && proa_path_join(path, folder, name, NULL) == PROA_OK && proa_file_exists(path);
}

/* Without model_type: the kind of the first usual file that exists. A placeholder (model.fil, made from the
 * model's name) does not count. */
static void find_kind(Inference__ModelConfig *c, const char *version_path, proa_arena *arena)
{
    if (proa_config_parameter(c, "model_type") || has_file(version_path, c->default_model_filename)) return;
    for (size_t i = PROA_COUNT(kinds); i-- > 0;) {
        if (!has_file(version_path, kinds[i].file)) continue;
        add_parameter(c, "model_type", kinds[i].word, arena);
        c->default_model_filename = proa_arena_strdup(arena, proa_str_c(kinds[i].file));
        return;
    }
}

static void add_tensors(Inference__ModelConfig *c, const proa_fil_settings *s, const proa_forest *f,
                        proa_arena *arena)
{
    const proa_fil_answer answer = answer_of(s, f, 1);
    proa_io_row in[] = {{PROA_FIL_INPUT, INFERENCE__DATA_TYPE__TYPE_FP32, 1, {f->features}, 0}, {.name = NULL}};
    proa_io_row out[] = {{PROA_FIL_OUTPUT, INFERENCE__DATA_TYPE__TYPE_FP32, 1, {width_of(answer, f)}, 0},
                         {.name = NULL}};
    if (answer == PROA_FIL_SCORES && f->targets > 1 && f->classes > 1)
        out[0].rank = 2, out[0].dims[0] = f->targets, out[0].dims[1] = f->classes;
    if (!c->n_input) {
        if (c->max_batch_size == 0) c->max_batch_size = BATCH_USUAL;
        proa_config_inputs(c, in, arena);
    }
    if (!c->n_output) proa_config_outputs(c, out, arena);
}

proa_status proa_fil_complete(Inference__ModelConfig *config, const char *version_path, proa_arena *arena,
                              proa_err *err)
{
    proa_fil_settings s;
    proa_forest *f = NULL;
    if (config->n_input && config->n_output) return PROA_OK;
    find_kind(config, version_path, arena);
    bool open = !proa_config_parameter(config, "is_classifier") &&
                !proa_config_parameter(config, "output_class");
    if (open) add_parameter(config, "is_classifier", "false", arena);
    PROA_TRY(proa_fil_read(&s, config, false, err));
    PROA_TRY(proa_fil_forest(&f, &s, version_path, err));
    s.is_classifier = open ? f->task == PROA_FOREST_BINARY || f->task == PROA_FOREST_MULTICLASS : s.is_classifier;
    if (open && s.is_classifier)
        config->parameters[config->n_parameters - 1]->value->string_value = proa_arena_strdup(
            arena, proa_str_c("true"));
    add_tensors(config, &s, f, arena);
    proa_forest_free(f);
    return PROA_OK;
}
