/* SPDX-License-Identifier: Apache-2.0
 * infer_json.h - a request of inference as KServe v2 writes it in JSON, with or without blobs after, to and from
 * tensors. Order of keys, rules and texts of errors are Triton's (http_server.cc).
 * Owner:   tensors hold the buffer of the body; all else is in the request's or the reply's arena.
 * Threads: none of its own.
 * Way in:  proa_infer_json_read; proa_reply_json_write. */
#ifndef PROA_API_HTTP_INFER_JSON_H
#define PROA_API_HTTP_INFER_JSON_H

#include "api/http/json_read.h"
#include "serve/infer.h"

/* How one output is to be answered. */
typedef struct proa_output_want {
    const char *name;
    bool binary;
    uint64_t classes;       /* K of a classification; 0: none */
    const char *shm_region; /* NULL: none */
    uint64_t shm_offset, shm_bytes;
} proa_output_want;

/* Resolves a shared memory region: *out is a new reference. */
typedef proa_status proa_region_fn(void *arg, const char *region, uint64_t offset, uint64_t bytes,
                                   proa_buffer **out, proa_err *err);

typedef struct proa_infer_text {
    proa_str json, blobs; /* both inside body, if that is given */
    proa_buffer *body;    /* tensors of blobs hold it */
    bool strict;          /* Triton's statuses and truncation */
    size_t bytes_max;     /* of one tensor in JSON, and of the JSON itself */
    proa_region_fn *region;
    void *region_arg;
    /* options of the answer that the text requests */
    proa_output_want *wants; /* in the request's arena */
    int wants_count;
    bool binary_default; /* outputs that are not named come binary */
    size_t region_bytes; /* of inputs in clients' shared memory */
} proa_infer_text;

/* Fills r (model_name must be set: texts name it) from t. On failure r holds a part and is to be dropped. */
proa_status proa_infer_json_read(proa_infer_text *t, proa_infer *r, proa_err *err);
/* The parameters object of a request; flags of the protocol and custom ones. generate.c uses it too. *binary may be
 * NULL: then binary_data_output is a custom parameter like any other. */
proa_status proa_infer_json_param(proa_jread *j, proa_infer *r, proa_str key, bool *binary, proa_err *err);

/* ---- infer_json_write.c ---- */

/* A reply without error as text: JSON to `json`, and after it `blobs`, in this order. */
typedef struct proa_reply_text {
    proa_buf *json;
    const proa_tensor **blobs; /* in the reply's arena */
    int blobs_count;
} proa_reply_text;

/* wants and binary_default are those of the request. Outputs that the request wants as classes were replaced before
 * (proa_classify), those for shared memory are marked by their want. INTERNAL if an output does not fit its shape. */
proa_status proa_reply_json_write(proa_reply_text *out, proa_reply *reply, const proa_output_want *wants,
                                  int wants_count, bool binary_default, proa_err *err);
const proa_output_want *proa_output_want_find(const proa_output_want *wants, int count, const char *name);
/* [1,2,3]; or with bare, if there is one element, that alone. For every datatype that JSON takes. */
proa_status proa_tensor_json(proa_buf *out, const proa_tensor *t, bool bare, proa_err *err);
void proa_param_json(proa_buf *out, const proa_infer_param *param);
/* Shortest digits that give the same float32, as JSON: 0.1, 3.0, 1e-20, NaN, Infinity. At most 32 bytes. */
void proa_float_json(proa_buf *out, float value);
void proa_double_json(proa_buf *out, double value);
void proa_int_json(proa_buf *out, int64_t value);
void proa_uint_json(proa_buf *out, uint64_t value);

#endif
