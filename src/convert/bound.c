/* SPDX-License-Identifier: Apache-2.0
 * bound.c - finds the tensors of a class among the weight slots of a bound model, and reads their rows. */
#include "convert/bound.h"

#include "base/checked.h"
#include "base/log.h"
#include "model/derive.h"
#include <math.h>
#include <string.h>

/* ---- open ---- */

static proa_status read_model_config(proa_bound *t, const proa_files *files, proa_err *err)
{
    char name[PROA_PATH_MAX];
    proa_json *generation = NULL;
    PROA_TRY(proa_files_json(&t->json, files, "config.json", PROA_CONFIG_BYTES_MAX, err));
    if (proa_files_has(files, "generation_config.json"))
        PROA_TRY(proa_files_json(&generation, files, "generation_config.json", PROA_CONFIG_BYTES_MAX, err));
    proa_status status = proa_arch_configure(&t->source, &t->config, t->json, generation, &t->arena, err);
    proa_json_free(generation);
    if (status != PROA_OK) proa_err_prefix(err, "%s", proa_files_name(name, files, "config.json"));
    return status;
}

proa_status proa_bound_open(proa_bound *t, const proa_convert_job *job, proa_err *err)
{
    *t = (proa_bound){.weights = job->weights};
    proa_arena_init(&t->arena);
    proa_status status = read_model_config(t, job->files, err);
    if (status == PROA_OK) status = proa_bind(t->params, t->source, &t->config, t->weights, &t->arena, err);
    if (status != PROA_OK) return proa_bound_close(t), status;
    t->config.experts_apart = false; /* the class' own form */
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        t->found[s] = PROA_ARENA_NEW(&t->arena, int64_t, (t->params[s].layers + 1) * PROA_SLOT_COUNT);
    return PROA_OK;
}

void proa_bound_close(proa_bound *t)
{
    proa_json_free(t->json);
    proa_arena_release(&t->arena);
    t->json = NULL;
}

/* ---- classes ---- */

const proa_arch *proa_bound_class(const char *hf)
{
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++)
        for (const char *const *name = (*row)->hf; *name; name++)
            if (strcmp(*name, hf) == 0) return *row;
    return NULL;
}

/* The next step that applies in the layer; NULL: the program ends. */
static const proa_step *next_step(const proa_step *step, const proa_config *c, int64_t layer)
{
    while (step && step->op != PROA_STEP_END && !proa_step_applies(step, c, layer)) step++;
    return step && step->op != PROA_STEP_END ? step : NULL;
}

/* Flags that change numbers under this configuration. Conditions have been applied, and which steps may run side by
 * side changes nothing. */
static proa_flags meaning_of(const proa_step *step, const proa_config *c)
{
    proa_flags none = PROA_FORK | PROA_JOIN;
    double scale = step->op == PROA_STEP_EMBED ? c->embed_scale : c->logit_scale;
    if (scale == 1) none |= PROA_SCALED | PROA_EXACT;
    if (step->op == PROA_STEP_EMBED) none |= PROA_INPUTS; /* of prompt tables, which no checkpoint holds */
    if (c->residual_scale == 1) none |= PROA_RESIDUAL;
    if (c->logit_cap == 0) none |= PROA_CAPPED;
    return step->flags & (((proa_flags)1 << PROA_CONDITION_SHIFT) - 1) & ~none;
}

static bool same_program(const proa_step *a, const proa_step *b, const proa_config *c, int64_t layer)
{
    for (;; a++, b++) {
        a = next_step(a, c, layer), b = next_step(b, c, layer);
        if (!a || !b) return a == b;
        if (a->op != b->op || a->in != b->in || a->out != b->out || a->w != b->w) return false;
        if (meaning_of(a, c) != meaning_of(b, c)) return false;
    }
}

static bool same_programs(const proa_arch *a, const proa_arch *b, const proa_config *c)
{
    const int64_t layers[PROA_STACK_COUNT] = {c->layers, c->encoder_layers};
    if (a->kind != b->kind || a->norm != b->norm || a->head_rows != b->head_rows || a->outputs != b->outputs)
        return false;
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_stack *x = &a->stacks[s], *y = &b->stacks[s];
        if (x->causal != y->causal || !same_program(x->embed, y->embed, c, PROA_SOME_LAYER) ||
            !same_program(x->after, y->after, c, PROA_SOME_LAYER))
            return false;
        for (int64_t i = 0; i < layers[s]; i++)
            if (!same_program(x->layer, y->layer, c, i)) return false;
    }
    return same_program(a->cross, b->cross, c, PROA_SOME_LAYER) &&
           same_program(a->head, b->head, c, PROA_SOME_LAYER) &&
           same_program(a->pool, b->pool, c, PROA_SOME_LAYER);
}

