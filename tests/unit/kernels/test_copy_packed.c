/* SPDX-License-Identifier: Apache-2.0
 * test_copy_packed.c - rectangles of packed weights: a part that is copied out of a whole weight, or a whole one that
 * is put together from parts, has the bytes that packing its numbers gives. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/compiler.h"
#include "kernels/coded.h"
#include "kernels/ops.h"
#include "kernels/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ROWS 150
#define COLS 230

static float numbers[ROWS][COLS];

typedef struct weight_case {
    proa_ctx c;
    proa_copy_packed_fn *copy;
    proa_wfmt format;
} weight_case;

static void fill_numbers(void)
{
    uint64_t seed = 7;
    for (int i = 0; i < ROWS * COLS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        numbers[i / COLS][i % COLS] = (float)((int64_t)(seed >> 40) - (1 << 23)) * 0x1p-24F;
    }
}

static proa_weight empty_weight(const weight_case *t, int64_t rows, int64_t cols)
{
    proa_weight w = {.format = t->format, .N = rows, .K = cols};
    w.bytes = t->c.ops->pack_bytes(t->format, rows, cols);
    w.data = proa_pages_alloc(w.bytes);
    assert_non_null(w.data);
    memset(w.data, 0, (size_t)w.bytes);
    return w;
}

/* Numbers [row, row + rows) x [col, col + cols). */
static proa_weight packed_part(weight_case *t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    proa_weight w = empty_weight(t, rows, cols);
    proa_view v = proa_view_2d(&numbers[row][col], PROA_DTYPE_F32, rows, cols);
    v.stride[0] = COLS;
    proa_tensor_source source = proa_tensor_source_of(v);
    source.cols_before = col, source.cols_behind = COLS - col - cols;
    t->c.ops->pack(&t->c, &w, &source, 1);
    return w;
}

static void expect_equal(const weight_case *t, proa_weight *have, proa_weight *want, const char *what)
{
    assert_int_equal(have->bytes, want->bytes);
    if (memcmp(have->data, want->data, (size_t)want->bytes) != 0)
        fail_msg("%s, %s: %s", t->c.ops->name, proa_wfmt_name(t->format), what);
    proa_pages_free(have->data, have->bytes);
    proa_pages_free(want->data, want->bytes);
}

/* Where columns may be cut: anywhere, or between groups. A row with one scale has it in each part. */
static int64_t column(const weight_case *t, int64_t any)
{
    int64_t group = proa_max64(1, proa_wfmt_group(t->format));
    return any < COLS ? any / group * group : any;
}

static void copy_out(weight_case *t, int64_t row, int64_t rows, int64_t from, int64_t to)
{
    int64_t col = column(t, from), cols = (to < COLS ? column(t, to) : COLS) - col;
    if (cols <= 0) return;
    proa_weight whole = packed_part(t, 0, ROWS, 0, COLS), want = packed_part(t, row, rows, col, cols);
    proa_weight have = empty_weight(t, rows, cols);
    const proa_packed_rect rect = {.rows = rows, .cols = cols, .from_row = row, .from_col = col};
    t->copy(t->c.pool, &have, &whole, &rect);
    proa_pages_free(whole.data, whole.bytes);
    expect_equal(t, &have, &want, "a part of a whole");
}

static void join_parts(weight_case *t, const int64_t *row, int rows, const int64_t *col, int cols)
{
    proa_weight have = empty_weight(t, ROWS, COLS), want = packed_part(t, 0, ROWS, 0, COLS);
    for (int i = 0; i + 1 < rows; i++)
        for (int k = 0; k + 1 < cols; k++) {
            int64_t begin = column(t, col[k]), end = column(t, col[k + 1]);
            if (end <= begin) continue;
            proa_weight part = packed_part(t, row[i], row[i + 1] - row[i], begin, end - begin);
            const proa_packed_rect rect = {.rows = part.N, .cols = part.K, .to_row = row[i], .to_col = begin};
            t->copy(t->c.pool, &have, &part, &rect);
            proa_pages_free(part.data, part.bytes);
        }
    expect_equal(t, &have, &want, "a whole of parts");
}

