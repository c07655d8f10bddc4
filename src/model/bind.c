/* SPDX-License-Identifier: Apache-2.0
 * bind.c - binds the checkpoint's tensors to weight slots by the name map of the architecture. */
#include "model/bind.h"

#include <string.h>

typedef struct binder {
    proa_params *out;
    const proa_arch *arch;
    const proa_config *c;
    const proa_weights *weights;
    proa_arena *arena;
    bool *used; /* [tensors of the checkpoint] */
    proa_err *err;
} binder;

proa_param *proa_params_find(const proa_params *p, int64_t layer, proa_weight_slot slot)
{
    proa_param *param = proa_params_at(p, layer, slot);
    return param->parts ? param : proa_params_at(p, p->layers, slot);
}

/* Replaces an ending: "x.LayerNorm.weight" by "x.LayerNorm.gamma". */
static const proa_weights_tensor *find_alias(const binder *b, const char *name)
{
    char other[PROA_TENSOR_NAME_MAX];
    for (const char *const *a = b->arch->aliases; a && *a; a += 2) {
        if (!proa_str_ends(proa_str_c(name), proa_str_c(a[0]))) continue;
        int keep = (int)(strlen(name) - strlen(a[0]));
        snprintf(other, sizeof other, "%.*s%s", keep, name, a[1]);
        const proa_weights_tensor *t = proa_weights_find(b->weights, other);
        if (t) return t;
    }
    return NULL;
}

static const proa_weights_tensor *find_one(const binder *b, const char *name)
{
    const proa_weights_tensor *t = proa_weights_find(b->weights, name);
    return t ? t : find_alias(b, name);
}

/* By its name, or without a prefix that some checkpoints leave out. */
static const proa_weights_tensor *find_tensor(const binder *b, const char *name)
{
    const proa_weights_tensor *t = find_one(b, name);
    for (const char *const *p = b->arch->prefixes; !t && p && *p; p++)
        if (proa_str_starts(proa_str_c(name), proa_str_c(*p))) t = find_one(b, name + strlen(*p));
    return t;
}

static proa_status fail_missing(const binder *b, const char *name, int32_t rank, const int64_t *shape)
{
    char text[64];
    const char *near = proa_weights_nearest(b->weights, name);
    proa_shape_text(text, rank, shape);
    if (near)
        return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is missing (there is '%s')", name, text, near);
    return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is missing", name, text);
}

static proa_status check_tensor(const binder *b, const proa_weights_tensor *t, int32_t rank, const int64_t *shape)
{
    char have[64], want[64];
    bool same = t->view.rank == rank;
    for (int i = 0; same && i < rank; i++) same = t->view.shape[i] == shape[i];
    if (!same)
        return PROA_FAIL(b->err, INVALID, "tensor '%s' is %s, expected %s", t->name,
                         proa_shape_text(have, t->view.rank, t->view.shape), proa_shape_text(want, rank, shape));
    if (t->view.dtype != PROA_DTYPE_F32 && t->view.dtype != PROA_DTYPE_F16 && t->view.dtype != PROA_DTYPE_BF16)
        return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is %s; f32, f16 and bf16 are supported", t->name,
                         proa_dtype_name(t->view.dtype));
    return PROA_OK;
}

static void add_part(const binder *b, proa_param *param, const proa_name *row, const proa_weights_tensor *t,
                     int64_t rows, int64_t cols)
{
    PROA_ASSERT(param->parts < PROA_PARTS_MAX);
    proa_view v = t->view;
    if (row->role == PROA_ROLE_TRANSPOSED) v = proa_view_transpose(v);
    param->role = row->role;
    param->shared = row->role == PROA_ROLE_TABLE && row->flags & PROA_SHARED;
    param->plus = row->flags & PROA_PLUS_ONE ? 1.0f : 0.0f;
    param->tensor[param->parts] = t;
    param->part[param->parts++] = v;
    param->rows += rows;
    param->cols = cols;
    if (b->weights) b->used[t - proa_weights_at(b->weights, 0)] = true; /* the tensors are one sorted array */
}

