/* SPDX-License-Identifier: Apache-2.0
 * packed_run.c - prediction with a packed forest. A few rows: one after the other, many trees at once. More:
 * blocks of 64 rows against as many trees as stay in the cache. Each output's sum has the order of the trees,
 * whatever the way. */
#include "forest/packed_inside.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <string.h>

/* Fewer rows than this are predicted one by one (measured: from here on a block of 16 is not slower). */
#define ROWS_FEW             6
/* Blocks of rows whose sums are kept while the parts of the forest pass; bytes of these sums. */
#define STRETCH_BLOCKS       16
#define STRETCH_BYTES        (256 << 10)
/* Leaves of one row on the stack; sums of one row, or of a stretch, too. */
#define TREES_AT_ONCE        256
#define SUMS_ON_STACK        8192
/* Node visits that are worth waking a worker for. */
#define STEPS_WORTH_A_THREAD 50000

/* Sums, or leaves: outputs are [outputs][width] of float, or double with f64. */
typedef struct sums {
    void *values;
    int64_t width;
} sums;

/* ---- before and after the trees ---- */

static bool base_first(const proa_forest *f)
{
    return f->family == PROA_FOREST_OF_XGBOOST;
}

static void begin_sums(const proa_forest *f, sums s)
{
    for (int64_t k = 0; k < f->outputs; k++) {
        double base = base_first(f) ? f->base[k] : 0.0;
        for (int64_t i = k * s.width; i < (k + 1) * s.width; i++) {
            if (f->f64) ((double *)s.values)[i] = base;
            else ((float *)s.values)[i] = (float)base;
        }
    }
}

static void finish_f32(const proa_forest *f, const sums *s, int64_t row, bool raw, float *out)
{
    const float *from = (const float *)s->values + row;
    for (int32_t k = 0; k < f->outputs; k++) {
        float sum = from[k * s->width];
        if (!base_first(f)) {
            sum /= (float)f->divisor[k];
            sum = (float)((double)sum + f->base[k]);
        }
        out[k] = sum;
    }
    if (!raw) proa_forest_transform_f32(f, out);
}

/* Collects the column of this row; `one` has room for all outputs. */
static void finish_f64(const proa_forest *f, const sums *s, int64_t row, bool raw, double *one, float *out)
{
    const double *from = (const double *)s->values + row;
    for (int32_t k = 0; k < f->outputs; k++) {
        one[k] = from[k * s->width];
        if (!base_first(f)) one[k] = one[k] / f->divisor[k] + f->base[k];
    }
    if (!raw) proa_forest_transform_f64(f, one);
    for (int32_t k = 0; k < f->outputs; k++) out[k] = (float)one[k];
}

/* ---- leaves into sums ---- */

/* Adds the leaves of `rows` rows in one tree, to sums that begin at s. leaf[i] is a node of the tree. */
static void add_vectors(const proa_packed *p, int64_t number, const int32_t *leaf, int64_t rows, const sums *s)
{
    const proa_forest *f = p->forest;
    const proa_forest_tree *t = &f->trees[number];
    const int32_t *vector = p->vector + p->trees[number].start;
    for (int64_t i = 0; i < rows; i++) {
        const double *from = f->vectors + (int64_t)vector[leaf[i]] * f->leaf_size;
        for (int64_t k = 0; k < f->leaf_size; k++) {
            int64_t at = (t->output + k * t->stride) * s->width + i;
            if (f->f64) ((double *)s->values)[at] += from[k];
            else ((float *)s->values)[at] += (float)from[k];
        }
    }
}

/* Linear leaves of rows that are `offset` from x. leaf[i] is a packed node. */
static void add_linear_leaves(const proa_packed *p, double *sum, int64_t start, const int32_t *leaf,
                              int64_t rows, const float *x, const int32_t *offset)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = start + leaf[i];
        sum[i] += proa_forest_linear_leaf_value(p->forest, p->line[at], p->value64[at], x + offset[i]);
    }
}

