/* SPDX-License-Identifier: Apache-2.0
 * format.c - chooses the weight format of each matrix and the type of keys and values. */
#include "model/format.h"

#include "kernels/groups.h"
#include "kernels/coded.h"

/* ---- by the checkpoint ---- */

/* The type of a source's numbers; of encoded ones that of their scales, f16. */
static proa_dtype source_dtype(const proa_tensor_source *s)
{
    if (proa_encoding_is_computed(s->encoding)) return PROA_DTYPE_F32;
    return proa_tensor_source_is_float(s) ? s->view.dtype : PROA_DTYPE_F16;
}

static proa_wfmt plain_format(proa_dtype dtype)
{
    return dtype == PROA_DTYPE_BF16  ? PROA_WFMT_BF16
           : dtype == PROA_DTYPE_F16 ? PROA_WFMT_F16
                                     : PROA_WFMT_F32;
}

/* Whether x can be put into one order for the whole product. */
static bool has_one_order(const proa_param *param, const proa_tensor_source *part)
{
    const proa_tensor_source *first = &param->part[0].source;
    return param->experts ? !proa_coded_is_permuted(part) : proa_coded_same_order(first, part);
}

bool proa_formats_permutes(proa_wfmt format, const proa_param *param)
{
    const proa_tensor_source *first = &param->part[0].source;
    proa_wfmt codes;
    if (!proa_wfmt_takes_order(format) || !proa_coded_is_permuted(first)) return false;
    if (!proa_scaled_has_whole_groups(first->scaled, proa_tensor_source_cols(first))) return false;
    for (int32_t i = 0; i < param->parts; i++) {
        const proa_weight_part *part = &param->part[i];
        if (part->normalised || !proa_coded_format(&codes, &part->source)) return false;
        if (!has_one_order(param, &part->source)) return false;
    }
    return true;
}

/* BitNet's codes. The rows that they multiply are codes of eight bits, too, with one scale for each row: int8's kernel
 * finds the same codes again, while formats in groups would round them once more. */
static bool is_ternary(const proa_tensor_source *s)
{
    return s->encoding == PROA_ENCODING_SCALED && s->scaled->kind == PROA_CODE_U2;
}

/* On the host, of a matrix whose parts are all encoded; parts of different encodings share q8_0. False: it has numbers
 * that are not encoded. */
static bool host_encoded_format(const proa_param *param, proa_wfmt *format)
{
    for (int32_t i = 0; i < param->parts; i++) {
        const proa_tensor_source *source = &param->part[i].source;
        proa_wfmt one;
        if (!proa_encoding_is_readable(source->encoding) || !proa_group_format(&one, source)) return false;
        if (!has_one_order(param, source)) one = PROA_WFMT_Q8_0;
        if (is_ternary(source)) one = PROA_WFMT_I8;
        *format = i == 0 || *format == one ? one : PROA_WFMT_Q8_0;
    }
    return param->parts > 0;
}

/* On a GPU, of a matrix whose parts all have codes that its kernels take: the format that holds those of all parts. */
static bool device_encoded_format(const proa_param *param, proa_wfmt *format)
{
    for (int32_t i = 0; i < param->parts; i++) {
        const proa_tensor_source *source = &param->part[i].source;
        proa_wfmt one;
        if (param->part[i].normalised || !proa_coded_format(&one, source)) return false;
        if (proa_wfmt_is_int4(one) && !has_one_order(param, source)) one = PROA_WFMT_I8G;
        if (i == 0) *format = one;
        else if (!proa_coded_merge(format, one)) return false;
    }
    return param->parts > 0;
}

/* Parts of different types: f32, which holds both. */
static proa_dtype param_dtype(const proa_param *param)
{
    proa_dtype dtype = source_dtype(&param->part[0].source);
    for (int32_t i = 1; i < param->parts; i++)
        if (source_dtype(&param->part[i].source) != dtype) return PROA_DTYPE_F32;
    return dtype;
}

/* The format of the first matrix of a layer that has such codes; false: none has. Others of the model may be plain:
 * of gpt-oss only the experts have four bits. */
static bool first_device_format(const proa_params params[PROA_STACK_COUNT], proa_wfmt *format)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int64_t i = 0; i < params[s].layers * PROA_SLOT_COUNT; i++) {
            const proa_param *param = &params[s].param[i];
            if (param->parts && proa_param_is_matrix(param) && device_encoded_format(param, format))
                return true;
        }
    return false;
}

