/* SPDX-License-Identifier: Apache-2.0
 * test_safetensors.c - files built byte by byte, each fault with its message.
 * One safetensors file, built here byte by byte: what is read, and each lie with the line that it gets. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* Length, header, then data_bytes bytes that count up from 1. Heap-allocated to the byte, so that a read beyond the
 * end is seen by the address sanitiser. */
static unsigned char *build(const char *header, size_t data_bytes, int64_t *len)
{
    size_t n = strlen(header);
    unsigned char *file = proa_malloc(8 + n + data_bytes);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++) file[8 + n + i] = (unsigned char)(i + 1);
    *len = (int64_t)(8 + n + data_bytes);
    return file;
}

static void refused(const char *header, size_t data_bytes, proa_status want, const char *text)
{
    int64_t len;
    proa_err err = {.status = PROA_OK};
    proa_weights *w = NULL;
    unsigned char *file = build(header, data_bytes, &len);
    proa_status status = proa_weights_open_bytes(&w, file, len, "m.safetensors", &err);
    if (status != want || !strstr(err.text, text)) print_error("%s\n  gave: %s\n", header, err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, text));
    assert_memory_equal(err.text, "m.safetensors: ", 15);
    assert_null(w);
    assert_int_equal(proa_weights_open_bytes(&w, file, len, "m.safetensors", NULL), want);
    free(file);
}

static proa_weights *opened(const unsigned char *file, int64_t len)
{
    proa_err err = {.status = PROA_OK};
    proa_weights *w = NULL;
    if (proa_weights_open_bytes(&w, file, len, "m.safetensors", &err) != PROA_OK) fail_msg("%s", err.text);
    return w;
}

static void test_reads(void **state)
{
    int64_t len;
    unsigned char *file = build(
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"},"
        "\"e\":{\"dtype\":\"F64\",\"shape\":[5,0,7],\"data_offsets\":[16,16]},"
        "\"\\u00e9\\\"\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[16,19]}}   ",
        19, &len);
    proa_weights *w = opened(file, len);
    const unsigned char *data = file + len - 19;
    assert_int_equal(proa_weights_count(w), 4);
    assert_string_equal(proa_weights_at(w, 0)->name, "a"); /* sorted by bytes */
    assert_string_equal(proa_weights_at(w, 3)->name, "\xC3\xA9\"");
    const proa_weights_tensor *a = proa_weights_find(w, "a"), *b = proa_weights_find(w, "b");
    assert_int_equal(a->source.view.rank, 0);
    assert_int_equal(proa_view_count(a->source.view), 1);
    assert_ptr_equal(a->source.view.data, data);
    assert_int_equal(b->source.view.dtype, PROA_DTYPE_BF16);
    assert_int_equal(b->source.view.shape[1], 3);
    assert_int_equal(b->source.view.stride[0], 3);
    assert_ptr_equal(b->source.view.data, data + 4); /* no copy */
    assert_int_equal(b->file, 0);
    assert_int_equal(proa_view_count(proa_weights_find(w, "e")->source.view), 0);
    assert_null(proa_weights_find(w, "c"));
    for (int64_t i = 0; i < 4; i++)
        proa_weights_drop(w, proa_weights_at(w, i)); /* not mapped: nothing happens */
    proa_weights_close(w);
    proa_weights_close(NULL);
    free(file);
    (void)state;
}

/* A convolution over images and time has five axes; nothing reads it, but it must not refuse the file. */
static void test_many_axes(void **state)
{
    int64_t len;
    unsigned char *file = build("{\"x\":{\"dtype\":\"I8\",\"shape\":[2,3,1,2,2],\"data_offsets\":[0,24]}}",
                                24, &len);
    proa_weights *w = opened(file, len);
    const proa_view *v = &proa_weights_at(w, 0)->source.view;
    assert_int_equal(v->rank, 4);
    assert_int_equal(v->shape[1], 3);
    assert_int_equal(v->shape[3], 4);
    assert_int_equal(proa_view_count(*v), 24);
    const int64_t *axes;
    assert_int_equal(proa_weights_axes(proa_weights_at(w, 0), &axes), 5);
    assert_int_equal(axes[3], 2);
    assert_int_equal(axes[4], 2);
    proa_weights_close(w);
    free(file);
    (void)state;
}

