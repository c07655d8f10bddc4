/* SPDX-License-Identifier: Apache-2.0
 * text_inside.h - what text.c reads and text_gpu.c copies to a GPU. Private to src/backends/transform.
 * Owner:   features own all arrays. Threads: they do not change after they were read; `devices` change when an instance
 *          opens. */
#ifndef PROA_BACKENDS_TRANSFORM_TEXT_INSIDE_H
#define PROA_BACKENDS_TRANSFORM_TEXT_INSIDE_H

#include "backends/transform/text.h"
#include "base/map.h"
#include "kernels/text_rows.h"

/* A file of n-grams, one per line; a lexicon has tab-separated weights after each. */
typedef struct proa_ngram_file {
    proa_buf text; /* holds the keys */
    proa_map lines;
    proa_str *keys; /* [lines] */
    int64_t keys_cap;
    int32_t words_max;
    int64_t columns; /* weights of each line */
    double *weights; /* [lines][columns] */
} proa_ngram_file;

typedef struct proa_text_device proa_text_device;

struct proa_text_features {
    int32_t *counts; /* PROA_TEXT_COUNT_... */
    int32_t counts_count;
    bool distinct;          /* a count asks for it */
    proa_ngram_file *lists; /* [lists_count]: one feature each */
    int32_t lists_count;
    proa_ngram_file vocabulary, lexicon;
    proa_text_stat stats[PROA_TEXT_STATS];
    int32_t stats_count;
    int64_t buckets, hashed_words; /* hashed n-grams of 1 to this many words; 0: none */
    proa_text_value value;
    int64_t columns, lists_at, vocabulary_at, lexicon_at, buckets_at; /* where each begins */
    int32_t words_max;
    proa_text_device *devices[PROA_GPUS_MAX]; /* the features' plan on each GPU that an instance has */
};

/* text_gpu.c: for the table of operations. */
proa_status proa_text_launch(const proa_transform_step *step, const proa_transform_value *args,
                             const proa_transform_value *out, proa_gpu_stream *stream,
                             proa_transform_held *held, proa_err *err);
proa_status proa_text_prepare(const proa_transform_step *step, proa_gpu_stream *stream, proa_err *err);
void proa_text_device_free(proa_text_device *d); /* NULL is fine */

#endif