/* The first matrix of the first layer that has attention or a recurrent state; NULL: there are no layers. */
static const proa_param *first_matrix(const proa_params params[PROA_STACK_COUNT])
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &params[s];
        const proa_param *qkv = p->layers ? proa_params_find(p, 0, PROA_SLOT_QKV) : NULL;
        const proa_param *mix = p->layers ? proa_params_find(p, 0, PROA_SLOT_MIX) : NULL;
        if (qkv && qkv->parts) return qkv;
        if (mix && mix->parts) return mix;
    }
    return NULL;
}

/* ---- by the options ---- */

/* The KV type of "auto" on a GPU: the 16-bit type in which the weights are multiplied (quantised ones: f16), else
 * f32. */
static proa_dtype device_kv_dtype(proa_wfmt format)
{
    if (proa_wfmt_is_quantised(format)) return PROA_DTYPE_F16;
    return format == PROA_WFMT_F16    ? PROA_DTYPE_F16
           : format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F32;
}

/* "auto" on the host: a checkpoint of bf16 has no more digits than its own type, so its matrix inputs, keys and values
 * are rounded to bf16 too where that is faster (docs/performance.md: what it costs). */
static void choose_fastest(proa_formats *f)
{
    bool bf16 = f->host && f->checkpoint == PROA_DTYPE_BF16;
    f->rounds = bf16 && proa_cpu_bf16_dot_pays();
    f->main = f->rounds ? PROA_WFMT_BF16DOT : plain_format(f->checkpoint);
    if (bf16) f->kv = PROA_DTYPE_BF16;
}

static proa_status choose_dtype(proa_formats *f, proa_str dtype, proa_err *err)
{
    bool dot = f->host && proa_cpu_bf16_dot_pays();
    f->kv = PROA_DTYPE_F32;
    f->given = !proa_str_is(dtype, "auto") && !proa_str_is(dtype, "exact");
    if (proa_str_is(dtype, "auto")) choose_fastest(f);
    else if (proa_str_is(dtype, "exact")) f->main = plain_format(f->checkpoint);
    else if (proa_str_is(dtype, "f32")) f->main = PROA_WFMT_F32;
    else if (proa_str_is(dtype, "f16")) f->main = PROA_WFMT_F16, f->kv = PROA_DTYPE_F16;
    else if (proa_str_is(dtype, "bf16"))
        f->main = dot ? PROA_WFMT_BF16DOT : PROA_WFMT_BF16, f->kv = PROA_DTYPE_BF16;
    else
        return PROA_FAIL(err, INVALID, "dtype '%.*s' is not one of auto, exact, f32, bf16, f16",
                         (int)dtype.len, dtype.ptr);
    return PROA_OK;
}

static proa_status choose_quant(proa_formats *f, proa_str quant, proa_err *err)
{
    bool fp8 = proa_str_is(quant, "fp8"), int4 = proa_str_is(quant, "int4");
    const proa_wfmt int4_format = f->host ? PROA_WFMT_Q4_0 : PROA_WFMT_I4;
    if (proa_str_is(quant, "none")) return PROA_OK;
    if (proa_str_is(quant, "int8")) f->main = f->host ? PROA_WFMT_I8 : PROA_WFMT_I8W;
    else if (!fp8 && !int4)
        return PROA_FAIL(err, INVALID, "quant '%.*s' is not one of none, int8, fp8, int4", (int)quant.len,
                         quant.ptr);
    else if (f->host && fp8)
        return PROA_FAIL(err, UNSUPPORTED,
                         "quant 'fp8' is made on a GPU only (--device cuda); the CPU has int8 and int4");
    else f->main = fp8 ? PROA_WFMT_FP8 : int4_format;
    f->given = true;
    return PROA_OK;
}

proa_status proa_formats_choose_kv(proa_formats *f, const char *kv_dtype, proa_err *err)
{
    proa_dtype dtype;
    const proa_str name = proa_str_c(kv_dtype ? kv_dtype : "auto");
    if (proa_str_is(name, "auto")) {
        if (!f->host) f->kv = device_kv_dtype(f->main);
        return PROA_OK;
    }
    if (!proa_dtype_find(name, &dtype) || !proa_dtype_floating(dtype) || dtype == PROA_DTYPE_F64)
        return PROA_FAIL(err, INVALID, "kv-dtype '%.*s' is not one of auto, f32, bf16, f16, fp8",
                         (int)name.len, name.ptr);
    if (f->host && dtype == PROA_DTYPE_FP8)
        return PROA_FAIL(err, UNSUPPORTED, "kv-dtype 'fp8' is offered on a GPU only (--device cuda)");
    f->kv = dtype;
    return PROA_OK;
}

