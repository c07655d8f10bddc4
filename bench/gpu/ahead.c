/* SPDX-License-Identifier: Apache-2.0
 * ahead.c - do passes of an encoder that are launched ahead give what passes one by one give? BERT-large with random weights, steps of
 * 24,576 rows, inputs of many lengths: every row and every pooled vector to the bit. Built by `ninja bench-gpu-ahead`.
 *
 *     bench-gpu-ahead [inputs]      exit 1 if any differs */
#include "base/alloc.h"
#include "proa/proa.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24576, LONGEST = 512 };

/* What one input was given, as 64 bits of it all. */
typedef struct given {
    uint64_t hash;
    int64_t rows;
    bool done;
} given;

static uint64_t mix(uint64_t hash, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        hash = (hash ^ bits) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

static void on_event(const proa_event *e)
{
    given *g = e->arg;
    if (e->kind == PROA_EVENT_ROWS && e->rows) g->hash = mix(g->hash, e->rows, e->rows_count * e->columns);
    if (e->kind == PROA_EVENT_ROWS && e->pooled) g->hash = mix(g->hash, e->pooled, e->columns);
    if (e->kind == PROA_EVENT_ROWS) g->rows += e->rows_count;
    if (e->kind == PROA_EVENT_DONE) g->done = e->finish == PROA_FINISH_END;
}

static bool submit(proa_engine *engine, int i, given *to, proa_err *err)
{
    int32_t ids[LONGEST];
    int64_t n = LONGEST - i * 37 % 300;
    for (int64_t k = 0; k < n; k++) ids[k] = 100 + (int32_t)((i * 7919 + k * 104729) % 29000);
    proa_request r = {
        .attention_task = PROA_TASK_ROWS, .ids = ids, .ids_count = n, .on_event = on_event, .arg = to};
    return proa_engine_submit(engine, &r, NULL, err) == PROA_OK;
}

static given *run(const char *ahead, int inputs)
{
    given *all = proa_calloc((size_t)inputs, sizeof *all);
    proa_engine_options o = {.device = "cuda",
                             .dtype = "f16",
                             .step_tokens = ROWS,
                             .sequences_max = 256,
                             .kv_tokens = 2 * ROWS + 256 * 64};
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    setenv("PROA_AHEAD", ahead, 1);
    bool ok = proa_engine_open(&engine, "synthetic:bert-large", &o, &err) == PROA_OK;
    for (int i = 0; ok && i < inputs; i++) ok = submit(engine, i, &all[i], &err);
    if (ok) proa_engine_run(engine);
    proa_engine_close(engine);
    if (ok) return all;
    fprintf(stderr, "%s\n", err.text);
    exit(2);
}

int main(int argc, char **argv)
{
    int inputs = argc > 1 ? atoi(argv[1]) : 600, wrong = 0;
    given *right = run("0", inputs), *mine = run("1", inputs);
    for (int i = 0; i < inputs; i++) {
        bool same = mine[i].done && right[i].done && mine[i].hash == right[i].hash &&
                    mine[i].rows == right[i].rows;
        if (!same && wrong++ < 5) printf("input %d differs\n", i);
    }
    printf("%d inputs, passes launched ahead against one by one: %d differ\n", inputs, wrong);
    free(right);
    free(mine);
    return wrong ? 1 : 0;
}
