/* SPDX-License-Identifier: Apache-2.0
 * coded.c - groups of codes from sources, and their packing for a GPU. */
#include "kernels/coded.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/groups.h"
#include "kernels/quant.h"
#include "tensor/encoding.h"
#include <math.h>
#include <string.h>

static int64_t group_inputs(proa_wfmt format)
{
    return proa_coded_layout_of(format, 0, 0).group;
}

/* ---- one group ---- */

/* The codes of 32 inputs as int4; false if the source has none, or others. *offset: of the code 0. */
static bool read_codes(int8_t *code, float *scale, float *offset, const proa_tensor_source *s, int64_t row,
                       int64_t k, const int32_t *order)
{
    proa_code_group g;
    int64_t stored = s->first_row + proa_tensor_source_row(s, row);
    bool found = order ? proa_scaled_read_columns(&g, s->scaled, stored, order + k)
                       : proa_tensor_source_codes(s, row, k, &g);
    if (!found) return false;
    bool centred = g.least == -8 && g.most == 7;
    if (!centred && !(g.least == 0 && g.most == 15)) return false;
    for (int i = 0; i < PROA_CODES; i++) code[i] = (int8_t)(g.code[i] - (centred ? 0 : 8));
    *scale = g.scale;
    *offset = centred ? g.min : g.min + 8.0f * g.scale;
    return true;
}

/* False for NaN too, and for scales too large or too small. */
static bool fits_f16(float scale)
{
    float rounded = proa_f16_to_f32(proa_f32_to_f16(scale));
    return fabsf(rounded - scale) <= 0x1p-11f * fabsf(scale);
}

/* A stored group as it is; false if the format cannot hold it. f16 changes the scale by at most 2^-11. */
static bool keep_codes(proa_wfmt format, proa_coded_group *g, const proa_tensor_source *s, int64_t row,
                       int64_t k, const int32_t *order)
{
    float scale = 0, offset = 0;
    for (int64_t i = 0; i < group_inputs(format); i += PROA_CODES) {
        float own_scale, own_offset;
        if (!read_codes(g->code + i, &own_scale, &own_offset, s, row, k + i, order)) return false;
        if (i == 0) scale = own_scale, offset = own_offset;
        if (own_scale != scale || own_offset != offset) return false; /* NaN too */
    }
    if (!fits_f16(scale) || !(fabsf(offset) <= 65504.0f)) return false;
    if (format == PROA_WFMT_I4 && offset != 0.0f) return false;
    g->scale = proa_f32_to_f16(scale), g->offset = proa_f32_to_f16(offset);
    return true;
}

static void quantise_group(proa_wfmt format, proa_coded_group *g, const float *v, int64_t n)
{
    float least, most;
    if (!proa_find_range(v, n, &least, &most)) {
        g->scale = proa_f32_to_f16(NAN);
        return;
    }
    if (format == PROA_WFMT_I4)
        g->scale = proa_f32_to_f16(proa_i4_best_scale(v, n, fabsf(least) > fabsf(most) ? least : most));
    else g->scale = proa_f32_to_f16(proa_clamp_f16(most / 15.0f - least / 15.0f));
    float scale = proa_f16_to_f32(g->scale), offset = 0.0f;
    if (format != PROA_WFMT_I4) {
        g->offset = proa_f32_to_f16(proa_clamp_f16(least + 8.0f * scale));
        offset = proa_f16_to_f32(g->offset);
    }
    for (int64_t i = 0; i < n; i++) g->code[i] = (int8_t)proa_i4_round(v[i] - offset, scale);
}

/* ---- one group of MXFP4W ---- */

enum { E8M0_BIAS = 127, E8M0_NAN = 255 };

static float e8m0_value(uint16_t exponent)
{
    return exponent == E8M0_NAN ? NAN : ldexpf(1.0f, exponent - E8M0_BIAS);
}

static int8_t nearest_e2m1(float v)
{
    int best = 0;
    for (int i = 1; i < 16; i++)
        if (fabsf(v - 0.5f * (float)proa_e2m1_doubled[i]) < fabsf(v - 0.5f * (float)proa_e2m1_doubled[best]))
            best = i;
    return (int8_t)best;
}

