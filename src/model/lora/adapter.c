/* SPDX-License-Identifier: Apache-2.0
 * adapter.c - low-rank adapters from files: PEFT's adapter_config.json and its tensors, into an image of the layout of
 * lora.c. Tensors are found by the same name map as the model's own: module "model.layers.0.self_attn.q_proj" of the
 * tensor that a row names has "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" [r,K] and
 * "....lora_B.weight" [N,r]. Rows of B are taken in the order of the row's load action, as those of the matrix are.
 * Folders of PEFT are opened here, those of prompt tables too. */
#include "model/lora/lora.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const proa_model *m;
    const proa_weights *tensors;
    const proa_json *config;
    const char *what;
    bool *used; /* [tensors] */
    int64_t rank;
    double alpha;
    bool root; /* use_rslora: scale = alpha / sqrt(r) */
    char *image;
    proa_err *err;
} reader;

/* ---- adapter_config.json ---- */

/* Keys whose effect is not had here: refused unless they are absent, null, false, "none" or empty. */
static proa_status refuse_features(const proa_json *config, proa_err *err)
{
    static const struct {
        const char *key, *why;
    } features[] = {
        {"use_dora", "weight-decomposed adapters (DoRA) are not supported"},
        {"bias", "trained biases are not supported"},
        {"lora_bias", "biases of adapters are not supported"},
        {"modules_to_save", "modules saved whole are not supported"},
        {"trainable_token_indices", "trained tokens are not supported"},
        {"layer_replication", "replicated layers are not supported"},
        {"target_parameters", "adapters of parameters (experts) are not supported"},
        {"alora_invocation_tokens", "activated adapters (aLoRA) are not supported"},
        {"use_qalora", "quantisation-aware adapters (QALoRA) are not supported"},
        {"corda_config", "adapters that change the model's own weights (CorDA) are not supported"},
    };
    for (size_t i = 0; i < PROA_COUNT(features); i++) {
        const proa_json *v = proa_json_get(config, features[i].key);
        proa_json_type kind = proa_json_kind(v);
        bool is_list = kind == PROA_JSON_ARRAY || kind == PROA_JSON_OBJECT;
        if (kind == PROA_JSON_NULL || (kind == PROA_JSON_BOOL && !proa_json_bool(v))) continue;
        if (proa_str_is(proa_json_str(v), "none") || (is_list && proa_json_len(v) == 0)) continue;
        return PROA_FAIL(err, UNSUPPORTED, "'%s': %s", features[i].key, features[i].why);
    }
    return PROA_OK;
}

/* Some ways to begin the training change the model's own weights: then the adapter fits the changed ones only. */
static proa_status check_start(const proa_json *config, proa_err *err)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", "mica"};
    const proa_json *v = proa_json_get(config, "init_lora_weights");
    proa_str name = proa_json_str(v);
    if (proa_json_kind(v) != PROA_JSON_STRING) return PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(fine); i++)
        if (proa_str_is(name, fine[i])) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "'init_lora_weights' is '%.*s': the model's own weights may have been changed with it",
                     (int)proa_min64((int64_t)name.len, 40), name.ptr);
}

static proa_status check_patterns(const proa_json *config, const char *key, double least, double most,
                                  proa_err *err)
{
    const proa_json *patterns = proa_json_get(config, key);
    if (!patterns) return PROA_OK;
    if (proa_json_kind(patterns) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "'%s' must be an object", key);
    if (proa_json_len(patterns) > PROA_LORA_PATTERNS_MAX)
        return PROA_FAIL(err, LIMIT, "'%s' has more than %d patterns", key, PROA_LORA_PATTERNS_MAX);
    for (proa_json_iter it = proa_json_begin(patterns); proa_json_next(&it);) {
        double v = proa_json_double(it.value);
        proa_json_type kind = proa_json_kind(it.value);
        for (size_t i = 0; i < it.key.len; i++)
            if (strchr("*+?()[]{}|$", it.key.ptr[i]))
                return PROA_FAIL(err, UNSUPPORTED,
                                 "'%s': '%.*s' is a regular expression, only names are supported", key,
                                 (int)proa_min64((int64_t)it.key.len, 80), it.key.ptr);
        if ((kind != PROA_JSON_INT && kind != PROA_JSON_DOUBLE) || !(v >= least && v <= most))
            return PROA_FAIL(err, INVALID, "'%s': '%.*s' must be %g to %g", key,
                             (int)proa_min64((int64_t)it.key.len, 80), it.key.ptr, least, most);
    }
    return PROA_OK;
}

