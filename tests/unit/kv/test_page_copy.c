/* SPDX-License-Identifier: Apache-2.0
 * test_page_copy.c - pages to memory of the host and back into other pages. With PROA_TEST_DEVICE=cuda on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "kv/page_copy.h"

#include <stdlib.h>
#include <string.h>

enum { PAGES = 40, LAYERS = 3, HEADS = 2, DIM = 8 };

static void make(proa_kv_pages *p, proa_dtype dtype)
{
    static proa_device *d;
    proa_err err = {.status = PROA_OK};
    if (!d && proa_device_open(&d, getenv("PROA_TEST_DEVICE"), &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(proa_kv_pages_init(p, d, PAGES, proa_kv_one_shape(LAYERS, HEADS, DIM, dtype), &err),
                     PROA_OK);
}

static size_t bytes_of(proa_dtype dtype)
{
    return (size_t)proa_dtype_bytes(dtype) * HEADS * PROA_PAGE_TOKENS * DIM;
}

/* A byte that differs between pages, layers, keys and values, and places. */
static unsigned char mark_of(int page, int block, size_t at)
{
    return (unsigned char)(page * 31 + block * 7 + (int)(at % 251));
}

/* Keys (value 0) or values of a layer of a page, where kernels find them. */
static char *block_of(const proa_kv_pages *p, int page, int layer, int value, size_t bytes)
{
    proa_kv kv = proa_kv_pages_layer(p, layer);
    return (char *)(value ? kv.v : kv.k) + (size_t)page * bytes;
}

static void write_page(const proa_kv_pages *p, int page, size_t bytes)
{
    unsigned char *from = proa_malloc(bytes);
    for (int block = 0; block < 2 * LAYERS; block++) {
        for (size_t i = 0; i < bytes; i++) from[i] = mark_of(page, block, i);
        p->device->upload(p->device, block_of(p, page, block / 2, block % 2, bytes), from, (int64_t)bytes);
    }
    free(from);
}

/* The page has what was written to page number `written`. */
static void check_page(const proa_kv_pages *p, int page, int written, size_t bytes)
{
    unsigned char *got = proa_malloc(bytes);
    for (int block = 0; block < 2 * LAYERS; block++) {
        p->device->download(p->device, got, block_of(p, page, block / 2, block % 2, bytes), (int64_t)bytes);
        for (size_t i = 0; i < bytes; i++)
            if (got[i] != mark_of(written, block, i))
                fail_msg("page %d, block %d, byte %zu is not that of page %d", page, block, i, written);
    }
    free(got);
}

static void images_have_every_layer(void **state)
{
    static const proa_dtype dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16, PROA_DTYPE_FP8};
    (void)state;
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        proa_kv_pages p;
        size_t bytes = bytes_of(dtypes[k]);
        make(&p, dtypes[k]);
        assert_int_equal(proa_kv_image_bytes(&p), 2 * LAYERS * bytes);
        char *image = proa_kv_images_alloc(&p, 1);
        write_page(&p, 5, bytes);
        proa_kv_page_wait(&p, proa_kv_page_save(&p, 5, image));
        for (size_t i = 0; i < 2 * LAYERS * bytes; i++)
            assert_int_equal((unsigned char)image[i], mark_of(5, (int)(i / bytes), i % bytes));
        proa_kv_images_free(&p, image);
        proa_kv_pages_release(&p);
    }
}

/* Every page goes out, is overwritten at once, and comes back elsewhere: the copies keep their order with what the
 * device writes before and after them. More copies are under way than a device counts at one time. */
static void pages_trade_places(void **state)
{
    enum { ROUNDS = 9 };
    proa_kv_pages p;
    size_t bytes = bytes_of(PROA_DTYPE_F32);
    (void)state;
    make(&p, PROA_DTYPE_F32);
    char *images = proa_kv_images_alloc(&p, PAGES);
    int64_t image = proa_kv_image_bytes(&p), nr = 0;
    for (int i = 0; i < PAGES; i++) write_page(&p, i, bytes);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PAGES; i++) proa_kv_page_save(&p, i, images + i * image);
        proa_kv_pages_wait_on_stream(&p);
        for (int i = 0; i < PAGES; i++) write_page(&p, i, bytes / 2); /* spoils it */
        for (int i = 0; i < PAGES; i++) nr = proa_kv_page_load(&p, (i + 1) % PAGES, images + i * image);
        proa_kv_pages_wait_on_stream(&p);
    }
    for (int i = 0; i < PAGES; i++) check_page(&p, (i + ROUNDS) % PAGES, i, bytes);
    proa_kv_page_wait(&p, nr);
    assert_true(proa_kv_pages_copied(&p) >= nr);
    assert_int_equal(p.device->check(p.device, NULL), PROA_OK);
    proa_kv_images_free(&p, images);
    proa_kv_pages_release(&p);
}

