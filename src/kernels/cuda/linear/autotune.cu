/* SPDX-License-Identifier: Apache-2.0
 * autotune.cu - cuBLASLt's algorithms timed on this card. The library's best guesses run on the operands of
 * the product, with the caches emptied between them. The fastest is kept for its bucket of rows, in the
 * plug-in and in a file (tune.h).
 *
 *   PROA_TUNE=off   always the library's first guess
 *   PROA_TUNE=lazy  the default: a product is timed when it first comes, LAZY_SECONDS in all
 *   PROA_TUNE=all   every product, more algorithms, no limit of time: `proa tune`
 *   PROA_TUNE=own   nothing is timed; Proa's kernels wherever they can run (gemm_wgmma.cu before gemm_split_k.cu), for tests
 *
 * Split-K products (gemm_split_k.cu) are not timed: their gain is what they do while the kernel before still
 * runs. */
#include "kernels/cuda/linear/tuned.h"

extern "C" {
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "kernels/plugin.h"
}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAZY_GUESSES = 16, ALL_GUESSES = 32, RUNS = 4 };
static const double LAZY_SECONDS = 1.0, WRITE_SECONDS = 5.0;
static const size_t SWEEP_BYTES = (size_t)192 << 20; /* more than any L2 holds */

struct gpu_tuning {
    proa_tune known;
    char path[PROA_PATH_MAX]; /* "": nothing is kept */
    bool off, all, changed;
    double spent; /* seconds of timing */
    int64_t written_ns;
};

/* ---- the file ---- */

static void driver_version(char *out, size_t size)
{
    int number = 0;
    cudaDriverGetVersion(&number);
    int n = snprintf(out, size, "%d", number);
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    if (!file) return;
    if (fgets(out + n + 1, (int)size - n - 1, file)) out[n] = ' ';
    fclose(file);
}

static void read_file(gpu_tuning *t, const char *name)
{
    proa_err err = {};
    t->path[0] = 0;
    if (proa_tune_path(t->path, &t->known, name, &err) != PROA_OK) {
        t->path[0] = 0; /* no home: what is timed serves this process alone */
        return;
    }
    proa_status status = proa_tune_read(&t->known, t->path, &err);
    if (status != PROA_OK && status != PROA_NOT_FOUND)
        fprintf(stderr, "proa: warning: %s: the file of timed products is ignored\n", err.text);
}

void gpu_tune_open(gpu *g, const char *capability)
{
    const char *mode = getenv("PROA_TUNE");
    char identity[PROA_TUNE_IDENTITY_MAX], driver[96];
    gpu_tuning *t = g->tuning = (gpu_tuning *)proa_calloc(1, sizeof *t);
    g->own_first = mode && strcmp(mode, "own") == 0;
    t->off = g->own_first || (mode && strcmp(mode, "off") == 0),
    g->hopper = g->hopper && (g->own_first || !t->off);
    t->all = mode && strcmp(mode, "all") == 0;
    if (mode && !t->off && !t->all && strcmp(mode, "lazy") != 0)
        fprintf(stderr, "proa: warning: PROA_TUNE is '%.32s', none of off, lazy, all, own: lazy is taken\n",
                mode);
    driver_version(driver, sizeof driver);
    snprintf(identity, sizeof identity, "%s; %s; driver %s; cublasLt %zu; plug-in %d; own products 4",
             g->name, capability, driver, cublasLtGetVersion(), PROA_CUDA_INTERFACE);
    proa_tune_init(&t->known, identity);
    if (!t->off) read_file(t, g->name);
    if (t->path[0]) g->base.tuning = t->path;
}

/* Entries that another process has written meanwhile are kept. If the file cannot be written, the next start
 * times again. */
static void write_file(gpu_tuning *t)
{
    proa_err err = {};
    if (!t->changed || !t->path[0]) return;
    proa_status status = proa_tune_read(&t->known, t->path, &err);
    err = {};
    status = proa_tune_write(&t->known, t->path, &err);
    if (status != PROA_OK) fprintf(stderr, "proa: warning: %s\n", err.text), t->path[0] = 0;
    t->changed = false;
    t->written_ns = proa_clock_ns();
}

void gpu_tune_close(gpu *g)
{
    if (!g->tuning) return;
    write_file(g->tuning);
    proa_tune_release(&g->tuning->known);
    free(g->tuning);
    g->tuning = NULL;
}

