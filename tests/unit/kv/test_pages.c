/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "kv/pages.h"

#include <string.h>

enum { LAYERS = 3, HEADS = 2, DIM = 5, PAGES = 8, CAP = 6 };

typedef struct fixture {
    proa_kv_pages pool;
    int32_t page[4][CAP];
    proa_page_table table[4];
} fixture;

/* One for all tests; it holds nothing that would need a release. */
static proa_device *host(void)
{
    static proa_device *d;
    if (!d && proa_device_open(&d, "cpu", NULL) != PROA_OK) abort();
    return d;
}

static int set_up(void **state)
{
    fixture *f = proa_calloc(1, sizeof *f);
    for (int i = 0; i < 4; i++) f->table[i] = (proa_page_table){.page = f->page[i], .cap = CAP};
    *state = f;
    return proa_kv_pages_init(&f->pool, host(), PAGES, proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_F32),
                              NULL) == PROA_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    proa_kv_pages_release(&f->pool);
    free(f);
    return 0;
}

/* Layers of two shapes: those of the other one come last, and a copy of tokens reaches all. */
static void test_two_shapes(void **state)
{
    proa_kv_pages p;
    proa_kv_shape shape = {LAYERS, HEADS, DIM, PROA_DTYPE_F32, 2, 1, 3 * DIM};
    (void)state;
    assert_int_equal(proa_kv_shape_numbers(&shape), 2 * (LAYERS * HEADS * DIM + 2 * 3 * DIM));
    assert_int_equal(proa_kv_pages_init(&p, host(), PAGES, shape, NULL), PROA_OK);
    assert_int_equal(proa_kv_pages_bytes(PAGES, shape), p.bytes + p.other->bytes);
    for (int32_t layer = 0; layer < LAYERS + 2; layer++) {
        proa_kv kv = proa_kv_pages_layer(&p, layer);
        int64_t heads = layer < LAYERS ? HEADS : 1, dim = layer < LAYERS ? DIM : 3 * DIM;
        assert_int_equal(kv.kv_heads, heads);
        assert_int_equal(kv.head_dim, dim);
        for (int64_t h = 0; h < heads; h++) /* token 1 of page 2, keys and values */
            for (int64_t i = 0; i < dim; i++) {
                ((float *)kv.k)[((2 * heads + h) * PROA_PAGE_TOKENS + 1) * dim + i] = (float)(layer + 1);
                ((float *)kv.v)[((2 * heads + h) * PROA_PAGE_TOKENS + 1) * dim + i] = (float)-(layer + 1);
            }
    }
    proa_kv_pages_copy(&p, &(proa_kv_copy){.to_page = 5, .from_page = 2, .to = 63, .from = 1, .count = 1});
    for (int32_t layer = 0; layer < LAYERS + 2; layer++) {
        proa_kv kv = proa_kv_pages_layer(&p, layer);
        int64_t at = (6 * kv.kv_heads * PROA_PAGE_TOKENS - 1) * kv.head_dim; /* of the last head */
        assert_true(((float *)kv.k)[at] == (float)(layer + 1));
        assert_true(((float *)kv.v)[at + kv.head_dim - 1] == (float)-(layer + 1));
    }
    proa_kv_pages_release(&p);
}

/* Pages that proa_page_table_own(from_token) and then proa_page_table_grow(tokens) take. */
static int64_t pages_needed(const proa_kv_pages *p, const proa_page_table *table, int64_t from_token,
                            int64_t tokens)
{
    int64_t needed = proa_max64(proa_kv_pages_for(tokens) - table->count, 0);
    for (int64_t i = from_token / PROA_PAGE_TOKENS; i < table->count; i++)
        needed += p->refs[table->page[i]] > 1;
    return needed;
}

/* Element 0..dh of (token, head) as the kernels find it. */
static float *element(const fixture *f, int table, int32_t layer, bool value, int64_t token, int64_t head)
{
    proa_kv kv = proa_kv_pages_layer(&f->pool, layer);
    int64_t page = f->table[table].page[token / PROA_PAGE_TOKENS];
    float *base = value ? kv.v : kv.k;
    return base + ((page * HEADS + head) * PROA_PAGE_TOKENS + token % PROA_PAGE_TOKENS) * DIM;
}

