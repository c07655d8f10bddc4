/* SPDX-License-Identifier: Apache-2.0
 * check_forest.h - what must hold of any bytes that a forest's reader takes: it refuses them with a message, or gives
 * a forest that keeps what forest.h says and that can be walked. */
#ifndef PROA_TESTS_CHECK_FOREST_H
#define PROA_TESTS_CHECK_FOREST_H

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "forest/forest.h"

/* Rows of what is odd: each feature the same. */
static inline void walk_forest(const proa_forest *f)
{
    static const float ODD[] = {0.0f, -0.5f, 1.0f, 33.0f, 3e38f, -1e-36f};
    float *row = proa_malloc(sizeof(float) * (size_t)f->features);
    float *out = proa_malloc(sizeof(float) * (size_t)f->outputs);
    for (size_t k = 0; k <= PROA_COUNT(ODD); k++) {
        for (int32_t i = 0; i < f->features; i++) row[i] = k < PROA_COUNT(ODD) ? ODD[k] : NAN;
        proa_forest_predict_plain(f, row, 1, k % 2 == 0, out);
    }
    free(row);
    free(out);
}

static inline void check_forest(const uint8_t *data, size_t size, proa_forest_format format)
{
    proa_forest *f = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_forest_parse(&f, (proa_str){(const char *)data, size}, format, "fuzz", &err);
    PROA_ASSERT((status == PROA_OK) == (f != NULL) && status == err.status);
    if (!f) {
        PROA_ASSERT(strncmp(err.text, "fuzz: ", 6) == 0 && strlen(err.text) > 6 && !strchr(err.text, '\n'));
        return;
    }
    PROA_ASSERT(f->format == format && proa_forest_check(f, NULL) == PROA_OK);
    if ((int64_t)f->features < (1 << 16)) walk_forest(f);
    proa_forest_free(f);
}

#endif
