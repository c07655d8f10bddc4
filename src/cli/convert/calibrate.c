/* SPDX-License-Identifier: Apache-2.0
 * calibrate.c - runs the text of --calibrate through the model: windows of a text for a decoder, its lines for the
 *               others. A line of an encoder-decoder may have a tab and the target after it; else the model's own
 *               output is what its decoder reads. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/convert/convert.h"
#include "cli/lines.h"
#include "cli/result.h"
#include "engine/access.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 8, STEP_TOKENS = 512, TARGET_TOKENS = 64, SWEEPS = 4, GROUP = 32 };

/* The source as an open engine, and the text that runs through it. */
typedef struct calibration {
    proa_session session;
    const char *prefix;
    int32_t *ids; /* [count] of a decoder's text */
    int64_t count;
    proa_line_list lines; /* of other models */
    int64_t window;       /* tokens of an item at most */
    int64_t tokens;       /* at most that many are run */
    proa_progress progress;
} calibration;

/* One run of the text. */
typedef struct text_run {
    calibration *c;
    int32_t *ids;  /* [2 * STEP_TOKENS] of the item that is submitted */
    int64_t taken; /* tokens submitted */
    int64_t line;  /* the next one */
    proa_err err;
} text_run;

static void show_progress(void *arg)
{
    text_run *t = arg;
    if (!proa_progress_due(&t->c->progress)) return;
    double part = t->c->tokens ? (double)t->taken / (double)t->c->tokens : 0;
    if (t->c->lines.count) part = fmax(part, (double)t->line / (double)t->c->lines.count);
    proa_progress_show(&t->c->progress, part < 1 ? part : 1, "calibrating  %lld of %lld tokens",
                       (long long)t->taken, (long long)t->c->tokens);
}

/* proa_calibrate.progress */
static bool show_matrices(void *context, int64_t done, int64_t total)
{
    calibration *c = context;
    if (proa_progress_due(&c->progress))
        proa_progress_show(&c->progress, (double)done / (double)total, "quantising  %lld of %lld matrices",
                           (long long)done, (long long)total);
    if (done == total) proa_progress_clear(&c->progress);
    return !proa_interrupted();
}

/* The next window of the text. */
static bool next_window(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    text_run *t = arg;
    const calibration *c = t->c;
    PROA_UNUSED(item_err);
    int64_t from = index * c->window;
    if (from >= c->count || t->taken >= c->tokens || proa_interrupted()) return false;
    request->task = PROA_TASK_SCORE;
    int64_t count = proa_min64(c->window, c->count - from);
    int32_t end[2], ends = proa_engine_prompt_end(c->session.engine, end);
    if (count < 2 || count < ends) return false;
    memcpy(t->ids, c->ids + from, (size_t)count * sizeof *t->ids);
    memcpy(t->ids + count - ends, end, (size_t)ends * sizeof *end); /* GLM: what every prompt has */
    request->ids = t->ids, request->ids_count = count;
    t->taken += count;
    return true;
}

/* Ids of a text, cut off after limit of them. */
static proa_status encode_part(const calibration *c, proa_str text, int32_t *ids, int64_t limit,
                               int64_t *count, proa_err *err)
{
    proa_status status = proa_engine_encode(c->session.engine, text.ptr, text.len, ids, limit, count, err);
    *count = proa_min64(*count, limit);
    return status;
}

static proa_status encode_source(const text_run *t, proa_str source, int64_t *count, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_LINE_BYTES_MAX);
    proa_buf_str(&text, proa_str_c(t->c->prefix));
    proa_buf_str(&text, source);
    proa_status status = encode_part(t->c, proa_buf_view(&text), t->ids, t->c->window, count, err);
    proa_buf_release(&text);
    return status;
}

