/* SPDX-License-Identifier: Apache-2.0
 * device.h - a forest in the memory of a GPU, and rows through it. Private to src/backends.
 * Owner:   a device forest belongs to the model, which frees it when no stream uses it any more; a pass holds its
 *          buffers until proa_fil_pass_release.
 * Threads: a forest does not change; a stream is used by one thread.
 * Way in:  proa_fil_device_new, proa_fil_device_run, proa_gpu_stream_wait. */
#ifndef PROA_BACKENDS_FIL_DEVICE_H
#define PROA_BACKENDS_FIL_DEVICE_H

#include "backends/fil/fil.h"
#include "backends/gpu/gpu.h"

typedef struct proa_fil_device proa_fil_device;

/* Rows on their way through a forest. out [rows][width] is complete after the wait. */
typedef struct proa_fil_pass {
    proa_buffer *in, *sums, *out;
} proa_fil_pass;

/* Why a GPU does not compute this forest; NULL: it does. */
const char *proa_fil_device_refuses(const proa_forest *forest);
/* Copies the forest to the stream's GPU; it keeps nothing of `forest`. */
PROA_MUST_CHECK proa_status proa_fil_device_new(proa_fil_device **out, proa_gpu_stream *s,
                                                const proa_forest *forest, proa_fil_answer answer,
                                                float threshold, proa_err *err);
void proa_fil_device_free(proa_fil_device *d); /* NULL is fine */
/* Launches `rows` rows of `in`, FP32 [rows][features]; *pass is to be released after the wait, also on failure. */
PROA_MUST_CHECK proa_status proa_fil_device_run(const proa_fil_device *d, proa_gpu_stream *s,
                                                const proa_tensor *in, int64_t rows, proa_fil_pass *pass,
                                                proa_err *err);
void proa_fil_pass_release(proa_fil_pass *pass);

#endif
