/* SPDX-License-Identifier: Apache-2.0
 * format.h - in which format each weight is packed, and the type of keys and values.
 * Way in:  proa_formats_choose when the tensors are bound; then proa_formats_of for each matrix. */
#ifndef PROA_MODEL_FORMAT_H
#define PROA_MODEL_FORMAT_H

#include "kernels/device.h"
#include "model/bind.h"

typedef struct proa_formats {
    /* The format of the layers' matrices, which reports name. On a GPU it decides the type of the activations. */
    proa_wfmt main;
    bool given; /* by --dtype or --quant: all matrices have it */
    bool rounds; /* by "auto": matrices of bf16 are multiplied with inputs that are rounded to bf16 (bf16dot) */
    bool host;   /* the model runs on the host, whose kernels take any mixture of formats */
    proa_dtype checkpoint; /* of the first matrix; of an encoded one f16 */
    proa_dtype kv;
} proa_formats;

/* What the user says of formats: the members of these names of proa_model_options. */
typedef struct proa_format_options {
    const char *dtype, *quant, *kv_dtype; /* NULL: auto, none, auto */
} proa_format_options;
/* Chooses the formats of a model with these weights on this device. INVALID or UNSUPPORTED names the option. */
PROA_MUST_CHECK proa_status proa_formats_choose(proa_formats *out, const proa_params params[PROA_STACK_COUNT],
                                                const proa_device *device, const proa_format_options *o,
                                                proa_err *err);
/* Chooses the type of keys and values again, once the formats of a packed checkpoint are known. */
PROA_MUST_CHECK proa_status proa_formats_choose_kv(proa_formats *f, const char *kv_dtype, proa_err *err);
/* The format of one matrix: the given one, else by its own tensors. */
proa_wfmt proa_formats_of(const proa_formats *f, proa_weight_slot slot, const proa_param *param);
/* Whether a matrix of that format has its inputs in the order of its codes' groups (proa_weight.permuted). */
bool proa_formats_permutes(proa_wfmt format, const proa_param *param);
/* The type of an embedding table in memory: that of its tensor, or of an encoded one f16 or the given one. */
proa_dtype proa_formats_table(const proa_formats *f, const proa_param *param);

#endif