bool proa_bound_aim(proa_bound *t, const proa_arch *arch)
{
    t->arch = arch;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        memset(t->found[s], 0, (size_t)(t->params[s].layers + 1) * PROA_SLOT_COUNT * sizeof *t->found[s]);
    return arch == t->source || same_programs(arch, t->source, &t->config);
}

/* ---- names ---- */

static bool has_layer(const proa_name *row)
{
    return strstr(row->name, "%d") != NULL;
}

/* Whether the row adds rows to its slot in that layer. */
static bool row_applies(const proa_bound *t, const proa_name *row, int64_t layer)
{
    return !(row->flags & PROA_UNUSED) &&
           proa_name_applies(row, &t->config, has_layer(row) ? layer : PROA_SOME_LAYER);
}

/* Whether a beginning and a rest make the name. */
static bool is_joined(const char *name, const char *beginning, const char *rest)
{
    size_t n = strlen(beginning);
    return strncmp(name, beginning, n) == 0 && strcmp(name + n, rest) == 0;
}

/* Whether a checkpoint's tensor of that name is the row's: some leave a prefix out, or have another one. */
static bool is_name_of(const proa_arch *arch, const proa_name *row, const char *name)
{
    proa_str own = proa_str_c(row->name);
    if (strcmp(row->name, name) == 0) return true;
    for (const char *const *p = arch->prefixes; p && *p; p++)
        if (proa_str_starts(own, proa_str_c(*p)) && strcmp(row->name + strlen(*p), name) == 0) return true;
    for (const char *const *a = arch->prefix_aliases; a && *a; a += 2)
        if (proa_str_starts(own, proa_str_c(a[0])) && is_joined(name, a[1], row->name + strlen(a[0])))
            return true;
    return false;
}

/* The first row of that name in the layer; filled: the same with the layer's number (T5's position biases are of layer
 * 0 alone). */
static const proa_name *find_row(const proa_bound *t, const char *name, const char *filled, int64_t layer)
{
    for (const proa_name *row = t->arch->names; row->name; row++) {
        if (!row_applies(t, row, layer)) continue;
        if (is_name_of(t->arch, row, name) || is_name_of(t->arch, row, filled)) return row;
    }
    return NULL;
}

static void fill_layer(char out[PROA_TENSOR_NAME_MAX + 1], const char *name, int64_t layer)
{
    const char *mark = strstr(name, "%d");
    if (!mark) snprintf(out, PROA_TENSOR_NAME_MAX + 1, "%s", name);
    else
        snprintf(out, PROA_TENSOR_NAME_MAX + 1, "%.*s%lld%s", (int)(mark - name), name, (long long)layer,
                 mark + 2);
}

/* Rows that a row of the map gives its slot: those of one expert, those of all heads. */
static int64_t rows_of(const proa_name *row, const proa_config *c, int64_t layer)
{
    int64_t rows = proa_dim_in_layer(c, row->rows, has_layer(row) ? layer : PROA_SOME_LAYER);
    if (row->flags & (PROA_PER_HEAD | PROA_PER_KV_HEAD)) rows *= proa_name_copies(row, c);
    return rows;
}

/* The first row of the slot that the class' row takes. Returns how many rows of the slot the class knows of. */
static int64_t place_rows(const proa_bound *t, const proa_name *row, int64_t layer, int64_t *first)
{
    int64_t all = 0;
    for (const proa_name *other = t->arch->names; other->name; other++) {
        if (other->stack != row->stack || other->slot != row->slot || !row_applies(t, other, layer)) continue;
        if (has_layer(other) != has_layer(row)) continue;
        if (other == row) *first = all;
        all += rows_of(other, &t->config, layer);
    }
    return all;
}

/* Rows of the slot that the row's tensor makes a second time (keys that are values). */
static int64_t rows_again(const proa_bound *t, const proa_name *row, int64_t layer)
{
    int64_t rows = 0;
    for (const proa_name *other = row + 1; other->name; other++)
        if (other->slot == row->slot && other->flags & PROA_SHARED && strcmp(other->name, row->name) == 0 &&
            row_applies(t, other, layer))
            rows += rows_of(other, &t->config, layer);
    return rows;
}

