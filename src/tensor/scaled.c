/* SPDX-License-Identifier: Apache-2.0
 * scaled.c - reads codes whose scales and zero points are in tensors of their own. */
#include "tensor/scaled.h"

#include "tensor/fp8.h"
#include <math.h>

/* e2m1 (OCP Microscaling Formats v1.0), doubled. */
static const int8_t fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static bool is_half(proa_code_kind kind)
{
    return kind == PROA_CODE_U4 || kind == PROA_CODE_FP4;
}

int64_t proa_scaled_bytes(proa_code_kind kind, int64_t count)
{
    return is_half(kind) ? (count + 1) / 2 : count;
}

static uint8_t code_at(const proa_code_layout *l, proa_code_kind kind, int64_t n, int64_t k)
{
    static const int64_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the place of row n % 8 in AWQ's word */
    int64_t inner = l->interleaved ? order[n % 8] : n % 8;
    int64_t at = n / 8 * l->row[0] + inner * l->row[1] + k / l->cols * l->col[0] + k % l->cols * l->col[1];
    const uint8_t *bytes = l->data;
    if (is_half(kind)) return (uint8_t)(bytes[at / 2] >> at % 2 * 4 & 15);
    return bytes[at];
}

/* The code as an integer; e2m1 doubled. Not for e4m3. */
static int32_t code_value(proa_code_kind kind, uint8_t code)
{
    if (kind == PROA_CODE_I8) return (int8_t)code;
    return kind == PROA_CODE_FP4 ? fp4_doubled[code] : code;
}

static float scale_at(const proa_scaled_codes *s, int64_t row, int64_t group)
{
    const proa_view *v = &s->scale;
    int64_t at = row / s->row_group * v->stride[0] + group * v->stride[1];
    if (v->dtype == PROA_DTYPE_U8) return ldexpf(1.0f, ((const uint8_t *)v->data)[at] - 127);
    float scale;
    proa_to_f32(&scale, (const char *)v->data + at * proa_dtype_bytes(v->dtype), v->dtype, 1);
    return scale;
}

static int64_t group_at(const proa_scaled_codes *s, int64_t col)
{
    return s->group_of ? s->group_of[col] : col / s->col_group;
}

static int32_t zero_at(const proa_scaled_codes *s, int64_t row, int64_t group)
{
    if (!s->has_zeros) return s->zero;
    return s->zero + code_value(s->zero_kind, code_at(&s->zeros, s->zero_kind, row, group));
}

static float number_of(const proa_scaled_codes *s, uint8_t code, float scale, int32_t zero)
{
    if (s->kind == PROA_CODE_FP8) return scale * proa_fp8_to_f32(code);
    float value = (float)(code_value(s->kind, code) - zero);
    return scale * (s->kind == PROA_CODE_FP4 ? 0.5f * value : value);
}

void proa_scaled_read(float *out, const proa_scaled_codes *s, int64_t row, int64_t col, int64_t n)
{
    int64_t group = -1;
    float scale = 0;
    int32_t zero = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = group_at(s, col + i);
        if (g != group) scale = scale_at(s, row, g), zero = zero_at(s, row, g), group = g;
        out[i] = number_of(s, code_at(&s->code, s->kind, row, col + i), scale, zero);
    }
}

/* int8 holds what is left of an unsigned code: its zero point is subtracted if it is the middle. */
static bool fits_int8(const proa_scaled_codes *s, int32_t zero)
{
    return s->kind != PROA_CODE_U8 || zero == 128;
}

bool proa_scaled_read_codes(proa_code_group *out, const proa_scaled_codes *s, int64_t row, int64_t col)
{
    int64_t group = group_at(s, col);
    if (s->kind == PROA_CODE_FP8 || s->group_of || group_at(s, col + PROA_CODES - 1) != group) return false;
    int32_t zero = zero_at(s, row, group), middle = s->kind == PROA_CODE_U8 ? 128 : 8;
    if (!fits_int8(s, zero)) return false;
    /* the middle is taken out of the codes, so that formats without a minimum hold them */
    int32_t offset = zero == middle && (s->kind == PROA_CODE_U4 || s->kind == PROA_CODE_U8) ? middle : 0;
    for (int i = 0; i < PROA_CODES; i++)
        out->code[i] = (int8_t)(code_value(s->kind, code_at(&s->code, s->kind, row, col + i)) - offset);
    out->scale = scale_at(s, row, group) * (s->kind == PROA_CODE_FP4 ? 0.5f : 1.0f);
    out->min = zero == offset ? 0.0f : -(out->scale * (float)(zero - offset));
    out->least = is_half(s->kind) ? -offset : -128, out->most = is_half(s->kind) ? 15 - offset : 127;
    if (s->kind == PROA_CODE_FP4) out->least = -12, out->most = 12;
    return true;
}
