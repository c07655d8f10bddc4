/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.c - `proa run`: its options, and one prompt. */
#include "cli/run/cmd_run.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/lines.h"
#include "engine/access.h"
#include <string.h>
#include <unistd.h>

#define AT(field) offsetof(proa_run_settings, field)
static const proa_arg run_rows[] = {
    PROA_MODEL_ARG,
    {"[PROMPT]", PROA_ARG_OPERAND, AT(prompt),
     .help = "text to continue, translate or score; default: standard input"},
    {"ids", PROA_ARG_TEXT, AT(ids_text), 0, 0, "\"5 6 7\"", NULL, "token ids instead of a prompt, used unchanged"},
    {"pair", PROA_ARG_TEXT, AT(pair), 0, 0, "TEXT", NULL, "a second text that an encoder scores with the prompt"},
    {"type-ids", PROA_ARG_TEXT, AT(type_ids_text), 0, 0, "\"0 0 1\"", NULL, "token types of --ids (encoders)"},
    {"decoder-ids", PROA_ARG_TEXT, AT(decoder_ids_text), 0, 0, "\"0 9\"", NULL,
     "first tokens of the decoder, including the start token"},
    {"input", PROA_ARG_TEXT, AT(input), 0, 0, "FILE", NULL,
     "file of prompts, one per line, or of JSON objects (may be .gz; -: standard input)"},
    {"output", PROA_ARG_TEXT, AT(output), 0, 0, "FILE", NULL,
     "file for the results of --input, one per line, in order (newlines become \\n)"},
    {"score", PROA_ARG_OPTIONAL_TEXT, AT(score), 0, 0, "TEXT", NULL,
     "log-probability of TEXT, or of the prompt, ids or input lines; T5: of TEXT given the prompt"},
    {"logits", PROA_ARG_FLAG, AT(logits), 0, 0, NULL, NULL,
     "print the outputs of every position instead of generating"},
    {"no-stream", PROA_ARG_FLAG, AT(no_stream), 0, 0, NULL, NULL, "print the text only when it is complete"},
    {"verbose", PROA_ARG_FLAG, AT(verbose), 0, 0, NULL, NULL, "report what was loaded and how long each part took"},
};
#undef AT
static const proa_arg_table run_args = PROA_ARG_TABLE("options", run_rows);

/* Checks that the sources of text and ids do not conflict. -1 if all is well, else the exit status. */
static int check_sources(const proa_run_settings *run)
{
    int sources = (run->prompt != NULL) + (run->ids_text != NULL) + (run->input != NULL);
    bool text = run->score && *run->score, file = run->input, decoder = run->decoder_ids_text;
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {sources > 1, "give one of PROMPT, --ids and --input"},
        {run->output && !file, "--output needs --input"},
        {file && decoder, "--decoder-ids does not go with --input"},
        {run->pair && (file || run->ids_text), "--pair goes with PROMPT"},
        {run->type_ids_text && !run->ids_text, "--type-ids needs --ids"},
        {file && run->logits, "--logits does not go with --input"},
        {run->score && run->logits, "--score does not go with --logits"},
        {text && file, "--score TEXT does not go with --input (--score alone does)"},
        {text && decoder, "--score TEXT does not go with --decoder-ids (--score alone does)"},
        {!sources && !text && isatty(STDIN_FILENO),
         "no prompt: give PROMPT, --ids, --input or standard input"},
    };
    for (size_t i = 0; i < PROA_COUNT(rules); i++)
        if (rules[i].wrong) return proa_cli_fail(PROA_EXIT_USAGE, "%s", rules[i].why);
    return -1;
}

/* Checks what can be checked before the model is read. */
static int check_settings(const proa_run_settings *run)
{
    const proa_options *o = &run->decoding.options;
    proa_err err = {0};
    int exit_status = check_sources(run);
    if (exit_status >= 0) return exit_status;
    if (proa_options_check(o, PROA_VOCAB_MAX, PROA_SEQUENCES_MAX, &err) != PROA_OK ||
        proa_run_check(o, run->input != NULL, &err) != PROA_OK)
        return proa_cli_fail(PROA_EXIT_USAGE, "%s", err.text);
    if (run->input && !run->common.json && o->n > 1)
        return proa_cli_fail(PROA_EXIT_USAGE, "--n %d with --input needs --json", o->n);
    return -1;
}

