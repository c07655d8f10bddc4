/* SPDX-License-Identifier: Apache-2.0
 * json_read.h - reads JSON in one walk over the text, without a tree: for bodies whose arrays go straight into tensors.
 * Grammar and texts of errors are those of Triton's parser (RapidJSON with NaN and Inf): "failed to parse the request
 * JSON buffer: Invalid value. at 17". Strings may hold bytes that are not UTF-8; they are passed on as they are.
 * Owner:   the text is the caller's and outlives all slices; strings with escapes are decoded into the arena.
 * Threads: none of its own.
 * Way in:  proa_jread_init, then peek, and begin with member or element. */
#ifndef PROA_API_HTTP_JSON_READ_H
#define PROA_API_HTTP_JSON_READ_H

#include "base/arena.h"
#include "base/status.h"
#include "serve/tensor.h"

typedef struct proa_jread {
    const char *at, *begin,
        *end; /* one byte after the end must be readable and no digit, or the text ends in } or ] */
    proa_arena *arena;
    proa_status bad; /* of syntax and of wrong types: INVALID, or INTERNAL as Triton has it */
    bool truncate;   /* integers out of range lose their upper bits, as in Triton, in place of an error */
    size_t tensor_bytes_max;
} proa_jread;

typedef enum proa_jread_kind {
    PROA_JREAD_END, /* of the text */
    PROA_JREAD_NULL,
    PROA_JREAD_BOOL,
    PROA_JREAD_NUMBER,
    PROA_JREAD_STRING,
    PROA_JREAD_ARRAY,
    PROA_JREAD_OBJECT,
    PROA_JREAD_OTHER /* no value begins so */
} proa_jread_kind;

typedef enum proa_jnumber_kind { PROA_JNUMBER_INT, PROA_JNUMBER_UINT, PROA_JNUMBER_DOUBLE } proa_jnumber_kind;
typedef struct proa_jnumber {
    proa_jnumber_kind kind; /* INT: i, within int64_t; UINT: u, above INT64_MAX; DOUBLE: what is no integer of 64
                               bits */
    int64_t i;
    uint64_t u;
    double d; /* set for every kind */
} proa_jnumber;

/* strict: Triton's statuses and its truncation of integers. bytes_max: of one tensor. */
void proa_jread_init(proa_jread *j, proa_str text, proa_arena *arena, bool strict, size_t bytes_max);
proa_jread_kind proa_jread_peek(proa_jread *j); /* of the next value; skips white space */
proa_status proa_jread_string(proa_jread *j, proa_str *out, proa_err *err);
proa_status proa_jread_number(proa_jread *j, proa_jnumber *out, proa_err *err);
proa_status proa_jread_bool(proa_jread *j, bool *out, proa_err *err);
proa_status proa_jread_skip(proa_jread *j, proa_err *err); /* a whole value, at most PROA_INFER_JSON_DEPTH_MAX deep */
/* After the value of the document nothing may follow. */
proa_status proa_jread_finish(proa_jread *j, proa_err *err);

/* An object or array, whose bracket is next: begin, then member or element until *more is false:
 *     bool more;
 *     for (proa_jread_begin(j);;) {
 *         PROA_TRY(proa_jread_member(j, &key, &more, err));
 *         if (!more) break;
 *         ...reads or skips the value...
 *     } */
void proa_jread_begin(proa_jread *j);
proa_status proa_jread_member(proa_jread *j, proa_str *key, bool *more, proa_err *err);
proa_status proa_jread_element(proa_jread *j, bool *more, proa_err *err);

/* The same with a check of the type: "WHAT: attempt to access JSON non-string as string". A string for a name ("name",
 * "id", a parameter) may hold no NUL and comes back NUL-terminated in the arena. */
proa_status proa_jread_name(proa_jread *j, const char *what, proa_str *out, proa_err *err);
proa_status proa_jread_uint(proa_jread *j, const char *what, uint64_t *out, proa_err *err);
proa_status proa_jread_flag(proa_jread *j, const char *what, bool *out, proa_err *err);
proa_status proa_jread_expect(proa_jread *j, const char *what, proa_jread_kind kind, proa_err *err);
proa_status proa_jread_fail(const proa_jread *j, const char *what, proa_err *err); /* syntax, at the place of j */

/* ---- json_data.c ---- */

/* The value of `data` (an array, nested or flat; a bare element too) into t, whose name, type and shape are set: its
 * buffer, data and bytes are made. The number of BYTES elements need not match the shape: check.c counts them. */
proa_status proa_jread_data(proa_jread *j, proa_tensor *t, proa_err *err);

/* The same value as a list in the arena, with no buffer and no framing. */
typedef struct proa_jlist {
    proa_tensor tensor; /* name, type and shape, set by the caller; has no data */
    int64_t found; /* elements; of BYTES it may differ from the shape's, then the list must not be used */
    size_t bytes;  /* of memory: numbers as in a tensor; texts with the list of them */
    const void *numbers;   /* [found] of the type; NULL: BYTES, or none */
    const proa_str *texts; /* [found] of BYTES; NULL: numbers, or none */
} proa_jlist;
proa_status proa_jread_list(proa_jread *j, proa_jlist *out, proa_err *err);

#endif