static proa_status check_config(const proa_json *config, int64_t *rank, double *alpha, bool *root, proa_err *err)
{
    proa_str type = {"", 0};
    *rank = 8, *alpha = 8, *root = false;
    if (proa_json_kind(config) != PROA_JSON_OBJECT) return PROA_FAIL(err, INVALID, "it is not an object");
    PROA_TRY(proa_json_get_str(&type, config, "peft_type", err));
    if (!proa_str_is(type, "LORA"))
        return PROA_FAIL(
            err, UNSUPPORTED,
            "'peft_type' is '%.*s'; LORA, PROMPT_TUNING, P_TUNING and PREFIX_TUNING are supported",
            (int)proa_min64((int64_t)type.len, 40), type.ptr);
    PROA_TRY(refuse_features(config, err));
    PROA_TRY(check_start(config, err));
    PROA_TRY(proa_json_get_int(rank, config, "r", 1, PROA_LORA_RANK_MAX, err));
    PROA_TRY(proa_json_get_double(alpha, config, "lora_alpha", 0, 1e6, err));
    PROA_TRY(proa_json_get_bool(root, config, "use_rslora", err));
    PROA_TRY(check_patterns(config, "rank_pattern", 1, PROA_LORA_RANK_MAX, err));
    return check_patterns(config, "alpha_pattern", 0, 1e6, err);
}

/* Whether a key names the module: the end of its path from a dot on, or with "^" all of it. */
static bool names_module(proa_str key, const char *module)
{
    char plain[PROA_TENSOR_NAME_MAX];
    size_t len = 0, n = strlen(module);
    bool whole = key.len && key.ptr[0] == '^';
    for (size_t i = whole; i < key.len && len + 1 < sizeof plain; i++)
        if (key.ptr[i] != '\\') plain[len++] = key.ptr[i];
    if (len > n || memcmp(module + n - len, plain, len) != 0) return false;
    return len == n || (!whole && module[n - len - 1] == '.');
}

/* The value of the first pattern that names the module, else the default. */
static double pattern_value(const proa_json *config, const char *key, const char *module, double fallback)
{
    const proa_json *patterns = proa_json_get(config, key);
    for (proa_json_iter it = proa_json_begin(patterns); patterns && proa_json_next(&it);)
        if (names_module(it.key, module)) return proa_json_double(it.value);
    return fallback;
}

/* ---- tensors by the names of the model's own ---- */

static const proa_weights_tensor *find_exact(const reader *r, const char *module, char which)
{
    char name[PROA_TENSOR_NAME_MAX + 64];
    snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", module, which);
    const proa_weights_tensor *t = proa_weights_find(r->tensors, name);
    if (t) return t;
    snprintf(name, sizeof name, "base_model.model.%s.lora_%c.default.weight", module, which);
    return proa_weights_find(r->tensors, name);
}

/* By its name, with another beginning, or without a prefix or with one, as checkpoints of the model may have it. */
static const proa_weights_tensor *find_tensor(const reader *r, const char *module, char which)
{
    char other[PROA_TENSOR_NAME_MAX];
    const proa_arch *arch = r->m->arch;
    const proa_weights_tensor *t = find_exact(r, module, which);
    for (const char *const *a = arch->prefix_aliases; !t && a && *a; a += 2) {
        if (!proa_str_starts(proa_str_c(module), proa_str_c(a[0]))) continue;
        snprintf(other, sizeof other, "%s%s", a[1], module + strlen(a[0]));
        t = find_exact(r, other, which);
    }
    for (const char *const *p = arch->prefixes; !t && p && *p; p++) {
        bool has = proa_str_starts(proa_str_c(module), proa_str_c(*p));
        snprintf(other, sizeof other, "%s%s", has ? "" : *p, module + (has ? strlen(*p) : 0));
        t = find_exact(r, other, which);
    }
    return t;
}