/* Rows before that of position 0, which the model's table of positions has and the class has not. */
static int64_t rows_before(const proa_bound *t, const proa_name *row)
{
    return row->slot == PROA_SLOT_POSITIONS && row->rows == PROA_DIM_CONTEXT ? t->config.position_offset : 0;
}

/* The part of a tensor that is by heads in several slots: rows of the same name, one for each. NULL: it has fewer. */
static const proa_name *row_of_part(const proa_name *row, int part)
{
    const proa_name *other = row;
    while (part > 0 && (++other)->name)
        if (strcmp(other->name, row->name) == 0 && other->slot != row->slot) part--;
    return other->name ? other : NULL;
}

/* Rows of a tensor before a part of it. Parts are equal, but for what a recurrent layer makes of its input: what is
 * convolved, then gates. */
static int64_t rows_before_part(const proa_config *c, const proa_name *row, int64_t rows, int part, int parts)
{
    if (row->rows == PROA_DIM_MIX && parts == 2 && part == 1) return proa_dim_size(c, PROA_DIM_CONVOLVED);
    return rows * part / parts;
}

bool proa_bound_find(proa_bound *t, const char *name, int64_t layer, int part, int parts, proa_bound_tensor *out)
{
    char filled[PROA_TENSOR_NAME_MAX + 1];
    fill_layer(filled, name, layer);
    const proa_name *row = find_row(t, name, filled, layer);
    if (row && row->flags & PROA_OF_HEADS) row = row_of_part(row, part), part = 0, parts = 1;
    if (!row || !row_applies(t, row, layer) || layer >= t->params[row->stack].layers) return false;
    const proa_params *stack = &t->params[row->stack];
    int64_t at = has_layer(row) ? layer : stack->layers, first = 0, before = rows_before(t, row);
    const proa_param *param = proa_params_at(stack, at, row->slot);
    if (param->parts == 0 || place_rows(t, row, layer, &first) + before != param->rows) return false;
    int64_t all = rows_of(row, &t->config, layer), from = rows_before_part(&t->config, row, all, part, parts);
    int64_t rows = rows_before_part(&t->config, row, all, part + 1, parts) - from;
    *out = (proa_bound_tensor){.param = param, .name = row, .rows = rows, .experts = param->experts};
    out->first = first + before + from;
    out->cols = row->role == PROA_ROLE_VECTOR ? 0 : param->cols;
    t->found[row->stack][at * PROA_SLOT_COUNT + row->slot] += rows + before + rows_again(t, row, layer);
    return true;
}

/* ---- what is left ---- */

/* Whether another slot that was looked up whole is made of the same stored tensor: a tied head, a shared embedding. */
static bool is_found_elsewhere(const proa_bound *t, const proa_param *param)
{
    const proa_weights_tensor *tensor = param->part[0].tensor;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int64_t i = 0; i < (t->params[s].layers + 1) * PROA_SLOT_COUNT; i++) {
            const proa_param *p = &t->params[s].param[i];
            if (p == param || p->parts == 0 || t->found[s][i] < p->rows) continue;
            if (p->part[0].tensor == tensor) return true;
        }
    return false;
}

/* Numbers that no checkpoint has: norms without weights, fixed decays. Positions are written where a format has a place
 * for them. */
static bool is_made(const proa_param *p)
{
    proa_encoding encoding = p->part[0].source.encoding;
    return encoding == PROA_ENCODING_ONES || encoding == PROA_ENCODING_ZEROS || encoding == PROA_ENCODING_MADE;
}

const char *proa_bound_left(const proa_bound *t)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int64_t i = 0; i < (t->params[s].layers + 1) * PROA_SLOT_COUNT; i++) {
            const proa_param *p = &t->params[s].param[i];
            if (p->parts == 0 || t->found[s][i] >= p->rows) continue;
            if (is_made(p)) continue;
            if (!is_found_elsewhere(t, p)) return p->part[0].tensor->name;
        }
    return NULL;
}

/* ---- numbers ---- */

