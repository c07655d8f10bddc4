/* SPDX-License-Identifier: Apache-2.0
 * test_host_cache.c - images of evicted pages: found by key and tokens, evicted by recency, uses and depth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "kv/host_cache.h"

#include <string.h>

enum { PAGES = 4 };

typedef struct fixture {
    proa_kv_pages pool;
    proa_host_cache cache;
} fixture;

static void make(fixture *f, int64_t capacity)
{
    static proa_device *d;
    if (!d && proa_device_open(&d, "cpu", NULL) != PROA_OK) abort();
    assert_int_equal(proa_kv_pages_init(&f->pool, d, PAGES, proa_kv_one_shape(2, 1, 1, PROA_DTYPE_F32), NULL),
                     PROA_OK);
    assert_int_equal(proa_host_cache_init(&f->cache, &f->pool, capacity, NULL, NULL), PROA_OK);
}

static void break_up(fixture *f)
{
    proa_host_cache_release(&f->cache);
    proa_kv_pages_release(&f->pool);
}

/* The first number of a page in a layer. */
static float *first_of(const fixture *f, int page, int layer, bool value)
{
    proa_kv kv = proa_kv_pages_layer(&f->pool, layer);
    return (float *)(value ? kv.v : kv.k) + (size_t)page * PROA_PAGE_TOKENS;
}

/* The name of a page whose tokens are all `id`, behind that of `before` (0: the first one). */
static proa_page_name name_of(int32_t id, int32_t depth)
{
    static int32_t ids[64][PROA_PAGE_TOKENS];
    proa_page_key start = proa_page_key_of("x", 1);
    for (int i = 0; i < PROA_PAGE_TOKENS; i++) ids[id][i] = id;
    return (proa_page_name){proa_page_key_next(&start, -1, ids[id], PROA_PAGE_TOKENS), ids[id],
                            PROA_PAGE_TOKENS, depth};
}

static void put(fixture *f, int32_t id, int32_t depth)
{
    proa_page_name name = name_of(id, depth);
    for (int layer = 0; layer < 2; layer++)
        for (int value = 0; value < 2; value++)
            *first_of(f, 1, layer, value) = (float)(id * 10 + layer * 2 + value);
    proa_host_cache_put(&f->cache, &name, 1, true);
}

static bool has(fixture *f, int32_t id)
{
    proa_page_name name = name_of(id, 0);
    return proa_host_cache_fetch(&f->cache, &name);
}

/* Loads the page into another one, and looks at it. */
static void load(fixture *f, int32_t id)
{
    proa_page_name name = name_of(id, 0);
    int32_t image;
    assert_int_equal(proa_host_cache_find(&f->cache, &name, &image), PROA_HOST_READY);
    assert_false(proa_host_cache_load(&f->cache, image, 2));
    for (int layer = 0; layer < 2; layer++)
        for (int value = 0; value < 2; value++)
            assert_true(*first_of(f, 2, layer, value) == (float)(id * 10 + layer * 2 + value));
}

static void the_oldest_goes_first(void **state)
{
    fixture f;
    (void)state;
    make(&f, 3);
    for (int id = 1; id <= 3; id++) put(&f, id, 0);
    put(&f, 1, 0); /* is there already: only its time changes */
    assert_int_equal(f.cache.count, 3);
    put(&f, 4, 0);
    assert_true(has(&f, 1) && !has(&f, 2) && has(&f, 3) && has(&f, 4));
    put(&f, 5, 0);
    assert_true(has(&f, 1) && !has(&f, 3));
    assert_int_equal(f.cache.evicted, 2);
    load(&f, 1), load(&f, 4), load(&f, 5);
    break_up(&f);
}

/* A use keeps an image as long as an eighth of all; of pages used together the deeper goes first. */
static void uses_and_depth_count(void **state)
{
    fixture f;
    (void)state;
    make(&f, 16);
    for (int id = 0; id < 16; id++) put(&f, id, 0);
    for (int i = 0; i < 3; i++) load(&f, 0);
    for (int id = 16; id < 16 + 15; id++) put(&f, id, 0);
    assert_true(has(&f, 0) && !has(&f, 1) && !has(&f, 15));
    break_up(&f);
    make(&f, 4);
    for (int id = 0; id < 4; id++) put(&f, id, 3 - id); /* as the tree evicts a path: its end first */
    load(&f, 3), load(&f, 2), load(&f, 1), load(&f, 0); /* and finds it again: at one time */
    put(&f, 5, 0), put(&f, 6, 0);
    assert_true(!has(&f, 0) && !has(&f, 1) && has(&f, 2) && has(&f, 3));
    break_up(&f);
}

static void held_images_stay(void **state)
{
    fixture f;
    (void)state;
    make(&f, 2);
    put(&f, 1, 0), put(&f, 2, 0);
    proa_page_name one = name_of(1, 0), two = name_of(2, 0);
    int32_t a, b;
    assert_int_equal(proa_host_cache_find(&f.cache, &one, &a), PROA_HOST_READY);
    assert_int_equal(proa_host_cache_find(&f.cache, &two, &b), PROA_HOST_READY);
    put(&f, 3, 0); /* there is no room */
    assert_true(has(&f, 1) && has(&f, 2) && !has(&f, 3));
    proa_host_cache_drop(&f.cache, a);
    put(&f, 3, 0);
    assert_true(!has(&f, 1) && has(&f, 2) && has(&f, 3));
    proa_host_cache_load(&f.cache, b, 2);
    assert_true(*first_of(&f, 2, 0, false) == 20);
    break_up(&f);
}

static void other_tokens_are_not_found(void **state)
{
    fixture f;
    int32_t ids[PROA_PAGE_TOKENS] = {0}, image;
    (void)state;
    make(&f, 2);
    put(&f, 1, 0);
    proa_page_name name = name_of(1, 0);
    name.ids = ids; /* the key of other tokens */
    assert_int_equal(proa_host_cache_find(&f.cache, &name, &image), PROA_HOST_MISS);
    name = name_of(1, 0);
    name.count--;
    assert_int_equal(proa_host_cache_find(&f.cache, &name, &image), PROA_HOST_MISS);
    break_up(&f);
}

static void *no_memory(proa_device *d, int64_t bytes)
{
    (void)d, (void)bytes;
    return NULL;
}

static void no_room_at_all(void **state)
{
    fixture f;
    proa_page_name name = name_of(1, 0);
    int32_t image;
    proa_err err = {.status = PROA_OK};
    (void)state;
    make(&f, 0);
    put(&f, 1, 0);
    assert_int_equal(proa_host_cache_find(&f.cache, &name, &image), PROA_HOST_MISS);
    break_up(&f);
    make(&f, 1);
    proa_host_cache_release(&f.cache);
    proa_device full = *f.pool.device, *device = f.pool.device;
    full.host_alloc = no_memory;
    f.pool.device = &full;
    assert_int_equal(proa_host_cache_init(&f.cache, &f.pool, 3, NULL, &err), PROA_NO_MEMORY);
    assert_non_null(strstr(err.text, "--prefix-host-memory"));
    f.pool.device = device;
    break_up(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_goes_first), cmocka_unit_test(uses_and_depth_count),
        cmocka_unit_test(held_images_stay), cmocka_unit_test(other_tokens_are_not_found),
        cmocka_unit_test(no_room_at_all)};
    return cmocka_run_group_tests_name("host_cache", tests, NULL, NULL);
}
