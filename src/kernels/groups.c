/* SPDX-License-Identifier: Apache-2.0
 * groups.c - makes groups of quantised weights from numbers and from stored groups. */
#include "kernels/groups.h"

#include "kernels/quant.h"
#include "tensor/encoding.h"
#include "tensor/scaled.h"
#include <string.h>

static void quantise_q8(proa_quant_group *g, const float *v, int64_t n, float largest)
{
    g->scale = proa_f32_to_f16(proa_clamp_f16(proa_i8_scale(largest, 1)));
    float scale = proa_f16_to_f32(g->scale);
    for (int64_t i = 0; i < n; i++) g->code[i] = (uint8_t)(proa_i8_round(v[i], scale) + 128);
}

/* The sum over n numbers, a whole number of vectors. */
static int32_t step_error(const int16_t *x, int64_t n, int16_t step)
{
    int16_t inverse = (int16_t)((1 << 22) / step);
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += proa_i4_error(x[i], step, inverse);
    return sum;
}

float proa_i4_best_scale(const float *v, int64_t n, float extreme)
{
    int16_t x[PROA_I4_GROUP] = {0};
    float unit = proa_i4_unit_scale(extreme);
    int32_t least = INT32_MAX;
    int best = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (int16_t)lrintf(v[i] * unit);
    n = (n + PROA_GROUP - 1) / PROA_GROUP * PROA_GROUP; /* zeros have no error */
    for (int i = 0; i < PROA_I4_STEPS; i++) {
        int32_t error = step_error(x, n, (int16_t)proa_i4_step(i));
        if (error < least) least = error, best = i;
    }
    return proa_i4_scale(extreme, proa_i4_step(best), 1);
}

static void quantise_q4(proa_quant_group *g, const float *v, int64_t n, float extreme)
{
    g->scale = proa_f32_to_f16(proa_i4_best_scale(v, n, extreme));
    float scale = proa_f16_to_f32(g->scale);
    for (int64_t i = 0; i < n; i++) g->code[i] = (uint8_t)(proa_i4_round(v[i], scale) + 8);
}

static void quantise_q4_min(proa_quant_group *g, const float *v, int64_t n, float least, float most)
{
    g->scale = proa_f32_to_f16(proa_clamp_f16((most - least) / 15.0f));
    g->min = proa_f32_to_f16(proa_clamp_f16(least));
    float scale = proa_f16_to_f32(g->scale), min = proa_f16_to_f32(g->min);
    for (int64_t i = 0; i < n; i++) {
        float q = scale > 0.0f ? rintf((v[i] - min) / scale) : 0.0f;
        g->code[i] = (uint8_t)(q > 15.0f ? 15.0f : q < 0.0f ? 0.0f : q);
    }
}

const int8_t *proa_group_table(proa_wfmt format)
{
    return format == PROA_WFMT_MXFP4 ? proa_e2m1_doubled : proa_iq4_values;
}

static int8_t nearest_of(const int8_t table[16], float v)
{
    int8_t best = table[0];
    for (int i = 1; i < 16; i++)
        if (fabsf((float)table[i] - v) < fabsf((float)best - v)) best = table[i];
    return best;
}

static void quantise_by_table(proa_quant_group *g, const int8_t table[16], const float *v, int64_t n, float extreme)
{
    const float largest = table[0] == 0 ? 12.0f : -127.0f;
    g->scale = proa_f32_to_f16(proa_clamp_f16(extreme / largest));
    float scale = proa_f16_to_f32(g->scale);
    for (int64_t i = 0; i < n; i++)
        g->code[i] = (uint8_t)(nearest_of(table, scale != 0.0f ? v[i] / scale : 0.0f) + 128);
}

void proa_group_quantise(proa_wfmt format, proa_quant_group *g, const float *v, int64_t n)
{
    float least, most;
    memset(g->code, proa_group_zero(format), sizeof g->code);
    g->min = 0;
    if (!proa_find_range(v, n, &least, &most)) {
        g->scale = proa_f32_to_f16(NAN);
        return;
    }
    float extreme = fabsf(least) > fabsf(most) ? least : most;
    if (format == PROA_WFMT_Q8_0) quantise_q8(g, v, n, fabsf(extreme));
    else if (format == PROA_WFMT_Q4_0) quantise_q4(g, v, n, extreme);
    else if (proa_wfmt_has_table(format)) quantise_by_table(g, proa_group_table(format), v, n, extreme);
    else quantise_q4_min(g, v, n, least, most);
}