static void quantise_e2m1(proa_coded_group *g, const float *v, int64_t n)
{
    float least, most;
    int exponent;
    g->scale = E8M0_NAN;
    if (!proa_find_range(v, n, &least, &most)) return;
    frexpf(fmaxf(fabsf(least), fabsf(most)), &exponent); /* of a mantissa from 0.5 to 1: one more than log2's floor */
    exponent += E8M0_BIAS - 3;
    g->scale = (uint16_t)(exponent < 1 ? 1 : exponent);
    float scale = e8m0_value(g->scale);
    for (int64_t i = 0; i < n; i++) g->code[i] = nearest_e2m1(v[i] / scale);
}

/* The codes of doubled e2m1 numbers whose scale is a power of 2. */
static bool keep_e2m1(proa_coded_group *g, const proa_tensor_source *s, int64_t row, int64_t k)
{
    static const int8_t places[13] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7}; /* of doubled numbers */
    proa_code_group stored;
    int exponent;
    if (!proa_tensor_source_codes(s, row, k, &stored) || stored.least != -12 || stored.most != 12)
        return false;
    if (!(stored.scale > 0.0f) || frexpf(stored.scale, &exponent) != 0.5f) return false;
    exponent += E8M0_BIAS; /* scale = 2^(exponent - 1), half of the group's */
    if (exponent < 1 || exponent >= E8M0_NAN) return false;
    for (int i = 0; i < PROA_CODES; i++) {
        int8_t doubled = stored.code[i];
        g->code[i] = (int8_t)(doubled < 0 ? 8 + places[-doubled] : places[doubled]);
    }
    g->scale = (uint16_t)exponent, g->offset = 0;
    return true;
}

/* ---- one group of I8G and FP8G ---- */

/* Stored codes of up to eight bits without a minimum; f16 changes the scale by at most 2^-11. */
static bool keep_int8(proa_coded_group *g, const proa_tensor_source *s, int64_t row, int64_t k)
{
    proa_code_group stored;
    if (!proa_tensor_source_codes(s, row, k, &stored) || stored.min != 0.0f || !fits_f16(stored.scale))
        return false;
    memcpy(g->code, stored.code, PROA_CODES);
    g->scale = proa_f32_to_f16(stored.scale);
    return true;
}

static void quantise_int8(proa_coded_group *g, const float *v, int64_t n)
{
    proa_quant_group q8;
    proa_group_quantise(PROA_WFMT_Q8_0, &q8, v, n);
    for (int64_t i = 0; i < n; i++) g->code[i] = (int8_t)(q8.code[i] - 128);
    g->scale = q8.scale;
}

/* e4m3 has no infinity; sign and all other bits set are NaN. */
static bool has_nan(const uint8_t *e4m3, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((e4m3[i] & 0x7f) == 0x7f) return true;
    return false;
}

/* Devices read a NaN's bits as a number, so it makes its whole group NaN. */
static bool keep_e4m3(proa_coded_group *g, const proa_tensor_source *s, int64_t row, int64_t k, int64_t n)
{
    uint8_t code[PROA_CODED_STEP];
    if (!proa_tensor_source_bytes_of(s, PROA_CODE_FP8, row, k, n, code, &g->scale32)) return false;
    if (has_nan(code, n)) g->scale32 = NAN;
    memcpy(g->code, code, (size_t)n);
    return true;
}

static void quantise_e4m3(proa_coded_group *g, const float *v, int64_t n)
{
    float least, most;
    bool finite = proa_find_range(v, n, &least, &most);
    g->scale32 = proa_fp8_scale(fmaxf(fabsf(least), fabsf(most)), finite);
    for (int64_t i = 0; i < n; i++) g->code[i] = (int8_t)proa_fp8_round(v[i], g->scale32);
}

float proa_coded_value(proa_wfmt format, const proa_coded_group *g, int64_t i)
{
    if (format == PROA_WFMT_FP8G) return g->scale32 * proa_fp8_to_f32((uint8_t)g->code[i]);
    if (format == PROA_WFMT_MXFP4W) return e8m0_value(g->scale) * 0.5f * (float)proa_e2m1_doubled[g->code[i]];
    return proa_f16_to_f32(g->scale) * (float)g->code[i] + proa_f16_to_f32(g->offset);
}

