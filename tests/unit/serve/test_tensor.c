/* SPDX-License-Identifier: Apache-2.0
 * test_tensor.c - types, shapes, buffers and their holders, and the framing of BYTES. */
#include "base/alloc.h"
#include "base/limits.h"
#include "serve/recycle.h"
#include "serve/tensor.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define RECYCLES 0
#else
#define RECYCLES 1
#endif

static void test_types(void **state)
{
    for (int t = PROA_TYPE_BOOL; t < PROA_TYPE_COUNT; t++) {
        assert_int_equal(proa_type_find(proa_str_c(proa_type_name((proa_type)t))), t);
        assert_memory_equal(proa_type_config_name((proa_type)t), "TYPE_", 5);
    }
    /* numbers are those of the wire's enum */
    assert_int_equal(proa_type_find(proa_str_c("BYTES")), 13);
    assert_int_equal(proa_type_find(proa_str_c("BF16")), 14);
    assert_string_equal(proa_type_config_name(PROA_TYPE_BYTES), "TYPE_STRING");
    assert_int_equal(proa_type_bytes(PROA_TYPE_FP16), 2);
    assert_int_equal(proa_type_bytes(PROA_TYPE_BYTES), 0);
    static const char *const bad[] = {"", "fp32", "FP3", "FP320", "<invalid>", "TYPE_FP32"};
    for (size_t i = 0; i < PROA_COUNT(bad); i++)
        assert_int_equal(proa_type_find(proa_str_c(bad[i])), PROA_TYPE_INVALID);
    assert_string_equal(proa_type_name((proa_type)99), "<invalid>");
    assert_int_equal(proa_type_bytes((proa_type)-1), 0);
    (void)state;
}

