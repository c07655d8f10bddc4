/* SPDX-License-Identifier: Apache-2.0
 * test_torch.c - files of torch.save: pickles written by hand, zip files that lie, limits.
 * What torch itself writes is in tests/golden/checkpoint (unit/engine/test_checkpoints.c). */
#include "base/limits.h"
#include "torch_file.h"
#include "weights/pickle.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const float numbers[6] = {0, 1, 2, 3, 4, 5};

#define P       "\x80\x02"
#define TEXT(s) "U" s /* s begins with its length */
#define STORAGE                                                                                              \
    "(" TEXT("\x07storage") "ctorch\nFloatStorage\n" TEXT("\x01"                                             \
                                                          "0") TEXT("\x03"                                   \
                                                                    "cpu") "K\x06tQ"
#define REBUILD     "ctorch._utils\n_rebuild_tensor_v2\n"
/* A tensor of that offset, sizes and strides: one-byte numbers. */
#define TENSOR(...) REBUILD "(" STORAGE __VA_ARGS__ "\x89}tR"
#define MATRIX                                                                                               \
    TENSOR("K\x00"                                                                                           \
           "K\x02K\x03\x86"                                                                                  \
           "K\x03K\x01\x86")
#define TRANSPOSED                                                                                           \
    TENSOR("K\x00"                                                                                           \
           "K\x03K\x02\x86"                                                                                  \
           "K\x01K\x03\x86")

typedef struct blob {
    const char *ptr;
    size_t len;
} blob;
#define BLOB(s) ((blob){s, sizeof(s) - 1})

/* A zip file around a pickle, with six numbers as storage "0". */
static void wrap(torch_file *f, blob pickle)
{
    torch_file_add(f, "m/data.pkl", pickle.ptr, pickle.len);
    torch_file_add(f, "m/data/0", numbers, sizeof numbers);
    torch_file_end(f);
}

static proa_status open_file(proa_weights **w, const torch_file *f, proa_err *err)
{
    return proa_weights_open_bytes(w, f->bytes.ptr, (int64_t)f->bytes.len, "x.bin", err);
}

static void refuses_file(torch_file *f, proa_status want, const char *text)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = open_file(&w, f, &err);
    if (status != want || !strstr(err.text, text)) print_error("gave: %s\n", err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, text));
    assert_null(w);
    proa_buf_release(&f->bytes);
}

static void refuses(blob pickle, proa_status want, const char *text)
{
    torch_file f;
    torch_file_begin(&f);
    wrap(&f, pickle);
    refuses_file(&f, want, text);
}

static void test_views(void **state)
{
    torch_file f;
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    (void)state;
    torch_file_begin(&f);
    wrap(&f, BLOB(P "}(" TEXT("\x01"
                              "a") MATRIX TEXT("\x01"
                                               "b") TRANSPOSED TEXT("\x01"
                                                                    "n") "N"
                                                                         "u."));
    if (open_file(&w, &f, &err)) fail_msg("%s", err.text);
    assert_int_equal(proa_weights_count(w), 2);
    const proa_view a = proa_weights_at(w, 0)->source.view, b = proa_weights_at(w, 1)->source.view;
    assert_true(proa_view_dense(a) && !proa_view_dense(b));
    assert_int_equal(a.shape[0], 2);
    assert_int_equal(b.shape[0], 3);
    assert_ptr_equal(a.data, b.data);
    assert_memory_equal(a.data, numbers, sizeof numbers);
    float row[2];
    proa_tensor_source_read(&proa_weights_at(w, 1)->source, 1, 0, 2, row);
    assert_true(row[0] == 1 && row[1] == 4);
    proa_weights_close(w);
    proa_buf_release(&f.bytes);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    refuses(BLOB(P "}U\x01"
                   "a" TENSOR("K\x01"
                              "K\x02K\x03\x86"
                              "K\x03K\x01\x86") "s."),
            PROA_CORRUPT, "x.bin: tensor 'a': 6 elements at 1 of a storage of 6");
    refuses(BLOB(P "}U\x01"
                   "a" TENSOR("K\x00"
                              "K\x02\x85"
                              "K\x06\x85") "s."),
            PROA_CORRUPT, "tensor 'a': 7 elements at 0 of a storage of 6");
    refuses(BLOB(P "}U\x01"
                   "a" TENSOR("K\x00"
                              "J\xff\xff\xff\xff\x85"
                              "K\x06\x85") "s."),
            PROA_CORRUPT, "tensor 'a': a broken number in its sizes");
    refuses(BLOB(P "}U\x01"
                   "a" TENSOR("K\x00"
                              "K\x02\x85"
                              ")") "s."),
            PROA_CORRUPT, "1 sizes and 0 strides");
    refuses(BLOB(P "}U\x01"
                   "a" REBUILD "(NK\x00))\x89}tRs."),
            PROA_CORRUPT, "tensor 'a': it has no storage");
    refuses(BLOB(P "}(U\x01"
                   "a" MATRIX "U\x01"
                   "a" MATRIX "u."),
            PROA_CORRUPT, "tensor 'a' is there twice");
    refuses(BLOB(P "}."), PROA_UNSUPPORTED, "x.bin: holds no dictionary of tensors");
}

