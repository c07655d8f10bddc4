/* SPDX-License-Identifier: Apache-2.0
 * test_coded.c - weights in codes as a GPU reads them: which format holds a source, its codes kept bit for bit, and
 * the packed bytes read back by the drawing of coded.h. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/compiler.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include "tensor/scaled.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { N = 21, K = 384 };

static uint64_t seed;

static uint32_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* A matrix [N, K] of four-bit codes with scales in f16 and, if asked, zero points. */
typedef struct stored {
    uint8_t code[N * K / 2], zero[N * K / 32];
    uint16_t scale[N * K / 32];
    proa_scaled_codes scaled;
    proa_tensor_source source;
} stored;

static void store(stored *s, int64_t group, bool zeros)
{
    int64_t groups = K / group;
    seed = (uint64_t)group + zeros;
    for (size_t i = 0; i < sizeof s->code; i++) s->code[i] = (uint8_t)next_random();
    for (int64_t i = 0; i < N * groups; i++) {
        s->scale[i] = proa_f32_to_f16(0.01f + 0.001f * (float)(next_random() % 100));
        s->zero[i] = (uint8_t)(next_random() % 16);
    }
    s->scaled = (proa_scaled_codes){
        .kind = PROA_CODE_U4, .row_group = 1, .col_group = group, .zero = zeros ? 0 : 8};
    s->scaled.code = (proa_code_layout){.data = s->code, .row = {8 * K, K}, .col = {1}, .cols = 1};
    s->scaled.scale = proa_view_2d(s->scale, PROA_DTYPE_F16, N, groups);
    s->scaled.has_zeros = zeros, s->scaled.zero_kind = PROA_CODE_U8;
    s->scaled.zeros = (proa_code_layout){.data = s->zero, .row = {8 * groups, groups}, .col = {1}, .cols = 1};
    s->source = (proa_tensor_source){.encoding = PROA_ENCODING_SCALED,
                                     .scaled = &s->scaled,
                                     .view = proa_view_2d(s->code, PROA_DTYPE_F16, N, K)};
}

static void chooses_formats(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        int64_t group;
        bool zeros;
        proa_wfmt format;
    } cases[] = {{128, false, PROA_WFMT_I4}, {384, false, PROA_WFMT_I4},   {128, true, PROA_WFMT_I4A},
                 {384, true, PROA_WFMT_I4A}, {64, false, PROA_WFMT_I4A32}, {32, true, PROA_WFMT_I4A32},
                 {96, true, PROA_WFMT_I4A32}};
    stored s;
    proa_wfmt format;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        store(&s, cases[i].group, cases[i].zeros);
        assert_true(proa_coded_format(&format, &s.source));
        assert_int_equal(format, cases[i].format);
    }
    store(&s, 48, false); /* no whole groups of 32: rounded */
    assert_true(proa_coded_format(&format, &s.source));
    assert_int_equal(format, PROA_WFMT_I8G);
    float factor[N] = {0};
    s.source.factor = factor;
    assert_false(proa_coded_format(&format, &s.source));
    proa_tensor_source plain = proa_tensor_source_of(proa_view_2d(s.code, PROA_DTYPE_F32, 1, 32));
    assert_false(proa_coded_format(&format, &plain));
    assert_false(proa_coded_reads(PROA_WFMT_I4, &plain, 1));
    assert_true(proa_coded_reads(PROA_WFMT_I4A, &plain, 1));
}

/* Code of number (n, k) by the drawing, without the functions of coded.h: the step of 64 bytes, in it the lane of 16
 * bytes, in it the word. */
static int code_by_drawing(const uint8_t *packed, int64_t row_bytes, int64_t n, int64_t k)
{
    int64_t step = k / 128, group = k % 128 / 32, lane = k % 32 / 8, i = k % 8;
    const uint8_t *at = packed + n * row_bytes + step * 64 + lane * 16 + group * 4;
    uint32_t word = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return (int)(word >> 4 * (i % 2 ? 4 + i / 2 : i / 2) & 15) - 8;
}