static void test_shapes(void **state)
{
    const int64_t a[] = {2, 3, 4}, b[] = {2, 3, -1}, huge[] = {INT64_MAX, 2}, none[] = {5, 0, 7};
    assert_int_equal(proa_shape_elements(a, 3), 24);
    assert_int_equal(proa_shape_elements(a, 0), 1);
    assert_int_equal(proa_shape_elements(none, 3), 0);
    assert_int_equal(proa_shape_elements(b, 3), -1);
    assert_int_equal(proa_shape_elements(huge, 2), -1);
    assert_true(proa_shape_equal(a, 2, b, 2));
    assert_false(proa_shape_equal(a, 3, b, 3));
    assert_false(proa_shape_equal(a, 2, a, 3));
    assert_true(proa_shape_equal(a, 0, b, 0));
    proa_buf text;
    proa_buf_init(&text, 100);
    proa_shape_print(&text, b, 3);
    proa_shape_print(&text, b, 0);
    assert_string_equal(text.ptr, "[2,3,-1][]");
    proa_buf_release(&text);
    (void)state;
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static void test_buffers(void **state)
{
    static const size_t sizes[] = {0, 1, 960, 961, 4032, 4033, 100000};
    for (size_t i = 0; i < PROA_COUNT(sizes); i++) {
        proa_buffer *b = proa_buffer_new(sizes[i]);
        assert_int_equal((uintptr_t)b->data % 64, 0);
        memset(b->data, 0x5A, sizes[i]);
        b->bytes = 3; /* who shortens it does not lose the way back */
        assert_ptr_equal(proa_buffer_hold(b), b);
        proa_buffer_drop(b);
        assert_true(sizes[i] == 0 || b->data[0] == 0x5A);
        proa_buffer_drop(b);
    }
    int freed = 0;
    char bytes[4];
    proa_buffer *w = proa_buffer_wrap(bytes, sizeof bytes, count_up, &freed);
    proa_tensor t = {
        .name = "a", .type = PROA_TYPE_INT8, .rank = 1, .shape = {4}, .buffer = w, .data = bytes, .bytes = 4};
    proa_tensor u;
    proa_tensor_share(&u, &t);
    assert_ptr_equal(u.data, bytes);
    proa_tensor_release(&t);
    assert_null(t.buffer);
    assert_int_equal(freed, 0);
    proa_tensor_release(&u);
    assert_int_equal(freed, 1);
    proa_tensor_release(&u); /* again does no harm */
    assert_int_equal(freed, 1);
    proa_buffer_drop(NULL);
    assert_null(proa_buffer_hold(NULL));
    (void)state;
}

static void put(char *to, size_t *at, const char *s, uint32_t len)
{
    memcpy(to + *at, &len, 4);
    memcpy(to + *at + 4, s, strlen(s));
    *at += 4 + strlen(s);
}

static void test_strings(void **state)
{
    char bytes[64];
    size_t n = 0, at = 0;
    put(bytes, &n, "abc", 3);
    put(bytes, &n, "", 0);
    put(bytes, &n, "\x80\xff", 2);
    proa_tensor t = {.type = PROA_TYPE_BYTES, .data = bytes, .bytes = n};
    proa_str s;
    int64_t found;
    assert_true(proa_tensor_next_string(&t, &at, &s) && proa_str_is(s, "abc"));
    assert_true(proa_tensor_next_string(&t, &at, &s) && s.len == 0);
    assert_true(proa_tensor_next_string(&t, &at, &s) && proa_str_is(s, "\x80\xff"));
    assert_false(proa_tensor_next_string(&t, &at, &s));
    assert_true(proa_tensor_strings_fit(&t, 3, &found));
    assert_false(proa_tensor_strings_fit(&t, 2, &found));
    assert_int_equal(found, 3);
    for (size_t cut = 1; cut < n; cut++) { /* cut anywhere: never out of bounds, never three */
        t.bytes = n - cut;
        assert_false(proa_tensor_strings_fit(&t, 3, NULL));
    }
    put(bytes, &n, "x", UINT32_MAX);
    t.bytes = n;
    assert_false(proa_tensor_strings_fit(&t, 4, &found));
    assert_int_equal(found, 3);
    t = (proa_tensor){.type = PROA_TYPE_BYTES};
    assert_true(proa_tensor_strings_fit(&t, 0, NULL));
    at = 5; /* beyond the end */
    assert_false(proa_tensor_next_string(&t, &at, &s));
    (void)state;
}

static void test_copies(void **state)
{
    uint64_t before = proa_copies_count();
    proa_copies_add(16 << 20);
    proa_copies_add(1);
    assert_int_equal(proa_copies_count() - before, (16 << 20) + 1);
    (void)state;
}

/* One thread makes, the other gives back: what travels must not come from the system each time. */
#define ROUNDS 200
#define EACH   50
typedef struct belt {
    pthread_barrier_t turn;
    void *item[EACH];
} belt;

static void *giver(void *arg)
{
    belt *b = arg;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&b->turn);
        for (int i = 0; i < EACH; i++) proa_recycle_give(PROA_RECYCLE_BUFFER, b->item[i]);
        pthread_barrier_wait(&b->turn);
    }
    return NULL;
}

static void test_recycle(void **state)
{
    belt b;
    pthread_t thread;
    pthread_barrier_init(&b.turn, NULL, 2);
    uint64_t before = proa_alloc_count();
    assert_int_equal(pthread_create(&thread, NULL, giver, &b), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < EACH; i++) {
            b.item[i] = proa_recycle_take(PROA_RECYCLE_BUFFER);
            memset(b.item[i], round, proa_recycle_bytes(PROA_RECYCLE_BUFFER));
            for (int j = 0; j < i; j++) assert_ptr_not_equal(b.item[i], b.item[j]);
        }
        pthread_barrier_wait(&b.turn);
        pthread_barrier_wait(&b.turn);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&b.turn);
    if (RECYCLES) assert_in_range(proa_alloc_count() - before, 1, 6 * EACH); /* of 10,000 */
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_shapes), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_strings), cmocka_unit_test(test_copies), cmocka_unit_test(test_recycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