const proa_weight_part *proa_bound_part(const proa_bound_tensor *t, int64_t expert, int64_t row, int64_t *in_part)
{
    const proa_param *p = t->param;
    int64_t each = p->parts / proa_max64(p->experts, 1), at = t->first + row;
    for (int64_t i = expert * each; i < (expert + 1) * each; i++) {
        int64_t rows = proa_tensor_source_rows(&p->part[i].source);
        if (at < rows) return *in_part = at, &p->part[i];
        at -= rows;
    }
    PROA_ASSERT(!"a row of no part");
    return NULL;
}

/* Divides by the Euclidean norm, as the loader does where the row of the map says so. */
static void normalise_row(float *row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)row[i] * (double)row[i];
    float factor = (float)(1 / fmax(sqrt(sum), 1e-12));
    for (int64_t i = 0; i < n; i++) row[i] *= factor;
}

void proa_bound_read_part(const proa_bound_tensor *t, int64_t expert, int64_t row, int64_t col, int64_t n,
                          float *out)
{
    int64_t at;
    const proa_weight_part *part = proa_bound_part(t, expert, row, &at);
    PROA_ASSERT(!part->normalised || n == t->cols);
    proa_tensor_source_read(&part->source, at, col, n, out);
    if (part->normalised) normalise_row(out, n);
}

void proa_bound_read(const proa_bound_tensor *t, int64_t expert, int64_t row, float *out)
{
    if (t->cols) proa_bound_read_part(t, expert, row, 0, t->cols, out);
    for (int64_t i = 0; t->cols == 0 && i < t->rows; i++) proa_bound_read_part(t, expert, i, 0, 1, out + i);
}

/* ---- configurations ---- */

/* The members of proa_config that change what a model computes, but for those of rotary positions. */
/* clang-format off */
#define SIZES(F) \
    F(hidden) F(layers) F(encoder_layers) F(heads) F(kv_heads) F(head_dim) F(ffn) F(embed) \
    F(narrow) F(ffns) F(bare_pooler) F(input_vocab) F(types) F(tasks) F(boxes) F(head_embed) F(embed_normed) \
    F(mask_id) F(adapter) \
    F(experts) F(expert_ffn) F(shared_ffn) F(q_lora) F(kv_lora) F(qk_nope) F(qk_rope) F(v_dim) F(act) \
    F(index_heads) F(index_dim) F(index_topk) F(index_pairs) \
    F(learned_positions) F(gated) F(qk_norm) F(parallel) F(one_norm) F(post_norm) F(no_final_norm) \
    F(rope_pairs) F(shared_gate) F(rotary_dim) F(rel_buckets) F(rel_distance) F(router.kind) F(router.chosen) \
    F(router.renormalise) F(router.groups) F(prefix_end) F(conv_width) F(head_of_mean) F(head_act) \
    F(query_scale.length) F(query_scale.offset) F(query_scale.smooth) F(bidirectional) F(layer_scaled) \
    F(key_heads) F(value_heads) F(key_dim) F(value_dim) F(conv_taps) F(conv_act) F(recall_groups) \
    F(gate_first) F(recall_plain) F(step_rank) F(recall_sigmoid) F(gates_apart) F(negative_eigen) F(channel_decays) \
    F(gate_rank) F(input_bits) F(ternary_masters) \
    F(layer_input) F(streams) F(laurel) F(k_is_v) F(other_head_dim) F(other_kv_heads)
#define FACTORS(F) \
    F(norm_eps) F(latent_eps) F(mask_keep) F(recall_eps) F(decay_floor) \
    F(attention_scale) F(logit_scale) F(embed_scale) F(residual_scale) F(attention_cap) F(logit_cap) \
    F(qkv_clip) F(stream_scale) F(alibi_max) F(alibi_scale) F(expert_limit) F(expert_offset) \
    F(query_scale.beta) F(params_eps) F(step_min) F(step_max) F(router.scale) F(factors.mix) F(factors.mix_out) \
    F(factors.router) F(factors.layer_project) F(factors.stream_router) F(layer_embed_scale) \
    F(factors.attention_out) F(factors.ffn_up) F(factors.ffn_out) F(factors.parts[0]) F(factors.parts[1]) \
    F(factors.parts[2]) F(factors.parts[3]) F(factors.parts[4])
/* clang-format on */

static proa_status fail_differs(const char *what, const char *member, double is, double read, proa_err *err)
{
    return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that '%s' is %.9g: it would be read as %.9g", what,
                     member, is, read);
}

