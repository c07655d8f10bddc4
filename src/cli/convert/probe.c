/* SPDX-License-Identifier: Apache-2.0
 * probe.c - one prompt through a model: logits and greedy tokens. */
#include "cli/convert/probe.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/access.h"

#include <math.h>
#include <string.h>

enum { PROMPT_TOKENS = 16 };

static void keep_row(proa_probe *p, const float *row, int64_t columns)
{
    int64_t numbers = (p->rows + 1) * columns;
    p->columns = columns;
    p->values = proa_realloc(p->values, (size_t)proa_max64(numbers, 1) * sizeof *p->values);
    memcpy(p->values + p->rows++ * columns, row, (size_t)columns * sizeof *row);
}

typedef struct probe_run {
    proa_probe *probe;
    int64_t vocab;
} probe_run;

static void on_event(const proa_event *e)
{
    const probe_run *run = e->arg;
    proa_probe *p = run->probe;
    if (e->kind == PROA_EVENT_TOKEN && e->logits && p->tokens < (int64_t)PROA_COUNT(p->ids)) {
        p->ids[p->tokens++] = e->id;
        keep_row(p, e->logits, run->vocab);
    }
    for (int64_t i = 0; e->kind == PROA_EVENT_ROWS && i < e->rows_count; i++)
        keep_row(p, e->rows + i * e->columns, e->columns);
    if (e->kind == PROA_EVENT_DONE && e->error) p->failed = true, p->error = *e->error;
}

static proa_status run_prompt(proa_engine *engine, proa_probe *p, proa_err *err)
{
    proa_info info;
    int32_t ids[PROMPT_TOKENS];
    proa_engine_info(engine, &info);
    int64_t count = proa_min64(PROMPT_TOKENS, proa_max64(info.context / 2, 1));
    int64_t room = info.kind == PROA_KIND_ENCODER_DECODER ? info.context - 1 : info.context - count;
    probe_run run = {p, info.vocab};
    for (int i = 0; i < PROMPT_TOKENS; i++) ids[i] = (int32_t)((i * 7919 + 17) % info.vocab);
    proa_engine_end_prompt(engine, ids, count);
    proa_request request = {.task = info.kind == PROA_KIND_ENCODER ? PROA_TASK_ROWS : PROA_TASK_GENERATE,
                            .ids = ids,
                            .ids_count = count,
                            .on_event = on_event,
                            .arg = &run};
    if (info.kind != PROA_KIND_ENCODER) {
        request.options = (proa_options){.ignore_eos = true, .return_logits = true};
        request.options.max_tokens = (int32_t)proa_min64((int64_t)PROA_COUNT(p->ids), proa_max64(room, 1));
        /* greedy, whatever the model's own options are */
        request.options.given[PROA_OPTION_temperature] = request.options.given[PROA_OPTION_beams] = true;
    }
    PROA_TRY(proa_engine_submit(engine, &request, NULL, err));
    proa_engine_run(engine);
    if (!p->failed) return PROA_OK;
    return PROA_FAIL(err, INTERNAL, "the probe failed: %s", p->error.text);
}

proa_status proa_probe_run(proa_probe *out, const char *model, const proa_engine_options *options, proa_err *err)
{
    proa_engine *engine;
    *out = (proa_probe){.values = NULL};
    PROA_TRY(proa_engine_open(&engine, model, options, err));
    proa_status status = run_prompt(engine, out, err);
    proa_engine_close(engine);
    return status;
}

proa_status proa_probe_compare(proa_probe_result *out, const proa_probe *source, const proa_probe *result,
                               proa_err *err)
{
    double most = 0, difference = 0;
    *out = (proa_probe_result){.tokens = source->tokens};
    if (source->columns != result->columns || source->rows != result->rows)
        return PROA_FAIL(err, INVALID, "the source gives %lld rows of %lld outputs, the result %lld of %lld",
                         (long long)source->rows, (long long)source->columns, (long long)result->rows,
                         (long long)result->columns);
    while (out->same < source->tokens && source->ids[out->same] == result->ids[out->same]) out->same++;
    int64_t rows = source->tokens ? proa_min64(out->same + 1, source->rows) : source->rows;
    for (int64_t i = 0; i < rows * source->columns; i++) {
        double a = (double)source->values[i], b = (double)result->values[i];
        bool equal = a == b || (isnan(a) && isnan(b));
        most = fmax(most, isfinite(a) ? fabs(a) : 0);
        if (!equal && !(fabs(a - b) <= difference)) difference = fabs(a - b);
        if (isnan(difference)) break;
    }
    out->difference = difference == 0 ? 0 : difference / most;
    return PROA_OK;
}

void proa_probe_release(proa_probe *p)
{
    free(p->values);
    p->values = NULL;
}
