/* SPDX-License-Identifier: Apache-2.0
 * file.c - `proa run --input`: a file of prompts or of JSON objects, one result a line. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/run/cmd_run.h"
#include "cli/lines.h"
#include <string.h>

/* Lines in flight: enough that the engine does not wait for a slow line at the head. */
enum { WINDOW = 1024 };

typedef struct file_run {
    proa_session *session;
    const proa_run_settings *run;
    proa_output *out;
    proa_lines lines;
    proa_status read_status; /* error of reading the input: the lines before it are still finished and written */
    proa_err read_err;
    int64_t finished, failed;
    proa_err first_err; /* error of the first line that failed */
    proa_progress progress;
    /* the last line read: its JSON and lists, valid until the next one */
    proa_json *json;
    proa_arena arena;
    int32_t *hold;
    proa_show show[WINDOW]; /* of the lines in flight: index % WINDOW */
} file_run;

static void forget_line(file_run *f)
{
    proa_json_free(f->json);
    f->json = NULL;
    proa_arena_release(&f->arena);
    free(f->hold);
    f->hold = NULL;
}

/* ---- a line as JSON ---- */

static proa_status read_ids(file_run *f, const proa_json *line, const char *key, const int32_t **ids,
                            int64_t *count, proa_err *err)
{
    const proa_json *list = proa_json_get(line, key);
    if (!list) return PROA_OK;
    *count = proa_json_len(list);
    if (proa_json_kind(list) != PROA_JSON_ARRAY || *count == 0)
        return PROA_FAIL(err, INVALID, "'%s' must be a list of token ids", key);
    int32_t *copy = PROA_ARENA_NEW(&f->arena, int32_t, *count);
    for (int64_t i = 0; i < *count; i++) {
        const proa_json *id = proa_json_at(list, i);
        int64_t value = proa_json_int(id);
        if (proa_json_kind(id) != PROA_JSON_INT || value < 0 || value > INT32_MAX)
            return PROA_FAIL(err, INVALID, "'%s' has at %lld no token id", key, (long long)i);
        copy[i] = (int32_t)value;
    }
    *ids = copy;
    return PROA_OK;
}

static proa_status read_text(const proa_json *line, const char *key, proa_str *text, bool *present, proa_err *err)
{
    const proa_json *value = proa_json_get(line, key);
    if (!value) return PROA_OK;
    *present = true;
    *text = proa_json_str(value);
    return proa_json_kind(value) == PROA_JSON_STRING ? PROA_OK
                                                     : PROA_FAIL(err, INVALID, "'%s' must be a string", key);
}

/* The options of the command line overridden by those of the line; a list replaces a list. */
static proa_status read_line_options(file_run *f, const proa_json *line, proa_options *o, proa_err *err)
{
    for (proa_json_iter it = proa_json_begin(line); proa_json_next(&it);) {
        const char *nearest;
        const proa_option_row *row = proa_option_find(it.key, &nearest);
        bool content = proa_str_is(it.key, "prompt") || proa_str_is(it.key, "ids") ||
                       proa_str_is(it.key, "pair") || proa_str_is(it.key, "type_ids") ||
                       proa_str_is(it.key, "decoder_ids") || (f->run->score && proa_str_is(it.key, "target"));
        if (!row && !content) return proa_option_unknown(it.key, nearest, err);
        if (row && row->kind == PROA_OPTION_KIND_STRINGS)
            *(proa_strings *)(void *)((char *)o + row->offset) = (proa_strings){.count = 0};
    }
    return proa_options_read_json(o, line, false, &f->arena, err);
}

static proa_status read_json_line(file_run *f, proa_str text, proa_request *request, proa_str *target,
                                  bool *has_target, proa_err *err)
{
    proa_str prompt = {NULL, 0}, pair = {NULL, 0};
    bool has_prompt = false, has_pair = false;
    int64_t types = 0;
    PROA_TRY(proa_json_parse(&f->json, text, "the line", err));
    PROA_TRY(read_line_options(f, f->json, &request->options, err));
    PROA_TRY(read_text(f->json, "prompt", &prompt, &has_prompt, err));
    PROA_TRY(read_text(f->json, "target", target, has_target, err));
    PROA_TRY(read_text(f->json, "pair", &pair, &has_pair, err));
    PROA_TRY(read_ids(f, f->json, "ids", &request->ids, &request->ids_count, err));
    PROA_TRY(read_ids(f, f->json, "type_ids", &request->type_ids, &types, err));
    if (request->type_ids && types != request->ids_count)
        return PROA_FAIL(err, INVALID, "the line has %lld 'type_ids' for %lld 'ids'", (long long)types,
                         (long long)request->ids_count);
    PROA_TRY(read_ids(f, f->json, "decoder_ids", &request->decoder_ids, &request->decoder_ids_count, err));
    if (has_prompt == (request->ids != NULL))
        return PROA_FAIL(err, INVALID, "the line needs either 'prompt' or 'ids'");
    if (*has_target && request->decoder_ids)
        return PROA_FAIL(err, INVALID, "the line has both 'target' and 'decoder_ids'");
    if (has_prompt) proa_request_set_text(request, prompt);
    if (has_pair) request->text_pair = pair.ptr, request->text_pair_len = pair.len;
    return PROA_OK;
}

