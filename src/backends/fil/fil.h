/* SPDX-License-Identifier: Apache-2.0
 * fil.h - Triton's backend `fil` for forests: what its configuration says. Private to src/backends.
 * Owner:   settings point into the configuration.
 * Threads: pure functions.
 * Way in:  proa_fil_read, proa_fil_complete. Facts: triton-inference-server/fil_backend, both generations of
 *          parameters. */
#ifndef PROA_BACKENDS_FIL_FIL_H
#define PROA_BACKENDS_FIL_FIL_H

#include "base/limits.h"
#include "forest/forest.h"
#include "serve/backend.h"

#define PROA_FIL_INPUT  "input__0"
#define PROA_FIL_OUTPUT "output__0"
#define PROA_FIL_SHAP   "treeshap_output"

typedef struct proa_fil_settings {
    proa_forest_format format;
    const char *file; /* in the version's folder */
    bool is_classifier, predict_proba;
    float threshold;
    int32_t threads; /* 0: all */
} proa_fil_settings;

/* What becomes of a row's scores. */
typedef enum proa_fil_answer {
    PROA_FIL_SCORES,    /* as they are */
    PROA_FIL_BEST,      /* of each target, the class of the highest score above 0, else class 0 */
    PROA_FIL_THRESHOLD, /* of each target: is the score above the threshold? */
    PROA_FIL_BOTH       /* 1 - p and p */
} proa_fil_answer;

/* An output of the configuration, as replies have it: [rows] and then the dimensions that are not 1. */
typedef struct proa_fil_output {
    int64_t width; /* elements of a row */
    int64_t shape[PROA_SERVE_RANK_MAX];
    int32_t rank;
} proa_fil_output;

/* What a model answers. */
typedef struct proa_fil_outputs {
    proa_fil_answer answer; /* output__0 */
    proa_fil_output scores;
    bool has_shap;        /* the configuration has treeshap_output */
    proa_fil_output shap; /* only then */
} proa_fil_outputs;

/* Parameters, with the backend's errors. Removed ones are warned of when `warn`. */
PROA_MUST_CHECK proa_status proa_fil_read(proa_fil_settings *out, const Inference__ModelConfig *config,
                                          bool warn, proa_err *err);
/* Reads the model file; the transform becomes the one that the settings ask for. */
PROA_MUST_CHECK proa_status proa_fil_forest(proa_forest **out, const proa_fil_settings *settings,
                                            const char *version_path, proa_err *err);
/* Checks the tensors of the configuration against the forest. INVALID names the tensor and both numbers. */
PROA_MUST_CHECK proa_status proa_fil_tensors(proa_fil_outputs *out, const Inference__ModelConfig *config,
                                             const proa_fil_settings *settings, const proa_forest *forest,
                                             proa_err *err);
/* The table's `complete`: tensors, max_batch_size, is_classifier and model_type, where they are open. */
PROA_MUST_CHECK proa_status proa_fil_complete(Inference__ModelConfig *config, const char *version_path,
                                              proa_arena *arena, proa_err *err);

#endif
