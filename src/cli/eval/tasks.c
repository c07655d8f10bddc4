/* SPDX-License-Identifier: Apache-2.0
 * tasks.c - BLEU of translations and accuracy of classifiers. */
#include "base/limits.h"
#include "cli/eval/bleu.h"
#include "cli/eval/cmd_eval.h"
#include "cli/lines.h"
#include "cli/result.h"
#include <errno.h>
#include <string.h>

enum { WINDOW = 1024 };

/* A test set that is processed line by line: common to translation and classification. */
typedef struct task {
    proa_session *session;
    const proa_eval *eval;
    proa_line_list lines, targets; /* targets: of a translation */
    int64_t count, finished, correct;
    int64_t cut;     /* translations that reached the limit */
    proa_buf prompt; /* prefix and line */
    proa_bleu bleu;
    proa_output output; /* --output */
    bool has_output;
    proa_err err; /* error of the first line that failed, which ends the evaluation */
    proa_progress progress;
} task;

static void show_progress(void *arg)
{
    task *t = arg;
    if (!proa_progress_due(&t->progress)) return;
    proa_stats stats;
    proa_engine_stats(t->session->engine, &stats);
    double seconds = proa_progress_seconds(&t->progress);
    proa_progress_show(&t->progress, (double)t->finished / (double)t->count,
                       "%lld of %lld lines, %.1f lines/s, %.0f tokens/s", (long long)t->finished,
                       (long long)t->count, (double)t->finished / seconds,
                       (double)(stats.new_tokens + stats.prompt_tokens) / seconds);
}

static proa_status task_open(task *t, proa_session *s, const proa_eval *e, const char *lines, proa_err *err)
{
    *t = (task){.session = s, .eval = e};
    proa_bleu_init(&t->bleu);
    proa_buf_init(&t->prompt, (size_t)PROA_TEXT_BYTES_MAX);
    if (!s->info.has_tokenizer) return PROA_FAIL(err, UNSUPPORTED, "'%s' has no tokenizer", e->common.model);
    PROA_TRY(proa_line_list_read(&t->lines, lines, err));
    t->count = e->limit && e->limit < t->lines.count ? e->limit : t->lines.count;
    if (t->count == 0) return PROA_FAIL(err, INVALID, "'%s' is empty", lines);
    if (e->output) {
        PROA_TRY(proa_output_open(&t->output, e->output, err));
        t->has_output = true;
    }
    return PROA_OK;
}

static proa_status task_close(task *t, proa_err *err)
{
    proa_bleu_release(&t->bleu);
    proa_buf_release(&t->prompt);
    proa_line_list_release(&t->lines);
    proa_line_list_release(&t->targets);
    return t->has_output ? proa_output_close(&t->output, err) : PROA_OK;
}

static proa_status task_run(task *t, bool (*next)(void *, int64_t, proa_request *, proa_err *),
                            bool (*done)(void *, int64_t, proa_result *), proa_err *err)
{
    proa_progress_init(&t->progress);
    proa_request_queue queue = {
        .engine = t->session->engine, .window = WINDOW, .arg = t, .next = next, .done = done, .idle = show_progress};
    proa_status status = proa_request_queue_run(&queue, err);
    proa_progress_clear(&t->progress);
    if (status == PROA_OK && t->err.status != PROA_OK) *err = t->err, status = t->err.status;
    return status;
}

/* true if the line succeeded; else its error, with the place, is stored. */
static bool line_is_ok(task *t, const char *path, int64_t index, const proa_result *r)
{
    if (proa_result_status(r, &t->err) == PROA_OK) return true;
    proa_err_prefix(&t->err, "%s:%lld", path, (long long)index + 1);
    return false;
}

static bool next_sentence(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    task *t = arg;
    const proa_eval *e = t->eval;
    if (index >= t->count) return false;
    proa_buf_clear(&t->prompt);
    proa_buf_str(&t->prompt, proa_str_c(e->prefix));
    if (!proa_buf_str(&t->prompt, t->lines.line[index]))
        PROA_FAIL(item_err, LIMIT, "the line is longer than %lld bytes", (long long)PROA_TEXT_BYTES_MAX);
    proa_request_set_text(request, proa_buf_view(&t->prompt));
    request->options = (proa_options){.given = {[PROA_OPTION_length_penalty] = true},
                                      .max_tokens = (int32_t)e->max_tokens,
                                      .beams = (int32_t)e->beams,
                                      .beams_returned = 1,
                                      .length_penalty = (float)e->length_penalty};
    if (strcmp(e->early, "true") == 0) request->options.early_stopping = PROA_EARLY_TRUE;
    if (strcmp(e->early, "never") == 0) request->options.early_stopping = PROA_EARLY_NEVER;
    return true;
}