static void add_block(const proa_packed *p, int64_t number, const int32_t *leaf, int64_t rows, const sums *s,
                      const float *x, const int32_t *offset)
{
    const proa_forest_tree *t = &p->forest->trees[number];
    const int64_t start = p->trees[number].start, first = t->output * s->width;
    if (p->vector) {
        add_vectors(p, number, leaf, rows, s);
    } else if (p->line) {
        add_linear_leaves(p, (double *)s->values + first, start, leaf, rows, x, offset);
    } else if (p->value64) {
        double *sum = (double *)s->values + first;
        for (int64_t i = 0; i < rows; i++) sum[i] += p->value64[start + leaf[i]];
    } else {
        p->walk->add((float *)s->values + first, p->value + start, leaf, (int)((rows + 15) / 16));
    }
}

/* ---- one row ---- */

static void add_row(const proa_packed *p, int64_t tree, int64_t count, const int32_t *leaf, const sums *s,
                    const float *x)
{
    static const int32_t first_row = 0;
    const proa_forest_tree *t = p->forest->trees + tree;
    if (p->vector) {
        for (int64_t i = 0; i < count; i++) {
            int32_t own = leaf[i] - p->trees[tree + i].start;
            add_vectors(p, tree + i, &own, 1, s);
        }
    } else if (p->line) {
        for (int64_t i = 0; i < count; i++)
            add_linear_leaves(p, (double *)s->values + t[i].output, 0, &leaf[i], 1, x, &first_row);
    } else if (p->value64) {
        for (int64_t i = 0; i < count; i++) ((double *)s->values)[t[i].output] += p->value64[leaf[i]];
    } else if (p->forest->outputs == 1) {
        float sum = *(float *)s->values; /* in a register, because the chain of additions limits a small forest */
        for (int64_t i = 0; i < count; i++) sum += p->value[leaf[i]];
        *(float *)s->values = sum;
    } else {
        for (int64_t i = 0; i < count; i++) ((float *)s->values)[t[i].output] += p->value[leaf[i]];
    }
}

static int32_t leaf_of(const proa_packed *p, int64_t tree, const float *x)
{
    if (p->kind[tree] == PROA_PACKED_CATEGORICAL) return proa_walk_one(&p->trees[tree], &p->sets, x);
    return proa_forest_leaf(p->forest, &p->forest->trees[tree], x);
}

static void sum_row(const proa_packed *p, const float *x, const sums *s)
{
    const proa_forest *f = p->forest;
    PROA_ALIGNED(64) int32_t leaf[TREES_AT_ONCE];
    begin_sums(f, *s);
    for (int64_t t = 0; t < f->tree_count; t += TREES_AT_ONCE) {
        int64_t count = proa_min64(TREES_AT_ONCE, f->tree_count - t);
        p->walk->trees(p->nodes, p->feature_bits, p->start + t, p->depth + t, count, x, leaf);
        for (int64_t i = 0; p->slow_count + p->mixed_count && i < count; i++)
            if (p->kind[t + i] != PROA_PACKED_NUMERIC) leaf[i] = p->trees[t + i].start + leaf_of(p, t + i, x);
        add_row(p, t, count, leaf, s, x);
    }
}

/* ---- blocks of rows ---- */

/* Offsets of the rows from the first row of the block; after the last row it is repeated. */
static void set_offsets(const proa_forest *f, int64_t rows, int32_t *offset)
{
    for (int64_t i = 0; i < PROA_WALK_ROWS; i++)
        offset[i] = (int32_t)((i < rows ? i : rows - 1) * f->features);
}

static void walk_block(const proa_packed *p, int64_t tree, int64_t end, const float *x, int64_t rows,
                       const sums *s)
{
    PROA_ALIGNED(64) int32_t offset[PROA_WALK_ROWS], leaf[PROA_WALK_ROWS];
    const proa_forest *f = p->forest;
    int groups = (int)((rows + 15) / 16);
    set_offsets(f, rows, offset);
    for (int64_t t = tree; t < end; t++) {
        if (p->kind[t] == PROA_PACKED_NUMERIC) {
            p->walk->rows(&p->trees[t], x, offset, groups, leaf);
        } else if (p->kind[t] == PROA_PACKED_CATEGORICAL) {
            p->walk->mixed(&p->trees[t], &p->sets, x, offset, groups, leaf);
        } else {
            for (int64_t i = 0; i < groups * 16; i++)
                leaf[i] = proa_forest_leaf(f, &f->trees[t], x + offset[i]);
        }
        add_block(p, t, leaf, rows, s, x, offset);
    }
}