/* A tensor of this shape without data, where there is no checkpoint (synthetic.h). */
static const proa_weights_tensor *synthetic_tensor(const binder *b, const proa_name *row, const char *name,
                                                   int32_t rank, const int64_t *shape)
{
    if (row->flags & PROA_IF_PRESENT) return NULL;
    proa_weights_tensor *t = PROA_ARENA_NEW(b->arena, proa_weights_tensor, 1);
    t->name = proa_arena_strdup(b->arena, proa_str_c(name));
    t->view = proa_view_of(NULL, PROA_DTYPE_F16, rank, shape);
    return t;
}

static proa_status bind_one(const binder *b, const proa_name *row, int64_t layer)
{
    char name[PROA_TENSOR_NAME_MAX];
    const proa_params *stack = &b->out[row->stack];
    bool per_layer = strstr(row->name, "%d") != NULL;
    int64_t rows = proa_dim_size(b->c, row->rows), cols = proa_dim_size(b->c, row->cols);
    bool matrix = row->role != PROA_ROLE_VECTOR;
    bool transposed = row->role == PROA_ROLE_TRANSPOSED;
    int64_t shape[2] = {transposed ? cols : rows, transposed ? rows : cols};
    const char *at = strstr(row->name, "%d");
    if (at)
        snprintf(name, sizeof name, "%.*s%lld%s", (int)(at - row->name), row->name, (long long)layer, at + 2);
    else snprintf(name, sizeof name, "%s", row->name);
    const proa_weights_tensor *t = b->weights ? find_tensor(b, name)
                                              : synthetic_tensor(b, row, name, matrix ? 2 : 1, shape);
    if (!t) return row->flags & PROA_IF_PRESENT ? PROA_OK : fail_missing(b, name, matrix ? 2 : 1, shape);
    PROA_TRY(check_tensor(b, t, matrix ? 2 : 1, shape));
    add_part(b, proa_params_at(stack, per_layer ? layer : stack->layers, row->slot), row, t, rows, cols);
    return PROA_OK;
}

static bool is_ignored(const binder *b, const char *name)
{
    for (const char *const *end = b->arch->ignored; end && *end; end++)
        if (proa_str_ends(proa_str_c(name), proa_str_c(*end))) return true;
    return false;
}

/* A tensor that is bound to no slot means that the row does not describe this model: its output would be silently
 * wrong. */
static proa_status check_extra(const binder *b)
{
    for (int64_t i = 0; i < proa_weights_count(b->weights); i++) {
        const proa_weights_tensor *t = proa_weights_at(b->weights, i);
        char shape[64];
        if (b->used[i] || is_ignored(b, t->name)) continue;
        return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is extra: a %s of this configuration has none",
                         t->name, proa_shape_text(shape, t->view.rank, t->view.shape), b->arch->name);
    }
    return PROA_OK;
}

static proa_status bind_row(const binder *b, const proa_name *row)
{
    int64_t layers = strstr(row->name, "%d") ? b->out[row->stack].layers : 1;
    for (int64_t i = 0; i < layers; i++) PROA_TRY(bind_one(b, row, i));
    return PROA_OK;
}

proa_status proa_bind(proa_params out[PROA_STACK_COUNT], const proa_arch *arch, const proa_config *c,
                      const proa_weights *weights, proa_arena *arena, proa_err *err)
{
    binder b = {.out = out, .arch = arch, .c = c, .weights = weights, .arena = arena, .err = err};
    b.used = PROA_ARENA_NEW(arena, bool, weights ? proa_weights_count(weights) : 0);
    out[PROA_STACK_DECODER].layers = c->layers;
    out[PROA_STACK_ENCODER].layers = c->encoder_layers;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        out[s].param = PROA_ARENA_NEW(arena, proa_param, (out[s].layers + 1) * PROA_SLOT_COUNT);
    for (const proa_name *row = arch->names; row->name; row++)
        if (proa_name_applies(row, c)) PROA_TRY(bind_row(&b, row));
    return weights ? check_extra(&b) : PROA_OK;
}
