/* SPDX-License-Identifier: Apache-2.0
 * scene.h - one driver for the ops that work row by row: against the reference, guard bands, threads, every row alone
 *           and in batches, and in place where ops.def allows it.
 * Way in:  fill a scene, then check_scene; for_shapes calls a check with many sizes. */
#ifndef PROA_TESTS_KERNELS_SCENE_H
#define PROA_TESTS_KERNELS_SCENE_H

#include "check.h"

/* One call of an op with all it needs. `run` works on the rows [begin, end) of the scene and writes the same rows
 * of out. input[alias] may be out itself. */
typedef struct scene scene;
struct scene {
    void (*run)(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out);
    int64_t T;
    canvas out; /* its contents when the op starts (for ops that read them) */
    proa_view input[3];
    int alias[2];           /* inputs that may be the output; -1: none */
    const int32_t *ints;    /* ids, positions or rows: one for each row */
    proa_view shared[2];    /* weights, tables: the same for all rows */
    const int32_t *lengths; /* of each row's sequence, or NULL */
    const proa_rope_freqs *freqs;
    const proa_weight *weights[2]; /* packed by the reference, by the table under test */
    const proa_ops *reference;
    proa_epilogue epilogue;
    const proa_router *router;
    const proa_experts *experts[2]; /* with weights packed by the reference, by the table under test */
    const proa_query_scale *query_scale;
    float value;
    bool flag;
    proa_act act;
    char label[120];
};

#define LABEL(s, ...) snprintf((s)->label, sizeof(s)->label, __VA_ARGS__)

proa_view rows_of(proa_view v, int64_t begin, int64_t end); /* no view stays none */
/* Runs rows [begin, end) on a fresh copy of out. */
canvas scene_run(const scene *s, proa_ctx *c, int64_t begin, int64_t end);
void check_scene(tester *t, const scene *s, tolerance kind);
/* A canvas for rows x cols whose padding and offset follow from the sizes: dense and aligned now and then. */
canvas odd_canvas(int64_t rows, int64_t cols);
typedef void scene_check_fn(tester *t, int64_t rows, int64_t cols);
void for_shapes(tester *t, scene_check_fn *check);
tolerance tolerance_of_act(proa_act act);
extern const int64_t scene_widths[18], scene_heights[6];

#endif
