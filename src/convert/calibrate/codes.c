/* SPDX-License-Identifier: Apache-2.0
 * codes.c - scales, zero points and rounding of the codes that calibration writes. */
#include "convert/calibrate/codes.h"

#include "kernels/quant.h"

enum { RANGES = 24 }; /* that are tried, from the whole one down to 0.54 of it */

float proa_codes_round_float(proa_dtype dtype, float v)
{
    uint16_t narrow;
    if (dtype == PROA_DTYPE_F32) return v;
    proa_from_f32(&narrow, dtype, &v, 1);
    proa_to_f32(&v, &narrow, dtype, 1);
    return v;
}

/* The code of v less the zero point. */
static float int4_unit(float v, float inverse, int zero)
{
    float q = rintf(v * inverse), least = (float)-zero, most = (float)(15 - zero);
    return q > most ? most : q < least ? least : q;
}

static float weighted_error(const float *v, const float *weight, int64_t n, float scale, int zero)
{
    float sum = 0, inverse = 1 / scale;
    for (int64_t i = 0; i < n; i++) {
        float d = v[i] - scale * int4_unit(v[i], inverse, zero);
        sum += weight[i] * d * d;
    }
    return sum;
}

/* The scale, and with zero points the zero, of least weighted error. 0 for a group of zeros. */
static float int4_scale(const proa_codes *m, const float *v, const float *weight, uint8_t *zero)
{
    float least = 0, most = 0, best_scale = 0, best = INFINITY;
    for (int64_t i = 0; i < m->group; i++) {
        if (v[i] < least) least = v[i];
        if (v[i] > most) most = v[i];
    }
    *zero = 8;
    for (int i = 0; i < RANGES && most - least > 0; i++) {
        float part = 1 - 0.02f * (float)i, span = (most - least) / 15;
        int z = 8;
        if (m->asymmetric) {
            float at = rintf(-least / span);
            z = at < 0 ? 0 : at > 15 ? 15 : (int)at;
        } else span = (most > -least ? most : -least) / 7;
        float scale = proa_codes_round_float(m->scale_dtype, span * part);
        if (!(scale > 0)) break;
        float error = weighted_error(v, weight, m->group, scale, z);
        if (error < best) best = error, best_scale = scale, *zero = (uint8_t)z;
    }
    return best_scale;
}

static float row_scale(const proa_codes *m, const float *v)
{
    int finite;
    float largest = proa_i8_largest(v, m->K, 1, &finite);
    float scale = m->kind == PROA_CODES_INT8 ? proa_i8_scale(largest, finite) : proa_fp8_scale(largest, finite);
    return proa_codes_round_float(m->scale_dtype, scale);
}

void proa_codes_scales(const proa_codes *m, int64_t row, const float *weight)
{
    int64_t groups = m->K / m->group;
    const float *v = m->numbers + row * m->K;
    for (int64_t g = 0; g < groups; g++) {
        uint8_t zero = 8;
        float *scale = &m->scales[row * groups + g];
        if (m->kind == PROA_CODES_INT4)
            *scale = int4_scale(m, v + g * m->group, weight + g * m->group, &zero);
        else *scale = row_scale(m, v);
        if (m->zeros) m->zeros[row * groups + g] = zero;
    }
}

float proa_codes_unit(const proa_codes *m, int64_t row, int64_t k)
{
    uint8_t code = m->codes[row * m->K + k];
    if (m->kind == PROA_CODES_FP8) return proa_fp8_to_f32(code);
    if (m->kind == PROA_CODES_INT8) return (float)(int8_t)code;
    return (float)(code - (m->zeros ? m->zeros[row * (m->K / m->group) + k / m->group] : 8));
}

float proa_codes_round(const proa_codes *m, int64_t row, int64_t k, float v)
{
    int64_t at = row * (m->K / m->group) + k / m->group;
    float scale = m->scales[at];
    uint8_t *code = &m->codes[row * m->K + k];
    if (m->kind == PROA_CODES_FP8) {
        *code = proa_fp8_round(v, scale);
        return proa_fp8_to_f32(*code) * scale;
    }
    if (m->kind == PROA_CODES_INT8) {
        int8_t q = proa_i8_round(v, scale);
        *code = (uint8_t)q;
        return (float)q * scale;
    }
    int zero = m->zeros ? m->zeros[at] : 8;
    float q = scale > 0 ? int4_unit(v, 1 / scale, zero) : 0;
    *code = (uint8_t)((int)q + zero);
    return q * scale;
}