/* f32 values that were written with 6 or more digits. */
static bool near_to(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static proa_status compare_rope(const proa_rope_params *a, const proa_rope_params *b, int64_t dim,
                                const char *what, proa_err *err)
{
    if (dim == 0) return PROA_OK;
    if ((a->theta > 0) != (b->theta > 0)) return fail_differs(what, "rope_theta", a->theta, b->theta, err);
    if (a->theta == 0) return PROA_OK;
    bool grows = a->kind == PROA_ROPE_DYNAMIC || a->kind == PROA_ROPE_DOUBLED;
    if (grows != (b->kind == PROA_ROPE_DYNAMIC || b->kind == PROA_ROPE_DOUBLED))
        return PROA_FAIL(err, UNSUPPORTED, "%s has no dynamic scaling of rotary positions", what);
    float x[PROA_HEAD_DIM_MAX / 2], y[PROA_HEAD_DIM_MAX / 2];
    for (int longer = 0; longer < 2; longer++) {
        double scale = longer ? a->long_scale : a->scale, read = longer ? b->long_scale : b->scale;
        if (!near_to(scale, read)) return fail_differs(what, "attention_factor", scale, read, err);
        proa_rope_inv_freq(a, dim, longer, x);
        proa_rope_inv_freq(b, dim, longer, y);
        for (int64_t i = 0; i < dim / 2; i++)
            if (!near_to((double)x[i], (double)y[i]))
                return PROA_FAIL(err, UNSUPPORTED,
                                 "%s cannot say that rotary frequency %lld is %.9g: it would be "
                                 "read as %.9g",
                                 what, (long long)i, (double)x[i], (double)y[i]);
    }
    return PROA_OK;
}

/* Thresholds of gates: the format has them as f32. */
static bool same_threshold(const proa_config *a, const proa_config *b, int64_t layer)
{
    bool has = proa_config_has_threshold(a, layer);
    if (has != proa_config_has_threshold(b, layer)) return false;
    return !has || fabs(a->deviations[layer] - b->deviations[layer]) <= 1e-5;
}

static proa_status compare_shapes(const proa_config *a, const proa_config *b, int64_t layer, const char *what,
                                  proa_err *err)
{
    const struct {
        const char *of;
        int64_t is, read;
    } list[] = {
        {"head size", proa_config_head_dim(a, layer), proa_config_head_dim(b, layer)},
        {"key-value heads", proa_config_kv_heads(a, layer), proa_config_kv_heads(b, layer)},
        {"FFN size", proa_config_ffn(a, layer), proa_config_ffn(b, layer)},
        {"source of keys and values", proa_config_kv_source(a, layer), proa_config_kv_source(b, layer)},
    };
    for (size_t i = 0; i < PROA_COUNT(list); i++)
        if (list[i].is != list[i].read)
            return PROA_FAIL(err, UNSUPPORTED,
                             "%s cannot say that of layer %lld the %s is %lld: it would be read as %lld", what,
                             (long long)layer, list[i].of, (long long)list[i].is, (long long)list[i].read);
    if (same_threshold(a, b, layer)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "%s cannot say which gates of layer %lld are left out", what,
                     (long long)layer);
}

static proa_status compare_layers(const proa_config *a, const proa_config *b, const char *what, proa_err *err)
{
    for (int64_t i = 0; i < a->layers; i++) {
        PROA_TRY(compare_shapes(a, b, i, what, err));
        if (proa_config_rotates(a, i) != proa_config_rotates(b, i))
            return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld %s rotary positions", what,
                             (long long)i, proa_config_rotates(a, i) ? "has" : "has no");
        if (proa_config_recurs(a, i) != proa_config_recurs(b, i))
            return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld %s recurrent", what,
                             (long long)i, proa_config_recurs(a, i) ? "is" : "is not");
        if (proa_config_attends(a, i) != proa_config_attends(b, i))
            return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld has %s", what, (long long)i,
                             proa_config_attends(a, i) ? "attention" : "no attention");
        if (proa_config_has_experts(a, i) != proa_config_has_experts(b, i))
            return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld %s experts", what, (long long)i,
                             proa_config_has_experts(a, i) ? "has" : "has no");
        if (proa_config_has_dense(a, i) != proa_config_has_dense(b, i))
            return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld %s dense FFN", what,
                             (long long)i, proa_config_has_dense(a, i) ? "has a" : "has no");
    }
    return PROA_OK;
}