/* The source's own codes; false: it has none that the format holds. */
static bool keep_group(proa_wfmt format, proa_coded_group *g, const proa_source_span *s)
{
    if (format == PROA_WFMT_FP8G) return keep_e4m3(g, s->source, s->row, s->k, s->n);
    if (s->n != group_inputs(format)) return false;
    if (format == PROA_WFMT_MXFP4W) return keep_e2m1(g, s->source, s->row, s->k);
    return format == PROA_WFMT_I8G ? keep_int8(g, s->source, s->row, s->k)
                                   : keep_codes(format, g, s->source, s->row, s->k, s->order);
}

void proa_coded_read(proa_wfmt format, proa_coded_group *g, const proa_source_span *span)
{
    float numbers[PROA_CODED_STEP];
    memset(g, 0, sizeof *g);
    if (keep_group(format, g, span)) return;
    proa_source_span_read(span, numbers);
    memset(g, 0, sizeof *g);
    if (format == PROA_WFMT_MXFP4W) quantise_e2m1(g, numbers, span->n);
    else if (format == PROA_WFMT_I8G) quantise_int8(g, numbers, span->n);
    else if (format == PROA_WFMT_FP8G) quantise_e4m3(g, numbers, span->n);
    else quantise_group(format, g, numbers, span->n);
}

/* ---- which format holds a source ---- */

bool proa_coded_same_order(const proa_tensor_source *a, const proa_tensor_source *b)
{
    bool permuted = proa_coded_is_permuted(a);
    if (permuted != proa_coded_is_permuted(b)) return false;
    size_t bytes = (size_t)proa_tensor_source_cols(a) * sizeof(int32_t);
    return !permuted || (a->scaled->col_group == b->scaled->col_group &&
                         memcmp(a->scaled->group_of, b->scaled->group_of, bytes) == 0);
}

void proa_coded_order(int32_t *order, const proa_tensor_source *permuted)
{
    const proa_scaled_codes *s = permuted->scaled;
    int64_t K = proa_tensor_source_cols(permuted);
    int32_t *next = proa_calloc((size_t)(K / s->col_group), sizeof *next); /* of each group, how many are placed */
    for (int64_t k = 0; k < K; k++)
        order[s->group_of[k] * s->col_group + next[s->group_of[k]]++] = (int32_t)k;
    free(next);
}

const int32_t *proa_coded_order_of(const proa_weight *w)
{
    if (!w->permuted) return NULL;
    if (proa_wfmt_is_grouped(w->format)) return proa_group_order(w);
    return (const int32_t *)(const void *)((const char *)w->data +
                                           proa_coded_layout_of(w->format, w->N, w->K).order_at);
}

/* The format of codes in bytes: with one scale a row, or in groups. */
static proa_wfmt byte_format(const proa_scaled_codes *s, int64_t K)
{
    const bool row = !s->group_of && s->col_group >= K && !s->has_zeros,
               centred = s->zero == (s->kind == PROA_CODE_U8 ? 128 : 0);
    return row && centred ? PROA_WFMT_I8W : PROA_WFMT_I8G;
}

static bool e4m3_format(proa_wfmt *format, const proa_scaled_codes *s, int64_t K)
{
    *format = s->col_group >= K ? PROA_WFMT_FP8 : PROA_WFMT_FP8G;
    return !s->group_of && !s->has_zeros && s->zero == 0 &&
           (s->col_group >= K || s->col_group % PROA_CODED_STEP == 0);
}

/* The format that keeps these codes as they are. False: there is none, so they have to be decoded. */
static bool scaled_format(proa_wfmt *format, const proa_scaled_codes *s, int64_t K)
{
    if (s->kind == PROA_CODE_FP8) return e4m3_format(format, s, K);
    *format = PROA_WFMT_I8G;
    if (s->kind == PROA_CODE_I8 || s->kind == PROA_CODE_U8) *format = byte_format(s, K);
    else if (s->kind == PROA_CODE_FP4) {
        if (s->col_group == PROA_CODES && s->scale.dtype == PROA_DTYPE_U8) *format = PROA_WFMT_MXFP4W;
    } else if (s->col_group % PROA_CODES == 0 && proa_scaled_has_whole_groups(s, K)) {
        bool whole = s->col_group % PROA_I4_GROUP == 0,
             centred = !s->has_zeros && s->zero == (s->kind == PROA_CODE_U2 ? 1 : 8);
        *format = !whole ? PROA_WFMT_I4A32 : centred && !s->group_of ? PROA_WFMT_I4 : PROA_WFMT_I4A;
    }
    return true;
}