static void check_packed(const stored *s, proa_wfmt format, proa_pool *pool)
{
    proa_weight w = {.format = format, .N = N + N, .K = K};
    proa_coded_layout at = proa_coded_layout_of(format, w.N, K);
    proa_tensor_source both[2] = {s->source, s->source}; /* stacked; the second begins within a tile of factors */
    assert_int_equal(at.row_bytes, 192);
    assert_int_equal(at.scales_at % 256, 0);
    uint8_t *packed = proa_malloc((size_t)at.bytes + 16);
    memset(packed, 0xa5, (size_t)at.bytes + 16);
    proa_coded_pack(pool, packed, &w, both, 2);
    for (int i = 0; i < 16; i++) assert_int_equal(packed[at.bytes + i], 0xa5);
    for (int64_t n = 0; n < w.N; n++)
        for (int64_t k = 0; k < K; k++) {
            int stored_code = s->code[(n % N * K + k) / 2] >> k % 2 * 4 & 15;
            float want;
            assert_int_equal(code_by_drawing(packed, at.row_bytes, n, k), stored_code - 8);
            proa_tensor_source_read(&s->source, n % N, k, 1, &want);
            float scale = proa_f16_to_f32(s->scale[n % N * (K / s->scaled.col_group) + k / s->scaled.col_group]);
            float have = proa_coded_number(packed, &w, n, k);
            assert_true(fabsf(have - want) <= (s->scaled.has_zeros ? 0.004f * scale : 0.0f));
        }
    free(packed);
}

static void keeps_codes(void **state)
{
    PROA_UNUSED(state);
    stored s;
    proa_pool *pool = proa_pool_new(2);
    static const int64_t groups[] = {32, 64, 96, 128, 384};
    for (size_t i = 0; i < PROA_COUNT(groups); i++)
        for (int zeros = 0; zeros < 2; zeros++) {
            proa_wfmt format;
            store(&s, groups[i], zeros);
            assert_true(proa_coded_format(&format, &s.source));
            for (; format <= PROA_WFMT_I4A32; format++)
                check_packed(&s, format, pool); /* the wider ones too */
        }
    proa_pool_free(pool);
}

/* GPTQ's act-order: the packed row has the columns by groups. */
static void orders_columns(void **state)
{
    PROA_UNUSED(state);
    static int32_t group_of[K], order[K];
    stored s;
    store(&s, 96, true);
    for (int k = 0; k < K; k++) group_of[k] = (k * 5 + 3) % K / 96; /* 5 and K have no common factor */
    s.scaled.group_of = group_of;
    proa_weight w = {.N = N, .K = K, .permuted = true};
    assert_true(proa_coded_format(&w.format, &s.source));
    assert_int_equal(w.format, PROA_WFMT_I4A32);
    assert_true(proa_coded_is_permuted(&s.source) && proa_coded_same_order(&s.source, &s.source));
    proa_coded_order(order, &s.source);
    proa_coded_layout at = proa_coded_layout_of(w.format, N, K);
    char *packed = proa_malloc((size_t)at.bytes);
    proa_pool *pool = proa_pool_new(1);
    proa_coded_pack(pool, packed, &w, &s.source, 1);
    assert_memory_equal(packed + at.order_at, order, sizeof order);
    for (int k = 0; k < K; k++) {
        float want;
        assert_int_equal(group_of[order[k]], k / 96);
        assert_true(k % 96 == 0 || order[k] > order[k - 1]);
        for (int n = 0; n < N; n++) {
            proa_tensor_source_read(&s.source, n, order[k], 1, &want);
            assert_true(fabsf(proa_coded_number(packed, &w, n, k) - want) < 0.001f);
            int column = order[k], code = s.code[(n * K + column) / 2] >> column % 2 * 4 & 15;
            assert_int_equal(code_by_drawing((uint8_t *)packed, at.row_bytes, n, k), code - 8);
        }
    }
    group_of[0] = group_of[0] ? 0 : 1; /* one group is larger than another */
    assert_true(proa_coded_format(&w.format, &s.source));
    assert_int_equal(w.format, PROA_WFMT_I8G);
    proa_pool_free(pool);
    free(packed);
}

