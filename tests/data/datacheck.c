/* SPDX-License-Identifier: Apache-2.0
 * datacheck.c - the data ops of a device against the reference, bit for bit: random forests with every kind of split,
 * missing values, leaves of one value, of several and lines, sums in float and double, every transform and answer; the
 * vectors of inputs.
 * Without --device it checks the reference: its formula by hand, and that a row alone gives what it gives in a batch.
 * What libraries predict is held by tests/unit/backends.
 *
 *     datacheck [--device cuda:N] [--bench] */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/data_ops.h"
#include "kernels/device.h"
#include <stdarg.h>
#include <stdlib.h>

static proa_device *device;
static const proa_data_ops *ops;
static int64_t checks, failures;

static bool expect(bool ok, const char *fmt, ...) PROA_PRINTF(2, 3);
static bool expect(bool ok, const char *fmt, ...)
{
    va_list args;
    checks++;
    if (ok) return true;
    failures++;
    printf("FAIL ");
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
    return false;
}

static uint64_t rng_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t rng_below(uint64_t *state, int64_t n)
{
    return (int64_t)(rng_next(state) % (uint64_t)n);
}

static float rng_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(rng_next(state) >> 11) * 0x1p-53;
    return (float)sum;
}

/* ---- memory of the device ---- */

static struct {
    void *at[64];
    int64_t bytes[64];
    int count;
} taken;

/* A copy on the device, freed by free_taken; NULL stays NULL. */
static void *put(const void *from, int64_t bytes)
{
    if (!from) return NULL;
    void *to = device->alloc(device, bytes + 64);
    PROA_ASSERT(to && taken.count < 64);
    taken.at[taken.count] = to, taken.bytes[taken.count++] = bytes + 64;
    if (bytes > 0) device->upload(device, to, from, bytes);
    return to;
}

static void free_taken(void)
{
    while (taken.count > 0) {
        taken.count--;
        device->free(device, taken.at[taken.count], taken.bytes[taken.count]);
    }
}

static proa_ctx *ctx(void)
{
    static proa_ctx c;
    c.device = device->host ? NULL : device;
    return &c;
}

static void check_device(void)
{
    proa_err err = {0};
    if (device->check(device, &err) == PROA_OK) return;
    fprintf(stderr, "datacheck: %s\n", err.text);
    exit(1);
}

/* ---- forests ---- */

enum { SETS = 6, WORDS = 3, LINES = 5, TERMS = 4 };

typedef struct forest_case {
    int32_t trees, depth, features, outputs, leaf_size;
    bool f64, lines, base_first;
    proa_trees_transform transform;
    proa_trees_answer answer;
} forest_case;

/* A forest and what it owns. */
typedef struct forest {
    proa_trees f;
    proa_trees_node *nodes;
    proa_tree *trees;
    proa_trees_tile *tiles;
    float *leaves;
    double *leaves64, *base;
    int32_t *divisor, *classes;
    int64_t nodes_count, leaves_count;
} forest;

static uint64_t seed;
static proa_tree_set sets[SETS];
static uint32_t words[SETS * WORDS];
static proa_tree_line lines[LINES];
static int32_t terms[LINES * TERMS];
static double slopes[LINES * TERMS];

static void *array(int64_t count, size_t size)
{
    void *p = aligned_alloc(64, ((size_t)(count + 1) * size + 63) / 64 * 64);
    PROA_ASSERT(p);
    return p;
}

static float bits_of_index(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}

static void fill_tables(int32_t features)
{
    for (int32_t i = 0; i < SETS; i++) sets[i] = (proa_tree_set){i * WORDS, i % (WORDS + 1)};
    for (size_t i = 0; i < PROA_COUNT(words); i++) words[i] = (uint32_t)rng_next(&seed);
    for (int32_t i = 0; i < LINES; i++)
        lines[i] = (proa_tree_line){(double)rng_normal(&seed), i * TERMS, i % (TERMS + 1)};
    for (size_t i = 0; i < PROA_COUNT(terms); i++) {
        terms[i] = (int32_t)rng_below(&seed, features);
        slopes[i] = (double)rng_normal(&seed) / 3;
    }
}

