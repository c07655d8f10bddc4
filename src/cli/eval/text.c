/* SPDX-License-Identifier: Apache-2.0
 * text.c - perplexity of a text in overlapping windows. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "cli/eval/cmd_eval.h"
#include "cli/lines.h"
#include "cli/result.h"
#include <math.h>
#include <string.h>

/* Windows in flight: enough to fill a step, and few enough to limit the memory of their rows. */
enum { WINDOW = 8 };

/* One window in flight: its tokens and the sum over its rows. */
typedef struct nll_sink {
    const int32_t *ids;
    int64_t count;
    double sum, *each; /* each: [count - 1] or NULL */
} nll_sink;

/* Row p predicts token p + 1; the last row predicts no known token. */
static void sum_rows(nll_sink *sink, const proa_event *e)
{
    for (int64_t i = 0; i < e->rows_count; i++) {
        int64_t at = e->rows_first + i + 1;
        if (at >= sink->count) return;
        double nll = -proa_row_logprob(e->rows + i * e->columns, e->columns, sink->ids[at]);
        sink->sum += nll;
        if (sink->each) sink->each[at - 1] = nll;
    }
}

static void rows_of_one(proa_result *r, const proa_event *e)
{
    sum_rows(r->arg, e);
}

proa_status proa_sequence_nll(proa_engine *engine, const int32_t *ids, int64_t count, double *sum,
                              double *nll, proa_err *err)
{
    nll_sink sink = {.ids = ids, .count = count, .each = nll};
    proa_result r;
    proa_result_init(&r);
    r.arg = &sink;
    r.on_rows = rows_of_one;
    proa_request request = {.task = PROA_TASK_ROWS, .ids = ids, .ids_count = count};
    proa_status status = proa_result_run(engine, &request, &r, err);
    proa_result_release(&r);
    *sum = sink.sum;
    return status;
}

/* Splits the text's tokens into windows of `window`. Each begins with the model's begin token, if it has
 * one, otherwise with the last token of the previous window, so that every token is predicted once (except
 * the first, if there is no begin token). */
typedef struct text_eval {
    proa_engine *engine;
    const int32_t *ids; /* of the whole text, without the begin token */
    int64_t count, step, windows;
    int32_t bos;         /* -1: none */
    int32_t *window_ids; /* [WINDOW][step + 1] */
    nll_sink sink[WINDOW];
    int64_t tokens, finished;
    double nll;
    proa_err err;
    proa_progress progress;
} text_eval;

static bool next_window(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    text_eval *t = arg;
    PROA_UNUSED(item_err);
    if (index >= t->windows) return false;
    int32_t *ids = t->window_ids + (index % WINDOW) * (t->step + 1);
    int64_t from = index * t->step + (t->bos < 0), n = 0;
    ids[n++] = t->bos >= 0 ? t->bos : t->ids[from - 1];
    int64_t take = proa_min64(t->step, t->count - from);
    memcpy(ids + n, t->ids + from, (size_t)take * sizeof *ids);
    t->sink[index % WINDOW] = (nll_sink){.ids = ids, .count = n + take};
    request->task = PROA_TASK_ROWS;
    request->ids = ids;
    request->ids_count = n + take;
    return true;
}

static void rows_of_window(proa_result *r, const proa_event *e)
{
    text_eval *t = r->arg;
    sum_rows(&t->sink[r->index % WINDOW], e);
}

static bool window_done(void *arg, int64_t index, proa_result *r)
{
    text_eval *t = arg;
    const nll_sink *sink = &t->sink[index % WINDOW];
    if (proa_result_status(r, &t->err) != PROA_OK) return false;
    t->nll += sink->sum;
    t->tokens += sink->count - 1;
    t->finished++;
    return true;
}

static void show_progress(void *arg)
{
    text_eval *t = arg;
    if (!proa_progress_due(&t->progress)) return;
    proa_progress_show(&t->progress, (double)t->finished / (double)t->windows,
                       "%lld of %lld windows, %.0f tokens/s", (long long)t->finished, (long long)t->windows,
                       (double)t->tokens / proa_progress_seconds(&t->progress));
}

