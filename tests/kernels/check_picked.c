/* SPDX-License-Identifier: Apache-2.0
 * check_picked.c - the keys that rows of sparse attention pick, and the copy of these. Scores are sums of small whole
 * numbers, so every table has the same ones in any order of its sums, and many are equal. */
#include "check.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

enum { PICKED_PAGES = 24, PICKED_ROWS = 160, PICKED_MOST = 130 };

/* A ragged batch; the last span ends with a tree of draft tokens. */
typedef struct picked_world {
    proa_kv kv;
    int64_t bytes, T, heads;
    proa_span span[8];
    int32_t pages[PICKED_PAGES];
    uint64_t seen[PICKED_ROWS];
    proa_spans spans;
    char label[96];
} picked_world;

static void fill_whole(float *x, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(rng_below(seed, 5) - 2);
}

static void fill_pages(const picked_world *w, void *data, uint64_t seed)
{
    int64_t size = proa_dtype_bytes(w->kv.dtype), count = w->bytes / size;
    for (int64_t i = 0; i < count; i++) {
        float x;
        fill_whole(&x, 1, &seed);
        proa_from_f32((char *)data + i * size, w->kv.dtype, &x, 1);
    }
}

static void make_tree(picked_world *w, proa_span *span, int32_t nodes)
{
    span->tree = nodes;
    for (int32_t j = 0; j < nodes; j++) /* two branches behind a root */
        w->seen[span->row + span->rows - nodes + j] = UINT64_C(1) << j | 1 |
                                                      (j > 2 ? UINT64_C(1) << (j - 2) : 0);
    w->spans.seen = w->seen;
}

static void make_picked_world(picked_world *w, int64_t heads, int64_t dim, proa_dtype dtype, bool tree)
{
    static const int32_t shape[][2] = {{1, 200}, {3, 3}, {65, 130}, {2, 0}, {1, 64}, {6, 140}};
    int32_t page = 0;
    *w = (picked_world){.kv = {.dtype = dtype, .kv_heads = 1, .head_dim = dim}, .heads = heads};
    for (size_t i = 0; i < PROA_COUNT(shape); i++) {
        int32_t rows = shape[i][1] ? shape[i][0] : 0;
        w->span[i] = (proa_span){(int32_t)w->T, rows, shape[i][1], page, 0, 0, 0};
        w->T += rows, page += (int32_t)proa_ceil_div(shape[i][1], PROA_PAGE_TOKENS);
    }
    PROA_ASSERT(page <= PICKED_PAGES && w->T <= PICKED_ROWS);
    for (int32_t i = 0; i < page; i++) w->pages[i] = page - 1 - i;
    w->spans = (proa_spans){.span = w->span, .count = PROA_COUNT(shape), .pages = w->pages};
    if (tree) make_tree(w, &w->span[PROA_COUNT(shape) - 1], 5);
    w->bytes = page * PROA_PAGE_TOKENS * dim * proa_dtype_bytes(dtype);
    w->kv.k = aligned_alloc(64, (size_t)proa_round_up(w->bytes, 64));
    w->kv.v = aligned_alloc(64, (size_t)proa_round_up(w->bytes, 64));
    PROA_ASSERT(w->kv.k && w->kv.v);
    fill_pages(w, w->kv.k, 3), fill_pages(w, w->kv.v, 4);
    snprintf(w->label, sizeof w->label, "heads %d dim %d %s%s", (int)heads, (int)dim, proa_dtype_name(dtype),
             tree ? " with a tree" : "");
}

static void free_picked_world(picked_world *w)
{
    free(w->kv.k);
    free(w->kv.v);
}

/* Key 5 of each page holds NaN, so its scores are the smallest. */
static void spoil_keys(const picked_world *w)
{
    const float nan = NAN;
    int64_t size = proa_dtype_bytes(w->kv.dtype), pages = w->bytes / size / PROA_PAGE_TOKENS / w->kv.head_dim;
    for (int64_t p = 0; p < pages; p++)
        proa_from_f32((char *)w->kv.k + (p * PROA_PAGE_TOKENS + 5) * w->kv.head_dim * size, w->kv.dtype, &nan, 1);
}

static void pick_case(tester *t, int64_t heads, int64_t dim, proa_dtype dtype, int64_t most, bool tree)
{
    static int32_t right[PICKED_ROWS * PICKED_MOST], mine[PICKED_ROWS * PICKED_MOST];
    picked_world world;
    if (!takes_turn(t)) return;
    make_picked_world(&world, heads, dim, dtype, tree);
    if (dtype != PROA_DTYPE_FP8) spoil_keys(&world);
    const int64_t qs[] = {world.T, heads, dim}, ws[] = {world.T, heads};
    canvas q = canvas_make(3, qs, 3, 1), w = canvas_make(2, ws, 5, 0);
    uint64_t seed = 9;
    for (int64_t i = 0; i < world.T; i++) {
        fill_whole(proa_view_f32(w.view) + i * w.view.stride[0], heads, &seed);
        for (int64_t h = 0; h < heads; h++)
            fill_whole(proa_view_f32(q.view) + i * q.view.stride[0] + h * q.view.stride[1], dim, &seed);
    }
    memset(right, 0x5a, sizeof right);
    t->reference.ops->pick_keys(&t->reference, right, q.view, w.view, &world.kv, &world.spans, most);
    for (int n = 0; n < CHECK_THREADS; n++) {
        memset(mine, 0x5a, sizeof mine);
        t->tables[n].ops->pick_keys(&t->tables[n], mine, q.view, w.view, &world.kv, &world.spans, most);
        expect(t, memcmp(mine, right, (size_t)(world.T * most) * sizeof *mine) == 0,
               "%s most %d: other keys with %d threads", world.label, (int)most, n + 1);
        expect(t, mine[world.T * most] == right[world.T * most], "%s most %d: wrote too much", world.label,
               (int)most);
    }
    free_picked_world(&world);
    canvas_free(&q), canvas_free(&w);
}