proa_status proa_formats_choose(proa_formats *out, const proa_params params[PROA_STACK_COUNT],
                                const proa_device *device, const proa_format_options *o, proa_err *err)
{
    const proa_param *first = first_matrix(params);
    *out = (proa_formats){.host = device->host};
    out->checkpoint = first ? source_dtype(&first->part[0].source) : PROA_DTYPE_F32;
    PROA_TRY(choose_dtype(out, proa_str_c(o->dtype ? o->dtype : "auto"), err));
    proa_wfmt stored;
    if (first && out->host && !out->given) host_encoded_format(first, &out->main);
    if (!out->host && !out->given && first_device_format(params, &stored)) out->main = stored;
    PROA_TRY(choose_quant(out, proa_str_c(o->quant ? o->quant : "none"), err));
    return proa_formats_choose_kv(out, o->kv_dtype, err);
}

/* ---- of one weight ---- */

/* Whether a GPU's matrix keeps its codes; where the checkpoint decides, the others are f16, the type of the
 * activations. --quant int4 keeps those of four bits. */
static bool has_codes(const proa_formats *f, const proa_param *param, proa_wfmt *format)
{
    if (f->host || !proa_wfmt_is_quantised(f->main) || (f->given && f->main != PROA_WFMT_I4)) return false;
    if (device_encoded_format(param, format) && (!f->given || proa_wfmt_is_int4(*format))) return true;
    *format = PROA_WFMT_F16;
    return !f->given;
}

/* On the host, where the checkpoint decides. */
static proa_wfmt stored_format(const proa_formats *f, const proa_param *param, bool router)
{
    proa_wfmt format;
    if (host_encoded_format(param, &format)) return format;
    format = plain_format(param_dtype(param));
    return f->rounds && !router && format == PROA_WFMT_BF16 ? PROA_WFMT_BF16DOT : format;
}

/* Small, and what a rounding changes is which experts or keys are chosen, or what all later rows remember. */
static bool is_decisive(proa_weight_slot slot)
{
    return slot == PROA_SLOT_ROUTER || slot == PROA_SLOT_SHARED_GATE || slot == PROA_SLOT_RATES ||
           slot == PROA_SLOT_PARAMS || slot == PROA_SLOT_INDEX_W;
}

/* The format of a weight: that of --dtype or --quant if one was given. Otherwise the host keeps what the checkpoint
 * has, and a device uses the format of its activations. */
static proa_wfmt choose_format(const proa_formats *f, proa_weight_slot slot, const proa_param *param)
{
    bool router = is_decisive(slot);
    if (router && proa_wfmt_is_quantised(f->main))
        return f->host ? plain_format(param_dtype(param)) : PROA_WFMT_F16;
    proa_wfmt format = PROA_WFMT_F32;
    if (has_codes(f, param, &format)) return format;
    /* With int4 weights the head has int8: errors of the logits change the sampled token directly. */
    if (f->given && f->main == PROA_WFMT_I4 && slot == PROA_SLOT_HEAD) return PROA_WFMT_I8W;
    if (f->given && f->main == PROA_WFMT_Q4_0 && slot == PROA_SLOT_HEAD) return PROA_WFMT_Q8_0;
    if (f->given || !f->host)
        return f->main; /* a device's activations have one type, that of the plain weights */
    return stored_format(f, param, router);
}

proa_wfmt proa_formats_of(const proa_formats *f, proa_weight_slot slot, const proa_param *param)
{
    return param->packed ? param->matrix.format : choose_format(f, slot, param);
}

proa_dtype proa_formats_table(const proa_formats *f, const proa_param *param)
{
    const proa_tensor_source *s = &param->part[0].source;
    if (proa_encoding_is_computed(s->encoding)) return PROA_DTYPE_F32;
    if (proa_tensor_source_is_float(s)) return s->view.dtype;
    return f->given && f->main == PROA_WFMT_F32 ? PROA_DTYPE_F32 : PROA_DTYPE_F16;
}