/* The same in the formats of a CPU: codes with the middle as zero point, and with any. */
static void orders_groups(void **state)
{
    PROA_UNUSED(state);
    static int32_t group_of[K], order[K];
    for (int zeros = 0; zeros < 2; zeros++) {
        stored s;
        proa_wfmt format;
        store(&s, 96, zeros);
        for (int k = 0; k < K; k++) group_of[k] = (k * 5 + 3) % K / 96;
        s.scaled.group_of = group_of;
        assert_true(proa_group_format(&format, &s.source));
        assert_int_equal(format, zeros ? PROA_WFMT_Q4_1 : PROA_WFMT_Q4_0);
        proa_coded_order(order, &s.source);
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++) {
                proa_quant_group g;
                float want;
                proa_source_span span = {&s.source, n, k / PROA_GROUP * PROA_GROUP, PROA_GROUP, order};
                proa_group_read(format, &g, &span);
                proa_tensor_source_read(&s.source, n, order[k], 1, &want);
                float number = (float)(g.code[k % PROA_GROUP] - proa_group_zero(format)) *
                                   proa_f16_to_f32(g.scale) +
                               proa_f16_to_f32(g.min);
                assert_true(fabsf(number - want) < 0.001f);
                int code = s.code[(n * K + order[k]) / 2] >> order[k] % 2 * 4 & 15;
                assert_int_equal(g.code[k % PROA_GROUP], code);
            }
        group_of[0] = group_of[0] ? 0 : 1; /* one group is larger than another */
        assert_true(proa_group_format(&format, &s.source));
        assert_int_equal(format, PROA_WFMT_Q8_0);
    }
}

/* Numbers are rounded to within half a step of their group, and a group with NaN becomes NaN. */
static void rounds_numbers(void **state)
{
    PROA_UNUSED(state);
    float numbers[200];
    seed = 5;
    for (int i = 0; i < 200; i++) numbers[i] = 3.0f + (float)(next_random() % 1000) * 0.001f;
    numbers[160] = NAN;
    proa_tensor_source source = proa_tensor_source_of(proa_view_2d(numbers, PROA_DTYPE_F32, 1, 200));
    proa_weight w = {.format = PROA_WFMT_I4A32, .N = 1, .K = 200};
    proa_coded_layout at = proa_coded_layout_of(w.format, 1, 200);
    void *packed = proa_malloc((size_t)at.bytes);
    proa_pool *pool = proa_pool_new(1);
    proa_coded_pack(pool, packed, &w, &source, 1);
    proa_pool_free(pool);
    for (int k = 0; k < 200; k++) {
        float have = proa_coded_number(packed, &w, 0, k);
        if (k / 32 == 5) assert_true(isnan(have));
        else assert_true(fabsf(have - numbers[k]) < 1.0f / 15 / 2 + 0.003f);
    }
    free(packed);
}

/* MXFP4 as gpt-oss stores it: the codes and exponents as they are. */
static void keeps_mxfp4(void **state)
{
    PROA_UNUSED(state);
    static uint8_t codes[N * K / 2], exponents[N * K / 32];
    seed = 9;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)next_random();
    for (size_t i = 0; i < sizeof exponents; i++) exponents[i] = (uint8_t)(100 + next_random() % 50);
    proa_scaled_codes scaled = {.kind = PROA_CODE_FP4, .row_group = 1, .col_group = 32};
    scaled.code = (proa_code_layout){.data = codes, .row = {8 * K, K}, .col = {1}, .cols = 1};
    scaled.scale = proa_view_2d(exponents, PROA_DTYPE_U8, N, K / 32);
    proa_tensor_source source = {.encoding = PROA_ENCODING_SCALED, .scaled = &scaled};
    source.view = proa_view_2d(codes, PROA_DTYPE_F16, N, K);
    proa_weight w = {.N = N, .K = K};
    assert_true(proa_coded_format(&w.format, &source));
    assert_int_equal(w.format, PROA_WFMT_MXFP4W);
    proa_coded_layout at = proa_coded_layout_of(w.format, N, K);
    uint8_t *packed = proa_malloc((size_t)at.bytes);
    proa_pool *pool = proa_pool_new(1);
    proa_coded_pack(pool, packed, &w, &source, 1);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            int code = codes[(n * K + k) / 2] >> k % 2 * 4 & 15;
            float want;
            proa_tensor_source_read(&source, n, k, 1, &want);
            assert_true(proa_coded_number(packed, &w, n, k) == want);
            int have = code_by_drawing(packed, at.row_bytes, n, k) + 8;
            assert_true(have == code || (code == 8 && have == 0)); /* -0 is 0 */
            int64_t byte = at.scales_at + ((n / 8 * 3 + k / 128) * 8 + n % 8) * 4 + k % 128 / 32;
            assert_int_equal(packed[byte], exponents[n * (K / 32) + k / 32]);
        }
    proa_pool_free(pool);
    free(packed);
}