static proa_status read_type_ids(proa_run_settings *run, proa_request *request, proa_err *err)
{
    int64_t count = 0;
    PROA_TRY(proa_args_numbers(&run->type_ids, &count, run->type_ids_text, "--type-ids", 0, INT32_MAX,
                               PROA_CONTEXT_MAX, err));
    request->type_ids = run->type_ids;
    if (count == request->ids_count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "--type-ids has %lld numbers, --ids %lld", (long long)count,
                     (long long)request->ids_count);
}

/* Reads the request's content from the options or standard input. `hold` owns a prompt that was read. */
static proa_status read_request(proa_run_settings *run, proa_request *request, proa_buf *hold, proa_err *err)
{
    if (run->decoder_ids_text) {
        PROA_TRY(proa_args_numbers(&run->decoder_ids, &request->decoder_ids_count, run->decoder_ids_text,
                                   "--decoder-ids", 0, INT32_MAX, PROA_CONTEXT_MAX, err));
        request->decoder_ids = run->decoder_ids;
        if (!request->decoder_ids_count) return PROA_FAIL(err, INVALID, "--decoder-ids is empty");
    }
    if (run->ids_text) {
        PROA_TRY(proa_args_numbers(&run->ids, &request->ids_count, run->ids_text, "--ids", 0, INT32_MAX,
                                   PROA_CONTEXT_MAX, err));
        request->ids = run->ids;
        if (run->type_ids_text) PROA_TRY(read_type_ids(run, request, err));
        return request->ids_count ? PROA_OK : PROA_FAIL(err, INVALID, "--ids is empty");
    }
    request->text_pair = run->pair;
    proa_str text = proa_str_c(run->prompt);
    if (!run->prompt && run->score && *run->score) return PROA_OK; /* a text to score needs no prompt */
    if (!run->prompt) {
        PROA_TRY(proa_text_read(hold, "-", PROA_TEXT_BYTES_MAX, err));
        text = proa_buf_view(hold);
        if (text.len && text.ptr[text.len - 1] == '\n')
            text.len--; /* the last line end is not part of the prompt */
    }
    if (text.len > (size_t)PROA_TEXT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "the prompt has %zu bytes, at most %lld are read", text.len,
                         (long long)PROA_TEXT_BYTES_MAX);
    proa_request_set_text(request, text);
    return PROA_OK;
}

typedef struct stream {
    proa_output *out;
    const proa_show *what;
    bool live; /* text is written as it comes */
    bool has_text;
    bool ends_line;
} stream;

static void show_piece(proa_result *r, proa_str text, int32_t id)
{
    stream *s = r->arg;
    if (!s->live) return;
    if (s->has_text) proa_output_text(s->out, text);
    else if (id >= 0) proa_output_printf(s->out, r->count > 1 ? " %d" : "%d", id);
    if (text.len) s->ends_line = text.ptr[text.len - 1] == '\n';
    if (!proa_output_flush(s->out)) r->stop = true;
}

static void print_text(proa_output *out, const stream *s, const char *text, size_t len, const int32_t *ids,
                       int64_t count)
{
    if (s->has_text) proa_output_text(out, (proa_str){text, len});
    for (int64_t i = 0; i < count && !s->has_text; i++) proa_output_printf(out, i ? " %d" : "%d", ids[i]);
    if (!s->has_text || !len || text[len - 1] != '\n') proa_output_str(out, "\n");
}

static void print_generated(proa_output *out, const proa_run_settings *run, const proa_result *r, const stream *s)
{
    if (run->common.json) {
        proa_output_str(out, "{");
        proa_print_generated_json(out, r, s->what);
        proa_output_str(out, "}\n");
        return;
    }
    if (s->live && !s->ends_line) proa_output_str(out, "\n");
    bool several = s->what->sequences && r->beams_count > 1;
    for (int32_t i = 0; i < r->beams_count && several; i++) {
        proa_output_printf(out, "--- %d ---\n", i + 1);
        print_text(out, s, r->beams[i].text, strlen(r->beams[i].text), r->beams[i].ids, r->beams[i].count);
    }
    if (!s->live && !several)
        print_text(out, s, r->text.ptr ? r->text.ptr : "", r->text.len, r->ids, r->count);
    proa_output_flush(out);
    proa_print_summary(r);
}