/* What another model has in a page goes with it: to the host and back, and into the copy of a shared page. */
static void pages_beside_go_along(void **state)
{
    proa_kv_pages p, beside;
    proa_err err = {.status = PROA_OK};
    int32_t mine[2], its[2];
    proa_page_table a = {mine, 0, 2}, b = {its, 0, 2};
    size_t bytes = bytes_of(PROA_DTYPE_BF16);
    (void)state;
    make(&p, PROA_DTYPE_F32);
    assert_int_equal(proa_kv_pages_init_attached(&beside, &p, p.device,
                                                 proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_BF16), &err),
                     PROA_OK);
    assert_int_equal(proa_kv_image_bytes(&p), 2 * LAYERS * (bytes_of(PROA_DTYPE_F32) + bytes));
    char *image = proa_kv_images_alloc(&p, 1);
    write_page(&p, 7, bytes_of(PROA_DTYPE_F32)), write_page(&beside, 7, bytes);
    proa_kv_page_save(&p, 7, image);
    proa_kv_page_wait(&p, proa_kv_page_load(&p, 9, image));
    check_page(&p, 9, 7, bytes_of(PROA_DTYPE_F32)), check_page(&beside, 9, 7, bytes);
    assert_true(proa_page_table_grow(&p, &a, 2 * PROA_PAGE_TOKENS));
    write_page(&p, mine[1], bytes_of(PROA_DTYPE_F32)), write_page(&beside, mine[1], bytes);
    proa_page_table_share(&p, &b, &a, 2 * PROA_PAGE_TOKENS);
    assert_true(proa_page_table_own(&p, &b, 2 * PROA_PAGE_TOKENS - 1));
    assert_int_not_equal(mine[1], its[1]);
    char first[DIM * 2], copied[DIM * 2];
    for (int value = 0; value < 2; value++) {
        p.device->download(p.device, first, block_of(&beside, mine[1], 1, value, bytes), sizeof first);
        p.device->download(p.device, copied, block_of(&beside, its[1], 1, value, bytes), sizeof copied);
        assert_memory_equal(first, copied, sizeof first);
    }
    proa_kv_images_free(&p, image);
    proa_kv_pages_release(&beside), proa_kv_pages_release(&p);
}

/* Another pool with more pages, so other distances between layers, gets pages with what models beside have in them. */
static void pages_go_to_another_pool(void **state)
{
    static const int32_t to_page[] = {3, 51, 4}, from_page[] = {8, 2, 39};
    enum { MORE = 60 };
    proa_kv_pages from, from_beside, to, to_beside, other;
    proa_err err = {.status = PROA_OK};
    int64_t nr[PROA_KV_POOLS_MAX];
    size_t wide = bytes_of(PROA_DTYPE_F32), narrow = bytes_of(PROA_DTYPE_BF16);
    (void)state;
    make(&from, PROA_DTYPE_F32);
    assert_int_equal(proa_kv_pages_init(&to, from.device, MORE,
                                        proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_F32), &err),
                     PROA_OK);
    assert_true(proa_kv_pages_alike(&to, &from));
    assert_int_equal(proa_kv_pages_init_attached(&from_beside, &from, from.device,
                                                 proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_BF16), &err),
                     PROA_OK);
    assert_false(proa_kv_pages_alike(&to, &from));
    assert_int_equal(proa_kv_pages_init_attached(&to_beside, &to, to.device,
                                                 proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_BF16), &err),
                     PROA_OK);
    assert_true(proa_kv_pages_alike(&to, &from));
    for (int i = 0; i < 3; i++)
        write_page(&from, from_page[i], wide), write_page(&from_beside, from_page[i], narrow);
    write_page(&to, 5, wide);
    assert_int_equal(from.device->check(from.device, NULL), PROA_OK); /* what is copied is complete */
    proa_kv_pages_fetch(&to, to_page, &from, from_page, 3, nr);
    while (!proa_kv_pages_fetched(&to, nr)) {
    }
    for (int i = 0; i < 3; i++) {
        check_page(&to, to_page[i], from_page[i], wide);
        check_page(&to_beside, to_page[i], from_page[i], narrow);
    }
    check_page(&to, 5, 5, wide);
    assert_int_equal(proa_kv_pages_init(&other, to.device, 4,
                                        proa_kv_one_shape(LAYERS, HEADS, 2 * DIM, PROA_DTYPE_F32), &err),
                     PROA_OK);
    assert_false(proa_kv_pages_alike(&to, &other));
    proa_kv_pages_release(&other);
    proa_kv_pages_release(&from_beside), proa_kv_pages_release(&from);
    proa_kv_pages_release(&to_beside), proa_kv_pages_release(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_have_every_layer), cmocka_unit_test(pages_trade_places),
        cmocka_unit_test(pages_beside_go_along), cmocka_unit_test(pages_go_to_another_pool)};
    return cmocka_run_group_tests_name("page_copy", tests, NULL, NULL);
}