static const proa_dtype picked_dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16, PROA_DTYPE_F16, PROA_DTYPE_FP8};

static size_t picked_dtypes_here(void)
{
    return PROA_COUNT(picked_dtypes) - !device_mode.on;
}

void check_pick_keys(tester *t)
{
    static const struct {
        int64_t heads, dim;
    } shapes[] = {{1, 8}, {3, 33}, {8, 128}, {5, 16}, {20, 64}, {2, 300}};
    static const int64_t counts[] = {1, 6, 64, 129};
    for (size_t d = 0; d < picked_dtypes_here(); d++)
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            for (size_t k = 0; k < PROA_COUNT(counts); k++)
                for (int tree = 0; tree < 2 && (d == 0 || (d + i + k) % 4 == 0); tree++)
                    pick_case(t, shapes[i].heads, shapes[i].dim, picked_dtypes[d], counts[k], tree);
}

/* ---- the copy ---- */

enum { GATHERED_ROWS = 9, GATHERED_EACH = 3 };

typedef struct gathered {
    proa_picked_keys to;
    proa_span span[GATHERED_ROWS];
    int32_t pages[GATHERED_ROWS * GATHERED_EACH];
    int64_t bytes;
} gathered;

static void run_gather(proa_ctx *c, gathered *g, const picked_world *w, const int32_t *picked, int64_t most,
                       int64_t first, bool latent)
{
    int64_t each = proa_ceil_div(most, PROA_PAGE_TOKENS);
    *g = (gathered){.to = {.kv = w->kv, .span = g->span, .pages = g->pages, .rows = GATHERED_ROWS}};
    g->bytes = GATHERED_ROWS * each * PROA_PAGE_TOKENS * w->kv.head_dim * proa_dtype_bytes(w->kv.dtype);
    g->to.kv.k = aligned_alloc(64, (size_t)proa_round_up(g->bytes, 64));
    g->to.kv.v = latent ? g->to.kv.k : aligned_alloc(64, (size_t)proa_round_up(g->bytes, 64));
    PROA_ASSERT(g->to.kv.k && g->to.kv.v);
    memset(g->to.kv.v, 0x5a, (size_t)g->bytes), memset(g->to.kv.k, 0x5a, (size_t)g->bytes);
    c->ops->gather_keys(c, &g->to, &w->kv, &w->spans, picked, most, first);
}

static void free_gathered(gathered *g)
{
    if (g->to.kv.v != g->to.kv.k) free(g->to.kv.v);
    free(g->to.kv.k);
}

/* Rows whose number is a multiple of 3 pick every second key, the others the first ones. */
static void pick_some(int32_t *picked, const picked_world *w, int64_t most)
{
    for (int64_t t = 0; t < w->T; t++) {
        const proa_span *span = proa_spans_find(&w->spans, t);
        int64_t n = proa_tree_position(&w->spans, span, t - span->row) + 1, at = 0;
        int64_t step = t % 3 == 0 && n > most ? (n / most > 1 ? 2 : 1) : 1;
        for (int64_t p = 0; p < n && at < most; p += step) picked[t * most + at++] = (int32_t)p;
        for (; at < most; at++) picked[t * most + at] = -1;
    }
}

static void gather_case(tester *t, int64_t dim, proa_dtype dtype, int64_t most, bool tree, bool latent)
{
    static int32_t picked[PICKED_ROWS * PICKED_MOST];
    picked_world world;
    gathered right, mine;
    if (!takes_turn(t)) return;
    make_picked_world(&world, 1, dim, dtype, tree);
    pick_some(picked, &world, most);
    const int64_t firsts[] = {0, 4, world.T - GATHERED_ROWS};
    for (size_t i = 0; i < PROA_COUNT(firsts); i++) {
        run_gather(&t->reference, &right, &world, picked, most, firsts[i], latent);
        for (int n = 0; n < CHECK_THREADS; n++) {
            run_gather(&t->tables[n], &mine, &world, picked, most, firsts[i], latent);
            bool same = memcmp(mine.span, right.span, sizeof mine.span) == 0 &&
                        memcmp(mine.pages, right.pages, sizeof mine.pages) == 0 &&
                        memcmp(mine.to.kv.k, right.to.kv.k, (size_t)mine.bytes) == 0 &&
                        memcmp(mine.to.kv.v, right.to.kv.v, (size_t)mine.bytes) == 0;
            expect(t, same, "%s most %d from row %d: another copy with %d threads", world.label, (int)most,
                   (int)firsts[i], n + 1);
            free_gathered(&mine);
        }
        free_gathered(&right);
    }
    free_picked_world(&world);
}

void check_gather_keys(tester *t)
{
    static const int64_t dims[] = {7, 64, 576}, counts[] = {5, 64, 129};
    for (size_t d = 0; d < picked_dtypes_here(); d++)
        for (size_t i = 0; i < PROA_COUNT(dims); i++)
            for (size_t k = 0; k < PROA_COUNT(counts); k++)
                for (int form = 0; form < 4; form++)
                    gather_case(t, dims[i], picked_dtypes[d], counts[k], form & 1, form & 2);
}
