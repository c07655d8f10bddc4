/* SPDX-License-Identifier: Apache-2.0
 * scaled.c - reads codes whose scales and zero points are in tensors of their own. */
#include "tensor/scaled.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/encoding.h"
#include "tensor/fp8.h"
#include <math.h>
#include <stdlib.h>

static bool is_half(proa_code_kind kind)
{
    return kind == PROA_CODE_U4 || kind == PROA_CODE_FP4;
}

int64_t proa_scaled_bytes(proa_code_kind kind, int64_t count)
{
    if (kind == PROA_CODE_U2) return (count + 3) / 4;
    return is_half(kind) ? (count + 1) / 2 : count;
}

/* The element of code (n, 0). */
static int64_t row_start(const proa_code_layout *l, int64_t n)
{
    static const int64_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the place of row n % 8 in AWQ's word */
    if (l->rows) return n / l->rows * l->row[0] + n % l->rows * l->row[1];
    return n / 8 * l->row[0] + (l->interleaved ? order[n % 8] : n % 8) * l->row[1];
}

/* count codes from element `at` on, `step` elements apart. */
static void copy_codes(uint8_t *out, const void *data, proa_code_kind kind, int64_t at, int64_t step, int64_t count)
{
    const uint8_t *bytes = data;
    if (is_half(kind))
        for (int64_t i = 0; i < count; i++, at += step)
            out[i] = (uint8_t)(bytes[at >> 1] >> ((at & 1) * 4) & 15);
    else if (kind == PROA_CODE_U2)
        for (int64_t i = 0; i < count; i++, at += step)
            out[i] = (uint8_t)(bytes[at >> 2] >> ((at & 3) * 2) & 3);
    else
        for (int64_t i = 0; i < count; i++, at += step) out[i] = bytes[at];
}

/* Codes (n, k) to (n, k + count - 1), a word of columns at a time. */
static void read_codes(uint8_t *out, const proa_code_layout *l, proa_code_kind kind, int64_t n, int64_t k,
                       int64_t count)
{
    int64_t start = row_start(l, n);
    if (l->cols == 1) {
        copy_codes(out, l->data, kind, start + k * l->col[0], l->col[0], count);
        return;
    }
    for (int64_t done = 0; done < count;) {
        int64_t in_word = (k + done) % l->cols, left = l->cols - in_word;
        int64_t run = left < count - done ? left : count - done;
        copy_codes(out + done, l->data, kind, start + (k + done) / l->cols * l->col[0] + in_word * l->col[1],
                   l->col[1], run);
        done += run;
    }
}

/* The code as an integer; e2m1 doubled. Not for e4m3. */
static int32_t code_value(proa_code_kind kind, uint8_t code)
{
    if (kind == PROA_CODE_I8) return (int8_t)code;
    return kind == PROA_CODE_FP4 ? proa_e2m1_doubled[code] : code;
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
    uint8_t code;
    read_codes(&code, &s->zeros, s->zero_kind, row, group, 1);
    return s->zero + code_value(s->zero_kind, code);
}

/* Numbers of one group. */
static void decode_codes(float *out, const proa_scaled_codes *s, const uint8_t *code, float scale,
                         int32_t zero, int64_t n)
{
    if (s->kind == PROA_CODE_FP8)
        for (int64_t i = 0; i < n; i++) out[i] = scale * proa_fp8_to_f32(code[i]);
    else if (s->kind == PROA_CODE_FP4)
        for (int64_t i = 0; i < n; i++) out[i] = scale * (0.5f * (float)(proa_e2m1_doubled[code[i]] - zero));
    else
        for (int64_t i = 0; i < n; i++) out[i] = scale * (float)(code_value(s->kind, code[i]) - zero);
}

/* Columns from col on, at most n, that are in the group of the first. */
static int64_t group_run(const proa_scaled_codes *s, int64_t col, int64_t n)
{
    int64_t run = 1;
    if (!s->group_of) run = s->col_group - col % s->col_group;
    else
        while (run < n && s->group_of[col + run] == s->group_of[col]) run++;
    return run < n ? run : n;
}