static bool table_has(proa_wfmt format, int8_t number)
{
    return memchr(proa_group_table(format), number, 16) != NULL;
}

/* A stored group as it is; false if the format cannot hold it. A scale or minimum that is a product (Q4_K) is rounded
 * to f16, which changes numbers by at most 2^-11. A code of -128, which no quantizer writes, counts as -127. */
static bool keep_codes(proa_wfmt format, proa_quant_group *g, const proa_code_group *stored)
{
    /* codes less 8 and no minimum are q4_1's too: code c - 8 is c with the minimum -8 scale */
    int32_t shift = format == PROA_WFMT_Q4_1 && stored->least == -8 ? 8 : 0;
    int32_t zero = proa_group_zero(format) + shift, most = proa_group_zero(format) == 128 ? 255 : 15;
    float scale = stored->scale, rounded = proa_f16_to_f32(proa_f32_to_f16(scale));
    if (format != PROA_WFMT_Q4_1 && stored->min != 0.0f) return false;
    if (stored->least + zero < 0 || stored->most + zero > most) return false;
    if (!(fabsf(rounded - scale) <= 0x1p-11f * fabsf(scale))) return false; /* NaN, too large, too small */
    for (int i = 0; i < PROA_GROUP; i++) {
        int32_t code = stored->code[i] + zero;
        if (proa_wfmt_has_table(format) && !table_has(format, stored->code[i])) return false;
        g->code[i] = (uint8_t)(format == PROA_WFMT_Q8_0 && code == 0 ? 1 : code);
    }
    g->scale = proa_f32_to_f16(scale);
    g->min = proa_f32_to_f16(proa_clamp_f16(stored->min - (float)shift * scale));
    return true;
}

static bool read_stored(proa_code_group *stored, const proa_source_span *s)
{
    if (!s->order) return proa_tensor_source_codes(s->source, s->row, s->k, stored);
    int64_t row = s->source->first_row + proa_tensor_source_row(s->source, s->row);
    return proa_scaled_read_columns(stored, s->source->scaled, row, s->order + s->k);
}

void proa_group_read(proa_wfmt format, proa_quant_group *g, const proa_source_span *span)
{
    float numbers[PROA_GROUP];
    proa_code_group stored;
    if (span->n == PROA_GROUP && read_stored(&stored, span) && keep_codes(format, g, &stored)) return;
    proa_source_span_read(span, numbers);
    proa_group_quantise(format, g, numbers, span->n);
}

/* 4-bit codes in groups are kept: with the middle as zero, or with a minimum for each group. Groups whose columns are
 * spread over the matrix must be whole, so that they are groups again in the order of proa_coded_order. */
static proa_wfmt scaled_format(const proa_scaled_codes *s, int64_t K)
{
    if (s->col_group % PROA_GROUP || !proa_scaled_has_whole_groups(s, K)) return PROA_WFMT_Q8_0;
    if (s->kind == PROA_CODE_FP4 && !s->group_of && !s->has_zeros && s->zero == 0) return PROA_WFMT_MXFP4;
    if (s->kind != PROA_CODE_U4) return PROA_WFMT_Q8_0;
    return s->has_zeros || s->zero != 8 ? PROA_WFMT_Q4_1 : PROA_WFMT_Q4_0;
}

bool proa_group_format(proa_wfmt *format, const proa_tensor_source *source)
{
    *format = PROA_WFMT_Q8_0;
    if (proa_tensor_source_is_turned(source) || !proa_tensor_source_keeps_groups(source)) return false;
    switch (source->encoding) {
    case PROA_ENCODING_PLAIN:
    case PROA_ENCODING_PIECES:
    case PROA_ENCODING_LOW_RANK: return false;
    case PROA_ENCODING_Q4_0: *format = PROA_WFMT_Q4_0; break;
    case PROA_ENCODING_Q4_1:
    case PROA_ENCODING_Q4_K: *format = PROA_WFMT_Q4_1; break;
    case PROA_ENCODING_MXFP4: *format = PROA_WFMT_MXFP4; break;
    case PROA_ENCODING_IQ4_NL:
    case PROA_ENCODING_IQ4_XS: *format = PROA_WFMT_IQ4_NL; break;
    case PROA_ENCODING_SCALED:
        if (source->scaled->kind == PROA_CODE_FP8) return false;
        *format = scaled_format(source->scaled, proa_tensor_source_cols(source));
        break;
    default: break;
    }
    return true;
}