static void test_empty(void **state)
{
    int64_t len;
    unsigned char *file = build("{}", 0, &len);
    proa_weights *w = opened(file, len);
    assert_int_equal(proa_weights_count(w), 0);
    assert_null(proa_weights_nearest(w, "x"));
    proa_weights_close(w);
    free(file);
    (void)state;
}

static void test_every_dtype(void **state)
{
    static const struct {
        const char *name;
        proa_dtype dtype;
        int bytes;
    } rows[] = {{"F32", PROA_DTYPE_F32, 4},  {"F16", PROA_DTYPE_F16, 2}, {"BF16", PROA_DTYPE_BF16, 2},
                {"F64", PROA_DTYPE_F64, 8},  {"I8", PROA_DTYPE_I8, 1},   {"U8", PROA_DTYPE_U8, 1},
                {"I16", PROA_DTYPE_I16, 2},  {"I32", PROA_DTYPE_I32, 4}, {"I64", PROA_DTYPE_I64, 8},
                {"BOOL", PROA_DTYPE_BOOL, 1}};
    assert_int_equal(PROA_COUNT(rows), PROA_DTYPE_COUNT - 1); /* e4m3 is for pages */
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        char header[128];
        int64_t len;
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                 rows[i].name, 3 * rows[i].bytes);
        unsigned char *file = build(header, (size_t)rows[i].bytes * 3, &len);
        proa_weights *w = opened(file, len);
        assert_int_equal(proa_weights_at(w, 0)->source.view.dtype, rows[i].dtype);
        proa_weights_close(w);
        free(file);
    }
    (void)state;
}

#define T(dtype, shape, begin, end)                                                                          \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
#define X(dtype, shape, begin, end) "{\"x\":" T(dtype, shape, begin, end) "}"

static void test_header_lies(void **state)
{
    refused("", 0, PROA_CORRUPT, "does not begin with '{'");
    refused("[1]", 0, PROA_CORRUPT, "does not begin with '{'");
    refused(" {}", 0, PROA_CORRUPT, "does not begin with '{'");
    refused("{\"x\":", 0, PROA_CORRUPT, "header: not JSON at byte 5: cut short");
    refused("{} {}", 0, PROA_CORRUPT, "header: not JSON at byte 3");
    refused("{\"\xff\":1}", 0, PROA_CORRUPT, "header: not JSON at byte 2");
    refused("{\"a\\u0000b\":1}", 0, PROA_CORRUPT, "a NUL character in the string at byte 1");
    refused("{\"x\":{\"y\":{}}}", 0, PROA_CORRUPT, "nested deeper than a header is at byte 10");
    refused("{\"x\":{\"y\":[[1]]}}", 0, PROA_CORRUPT, "nested deeper than a header is at byte 11");
    refused("{\"__metadata__\":[]}", 0, PROA_CORRUPT, "'__metadata__' must be an object, not an array");
    refused("{\"__metadata__\":{\"k\":1}}", 0, PROA_CORRUPT,
            "'__metadata__': 'k' must be a string, not an integer");
    refused("{}", 5, PROA_CORRUPT, "5 bytes at the end belong to no tensor");
    (void)state;
}

static void test_lengths(void **state)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    unsigned char file[12] = "\xff\xff\xff\xff\xff\xff\xff\xff{}";
    assert_int_equal(proa_weights_open_bytes(&w, file, 7, "m", &err), PROA_CORRUPT);
    assert_string_equal(err.text, "m: 7 bytes, a safetensors file has at least 8");
    proa_err_clear(&err);
    assert_int_equal(proa_weights_open_bytes(&w, file, 0, "m", &err), PROA_CORRUPT);
    proa_err_clear(&err);
    assert_int_equal(proa_weights_open_bytes(&w, file, 12, "m", &err), PROA_LIMIT);
    assert_string_equal(err.text, "m: a header of 18446744073709551615 bytes, at most 104857600 are read");
    memcpy(file, "\5\0\0\0\0\0\0\0", 8);
    proa_err_clear(&err);
    assert_int_equal(proa_weights_open_bytes(&w, file, 12, "m", &err), PROA_CORRUPT);
    assert_string_equal(err.text, "m: a header of 5 bytes goes beyond the file's 12");
    (void)state;
}