static void print_text_eval(const text_eval *t, bool json, proa_output *out)
{
    double seconds = proa_progress_seconds(&t->progress), mean = t->nll / (double)t->tokens;
    if (json) {
        proa_output_printf(out,
                           "{\"tokens\":%lld,\"windows\":%lld,\"window\":%lld,\"nll\":", (long long)t->tokens,
                           (long long)t->windows, (long long)t->step + 1);
        proa_output_json_num(out, mean);
        proa_output_str(out, ",\"perplexity\":");
        proa_output_json_num(out, exp(mean));
        proa_output_printf(out, ",\"seconds\":%.3f,\"tokens_per_s\":%.1f}\n", seconds,
                           (double)t->tokens / seconds);
        return;
    }
    proa_output_printf(out, "perplexity  %.3f\n", exp(mean));
    proa_output_printf(out, "mean NLL    %.5f over %lld tokens in %lld windows of %lld\n", mean,
                       (long long)t->tokens, (long long)t->windows, (long long)t->step + 1);
    proa_output_printf(out, "speed       %.0f tokens/s (%.1f s)\n", (double)t->tokens / seconds, seconds);
}

static proa_status run_windows(text_eval *t, proa_err *err)
{
    t->window_ids = proa_malloc((size_t)(WINDOW * (t->step + 1)) * sizeof *t->window_ids);
    proa_progress_init(&t->progress);
    proa_request_queue queue = {.engine = t->engine,
                                .window = WINDOW,
                                .arg = t,
                                .next = next_window,
                                .done = window_done,
                                .on_rows = rows_of_window,
                                .idle = show_progress};
    proa_status status = proa_request_queue_run(&queue, err);
    proa_progress_clear(&t->progress);
    free(t->window_ids);
    if (status == PROA_OK && t->err.status != PROA_OK) *err = t->err, status = t->err.status;
    return status;
}

static proa_status window_size(const proa_session *s, const proa_eval *e, int64_t *step, proa_err *err)
{
    int64_t window = e->window ? e->window : s->info.context;
    if (window > s->info.context)
        return PROA_FAIL(err, INVALID, "--window %lld is more than the model's context of %d tokens",
                         (long long)window, s->info.context);
    if (window < 2)
        return PROA_FAIL(err, INVALID, "--window %lld: a window has at least 2 tokens", (long long)window);
    *step = window - 1;
    return PROA_OK;
}

static proa_status eval_ids(proa_session *s, const proa_eval *e, const int32_t *ids, int64_t count,
                            proa_output *out, proa_err *err)
{
    text_eval t = {.engine = s->engine, .ids = ids, .count = count, .bos = -1};
    PROA_TRY(window_size(s, e, &t.step, err));
    /* the tokenizer's own begin and end tokens belong to the windows, not to the text */
    if (t.count && s->info.bos_id >= 0 && ids[0] == s->info.bos_id) t.bos = ids[0], t.ids++, t.count--;
    if (t.count && t.ids[t.count - 1] == s->info.eos_id) t.count--;
    if (t.count < 2)
        return PROA_FAIL(err, INVALID, "'%s' has %lld tokens, too few to predict one from another", e->data,
                         (long long)t.count);
    t.windows = proa_ceil_div(t.count - (t.bos < 0), t.step);
    if (e->limit) t.windows = proa_min64(t.windows, e->limit);
    PROA_TRY(run_windows(&t, err));
    print_text_eval(&t, e->common.json, out);
    return PROA_OK;
}

proa_status proa_eval_text(proa_session *s, const proa_eval *e, proa_output *out, proa_err *err)
{
    if (s->info.kind != PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "--data measures perplexity, which '%s' (%s) does not have",
                         e->common.model, s->info.arch);
    proa_buf text;
    int32_t *ids = NULL;
    int64_t count = 0;
    proa_status status = proa_text_read(&text, e->data, PROA_TEXT_BYTES_MAX, err);
    if (status == PROA_OK) status = proa_encode_text(s->engine, proa_buf_view(&text), &ids, &count, err);
    if (status == PROA_OK) status = eval_ids(s, e, ids, count, out, err);
    free(ids);
    proa_buf_release(&text);
    return status;
}
