/* SPDX-License-Identifier: Apache-2.0
 * test_encoding.c - decoders of stored blocks against the numbers that gguf-py makes of them (tests/golden/encodings),
 * bit for bit, and sources that read parts of encoded rows. */
#include "tensor/encoding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct vector {
    unsigned char *blocks; /* at an odd address: rows of a file may be unaligned */
    float *numbers;
    int64_t count;
    void *memory;
} vector;

static vector read_vector(proa_encoding e)
{
    char path[512];
    vector v = {.memory = NULL};
    int64_t numbers = proa_encoding_numbers(e), bytes = proa_encoding_row_bytes(e, numbers);
    snprintf(path, sizeof path, PROA_SOURCE_DIR "/tests/golden/encodings/%s.bin", proa_encoding_name(e));
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open '%s'", path);
    fseek(f, 0, SEEK_END);
    int64_t size = ftell(f), n = size / (bytes + 4 * numbers);
    assert_true(n > 0 && n * (bytes + 4 * numbers) == size);
    rewind(f);
    v.count = n * numbers;
    v.memory = malloc((size_t)(n * bytes) + 1);
    v.blocks = (unsigned char *)v.memory + 1;
    v.numbers = malloc((size_t)v.count * sizeof(float));
    assert_int_equal(fread(v.blocks, 1, (size_t)(n * bytes), f), n * bytes);
    assert_int_equal(fread(v.numbers, sizeof(float), (size_t)v.count, f), v.count);
    fclose(f);
    return v;
}

static void release_vector(vector *v)
{
    free(v->memory);
    free(v->numbers);
}

static void decode_all(void **state)
{
    PROA_UNUSED(state);
    for (int e = 0; e < PROA_ENCODING_COUNT; e++) {
        if (proa_encoding_numbers((proa_encoding)e) == 0) continue;
        vector v = read_vector((proa_encoding)e);
        float *out = malloc((size_t)v.count * sizeof *out);
        proa_encoding_decode(out, (proa_encoding)e, v.blocks, 0, v.count);
        for (int64_t i = 0; i < v.count; i++)
            if (proa_f32_bits(out[i]) != proa_f32_bits(v.numbers[i]))
                fail_msg("%s: number %lld is %a, must be %a", proa_encoding_name((proa_encoding)e),
                         (long long)i, (double)out[i], (double)v.numbers[i]);
        free(out);
        release_vector(&v);
    }
}

/* Columns that begin and end within blocks. */
static void decode_parts(void **state)
{
    PROA_UNUSED(state);
    for (int e = 0; e < PROA_ENCODING_COUNT; e++) {
        if (proa_encoding_numbers((proa_encoding)e) == 0) continue;
        vector v = read_vector((proa_encoding)e);
        float *out = malloc((size_t)v.count * sizeof *out);
        for (int64_t col = 0; col < v.count; col += 37)
            for (int64_t n = 0; col + n <= v.count; n = 3 * n + 1) {
                proa_encoding_decode(out, (proa_encoding)e, v.blocks, col, n);
                assert_memory_equal(out, v.numbers + col, (size_t)n * sizeof *out);
            }
        free(out);
        release_vector(&v);
    }
}

/* Rows of a matrix in another order, with a factor; and its size. */
static void read_source(void **state)
{
    PROA_UNUSED(state);
    float out[64], factor[4] = {1, 2, 4, 8};
    vector v = read_vector(PROA_ENCODING_Q5_1);
    proa_tensor_source s = {.encoding = PROA_ENCODING_Q5_1,
                            .view = proa_view_2d(v.blocks, PROA_DTYPE_F32, 4, 64),
                            .order = {.first = 1, .count = {1, 1, 2}, .step = {0, 0, 2}},
                            .factor = factor};
    assert_int_equal(proa_tensor_source_rows(&s), 2);
    assert_int_equal(proa_tensor_source_bytes(&s), 8 * 24);
    assert_false(proa_tensor_source_is_plain(&s));
    for (int row = 0; row < 2; row++) {
        proa_tensor_source_read(&s, row, 5, 50, out);
        for (int i = 0; i < 50; i++) {
            float want = v.numbers[(2 * row + 1) * 64 + 5 + i] * factor[2 * row + 1];
            assert_true(proa_f32_bits(out[i]) == proa_f32_bits(want));
        }
    }
    s.view = proa_view_transpose(s.view);
    assert_int_equal(proa_tensor_source_bytes(&s), 8 * 24);
    release_vector(&v);
}

/* Codes with their scale are the numbers; encodings without groups of 32 have none. */
static void codes_are_numbers(void **state)
{
    PROA_UNUSED(state);
    int with_codes = 0;
    for (int e = 0; e < PROA_ENCODING_COUNT; e++) {
        if (proa_encoding_numbers((proa_encoding)e) == 0) continue;
        proa_code_group g;
        vector v = read_vector((proa_encoding)e);
        proa_tensor_source s = {.encoding = (proa_encoding)e,
                                .view = proa_view_2d(v.blocks, PROA_DTYPE_F32, 1, v.count)};
        for (int64_t col = 0; col < v.count && proa_tensor_source_codes(&s, 0, col, &g); col += PROA_CODES) {
            if (col == 0) with_codes++;
            for (int i = 0; i < PROA_CODES; i++) {
                assert_in_range(g.code[i] + 128, g.least + 128, g.most + 128);
                float number = g.scale * (float)g.code[i] + g.min; /* -0 becomes 0 */
                assert_true(number == v.numbers[col + i]);
            }
        }
        s.plus = 1;
        assert_false(proa_tensor_source_codes(&s, 0, 0, &g));
        release_vector(&v);
    }
    assert_int_equal(with_codes, 8);
}

static void rows_are_whole_blocks(void **state)
{
    PROA_UNUSED(state);
    assert_int_equal(proa_encoding_row_bytes(PROA_ENCODING_PLAIN, 32), -1);
    assert_int_equal(proa_encoding_row_bytes(PROA_ENCODING_Q4_0, 31), -1);
    assert_int_equal(proa_encoding_row_bytes(PROA_ENCODING_Q4_0, 64), 36);
    assert_int_equal(proa_encoding_row_bytes(PROA_ENCODING_Q6_K, 512), 420);
    assert_int_equal(proa_encoding_numbers(PROA_ENCODING_PLAIN), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(decode_all), cmocka_unit_test(decode_parts),
                                       cmocka_unit_test(read_source), cmocka_unit_test(codes_are_numbers),
                                       cmocka_unit_test(rows_are_whole_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