/* ---- timing ---- */

static void key_of(int64_t key[PROA_TUNE_KEYS], const gpu_product *p)
{
    /* clang-format off */
    const int64_t numbers[PROA_TUNE_KEYS] = {proa_tune_bucket(p->T), p->N, p->K, p->w_ld, p->x_ld, p->y_row,
                                             p->residual_row, (int64_t)p->w_type, (int64_t)p->x_type,
                                             (int64_t)p->y_type, (int64_t)p->epilogue,
                                             p->residual + 2 * p->scaled + 4 * p->act + 256 * p->sms};
    /* clang-format on */
    memcpy(key, numbers, sizeof numbers);
}

/* Without algorithms whose order of sums depends on which block ends first: the same request gives the same
 * tokens twice. */
static int take_guesses(gpu *g, const gpu_plan *p, cublasLtMatmulHeuristicResult_t *out, int most)
{
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    cublasLtMatmulPreference_t preference;
    int found = 0;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &g->workspace_bytes, sizeof g->workspace_bytes);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                         sizeof schemes);
    if (cublasLtMatmulAlgoGetHeuristic(g->lt, p->op, p->a, p->b, p->c, p->d, preference, most, out, &found) !=
        CUBLAS_STATUS_SUCCESS)
        found = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    return found;
}

struct stopwatch {
    cudaEvent_t begin, end;
    char *y, *sweep; /* results go to a buffer of their own: they might overwrite the residual */
};

static bool stopwatch_open(stopwatch *s, const gpu_product *p)
{
    size_t element = p->y_type == CUDA_R_32F ? 4 : 2;
    *s = {};
    return cudaEventCreate(&s->begin) == cudaSuccess && cudaEventCreate(&s->end) == cudaSuccess &&
           cudaMalloc((void **)&s->y, (size_t)p->T * (size_t)p->y_row * element) == cudaSuccess &&
           cudaMalloc((void **)&s->sweep, SWEEP_BYTES) == cudaSuccess;
}

static void stopwatch_close(stopwatch *s)
{
    if (s->begin) cudaEventDestroy(s->begin);
    if (s->end) cudaEventDestroy(s->end);
    cudaFree(s->y);
    cudaFree(s->sweep);
    cudaGetLastError(); /* whatever failed here was timing, not the product */
}

/* Microseconds: the least of some runs with empty caches. 0: the algorithm does not run. */
static float time_one(gpu *g, const gpu_plan *p, const gpu_gemm_choice *way, const gpu_operands *at,
                      const stopwatch *s)
{
    float least = 0;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        cudaMemsetAsync(s->sweep, i, SWEEP_BYTES, g->stream);
        cudaEventRecord(s->begin, g->stream);
        if (gpu_plan_run(g, p, way, at, s->y) != CUBLAS_STATUS_SUCCESS) return 0;
        cudaEventRecord(s->end, g->stream);
        if (cudaEventSynchronize(s->end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, s->begin, s->end) != cudaSuccess)
            return 0;
        if (i > 0 && (least == 0 || ms < least)) least = ms;
    }
    return least * 1e3f;
}

/* An algorithm is the library's eight words. A form of Proa's kernel is its number behind a mark that no
 * algorithm begins with. */
static const uint64_t OWN_MARK = 0x616f7270206e776full;

static void write_way(uint64_t words[PROA_TUNE_WORDS], const gpu_gemm_choice *way)
{
    static_assert(sizeof way->algo == PROA_TUNE_WORDS * sizeof words[0], "an algorithm is eight words");
    memcpy(words, &way->algo, sizeof way->algo);
    if (!way->own) return;
    memset(words, 0, sizeof way->algo);
    words[0] = OWN_MARK, words[1] = (uint64_t)way->own;
}

/* The way becomes the plan's if it is faster than the best one. */
static void try_way(gpu *g, gpu_plan *p, const gpu_gemm_choice *way, const gpu_operands *at,
                    const stopwatch *s, float *best)
{
    float us = time_one(g, p, way, at, s);
    if (us > 0 && us < *best * 0.99f) *best = us, p->way = *way; /* less is noise: the first guess stays */
}

/* An algorithm that divides K and adds the parts in a second kernel, with all of K in a block. For few rows and a long
 * K the library guesses only the former, though few blocks read weights as fast. False: it does not divide, or cannot
 * do without. */