static bool sentence_done(void *arg, int64_t index, proa_result *r)
{
    task *t = arg;
    if (!line_is_ok(t, t->eval->source, index, r)) return false;
    t->cut += r->finish == PROA_FINISH_LENGTH;
    proa_bleu_add(&t->bleu, proa_buf_view(&r->text), t->targets.line[index]);
    if (t->has_output) {
        proa_output_escaped(&t->output, proa_buf_view(&r->text));
        proa_output_str(&t->output, "\n");
    }
    t->finished++;
    return !t->output.error;
}

static void print_bleu(const task *t, proa_output *out)
{
    proa_bleu_result b = proa_bleu_score(&t->bleu);
    proa_stats stats;
    proa_engine_stats(t->session->engine, &stats);
    double seconds = proa_progress_seconds(&t->progress);
    double lines_rate = (double)t->count / seconds, tokens_rate = (double)stats.new_tokens / seconds;
    const char *more = t->eval->common.json ? "," : "/";
    if (t->eval->common.json) {
        proa_output_printf(out, "{\"bleu\":%.12g,\"precisions\":[", b.score);
        for (int n = 0; n < PROA_BLEU_ORDERS; n++)
            proa_output_printf(out, "%s%.12g", n ? more : "", b.precisions[n]);
        proa_output_printf(out,
                           "],\"brevity_penalty\":%.12g,\"hypothesis_tokens\":%lld,\"reference_tokens\":%lld",
                           b.brevity, (long long)t->bleu.hyp_tokens, (long long)t->bleu.ref_tokens);
        proa_output_printf(out,
                           ",\"lines\":%lld,\"cut\":%lld,\"beams\":%lld,"
                           "\"seconds\":%.3f,\"lines_per_s\":%.2f,\"tokens_per_s\":%.1f}\n",
                           (long long)t->count, (long long)t->cut, (long long)t->eval->beams, seconds,
                           lines_rate, tokens_rate);
        return;
    }
    proa_output_printf(out, "BLEU        %.2f  ", b.score);
    for (int n = 0; n < PROA_BLEU_ORDERS; n++)
        proa_output_printf(out, "%s%.1f", n ? more : "", b.precisions[n]);
    proa_output_printf(out, "  (brevity penalty %.3f; %lld tokens, reference %lld)\n", b.brevity,
                       (long long)t->bleu.hyp_tokens, (long long)t->bleu.ref_tokens);
    proa_output_printf(out, "lines       %lld with %lld beam%s; %lld cut for their length\n", (long long)t->count,
                       (long long)t->eval->beams, t->eval->beams == 1 ? "" : "s", (long long)t->cut);
    proa_output_printf(out, "speed       %.1f lines/s, %.0f tokens/s (%.1f s)\n", lines_rate, tokens_rate,
                       seconds);
}

static proa_status translate_task(task *t, proa_output *out, proa_err *err)
{
    const proa_eval *e = t->eval;
    PROA_TRY(proa_line_list_read(&t->targets, e->target, err));
    if (t->targets.count != t->lines.count)
        return PROA_FAIL(err, INVALID, "'%s' has %lld lines and '%s' %lld", e->source,
                         (long long)t->lines.count, e->target, (long long)t->targets.count);
    PROA_TRY(task_run(t, next_sentence, sentence_done, err));
    if (!t->output.error) print_bleu(t, out);
    return PROA_OK;
}

/* The final status: that of the work, unless writing the output failed. */
static proa_status task_end(task *t, proa_status status, proa_err *work_err, proa_err *err)
{
    proa_status closed = task_close(t, err);
    if (closed != PROA_OK) return closed;
    if (status != PROA_OK && err) *err = *work_err;
    return status;
}