static float mark(int32_t layer, bool value, int64_t token, int64_t head, int d)
{
    return (float)(((layer * 2 + value) * 1000 + token) * 100 + head * 10 + d);
}

static void fill(const fixture *f, int table, int64_t from, int64_t to, float plus)
{
    for (int32_t l = 0; l < LAYERS; l++)
        for (int v = 0; v < 2; v++)
            for (int64_t t = from; t < to; t++)
                for (int64_t h = 0; h < HEADS; h++)
                    for (int d = 0; d < DIM; d++)
                        element(f, table, l, v, t, h)[d] = mark(l, v, t, h, d) + plus;
}

static void expect(const fixture *f, int table, int64_t from, int64_t to, float plus)
{
    for (int32_t l = 0; l < LAYERS; l++)
        for (int v = 0; v < 2; v++)
            for (int64_t t = from; t < to; t++)
                for (int64_t h = 0; h < HEADS; h++)
                    for (int d = 0; d < DIM; d++)
                        assert_true(element(f, table, l, v, t, h)[d] == mark(l, v, t, h, d) + plus);
}

/* Counters agree with each other and with the references that the tables hold. */
static void check_counts(const fixture *f, int64_t used)
{
    int32_t refs[PAGES] = {0};
    for (int t = 0; t < 4; t++)
        for (int32_t i = 0; i < f->table[t].count; i++) refs[f->table[t].page[i]]++;
    assert_memory_equal(refs, f->pool.refs, sizeof refs);
    assert_int_equal(f->pool.used, used);
    assert_int_equal(f->pool.free, PAGES - used);
    assert_true(f->pool.used_peak >= used);
    bool seen[PAGES] = {0};
    for (int64_t i = 0; i < f->pool.free; i++) {
        int32_t page = f->pool.stack[i];
        assert_true(refs[page] == 0 && !seen[page]);
        seen[page] = true;
    }
}

static void test_grow(void **state)
{
    fixture *f = *state;
    proa_page_table *a = &f->table[0], *b = &f->table[1];
    assert_true(proa_page_table_grow(&f->pool, a, 0));
    check_counts(f, 0);
    assert_true(proa_page_table_grow(&f->pool, a, 1));
    assert_true(proa_page_table_grow(&f->pool, a, 64));
    check_counts(f, 1);
    assert_true(proa_page_table_grow(&f->pool, a, 65));
    assert_true(proa_page_table_grow(&f->pool, a, 3)); /* gives nothing back */
    check_counts(f, 2);
    assert_int_equal(a->page[0], 0); /* low pages first */
    assert_int_equal(a->page[1], 1);
    assert_false(proa_page_table_grow(&f->pool, a, CAP * 64 + 1));
    check_counts(f, 2);
    assert_true(proa_page_table_grow(&f->pool, a, CAP * 64));
    assert_false(proa_page_table_grow(&f->pool, b, 3 * 64)); /* two are left */
    assert_int_equal(b->count, 0);
    check_counts(f, 6);
    assert_true(proa_page_table_grow(&f->pool, b, 2 * 64));
    check_counts(f, 8);
    proa_page_table_release(&f->pool, a);
    check_counts(f, 2);
    proa_page_table_release(&f->pool, b);
    proa_page_table_release(&f->pool, b);
    check_counts(f, 0);
    assert_int_equal(f->pool.used_peak, 8);
    assert_int_equal(f->pool.copies, 0);
}

