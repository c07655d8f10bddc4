/* SPDX-License-Identifier: Apache-2.0
 * test_onnx.c - the external data that an .onnx file names: every place of the format where a tensor can be, paths that
 * leave the folder, and a file with every byte changed and cut at every length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/onnx/onnx.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* A message that grows at its front: fields are wrapped from the inside to the outside. */
typedef struct message {
    unsigned char bytes[4096];
    size_t count;
} message;

static size_t put_varint(unsigned char *out, size_t value)
{
    size_t n = 0;
    for (; value > 127; value >>= 7) out[n++] = (unsigned char)(value | 128);
    out[n++] = (unsigned char)value;
    return n;
}

/* What is there becomes the length-delimited field `number` of a message. */
static void wrap(message *m, unsigned number)
{
    unsigned char head[8];
    size_t n = put_varint(head, number << 3 | 2);
    n += put_varint(head + n, m->count);
    memmove(m->bytes + n, m->bytes, m->count);
    memcpy(m->bytes, head, n);
    m->count += n;
}

static void append(message *m, const message *other)
{
    memcpy(m->bytes + m->count, other->bytes, other->count);
    m->count += other->count;
}

static void text_field(message *m, unsigned number, const char *text)
{
    m->count = strlen(text);
    memcpy(m->bytes, text, m->count);
    wrap(m, number);
}

/* A TensorProto with one entry of external data. */
static message tensor(const char *key, const char *value)
{
    message m, second;
    text_field(&m, 1, key);
    text_field(&second, 2, value);
    append(&m, &second);
    wrap(&m, 13);
    return m;
}

static proa_status check(const message *m, proa_err *err)
{
    return proa_onnx_check_external(m->bytes, m->count, err);
}

/* The tensor within fields[0] within fields[1] ... of the model. */
static message within(const char *location, const unsigned *fields)
{
    message m = tensor("location", location);
    for (; *fields; fields++) wrap(&m, *fields);
    return m;
}

static void test_every_place_of_a_tensor(void **state)
{
    static const unsigned places[][8] = {
        {5, 7},           /* an initializer of the graph */
        {1, 15, 7},       /* values of a sparse one */
        {2, 15, 7},       /* its indices */
        {5, 5, 1, 7},     /* an attribute of a node */
        {10, 5, 1, 7},    /* of several */
        {1, 22, 5, 1, 7}, /* a sparse attribute */
        {1, 23, 5, 1, 7}, /* of several */
        {5, 6, 5, 1, 7},  /* an initializer of a subgraph */
        {5, 11, 5, 1, 7}, /* of several */
        {5, 5, 7, 25},    /* a node of a function */
        {5, 1, 20},       /* training: initialization */
        {5, 2, 20},       /* training: algorithm */
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(places); i++) {
        proa_err err = {0};
        message m = within("../secret", places[i]);
        assert_int_equal(check(&m, &err), PROA_INVALID);
        assert_string_equal(err.text, "names external data '../secret' outside of its folder");
        m = within("weights.bin", places[i]);
        assert_int_equal(check(&m, NULL), PROA_OK);
    }
}

static void test_locations(void **state)
{
    static const struct {
        const char *location;
        proa_status status;
    } rows[] = {
        {"w", PROA_OK},           {"a/b.bin", PROA_OK}, {"..bin", PROA_OK},          {"", PROA_OK},
        {"/w", PROA_INVALID},     {"..", PROA_INVALID}, {"a/../../w", PROA_INVALID}, {"a/..", PROA_INVALID},
        {"./../w", PROA_INVALID},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        message m = within(rows[i].location, (const unsigned[]){5, 7, 0});
        assert_int_equal(check(&m, NULL), rows[i].status);
    }
    message other = tensor("checksum", "/../x");
    wrap(&other, 5), wrap(&other, 7);
    assert_int_equal(check(&other, NULL), PROA_OK);
}

static void test_depth(void **state)
{
    message m = tensor("location", "w");
    (void)state;
    wrap(&m, 5);
    for (int i = 0; i < 40; i++) wrap(&m, 6), wrap(&m, 5), wrap(&m, 1); /* graph, attribute, node */
    wrap(&m, 7);
    assert_int_equal(check(&m, NULL), PROA_LIMIT);
}

static void test_empty_and_other_formats(void **state)
{
    (void)state;
    assert_int_equal(proa_onnx_check_external(NULL, 0, NULL), PROA_CORRUPT);
    assert_int_equal(proa_onnx_check_external((const unsigned char *)"not a model", 11, NULL), PROA_CORRUPT);
    assert_int_equal(proa_onnx_check_external((const unsigned char *)"\x18\0\0\0ORTM....", 12, NULL), PROA_OK);
}

/* Never reads outside of the bytes (the sanitiser's part), and a bad path is never taken for a good one by a cut. */
static void test_damaged(void **state)
{
    const message whole = within("../secret", (const unsigned[]){5, 6, 5, 1, 7, 0});
    unsigned char *exact;
    (void)state;
    for (size_t count = 1; count < whole.count; count++) {
        exact = malloc(count);
        memcpy(exact, whole.bytes, count);
        assert_int_not_equal(proa_onnx_check_external(exact, count, NULL), PROA_OK);
        free(exact);
    }
    exact = malloc(whole.count);
    for (size_t at = 0; at < whole.count; at++)
        for (int byte = 0; byte < 256; byte++) {
            memcpy(exact, whole.bytes, whole.count);
            exact[at] = (unsigned char)byte;
            (void)!proa_onnx_check_external(exact, whole.count, NULL);
        }
    free(exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place_of_a_tensor),
        cmocka_unit_test(test_locations),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_empty_and_other_formats),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