/* A text's first bytes are no length of a header. */
static void test_other_files(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"# A model\n\nIts card.\n", "m: not a model: neither safetensors, GGUF, torch nor a packed model"},
        {"{\"a\":1}\n", "m: not a model: neither safetensors, GGUF, torch nor a packed model"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
         "m: a pointer of Git LFS in the place of the file: run 'git lfs pull'"},
    };
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_weights *w = NULL;
        proa_err err = {.status = PROA_OK};
        int64_t len = (int64_t)strlen(cases[i].text);
        assert_int_equal(proa_weights_open_bytes(&w, cases[i].text, len, "m", &err), PROA_INVALID);
        assert_string_equal(err.text, cases[i].error);
        proa_err_clear(&err);
    }
    (void)state;
}

static void test_tensor_lies(void **state)
{
    refused("{\"x\":3}", 0, PROA_CORRUPT, "tensor 'x': must be an object, not an integer");
    refused("{\"x\":{}}", 0, PROA_CORRUPT, "tensor 'x': 'dtype' must be a string, not null");
    refused(X("F33", "1", 0, 4), 4, PROA_CORRUPT, "tensor 'x': unknown dtype 'F33'");
    refused(X("f32", "1", 0, 4), 4, PROA_CORRUPT, "tensor 'x': unknown dtype 'f32'");
    refused(X("F8_E5M2", "1", 0, 1), 1, PROA_UNSUPPORTED, "tensor 'x': dtype F8_E5M2 is not supported");
    refused(X("F4", "2", 0, 1), 1, PROA_UNSUPPORTED, "dtype F4 is not supported");
    refused("{\"x\":{\"dtype\":\"F32\"}}", 0, PROA_CORRUPT, "'shape' must be an array, not null");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, PROA_CORRUPT,
            "'data_offsets' must be an array, not null");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, PROA_CORRUPT,
            "'data_offsets' has 1 numbers, must have 2");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, PROA_LIMIT,
            "'data_offsets' has 3 numbers, at most 2 are read");
    refused(X("F32", "1,1,1,1,1,1,1,1,1", 0, 4), 4, PROA_LIMIT, "'shape' has 9 numbers, at most 8 are read");
    refused(X("F32", "1.0", 0, 4), 4, PROA_CORRUPT, "'shape' must hold integers, not a number");
    refused(X("F32", "\"1\"", 0, 4), 4, PROA_CORRUPT, "'shape' must hold integers, not a string");
    refused(X("F32", "-1", 0, 4), 4, PROA_CORRUPT, "'shape' holds -1, which is negative");
    refused(X("F32", "4294967296,4294967296", 0, 4), 4, PROA_CORRUPT,
            "shape [4294967296, 4294967296] has more elements than can be counted");
    refused(X("U8", "0,4294967296,4294967296", 0, 0), 0, PROA_CORRUPT, "more elements than can be counted");
    refused(X("F32", "9223372036854775807", 0, 4), 4, PROA_CORRUPT, "more elements than can be counted");
    refused(X("U8", "99999999999999999999999", 0, 4), 4, PROA_CORRUPT, "needs 9223372036854775807 bytes");
    refused(X("F32", "1", 4, 0), 4, PROA_CORRUPT, "offsets [4, 0] are reversed");
    refused(X("F32", "1", 0, -4), 4, PROA_CORRUPT, "'data_offsets' holds -4, which is negative");
    refused(X("F32", "2", 0, 8), 7, PROA_CORRUPT, "offsets [0, 8] go beyond the 7 bytes of data");
    refused(X("U8", "9", 0, 18446744073709551615), 9, PROA_CORRUPT, "go beyond the 9 bytes");
    refused(X("F32", "200, 64", 0, 51196), 51196, PROA_CORRUPT,
            "m.safetensors: tensor 'x': [200, 64] of F32 needs 51200 bytes, its offsets span 51196");
    refused("{\"a\\nb\":1}", 0, PROA_CORRUPT, "tensor 'a?b': must be an object"); /* no forged log lines */
    (void)state;
}