/* ---- lines ---- */

static proa_status make_request(file_run *f, proa_str line, proa_request *request, proa_show *show, proa_err *err)
{
    bool json = f->run->common.json, has_target = false;
    proa_str target = {NULL, 0};
    proa_options *o = &request->options;
    *o = proa_run_options(f->run, f->session);
    if (line.len && line.ptr[0] == '{') PROA_TRY(read_json_line(f, line, request, &target, &has_target, err));
    else proa_request_set_text(request, line);
    PROA_TRY(proa_run_check(o, true, err));
    if (!json && o->n > 1) return PROA_FAIL(err, INVALID, "option 'n' %d needs --json", o->n);
    *show = proa_run_show(o, json);
    if (f->run->score)
        return proa_score_request(f->session, request, has_target ? &target : NULL, show, &f->hold, err);
    bool encoder = f->session->info.kind == PROA_KIND_ENCODER;
    request->task = encoder ? PROA_TASK_ROWS : PROA_TASK_GENERATE;
    return encoder ? proa_run_check_rows(o, &f->session->info, err) : PROA_OK;
}

static bool next_line(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    file_run *f = arg;
    proa_str line;
    bool more = false;
    forget_line(f);
    f->read_status = proa_lines_next(&f->lines, &line, &more, &f->read_err);
    if (f->read_status != PROA_OK || !more) return false;
    /* a line that cannot be read is an item that failed: item_err says so */
    (void)make_request(f, line, request, &f->show[index % WINDOW], item_err);
    return true;
}

static void write_error(file_run *f, int64_t index, const proa_err *err)
{
    if (f->failed++ == 0) {
        f->first_err = *err;
        proa_err_prefix(&f->first_err, "%s:%lld", f->lines.path, (long long)index + 1);
    }
    if (!f->run->common.json) return;
    proa_output_str(f->out, ",\"error\":");
    proa_output_json_str(f->out, proa_str_c(err->text));
}

static void write_rows(file_run *f, const proa_result *r)
{
    for (int64_t i = 0; i < r->rows_count * r->columns; i++) {
        if (i) proa_output_str(f->out, "\t");
        proa_output_printf(f->out, "%.9g", (double)r->rows[i]);
    }
}

static void write_result(file_run *f, int64_t index, const proa_result *r)
{
    const proa_show *show = &f->show[index % WINDOW];
    bool encoder = f->session->info.kind == PROA_KIND_ENCODER;
    if (f->run->common.json) {
        proa_output_str(f->out, ",");
        if (f->run->score) proa_print_score_json(f->out, r, show);
        else if (encoder) proa_print_rows_json(f->out, r, &f->session->info);
        else proa_print_generated_json(f->out, r, show);
    } else if (f->run->score) {
        proa_print_score_line(f->out, r);
    } else if (encoder) {
        write_rows(f, r);
    } else if (f->session->info.has_tokenizer) {
        proa_output_escaped(f->out, proa_buf_view(&r->text));
    } else {
        for (int64_t i = 0; i < r->count; i++) proa_output_printf(f->out, i ? " %d" : "%d", r->ids[i]);
    }
}

static bool line_done(void *arg, int64_t index, proa_result *r)
{
    file_run *f = arg;
    proa_err err = {0};
    bool json = f->run->common.json;
    if (json) proa_output_printf(f->out, "{\"line\":%lld", (long long)index + 1);
    if (proa_result_status(r, &err) != PROA_OK) write_error(f, index, &err);
    else write_result(f, index, r);
    proa_output_str(f->out, json ? "}\n" : "\n");
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

/* The outcome of the work: the input's own failure, else that of the first line that failed. */
static proa_status end_status(const file_run *f, proa_err *err)
{
    if (f->read_status != PROA_OK) *err = f->read_err;
    else if (f->failed) {
        *err = f->first_err;
        proa_err_prefix(err, "%lld of %lld lines failed, the first", (long long)f->failed,
                        (long long)f->finished);
        return err->status;
    }
    return f->read_status;
}

proa_status proa_run_file(proa_session *session, const proa_run_settings *run, proa_output *out, proa_err *err)
{
    file_run *f = proa_calloc(1, sizeof *f);
    *f = (file_run){.session = session, .run = run, .out = out};
    proa_progress_init(&f->progress);
    proa_arena_init(&f->arena);
    proa_status status = proa_lines_open(&f->lines, run->input, err);
    proa_request_queue queue = {.engine = session->engine,
                                .window = WINDOW,
                                .arg = f,
                                .next = next_line,
                                .done = line_done,
                                .idle = show_progress};
    if (status == PROA_OK) status = proa_request_queue_run(&queue, err);
    proa_progress_clear(&f->progress);
    if (status == PROA_OK) say_summary(f);
    proa_lines_close(&f->lines);
    if (status == PROA_OK) status = end_status(f, err);
    forget_line(f);
    free(f);
    return status;
}
