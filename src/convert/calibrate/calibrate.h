/* SPDX-License-Identifier: Apache-2.0
 * calibrate.h - quantises the matrices of a model by what a text shows of their inputs.
 * Owner:   the caller's proa_calibrate; the tensors that are made belong to the proa_calibrated.
 * Threads: the caller's, and those of the job's pool.
 * Way in:  a proa_convert_job with `calibrate` set, then proa_convert_hf.
 *
 * The matrices of the layers are quantised, each with the Hessian X^T X of its inputs X over the text. Embeddings, the
 * head, routers and norms stay as they are. Written is the layout of compressed-tensors, which vLLM and transformers
 * read too (github.com/vllm-project/compressed-tensors):
 *     int4   X.weight_packed i32 [N, K/8], X.weight_scale [N, K/group], X.weight_shape i64 [2], and with zero points
 *            X.weight_zero_point i32 [N/8, K/group]; activations stay as they are
 *     int8   X.weight i8 [N, K], X.weight_scale [N, 1]; activations are quantised token by token
 *     fp8    X.weight e4m3 [N, K], X.weight_scale [N, 1], X.input_scale [1]: the scale of all activations */
#ifndef PROA_CONVERT_CALIBRATE_CALIBRATE_H
#define PROA_CONVERT_CALIBRATE_CALIBRATE_H

#include "convert/calibrate/gptq.h"
#include "convert/tensors.h"
#include "model/model.h"

typedef enum proa_calibrate_method {
    PROA_CALIBRATE_RTN,        /* rounding to nearest, with ranges that weigh errors by the activations */
    PROA_CALIBRATE_GPTQ,       /* error feedback */
    PROA_CALIBRATE_AWQ,        /* columns scaled by what weights need; then rounding to nearest */
    PROA_CALIBRATE_AWQ_GPTQ,   /* the same, then error feedback */
    PROA_CALIBRATE_SMOOTHQUANT /* columns scaled by what activations need; then rounding to nearest */
} proa_calibrate_method;

typedef struct proa_calibrate {
    proa_codes_kind kind;
    proa_calibrate_method method;
    int64_t group; /* INT4: inputs with one scale */
    bool asymmetric;
    int sweeps;        /* GPTQ: of coordinate descent, at most (gptq.h) */
    uint64_t text_key; /* of the text and what is made of it: another one is another job */
    /* Runs the text through the model once, with this observer. Called as often as the memory of the Hessians needs. */
    proa_status (*run)(void *context, const proa_observer *observer, proa_err *err);
    /* Called after each matrix. False: stop; CANCELLED is returned. */
    bool (*progress)(void *context, int64_t done, int64_t total);
    void *context;
} proa_calibrate;

typedef struct proa_calibrated {
    proa_arena arena; /* of the tensors that were made */
    proa_buf config;  /* quantization_config of config.json, JSON */
    int64_t matrices; /* that were quantised */
} proa_calibrated;

/* Replaces matrices of the list by the tensors of the quantised ones. UNSUPPORTED if the model is not known or has
 * none that can be quantised so. */
PROA_MUST_CHECK proa_status proa_calibrate_tensors(proa_calibrated *out, proa_convert_tensors *tensors,
                                                   const proa_convert_job *job, proa_err *err);
void proa_calibrated_release(proa_calibrated *c);
uint64_t proa_calibrate_key(const proa_calibrate *c, uint64_t key);

#endif
