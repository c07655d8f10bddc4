/* SPDX-License-Identifier: Apache-2.0
 * repack.h - a packed folder for some number of ranks, read by another number: each weight of a rank is put together
 *            from the parts that have its rows and columns. Numbers and codes stay as they are, so the weight has the
 *            bytes that packing the whole model for this number of ranks would give.
 * Owner:   the model, until it is loaded. Threads: as proa_model_load.
 * Way in:  proa_repack_open when the plan is made, then proa_repack_param for each weight. */
#ifndef PROA_MODEL_REPACK_H
#define PROA_MODEL_REPACK_H

#include "model/model.h"

/* The parts of the folder, as models that are never loaded. */
typedef struct proa_packed_parts proa_packed_parts;

/* Opens all parts and checks that they have every weight of the plan. UNSUPPORTED: the kernels of this device cannot
 * cut their layout, or a weight would have to be rounded again: a group of numbers with one scale would be cut or
 * joined, or rows of int8 and fp8 have other scales in each part, as older versions packed them. CORRUPT: the parts do
 * not fit together. */
PROA_MUST_CHECK proa_status proa_repack_open(proa_model *m, const char *path, const proa_model_options *o,
                                             proa_err *err);
void proa_repack_close(proa_packed_parts *parts); /* NULL is fine */
/* Closes the parts behind the last weight. IO: one of the files was cut short meanwhile. */
PROA_MUST_CHECK proa_status proa_repack_end(proa_model *m, proa_err *err);

/* Writes a weight, param->bytes, to host memory of zeros: padding is left as it is. */
void proa_repack_param(proa_model *m, const proa_weight_walk *at, char *to);

#endif
