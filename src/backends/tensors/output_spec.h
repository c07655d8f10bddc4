/* SPDX-License-Identifier: Apache-2.0
 * output_spec.h - an output of a reply without its bytes: name, type and shape.
 * Owner:   what it points to is the caller's; functions that add an output copy it. Threads: plain values. */
#ifndef PROA_BACKENDS_TENSORS_OUTPUT_SPEC_H
#define PROA_BACKENDS_TENSORS_OUTPUT_SPEC_H

#include "serve/tensor.h"

typedef struct proa_output_spec {
    const char *name;
    proa_type type;
    const int64_t *shape; /* [rank] */
    int32_t rank;
} proa_output_spec;

#endif