/* A split or a leaf; *used: nodes of the tree so far. */
static void fill_node(forest *t, const forest_case *k, int64_t first, int32_t at, int32_t depth, int32_t *used)
{
    static const uint32_t kinds[] = {0,
                                     0,
                                     0,
                                     PROA_TREE_SWAPPED,
                                     PROA_TREE_SET,
                                     PROA_TREE_SET | PROA_TREE_MEMBER_LEFT,
                                     PROA_TREE_EQUAL,
                                     PROA_TREE_ZERO_MISSING};
    proa_trees_node *n = &t->nodes[first + at];
    if (depth == k->depth || (depth > 1 && rng_below(&seed, 8) == 0)) {
        bool line = k->lines && rng_below(&seed, 2);
        *n = (proa_trees_node){line ? bits_of_index((int32_t)rng_below(&seed, LINES)) : 0, -1,
                               (int32_t)t->leaves_count++, line ? PROA_TREE_LINE : 0};
        return;
    }
    uint32_t flags = kinds[rng_below(&seed, PROA_COUNT(kinds))] |
                     (rng_below(&seed, 2) ? PROA_TREE_DEFAULT_LEFT : 0);
    float cut = rng_below(&seed, 3) ? rng_normal(&seed) : (float)rng_below(&seed, 5);
    if (flags & PROA_TREE_SET) cut = bits_of_index((int32_t)rng_below(&seed, SETS));
    *n = (proa_trees_node){cut, (int32_t)rng_below(&seed, k->features), *used, flags};
    int32_t child = *used;
    *used += 2;
    fill_node(t, k, first, child, depth + 1, used);
    fill_node(t, k, first, child + 1, depth + 1, used);
}

static void fill_tiles(forest *t)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->f.trees_count; i++) {
        proa_trees_tile *last = n ? &t->tiles[n - 1] : NULL;
        int64_t nodes = t->trees[i].nodes;
        if (last && last->count < PROA_TREES_HITS / PROA_TREES_ROWS && last->nodes + nodes <= PROA_TREES_TILE_NODES)
            last->count++, last->nodes += nodes;
        else t->tiles[n++] = (proa_trees_tile){i, 1, t->trees[i].first, nodes};
    }
    t->f.tiles_count = n;
}

static forest make_forest(const forest_case *k)
{
    int64_t most = (int64_t)k->trees * ((int64_t)2 << k->depth);
    forest t = {.nodes = array(most, sizeof *t.nodes),
                .trees = array(k->trees, sizeof *t.trees),
                .tiles = array(k->trees, sizeof *t.tiles),
                .base = array(k->outputs, 8),
                .divisor = array(k->outputs, 4),
                .classes = array(1, 4)};
    seed = (uint64_t)(k->trees * 131 + k->depth);
    fill_tables(k->features);
    for (int32_t i = 0; i < k->trees; i++) {
        int32_t used = 1, stride = k->leaf_size > 1 ? (k->outputs - 1) / (k->leaf_size - 1) : 1;
        fill_node(&t, k, t.nodes_count, 0, 0, &used);
        t.trees[i] = (proa_tree){t.nodes_count, used, k->leaf_size > 1 ? 0 : i % k->outputs, stride};
        t.nodes_count += used;
    }
    t.leaves = array(t.leaves_count * k->leaf_size, 4), t.leaves64 = array(t.leaves_count * k->leaf_size, 8);
    for (int64_t i = 0; i < t.leaves_count * k->leaf_size; i++)
        t.leaves64[i] = (double)(t.leaves[i] = rng_normal(&seed)) + (k->f64 ? 1e-9 : 0);
    for (int32_t i = 0; i < k->outputs; i++) t.base[i] = (double)rng_normal(&seed), t.divisor[i] = 1 + i;
    t.classes[0] = k->outputs;
    t.f = (proa_trees){.nodes = t.nodes,
                       .trees = t.trees,
                       .tiles = t.tiles,
                       .trees_count = k->trees,
                       .features = k->features,
                       .outputs = k->outputs,
                       .leaf_size = k->leaf_size,
                       .leaves = k->f64 ? NULL : t.leaves,
                       .leaves64 = k->f64 ? t.leaves64 : NULL,
                       .f64 = k->f64,
                       .base_first = k->base_first,
                       .truncate_negative = k->depth % 2,
                       .guarded = k->base_first,
                       .float_softmax = !k->base_first,
                       .sets = sets,
                       .words = words,
                       .lines = lines,
                       .terms = terms,
                       .slopes = slopes,
                       .base = t.base,
                       .divisor = t.divisor,
                       .transform = k->transform,
                       .alpha = 0.5,
                       .ratio = 3,
                       .targets = 1,
                       .classes = k->outputs,
                       .target_classes = t.classes,
                       .answer = k->answer,
                       .threshold = 0.5f};
    fill_tiles(&t);
    return t;
}

