/* SPDX-License-Identifier: Apache-2.0
 * packed.c - compares a packed checkpoint with what the model and this machine's kernels expect. */
#include "model/packed.h"

#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include <stdio.h>
#include <string.h>

#define ORDERED "+order" /* follows the format of a matrix whose inputs are in an order of their own */

static bool find_format(const char *name, proa_wfmt *format)
{
    for (int i = 0; i < PROA_WFMT_COUNT; i++) {
        if (strcmp(name, proa_wfmt_name((proa_wfmt)i)) != 0) continue;
        *format = (proa_wfmt)i;
        return true;
    }
    return false;
}

/* The same with or without ORDERED. */
static bool find_matrix_format(const char *name, proa_weight *w)
{
    char plain[PROA_PACKED_FORMAT_MAX];
    const char *end = strstr(name, ORDERED);
    w->permuted = end && strcmp(end, ORDERED) == 0;
    if (!w->permuted) return find_format(name, &w->format);
    snprintf(plain, sizeof plain, "%.*s", (int)proa_min64(end - name, (int64_t)sizeof plain - 1), name);
    return find_format(plain, &w->format) && proa_wfmt_takes_order(w->format) && !w->experts;
}

void proa_packed_format_name(char out[PROA_PACKED_FORMAT_MAX], const proa_param *param)
{
    if (!proa_param_is_matrix(param)) snprintf(out, PROA_PACKED_FORMAT_MAX, "-");
    else
        snprintf(out, PROA_PACKED_FORMAT_MAX, "%s%s", proa_wfmt_name(param->matrix.format),
                 param->matrix.permuted ? ORDERED : "");
}

static proa_status check_layout(const proa_model *m, const char *path, proa_err *err)
{
    const char *want = m->ctx.ops->layout;
    if (strcmp(m->packed->layout, want) == 0) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "'%.200s' is packed as '%s', this device reads '%s': "
                     "make one with 'proa convert MODEL OUT --to packed%s'",
                     path, m->packed->layout, want, m->device->host ? "" : " --device cuda");
}

static proa_status check_option(const char *name, const char *given, const char *none, const char *packed,
                                const char *path, proa_err *err)
{
    if (!given || strcmp(given, none) == 0 || strcmp(given, packed) == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "'%.200s' is packed with --%s %s: leave the option out, "
                     "or make another with 'proa convert MODEL OUT --to packed --%s %s'",
                     path, name, packed, name, given);
}

static proa_status check_dtype(const proa_packed_file *p, const char *given, const char *path, proa_err *err)
{
    if (!given || strcmp(given, "exact") != 0 || strcmp(p->dtype, "auto") != 0)
        return check_option("dtype", given, "auto", p->dtype, path, err);
    if (strcmp(p->main, proa_wfmt_name(PROA_WFMT_BF16DOT)) != 0) return PROA_OK;
    return PROA_FAIL(
        err, INVALID,
        "'%.200s' is packed for inputs in bf16: run the model that it was made from with --dtype exact, "
        "or make another with 'proa convert MODEL OUT --to packed --dtype f32'",
        path);
}

/* The slot of a weight; NULL: the model has no such slot. */
static proa_param *find_param(const proa_model *m, const proa_packed_weight *w)
{
    if (w->stack >= PROA_STACK_COUNT || w->layer > m->params[w->stack].layers) return NULL;
    for (int slot = 0; slot < PROA_SLOT_COUNT; slot++)
        if (strcmp(proa_slot_name((proa_weight_slot)slot), w->slot) == 0)
            return proa_params_at(&m->params[w->stack], w->layer, (proa_weight_slot)slot);
    return NULL;
}

/* The host's kernels take any mixture of formats. On a device plain weights have the type of the activations. */
static bool is_offered(const proa_model *m, proa_wfmt format)
{
    const proa_wfmt main = m->formats.main;
    if (m->device->host) return true;
    if (!proa_wfmt_is_quantised(main)) return format == main;
    return proa_wfmt_is_quantised(format) || format == PROA_WFMT_F16;
}

static proa_status set_formats(proa_model *m, const char *path, proa_err *err)
{
    const proa_packed_file *p = m->packed;
    if (!find_format(p->main, &m->formats.main))
        return PROA_FAIL(err, UNSUPPORTED, "'%.200s': unknown format '%s'", path, p->main);
    for (int64_t i = 0; i < p->count; i++) {
        proa_param *param = find_param(m, &p->weight[i]);
        bool matrix = param && proa_param_is_matrix(param);
        if (!matrix) continue; /* proa_packed_check compares all */
        param->matrix.experts = param->experts;
        if (!find_matrix_format(p->weight[i].format, &param->matrix))
            return PROA_FAIL(err, UNSUPPORTED, "'%.200s': unknown format '%s'", path, p->weight[i].format);
        if (!is_offered(m, param->matrix.format))
            return PROA_FAIL(err, CORRUPT, "'%.200s': weight %lld is %s beside %s", path, (long long)i,
                             p->weight[i].format, p->main);
        param->packed = true;
    }
    return PROA_OK;
}