static void test_share_and_own(void **state)
{
    fixture *f = *state;
    proa_page_table *a = &f->table[0], *b = &f->table[1], *c = &f->table[2];
    assert_true(proa_page_table_grow(&f->pool, a, 150));
    fill(f, 0, 0, 150, 0);
    proa_page_table_share(&f->pool, b, a, 150);
    proa_page_table_share(&f->pool, c, a, 128); /* whole pages only */
    assert_int_equal(c->count, 2);
    check_counts(f, 3);

    assert_int_equal(pages_needed(&f->pool, b, 150, 151), 1);
    assert_int_equal(pages_needed(&f->pool, b, 150, 193), 2);
    assert_int_equal(pages_needed(&f->pool, b, 0, 0), 3);
    assert_int_equal(pages_needed(&f->pool, c, 128, 129), 1); /* nothing to own, one to take */
    assert_true(proa_page_table_own(&f->pool, b, 150));
    check_counts(f, 4);
    assert_int_equal(f->pool.copies, 1);
    expect(f, 1, 0, 150, 0);
    fill(f, 1, 150, 192, 0.5F);
    expect(f, 0, 0, 150, 0);
    assert_true(proa_page_table_own(&f->pool, b, 151)); /* it is its own already */
    assert_true(proa_page_table_own(&f->pool, a, 150)); /* and so is that of the one left behind */
    assert_true(proa_page_table_own(&f->pool, c, 128)); /* beyond its pages */
    assert_int_equal(f->pool.copies, 1);

    fill(f, 0, 128, 150, 7);
    expect(f, 1, 0, 150, 0);
    expect(f, 1, 150, 192, 0.5F);
    proa_page_table_release(&f->pool, a);
    expect(f, 1, 0, 150, 0);
    expect(f, 2, 0, 128, 0);
    proa_page_table_release(&f->pool, b);
    check_counts(f, 2);
    proa_page_table_release(&f->pool, c);
    check_counts(f, 0);
}

/* Writing in the middle: that page and the ones after it become private, the ones before stay shared. */
static void test_own_middle(void **state)
{
    fixture *f = *state;
    assert_true(proa_page_table_grow(&f->pool, &f->table[0], 3 * 64));
    fill(f, 0, 0, 192, 0);
    proa_page_table_share(&f->pool, &f->table[1], &f->table[0], 192);
    assert_true(proa_page_table_own(&f->pool, &f->table[1], 70));
    assert_int_equal(f->pool.copies, 2);
    assert_int_equal(f->table[1].page[0], f->table[0].page[0]);
    check_counts(f, 5);
    expect(f, 1, 0, 70, 0);
    fill(f, 1, 70, 192, 3);
    expect(f, 0, 0, 192, 0);
}

/* A path through a tree that lies on both sides of a page's border. */
static void test_compact(void **state)
{
    fixture *f = *state;
    static const int32_t rows[] = {0, 2, 3, 7, 9};
    assert_true(proa_page_table_grow(&f->pool, &f->table[0], 128));
    fill(f, 0, 0, 128, 0);
    proa_page_table_compact(&f->pool, &f->table[0], 62, rows, PROA_COUNT(rows));
    expect(f, 0, 0, 63, 0);
    for (int i = 0; i < (int)PROA_COUNT(rows); i++)
        for (int64_t h = 0; h < HEADS; h++) {
            assert_true(element(f, 0, LAYERS - 1, true, 62 + i, h)[0] ==
                        mark(LAYERS - 1, true, 62 + rows[i], h, 0));
            assert_true(element(f, 0, 0, false, 62 + i, h)[DIM - 1] == mark(0, false, 62 + rows[i], h, DIM - 1));
        }
    expect(f, 0, 67, 128, 0);
    check_counts(f, 2);
}

static void test_dry_changes_nothing(void **state)
{
    fixture *f = *state;
    assert_true(proa_page_table_grow(&f->pool, &f->table[0], 4 * 64));
    assert_true(proa_page_table_grow(&f->pool, &f->table[3], 3 * 64));
    proa_page_table_share(&f->pool, &f->table[1], &f->table[0], 4 * 64);
    int32_t before[CAP];
    memcpy(before, f->page[1], sizeof before);
    assert_int_equal(pages_needed(&f->pool, &f->table[1], 2 * 64, 0), 2);
    assert_false(proa_page_table_own(&f->pool, &f->table[1], 2 * 64));
    assert_memory_equal(before, f->page[1], sizeof before);
    check_counts(f, 7);
    assert_true(proa_page_table_own(&f->pool, &f->table[1], 3 * 64));
    check_counts(f, 8);
    assert_false(proa_page_table_own(&f->pool, &f->table[1], 0));
}

