/* SPDX-License-Identifier: Apache-2.0
 * convert.h - writes a checkpoint in another form: one job, one writer for each form.
 * Owner:   the caller fills proa_convert_job and keeps what it points to open while the writer runs.
 * Threads: the caller's; decoding is shared among the threads of the job's pool.
 * Way in:  proa_weights_open, then one of the writers.
 *
 * Every writer streams: it holds some megabytes of numbers at a time. A writer that was interrupted (by the progress
 * function, a signal, a full disk) leaves unfinished files behind. The same job continues them; another job over the
 * same place is refused (outfile.h, folder.h). */
#ifndef PROA_CONVERT_CONVERT_H
#define PROA_CONVERT_CONVERT_H

#include "base/thread.h"
#include "weights/weights.h"

typedef struct proa_convert_job {
    const char *in, *out;        /* folder or file of the source; folder or file to write */
    const proa_weights *weights; /* the open source; its tensors have Hugging Face's names */
    const proa_files *files;     /* config.json, tokenizer files (made ones included) */
    proa_dtype dtype;            /* of the floats to write: f32, f16 or bf16, */
    bool dtype_given;            /* or as they are stored; encoded ones then as config.json says, or f16 */
    const char *format; /* of a GGUF file's matrices: "f32", "f16", "bf16", "q8_0", "q4_0"; NULL: dtype */
    const char *device, *quant; /* of a packed folder: where it will run, and --quant there */
    int32_t ranks;              /* of a packed or FasterTransformer folder; 1: it is whole */
    int64_t shard_bytes;        /* of a safetensors file at most, unless one tensor is larger; 0: one file */
    /* How matrices are quantised on the way (calibrate.h; proa_convert_hf only); NULL: they are not. */
    const struct proa_calibrate *calibrate;
    bool overwrite;  /* what is at `out` is replaced */
    proa_pool *pool; /* decodes */
    /* Called often with bytes written and bytes in all. False: stop; the writer then returns CANCELLED. NULL: none. */
    bool (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} proa_convert_job;

/* A folder of Hugging Face: config.json, tokenizer files, and safetensors in the layout of the architecture's class.
 * EXISTS-like failures are INVALID; UNSUPPORTED names a tensor that cannot be written so. */
PROA_MUST_CHECK proa_status proa_convert_hf(const proa_convert_job *job, proa_err *err);
/* A GGUF file: one of llama.cpp's architectures, with metadata and tokenizer. UNSUPPORTED says what of the model the
 * format cannot express. */
PROA_MUST_CHECK proa_status proa_convert_gguf(const proa_convert_job *job, proa_err *err);
/* A folder of FasterTransformer for job->ranks ranks. UNSUPPORTED says what of the model it cannot express. */
PROA_MUST_CHECK proa_status proa_convert_ft(const proa_convert_job *job, proa_err *err);
/* A folder whose weights are in the layout of the kernels (weights/packed.h), with config.json and tokenizer files. It
 * is a model for the device that it was packed for; with several ranks for as many. UNSUPPORTED names what cannot be
 * divided among them. */
PROA_MUST_CHECK proa_status proa_convert_packed(const proa_convert_job *job, proa_err *err);

#endif