void proa_scaled_read(float *out, const proa_scaled_codes *s, int64_t row, int64_t col, int64_t n)
{
    uint8_t code[256];
    for (int64_t done = 0; done < n;) {
        int64_t left = n - done, at = col + done, group = group_at(s, at);
        int64_t run = group_run(s, at, left < (int64_t)sizeof code ? left : (int64_t)sizeof code);
        read_codes(code, &s->code, s->kind, row, at, run);
        decode_codes(out + done, s, code, scale_at(s, row, group), zero_at(s, row, group), run);
        done += run;
    }
}

/* The code that usually stands for 0; of signed kinds it does. */
static int32_t middle_of(proa_code_kind kind)
{
    return kind == PROA_CODE_U8 ? 128 : kind == PROA_CODE_U4 ? 8 : kind == PROA_CODE_U2 ? 1 : 0;
}

/* int8 holds what is left of an unsigned code: its zero point is subtracted if it is the middle. */
static bool fits_int8(const proa_scaled_codes *s, int32_t zero)
{
    return s->kind != PROA_CODE_U8 || zero == 128;
}

/* The group of codes that were read. */
static bool make_group(proa_code_group *out, const proa_scaled_codes *s, int64_t row, int64_t group,
                       const uint8_t code[PROA_CODES])
{
    int32_t zero = zero_at(s, row, group), middle = middle_of(s->kind);
    if (!fits_int8(s, zero)) return false;
    /* the middle is taken out of the codes, so that formats without a minimum hold them */
    int32_t offset = zero == middle ? middle : 0;
    for (int i = 0; i < PROA_CODES; i++) out->code[i] = (int8_t)(code_value(s->kind, code[i]) - offset);
    out->scale = scale_at(s, row, group) * (s->kind == PROA_CODE_FP4 ? 0.5f : 1.0f);
    out->min = zero == offset ? 0.0f : -(out->scale * (float)(zero - offset));
    out->least = is_half(s->kind) ? -offset : -128, out->most = is_half(s->kind) ? 15 - offset : 127;
    if (s->kind == PROA_CODE_FP4) out->least = -12, out->most = 12;
    if (s->kind == PROA_CODE_U2)
        out->least = offset ? -8 : 0, out->most = offset ? 7 : 15; /* as formats of 4 bits */
    return true;
}

bool proa_scaled_read_codes(proa_code_group *out, const proa_scaled_codes *s, int64_t row, int64_t col)
{
    uint8_t code[PROA_CODES];
    int64_t group = group_at(s, col);
    if (s->kind == PROA_CODE_FP8 || s->group_of || group_at(s, col + PROA_CODES - 1) != group) return false;
    read_codes(code, &s->code, s->kind, row, col, PROA_CODES);
    return make_group(out, s, row, group, code);
}

bool proa_scaled_read_columns(proa_code_group *out, const proa_scaled_codes *s, int64_t row,
                              const int32_t columns[PROA_CODES])
{
    uint8_t code[PROA_CODES];
    int64_t group = group_at(s, columns[0]);
    if (s->kind == PROA_CODE_FP8) return false;
    for (int i = 0; i < PROA_CODES; i++) {
        if (group_at(s, columns[i]) != group) return false;
        read_codes(&code[i], &s->code, s->kind, row, columns[i], 1);
    }
    return make_group(out, s, row, group, code);
}

bool proa_scaled_read_bytes(uint8_t *code, float *scale, const proa_scaled_codes *s, proa_code_kind kind,
                            int64_t row, int64_t col, int64_t n)
{
    int64_t group = group_at(s, col);
    if (s->kind != kind || is_half(kind) || group_run(s, col, n) != n) return false;
    if (zero_at(s, row, group) != (kind == PROA_CODE_U8 ? 128 : 0)) return false;
    read_codes(code, &s->code, kind, row, col, n);
    for (int64_t i = 0; i < n && kind == PROA_CODE_U8; i++) code[i] ^= 0x80;
    *scale = scale_at(s, row, group);
    return true;
}

bool proa_scaled_has_whole_groups(const proa_scaled_codes *s, int64_t K)
{
    if (!s->group_of) return true;
    int64_t groups = K / s->col_group, *count = proa_calloc((size_t)proa_max64(groups, 1), sizeof *count);
    bool whole = K % s->col_group == 0;
    for (int64_t k = 0; k < K && whole; k++) whole = ++count[s->group_of[k]] <= s->col_group;
    free(count);
    return whole;
}
