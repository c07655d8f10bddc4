/* SPDX-License-Identifier: Apache-2.0 */
#include "base/limits.h"
#include "cli/cmd_run.h"
#include "cli/lines.h"
#include "cli/print.h"
#include <string.h>

/* Enough in flight that the engine never waits for a slow line at the head, and little enough to forget. */
enum { WINDOW = 1024 };

typedef struct file_run {
    proa_session *session;
    const proa_run *run;
    proa_out *out;
    proa_lines lines;
    proa_status read_status; /* the input itself failed: what came before it is still finished and written */
    proa_err read_err;
    int64_t finished, failed;
    proa_err first_err; /* of the first line that failed */
    proa_progress progress;
} file_run;

static bool next_line(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    file_run *f = arg;
    proa_str line;
    bool more = false;
    PROA_UNUSED(index);
    PROA_UNUSED(item_err);
    f->read_status = proa_lines_next(&f->lines, &line, &more, &f->read_err);
    if (f->read_status != PROA_OK || !more) return false;
    bool encoder = f->session->info.kind == PROA_KIND_ENCODER;
    request->task = encoder ? PROA_TASK_ROWS : PROA_TASK_GENERATE;
    request->options = proa_run_options(f->run);
    proa_request_set_text(request, line);
    return true;
}

static void write_error(file_run *f, int64_t index, const proa_err *err)
{
    if (f->failed++ == 0) {
        f->first_err = *err;
        proa_err_prefix(&f->first_err, "%s:%lld", f->lines.path, (long long)index + 1);
    }
    if (!f->run->common.json) return;
    proa_out_str(f->out, ",\"error\":");
    proa_out_json_str(f->out, proa_str_c(err->text));
}

static void write_rows(file_run *f, const proa_result *r)
{
    for (int64_t i = 0; i < r->rows_count * r->columns; i++) {
        if (i) proa_out_str(f->out, "\t");
        proa_out_printf(f->out, "%.9g", (double)r->rows[i]);
    }
}

static void write_result(file_run *f, const proa_result *r)
{
    bool encoder = f->session->info.kind == PROA_KIND_ENCODER;
    if (f->run->common.json) {
        proa_out_str(f->out, ",");
        if (encoder) proa_print_rows_json(f->out, r, &f->session->info);
        else proa_print_generated_json(f->out, r, f->run->logprobs && f->run->beams <= 1);
    } else if (encoder) {
        write_rows(f, r);
    } else if (f->session->info.has_tokenizer) {
        proa_out_escaped(f->out, proa_buf_view(&r->text));
    }
}

static bool line_done(void *arg, int64_t index, proa_result *r)
{
    file_run *f = arg;
    proa_err err = {0};
    bool json = f->run->common.json;
    if (json) proa_out_printf(f->out, "{\"line\":%lld", (long long)index + 1);
    if (proa_result_status(r, &err) != PROA_OK) write_error(f, index, &err);
    else write_result(f, r);
    proa_out_str(f->out, json ? "}\n" : "\n");
    f->finished++;
    return f->out->error == 0;
}

static void show_progress(void *arg)
{
    file_run *f = arg;
    if (!proa_progress_due(&f->progress)) return;
    proa_stats stats;
    proa_engine_stats(f->session->engine, &stats);
    double seconds = proa_progress_seconds(&f->progress), part = proa_lines_part(&f->lines);
    /* what was read and is not yet written counts as not done */
    if (part >= 0 && f->lines.number) part *= (double)f->finished / (double)f->lines.number;
    proa_progress_show(&f->progress, part, "%lld lines, %.1f lines/s, %.0f tokens/s", (long long)f->finished,
                       (double)f->finished / seconds, (double)stats.new_tokens / seconds);
}

static void say_summary(const file_run *f)
{
    proa_stats stats;
    proa_engine_stats(f->session->engine, &stats);
    double seconds = proa_progress_seconds(&f->progress);
    fprintf(stderr, "%lld lines in %.2f s, %.1f lines/s, %.0f new tokens/s, %.0f prompt tokens/s\n",
            (long long)f->finished, seconds, (double)f->finished / seconds,
            (double)stats.new_tokens / seconds, (double)stats.prompt_tokens / seconds);
}

proa_status proa_run_file(proa_session *session, const proa_run *run, proa_out *out, proa_err *err)
{
    if (!session->info.has_tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "--input needs a tokenizer, and '%s' has none", run->common.model);
    if (run->logprobs && run->beams > 1)
        return PROA_FAIL(err, INVALID, "--logprobs with --beams does not go with --input");
    file_run f = {.session = session, .run = run, .out = out};
    proa_progress_init(&f.progress);
    proa_status status = proa_lines_open(&f.lines, run->input, err);
    proa_queue queue = {.engine = session->engine,
                        .window = WINDOW,
                        .arg = &f,
                        .next = next_line,
                        .done = line_done,
                        .idle = show_progress};
    if (status == PROA_OK) status = proa_queue_run(&queue, err);
    proa_progress_clear(&f.progress);
    if (status == PROA_OK) say_summary(&f);
    proa_lines_close(&f.lines);
    if (status == PROA_OK && f.read_status != PROA_OK) *err = f.read_err, status = f.read_status;
    if (status == PROA_OK && f.failed) {
        *err = f.first_err;
        proa_err_prefix(err, "%lld of %lld lines failed, the first", (long long)f.failed, (long long)f.finished);
        status = err->status;
    }
    return status;
}