static void free_forest(forest *t)
{
    free(t->nodes), free(t->trees), free(t->tiles), free(t->leaves), free(t->leaves64), free(t->base);
    free(t->divisor), free(t->classes);
}

/* Normal numbers, small integers, negative ones, zeros, tiny and huge ones, infinities, NaN. */
static float *make_rows(int64_t rows, int32_t features)
{
    static const float odd[] = {0, -0.0f, 1e-36f, -0.5f, 3e38f, INFINITY, -INFINITY, NAN, 17, -1};
    float *x = array(rows * features, 4);
    for (int64_t i = 0; i < rows * features; i++)
        x[i] = rng_below(&seed, 4) ? rng_normal(&seed) * 2 : odd[rng_below(&seed, PROA_COUNT(odd))];
    return x;
}

static bool same_floats(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) != 0 && !(a[i] != a[i] && b[i] != b[i])) return false;
    return true;
}

static proa_trees forest_on_device(const forest *t)
{
    proa_trees f = t->f;
    int64_t leaves = t->leaves_count * f.leaf_size;
    f.nodes = put(t->nodes, t->nodes_count * (int64_t)sizeof *t->nodes);
    f.trees = put(t->trees, f.trees_count * (int64_t)sizeof *t->trees);
    f.tiles = put(t->tiles, f.tiles_count * (int64_t)sizeof *t->tiles);
    f.leaves = put(f.leaves, leaves * 4), f.leaves64 = put(f.leaves64, leaves * 8);
    f.sets = put(sets, sizeof sets), f.words = put(words, sizeof words), f.lines = put(lines, sizeof lines);
    f.terms = put(terms, sizeof terms), f.slopes = put(slopes, sizeof slopes);
    f.base = put(f.base, f.outputs * 8), f.divisor = put(f.divisor, f.outputs * 4);
    f.target_classes = put(f.target_classes, f.targets * 4);
    return f;
}

/* out [rows][width], and one number behind it. */
static void run_forest(const forest *t, const float *x, int64_t rows, float *out)
{
    int64_t bytes = (rows * proa_trees_width(&t->f) + 1) * 4;
    proa_trees f = forest_on_device(t);
    float *in = put(x, rows * f.features * 4), *to = put(out, bytes);
    double *sums = put(x, 0);
    if (rows) {
        void *room = proa_calloc((size_t)(rows * f.outputs), 8);
        sums = put(room, rows * f.outputs * 8);
        free(room);
    }
    ops->forest(ctx(), to, sums, in, rows, &f);
    device->download(device, out, to, bytes);
    check_device();
    free_taken();
}

static void run_case(const forest_case *k, int64_t rows)
{
    forest t = make_forest(k);
    int64_t width = proa_trees_width(&t.f), n = rows * width;
    float *x = make_rows(rows, k->features), *want = array(n, 4), *have = array(n, 4);
    double *sums = array(rows * k->outputs, 8);
    have[n] = 12345;
    if (device->host)
        for (int64_t i = 0; i < rows; i++)
            proa_forest_reference(NULL, want + i * width, sums, x + i * k->features, 1, &t.f);
    else proa_forest_reference(NULL, want, sums, x, rows, &t.f);
    run_forest(&t, x, rows, have);
    expect(same_floats(have, want, n), "%d trees of depth %d, %d rows, transform %d, answer %d: differs",
           k->trees, k->depth, (int)rows, (int)k->transform, (int)k->answer);
    expect(have[n] == 12345, "%d rows: wrote behind the answer", (int)rows);
    free_forest(&t);
    free(x), free(want), free(have), free(sums);
}