static void check_format(weight_case *t)
{
    copy_out(t, 0, ROWS, 0, COLS);
    copy_out(t, 64, 64, 0, COLS);   /* whole panels */
    copy_out(t, 128, 22, 0, COLS);  /* the last outputs, in a panel that is not full */
    copy_out(t, 64, 10, 0, COLS);   /* a part of a panel */
    copy_out(t, 37, 75, 0, COLS);   /* between panels */
    copy_out(t, 0, ROWS, 64, 128);  /* whole steps */
    copy_out(t, 32, 32, 160, COLS); /* up to the end of a group that is not full */
    copy_out(t, 5, 90, 33, 77);     /* within pairs of inputs */
    join_parts(t, (int64_t[]){0, 64, ROWS}, 3, (int64_t[]){0, COLS}, 2);
    join_parts(t, (int64_t[]){0, 21, 80, ROWS}, 4, (int64_t[]){0, COLS}, 2);
    join_parts(t, (int64_t[]){0, ROWS}, 2, (int64_t[]){0, 96, COLS}, 3);
    join_parts(t, (int64_t[]){0, 50, ROWS}, 3, (int64_t[]){0, 101, 192, COLS}, 4);
}

static void check_table(const proa_ops *ops)
{
    proa_err err;
    weight_case t = {.c = {.ops = ops, .pool = proa_pool_new(2)}, .copy = proa_copy_packed_find(ops->layout)};
    assert_non_null(t.copy);
    const proa_ctx_need need = {.rows = 1, .heads = 1, .head_dim = 64, .inputs = COLS};
    assert_int_equal(proa_ctx_init(&t.c, ops, t.c.pool, &need, &err), PROA_OK);
    for (int f = 0; f < PROA_WFMT_COUNT; f++) {
        t.format = (proa_wfmt)f;
        bool device = proa_wfmt_is_coded(t.format) || t.format == PROA_WFMT_I8W || t.format == PROA_WFMT_FP8;
        if (!device && ops->pack_bytes(t.format, ROWS, COLS) >= 0) check_format(&t);
    }
    proa_pool_free(t.c.pool);
    proa_ctx_release(&t.c);
}

/* A GPU's layout, packed by the host: numbers in f32 and groups of codes. I8W and FP8 take codes of a checkpoint. */
static int64_t cuda_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    if (proa_wfmt_is_coded(format)) return proa_coded_layout_of(format, N, K).bytes;
    if (format == PROA_WFMT_I8W || format == PROA_WFMT_FP8) return proa_coded_rows_of(N, K).bytes;
    return N * proa_plain_leading_dim(format, K) * (format == PROA_WFMT_F32 ? 4 : 2);
}

static void pack_cuda_numbers(proa_weight *w, const proa_view *v)
{
    int64_t ld = proa_plain_leading_dim(w->format, w->K);
    for (int64_t n = 0; n < w->N; n++) {
        const float *from = (const float *)v->data + n * v->stride[0];
        if (w->format == PROA_WFMT_F32) memcpy((float *)w->data + n * ld, from, (size_t)w->K * 4);
        else
            for (int64_t k = 0; k < w->K; k++) ((uint16_t *)w->data)[n * ld + k] = proa_f32_to_f16(from[k]);
    }
}

/* Codes of a row with the scale of the whole row. */
static void pack_cuda_rows(proa_weight *w, const proa_tensor_source *source)
{
    const proa_tensor_source whole = proa_tensor_source_whole_rows(source);
    proa_coded_rows at = proa_coded_rows_of(w->N, w->K);
    float row[COLS];
    int finite;
    assert_int_equal(proa_tensor_source_cols(&whole), COLS);
    for (int64_t n = 0; n < w->N; n++) {
        uint8_t *to = (uint8_t *)w->data + n * at.row_bytes;
        proa_tensor_source_read(&whole, n, 0, COLS, row);
        float largest = proa_i8_largest(row, COLS, 1, &finite);
        float scale = w->format == PROA_WFMT_FP8 ? proa_fp8_scale(largest, finite)
                                                 : proa_i8_scale(largest, finite);
        for (int64_t k = 0; k < w->K; k++) {
            float v = row[source->cols_before + k];
            to[k] = w->format == PROA_WFMT_FP8 ? proa_fp8_round(v, scale) : (uint8_t)proa_i8_round(v, scale);
        }
        memcpy((char *)w->data + at.scales_at + 4 * n, &scale, 4);
    }
}

