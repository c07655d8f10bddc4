/* SPDX-License-Identifier: Apache-2.0
 * linear.h - what the vector versions of linear share: the packed layout, and the driver that cuts the product
 * into tiles. An instruction set brings the tile, the preparation of rows and the epilogue (proa_linear_isa).
 * Owner:   the caller's context holds the scratch. Threads: the driver spreads over the context's pool. */
#ifndef PROA_KERNELS_CPU_LINEAR_H
#define PROA_KERNELS_CPU_LINEAR_H

#include "kernels/ops.h"

/* The layout, the same at every level. Outputs are stored in panels of 32; a panel is a run of steps over k, and a step
 * meets 4 bytes of a row of x (its "word") with 32 outputs:
 *   f32      1 k   [32] f32                          x word: the f32
 *   f16      1 k   [32] f16                          the f32
 *   bf16     1 k   [16][2] bf16: outputs j, 16 + j   the f32; the pair widens with a shift and a mask
 *   bf16dot  2 k   [32][2] bf16                      two bf16
 *   int8     4 k   [32][4] int8                      four int8, or uint8 = int8 + 128
 *   q8_0    32 k   8 times [32][4] uint8, [32] f16   as q4_0
 *   q4_0    32 k   8 times [16][4] bytes, [32] f16   eight words of four int8; scale and sum apart, see below
 *   q4_1    32 k   as q4_0, and [32] f16 minima      as q4_0
 * N is padded to whole panels and K to whole steps with zeros. int8 is followed by the scales f32 [N padded] and
 * by 128 * (sum over k of wq) as int32 [N padded], which takes the 128 out again. A byte of q4_0 and q4_1 has the
 * code of output j in its low bits and that of output 16 + j in its high bits. Of a permuted weight the order of the
 * inputs follows (proa_group_order). A row of x for the formats in groups is
 * int8 [K padded], f32 scales [groups], and the sum of each group's int8 times proa_group_factor as int32 [groups]. */
#define PROA_PANELS_LAYOUT "x86-64 panels 1" /* proa_ops.layout; the number rises when a format changes */
#define PROA_PANEL         32
/* q8_0 multiplies int8 with int8 + 128, q4_0 with codes + 8: the sum of x times this is taken out again. q4_1: 1. */
int32_t proa_group_factor(proa_wfmt format, bool biased);

int64_t proa_panel_count(int64_t N);
int64_t proa_panel_step_inputs(proa_wfmt format);
int64_t proa_panel_steps(proa_wfmt format, int64_t K);
int64_t proa_panel_bytes(proa_wfmt format, int64_t K);
int64_t proa_panels_pack_bytes(proa_wfmt format, int64_t N, int64_t K); /* proa_ops.pack_bytes */
proa_pack_fn proa_panels_pack;                                          /* proa_ops.pack */
proa_copy_packed_fn proa_panels_copy;
proa_row_scale_fn proa_panels_row_scale;

/* sums[r][32 * p + j] = the chain over all steps of row r with output j of panel p. */
typedef struct proa_tile {
    const char *x;    /* words of row 0 */
    int64_t x_stride; /* bytes between rows */
    const char *w;    /* panel 0 */
    int64_t panel_bytes;
    int64_t steps;          /* over k; formats in groups: groups */
    void *sums;             /* f32, int8: int32 */
    int64_t sums_stride;    /* elements between rows */
    int rows, panels;       /* as the isa takes them */
    bool hardware_prefetch; /* the tile leaves prefetching to the CPU */
} proa_tile;

/* From sums to y: scales, alpha, bias, activation, residual. */
typedef struct proa_tile_epilogue {
    const void *sums;
    int64_t sums_stride;
    int64_t rows, columns; /* columns of y; the last panel may be cut */
    const float *bias;     /* of the first column, or NULL */
    const float *residual; /* or NULL */
    int64_t residual_stride;
    float *y;
    int64_t y_stride;
    float alpha;
    proa_act act;
    const float *x_scales, *w_scales; /* int8 only, else NULL */
    const int32_t *w_sums;            /* int8 with x + 128 only, else NULL */
} proa_tile_epilogue;

#define PROA_SKINNY_MAX 6
typedef struct proa_linear_isa {
    int rows_max;    /* of a tile */
    int rows_whole;  /* tiles begin at multiples of this, and may read x up to the next one; 0: 1 */
    int rows_skinny; /* up to that many rows, a tile takes panels_of[rows] panels; else 1 */
    int panels_of[PROA_SKINNY_MAX + 1];
    int speed;                           /* multiply-adds in the time of one of f32; 0: 1 */
    bool biased;                         /* int8 rows as uint8 = int8 + 128 */
    void (*enter)(void), (*leave)(void); /* around a worker's tiles; NULL: nothing is to be done */
    void (*tile[PROA_WFMT_COUNT])(const proa_tile *t);
    void (*finish)(const proa_tile_epilogue *f);
    /* A row of x as words: K padded to whole words with zeros. */
    void (*quantise)(int8_t *out, float *scale, const float *x, int64_t K);
    void (*round)(uint16_t *out, const float *x, int64_t K);
    /* A row of x for the formats in groups; factor as proa_group_factor gives it, order as proa_group_order. */
    void (*quantise_groups)(void *out, const float *x, int64_t K, int32_t factor, const int32_t *order);
} proa_linear_isa;

void proa_linear_run(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                     const proa_linear_isa *isa);

/* Rows [first, first + rows) of x, at most PROA_GROUP_ROWS, meet one expert's weight. */
#define PROA_GROUP_ROWS 96
typedef struct proa_linear_group {
    int64_t first, rows, expert;
} proa_linear_group;
/* y = epilogue(x W^T) of a weight with experts and biases [experts][N], no residual, not gated. The groups cover the
 * rows. words: memory of PROA_LINEAR_TILE_ROWS rows more than x has, at the widths of proa_ctx_scratch_bytes; sums:
 * PROA_LINEAR_WORKER_BYTES for each worker. Each sum is that of proa_linear_run. */
void proa_linear_run_grouped(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w,
                             const proa_epilogue *e, const proa_linear_group *groups, int64_t count,
                             char *words, char *sums, const proa_linear_isa *isa);
/* The op `experts` by that product (experts.c); isa: of e->up and of e->down. */
void proa_experts_run(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                      const proa_experts *e, const proa_linear_isa *up_isa, const proa_linear_isa *down_isa);

/* What the AVX-512 levels start from: AVX-512's own, the same with VNNI's int8, and with BF16's products too. */
extern const proa_linear_isa proa_linear_avx512;
void proa_quantise_biased_avx512(int8_t *out, float *scale, const float *x, int64_t K);
void proa_linear_vnni_isa(proa_linear_isa *isa);
void proa_linear_bf16_isa(proa_linear_isa *isa);

#endif
