/* SPDX-License-Identifier: Apache-2.0
 * check_coded.c - linear with codes as public quantisers store them: the packed weight keeps them. */
#include "check.h"

#include "tensor/scaled.h"
#include <math.h>

/* A stored matrix [N, K]. */
typedef struct stored {
    uint8_t *code, *zero;
    uint16_t *scale;
    proa_scaled_codes scaled;
    proa_tensor_source source;
} stored;

static stored stored_make(int64_t N, int64_t K, int64_t group, bool zeros)
{
    stored s = {.code = malloc((size_t)(N * K / 2)), .zero = malloc((size_t)(N * (K / group)))};
    uint64_t seed = (uint64_t)(N + K + group);
    s.scale = malloc((size_t)(N * (K / group)) * sizeof *s.scale);
    PROA_ASSERT(s.code && s.zero && s.scale);
    for (int64_t i = 0; i < N * K / 2; i++) s.code[i] = (uint8_t)rng_below(&seed, 256);
    for (int64_t i = 0; i < N * (K / group); i++) {
        s.scale[i] = proa_f32_to_f16(0.05f + 0.002f * (float)rng_below(&seed, 100));
        s.zero[i] = (uint8_t)rng_below(&seed, 16);
    }
    s.scaled = (proa_scaled_codes){
        .kind = PROA_CODE_U4, .row_group = 1, .col_group = group, .zero = zeros ? 0 : 8};
    s.scaled.code = (proa_code_layout){.data = s.code, .row = {8 * K, K}, .col = {1}, .cols = 1};
    s.scaled.scale = proa_view_2d(s.scale, PROA_DTYPE_F16, N, K / group);
    s.scaled.has_zeros = zeros, s.scaled.zero_kind = PROA_CODE_U8;
    s.scaled.zeros = (proa_code_layout){
        .data = s.zero, .row = {8 * (K / group), K / group}, .col = {1}, .cols = 1};
    return s;
}

/* The columns of each group spread over the matrix, as act-order leaves them. */
static int32_t *spread_groups(int64_t K, int64_t group)
{
    int32_t *of = malloc((size_t)K * sizeof *of);
    uint64_t seed = (uint64_t)K;
    PROA_ASSERT(of);
    for (int64_t k = 0; k < K; k++) of[k] = (int32_t)(k / group);
    for (int64_t k = K - 1; k > 0; k--) {
        int64_t other = rng_below(&seed, k + 1);
        int32_t was = of[k];
        of[k] = of[other], of[other] = was;
    }
    return of;
}

typedef enum columns { IN_ORDER, SPREAD } columns;

static void stored_case(tester *t, proa_wfmt format, int64_t T, int64_t N, int64_t K, int64_t group,
                        bool zeros, columns order)
{
    if (t->tables[0].ops->pack_bytes(format, N, K) < 0 || !takes_turn(t)) return;
    stored s = stored_make(N, K, group, zeros);
    int32_t *group_of = order == SPREAD ? spread_groups(K, group) : NULL;
    s.scaled.group_of = group_of;
    proa_tensor_source source = {.encoding = PROA_ENCODING_SCALED,
                                 .scaled = &s.scaled,
                                 .view = proa_view_2d(s.code, PROA_DTYPE_F16, N, K)};
    const int64_t in[] = {T, K}, of[] = {T, N};
    canvas x = canvas_make(2, in, 0, 0), y = canvas_make(2, of, 0, 0), right = canvas_make(2, of, 0, 0);
    test_weight ref = test_weight_pack(&t->reference, format, K, &source, 1);
    test_weight mine = test_weight_pack(&t->tables[0], format, K, &source, 1);
    canvas_fill(&x, 41, false);
    device_mode.limit = 3e-3, device_mode.floor = sqrt((double)K) / 4;
    const proa_epilogue plain = {.residual.rank = 0};
    t->reference.ops->linear(&t->reference, right.view, x.view, &ref.w, &plain);
    t->tables[0].ops->linear(&t->tables[0], y.view, x.view, &mine.w, &plain);
    double worst = compare_rows(y.view, right.view, TOL_EXACT);
    if (proa_wfmt_is_grouped(format))
        expect(t, same_bits(y.view, right.view, 0, T), "%s of stored codes: other bits", proa_wfmt_name(format));
    expect(t, worst <= 1.0,
           "%s of stored codes [%d,%d]x[%d] groups of %d, zeros %d, spread %d: off by %g tolerances",
           proa_wfmt_name(format), (int)T, (int)K, (int)N, (int)group, zeros, order == SPREAD, worst);
    expect(t, test_weight_guard_holds(&mine) && canvas_guards_hold(&y), "%s of stored codes: wrote outside",
           proa_wfmt_name(format));
    test_weight_free(&ref), test_weight_free(&mine);
    canvas_free(&x), canvas_free(&y), canvas_free(&right);
    free(s.code), free(s.zero), free(s.scale), free(group_of);
}

