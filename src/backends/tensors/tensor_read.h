/* SPDX-License-Identifier: Apache-2.0
 * tensor_read.h - reads numbers, texts and token ids from the inputs of a request, whatever integer or floating type
 *                 the client chose.
 * Owner:   what is read goes to the arena of the caller. Threads: any, while nobody changes the request. */
#ifndef PROA_BACKENDS_TENSORS_TENSOR_READ_H
#define PROA_BACKENDS_TENSORS_TENSOR_READ_H

#include "base/arena.h"
#include "serve/infer.h"

/* Element i of a tensor. False: there is none, or it is not a number. UINT32 from 2^31 on is negative, because older
 * configurations write -1 so. */
bool proa_element_int(const proa_tensor *t, int64_t i, int64_t *out);
bool proa_element_double(const proa_tensor *t, int64_t i, double *out);
int64_t proa_tensor_count(const proa_tensor *t); /* elements */

/* Element `row` of an input that has one number for each row of the batch, or one for all. False: there is no such
 * input or element. */
bool proa_input_int(const proa_infer *r, const char *name, int64_t row, int64_t *out);
bool proa_input_bool(const proa_infer *r, const char *name, int64_t row, bool *out);
/* The only string of an input; ptr NULL: there is none. */
proa_str proa_input_text(const proa_infer *r, const char *name);

/* The part of a tensor that belongs to one row of a batch of `rows` requests. */
typedef struct proa_tensor_row {
    const proa_tensor *t;
    int64_t row, rows;
} proa_tensor_row;
/* Its numbers as token ids [count]. INVALID names what is not a token id. */
proa_status proa_input_ids(proa_tensor_row in, proa_arena *arena, const int32_t **ids, int64_t *count,
                           proa_err *err);
/* Its vectors as f32 [count, width], of a tensor of floats [..., count, width]. */
proa_status proa_input_vectors(proa_tensor_row in, int64_t width, proa_arena *arena, const float **values,
                               int64_t *count, proa_err *err);

/* UNSUPPORTED if the request has an input of one of these names (NULL-terminated) that is not empty. */
proa_status proa_refuse_inputs(const proa_infer *r, const char *const *names, proa_err *err);

#endif