/* Random moves like those of a beam search, with the contents followed by a plain model. */
static void test_random_moves(void **state)
{
    fixture *f = *state;
    float plus[4][CAP * 64];
    int64_t tokens[4] = {0};
    uint32_t seed = 1;
    uint64_t allocations = proa_alloc_count();
    for (int step = 0; step < 4000; step++) {
        seed = seed * 1664525 + 1013904223;
        int t = (int)(seed >> 30), from = (int)(seed >> 28 & 3);
        if ((seed >> 20 & 7) == 0) {
            proa_page_table_release(&f->pool, &f->table[t]);
            tokens[t] = 0;
        } else if ((seed >> 20 & 7) == 1 && t != from) {
            proa_page_table_release(&f->pool, &f->table[t]);
            proa_page_table_share(&f->pool, &f->table[t], &f->table[from], tokens[from]);
            tokens[t] = tokens[from];
            memcpy(plus[t], plus[from], sizeof plus[t]);
        } else {
            int64_t more = (seed >> 12) % 40 + 1;
            bool room = tokens[t] + more <= CAP * 64 &&
                        pages_needed(&f->pool, &f->table[t], tokens[t], tokens[t] + more) <= f->pool.free;
            if (!room) continue;
            assert_true(proa_page_table_own(&f->pool, &f->table[t], tokens[t]));
            assert_true(proa_page_table_grow(&f->pool, &f->table[t], tokens[t] + more));
            for (int64_t i = tokens[t]; i < tokens[t] + more; i++) {
                plus[t][i] = (float)(step % 31);
                fill(f, t, i, i + 1, plus[t][i]);
            }
            tokens[t] += more;
        }
        if (step % 50 == 0)
            for (int k = 0; k < 4; k++)
                for (int64_t i = 0; i < tokens[k]; i++) expect(f, k, i, i + 1, plus[k][i]);
    }
    assert_int_equal(proa_alloc_count(), allocations);
    assert_true(f->pool.copies > 100);
    for (int k = 0; k < 4; k++) proa_page_table_release(&f->pool, &f->table[k]);
    check_counts(f, 0);
}

/* ---- beams ---- */

enum { BEAMS = 5, TOKENS = 200, WORDS_PER_TOKEN = 2 * LAYERS * HEADS * DIM };

typedef struct search {
    proa_kv_pages pool;
    int32_t page[2 * BEAMS][CAP];
    proa_page_table table[BEAMS], spare[BEAMS];
    float written[BEAMS][TOKENS]; /* what each beam has in its pages, by token */
} search;

static float *of_token(const search *s, int beam, int64_t token, int64_t word)
{
    proa_kv kv = proa_kv_pages_layer(&s->pool, (int32_t)(word / (2 * HEADS * DIM)));
    int64_t page = s->table[beam].page[token / PROA_PAGE_TOKENS], head = word / DIM % HEADS;
    float *base = word / (HEADS * DIM) % 2 ? kv.v : kv.k;
    return base + ((page * HEADS + head) * PROA_PAGE_TOKENS + token % PROA_PAGE_TOKENS) * DIM + word % DIM;
}

static void write_token(search *s, int64_t token, uint32_t *random)
{
    for (int b = 0; b < BEAMS; b++) {
        assert_true(proa_page_table_own(&s->pool, &s->table[b], token));
        assert_true(proa_page_table_grow(&s->pool, &s->table[b], token + 1));
        s->written[b][token] = (float)((*random = *random * 1664525u + 1013904223u) >> 9);
        for (int64_t w = 0; w < WORDS_PER_TOKEN; w++)
            *of_token(s, b, token, w) = s->written[b][token] + (float)w;
    }
}

/* As a device does it ahead of the engine; `to` [BEAMS][count]. */
static void follow_there(const search *s, const int32_t *parent, int64_t tokens, int32_t *to)
{
    int32_t pages[2 * BEAMS * CAP], count = (int32_t)(tokens / PROA_PAGE_TOKENS + 1);
    proa_kv_reorder b = {0, BEAMS * count, BEAMS, (int32_t)tokens, 0};
    proa_kv kv[LAYERS];
    for (int i = 0; i < BEAMS; i++)
        memcpy(pages + i * count, s->table[i].page, (size_t)count * sizeof *pages);
    for (int32_t l = 0; l < LAYERS; l++) kv[l] = proa_kv_pages_layer(&s->pool, l);
    host()->ops->decode->reorder_kv(NULL, pages, &b, 1, BEAMS, parent, kv, LAYERS);
    memcpy(to, pages + b.table, (size_t)(BEAMS * count) * sizeof *to);
}