/* Codes of one byte, any but the NaN of e4m3, with scales of f32 in blocks of row_group outputs and `group` inputs. */
static stored stored_bytes(proa_code_kind kind, int64_t N, int64_t K, int64_t row_group, int64_t group)
{
    int64_t rows = (N + row_group - 1) / row_group, groups = (K + group - 1) / group;
    stored s = {.code = malloc((size_t)(N * K)), .scale = malloc((size_t)(rows * groups) * sizeof(float))};
    uint64_t seed = (uint64_t)(N + K + group);
    float *scale = (float *)(void *)s.scale;
    PROA_ASSERT(s.code && scale);
    for (int64_t i = 0; i < N * K; i++) {
        s.code[i] = (uint8_t)rng_below(&seed, 256);
        if (kind == PROA_CODE_FP8 && (s.code[i] & 0x7f) == 0x7f) s.code[i] ^= 1;
    }
    for (int64_t i = 0; i < rows * groups; i++)
        scale[i] = (kind == PROA_CODE_FP8 ? 0.001f : 0.004f) * (1.0f + 0.01f * (float)rng_below(&seed, 100));
    s.scaled = (proa_scaled_codes){.kind = kind, .row_group = row_group, .col_group = group};
    s.scaled.code = (proa_code_layout){.data = s.code, .row = {8 * K, K}, .col = {1}, .cols = 1};
    s.scaled.scale = proa_view_2d(scale, PROA_DTYPE_F32, rows, groups);
    return s;
}

/* The row n of the stored matrix in f32, times x. */
static double stored_dot(const proa_tensor_source *source, int64_t n, const float *x, float *numbers)
{
    int64_t K = source->view.shape[1];
    double sum = 0;
    proa_tensor_source_read(source, n, 0, K, numbers);
    for (int64_t k = 0; k < K; k++) sum += (double)numbers[k] * (double)x[k];
    return sum;
}

/* Against the numbers that are stored: a format that keeps the codes has no other error than that of x. */
static void bytes_case(tester *t, proa_wfmt format, proa_code_kind kind, int64_t T, int64_t N, int64_t K,
                       int64_t row_group, int64_t group)
{
    if (!takes_turn(t)) return;
    stored s = stored_bytes(kind, N, K, row_group, group);
    proa_tensor_source source = {.encoding = PROA_ENCODING_SCALED,
                                 .scaled = &s.scaled,
                                 .view = proa_view_2d(s.code, PROA_DTYPE_F16, N, K)};
    const int64_t in[] = {T, K}, of[] = {T, N};
    canvas x = canvas_make(2, in, 0, 0), y = canvas_make(2, of, 0, 0), right = canvas_make(2, of, 0, 0);
    test_weight mine = test_weight_pack(&t->tables[0], format, K, &source, 1);
    float *numbers = malloc((size_t)K * sizeof *numbers);
    PROA_ASSERT(numbers);
    canvas_fill(&x, 43, false);
    for (int64_t i = 0; i < T; i++)
        for (int64_t n = 0; n < N; n++)
            proa_view_f32(right.view)[i * right.view.stride[0] + n] = (float)stored_dot(
                &source, n, proa_view_f32(x.view) + i * x.view.stride[0], numbers);
    device_mode.limit = format == PROA_WFMT_FP8 ? 1e-1 : 3e-3, device_mode.floor = sqrt((double)K) / 4;
    const proa_epilogue plain = {.residual.rank = 0};
    t->tables[0].ops->linear(&t->tables[0], y.view, x.view, &mine.w, &plain);
    double worst = compare_rows(y.view, right.view, TOL_EXACT);
    expect(t, worst <= 1.0, "%s of stored bytes [%d,%d]x[%d], scales of [%d,%d]: off by %g tolerances",
           proa_wfmt_name(format), (int)T, (int)K, (int)N, (int)row_group, (int)group, worst);
    expect(t, test_weight_guard_holds(&mine) && canvas_guards_hold(&y), "%s of stored bytes: wrote outside",
           proa_wfmt_name(format));
    test_weight_free(&mine);
    canvas_free(&x), canvas_free(&y), canvas_free(&right);
    free(numbers), free(s.code), free(s.scale);
}

