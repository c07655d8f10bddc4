/* SPDX-License-Identifier: Apache-2.0
 * data_ops.h - the table of data ops (data.def) and where it comes from: the reference on the host, or the plug-in of a
 * GPU. It stands beside proa_ops, so that a change of one does not touch the other.
 * Owner:   tables are static.
 * Threads: one op at a time on one proa_ctx.
 * Way in:  proa_device_data_ops(device), then data->forest(&ctx, ...). */
#ifndef PROA_KERNELS_DATA_OPS_H
#define PROA_KERNELS_DATA_OPS_H

#include "kernels/elements.h"
#include "kernels/ops.h"
#include "kernels/pool_rows.h"
#include "kernels/text_rows.h"
#include "kernels/trees.h"

struct proa_device;

#define PROA_OP(name, args) typedef void proa_##name##_data_fn args;
#include "kernels/data.def"
#undef PROA_OP

typedef struct proa_data_ops {
    const char *name; /* "reference", "cuda" */
#define PROA_OP(name, args) proa_##name##_data_fn *name;
#include "kernels/data.def"
#undef PROA_OP
} proa_data_ops;

extern const proa_data_ops proa_data_ops_reference;

/* reference/trees.c */
proa_forest_data_fn proa_forest_reference;
/* reference/elements.c */
proa_map_elements_data_fn proa_map_elements_reference;
proa_softmax_elements_data_fn proa_softmax_elements_reference;
proa_copy_rows_data_fn proa_copy_rows_reference;
proa_pool_rows_data_fn proa_pool_rows_reference;
/* reference/text.c */
proa_text_features_data_fn proa_text_features_reference;

/* What libproa_cuda.so exports for it; NULL if it has another version. */
#define PROA_CUDA_DATA_ENTRY   "proa_cuda_data_ops"
#define PROA_CUDA_DATA_VERSION 3
typedef const proa_data_ops *proa_cuda_data_ops_fn(int version);

/* The table of a device. UNSUPPORTED if the plug-in that opened it has none, or one of another version. */
PROA_MUST_CHECK proa_status proa_device_data_ops(const proa_data_ops **out, const struct proa_device *d,
                                                 proa_err *err);

#endif