/* Each beam finds what its line of parents wrote, whether the engine moves the pages or a device has before it; the
 * tables name the same pages then. No page is taken in between, and none is lost. */
static void test_follow(void **state)
{
    search *s = proa_calloc(1, sizeof *s);
    uint32_t random = 7;
    (void)state;
    for (int i = 0; i < BEAMS; i++) {
        s->table[i] = (proa_page_table){.page = s->page[i], .cap = CAP};
        s->spare[i] = (proa_page_table){.page = s->page[BEAMS + i], .cap = CAP};
    }
    assert_int_equal(proa_kv_pages_init(&s->pool, host(), BEAMS * CAP,
                                        proa_kv_one_shape(LAYERS, HEADS, DIM, PROA_DTYPE_F32), NULL),
                     PROA_OK);
    for (int64_t token = 0; token < TOKENS; token++) {
        int32_t parent[BEAMS], there[BEAMS * CAP];
        bool copied = token % 2, grown = token % 3 == 0; /* a device's tables have the next step's page already */
        float before[BEAMS][TOKENS];
        write_token(s, token, &random);
        for (int i = 0; i < BEAMS && (copied || grown); i++)
            assert_true(proa_page_table_grow(&s->pool, &s->table[i], token + 2));
        for (int i = 0; i < BEAMS; i++)
            parent[i] = (int32_t)((random = random * 1664525u + 1013904223u) >> 20) % BEAMS;
        memcpy(before, s->written, sizeof before);
        if (copied) follow_there(s, parent, token + 1, there);
        int64_t used = s->pool.used;
        const proa_beam_tables beams = {s->table, s->spare, BEAMS, token + 1};
        proa_page_tables_reorder(&s->pool, &beams, parent, copied);
        assert_true(s->pool.used <= used);
        for (int i = 0; i < BEAMS; i++) {
            size_t count = (size_t)s->table[i].count;
            memcpy(s->written[i], before[parent[i]], sizeof s->written[i]);
            if (copied)
                assert_memory_equal(there + (size_t)i * count, s->table[i].page, count * sizeof *there);
            for (int64_t t = 0; t <= token; t++)
                for (int64_t w = 0; w < WORDS_PER_TOKEN; w++)
                    if (*of_token(s, i, t, w) != s->written[i][t] + (float)w)
                        fail_msg("token %d: beam %d has lost token %d", (int)token, i, (int)t);
        }
    }
    for (int i = 0; i < BEAMS; i++) proa_page_table_release(&s->pool, &s->table[i]);
    assert_int_equal(s->pool.used, 0);
    proa_kv_pages_release(&s->pool);
    free(s);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(proa_kv_pages_bytes(10, proa_kv_one_shape(4, 2, 16, PROA_DTYPE_F32)),
                     10LL * 4 * 2 * 2 * 64 * 16 * 4 + 90);
    assert_int_equal(proa_kv_pages_bytes(10, proa_kv_one_shape(4, 2, 16, PROA_DTYPE_BF16)),
                     10LL * 4 * 2 * 2 * 64 * 16 * 2 + 90);
    assert_int_equal(proa_kv_pages_bytes(0, proa_kv_one_shape(4, 2, 16, PROA_DTYPE_F16)), 0);
    assert_int_equal(proa_kv_pages_bytes(INT64_MAX / 2, proa_kv_one_shape(4, 2, 16, PROA_DTYPE_F32)), -1);
    assert_int_equal(proa_kv_pages_bytes(1, proa_kv_one_shape(1, INT64_MAX / 2, INT64_MAX / 2, PROA_DTYPE_F32)),
                     -1);
    assert_int_equal(proa_kv_pages_bytes(-1, proa_kv_one_shape(1, 1, 1, PROA_DTYPE_F32)), -1);
    assert_int_equal(proa_kv_pages_bytes(1, proa_kv_one_shape(1, 1, 1, PROA_DTYPE_I8)), -1);
    assert_int_equal(proa_kv_pages_for(0), 0);
    assert_int_equal(proa_kv_pages_for(64), 1);
    assert_int_equal(proa_kv_pages_for(65), 2);
}