static bool without_split(gpu *g, const gpu_plan *p, cublasLtMatmulAlgo_t *algo)
{
    int32_t parts = 0, one = 1;
    uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t bytes;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &bytes);
    if (parts <= 1) return false;
    cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &one, sizeof one);
    cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &none, sizeof none);
    return cublasLtMatmulAlgoCheck(g->lt, p->op, p->a, p->b, p->c, p->d, algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= g->workspace_bytes;
}

static void time_candidates(gpu *g, gpu_plan *p, const gpu_operands *at, const stopwatch *s, int64_t *key)
{
    gpu_tuning *t = g->tuning;
    cublasLtMatmulHeuristicResult_t result[ALL_GUESSES];
    int count = take_guesses(g, p, result, t->all ? ALL_GUESSES : LAZY_GUESSES);
    gpu_gemm_choice first_guess = {p->way.algo, 0};
    float first = time_one(g, p, &first_guess, at, s), best = first;
    if (first <= 0) return;
    p->way = first_guess;
    for (int i = -GPU_OWN_FORMS; i < count; i++) {
        if (i < 0 && !gpu_own_takes(g, &p->key, -i)) continue;
        gpu_gemm_choice way = i < 0 ? gpu_gemm_choice{first_guess.algo, -i} : gpu_gemm_choice{result[i].algo, 0};
        try_way(g, p, &way, at, s, &best);
        if (i >= 0 && without_split(g, p, &way.algo)) try_way(g, p, &way, at, s, &best);
    }
    proa_tune_entry entry = {};
    memcpy(entry.key, key, sizeof entry.key);
    write_way(entry.algorithm, &p->way);
    entry.us = best, entry.first_us = first;
    proa_tune_put(&t->known, &entry);
    t->changed = true;
}

/* An algorithm from the file is used only after the library has checked it against the product. */
static bool use_known(gpu *g, gpu_plan *p, const proa_tune_entry *e)
{
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulHeuristicResult_t result;
    if (e->algorithm[0] == OWN_MARK) {
        bool known = e->algorithm[1] <= GPU_OWN_FORMS && gpu_own_takes(g, &p->key, (int)e->algorithm[1]);
        if (known) p->way.own = (int)e->algorithm[1];
        return known;
    }
    memcpy(&algo, e->algorithm, sizeof algo);
    if (cublasLtMatmulAlgoCheck(g->lt, p->op, p->a, p->b, p->c, p->d, &algo, &result) != CUBLAS_STATUS_SUCCESS ||
        result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > g->workspace_bytes)
        return false;
    p->way = {algo, 0};
    return true;
}

void gpu_tune_plan(gpu *g, gpu_plan *p, const gpu_operands *at)
{
    gpu_tuning *t = g->tuning;
    int64_t key[PROA_TUNE_KEYS];
    p->settled = true;
    if (!t || t->off) return;
    key_of(key, &p->key);
    const proa_tune_entry *e = proa_tune_find(&t->known, key);
    if (e && (use_known(g, p, e) || e->key[0] != p->key.T)) return;
    if (g->is_recording || g->trace || (!t->all && t->spent > LAZY_SECONDS)) {
        p->settled = !g->is_recording; /* another time */
        return;
    }
    int64_t begin = proa_clock_ns();
    stopwatch s;
    if (stopwatch_open(&s, &p->key)) time_candidates(g, p, at, &s, key);
    stopwatch_close(&s);
    t->spent += (double)(proa_clock_ns() - begin) * 1e-9;
    if ((double)(proa_clock_ns() - t->written_ns) * 1e-9 > WRITE_SECONDS) write_file(t);
}

/* ---- what is no product ---- */

const proa_tune_entry *gpu_tune_known(gpu *g, const int64_t key[PROA_TUNE_KEYS])
{
    gpu_tuning *t = g->tuning;
    return t && !t->off ? proa_tune_find(&t->known, key) : NULL;
}

void gpu_tune_keep(gpu *g, const proa_tune_entry *entry)
{
    if (!g->tuning || g->tuning->off) return;
    proa_tune_put(&g->tuning->known, entry);
    g->tuning->changed = true;
}

bool gpu_tune_is_all(const gpu *g)
{
    return g->tuning && g->tuning->all;
}