bool proa_coded_format(proa_wfmt *format, const proa_tensor_source *source)
{
    *format = PROA_WFMT_I4A32;
    if (proa_tensor_source_is_changed(source) || proa_tensor_source_is_turned(source)) return false;
    if (!proa_tensor_source_keeps_groups(source)) return false;
    if (!proa_encoding_is_readable(source->encoding) || proa_tensor_source_is_float(source)) return false;
    switch (source->encoding) {
    case PROA_ENCODING_Q4_0:
    case PROA_ENCODING_Q4_1:
    case PROA_ENCODING_Q4_K: return true;
    case PROA_ENCODING_MXFP4: return *format = PROA_WFMT_MXFP4W, true;
    case PROA_ENCODING_SCALED: return scaled_format(format, source->scaled, proa_tensor_source_cols(source));
    default: return *format = PROA_WFMT_I8G, proa_encoding_numbers(source->encoding) > 0;
    }
}

static bool is_e4m3(proa_wfmt format)
{
    return format == PROA_WFMT_FP8 || format == PROA_WFMT_FP8G;
}

/* Four bits but e2m1: the later one holds the earlier ones' codes. */
static bool is_integer4(proa_wfmt format)
{
    return proa_wfmt_is_int4(format) && format != PROA_WFMT_MXFP4W;
}

bool proa_coded_merge(proa_wfmt *format, proa_wfmt other)
{
    if (*format == other) return true;
    if (is_e4m3(*format) || is_e4m3(other)) {
        const bool both = is_e4m3(*format) && is_e4m3(other);
        *format = PROA_WFMT_FP8G;
        return both;
    }
    if (!is_integer4(*format) || !is_integer4(other)) *format = PROA_WFMT_I8G;
    else if (other > *format) *format = other;
    return true;
}

bool proa_coded_reads(proa_wfmt format, const proa_tensor_source *sources, int count)
{
    const bool exact = format == PROA_WFMT_I4 || format == PROA_WFMT_I8W || format == PROA_WFMT_FP8;
    for (int i = 0; i < count && exact; i++) {
        proa_wfmt holds;
        if (!proa_coded_format(&holds, &sources[i]) || holds != format) return false;
    }
    return true;
}

/* ---- packing ---- */

typedef struct pack_job {
    proa_coded_layout at;
    char *to;
    const proa_weight *w;
    const proa_tensor_source *source;
    int64_t first; /* output of the source's first row */
    const int32_t *order;
} pack_job;

/* Four bits, from input k of a row on. */
static void write_nibbles(char *row, const proa_coded_group *g, int64_t k, int64_t n, int plus)
{
    uint32_t *words = (uint32_t *)(void *)row;
    for (int64_t i = 0; i < n; i += 8) {
        uint32_t word = 0;
        for (int64_t j = 0; j < 8; j++) word |= (uint32_t)(g->code[i + j] + plus) << 4 * proa_coded_nibble(j);
        words[proa_coded_word(k + i)] = word;
    }
}

static void write_factors(proa_wfmt format, char *to, const proa_coded_group *g)
{
    const uint8_t exponent = (uint8_t)g->scale;
    if (format == PROA_WFMT_FP8G) memcpy(to, &g->scale32, 4);
    else if (format == PROA_WFMT_MXFP4W) memcpy(to, &exponent, 1);
    else memcpy(to, &g->scale, 2);
    if (format == PROA_WFMT_I4A || format == PROA_WFMT_I4A32) memcpy(to + 2, &g->offset, 2);
}

/* Writes the group of row n that begins at input k. */
static void write_group(const pack_job *job, const proa_coded_group *g, int64_t n, int64_t k)
{
    const proa_coded_layout *at = &job->at;
    proa_wfmt format = job->w->format;
    char *row = job->to + n * at->row_bytes;
    if (proa_wfmt_is_int4(format)) write_nibbles(row, g, k, at->group, format == PROA_WFMT_MXFP4W ? 0 : 8);
    else
        for (int64_t i = 0; i < at->group; i += 8)
            memcpy(row + proa_coded_byte(format, k + i), g->code + i, 8);
    write_factors(format, job->to + at->scales_at + proa_coded_scale(at, n, k) * at->factor_bytes, g);
}

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const pack_job *job = arg;
    int64_t K = job->w->K, padded = job->at.steps * PROA_CODED_STEP;
    for (int64_t row = begin; row < end; row++)
        for (int64_t k = 0; k < padded; k += job->at.group) {
            proa_coded_group g = {.scale = 0};
            proa_source_span span = {job->source, row, k, proa_min64(job->at.group, K - k), job->order};
            if (k < K) proa_coded_read(job->w->format, &g, &span);
            write_group(job, &g, job->first + row, k);
        }
}