/* What the decoder reads: the target, or without one what the model generates. */
static proa_status set_target(text_run *t, proa_request *request, const char *target, size_t bytes, proa_err *err)
{
    const calibration *c = t->c;
    int32_t *ids = t->ids + STEP_TOKENS;
    int64_t count = 0;
    if (!target) {
        request->task = PROA_TASK_GENERATE;
        request->options.max_tokens = (int32_t)proa_min64(TARGET_TOKENS, c->window - 1);
        /* greedy, whatever the model's own are */
        request->options.given[PROA_OPTION_temperature] = request->options.given[PROA_OPTION_beams] = true;
        return PROA_OK;
    }
    request->task = PROA_TASK_SCORE;
    ids[0] = c->session.info.decoder_start_id;
    PROA_TRY(encode_part(c, (proa_str){target, bytes}, ids + 1, c->window - 1, &count, err));
    request->decoder_ids = ids, request->decoder_ids_count = count + 1;
    t->taken += count + 1;
    return PROA_OK;
}

/* The next line that is not empty: a source, or a source, a tab and a target. */
static bool next_line(void *arg, int64_t index, proa_request *request, proa_err *item_err)
{
    text_run *t = arg;
    const calibration *c = t->c;
    PROA_UNUSED(index);
    while (t->line < c->lines.count && c->lines.line[t->line].len == 0) t->line++;
    if (t->line >= c->lines.count || t->taken >= c->tokens || proa_interrupted()) return false;
    proa_str line = c->lines.line[t->line++];
    const char *tab = memchr(line.ptr, '\t', line.len);
    proa_str source = {line.ptr, tab ? (size_t)(tab - line.ptr) : line.len};
    request->task = PROA_TASK_ENCODE;
    request->ids = t->ids;
    proa_status status = encode_source(t, source, &request->ids_count, item_err);
    t->taken += request->ids_count;
    if (status == PROA_OK && c->session.info.kind == PROA_KIND_ENCODER_DECODER)
        status = set_target(t, request, tab ? tab + 1 : NULL, tab ? line.len - source.len - 1 : 0, item_err);
    PROA_UNUSED(status); /* an error is in item_err, and becomes the item's */
    return true;
}

static bool item_done(void *arg, int64_t index, proa_result *r)
{
    text_run *t = arg;
    PROA_UNUSED(index);
    return proa_result_status(r, &t->err) == PROA_OK;
}

static void no_rows(proa_result *r, const proa_event *event)
{
    PROA_UNUSED(r), PROA_UNUSED(event);
}

/* proa_calibrate.run */
static proa_status run_text(void *context, const proa_observer *observer, proa_err *err)
{
    calibration *c = context;
    text_run t = {.c = c};
    bool windows = c->session.info.kind == PROA_KIND_DECODER;
    proa_request_queue queue = {.engine = c->session.engine,
                                .window = WINDOW,
                                .arg = &t,
                                .next = windows ? next_window : next_line,
                                .done = item_done,
                                .on_rows = no_rows,
                                .idle = show_progress};
    t.ids = proa_malloc(2 * STEP_TOKENS * sizeof *t.ids);
    proa_engine_observe(c->session.engine, observer);
    proa_status status = proa_request_queue_run(&queue, err);
    proa_engine_observe(c->session.engine, NULL);
    free(t.ids);
    if (status == PROA_OK && t.err.status != PROA_OK) *err = t.err, status = t.err.status;
    if (!proa_interrupted()) return status;
    *err = (proa_err){.status = PROA_OK}; /* in place of what the queue says of its items */
    return PROA_FAIL(err, CANCELLED, "interrupted");
}

/* ---- the text ---- */

static proa_status read_text(calibration *c, const char *path, proa_err *err)
{
    proa_buf text;
    proa_status status = proa_text_read(&text, path, PROA_TEXT_BYTES_MAX, err);
    if (status == PROA_OK)
        status = proa_encode_text(c->session.engine, proa_buf_view(&text), &c->ids, &c->count, err);
    proa_buf_release(&text);
    if (status == PROA_OK && c->count < 2)
        status = PROA_FAIL(err, INVALID, "--calibrate: '%s' has %lld tokens", path, (long long)c->count);
    c->tokens = proa_min64(c->tokens, c->count);
    return status;
}