/* The module of a row of the name map: its name with the layer, without ".weight". */
static void module_name(char out[PROA_TENSOR_NAME_MAX], const proa_name *row, int64_t layer)
{
    const char *at = strstr(row->name, "%d");
    if (at)
        snprintf(out, PROA_TENSOR_NAME_MAX, "%.*s%lld%s", (int)(at - row->name), row->name, (long long)layer,
                 at + 2);
    else snprintf(out, PROA_TENSOR_NAME_MAX, "%s", row->name);
    size_t len = strlen(out), end = strlen(".weight");
    if (len > end && strcmp(out + len - end, ".weight") == 0) out[len - end] = 0;
}

static proa_status check_tensor(const reader *r, const proa_weights_tensor *t, int64_t rows, int64_t cols)
{
    const proa_view *v = &t->source.view;
    bool known = v->dtype == PROA_DTYPE_F32 || v->dtype == PROA_DTYPE_F16 || v->dtype == PROA_DTYPE_BF16;
    if (!proa_tensor_source_is_plain(&t->source) || !known)
        return PROA_FAIL(r->err, UNSUPPORTED, "tensor '%s' is %s; f32, f16 and bf16 are supported", t->name,
                         proa_dtype_name(v->dtype));
    if (v->rank == 2 && v->shape[0] == rows && v->shape[1] == cols) return PROA_OK;
    char shape[64];
    return PROA_FAIL(r->err, INVALID, "tensor '%s' has shape %s, must be [%lld, %lld]", t->name,
                     proa_shape_text(shape, v->rank, v->shape), (long long)rows, (long long)cols);
}

/* ---- the image ---- */

/* A [rank,K] of a piece. */
static void put_a(const reader *r, const proa_lora *l, int32_t piece, const proa_tensor_source *a)
{
    float *row = proa_malloc((size_t)l->K * sizeof *row);
    for (int32_t j = 0; j < (int32_t)proa_tensor_source_rows(a); j++) {
        proa_tensor_source_read(a, j, 0, l->K, row);
        proa_lora_put_a(r->image, l, piece, j, row);
    }
    free(row);
}

/* Rows [0, rows) of a source of B to the columns of the piece from n on. */
static void put_b_rows(const reader *r, const proa_lora *l, int32_t piece, int64_t n, const proa_tensor_source *b)
{
    int32_t rank = (int32_t)b->view.shape[1];
    float row[PROA_LORA_RANK_MAX];
    for (int64_t i = 0; i < proa_tensor_source_rows(b); i++) {
        proa_tensor_source_read(b, i, 0, rank, row);
        proa_lora_put_b(r->image, l, piece, n + i, 0, rank, row);
    }
}

static void put_b(const reader *r, const proa_lora *l, int32_t piece, const proa_name *row, proa_tensor_source b)
{
    proa_row_order order[PROA_LOAD_ORDERS_MAX];
    int64_t n = 0;
    int orders = proa_load_orders(order, row->load, &r->m->lora.config, b.view.shape[0]);
    if (orders == 0) put_b_rows(r, l, piece, 0, &b);
    for (int i = 0; i < orders; i++) {
        b.order = order[i];
        put_b_rows(r, l, piece, n, &b);
        n += proa_tensor_source_rows(&b);
    }
}

/* One piece of a matrix, if the adapter changes it. */
static proa_status read_piece(reader *r, const proa_lora *l, int32_t piece, const proa_name *row, int64_t layer)
{
    char module[PROA_TENSOR_NAME_MAX];
    module_name(module, row, layer);
    const proa_weights_tensor *a = find_tensor(r, module, 'A'), *b = find_tensor(r, module, 'B');
    if (!a && !b) return PROA_OK;
    if (!a || !b)
        return PROA_FAIL(r->err, INVALID, "module '%s' has lora_%c and no lora_%c", module, a ? 'A' : 'B',
                         a ? 'B' : 'A');
    int64_t rank = (int64_t)pattern_value(r->config, "rank_pattern", module, (double)r->rank);
    double alpha = pattern_value(r->config, "alpha_pattern", module, r->alpha);
    if (rank > l->rank)
        return PROA_FAIL(r->err, LIMIT,
                         "module '%s' has rank %lld, adapters of this model have at most %d (--lora-rank)",
                         module, (long long)rank, l->rank);
    PROA_TRY(check_tensor(r, a, rank, l->K));
    PROA_TRY(check_tensor(r, b, l->end[piece] - proa_lora_first(l, piece), rank));
    r->used[a - proa_weights_at(r->tensors, 0)] = r->used[b - proa_weights_at(r->tensors, 0)] = true;
    proa_lora_use *use = (proa_lora_use *)(void *)(r->image + l->use) + piece;
    *use = (proa_lora_use){(float)(alpha / (r->root ? sqrt((double)rank) : (double)rank)), (int32_t)rank};
    put_a(r, l, piece, &a->source);
    put_b(r, l, piece, row, b->source);
    return PROA_OK;
}