static void test_globals(void **state)
{
    (void)state;
    refuses(BLOB(P "cposix\nsystem\nU\x02ls\x85R."), PROA_UNSUPPORTED, "x.bin: refers to 'posix.system'");
    refuses(BLOB("\x80\x04\x8c\x05posix\x8c\x06system\x93."), PROA_UNSUPPORTED,
            "x.bin: refers to 'posix.system'");
    refuses(BLOB(P "conmtx\nf\n."), PROA_UNSUPPORTED, "refers to 'onmtx.f'");
    refuses(BLOB(P "ctorch\nQInt8Storage\n."), PROA_UNSUPPORTED, "holds no dictionary");
    refuses(BLOB(P "}U\x01"
                   "a" REBUILD "((U\x07storage"
                   "ctorch\nComplexFloatStorage\n"
                   "U\x01"
                   "0NK\x06tQK\x00))\x89}tRs."),
            PROA_UNSUPPORTED, "a storage of type torch.ComplexFloatStorage is not supported");
}

static void test_bad_pickles(void **state)
{
    (void)state;
    refuses(BLOB(P), PROA_CORRUPT, "x.bin: the pickle ends within an instruction at byte 2");
    refuses(BLOB("N."), PROA_CORRUPT, "does not begin as a pickle");
    refuses(BLOB("\x80\x01N."), PROA_UNSUPPORTED, "pickle protocol 1, 2 to 5 are read");
    refuses(BLOB(P "cposix"), PROA_CORRUPT, "a name without an end");
    refuses(BLOB(P "]q\x01h\x01"
                   "a."),
            PROA_CORRUPT, "contains itself");
    refuses(BLOB(P "q\x01."), PROA_CORRUPT, "nothing to remember");
    refuses(BLOB(P "(K\x01\x85."), PROA_CORRUPT, "1 values at the end");
    refuses(BLOB(P "K\x01(0."), PROA_CORRUPT, "takes from an empty stack"); /* the number is below the mark */
    refuses(BLOB(P "\x82\x01."), PROA_UNSUPPORTED, "instruction 0x82 at byte 2");
}

/* Nesting by 100,000 levels, and a list that doubles at each level: both must end at once and in little memory. */
static void test_bombs(void **state)
{
    proa_buf b;
    (void)state;
    proa_buf_init(&b, 1 << 21);
    proa_buf_append(&b, P "]", 3);
    for (int i = 0; i < 100000; i++) proa_buf_append(&b, "\x85", 1);
    proa_buf_append(&b, ".", 1);
    refuses((blob){b.ptr, b.len}, PROA_CORRUPT, "nested deeper than 64");
    proa_buf_clear(&b);
    proa_buf_append(&b, P "]q\x01", 5);
    for (int i = 0; i < 60; i++) proa_buf_append(&b, "h\x01h\x01\x86q\x01", 7);
    for (int i = 0; i < 60; i++) proa_buf_append(&b, "0", 1);
    proa_buf_append(&b, ".", 1);
    refuses((blob){b.ptr, b.len}, PROA_UNSUPPORTED, "holds no dictionary");
    proa_buf_release(&b);
}

