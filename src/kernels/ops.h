/* SPDX-License-Identifier: Apache-2.0
 * ops.h - the tables of kernels: how ops are called, and how a table is chosen. The types of the arguments of ops.def
 *          and decode.def are in op_linear.h, op_experts.h, op_lora.h, op_attention.h,
 *          op_state.h and op_decode.h.
 * Owner:   tables are static; a proa_ctx belongs to its caller.
 * Threads: one op at a time on one proa_ctx; an op runs on the threads of the context's pool.
 * Way in:  proa_ctx_init, then c->ops->linear(c, ...). */
#ifndef PROA_KERNELS_OPS_H
#define PROA_KERNELS_OPS_H

#include "base/cpu.h"
#include "base/status.h"
#include "base/thread.h"
#include "kernels/op_attention.h"
#include "kernels/op_decode.h"
#include "kernels/op_experts.h"
#include "kernels/op_linear.h"
#include "kernels/op_lora.h"
#include "kernels/op_state.h"
#include "kernels/weight.h"

/* ---- the context of a call ---- */

typedef struct proa_ops proa_ops;
typedef struct proa_ctx {
    const proa_ops *ops;
    proa_pool *pool; /* the caller's */
    /* Scratch of the kernels for the widest step, made by proa_ctx_init; no op allocates. Aligned to 64. */
    void *scratch;
    int64_t scratch_bytes;
    struct proa_device *device; /* the state of the device whose table it is; NULL: the host */
    /* CPU: linear reads one panel of weights at a time and leaves prefetching to the hardware. No effect on results.
     * The owner sets it where that is faster (proa_cpu_prefers_one_stream) and a pass reads more weights than the
     * last-level cache holds. */
    bool one_stream;
} proa_ctx;

/* What the widest step needs, for the size of the scratch. */
typedef struct proa_ctx_need {
    int64_t rows;            /* T */
    int64_t inputs;          /* the largest K of a linear */
    int64_t heads, head_dim; /* of attention */
    int64_t columns;         /* the widest row of top_k: the vocabulary */
    int64_t experts, chosen; /* E and k of a mixture of experts; experts 0: none */
    int64_t expert_width;    /* the larger of an expert's K and N */
    int64_t expert_ffn;      /* rows of an expert's `up`: 2F if gated, else F */
    int64_t keys;            /* the longest context of pick_keys; 0: none */
    int64_t lora;            /* the most pieces * rank of a proa_lora; 0: no adapters */
} proa_ctx_need;

/* Bytes of scratch for a pool of so many threads. */
int64_t proa_ctx_scratch_bytes(const proa_ctx_need *need, int threads);
/* ops NULL: proa_ops_cpu(proa_isa_choose()). NO_MEMORY if there is none for the scratch. Release with
 * proa_ctx_release, after a success only; the pool stays the caller's. */
PROA_MUST_CHECK proa_status proa_ctx_init(proa_ctx *c, const proa_ops *ops, proa_pool *pool,
                                          const proa_ctx_need *need, proa_err *err);
void proa_ctx_release(proa_ctx *c);

/* linear converts this many rows of x at a time (quantised or rounded) into scratch, and each worker has this much
 * memory for sums; so scratch does not grow with the step. */
#define PROA_LINEAR_ROWS         512
#define PROA_LINEAR_WORKER_BYTES (64 * PROA_KIB)
#define PROA_LINEAR_TILE_ROWS    16 /* converted rows are padded to a multiple of this: AMX reads whole tiles */

/* experts works on pieces of at most this many (row, expert) pairs, so scratch does not grow with the step either. In a
 * larger piece the weights of an expert are read less often. A GPU's grouped products want more rows an expert. */
#define PROA_EXPERT_PAIRS        4096
#define PROA_DEVICE_EXPERT_PAIRS 8192
/* Pairs of a piece in a step of `rows` rows that choose `chosen` experts each. */
int64_t proa_expert_pairs(int64_t rows, int64_t chosen);

/* ---- the tables ---- */

#define PROA_OP(name, args) typedef void proa_##name##_fn args;
#include "kernels/decode.def"
#include "kernels/ops.def"
#undef PROA_OP

/* The decoding ops of a table. */
typedef struct proa_decode_ops {
#define PROA_OP(name, args) proa_##name##_fn *name;
#include "kernels/decode.def"
#undef PROA_OP
} proa_decode_ops;

struct proa_ops {
    const char *name; /* of the highest overlay: "avx512_vnni" */
    proa_isa isa;
    /* Name and version of the layout of packed weights. Tables with equal names read what any of them packed; the
     * version rises when the layout of a format changes. */
    const char *layout;
    /* Bytes of a packed weight [N,K] in this table's layout, for shapes that were checked. -1: the table does not have
     * the format. */
    int64_t (*pack_bytes)(proa_wfmt format, int64_t N, int64_t K);
#define PROA_OP(name, args) proa_##name##_fn *name;
#include "kernels/ops.def"
#undef PROA_OP
    const proa_decode_ops *decode;
};

/* The table of a level: the reference overlaid by every level up to it. NULL if the CPU lacks the level. */
const proa_ops *proa_ops_cpu(proa_isa isa);
/* Names of the ops in the order of ops.def, then of decode.def, NULL-terminated. */
extern const char *const proa_op_names[];

/* Copies a rectangle between two weights of one format and layout, both in host memory, `to` one of zeros. Codes stay
 * as they are. Columns come in whole groups that have one scale (proa_wfmt_group); a partial group must be the last one
 * of both weights. Rows of I8, I8W and FP8 may be parted anywhere: each part has the scale of the row. */
typedef void proa_copy_packed_fn(proa_pool *pool, proa_weight *to, const proa_weight *from,
                                 const proa_packed_rect *rect);
/* The function for a layout (proa_ops.layout), also of a device; NULL: the layout is unknown. */
proa_copy_packed_fn *proa_copy_packed_find(const char *layout);
/* The scale of a row in host memory, of a format whose rows have one. NULL: the layout is unknown. */
typedef float proa_row_scale_fn(const proa_weight *w, int64_t row);
proa_row_scale_fn *proa_row_scale_find(const char *layout);

#endif