static proa_status read_matrices(reader *r)
{
    const proa_params *p = &r->m->params[proa_lora_stack_id(r->m)];
    for (int64_t i = 0; i < p->layers * PROA_SLOT_COUNT; i++) {
        const proa_lora_matrix *w = r->m->lora.matrix[i];
        for (int32_t k = 0; w && k < w->layout.pieces; k++)
            PROA_TRY(read_piece(r, &w->layout, k, w->piece[k], i / PROA_SLOT_COUNT));
    }
    return PROA_OK;
}

/* A tensor that no matrix takes would change the output, so it is refused. */
static proa_status check_extra(const reader *r)
{
    int64_t used = 0, count = proa_weights_count(r->tensors);
    for (int64_t i = 0; i < count; i++) {
        used += r->used[i];
        if (!r->used[i])
            return PROA_FAIL(
                r->err, UNSUPPORTED,
                "tensor '%s' is of no matrix of a %s that an adapter can change (those of its layers, but "
                "for experts)",
                proa_weights_at(r->tensors, i)->name, r->m->arch->name);
    }
    return used ? PROA_OK : PROA_FAIL(r->err, INVALID, "it has no tensors");
}

static proa_status read_image(reader *r)
{
    PROA_TRY(check_config(r->config, &r->rank, &r->alpha, &r->root, r->err));
    PROA_TRY(read_matrices(r));
    return check_extra(r);
}

proa_status proa_adapter_read_tensors(char **image, const proa_model *m, const proa_weights *tensors,
                                      const proa_json *config, const char *what, proa_err *err)
{
    reader r = {.m = m, .tensors = tensors, .config = config, .what = what, .err = err};
    *image = NULL;
    if (m->arch->kind == PROA_KIND_ENCODER_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "%s: low-rank adapters of a %s: only decoders and encoders take them",
                         what, m->arch->name);
    if (!m->lora.image_bytes)
        return PROA_FAIL(err, UNSUPPORTED, "%s: the model was opened without adapters (--lora, --lora-slots)",
                         what);
    r.used = proa_calloc((size_t)proa_max64(proa_weights_count(tensors), 1), sizeof *r.used);
    r.image = proa_pages_alloc(m->lora.image_bytes);
    proa_status status = r.image ? read_image(&r)
                                 : PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB",
                                             (double)m->lora.image_bytes / 1e6);
    free(r.used);
    if (status == PROA_OK) *image = r.image;
    else proa_err_prefix(err, "%s", what), proa_adapter_free(m, r.image);
    return status;
}

void proa_adapter_free(const proa_model *m, char *image)
{
    if (image) proa_pages_free(image, m->lora.image_bytes);
}

/* ---- folders ---- */

static proa_status read_config(proa_json **out, const char *path, proa_err *err)
{
    proa_files folder = proa_files_of(path);
    if (!proa_dir_exists(path))
        return PROA_FAIL(err, NOT_FOUND, "cannot open adapter '%s': no such folder", path);
    if (!proa_files_has(&folder, "adapter_config.json"))
        return PROA_FAIL(err, NOT_FOUND, "'%s' is no adapter: it has no adapter_config.json", path);
    return proa_files_json(out, &folder, "adapter_config.json", PROA_CONFIG_BYTES_MAX, err);
}

static proa_status open_tensors(proa_weights **out, const char *path, proa_err *err)
{
    static const char *const names[] = {"adapter_model.safetensors", "adapter_model.bin"};
    char file[PROA_PATH_MAX];
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        int n = snprintf(file, sizeof file, "%s/%s", path, names[i]);
        if (n > 0 && n < (int)sizeof file && proa_file_exists(file)) return proa_weights_open(out, file, err);
    }
    return PROA_FAIL(err, NOT_FOUND, "'%s' has neither %s nor %s", path, names[0], names[1]);
}

