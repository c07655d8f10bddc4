/* SPDX-License-Identifier: Apache-2.0
 * tune.h - which algorithm a product of many rows takes, as timed on this machine's own device, kept in a small text
 * file: a line that says the format, one that says what it was timed on, and one for each product. Any other device,
 * driver or library makes another file (proa_tune_path), so that nothing is used where it was not timed.
 * Owner:   proa_tune_init/release. Threads: one at a time.
 * Way in:  proa_tune_path, proa_tune_read, proa_tune_find; proa_tune_put, proa_tune_write. */
#ifndef PROA_KERNELS_TUNE_H
#define PROA_KERNELS_TUNE_H

#include "base/status.h"
#include "base/str.h"

#define PROA_TUNE_IDENTITY_MAX 512

/* A product's rows (a bucket), sizes, strides, types, epilogue: as the plug-in gives them, as numbers. A product of no
 * columns (key[1] = 0) is none: it stands for sums between key[2] ranks in processes. Then algorithm[0] is from how
 * many bytes of terms on NCCL is faster, all ones: never; us is what NCCL takes for the largest sum that was timed,
 * first_us what the plug-in's kernel takes. */
enum { PROA_TUNE_KEYS = 12, PROA_TUNE_WORDS = 8 };

typedef struct proa_tune_entry {
    int64_t key[PROA_TUNE_KEYS];
    uint64_t algorithm[PROA_TUNE_WORDS]; /* the library's own words: it must check them before it uses them */
    float us, first_us; /* of one product: the chosen algorithm's, and that of the library's first guess */
} proa_tune_entry;

typedef struct proa_tune {
    char identity[PROA_TUNE_IDENTITY_MAX]; /* one line: device, capability, driver, library, plug-in */
    proa_tune_entry *entry;
    int64_t count, cap;
} proa_tune;

void proa_tune_init(proa_tune *t, const char *identity); /* control characters and what is too long are cut */
void proa_tune_release(proa_tune *t);

/* The bucket of a number of rows: the next power of two, or three quarters of it. At least 1. */
int64_t proa_tune_bucket(int64_t rows);
/* NULL if it was not timed. */
const proa_tune_entry *proa_tune_find(const proa_tune *t, const int64_t key[PROA_TUNE_KEYS]);
/* In place of one with the same key; dropped when there are PROA_TUNE_ENTRIES_MAX. */
void proa_tune_put(proa_tune *t, const proa_tune_entry *entry);

/* "${XDG_CACHE_HOME:-~/.cache}/proa/tune-NAME-HASH.txt": NAME from the device's name, HASH over t->identity. NOT_FOUND
 * where neither variable names a folder. */
PROA_MUST_CHECK proa_status proa_tune_path(char *out, const proa_tune *t, const char *device, proa_err *err);
/* Adds what t does not have. CORRUPT names the line and what is wrong with it: then nothing was added. INVALID: it was
 * timed on something else. */
PROA_MUST_CHECK proa_status proa_tune_parse(proa_tune *t, proa_str text, proa_err *err);
/* The same of a file; NOT_FOUND if there is none. */
PROA_MUST_CHECK proa_status proa_tune_read(proa_tune *t, const char *path, proa_err *err);
/* The same whatever it was timed on, into a fresh t, which takes that as its identity: to look at. */
PROA_MUST_CHECK proa_status proa_tune_look(proa_tune *t, const char *path, proa_err *err);
PROA_MUST_CHECK bool proa_tune_print(proa_buf *out, const proa_tune *t);
/* Through a temporary file in the same folder that is then renamed, so that a reader sees the old or the new one
 * whole. Makes the folder. */
PROA_MUST_CHECK proa_status proa_tune_write(const proa_tune *t, const char *path, proa_err *err);

#endif
