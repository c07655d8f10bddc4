/* SPDX-License-Identifier: Apache-2.0
 * packed.h - a model whose checkpoint is packed (weights/packed.h): what the file says is compared with the plan.
 * Way in:  proa_packed_formats when the tensors are bound, proa_packed_check when the plan is made. */
#ifndef PROA_MODEL_PACKED_H
#define PROA_MODEL_PACKED_H

#include "model/model.h"
#include "weights/packed.h"

/* Sets m->formats and the format of each matrix. UNSUPPORTED if the file is packed for kernels of another layout,
 * INVALID if the options ask for other formats; both say how to make one that fits. */
PROA_MUST_CHECK proa_status proa_packed_formats(proa_model *m, const char *path, const proa_model_options *o,
                                                proa_err *err);
/* Every weight of the plan is in the file, in this order, in this format and size, and nothing else but what other
 * stages have. Sets proa_param.block_at. */
PROA_MUST_CHECK proa_status proa_packed_check(const proa_model *m, const char *path, proa_err *err);
/* What the file calls the format of a weight: "-" where it is not a matrix. */
#define PROA_PACKED_FORMAT_MAX 24
void proa_packed_format_name(char out[PROA_PACKED_FORMAT_MAX], const proa_param *param);

#endif