static bool is_prompt_table(const proa_json *config)
{
    return proa_prompt_table_is_type(proa_json_str(proa_json_get(config, "peft_type")));
}

proa_status proa_adapter_read(char **image, proa_prompt_table **table, const proa_model *m, const char *path,
                              proa_err *err)
{
    proa_json *config = NULL;
    proa_weights *tensors = NULL;
    *image = NULL, *table = NULL;
    proa_status status = read_config(&config, path, err);
    if (status == PROA_OK) status = open_tensors(&tensors, path, err);
    if (status == PROA_OK)
        status = is_prompt_table(config) ? proa_prompt_table_read(table, m, tensors, config, path, err)
                                         : proa_adapter_read_tensors(image, m, tensors, config, path, err);
    if (status == PROA_OK) status = proa_weights_check(tensors, err);
    if (status != PROA_OK) {
        proa_adapter_free(m, *image), proa_prompt_table_free(*table);
        *image = NULL, *table = NULL;
    }
    proa_weights_close(tensors);
    proa_json_free(config);
    return status;
}

proa_status proa_adapter_rank(int64_t *rank, const char *path, proa_err *err)
{
    proa_json *config = NULL;
    double alpha;
    bool root;
    PROA_TRY(read_config(&config, path, err));
    *rank = 0;
    if (is_prompt_table(config)) return proa_json_free(config), PROA_OK;
    proa_status status = check_config(config, rank, &alpha, &root, err);
    const proa_json *patterns = proa_json_get(config, "rank_pattern");
    for (proa_json_iter it = proa_json_begin(patterns); status == PROA_OK && patterns && proa_json_next(&it);)
        *rank = proa_max64(*rank, (int64_t)proa_json_double(it.value));
    if (status != PROA_OK) proa_err_prefix(err, "%s/adapter_config.json", path);
    proa_json_free(config);
    return status;
}

/* ---- random numbers, for measurements ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (z ^ (z >> 27)) >> 11;
}

static void put_random(char *to, proa_dtype dtype, int64_t count, uint64_t *state)
{
    float block[1024];
    for (int64_t i = 0; i < count; i += (int64_t)PROA_COUNT(block)) {
        int64_t n = proa_min64((int64_t)PROA_COUNT(block), count - i);
        for (int64_t k = 0; k < n; k++)
            block[k] = ((float)(next_random(state) & 0xffff) / 32768.0f - 1.0f) * 0.02f;
        proa_from_f32(to + i * proa_dtype_bytes(dtype), dtype, block, n);
    }
}

/* Whether the last part of the module's name is in the list. */
static bool is_listed(const char *modules, const proa_name *row)
{
    char module[PROA_TENSOR_NAME_MAX];
    module_name(module, row, 0);
    const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
    size_t n = strlen(name);
    for (const char *at = modules; (at = strstr(at, name)); at += n)
        if ((at == modules || at[-1] == ',') && (at[n] == ',' || !at[n])) return true;
    return false;
}

char *proa_adapter_random(const proa_model *m, const char *modules, int32_t rank, uint64_t seed)
{
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
    char *image = proa_pages_alloc(m->lora.image_bytes);
    for (int64_t i = 0; image && i < p->layers * PROA_SLOT_COUNT; i++) {
        const proa_lora_matrix *w = m->lora.matrix[i];
        if (!w) continue;
        const proa_lora *l = &w->layout;
        int64_t panels = 0;
        for (int32_t k = 0; k < l->pieces; panels += proa_lora_panels(l, k), k++) {
            bool all = !modules || !*modules;
            proa_lora_use use = {0.01f, all || is_listed(modules, w->piece[k]) ? rank : 0};
            ((proa_lora_use *)(void *)(image + l->use))[k] = use;
        }
        put_random(image + l->a, l->dtype, l->K * l->pieces * l->rank, &seed);
        put_random(image + l->b, l->dtype, panels * l->rank * PROA_LORA_PANEL, &seed);
    }
    return image;
}