static void pack_cuda(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    if (proa_wfmt_is_coded(w->format)) proa_coded_pack(c->pool, w->data, w, sources, count);
    else if (w->format == PROA_WFMT_I8W || w->format == PROA_WFMT_FP8) pack_cuda_rows(w, &sources[0]);
    else pack_cuda_numbers(w, &sources[0].view);
}

static void layout_of_a_gpu(void **state)
{
    PROA_UNUSED(state);
    const proa_ops ops = {.name = "cuda", .layout = PROA_CUDA_LAYOUT, .pack_bytes = cuda_bytes, .pack = pack_cuda};
    weight_case t = {.c = {.ops = &ops, .pool = proa_pool_new(2)}, .copy = proa_copy_packed_find(ops.layout)};
    assert_non_null(t.copy);
    for (int f = 0; f < PROA_WFMT_COUNT; f++) {
        t.format = (proa_wfmt)f;
        bool offered = t.format <= PROA_WFMT_F16 || t.format == PROA_WFMT_I8W || t.format == PROA_WFMT_FP8;
        if (offered || proa_wfmt_is_coded(t.format)) check_format(&t);
    }
    proa_pool_free(t.c.pool);
}

/* The scale of a row is that of the whole row, whichever columns a part has. */
static void scales_of_rows(void **state)
{
    PROA_UNUSED(state);
    proa_ctx_need need = {.rows = 1, .heads = 1, .head_dim = 64, .inputs = COLS};
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        proa_err err;
        const proa_ops *ops = proa_ops_cpu((proa_isa)isa);
        if (!ops) continue;
        weight_case t = {.c = {.ops = ops, .pool = proa_pool_new(2)}, .format = PROA_WFMT_I8};
        proa_row_scale_fn *scale = proa_row_scale_find(ops->layout);
        assert_non_null(scale);
        assert_int_equal(proa_ctx_init(&t.c, ops, t.c.pool, &need, &err), PROA_OK);
        proa_weight whole = packed_part(&t, 0, ROWS, 0, COLS), part = packed_part(&t, 40, 60, 101, 29);
        for (int64_t i = 0; i < part.N; i++)
            assert_true(scale(&part, i) == scale(&whole, 40 + i) && scale(&part, i) > 0);
        proa_pages_free(whole.data, whole.bytes), proa_pages_free(part.data, part.bytes);
        proa_pool_free(t.c.pool);
        proa_ctx_release(&t.c);
    }
}

/* I8W and FP8 of a GPU. */
static void scales_of_rows_of_a_gpu(void **state)
{
    PROA_UNUSED(state);
    const proa_ops ops = {.name = "cuda", .layout = PROA_CUDA_LAYOUT, .pack_bytes = cuda_bytes, .pack = pack_cuda};
    const proa_wfmt formats[] = {PROA_WFMT_I8W, PROA_WFMT_FP8};
    proa_row_scale_fn *scale = proa_row_scale_find(ops.layout);
    assert_non_null(scale);
    for (size_t f = 0; f < PROA_COUNT(formats); f++) {
        weight_case t = {.c = {.ops = &ops}, .format = formats[f]};
        proa_weight whole = packed_part(&t, 0, ROWS, 0, COLS), part = packed_part(&t, 40, 60, 101, 29);
        for (int64_t i = 0; i < part.N; i++)
            assert_true(scale(&part, i) == scale(&whole, 40 + i) && scale(&part, i) > 0);
        proa_pages_free(whole.data, whole.bytes), proa_pages_free(part.data, part.bytes);
    }
}

static void tables_of_the_cpu(void **state)
{
    PROA_UNUSED(state);
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        const proa_ops *ops = proa_ops_cpu((proa_isa)isa);
        if (ops) check_table(ops);
    }
}

int main(void)
{
    fill_numbers();
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_of_the_cpu), cmocka_unit_test(layout_of_a_gpu),
                                       cmocka_unit_test(scales_of_rows),
                                       cmocka_unit_test(scales_of_rows_of_a_gpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