static proa_status open_source(calibration *c, const convert_options *o, proa_err *err)
{
    proa_engine_options options;
    *c = (calibration){.prefix = o->prefix ? o->prefix : "", .tokens = o->calibrate_tokens};
    proa_common common = o->common;
    common.device = "cpu", common.dtype = "exact", common.quant = "none", common.kv_dtype = "auto";
    PROA_TRY(proa_session_options(&options, &common, err));
    options.step_tokens = STEP_TOKENS;
    PROA_TRY(proa_session_open(&c->session, &common, &options, err));
    proa_progress_init(&c->progress);
    if (!c->session.info.has_tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "'%s' has no tokenizer", common.model);
    c->window = proa_min64(STEP_TOKENS, c->session.info.context);
    if (c->session.info.kind == PROA_KIND_DECODER) return read_text(c, o->calibrate, err);
    PROA_TRY(proa_line_list_read(&c->lines, o->calibrate, err));
    if (c->lines.count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "--calibrate: '%s' is empty", o->calibrate);
}

static uint64_t mix_bytes(uint64_t key, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) key = (key ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ULL;
    return key;
}

static uint64_t text_key(const calibration *c)
{
    uint64_t key = mix_bytes(0xcbf29ce484222325ULL, c->prefix, strlen(c->prefix));
    key = mix_bytes(key, &c->tokens, sizeof c->tokens);
    if (c->count) key = mix_bytes(key, c->ids, (size_t)c->count * sizeof *c->ids);
    for (int64_t i = 0; i < c->lines.count; i++)
        key = mix_bytes(key, c->lines.line[i].ptr, c->lines.line[i].len);
    return key;
}

static void close_source(calibration *c)
{
    proa_progress_clear(&c->progress);
    free(c->ids);
    proa_line_list_release(&c->lines);
    proa_session_close(&c->session);
}

/* ---- the methods ---- */

static const char *const kinds[] = {"int4", "int8", "fp8"};

/* enum, and the codes that it is for */
static const struct {
    const char *name, *kinds;
} methods[] = {{"rtn", "int4 int8 fp8"},
               {"gptq", "int4 int8 fp8"},
               {"awq", "int4"},
               {"awq-gptq", "int4"},
               {"smoothquant", "int8"}};

/* --quant, --method, --group and --zero-points. */
static proa_status read_method(proa_calibrate *out, const convert_options *o, proa_err *err)
{
    const char *quant = o->common.quant ? o->common.quant : "int4", *method = o->method ? o->method : "gptq";
    int kind = 0, m = 0;
    while (kind < (int)PROA_COUNT(kinds) && strcmp(quant, kinds[kind]) != 0) kind++;
    if (kind == (int)PROA_COUNT(kinds))
        return PROA_FAIL(err, INVALID, "--calibrate needs --quant int4, int8 or fp8");
    while (strcmp(method, methods[m].name) != 0) m++; /* the parser takes no other names */
    if (!strstr(methods[m].kinds, quant))
        return PROA_FAIL(err, INVALID, "--method %s is for --quant %s", method, methods[m].kinds);
    if (kind != PROA_CODES_INT4 && (o->group || o->zero_points))
        return PROA_FAIL(err, INVALID, "--group and --zero-points are for --quant int4");
    *out = (proa_calibrate){.kind = (proa_codes_kind)kind,
                            .method = (proa_calibrate_method)m,
                            .group = o->group ? o->group : GROUP,
                            .asymmetric = o->zero_points,
                            .sweeps = SWEEPS};
    return PROA_OK;
}

proa_status calibration_write(const convert_options *o, proa_convert_job *job, proa_err *err)
{
    calibration c;
    proa_calibrate options;
    PROA_TRY(read_method(&options, o, err));
    proa_status status = open_source(&c, o, err);
    options.run = run_text, options.progress = show_matrices, options.context = &c;
    options.text_key = text_key(&c);
    job->calibrate = &options;
    if (status == PROA_OK) status = proa_convert_hf(job, err);
    close_source(&c);
    return status;
}
