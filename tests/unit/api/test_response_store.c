/* SPDX-License-Identifier: Apache-2.0
 * test_response_store.c - the store of responses: owners, removal, and its two bounds. */
#include "api/responses/responses.h"

#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static bool is_there(proa_response_store *s, const char *id, uint64_t owner)
{
    return proa_response_store_get(s, proa_str_c(id), owner, NULL, NULL);
}

static void test_get(void **state)
{
    (void)state;
    proa_response_store *s = proa_response_store_new(60000);
    proa_buf messages, answer;
    proa_buf_init(&messages, 100);
    proa_buf_init(&answer, 100);
    proa_response_store_put(s, "resp_1", 7, proa_str_c("[1]"), proa_str_c("{}"));
    assert_true(proa_response_store_get(s, proa_str_c("resp_1"), 7, &messages, &answer));
    assert_true(proa_str_is(proa_buf_view(&messages), "[1]"));
    assert_true(proa_str_is(proa_buf_view(&answer), "{}"));
    assert_false(is_there(s, "resp_1", 8)); /* of another key */
    assert_false(is_there(s, "resp_2", 7));
    assert_false(proa_response_store_remove(s, proa_str_c("resp_1"), 8));
    assert_true(proa_response_store_remove(s, proa_str_c("resp_1"), 7));
    assert_false(is_there(s, "resp_1", 7));
    proa_buf_release(&messages);
    proa_buf_release(&answer);
    proa_response_store_free(s);
}

/* One more than there is room for: the least recently used one goes. */
static void test_count(void **state)
{
    (void)state;
    proa_response_store *s = proa_response_store_new(60000);
    char id[32];
    for (int i = 0; i < PROA_RESPONSES_MAX; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        proa_response_store_put(s, id, 0, proa_str_c("[]"), proa_str_c("{}"));
    }
    assert_true(is_there(s, "resp_0", 0)); /* and is the newest now */
    proa_response_store_put(s, "resp_more", 0, proa_str_c("[]"), proa_str_c("{}"));
    assert_true(is_there(s, "resp_0", 0));
    assert_false(is_there(s, "resp_1", 0));
    assert_true(is_there(s, "resp_2", 0));
    assert_true(is_there(s, "resp_more", 0));
    proa_response_store_free(s);
}

static void test_bytes(void **state)
{
    (void)state;
    proa_response_store *s = proa_response_store_new(60000);
    size_t third = (size_t)PROA_RESPONSES_BYTES_MAX / 3, all = (size_t)PROA_RESPONSES_BYTES_MAX;
    char *text = proa_calloc(1, all);
    const char *const ids[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++)
        proa_response_store_put(s, ids[i], 0, (proa_str){text, third / 2}, (proa_str){text, third / 2});
    assert_false(is_there(s, "a", 0)); /* three entries have their heads too */
    assert_true(is_there(s, "b", 0) && is_there(s, "c", 0));
    proa_response_store_put(s, "much", 0, (proa_str){text, all}, proa_str_c("{}"));
    assert_false(is_there(s, "much", 0)); /* larger than the store: it pushes nothing out */
    assert_true(is_there(s, "b", 0) && is_there(s, "c", 0));
    free(text);
    proa_response_store_free(s);
}

/* What nobody asked for in time is gone; each use is a new beginning. */
static void test_age(void **state)
{
    (void)state;
    proa_response_store *s = proa_response_store_new(0);
    proa_response_store_put(s, "a", 0, proa_str_c("[]"), proa_str_c("{}"));
    assert_false(is_there(s, "a", 0));
    proa_response_store_free(s);
    s = proa_response_store_new(2000);
    proa_response_store_put(s, "a", 0, proa_str_c("[]"), proa_str_c("{}"));
    proa_response_store_put(s, "b", 0, proa_str_c("[]"), proa_str_c("{}"));
    usleep(1250000); /* two are longer than it keeps what is not used */
    assert_true(is_there(s, "a", 0));
    usleep(1250000);
    assert_true(is_there(s, "a", 0));
    assert_false(is_there(s, "b", 0));
    proa_response_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_get), cmocka_unit_test(test_count),
                                       cmocka_unit_test(test_bytes), cmocka_unit_test(test_age)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