void proa_coded_pack(proa_pool *pool, void *to, const proa_weight *w, const proa_tensor_source *sources, int count)
{
    pack_job job = {.at = proa_coded_layout_of(w->format, w->N, w->K), .to = to, .w = w};
    int64_t rows_end = w->N * job.at.row_bytes;
    memset((char *)to + rows_end, 0, (size_t)(job.at.bytes - rows_end));
    if (w->permuted) {
        int32_t *order = (int32_t *)(void *)((char *)to + job.at.order_at);
        proa_coded_order(order, &sources[0]);
        job.order = order;
    }
    for (int i = 0; i < count; i++) {
        int64_t rows = proa_tensor_source_rows(&sources[i]);
        job.source = &sources[i];
        proa_pool_run(pool, rows, proa_max64(1, 65536 / proa_max64(w->K, 1)), pack_rows, &job);
        job.first += rows;
    }
}

float proa_coded_number(const void *packed, const proa_weight *w, int64_t n, int64_t k)
{
    proa_coded_layout at = proa_coded_layout_of(w->format, w->N, w->K);
    const char *row = (const char *)packed + n * at.row_bytes;
    const char *factors = (const char *)packed + at.scales_at + proa_coded_scale(&at, n, k) * at.factor_bytes;
    proa_coded_group g = {.scale = 0};
    if (proa_wfmt_is_int4(w->format)) {
        const uint32_t *words = (const uint32_t *)(const void *)row;
        int32_t code = (int32_t)(words[proa_coded_word(k)] >> 4 * proa_coded_nibble(k) & 15);
        g.code[0] = (int8_t)(w->format == PROA_WFMT_MXFP4W ? code : code - 8);
    } else g.code[0] = (int8_t)row[proa_coded_byte(w->format, k)];
    if (w->format == PROA_WFMT_FP8G) memcpy(&g.scale32, factors, 4);
    else if (at.factor_bytes == 1) g.scale = *(const uint8_t *)factors;
    else memcpy(&g.scale, factors, 2);
    if (w->format == PROA_WFMT_I4A || w->format == PROA_WFMT_I4A32) memcpy(&g.offset, factors + 2, 2);
    return proa_coded_value(w->format, &g, 0);
}

/* ---- I8W and FP8 ---- */

float proa_coded_read_row(uint8_t *code, const proa_tensor_source *source, int64_t row)
{
    proa_code_kind kind = source->scaled->kind;
    int64_t K = proa_tensor_source_cols(source);
    float scale = NAN;
    bool read = proa_tensor_source_bytes_of(source, kind, row, 0, K, code, &scale);
    PROA_ASSERT(read);
    return kind == PROA_CODE_FP8 && has_nan(code, K) ? NAN : scale;
}

typedef struct rows_job {
    proa_coded_rows at;
    char *to;
    const proa_tensor_source *source;
    int64_t first;
} rows_job;

static void pack_scaled_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const rows_job *job = arg;
    float *scales = (float *)(void *)(job->to + job->at.scales_at);
    for (int64_t row = begin; row < end; row++) {
        int64_t n = job->first + row;
        scales[n] = proa_coded_read_row((uint8_t *)job->to + n * job->at.row_bytes, job->source, row);
    }
}

void proa_coded_pack_rows(proa_pool *pool, void *to, const proa_weight *w, const proa_tensor_source *sources,
                          int count)
{
    rows_job job = {.at = proa_coded_rows_of(w->N, w->K), .to = to};
    memset(to, 0, (size_t)job.at.bytes);
    for (int i = 0; i < count; i++) {
        int64_t rows = proa_tensor_source_rows(&sources[i]);
        job.source = &sources[i];
        proa_pool_run(pool, rows, proa_max64(1, 65536 / proa_max64(w->K, 1)), pack_scaled_rows, &job);
        job.first += rows;
    }
}

/* ---- rectangles ---- */

int64_t proa_wfmt_group(proa_wfmt format)
{
    if (!proa_wfmt_is_quantised(format)) return 1;
    if (proa_wfmt_is_grouped(format)) return PROA_GROUP;
    return proa_wfmt_is_coded(format) ? group_inputs(format) : 0;
}