proa_status proa_packed_formats(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    const proa_packed_file *p = m->packed;
    const proa_format_options formats = {p->dtype, p->quant, o->kv_dtype};
    PROA_TRY(check_layout(m, path, err));
    PROA_TRY(check_option("quant", o->quant, "none", p->quant, path, err));
    PROA_TRY(check_dtype(p, o->dtype, path, err));
    PROA_TRY(proa_formats_choose(&m->formats, m->params, m->device, &formats, err));
    PROA_TRY(set_formats(m, path, err));
    return proa_formats_choose_kv(&m->formats, o->kv_dtype, err);
}

/* A stage of a pipeline has no such weight; others have it. */
static bool is_elsewhere(const proa_model *m, const proa_packed_weight *w)
{
    const proa_param *param = m->plan.part.stages > 1 ? find_param(m, w) : NULL;
    return param && param->parts == 0;
}

static bool is_same(const proa_packed_weight *w, const proa_weight_walk *walk)
{
    char format[PROA_PACKED_FORMAT_MAX];
    proa_packed_format_name(format, walk->param);
    return w->stack == (int32_t)walk->stack && w->layer == walk->layer && w->bytes == walk->param->bytes &&
           strcmp(w->slot, proa_slot_name(walk->slot)) == 0 && strcmp(w->format, format) == 0;
}

static proa_status fail_other(const proa_weight_walk *walk, int64_t i, const char *path, proa_err *err)
{
    char format[PROA_PACKED_FORMAT_MAX];
    proa_packed_format_name(format, walk->param);
    return PROA_FAIL(err, CORRUPT,
                     "'%.200s': weight %lld is not '%s' of layer %lld as %s in %lld bytes: "
                     "the file is not of this config.json, or of another version of the program",
                     path, (long long)i, proa_slot_name(walk->slot), (long long)walk->layer, format,
                     (long long)walk->param->bytes);
}

/* Kernels read x at these places. */
static proa_status check_orders(const proa_model *m, const char *path, proa_err *err)
{
    for (proa_weight_walk walk = {.param = NULL}; proa_model_next_weight(m, &walk);) {
        if (!proa_param_is_matrix(walk.param) || !walk.param->matrix.permuted) continue;
        proa_weight w = walk.param->matrix;
        w.data = (char *)(uintptr_t)(m->packed->block + walk.param->block_at);
        const int32_t *order = proa_coded_order_of(&w);
        for (int64_t k = 0; k < w.K; k++)
            if (order[k] < 0 || order[k] >= w.K)
                return PROA_FAIL(err, CORRUPT,
                                 "'%.200s': input %lld of '%s' of layer %lld is %d, must be 0 to %lld", path,
                                 (long long)k, proa_slot_name(walk.slot), (long long)walk.layer, order[k],
                                 (long long)w.K - 1);
    }
    return PROA_OK;
}

/* Where the next weight of this stage is, from weight i on, which begins at byte *at. */
static int64_t skip_other_stages(const proa_model *m, int64_t i, int64_t *at)
{
    const proa_packed_file *p = m->packed;
    for (; i < p->count && is_elsewhere(m, &p->weight[i]); i++) *at += p->weight[i].bytes;
    return i;
}

proa_status proa_packed_check(const proa_model *m, const char *path, proa_err *err)
{
    const proa_packed_file *p = m->packed;
    proa_weight_walk walk = {.param = NULL};
    int64_t at = 0, i = skip_other_stages(m, 0, &at);
    for (; proa_model_next_weight(m, &walk); i = skip_other_stages(m, i + 1, &at)) {
        if (i >= p->count || !is_same(&p->weight[i], &walk)) return fail_other(&walk, i, path, err);
        walk.param->block_at = at;
        at += walk.param->bytes;
    }
    if (i != p->count || p->block_bytes != at)
        return PROA_FAIL(err, CORRUPT, "'%.200s': it has %lld weights in %lld bytes, the model has %lld in %lld",
                         path, (long long)p->count, (long long)p->block_bytes, (long long)i, (long long)at);
    return check_orders(m, path, err);
}