/* Numbers become the nearest e2m1 of their group's scale. */
static void rounds_to_mxfp4(void **state)
{
    PROA_UNUSED(state);
    static const float numbers[32] = {5.5f, -5.4f, 0.2f, 0.3f, 0.75f, 1.2f, 2.6f, -3.4f, 7.9f};
    static const float want[9] = {6, -6, 0, 0.5f, 0.5f, 1, 3, -3, 6};
    proa_tensor_source source = proa_tensor_source_of(
        proa_view_2d((void *)(uintptr_t)numbers, PROA_DTYPE_F32, 1, 32));
    proa_coded_group g;
    proa_coded_read(PROA_WFMT_MXFP4W, &g, &(proa_source_span){&source, 0, 0, 32, NULL});
    assert_int_equal(g.scale, 127);
    for (int i = 0; i < 9; i++) assert_true(proa_coded_value(PROA_WFMT_MXFP4W, &g, i) == want[i]);
}

/* Codes of one byte with a scale in f32 for each block of [row_group, col_group]. */
typedef struct stored_bytes {
    uint8_t code[N * K];
    float scale[N * K / 32];
    proa_scaled_codes scaled;
    proa_tensor_source source;
} stored_bytes;

static void store_bytes(stored_bytes *s, proa_code_kind kind, int64_t row_group, int64_t col_group)
{
    int64_t rows = (N + row_group - 1) / row_group, groups = K / col_group;
    seed = (uint64_t)(row_group + col_group);
    for (int i = 0; i < N * K; i++) {
        s->code[i] = (uint8_t)next_random();
        if (kind == PROA_CODE_FP8 && (s->code[i] & 0x7f) == 0x7f) s->code[i] ^= 1; /* no NaN */
    }
    for (int64_t i = 0; i < rows * groups; i++) {
        float scale = 0.01f + 0.001f * (float)(next_random() % 100);
        s->scale[i] = kind == PROA_CODE_FP8 ? scale : proa_f16_to_f32(proa_f32_to_f16(scale));
    }
    s->scaled = (proa_scaled_codes){.kind = kind, .row_group = row_group, .col_group = col_group};
    s->scaled.zero = kind == PROA_CODE_U8 ? 128 : 0;
    s->scaled.code = (proa_code_layout){.data = s->code, .row = {8 * K, K}, .col = {1}, .cols = 1};
    s->scaled.scale = proa_view_2d(s->scale, PROA_DTYPE_F32, rows, groups);
    s->source = (proa_tensor_source){.encoding = PROA_ENCODING_SCALED,
                                     .scaled = &s->scaled,
                                     .view = proa_view_2d(s->code, PROA_DTYPE_F16, N, K)};
}

/* Two such sources as one weight: each byte where the drawing says, each number as it is stored. */
static void check_bytes(const stored_bytes *s, proa_wfmt format, proa_pool *pool)
{
    proa_weight w = {.format = format, .N = N + N, .K = K};
    proa_coded_layout at = proa_coded_layout_of(format, w.N, K);
    proa_tensor_source both[2] = {s->source, s->source};
    uint8_t *packed = proa_malloc((size_t)at.bytes + 16), flip = s->scaled.kind == PROA_CODE_U8 ? 0x80 : 0;
    memset(packed, 0xa5, (size_t)at.bytes + 16);
    assert_int_equal(at.row_bytes, K);
    assert_true(proa_coded_is_kept(format, both, 2));
    proa_coded_pack(pool, packed, &w, both, 2);
    for (int i = 0; i < 16; i++) assert_int_equal(packed[at.bytes + i], 0xa5);
    for (int64_t n = 0; n < w.N; n++)
        for (int64_t k = 0; k < K; k++) {
            float want;
            int64_t lane = k % 32 / 8, in_half = lane * 16 + k % 64 / 32 * 8 + k % 8;
            int64_t byte = format == PROA_WFMT_FP8G ? k : k / 64 * 64 + in_half;
            proa_tensor_source_read(&s->source, n % N, k, 1, &want);
            assert_int_equal(packed[n * at.row_bytes + byte], s->code[n % N * K + k] ^ flip);
            assert_true(proa_coded_number(packed, &w, n, k) == want);
        }
    free(packed);
}