static void test_refusals(void **state)
{
    (void)state;
    proa_kv_pages p;
    proa_err err = {0};
    assert_int_equal(
        proa_kv_pages_init(&p, host(), 1 << 30, proa_kv_one_shape(1000, 64, 128, PROA_DTYPE_F32), &err),
        PROA_NO_MEMORY);
    assert_non_null(strstr(err.text, "1073741824 pages of 64 tokens need 4503599637034172416 bytes"));
    assert_null(p.memory);
    proa_kv_pages_release(&p);
    const struct {
        int64_t count;
        int32_t layers;
        int64_t heads, dim;
        proa_dtype dtype;
        const char *text;
    } bad[] = {{-1, 1, 1, 1, PROA_DTYPE_F32, "number of pages is -1"},
               {1LL << 31, 1, 1, 1, PROA_DTYPE_F32, "number of pages is 2147483648"},
               {1, -1, 1, 1, PROA_DTYPE_F32, "number of layers is -1, must lie in 0..1024"},
               {1, 1, 1 << 20, 1, PROA_DTYPE_F32, "number of heads is 1048576"},
               {1, 1, 1, 0, PROA_DTYPE_F32, "head size is 0"},
               {1, 1, 1, 1, PROA_DTYPE_I8, "dtype i8"},
               {1, 1, 1, 1, (proa_dtype)99, "dtype unknown"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        err = (proa_err){0};
        assert_int_equal(
            proa_kv_pages_init(&p, host(), bad[i].count,
                               proa_kv_one_shape(bad[i].layers, bad[i].heads, bad[i].dim, bad[i].dtype), &err),
            PROA_INVALID);
        assert_non_null(strstr(err.text, bad[i].text));
    }
    assert_int_equal(proa_kv_pages_init(&p, host(), 0, proa_kv_one_shape(12, 0, 0, PROA_DTYPE_F32), NULL),
                     PROA_OK); /* an encoder's */
    proa_page_table none = {0};
    assert_true(proa_page_table_grow(&p, &none, 0));
    assert_false(proa_page_table_grow(&p, &none, 1));
    assert_null(proa_kv_pages_layer(&p, 11).k);
    proa_kv_pages_release(&p);
}

/* Those of a model without attention: they take no memory but their tables, and copies copy nothing. */
static void test_pages_of_no_layers(void **state)
{
    (void)state;
    proa_kv_pages p;
    proa_page_table table = {.page = (int32_t[4]){0}, .cap = 4};
    assert_int_equal(proa_kv_pages_init(&p, host(), 8, proa_kv_one_shape(0, 0, 0, PROA_DTYPE_F32), NULL),
                     PROA_OK);
    assert_null(p.memory);
    assert_int_equal(p.bytes, 8 * 9);
    assert_true(proa_page_table_grow(&p, &table, 200));
    assert_int_equal(p.used, 4);
    proa_kv_pages_copy(&p, &(proa_kv_copy){.to_page = 1, .from_page = 0, .count = 3});
    proa_page_table_release(&p, &table);
    assert_int_equal(p.used, 0);
    proa_kv_pages_release(&p);
}

/* Layers and K and V do not overlap, and blocks keep the alignment of a vector. */
static void test_layout(void **state)
{
    fixture *f = *state;
    int64_t bytes = f->pool.block_bytes * PAGES;
    char *next = proa_kv_pages_layer(&f->pool, 0).k;
    for (int32_t l = 0; l < LAYERS; l++) {
        proa_kv kv = proa_kv_pages_layer(&f->pool, l);
        assert_ptr_equal(kv.k, next);
        assert_ptr_equal(kv.v, next + bytes);
        assert_int_equal((uintptr_t)kv.v % 64, 0);
        next += 2 * bytes;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_share_and_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_own_middle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_compact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dry_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_layout, set_up, tear_down),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_pages_of_no_layers),
        cmocka_unit_test(test_two_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