proa_status proa_eval_translate(proa_session *s, const proa_eval *e, proa_output *out, proa_err *err)
{
    if (s->info.kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "'%s' (%s) does not generate text", e->common.model, s->info.arch);
    task t;
    proa_err work_err = {0};
    proa_status status = task_open(&t, s, e, e->source, &work_err);
    if (status == PROA_OK) status = translate_task(&t, out, &work_err);
    return task_end(&t, status, &work_err, err);
}

/* Column 1 and the last column of a tab-separated line. */
static proa_status split_row(proa_str line, int64_t *label, proa_str *text, proa_err *err)
{
    const char *tab = memchr(line.ptr, '\t', line.len), *last = memrchr(line.ptr, '\t', line.len);
    if (!tab) return PROA_FAIL(err, INVALID, "a line is a label, a tab and a text");
    char number[24];
    size_t len = (size_t)(tab - line.ptr);
    snprintf(number, sizeof number, "%.*s", (int)(len < 23 ? len : 23), line.ptr);
    char *end;
    *label = strtoll(number, &end, 10);
    if (end == number || *end) return PROA_FAIL(err, INVALID, "label '%s' is not a whole number", number);
    *text = (proa_str){last + 1, line.len - (size_t)(last + 1 - line.ptr)};
    return PROA_OK;
}

static bool next_row(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    task *t = arg;
    int64_t label;
    proa_str text;
    if (index >= t->count) return false;
    request->task = PROA_TASK_ROWS;
    if (split_row(t->lines.line[index], &label, &text, item_err) != PROA_OK)
        return true;            /* its result carries it */
    proa_buf_clear(&t->prompt); /* copied, because it must end with a NUL */
    proa_buf_str(&t->prompt, text);
    proa_request_set_text(request, proa_buf_view(&t->prompt));
    return true;
}

static int64_t predicted_label(const proa_eval *e, const float *row, int64_t columns)
{
    if (columns == 1) return (double)row[0] > e->threshold;
    int64_t best = 0;
    for (int64_t c = 1; c < columns; c++)
        if (row[c] > row[best]) best = c;
    return best;
}

static bool row_done(void *arg, int64_t index, proa_result *r)
{
    task *t = arg;
    int64_t label = -1;
    proa_str text;
    if (!line_is_ok(t, t->eval->labels, index, r)) return false;
    if (split_row(t->lines.line[index], &label, &text, &t->err) != PROA_OK) return false;
    t->correct += predicted_label(t->eval, r->rows, r->columns) == label;
    for (int64_t c = 0; t->has_output && c < r->columns; c++)
        proa_output_printf(&t->output, "%.9g%s", (double)r->rows[c], c + 1 < r->columns ? "\t" : "\n");
    t->finished++;
    return !t->output.error;
}

static proa_status classify_task(task *t, proa_output *out, proa_err *err)
{
    PROA_TRY(task_run(t, next_row, row_done, err));
    if (t->output.error) return PROA_OK; /* reported when it is closed */
    double seconds = proa_progress_seconds(&t->progress), accuracy = (double)t->correct / (double)t->count;
    double rate = (double)t->count / seconds;
    if (t->eval->common.json)
        proa_output_printf(
            out, "{\"accuracy\":%.9g,\"correct\":%lld,\"lines\":%lld,\"seconds\":%.3f,\"lines_per_s\":%.2f}\n",
            accuracy, (long long)t->correct, (long long)t->count, seconds, rate);
    else
        proa_output_printf(out, "accuracy    %.2f %%  (%lld of %lld)\nspeed       %.1f lines/s (%.1f s)\n",
                           accuracy * 100, (long long)t->correct, (long long)t->count, rate, seconds);
    return PROA_OK;
}

proa_status proa_eval_labels(proa_session *s, const proa_eval *e, proa_output *out, proa_err *err)
{
    const proa_info *i = &s->info;
    if (i->kind != PROA_KIND_ENCODER || i->outputs == i->hidden || i->outputs == i->vocab)
        return PROA_FAIL(err, UNSUPPORTED,
                         "--labels needs an encoder with a classification or regression head; '%s' is "
                         "%s with %d outputs",
                         e->common.model, i->arch, i->outputs);
    task t;
    proa_err work_err = {0};
    proa_status status = task_open(&t, s, e, e->labels, &work_err);
    if (status == PROA_OK) status = classify_task(&t, out, &work_err);
    return task_end(&t, status, &work_err, err);
}
