/* SPDX-License-Identifier: Apache-2.0
 * test_recent.c - the ring of recent requests: order, what is overwritten, long names, JSON, writers and a reader at
 * once. For the thread sanitiser. */
#include "api/console/recent.h"
#include "base/json.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <cmocka.h>

static proa_recent_request list[PROA_RECENT_REQUESTS_MAX];
static uint64_t added; /* by all tests so far: the ring is the process's */

static void add_request(const char *model, const char *id, proa_status status, int64_t received)
{
    proa_infer *r = proa_infer_new();
    proa_reply *reply = proa_reply_new(r);
    r->model_name = model;
    r->id = id;
    r->times = (proa_infer_times){.received = received,
                                  .queued = received + 5000,
                                  .compute_start = received + 9000,
                                  .ended = received + 70000};
    r->usage = (proa_infer_usage){
        .prompt_tokens = 7, .cached_tokens = 4, .new_tokens = 3, .sequences = 1, .first_token_ns = received + 20000};
    reply->model_version = 2;
    reply->error.status = status;
    proa_recent_add(r, reply);
    proa_reply_free(reply);
    proa_infer_drop(r);
}

static void test_one(void **state)
{
    (void)state;
    proa_buf out;
    proa_json *root = NULL;
    add_request("m\"1", "a", PROA_OK, 1000000);
    add_request("m2", "", PROA_CANCELLED, 1000000);
    added += 2;
    assert_int_equal(proa_recent_read(list, PROA_RECENT_REQUESTS_MAX, added - 2), 2);
    assert_int_equal(list[0].number, added - 1);
    proa_buf_init(&out, 1 << 20);
    proa_recent_json(&out, list, 2);
    assert_non_null(strstr(out.ptr, "\"model\":\"m\\\"1\",\"version\":\"2\",\"id\":\"a\""));
    assert_non_null(strstr(out.ptr,
                           "\"queued_us\":5,\"started_us\":9,\"first_token_us\":20,\"ended_us\":70,"
                           "\"prompt_tokens\":7,\"cached_tokens\":4,\"new_tokens\":3,\"sequences\":1"));
    assert_non_null(strstr(out.ptr, "\"status\":499,\"result\":\"cancelled\""));
    assert_int_equal(proa_json_parse(&root, proa_buf_view(&out), "the list", NULL), PROA_OK);
    assert_int_equal(proa_json_len(root), 2);
    proa_json_free(root);
    proa_buf_release(&out);
}

static void test_wrap(void **state)
{
    (void)state;
    for (int i = 0; i < PROA_RECENT_REQUESTS_MAX + 100; i++) add_request("m", "", PROA_OK, 1);
    added += PROA_RECENT_REQUESTS_MAX + 100;
    assert_int_equal(proa_recent_read(list, PROA_RECENT_REQUESTS_MAX, 0), PROA_RECENT_REQUESTS_MAX);
    for (int i = 0; i < PROA_RECENT_REQUESTS_MAX; i++)
        assert_int_equal(list[i].number, added - PROA_RECENT_REQUESTS_MAX + 1 + (uint64_t)i);
    assert_int_equal(proa_recent_read(list, 10, added - 20), 10); /* the oldest first: the rest comes with the next */
    assert_int_equal(list[9].number, added - 10);
    assert_int_equal(proa_recent_read(list, 10, added), 0);
    assert_int_equal(proa_recent_read(list, 10, UINT64_MAX - 1), 0);
    assert_int_equal(proa_recent_last(added + 5), added); /* a reader of another server begins again */
    assert_int_equal(proa_recent_last(added - 5), added - 5);
}

static void test_long_names(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'x', sizeof name);
    memcpy(name + PROA_RECENT_NAME_MAX - 2, "\xe2\x82\xac", 3); /* a euro sign where the name is cut */
    name[sizeof name - 1] = 0;
    add_request(name, name + 1, PROA_OK, 1);
    added++;
    assert_int_equal(proa_recent_read(list, 1, added - 1), 1);
    assert_int_equal(strlen(list[0].model), PROA_RECENT_NAME_MAX - 2);
    assert_int_equal(strlen(list[0].id), PROA_RECENT_NAME_MAX - 3);
    assert_true(proa_utf8_valid(proa_str_c(list[0].model)));
}

enum { WRITERS = 4, EACH = 2000 };
static atomic_int writers_left;

static void *write_many(void *arg)
{
    for (int i = 0; i < EACH; i++) add_request(arg, "", PROA_OK, 1 + i);
    atomic_fetch_sub(&writers_left, 1);
    return NULL;
}

/* What is read is whole, in order, and nothing comes twice. */
static void test_threads(void **state)
{
    (void)state;
    static char names[WRITERS][8] = {"model-0", "model-1", "model-2", "model-3"};
    pthread_t threads[WRITERS];
    uint64_t since = added, seen = 0;
    int count, left;
    atomic_store(&writers_left, WRITERS);
    for (int i = 0; i < WRITERS; i++) pthread_create(&threads[i], NULL, write_many, names[i]);
    do {
        left = atomic_load(&writers_left);
        count = proa_recent_read(list, PROA_RECENT_REQUESTS_MAX, since);
        for (int i = 0; i < count; i++) {
            assert_true(list[i].number > since);
            assert_int_equal(list[i].times.ended - list[i].times.received, 70000);
            assert_memory_equal(list[i].model, "model-", 6);
            since = list[i].number;
            seen++;
        }
    } while (count > 0 || left > 0);
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    added += WRITERS * EACH;
    assert_int_equal(since, added);
    assert_true(seen <= WRITERS * EACH);
    assert_int_equal(proa_recent_read(list, PROA_RECENT_REQUESTS_MAX, 0), PROA_RECENT_REQUESTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_wrap),
                                       cmocka_unit_test(test_long_names), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