/* Encodes the prompt where ids are needed and a text was given. */
static proa_status make_ids(const proa_session *s, proa_run_settings *run, proa_request *request, proa_err *err)
{
    if (request->ids || request->text_pair) return PROA_OK; /* the engine encodes pairs */
    PROA_TRY(proa_encode_text(s->engine, (proa_str){request->text, request->text_len}, &run->ids,
                              &request->ids_count, err));
    request->ids = run->ids;
    request->text = NULL;
    request->text_len = 0;
    return PROA_OK;
}

static proa_status generate_output(proa_session *s, proa_run_settings *run, proa_request *request,
                                   proa_output *out, proa_err *err)
{
    proa_result r;
    proa_show what = proa_run_show(&request->options, run->common.json);
    bool live = !run->common.json && !run->no_stream && request->options.n <= 1;
    stream show_state = {.out = out, .what = &what, .live = live, .has_text = s->info.has_tokenizer};
    proa_result_init(&r);
    r.arg = &show_state;
    r.on_text = show_piece;
    bool score = run->common.json && (what.logprobs || what.top) && proa_run_rescores(&request->options);
    proa_status status = score ? make_ids(s, run, request, err) : PROA_OK;
    if (status == PROA_OK) status = proa_result_run(s->engine, request, &r, err);
    /* of a beam search the best sequence, of best_of all that are returned */
    int32_t scored = !score ? 0 : what.sequences ? r.beams_count : proa_min64(r.beams_count, 1) != 0;
    for (int32_t i = 0; i < scored && status == PROA_OK; i++)
        status = proa_result_score(s->engine, request, &r, i, err);
    if (status == PROA_OK || r.finish == PROA_FINISH_CANCELLED) print_generated(out, run, &r, &show_state);
    proa_result_release(&r);
    return status;
}

static void print_rows(proa_output *out, const proa_session *s, const proa_run_settings *run,
                       const proa_request *request, const proa_result *r)
{
    bool s2s = s->info.kind == PROA_KIND_ENCODER_DECODER;
    if (run->common.json) {
        proa_output_str(out, "{");
        proa_print_rows_json(out, r, &s->info);
        proa_output_printf(out, ",\"prompt_tokens\":%lld}\n", (long long)r->prompt_tokens);
    } else if (proa_print_is_hidden(&s->info) || (request->text_pair && r->columns == s->info.vocab)) {
        proa_print_hidden(out, r); /* a pair's ids are not known here: no tokens are shown */
    } else if (r->columns != s->info.vocab) {
        proa_print_scores(out, r, run->common.model);
    } else {
        const int32_t start = s->info.decoder_start_id;
        const int32_t *at = !s2s ? request->ids : request->decoder_ids ? request->decoder_ids : &start;
        int64_t count = !s2s ? request->ids_count : request->decoder_ids ? request->decoder_ids_count : 1;
        proa_print_top(out, s->engine, r, at, count);
    }
}

static proa_status compute_rows(proa_session *s, proa_run_settings *run, proa_request *request,
                                proa_output *out, proa_err *err)
{
    proa_result r;
    proa_result_init(&r);
    request->task = PROA_TASK_ROWS;
    PROA_TRY(proa_run_check_rows(&request->options, &s->info, err));
    proa_status status = make_ids(s, run, request, err);
    if (status == PROA_OK) status = proa_result_run(s->engine, request, &r, err);
    if (status == PROA_OK) print_rows(out, s, run, request, &r);
    proa_result_release(&r);
    return status;
}

void proa_run_describe(const proa_session *s)
{
    const proa_info *i = &s->info;
    char weights[16], kv[16], all[16];
    fprintf(stderr, "%s, %.1f M parameters, %s, quant %s: %s of weights; %s; %d threads; loaded in %.0f ms\n",
            i->arch, (double)i->parameters * 1e-6, i->dtype, i->quant,
            proa_output_bytes_text(weights, (double)i->weight_bytes), i->isa, i->threads, s->open_s * 1e3);
    fprintf(stderr, "room for %lld tokens of keys and values (%s); %s in all; context %d\n",
            (long long)i->kv_tokens, proa_output_bytes_text(kv, (double)i->kv_bytes),
            proa_output_bytes_text(all, (double)i->memory_bytes), i->context);
    fprintf(stderr, "planned: %s\n", i->plan);
}