/* Two trees by hand: x0 < 1 with NaN left, and x1 in {2} with NaN right; base 0.5. */
static void check_formula(void)
{
    static proa_trees_node nodes[] PROA_ALIGNED(16) = {{0.5f, 0, 1, PROA_TREE_DEFAULT_LEFT},
                                                       {0, -1, 0, 0},
                                                       {0, -1, 1, 0},
                                                       {0, 1, 1, PROA_TREE_SET | PROA_TREE_MEMBER_LEFT},
                                                       {0, -1, 2, 0},
                                                       {0, -1, 3, 0}};
    static proa_tree trees[] = {{0, 3, 0, 1}, {3, 3, 0, 1}};
    static proa_trees_tile tiles[] = {{0, 2, 0, 6}};
    static float leaves[] = {1, 2, 10, 20}, x[4][2] = {{0.5f, 2.9f}, {0.6f, 3}, {NAN, NAN}, {1, -2}}, out[4];
    static proa_tree_set set[] = {{0, 1}};
    static uint32_t bits[] = {1u << 2};
    static double base[] = {0.5}, sums[4];
    static int32_t ones[] = {1};
    const float want[] = {11.5f, 22.5f, 21.5f, 22.5f};
    const proa_trees f = {.nodes = nodes,
                          .trees = trees,
                          .tiles = tiles,
                          .trees_count = 2,
                          .tiles_count = 1,
                          .features = 2,
                          .outputs = 1,
                          .leaf_size = 1,
                          .leaves = leaves,
                          .base_first = true,
                          .sets = set,
                          .words = bits,
                          .base = base,
                          .divisor = ones,
                          .targets = 1,
                          .classes = 1,
                          .target_classes = ones};
    proa_forest_reference(NULL, out, sums, &x[0][0], 4, &f);
    expect(memcmp(out, want, sizeof want) == 0, "not the leaves of two trees: %g %g %g %g", (double)out[0],
           (double)out[1], (double)out[2], (double)out[3]);
}

static void check_forests(void)
{
    static const forest_case cases[] = {
        {1, 1, 1, 1, 1, false, false, true, PROA_TREES_IDENTITY, PROA_TREES_SCORES},
        {0, 1, 3, 2, 1, false, false, true, PROA_TREES_IDENTITY, PROA_TREES_SCORES},
        {100, 8, 20, 1, 1, false, false, true, PROA_TREES_SIGMOID, PROA_TREES_BOTH},
        {70, 6, 9, 1, 1, true, true, false, PROA_TREES_SIGMOID, PROA_TREES_THRESHOLD},
        {60, 5, 9, 3, 1, false, false, true, PROA_TREES_SOFTMAX, PROA_TREES_BEST},
        {60, 5, 9, 5, 1, true, false, false, PROA_TREES_SOFTMAX, PROA_TREES_SCORES},
        {90, 4, 9, 3, 3, true, false, false, PROA_TREES_IDENTITY, PROA_TREES_BEST},
        {90, 4, 30, 7, 4, false, false, false, PROA_TREES_SIGNED_SQUARE, PROA_TREES_SCORES},
        {40, 7, 5, 1, 1, true, false, false, PROA_TREES_EXP2_RATIO, PROA_TREES_SCORES},
        {40, 7, 5, 1, 1, false, false, false, PROA_TREES_EXP2_RATIO, PROA_TREES_SCORES},
        {30, 3, 5, 1, 1, false, false, true, PROA_TREES_EXPONENTIAL, PROA_TREES_SCORES},
        {30, 3, 5, 2, 1, true, false, true, PROA_TREES_EXPONENTIAL, PROA_TREES_SCORES},
        {20, 3, 5, 1, 1, false, false, true, PROA_TREES_HINGE, PROA_TREES_SCORES},
        {3, 14, 40, 1, 1, false, false, true, PROA_TREES_IDENTITY, PROA_TREES_SCORES}, /* larger than a tile */
    };
    static const int64_t rows[] = {0, 1, 3, 31, 32, 33, 200, 5000};
    check_formula();
    for (size_t i = 0; i < PROA_COUNT(cases); i++)
        for (size_t r = 0; r < PROA_COUNT(rows); r++)
            if (rows[r] < 5000 || i == 2 || i == 5 || i == 13) run_case(&cases[i], rows[r]);
}

/* ---- vectors of inputs ---- */