/* The sums of block b of a stretch. */
static sums block_of(const proa_forest *f, const sums *s, int64_t b)
{
    size_t size = f->f64 ? sizeof(double) : sizeof(float);
    return (sums){(char *)s->values + size * (size_t)(b * PROA_WALK_ROWS * f->outputs), PROA_WALK_ROWS};
}

static void sum_stretch(const proa_packed *p, const float *x, int64_t rows, const sums *s)
{
    const proa_forest *f = p->forest;
    int64_t blocks = proa_ceil_div(rows, PROA_WALK_ROWS), tree = 0;
    for (int64_t b = 0; b < blocks; b++) begin_sums(f, block_of(f, s, b));
    for (int64_t i = 0; i < p->block_count; tree = p->block_end[i++]) {
        for (int64_t b = 0; b < blocks; b++) {
            int64_t row = b * PROA_WALK_ROWS;
            sums own = block_of(f, s, b);
            walk_block(p, tree, p->block_end[i], x + row * f->features,
                       proa_min64(PROA_WALK_ROWS, rows - row), &own);
        }
    }
}

/* ---- all rows ---- */

typedef struct job {
    const proa_packed *p;
    const float *in;
    float *out;
    bool raw;
} job;

/* Room for the sums of a stretch and, in double, of one row. */
typedef struct sums_scratch {
    PROA_ALIGNED(64) char stack[SUMS_ON_STACK];
    void *heap;
    sums s;
    double *one;
    int64_t stretch; /* rows */
} sums_scratch;

static void init_scratch(sums_scratch *r, const proa_forest *f, int64_t rows)
{
    int64_t size = f->f64 ? 8 : 4, block = PROA_WALK_ROWS * f->outputs * size;
    int64_t blocks = proa_min64(STRETCH_BLOCKS, proa_max64(1, STRETCH_BYTES / block));
    if (rows < ROWS_FEW) blocks = 0;
    blocks = proa_min64(blocks, proa_ceil_div(rows, PROA_WALK_ROWS));
    r->stretch = blocks * PROA_WALK_ROWS;
    r->s.width = blocks ? PROA_WALK_ROWS : 1;
    int64_t sums_bytes = proa_max64(blocks * block, f->outputs * size), one_bytes = f->f64 ? f->outputs * 8 : 0;
    char *at = r->stack;
    r->heap = NULL;
    if (sums_bytes + one_bytes > SUMS_ON_STACK)
        r->heap = at = proa_malloc_aligned((size_t)proa_round_up(sums_bytes + one_bytes, 64));
    r->s.values = at;
    r->one = (double *)(void *)(at + sums_bytes);
}

static void finish_row(const job *j, sums_scratch *r, const sums *s, int64_t in_block, int64_t row)
{
    const proa_forest *f = j->p->forest;
    float *out = j->out + row * f->outputs;
    if (f->f64) finish_f64(f, s, in_block, j->raw, r->one, out);
    else finish_f32(f, s, in_block, j->raw, out);
}

static void predict_rows(void *arg, int64_t begin_row, int64_t end, int worker)
{
    const job *j = arg;
    const proa_forest *f = j->p->forest;
    sums_scratch r;
    PROA_UNUSED(worker);
    init_scratch(&r, f, end - begin_row);
    for (int64_t row = begin_row; !r.stretch && row < end; row++) {
        sum_row(j->p, j->in + row * f->features, &r.s);
        finish_row(j, &r, &r.s, 0, row);
    }
    for (int64_t row = begin_row; r.stretch && row < end; row += r.stretch) {
        int64_t rows = proa_min64(r.stretch, end - row);
        sum_stretch(j->p, j->in + row * f->features, rows, &r.s);
        for (int64_t i = 0; i < rows; i++) {
            sums s = block_of(f, &r.s, i / PROA_WALK_ROWS);
            finish_row(j, &r, &s, i % PROA_WALK_ROWS, row + i);
        }
    }
    free(r.heap);
}

void proa_packed_predict(const proa_packed *p, const float *in, int64_t rows, bool raw, float *out,
                         proa_pool *pool)
{
    job j = {p, in, out, raw};
    int64_t grain = proa_round_up(STEPS_WORTH_A_THREAD / proa_max64(p->steps, 1) + 1, 16);
    if (rows <= 0) return;
    if (pool && rows >= 2 * grain)
        proa_pool_run(pool, rows, proa_round_up(grain, PROA_WALK_ROWS), predict_rows, &j);
    else predict_rows(&j, 0, rows, 0);
}
