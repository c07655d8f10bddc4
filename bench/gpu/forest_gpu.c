/* SPDX-License-Identifier: Apache-2.0
 * forest_gpu.c - a forest of 500 trees of depth 8 on a GPU and on some cores, without a server: best of many calls.
 * Predictions must have the same bits.
 *
 *     bench-forest-gpu [GPU] [SECONDS]
 *
 * Columns: rows; the CPU with 2 and with 16 threads; the kernels alone; with the copies of rows and scores. */
#include "../../tests/unit/forest/grow.h"
#include "backends/fil/device.h"
#include "base/checked.h"
#include "base/clock.h"
#include "forest/packed.h"
#include <stdlib.h>

static void stop(const proa_err *err)
{
    fprintf(stderr, "bench-forest-gpu: %s\n", err->text);
    exit(1);
}

static double cpu_us(const proa_packed *p, const float *x, int64_t rows, float *out, int threads, double seconds)
{
    proa_pool *pool = proa_pool_new(threads);
    int64_t best = INT64_MAX, end = proa_clock_ns() + (int64_t)(seconds * 1e9);
    while (proa_clock_ns() < end) {
        int64_t start = proa_clock_ns();
        proa_packed_predict(p, x, rows, false, out, pool);
        best = proa_min64(best, proa_clock_ns() - start);
    }
    proa_pool_free(pool);
    return (double)best / 1e3;
}

/* Passes of one after the other, per pass: 20 that are waited for together. */
static double kernels_us(const proa_fil_device *d, proa_gpu_stream *s, const proa_tensor *in, int64_t rows,
                         double seconds)
{
    enum { PASSES = 20 };
    proa_fil_pass pass[PASSES];
    proa_err err = {.status = PROA_OK};
    int64_t best = INT64_MAX, end = proa_clock_ns() + (int64_t)(seconds * 1e9);
    while (proa_clock_ns() < end) {
        int64_t start = proa_clock_ns();
        for (int i = 0; i < PASSES; i++)
            if (proa_fil_device_run(d, s, in, rows, &pass[i], &err) != PROA_OK) stop(&err);
        if (proa_gpu_stream_wait(s, &err) != PROA_OK) stop(&err);
        best = proa_min64(best, (proa_clock_ns() - start) / PASSES);
        for (int i = 0; i < PASSES; i++) proa_fil_pass_release(&pass[i]);
    }
    return (double)best / 1e3;
}

static double copied_us(const proa_fil_device *d, proa_gpu_stream *s, const proa_tensor *in, int64_t rows,
                        float *out, double seconds)
{
    proa_err err = {.status = PROA_OK};
    int64_t best = INT64_MAX, end = proa_clock_ns() + (int64_t)(seconds * 1e9);
    while (proa_clock_ns() < end) {
        proa_fil_pass pass;
        int64_t start = proa_clock_ns();
        if (proa_fil_device_run(d, s, in, rows, &pass, &err) != PROA_OK) stop(&err);
        s->device->download(s->device, out, pass.out->data, rows * 4);
        if (proa_gpu_stream_wait(s, &err) != PROA_OK) stop(&err);
        best = proa_min64(best, proa_clock_ns() - start);
        proa_fil_pass_release(&pass);
    }
    return (double)best / 1e3;
}

static void measure(const proa_packed *p, const proa_fil_device *d, proa_gpu_stream *s, const float *x,
                    int64_t rows, int32_t features, double seconds)
{
    proa_err err = {.status = PROA_OK};
    float *want = proa_calloc((size_t)rows, sizeof *want), *have = proa_calloc((size_t)rows, sizeof *have);
    proa_tensor host = {.type = PROA_TYPE_FP32, .data = (const char *)x, .bytes = (size_t)(rows * features) * 4};
    proa_tensor there = host;
    if (proa_gpu_upload(s, &there.buffer, x, host.bytes, &err) != PROA_OK) stop(&err);
    there.data = there.buffer->data;
    double two = cpu_us(p, x, rows, want, 2, seconds), many = cpu_us(p, x, rows, want, 16, seconds);
    double kernels = kernels_us(d, s, &there, rows, seconds),
           copied = copied_us(d, s, &host, rows, have, seconds);
    printf("%6lld rows: 2 threads %9.1f us, 16 threads %9.1f us, kernels %8.1f us, with copies %8.1f us; "
           "%5.1f and %5.1f "
           "times 2 threads; %s\n",
           (long long)rows, two, many, kernels, copied, two / kernels, two / copied,
           memcmp(want, have, (size_t)rows * 4) == 0 ? "same bits" : "DIFFERENT");
    fflush(stdout);
    proa_tensor_release(&there);
    free(want), free(have);
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 32, 512, 4000, 4096, 4224, 16384};
    const grow g = {.family = PROA_FOREST_OF_XGBOOST,
                    .transform = PROA_FOREST_SIGMOID,
                    .features = 64,
                    .targets = 1,
                    .classes = 1,
                    .leaf_size = 1,
                    .trees = 500,
                    .depth = 8,
                    .seed = 7};
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.2;
    proa_err err = {.status = PROA_OK};
    proa_gpu_stream s;
    proa_fil_device *d;
    proa_packed *p;
    proa_forest *f = grow_forest(&g);
    float *x = grow_rows(&g, rows[PROA_COUNT(rows) - 1]);
    if (proa_packed_new(&p, f, &err) != PROA_OK) stop(&err);
    if (proa_gpu_stream_open(&s, argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0, &err) != PROA_OK) stop(&err);
    if (proa_fil_device_new(&d, &s, f, PROA_FIL_SCORES, 0.5f, &err) != PROA_OK) stop(&err);
    printf("%s, 500 trees of depth 8, 64 features\n", s.device->name);
    for (size_t i = 0; i < PROA_COUNT(rows); i++) measure(p, d, &s, x, rows[i], g.features, seconds);
    proa_fil_device_free(d);
    proa_gpu_stream_close(&s);
    proa_packed_free(p);
    proa_forest_free(f);
    free(x);
    return 0;
}