static void test_places(void **state)
{
    refused("{\"a\":" T("U8", "4", 0, 4) ",\"b\":" T("U8", "4", 3, 7) "}", 7, PROA_CORRUPT,
            "tensors 'a' and 'b' overlap at byte 3 of the data");
    refused("{\"b\":" T("U8", "4", 0, 4) ",\"a\":" T("U8", "4", 0, 4) "}", 4, PROA_CORRUPT, "overlap at byte 0");
    refused("{\"b\":" T("U8", "4", 0, 4) ",\"a\":" T("U8", "0", 2, 2) "}", 4, PROA_CORRUPT,
            "tensors 'b' and 'a' overlap at byte 2");
    refused("{\"a\":" T("U8", "4", 0, 4) ",\"b\":" T("U8", "4", 6, 10) "}", 10, PROA_CORRUPT,
            "tensor 'b': the 2 bytes before it belong to no tensor");
    refused(X("U8", "4", 0, 4), 7, PROA_CORRUPT, "3 bytes at the end belong to no tensor");
    (void)state;
}

static void test_twice(void **state)
{
    refused("{\"a\":" T("U8", "4", 0, 4) ",\"b\":" T("U8", "4", 4, 8) ",\"a\":" T("U8", "4", 0, 4) "}", 8,
            PROA_CORRUPT, "tensor 'a' is there twice");
    refused("{\"a\":" T("U8", "0", 0, 0) ",\"\\u0061\":" T("U8", "0", 0, 0) "}", 0, PROA_CORRUPT,
            "have one name, spelt with different escapes");
    refused("{\"a\":" T("U8", "0", 0, 0) ",\"b,}\\\"\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],"
                                         "\"data_offsets\":[0,0]}}",
            0, PROA_CORRUPT, "one of its keys is there twice");
    refused("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, PROA_CORRUPT, "'__metadata__': one of its keys");
    (void)state;
}

static void test_long_names(void **state)
{
    char header[PROA_TENSOR_NAME_MAX + 100], name[PROA_TENSOR_NAME_MAX + 2];
    int64_t len;
    memset(name, 'n', sizeof name);
    name[PROA_TENSOR_NAME_MAX] = '\0';
    snprintf(header, sizeof header, "{\"%s\":" T("U8", "1", 0, 1) "}", name);
    unsigned char *file = build(header, 1, &len);
    proa_weights *w = opened(file, len);
    assert_non_null(proa_weights_find(w, name));
    proa_weights_close(w);
    free(file);
    name[PROA_TENSOR_NAME_MAX] = 'n';
    name[PROA_TENSOR_NAME_MAX + 1] = '\0';
    snprintf(header, sizeof header, "{\"%s\":" T("U8", "1", 0, 1) "}", name);
    refused(header, 1, PROA_LIMIT, "a name of 513 bytes, at most 512 are read");
    name[300] = '\0';
    snprintf(header, sizeof header, "{\"%s\":" T("U9", "1", 0, 1) "}", name);
    refused(header, 1, PROA_CORRUPT, "unknown dtype 'U9'"); /* the reason is not cut off behind a long name */
    (void)state;
}

/* n tensors of one byte each. */
static char *many(int64_t n)
{
    proa_buf buf;
    proa_buf_init(&buf, 64 << 20);
    for (int64_t i = 0; i < n; i++)
        proa_buf_printf(
            &buf, "%c\"model.layers.%lld.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%lld,%lld]}",
            i ? ',' : '{', (long long)i, (long long)i, (long long)i + 1);
    proa_buf_char(&buf, '}');
    assert_false(buf.full);
    return buf.ptr;
}

static void test_many(void **state)
{
    int64_t n = 100000, len;
    char *header = many(n);
    unsigned char *file = build(header, (size_t)n, &len);
    int64_t start = proa_clock_ns();
    proa_weights *w = opened(file, len);
    double seconds = (double)(proa_clock_ns() - start) * 1e-9;
    print_message("100000 tensors in %.3f s\n", seconds);
    assert_true(seconds < 60); /* for sanitisers on a busy machine: what is quadratic takes minutes */
    assert_int_equal(proa_weights_count(w), n);
    const proa_weights_tensor *t = proa_weights_find(w, "model.layers.77777.weight");
    assert_int_equal(*(const unsigned char *)t->source.view.data, (77777 + 1) & 0xff);
    for (int64_t i = 1; i < n; i++)
        assert_true(strcmp(proa_weights_at(w, i - 1)->name, proa_weights_at(w, i)->name) < 0);
    proa_weights_close(w);
    free(file);
    free(header);
    header = many(PROA_TENSORS_MAX + 2);
    refused(header, PROA_TENSORS_MAX + 2, PROA_LIMIT, "131074 tensors, at most 131072 are read");
    free(header);
    header = many(PROA_TENSORS_MAX + 1); /* the outer count allows for the metadata; the rows do not */
    refused(header, PROA_TENSORS_MAX + 1, PROA_LIMIT, "more than 131072 tensors");
    free(header);
    (void)state;
}

/* A header whose tree would be a hundred times its size. */
static void test_bombs(void **state)
{
    proa_buf buf;
    proa_buf_init(&buf, 16 << 20);
    proa_buf_append(&buf, "{\"x\":{\"shape\":[0", 16);
    for (int i = 0; i < PROA_ST_NODES_MAX; i++) proa_buf_append(&buf, ",0", 2);
    proa_buf_append(&buf, "]}}", 3);
    refused(buf.ptr, 0, PROA_LIMIT, "header: 2097154 values, at most 2097152 are read");
    memset(buf.ptr, '[', buf.len);
    buf.ptr[0] = '{';
    refused(buf.ptr, 0, PROA_CORRUPT, "nested deeper than a header is at byte 3");
    proa_buf_release(&buf);
    (void)state;
}

static void test_nearest(void **state)
{
    int64_t len;
    unsigned char *file = build("{\"h.0.attn.weight\":" T("U8", "0", 0, 0) ",\"h.1.attn.weight\":" T(
                                    "U8", "0", 0, 0) ",\"transformer.wte.weight\":" T("U8", "0", 0, 0) "}",
                                0, &len);
    proa_weights *w = opened(file, len);
    assert_string_equal(proa_weights_nearest(w, "h.1.atn.weight"), "h.1.attn.weight");
    assert_string_equal(proa_weights_nearest(w, "h.7.attn.weight"), "h.0.attn.weight");
    assert_string_equal(proa_weights_nearest(w, "wte.weight"), "transformer.wte.weight");
    assert_string_equal(proa_weights_nearest(w, "model.transformer.wte.weight"), "transformer.wte.weight");
    assert_null(proa_weights_nearest(w, "lm_head.bias"));
    assert_null(proa_weights_nearest(w, ""));
    proa_weights_close(w);
    free(file);
    (void)state;
}

/* Every prefix of a good file is refused, and every file with one byte changed is refused or read: no crash. */
static void test_cut_and_changed(void **state)
{
    int64_t len;
    unsigned char *file = build("{\"a\":" T("F16", "2,2", 0, 8) ",\"b\":" T("U8", "3", 8, 11) "}", 11, &len);
    for (int64_t n = 0; n < len; n++) {
        proa_weights *w = NULL;
        unsigned char *cut = memcpy(proa_malloc((size_t)n), file, (size_t)n);
        assert_int_equal(proa_weights_open_bytes(&w, cut, n, "m", NULL), PROA_CORRUPT);
        free(cut);
    }
    for (int64_t at = 0; at < len - 11; at++) {
        unsigned char good = file[at];
        for (int value = 0; value < 256; value++) {
            proa_weights *w = NULL;
            file[at] = (unsigned char)value;
            proa_status status = proa_weights_open_bytes(&w, file, len, "m", NULL);
            assert_int_equal(status == PROA_OK, w != NULL);
            proa_weights_close(w);
        }
        file[at] = good;
    }
    free(file);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),           cmocka_unit_test(test_empty),
        cmocka_unit_test(test_many_axes),       cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_header_lies),     cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_other_files),     cmocka_unit_test(test_tensor_lies),
        cmocka_unit_test(test_places),          cmocka_unit_test(test_twice),
        cmocka_unit_test(test_long_names),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_bombs),           cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_cut_and_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