static void describe_work(const proa_session *s)
{
    proa_stats stats;
    proa_engine_stats(s->engine, &stats);
    fprintf(stderr, "%llu steps over %llu rows in %.3f s; at most %lld of %lld pages in use\n",
            (unsigned long long)stats.steps, (unsigned long long)stats.rows, stats.step_s,
            (long long)stats.pages_used_peak, (long long)(stats.pages_used + stats.pages_free));
}

static proa_status run_request(proa_session *s, proa_run_settings *run, proa_request *request, proa_err *err)
{
    proa_output out;
    if (run->verbose) proa_run_describe(s);
    request->options = proa_run_options(run, s);
    PROA_TRY(proa_output_open(&out, run->output, err));
    proa_err work_err = {0};
    proa_status status;
    if (run->input) status = proa_run_file(s, run, &out, &work_err);
    else if (run->score) status = proa_run_score(s, run, request, &out, &work_err);
    else if (run->logits || s->info.kind == PROA_KIND_ENCODER)
        status = compute_rows(s, run, request, &out, &work_err);
    else status = generate_output(s, run, request, &out, &work_err);
    /* a failed write is reported first: the request was cancelled because of it */
    PROA_TRY(proa_output_close(&out, err));
    if (run->verbose) describe_work(s);
    if (status != PROA_OK) *err = work_err;
    return status;
}

/* Sequences of one prompt that run concurrently. */
static int32_t width_of(const proa_options *o)
{
    if (o->penalty_alpha > 0) return o->top_k;
    if (o->beams > 1) return o->beams;
    return o->best_of > o->n ? o->best_of : o->n;
}

static proa_status open_and_work(proa_run_settings *run, proa_err *err)
{
    const proa_options *o = &run->decoding.options;
    proa_engine_options options;
    proa_request request = {.task = PROA_TASK_GENERATE};
    proa_session session = {.engine = NULL};
    proa_buf hold;
    proa_buf_init(&hold, 0);
    proa_status status = proa_session_options(&options, &run->common, err);
    int64_t max_tokens = o->given[PROA_OPTION_max_tokens] ? o->max_tokens : PROA_RUN_TOKENS;
    proa_session_room(&options, width_of(o), max_tokens, run->input != NULL);
    if (status == PROA_OK && !run->input) status = read_request(run, &request, &hold, err);
    proa_interrupt_watch();
    if (status == PROA_OK) status = proa_session_open(&session, &run->common, &options, err);
    if (status == PROA_OK) status = run_request(&session, run, &request, err);
    proa_session_close(&session);
    proa_buf_release(&hold);
    return status;
}

static int run_command(const proa_command *self, int argc, char **argv)
{
    proa_run_settings run = {.prompt = NULL};
    proa_err err = {0};
    proa_decoding_init(&run.decoding);
    int exit_status = proa_args_parse(self, &run, argc, argv);
    if (exit_status < 0) exit_status = check_settings(&run);
    if (exit_status < 0)
        exit_status = open_and_work(&run, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
    proa_decoding_release(&run.decoding);
    free(run.ids);
    free(run.type_ids);
    free(run.decoder_ids);
    return exit_status;
}

static const proa_arg_table *const run_tables[] = {&run_args, &proa_engine_args, &proa_common_args, NULL};
const proa_command proa_cmd_run = {
    .name = "run",
    .summary = "generate from a prompt: continue, translate, or score with an encoder",
    .examples =
        "  proa run models/classics-10m \"It was a dark and stormy night\"\n"
        "  proa run models/m30k-t5 \"translate English to German: A dog runs on the beach.\" --beams 4\n"
        "  proa run models/polarity-bert \"a warm and funny film\"\n"
        "  proa run models/m30k-t5 --input lines.txt --output translated.txt\n"
        "  proa run models/classics-10m \"It was\" --temperature 0.8 --top-p 0.9 --n 4 --stop \".\"\n"
        "  proa run models/classics-10m --score \"It was the best of times.\"\n"
        "  proa run models/classics-10m --ids \"1 812 316\" --max-tokens 24 --ignore-eos --logprobs --json\n",
    .tables = run_tables,
    .decoding = offsetof(proa_run_settings, decoding),
    .decoding_title = "decoding (defaults: the model's generation_config.json, else the values below; "
                      "max-tokens: 128, for T5 twice the input or 64; see proa help decoding)",
    .run = run_command,
};