/* Scales of the whole matrix, of each row and of blocks, as fp8 and int8 checkpoints have them. */
static void check_stored_bytes(tester *t, proa_wfmt format, int64_t T)
{
    const bool e4m3 = format == PROA_WFMT_FP8 || format == PROA_WFMT_FP8G;
    const proa_code_kind kind = e4m3 ? PROA_CODE_FP8 : PROA_CODE_I8;
    if (format == PROA_WFMT_FP8 || format == PROA_WFMT_I8W) {
        bytes_case(t, format, kind, T, 72, 512, 1, 512);
        bytes_case(t, format, kind, T, 136, 1040, 136, 1040);
        bytes_case(t, format, kind, T, 33, 200, 1, 200);
        return;
    }
    bytes_case(t, format, kind, T, 72, 512, e4m3 ? 128 : 1, 128);
    bytes_case(t, format, kind, T, 200, 4608, 128, 128);
    bytes_case(t, format, kind, T, 72, 576, 1, e4m3 ? 576 : 64);
    bytes_case(t, format, kind, T, 136, 4192, 1, e4m3 ? 128 : 32);
    bytes_case(t, format, kind, T, 136, 4200, 1, 128); /* the last group is not whole */
}

/* Of few rows (each kernel of them) and many; groups that the format takes, and zero points if it has offsets. */
static void check_stored_nibbles(tester *t, proa_wfmt format, int64_t T)
{
    stored_case(t, format, T, 72, 512, 128, false, IN_ORDER);
    stored_case(t, format, T, 136, 4608, 4608, format != PROA_WFMT_I4, IN_ORDER);
    if (format == PROA_WFMT_I4) return;
    stored_case(t, format, T, 72, 512, 256, true, IN_ORDER);
    stored_case(t, format, T, 72, 4224, 128, true, SPREAD);
    if (format != PROA_WFMT_I4A32) return;
    stored_case(t, format, T, 72, 576, 64, true, IN_ORDER);
    stored_case(t, format, T, 136, 4192, 32, true, IN_ORDER);
}

/* Of a CPU: zero points where the format has minima. */
static void check_stored_groups(tester *t, proa_wfmt format, int64_t T)
{
    const bool zeros = format == PROA_WFMT_Q4_1;
    stored_case(t, format, T, 72, 512, 128, zeros, SPREAD);
    stored_case(t, format, T, 136, 4192, 32, zeros, SPREAD);
    stored_case(t, format, T, 40, 608, 32, zeros, IN_ORDER);
}

void check_stored(tester *t, proa_wfmt format)
{
    static const int64_t rows[] = {1, 2, 5, 13, 24, 40};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        if (format >= PROA_WFMT_I4 && format <= PROA_WFMT_I4A32) check_stored_nibbles(t, format, rows[i]);
        else if (format == PROA_WFMT_Q4_0 || format == PROA_WFMT_Q4_1)
            check_stored_groups(t, format, rows[i]);
        else if (format == PROA_WFMT_FP8 || format == PROA_WFMT_I8W || format == PROA_WFMT_I8G ||
                 format == PROA_WFMT_FP8G)
            check_stored_bytes(t, format, rows[i]);
    }
}
