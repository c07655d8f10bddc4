/* SPDX-License-Identifier: Apache-2.0
 * tensors.h - the tensors of a checkpoint in the layout of the architecture's Hugging Face class, whatever file they
 *             are stored in: decoded, transposed, regrouped and joined when they are read.
 * Owner:   proa_convert_tensors_open/close; the tensors live as long as the open checkpoint.
 * Threads: after open they are only read; many threads may.
 * Way in:  proa_convert_tensors_open, then proa_convert_tensor_read for a range of numbers. */
#ifndef PROA_CONVERT_TENSORS_H
#define PROA_CONVERT_TENSORS_H

#include "convert/convert.h"
#include "model/bind.h"

/* A tensor [shape], dense and row-major. In memory it is made of matrices [N, K], one for each of `slices` (experts):
 * stacked parts, whose rows are taken in the order row_of. turned: the tensor has them as [K, N]. */
typedef struct proa_convert_tensor {
    const char *name;
    proa_dtype dtype; /* of the numbers to write; that of the file where they are not floats */
    int32_t rank;
    int64_t shape[PROA_STORED_AXES_MAX]; /* 1 beyond rank */
    int64_t count;                       /* numbers */
    const proa_name *row; /* of the architecture's map; NULL: the model does not use it, or is not known */
    int64_t row_numbers; /* numbers of a row: ranges of whole rows are read fastest; 1 where it does not matter */
    /* private */
    const proa_weights_tensor *stored;   /* whose bytes are copied; NULL: read from parts */
    const proa_weights_tensor *whole[8]; /* the stored tensors, to be dropped when they were read */
    int32_t whole_count;
    int64_t slices, N, K;
    int32_t parts;
    const proa_tensor_source *part; /* [slices][parts] matrices */
    const int32_t *row_of;          /* [N] rows of the stacked parts; NULL: in order */
    bool turned;
    float plus; /* added to each number */
} proa_convert_tensor;

typedef struct proa_convert_tensors {
    proa_convert_tensor *at; /* [count] by name */
    int64_t count;
    bool decoded;          /* some were stored as codes */
    const proa_arch *arch; /* NULL: no row is for this checkpoint */
    proa_config config;    /* with arch */
    proa_params params[PROA_STACK_COUNT];
    proa_arena arena;
} proa_convert_tensors;

/* UNSUPPORTED names a tensor that is stored in a way that cannot be undone, and says why the model is not known if
 * that is needed for it. */
PROA_MUST_CHECK proa_status proa_convert_tensors_open(proa_convert_tensors *out, const proa_convert_job *job,
                                                      proa_err *err);
void proa_convert_tensors_close(proa_convert_tensors *t);
/* Numbers [first, first + count) to out, as t->dtype, or as f32 (of floats only). */
void proa_convert_tensor_read(const proa_convert_tensor *t, int64_t first, int64_t count, void *out);
void proa_convert_tensor_read_f32(const proa_convert_tensor *t, int64_t first, int64_t count, float *out);
int64_t proa_convert_tensor_bytes(const proa_convert_tensor *t); /* count numbers of dtype */
/* The tensor will not be read again: its pages leave this process's memory. */
void proa_convert_tensor_drop(const proa_convert_job *job, const proa_convert_tensor *t);

#endif