static void test_values(void **state)
{
    static const char bytes[] = P
        "(K\x07J\xfe\xff\xff\xff\x8a\x03\x00\x00\x80G\x3f\xf8\0\0\0\0\0\0X\x02\0\0\0hi\x88Nt.";
    proa_pickle p;
    (void)state;
    assert_int_equal(proa_pickle_read(&p, (const unsigned char *)bytes, sizeof bytes - 1, "x", NULL), PROA_OK);
    assert_int_equal(p.used, sizeof bytes - 1);
    assert_int_equal(proa_pickle_at(&p, proa_pickle_item(&p, p.root, 0))->integer, 7);
    assert_int_equal(proa_pickle_at(&p, proa_pickle_item(&p, p.root, 1))->integer, -2);
    assert_int_equal(proa_pickle_at(&p, proa_pickle_item(&p, p.root, 2))->integer, -8388608);
    assert_true(proa_pickle_at(&p, proa_pickle_item(&p, p.root, 3))->number == 1.5);
    assert_true(proa_str_is(proa_pickle_text(&p, proa_pickle_item(&p, p.root, 4)), "hi"));
    assert_int_equal(proa_pickle_kind_of(&p, proa_pickle_item(&p, p.root, 5)), PROA_PICKLE_BOOL);
    assert_int_equal(proa_pickle_item(&p, p.root, 7), 0);
    proa_pickle_release(&p);
}

static void refuses_zip(uint16_t method, uint16_t flags, uint32_t more, proa_status want, const char *text)
{
    torch_file f;
    torch_file_begin(&f);
    f.method = method, f.flags = flags, f.more = more;
    wrap(&f, BLOB(P "}U\x01"
                    "a" MATRIX "s."));
    refuses_file(&f, want, text);
}

static void test_bad_zips(void **state)
{
    torch_file f;
    (void)state;
    refuses_zip(8, 0, 0, PROA_UNSUPPORTED, "x.bin: entry 'm/data.pkl' is compressed");
    refuses_zip(0, 1, 0, PROA_UNSUPPORTED, "entry 'm/data.pkl' is encrypted");
    refuses_zip(0, 0, 4, PROA_CORRUPT, "entry 'm/data/0': 28 bytes at");
    torch_file_begin(&f);
    torch_file_add(&f, "m/data/0", "", 0);
    torch_file_end(&f);
    refuses_file(&f, PROA_CORRUPT, "a zip file without NAME/data.pkl");
    torch_file_begin(&f);
    torch_file_add(&f, "m/byteorder", "big", 3);
    wrap(&f, BLOB(P "}."));
    refuses_file(&f, PROA_UNSUPPORTED, "its byte order is 'big'");
    torch_file_begin(&f);
    torch_file_add(&f, "m/byteorder", "little", 6);
    torch_file_add(&f, "m/byteorder", "little", 6);
    torch_file_end(&f);
    refuses_file(&f, PROA_CORRUPT, "entry 'm/byteorder' is there twice");
}

/* Two entries of the directory that share bytes of the file. */
static void test_overlap(void **state)
{
    torch_file f;
    (void)state;
    torch_file_begin(&f);
    torch_file_add(&f, "m/data.pkl", P "}.", 4);
    torch_file_add(&f, "m/data/0", numbers, sizeof numbers);
    f.entry[0].size += 40;
    torch_file_end(&f);
    refuses_file(&f, PROA_CORRUPT, "entries 'm/data.pkl' and 'm/data/0' overlap");
}

/* Every file that ends too early. */
static void test_cut(void **state)
{
    torch_file f;
    (void)state;
    torch_file_begin(&f);
    wrap(&f, BLOB(P "}U\x01"
                    "a" MATRIX "s."));
    for (size_t len = 4; len < f.bytes.len; len++) {
        proa_weights *w = NULL;
        proa_err err = {.status = PROA_OK};
        assert_int_not_equal(proa_weights_open_bytes(&w, f.bytes.ptr, (int64_t)len, "x.bin", &err), PROA_OK);
        assert_null(w);
    }
    proa_buf_release(&f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),  cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_globals),
        cmocka_unit_test(test_values), cmocka_unit_test(test_bad_pickles), cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_cut),    cmocka_unit_test(test_bad_zips),    cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
