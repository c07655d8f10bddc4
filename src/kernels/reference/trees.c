/* SPDX-License-Identifier: Apache-2.0
 * trees.c - the reference of the op `forest`: the loops of a GPU's block, one thread after the other. */
#include "kernels/data_ops.h"

#include "base/checked.h"

/* As many threads as a block of trees.cu has: which thread does what is the same there. */
#define THREADS 512

static void sum_tile(const proa_trees *f, const proa_trees_tile *tile, double *sums, const float *x, int32_t rows)
{
    proa_tree_hit hits[PROA_TREES_HITS];
    for (int32_t at = 0; at < THREADS; at++)
        proa_trees_walk(f, tile, f->nodes + tile->node, x, rows, hits, at, THREADS);
    for (int32_t at = 0; at < THREADS; at++) proa_trees_sum(f, tile, hits, rows, sums, at, THREADS);
}

/* Whole blocks take the forest's tiles, others its trees where they are, as on a GPU. */
static void sum_block(const proa_trees *f, double *sums, const float *x, int32_t rows)
{
    for (int32_t i = 0; i < rows * f->outputs && f->trees_count == 0; i++)
        sums[i] = proa_trees_begin(f, i % f->outputs);
    for (int32_t i = 0; i < f->tiles_count && rows == PROA_TREES_ROWS; i++)
        sum_tile(f, &f->tiles[i], sums, x, rows);
    for (int32_t tree = 0; tree < f->trees_count && rows < PROA_TREES_ROWS;) {
        proa_trees_tile tile = proa_trees_direct(f, tree, rows);
        sum_tile(f, &tile, sums, x, rows);
        tree += tile.count;
    }
}

void proa_forest_reference(proa_ctx *c, float *out, double *sums, const float *x, int64_t rows,
                           const proa_trees *f)
{
    PROA_UNUSED(c);
    for (int64_t row = 0; row < rows; row += PROA_TREES_ROWS) {
        int32_t count = (int32_t)proa_min64(PROA_TREES_ROWS, rows - row);
        sum_block(f, sums + row * f->outputs, x + row * f->features, count);
    }
    for (int64_t row = 0; row < rows; row++)
        proa_trees_finish(f, sums + row * f->outputs, out + row * proa_trees_width(f));
}