typedef struct copy_job {
    proa_wfmt format;
    int64_t K; /* of the destination */
    proa_coded_layout at, from_at;
    char *to;
    const char *from;
    proa_packed_rect rect;
} copy_job;

/* Four bits: what is stored for input k. */
static uint32_t read_nibble(const char *row, int64_t k)
{
    return ((const uint32_t *)(const void *)row)[proa_coded_word(k)] >> 4 * proa_coded_nibble(k) & 15U;
}

static void write_nibble(char *row, int64_t k, uint32_t nibble)
{
    uint32_t *word = (uint32_t *)(void *)row + proa_coded_word(k);
    int shift = 4 * proa_coded_nibble(k);
    *word = (*word & ~(15U << shift)) | nibble << shift;
}

/* After the last group of a row: code 0, as the packer writes it. */
static void pad_row(const copy_job *job, char *row, int64_t k)
{
    if (!is_integer4(job->format)) return;
    for (; k < job->at.steps * PROA_CODED_STEP; k++) write_nibble(row, k, 8);
}

static void copy_coded_row(const copy_job *job, int64_t i)
{
    const proa_packed_rect *r = &job->rect;
    const proa_wfmt format = job->format;
    int64_t n = r->to_row + i, from_n = r->from_row + i, group = job->at.group;
    char *to = job->to + n * job->at.row_bytes;
    const char *from = job->from + from_n * job->from_at.row_bytes;
    int64_t cols = proa_round_up(r->cols, group); /* with the padding of the last group */
    for (int64_t k = 0; k < cols; k++) {
        int64_t to_k = r->to_col + k, from_k = r->from_col + k;
        if (proa_wfmt_is_int4(format)) write_nibble(to, to_k, read_nibble(from, from_k));
        else to[proa_coded_byte(format, to_k)] = from[proa_coded_byte(format, from_k)];
    }
    if (r->to_col + r->cols == job->K) pad_row(job, to, r->to_col + cols);
    for (int64_t k = 0; k < cols; k += group)
        memcpy(job->to + job->at.scales_at + proa_coded_scale(&job->at, n, r->to_col + k) * job->at.factor_bytes,
               job->from + job->from_at.scales_at +
                   proa_coded_scale(&job->from_at, from_n, r->from_col + k) * job->at.factor_bytes,
               (size_t)job->at.factor_bytes);
}

static void copy_coded_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++) copy_coded_row(arg, i);
}

float proa_coded_row_scale(const proa_weight *w, int64_t row)
{
    float scale;
    memcpy(&scale, (const char *)w->data + proa_coded_rows_of(w->N, w->K).scales_at + 4 * row, 4);
    return scale;
}

/* Each part of a row has its scale. */
static void copy_scaled_rows(proa_weight *to, const proa_weight *from, const proa_packed_rect *rect)
{
    proa_coded_rows at = proa_coded_rows_of(to->N, to->K), from_at = proa_coded_rows_of(from->N, from->K);
    const proa_packed_rect scales = {rect->rows, 1, rect->to_row, 0, rect->from_row, 0};
    proa_copy_rows(to->data, at.row_bytes, from->data, from_at.row_bytes, 1, rect);
    proa_copy_rows((char *)to->data + at.scales_at, 4, (char *)from->data + from_at.scales_at, 4, 4, &scales);
}

void proa_coded_copy(proa_pool *pool, proa_weight *to, const proa_weight *from, const proa_packed_rect *rect)
{
    const proa_wfmt format = to->format;
    int64_t size = format == PROA_WFMT_F32 ? 4 : 2;
    if (format == PROA_WFMT_I8W || format == PROA_WFMT_FP8) {
        copy_scaled_rows(to, from, rect);
    } else if (!proa_wfmt_is_coded(format)) {
        proa_copy_rows(to->data, proa_plain_leading_dim(format, to->K) * size, from->data,
                       proa_plain_leading_dim(format, from->K) * size, size, rect);
    } else {
        copy_job job = {format,
                        to->K,
                        proa_coded_layout_of(format, to->N, to->K),
                        proa_coded_layout_of(format, from->N, from->K),
                        to->data,
                        from->data,
                        *rect};
        proa_pool_run(pool, rect->rows, proa_max64(1, 65536 / proa_max64(rect->cols, 1)), copy_coded_rows, &job);
    }
}
