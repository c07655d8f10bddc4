/* SPDX-License-Identifier: Apache-2.0
 * session.h - what the files of --calibrate share: the matrices to quantise, and what is known of their inputs.
 * Owner:   proa_calibrate_tensors; it lives for one call. Threads: the caller's.
 * Way in:  calibrate.c has the order of the work. */
#ifndef PROA_CONVERT_CALIBRATE_SESSION_H
#define PROA_CONVERT_CALIBRATE_SESSION_H

#include "convert/calibrate/calibrate.h"

/* The inputs X of one weight slot of one layer, which its parts share (q, k and v). */
typedef struct proa_input_stats {
    proa_stack_id stack;
    int64_t index;   /* of the slot's parameter in its stack */
    int64_t K, rows; /* rows of X that were seen; -1: there was no memory for their product */
    float *hessian;  /* [K][K] X^T X */
    float *sum;      /* [K] of magnitudes */
    float *most;     /* [K] largest magnitude */
    float *scale;    /* [K] what the columns are multiplied by, and X is divided by (smoothing); NULL: 1 */
    proa_gptq_inputs inputs;
} proa_input_stats;

/* A tensor to quantise. */
typedef struct proa_calibrate_target {
    proa_convert_tensor *tensor;
    int64_t stats; /* its inputs among those of the session */
    int64_t N, K, group;
} proa_calibrate_target;

typedef struct proa_calibrate_session {
    const proa_convert_job *job;
    const proa_calibrate *c;
    proa_convert_tensors *tensors;
    proa_calibrated *out;
    proa_calibrate_target *target; /* [targets] sorted by stats */
    int64_t targets;
    proa_input_stats *stats; /* [stats_count] in the order of layers */
    int64_t stats_count;
    int64_t first, end; /* the stats that are gathered in this run of the text */
    proa_convert_tensor *made;
    int64_t made_count;
    proa_err *err;
} proa_calibrate_session;

/* ---- inputs.c ---- */

/* Chooses the next stats, as many as fit into PROA_HESSIAN_BYTES_MAX but at least one, and runs the text for them. */
PROA_MUST_CHECK proa_status proa_calibrate_gather(proa_calibrate_session *s);
void proa_input_stats_release(proa_input_stats *stats);

/* ---- norms.c ---- */

/* Chooses stats[i].scale by the method and puts it into the norm that makes these inputs. Does nothing if the method
 * has no scales, or if others read the norm's output too. */
PROA_MUST_CHECK proa_status proa_calibrate_smooth(proa_calibrate_session *s, int64_t i);

/* ---- write.c ---- */

/* A new tensor [rows, cols], or [rows * cols] of rank 1, in place of or beside those of the source. Returns its memory,
 * zeros. */
void *proa_calibrate_new_tensor(proa_calibrate_session *s, const char *name, proa_dtype dtype, int32_t rank,
                                int64_t rows, int64_t cols);
/* The tensors of a quantised matrix in the layout of compressed-tensors. */
void proa_calibrate_new_matrix(proa_calibrate_session *s, const proa_calibrate_target *t, const proa_codes *m);
/* quantization_config, when all matrices were made. */
void proa_calibrate_write_config(const proa_calibrate_session *s);

#endif