static void keeps_bytes(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        proa_code_kind kind;
        int64_t row_group, col_group;
        proa_wfmt format;
    } cases[] = {{PROA_CODE_I8, 1, 32, PROA_WFMT_I8G},      {PROA_CODE_U8, 1, 128, PROA_WFMT_I8G},
                 {PROA_CODE_I8, 1, 96, PROA_WFMT_I8G},      {PROA_CODE_U8, 1, K, PROA_WFMT_I8W},
                 {PROA_CODE_I8, 1, K, PROA_WFMT_I8W},       {PROA_CODE_I8, N, K, PROA_WFMT_I8W},
                 {PROA_CODE_FP8, 128, 128, PROA_WFMT_FP8G}, {PROA_CODE_FP8, 1, 128, PROA_WFMT_FP8G},
                 {PROA_CODE_FP8, 1, K, PROA_WFMT_FP8},      {PROA_CODE_FP8, N, K, PROA_WFMT_FP8}};
    static stored_bytes s;
    proa_pool *pool = proa_pool_new(2);
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_wfmt format;
        store_bytes(&s, cases[i].kind, cases[i].row_group, cases[i].col_group);
        assert_true(proa_coded_format(&format, &s.source));
        assert_int_equal(format, cases[i].format);
        check_bytes(&s, cases[i].kind == PROA_CODE_FP8 ? PROA_WFMT_FP8G : PROA_WFMT_I8G, pool); /* those of rows too */
    }
    store_bytes(&s, PROA_CODE_FP8, 1, 64); /* two groups in a step */
    proa_wfmt format;
    assert_false(proa_coded_format(&format, &s.source));
    proa_pool_free(pool);
}

/* I8W and FP8: the codes and scales of each row, in their order. A NaN makes its row NaN. */
static void keeps_rows(void **state)
{
    PROA_UNUSED(state);
    static stored_bytes s;
    proa_pool *pool = proa_pool_new(2);
    for (int e4m3 = 0; e4m3 < 2; e4m3++) {
        store_bytes(&s, e4m3 ? PROA_CODE_FP8 : PROA_CODE_I8, e4m3 ? N : 1, K);
        if (e4m3) s.code[3 * K + 5] = 0xff;
        proa_weight w = {.format = e4m3 ? PROA_WFMT_FP8 : PROA_WFMT_I8W, .N = N, .K = K};
        proa_coded_rows at = proa_coded_rows_of(N, K);
        uint8_t *packed = proa_malloc((size_t)at.bytes);
        assert_true(proa_coded_is_kept(w.format, &s.source, 1));
        assert_false(proa_coded_is_kept(e4m3 ? PROA_WFMT_I8W : PROA_WFMT_FP8, &s.source, 1));
        proa_coded_pack_rows(pool, packed, &w, &s.source, 1);
        const float *scales = (const float *)(const void *)(packed + at.scales_at);
        for (int n = 0; n < N; n++) {
            assert_memory_equal(packed + n * at.row_bytes, s.code + n * K, K);
            if (e4m3 && n == 3) assert_true(isnan(scales[n]));
            else assert_true(scales[n] == s.scale[e4m3 ? 0 : n]);
        }
        free(packed);
    }
    proa_pool_free(pool);
}

static void merges_formats(void **state)
{
    PROA_UNUSED(state);
    static const proa_wfmt cases[][3] = {{PROA_WFMT_I4, PROA_WFMT_I4A32, PROA_WFMT_I4A32},
                                         {PROA_WFMT_I4A, PROA_WFMT_I4, PROA_WFMT_I4A},
                                         {PROA_WFMT_I4A32, PROA_WFMT_I8G, PROA_WFMT_I8G},
                                         {PROA_WFMT_MXFP4W, PROA_WFMT_I4, PROA_WFMT_I8G},
                                         {PROA_WFMT_I8W, PROA_WFMT_I8G, PROA_WFMT_I8G},
                                         {PROA_WFMT_FP8, PROA_WFMT_FP8, PROA_WFMT_FP8},
                                         {PROA_WFMT_FP8, PROA_WFMT_FP8G, PROA_WFMT_FP8G},
                                         {PROA_WFMT_MXFP4W, PROA_WFMT_MXFP4W, PROA_WFMT_MXFP4W}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_wfmt format = cases[i][0];
        assert_true(proa_coded_merge(&format, cases[i][1]));
        assert_int_equal(format, cases[i][2]);
    }
    proa_wfmt format = PROA_WFMT_FP8;
    assert_false(proa_coded_merge(&format, PROA_WFMT_I8W));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chooses_formats), cmocka_unit_test(keeps_codes),
                                       cmocka_unit_test(orders_columns),  cmocka_unit_test(orders_groups),
                                       cmocka_unit_test(rounds_numbers),  cmocka_unit_test(keeps_mxfp4),
                                       cmocka_unit_test(rounds_to_mxfp4), cmocka_unit_test(keeps_bytes),
                                       cmocka_unit_test(keeps_rows),      cmocka_unit_test(merges_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
