/* SPDX-License-Identifier: Apache-2.0
 * bound.h - tensors of a Hugging Face class, read out of the weight slots of a bound model. The model may be of
 *           another class that computes the same: InternLM2's fused matrix gives Llama's three. Numbers come out as the
 *           model uses them: matrices as [outputs, inputs], q, k and v one after the other, norms with 1 added where
 *           the class adds it.
 * Owner:   proa_bound_open/close; everything in it lives as long as the open checkpoint.
 * Threads: after the last proa_bound_find it is only read; many threads may.
 * Way in:  proa_bound_open, proa_bound_aim at a class, proa_bound_find for each tensor, proa_bound_read. */
#ifndef PROA_CONVERT_BOUND_H
#define PROA_CONVERT_BOUND_H

#include "convert/convert.h"
#include "model/bind.h"

typedef struct proa_bound {
    const proa_weights *weights;
    const proa_arch *source; /* the model's row */
    const proa_arch *arch;   /* the row whose names are looked up */
    proa_config config;
    proa_json *json; /* config.json */
    proa_params params[PROA_STACK_COUNT];
    int64_t *found[PROA_STACK_COUNT]; /* [(layers + 1) * PROA_SLOT_COUNT] rows of the slot that were looked up */
    proa_arena arena;
} proa_bound;

/* One tensor: rows [first, first + rows) of a slot. */
typedef struct proa_bound_tensor {
    const proa_param *param;
    const proa_name *name; /* of the class */
    int64_t experts;       /* 0: the tensor has no such axis */
    int64_t first, rows;
    int64_t cols; /* 0: a vector */
} proa_bound_tensor;

/* Reads config.json and binds the checkpoint. */
PROA_MUST_CHECK proa_status proa_bound_open(proa_bound *t, const proa_convert_job *job, proa_err *err);
void proa_bound_close(proa_bound *t);

/* The row of a class by its name in `architectures`; NULL: none. */
const proa_arch *proa_bound_class(const char *hf);
/* From now on names are those of `arch`; nothing has been looked up. False: with the model's configuration that class
 * has other programs than the model's own. */
bool proa_bound_aim(proa_bound *t, const proa_arch *arch);
/* The tensor of one layer, and counts its rows as looked up. name: with "%d" for the layer and perhaps for the expert,
 * and its ending; layer: -1 if the name has none. part, parts: one of the parts that follow each other along the rows,
 * which are equal but for a recurrent layer's; 0, 1: all. If several slots share a tensor head by head (DeepSeek's
 * kv_b_proj), a part is that of one slot. False: the model has none. */
bool proa_bound_find(proa_bound *t, const char *name, int64_t layer, int part, int parts, proa_bound_tensor *out);
/* The name of a stored tensor of which some rows were not looked up, neither under another name; NULL: none. */
const char *proa_bound_left(const proa_bound *t);

/* The row of a matrix, or all numbers of a vector, to out, as f32. */
void proa_bound_read(const proa_bound_tensor *t, int64_t expert, int64_t row, float *out);
/* Numbers [col, col + n) of a row of a matrix, or with col 0 and n 1 number `row` of a vector. */
void proa_bound_read_part(const proa_bound_tensor *t, int64_t expert, int64_t row, int64_t col, int64_t n,
                          float *out);
/* The part of the slot that has the row, and the row in it. */
const proa_weight_part *proa_bound_part(const proa_bound_tensor *t, int64_t expert, int64_t row,
                                        int64_t *in_part);

/* Whether what another program reads of the written checkpoint has the same meaning as the model's configuration:
 * sizes, factors, windows, rotations. UNSUPPORTED names what differs; what: the form, for the error. */
PROA_MUST_CHECK proa_status proa_bound_compare(const proa_bound *t, const proa_config *read, const char *what,
                                               proa_err *err);

#endif