/* Rows that the class expects in a slot under a configuration; those of tensors that may be absent apart. */
static int64_t rows_expected(const proa_bound *t, const proa_config *c, int stack, int64_t layer, int slot,
                             int64_t *optional)
{
    int64_t rows = 0;
    for (const proa_name *row = t->arch->names; row->name; row++) {
        bool of_layer = layer < t->params[stack].layers;
        if (row->flags & PROA_UNUSED || (int)row->stack != stack || (int)row->slot != slot ||
            has_layer(row) != of_layer)
            continue;
        if (!proa_name_applies(row, c, of_layer ? layer : PROA_SOME_LAYER)) continue;
        *(row->flags & PROA_IF(PRESENT) ? optional : &rows) += rows_of(row, c, layer);
    }
    return rows;
}

/* Whether the reader will look for exactly the weights that there are. */
static proa_status compare_weights(const proa_bound *t, const proa_config *read, const char *what, proa_err *err)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int64_t layer = 0; layer <= t->params[s].layers; layer++)
            for (int slot = 0; slot < PROA_SLOT_COUNT; slot++) {
                int64_t optional = 0, rows = rows_expected(t, read, s, layer, slot, &optional);
                const proa_param *p = proa_params_at(&t->params[s], layer, (proa_weight_slot)slot);
                int64_t have = p->parts ? p->rows : 0;
                if ((slot == PROA_SLOT_POSITIONS || slot == PROA_SLOT_LAYER_TOKENS) && have)
                    continue; /* some readers assume a number of positions; a row for each token is written */
                if (have == rows || (optional && have == rows + optional)) continue;
                if (have && is_found_elsewhere(t, p)) continue; /* a head tied by its numbers */
                return PROA_FAIL(
                    err, UNSUPPORTED,
                    "%s cannot say that weight '%s' of layer %lld has %lld rows: %lld would be expected", what,
                    proa_slot_name((proa_weight_slot)slot), (long long)layer, (long long)have, (long long)rows);
            }
    return PROA_OK;
}

/* Windows. Those that no layer would have are only reported: up to the window's length nothing changes. An encoder's
 * are so short that most inputs are longer. */
static proa_status compare_windows(const proa_config *a, const proa_config *b, const char *what, proa_err *err)
{
    int64_t layers = a->layers + a->encoder_layers, differs = -1, window = 0;
    bool none = true;
    for (int64_t i = layers - 1; i >= 0; i--) {
        bool decoder = i < a->layers;
        int64_t layer = decoder ? i : i - a->layers;
        int32_t is = proa_config_stack_window(a, decoder, layer),
                read = proa_config_stack_window(b, decoder, layer);
        bool chunks = is > 0 && a->window_chunked != b->window_chunked;
        if (chunks || is != read) differs = layer, window = is;
        none &= read == 0;
    }
    if (differs < 0) return PROA_OK;
    if (!none || window == 0 || a->encoder_layers > 0)
        return PROA_FAIL(err, UNSUPPORTED, "%s cannot say that layer %lld has a window of %lld positions",
                         what, (long long)differs, (long long)window);
    PROA_LOG(
        WARNING,
        "%s cannot say that attention is limited to a window of %lld positions: contexts longer than that "
        "will give other results",
        what, (long long)window);
    return PROA_OK;
}

proa_status proa_bound_compare(const proa_bound *t, const proa_config *read, const char *what, proa_err *err)
{
    const proa_config *c = &t->config;
#define SIZE(member)                                                                                         \
    if (c->member != read->member)                                                                           \
        return fail_differs(what, #member, (double)c->member, (double)read->member, err);
    SIZES(SIZE)
    if (t->arch->outputs != PROA_DIM_HIDDEN) SIZE(tied); /* there is a head */
#undef SIZE
#define FACTOR(member)                                                                                       \
    if (!near_to(c->member, read->member)) return fail_differs(what, #member, c->member, read->member, err);
    FACTORS(FACTOR)
#undef FACTOR
    PROA_TRY(compare_rope(&c->rope, &read->rope, proa_config_rotary_dim(c, false), what, err));
    PROA_TRY(compare_rope(&c->local_rope, &read->local_rope, c->rotary_dim, what, err));
    PROA_TRY(compare_layers(c, read, what, err));
    PROA_TRY(compare_weights(t, read, what, err));
    return compare_windows(c, read, what, err);
}