/* The mean of a row or of several, the first and the last row, with length 1 and without. */
static void check_pool_case(int64_t inputs, int64_t width, proa_pool_mode mode, bool unit)
{
    int64_t *first = array(inputs + 1, sizeof *first), rows = 0;
    for (int64_t i = 0; i <= inputs; i++) first[i] = rows, rows += i == inputs ? 0 : 1 + rng_below(&seed, 90);
    float *x = array(rows * width, 4), *want = array(inputs * width, 4), *have = array(inputs * width, 4);
    for (int64_t i = 0; i < rows * width; i++) x[i] = rng_normal(&seed);
    for (int64_t k = 0; k < width; k++) x[k] = 0; /* a vector of length 0, if it is the first one or alone */
    proa_pool_rows_reference(NULL, want, x, first, inputs, width, mode, unit);
    float *out = put(have, inputs * width * 4);
    ops->pool_rows(ctx(), out, put(x, rows * width * 4), put(first, (inputs + 1) * 8), inputs, width, mode, unit);
    device->download(device, have, out, inputs * width * 4);
    check_device();
    expect(memcmp(have, want, (size_t)(inputs * width) * 4) == 0, "pool_rows: %d inputs of width %d, mode %d%s",
           (int)inputs, (int)width, (int)mode, unit ? ", unit" : "");
    double squares = 0;
    for (int64_t k = 0; k < width; k++) {
        double v = (double)want[(inputs - 1) * width + k];
        squares += v * v;
    }
    if (unit && inputs > 1)
        expect(fabs(squares - 1) < 1e-5, "pool_rows: a vector of length %g", sqrt(squares));
    free_taken();
    free(first), free(x), free(want), free(have);
}

static void check_pool(void)
{
    static const int64_t widths[] = {1, 31, 256, 768, 1025};
    for (size_t w = 0; w < PROA_COUNT(widths); w++)
        for (int mode = PROA_POOL_MEAN; mode <= PROA_POOL_LAST; mode++)
            for (int unit = 0; unit < 2; unit++) {
                check_pool_case(1, widths[w], (proa_pool_mode)mode, unit);
                check_pool_case(37, widths[w], (proa_pool_mode)mode, unit);
            }
}

/* ---- times ---- */

static void bench_forest(int64_t rows)
{
    static const forest_case k = {
        500, 8, 64, 1, 1, false, false, true, PROA_TREES_SIGMOID, PROA_TREES_SCORES};
    forest t = make_forest(&k);
    float *x = make_rows(rows, k.features), *out = array(rows, 4);
    proa_trees f = forest_on_device(&t);
    float *in = put(x, rows * k.features * 4), *to = put(out, rows * 4);
    double *sums = put(x, proa_min64(rows * 8, rows * k.features * 4));
    int64_t best = INT64_MAX, best_copied = INT64_MAX;
    for (int i = 0; i < 30; i++) {
        int64_t start = proa_clock_ns();
        for (int n = 0; n < 10; n++) ops->forest(ctx(), to, sums, in, rows, &f);
        check_device();
        best = proa_min64(best, (proa_clock_ns() - start) / 10);
        start = proa_clock_ns();
        device->upload(device, in, x, rows * k.features * 4);
        ops->forest(ctx(), to, sums, in, rows, &f);
        device->download(device, out, to, rows * 4);
        best_copied = proa_min64(best_copied, proa_clock_ns() - start);
    }
    printf("forest of 500 trees of depth 8, 64 features, %lld rows: %.1f us, %.1f us with copies\n",
           (long long)rows, (double)best / 1e3, (double)best_copied / 1e3);
    free_taken();
    free_forest(&t);
    free(x), free(out);
}

int main(int argc, char **argv)
{
    const char *name = "cpu";
    bool bench = false;
    proa_err err = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) bench = true;
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) name = argv[++i];
        else return fprintf(stderr, "datacheck [--device cuda:N] [--bench]\n"), 2;
    }
    if (proa_device_open(&device, name, &err) != PROA_OK || proa_device_data_ops(&ops, device, &err) != PROA_OK)
        return fprintf(stderr, "datacheck: %s\n", err.text), 1;
    check_forests();
    check_pool();
    static const int64_t rows[] = {1, 32, 512, 2048, 4096, 4224, 16384};
    for (size_t i = 0; bench && i < PROA_COUNT(rows); i++) bench_forest(rows[i]);
    proa_device_close(device);
    printf("%s, data ops of %s: %lld checks, %lld failures\n", name, ops->name, (long long)checks,
           (long long)failures);
    return failures != 0;
}
