/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd_run.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/lines.h"
#include "cli/print.h"
#include <string.h>
#include <unistd.h>

enum { TEXT_TOKENS = 128 }; /* new tokens of a story when nobody says how many */

#define AT(field) offsetof(proa_run, field)
static const proa_arg run_rows[] = {
    PROA_MODEL_ARG,
    {"[PROMPT]", PROA_ARG_OPERAND, AT(prompt),
     .help = "the text to continue, translate or score; absent: standard input"},
    {"ids", PROA_ARG_TEXT, AT(ids_text), 0, 0, "\"5 6 7\"", NULL,
     "token ids in place of a prompt, used as they are"},
    {"decoder-ids", PROA_ARG_TEXT, AT(decoder_ids_text), 0, 0, "\"0 9\"", NULL,
     "first tokens of the decoder, start token included"},
    {"input", PROA_ARG_TEXT, AT(input), 0, 0, "FILE", NULL,
     "prompts, one a line (.gz too; - is standard input), many at once"},
    {"output", PROA_ARG_TEXT, AT(output), 0, 0, "FILE", NULL,
     "where --input's results go, one a line, in order (\\n for a newline)"},
    {"max-tokens", PROA_ARG_INT, AT(max_tokens), 0, PROA_CONTEXT_MAX, "N", NULL,
     "new tokens at most; 0: until the end (default 128; of a T5 twice the input, or 64)"},
    {"ignore-eos", PROA_ARG_FLAG, AT(ignore_eos), 0, 0, NULL, NULL, "go on after an end token"},
    {"temperature", PROA_ARG_REAL, AT(temperature), 0, 100, "X", "0",
     "sample from softmax(logits / X); 0: the most likely token"},
    {"top-k", PROA_ARG_INT, AT(top_k), 0, PROA_VOCAB_MAX, "N", "0", "sample among the N most likely; 0: all"},
    {"top-p", PROA_ARG_REAL, AT(top_p), 0, 1, "X", "1", "sample among the most likely whose mass reaches X"},
    {"beams", PROA_ARG_INT, AT(beams), 1, PROA_BEAMS_MAX, "N", "1", "beam search with N beams"},
    {"length-penalty", PROA_ARG_REAL, AT(length_penalty), -100, 100, "X", "1",
     "beam score: sum of log-probabilities / length^X"},
    {"early-stopping", PROA_ARG_CHOICE, AT(early), 0, 0, "false|true|never", "false",
     "when a beam search ends, as in transformers"},
    {"beam-style", PROA_ARG_TEXT, AT(beam_style), 0, 0, "hf", "hf",
     "whose meaning of a beam's score: transformers'"},
    {"logprobs", PROA_ARG_FLAG, AT(logprobs), 0, 0, NULL, NULL, "log-probability of each token (with --json)"},
    {"logits", PROA_ARG_FLAG, AT(logits), 0, 0, NULL, NULL, "the output of every position in place of new tokens"},
    {"no-stream", PROA_ARG_FLAG, AT(no_stream), 0, 0, NULL, NULL, "print the text when it is complete"},
    {"verbose", PROA_ARG_FLAG, AT(verbose), 0, 0, NULL, NULL, "say what was loaded and how long each part took"},
};
#undef AT
static const proa_arg_table run_args = PROA_ARG_TABLE("options", run_rows);

proa_options proa_run_options(const proa_run *run)
{
    proa_options o = {.given = PROA_GIVEN(length_penalty),
                      .max_tokens = (int32_t)run->max_tokens,
                      .temperature = (float)run->temperature,
                      .top_k = (int32_t)run->top_k,
                      .top_p = (float)run->top_p,
                      .seed = (uint64_t)run->common.seed,
                      .beams = (int32_t)run->beams,
                      .length_penalty = (float)run->length_penalty,
                      .ignore_eos = run->ignore_eos,
                      .logprobs = run->logprobs && run->beams <= 1};
    if (strcmp(run->early, "true") == 0) o.early_stopping = PROA_EARLY_TRUE;
    if (strcmp(run->early, "never") == 0) o.early_stopping = PROA_EARLY_NEVER;
    return o;
}

/* Options that do not go together. -1 if all is well, else the exit status. */
static int check(const proa_run *run)
{
    if (strcmp(run->beam_style, "ft") == 0)
        return proa_say(PROA_EXIT_FAILED,
                        "--beam-style ft comes with the decoding options, which this version does "
                        "not have yet; the one there is: hf");
    if (strcmp(run->beam_style, "hf") != 0)
        return proa_say(PROA_EXIT_USAGE, "--beam-style '%s' is none of hf", run->beam_style);
    int sources = (run->prompt != NULL) + (run->ids_text != NULL) + (run->input != NULL);
    if (sources > 1) return proa_say(PROA_EXIT_USAGE, "give one of PROMPT, --ids and --input");
    if (run->output && !run->input) return proa_say(PROA_EXIT_USAGE, "--output needs --input");
    if (run->input && run->decoder_ids_text)
        return proa_say(PROA_EXIT_USAGE, "--decoder-ids does not go with --input");
    if (run->input && run->logits) return proa_say(PROA_EXIT_USAGE, "--logits does not go with --input");
    if (run->beams > 1 && run->temperature > 0)
        return proa_say(PROA_EXIT_USAGE, "--beams and --temperature do not go together");
    if (sources == 0 && isatty(STDIN_FILENO))
        return proa_say(PROA_EXIT_USAGE, "no prompt: give PROMPT, --ids, --input or standard input");
    return -1;
}

/* The request's content, from the options or standard input. `hold` owns a prompt that was read. */
static proa_status read_request(proa_run *run, proa_request *request, proa_buf *hold, proa_err *err)
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
        return request->ids_count ? PROA_OK : PROA_FAIL(err, INVALID, "--ids is empty");
    }
    proa_str text = proa_str_c(run->prompt);
    if (!run->prompt) {
        PROA_TRY(proa_text_read(hold, "-", PROA_TEXT_BYTES_MAX, err));
        text = proa_buf_view(hold);
        if (text.len && text.ptr[text.len - 1] == '\n')
            text.len--; /* the end of the last line is not the prompt's */
    }
    if (text.len > (size_t)PROA_TEXT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "the prompt has %zu bytes, at most %lld are read", text.len,
                         (long long)PROA_TEXT_BYTES_MAX);
    proa_request_set_text(request, text);
    return PROA_OK;
}

typedef struct stream {
    proa_out *out;
    bool live; /* text is written as it comes */
    bool has_text;
    bool ends_line;
} stream;

static void show(proa_result *r, proa_str text, int32_t id)
{
    stream *s = r->arg;
    if (!s->live) return;
    if (s->has_text) proa_out_bytes(s->out, text.ptr, text.len);
    else if (id >= 0) proa_out_printf(s->out, r->count > 1 ? " %d" : "%d", id);
    if (text.len) s->ends_line = text.ptr[text.len - 1] == '\n';
    if (!proa_out_flush(s->out)) r->stop = true;
}

static void print_generated(proa_out *out, const proa_run *run, const proa_result *r, const stream *s)
{
    if (run->common.json) {
        proa_out_str(out, "{");
        proa_print_generated_json(out, r, run->logprobs);
        proa_out_str(out, "}\n");
        return;
    }
    if (!s->live && s->has_text) proa_out_bytes(out, r->text.ptr, r->text.len);
    if (!s->live && !s->has_text)
        for (int64_t i = 0; i < r->count; i++) proa_out_printf(out, i ? " %d" : "%d", r->ids[i]);
    if (!s->ends_line) proa_out_str(out, "\n");
    proa_out_flush(out);
    proa_print_summary(r);
}

/* A beam search gives scores of whole hypotheses; the log-probabilities of the best one's tokens come from one more
 * pass over it. The request's ids must be ids by now. */
static proa_status score_best(proa_session *s, const proa_request *request, proa_result *r, proa_err *err)
{
    bool s2s = s->info.kind == PROA_KIND_ENCODER_DECODER;
    const int32_t start = s->info.decoder_start_id;
    const int32_t *head = s2s ? (request->decoder_ids ? request->decoder_ids : &start) : request->ids;
    int64_t head_count = s2s ? (request->decoder_ids ? request->decoder_ids_count : 1) : request->ids_count;
    int64_t count = head_count + r->count - 1;
    if (r->count == 0) return PROA_OK;
    int32_t *ids = proa_malloc((size_t)(count + 1) * sizeof *ids);
    memcpy(ids, head, (size_t)head_count * sizeof *ids);
    memcpy(ids + head_count, r->ids, (size_t)(r->count - 1) * sizeof *ids);
    proa_request again = *request;
    again.task = PROA_TASK_ROWS;
    if (s2s) again.decoder_ids = ids, again.decoder_ids_count = count;
    else again.ids = ids, again.ids_count = count;
    proa_result rows;
    proa_result_init(&rows);
    proa_status status = proa_result_run(s->engine, &again, &rows, err);
    for (int64_t i = 0; i < r->count && status == PROA_OK; i++)
        r->logprobs[i] = (float)proa_row_logprob(rows.rows + (head_count - 1 + i) * rows.columns,
                                                 rows.columns, r->ids[i]);
    proa_result_release(&rows);
    free(ids);
    return status;
}

/* The prompt as ids, where a text was given and ids are needed. */
static proa_status make_ids(const proa_session *s, proa_run *run, proa_request *request, proa_err *err)
{
    if (request->ids) return PROA_OK;
    PROA_TRY(proa_ids_of_text(s->engine, (proa_str){request->text, request->text_len}, &run->ids,
                              &request->ids_count, err));
    request->ids = run->ids;
    request->text = NULL;
    request->text_len = 0;
    return PROA_OK;
}

static proa_status generate(proa_session *s, proa_run *run, proa_request *request, proa_out *out, proa_err *err)
{
    proa_result r;
    proa_result_init(&r);
    stream show_state = {
        .out = out, .live = !run->common.json && !run->no_stream, .has_text = s->info.has_tokenizer};
    r.arg = &show_state;
    r.on_text = show;
    bool score = run->logprobs && run->beams > 1;
    proa_status status = score ? make_ids(s, run, request, err) : PROA_OK;
    if (status == PROA_OK) status = proa_result_run(s->engine, request, &r, err);
    if (status == PROA_OK && score) status = score_best(s, request, &r, err);
    if (status == PROA_OK || r.finish == PROA_FINISH_CANCELLED) print_generated(out, run, &r, &show_state);
    proa_result_release(&r);
    return status;
}

static void print_rows(proa_out *out, const proa_session *s, const proa_run *run, const proa_request *request,
                       const proa_result *r)
{
    bool s2s = s->info.kind == PROA_KIND_ENCODER_DECODER;
    if (run->common.json) {
        proa_out_str(out, "{");
        proa_print_rows_json(out, r, &s->info);
        proa_out_printf(out, ",\"prompt_tokens\":%lld}\n", (long long)r->prompt_tokens);
    } else if (proa_print_is_hidden(&s->info)) {
        proa_print_hidden(out, r);
    } else if (r->columns != s->info.vocab) {
        proa_print_scores(out, r, run->common.model);
    } else {
        const int32_t start = s->info.decoder_start_id;
        const int32_t *at = !s2s ? request->ids : request->decoder_ids ? request->decoder_ids : &start;
        int64_t count = !s2s ? request->ids_count : request->decoder_ids ? request->decoder_ids_count : 1;
        proa_print_top(out, s->engine, r, at, count);
    }
}

static proa_status rows(proa_session *s, proa_run *run, proa_request *request, proa_out *out, proa_err *err)
{
    proa_result r;
    proa_result_init(&r);
    request->task = PROA_TASK_ROWS;
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
            proa_out_bytes_text(weights, (double)i->weight_bytes), i->isa, i->threads, s->open_s * 1e3);
    fprintf(stderr, "room for %lld tokens of keys and values (%s); %s in all; context %d\n",
            (long long)i->kv_tokens, proa_out_bytes_text(kv, (double)i->kv_bytes),
            proa_out_bytes_text(all, (double)i->memory_bytes), i->context);
}

static void describe_work(const proa_session *s)
{
    proa_stats stats;
    proa_engine_stats(s->engine, &stats);
    fprintf(stderr, "%llu steps over %llu rows in %.3f s; at most %lld of %lld pages in use\n",
            (unsigned long long)stats.steps, (unsigned long long)stats.rows, stats.step_s,
            (long long)stats.pages_used_peak, (long long)(stats.pages_used + stats.pages_free));
}

static proa_status work(proa_session *s, proa_run *run, proa_request *request, proa_err *err)
{
    proa_out out;
    if (run->verbose) proa_run_describe(s);
    if (run->max_tokens < 0) run->max_tokens = s->info.kind == PROA_KIND_DECODER ? TEXT_TOKENS : 0;
    request->options = proa_run_options(run);
    PROA_TRY(proa_out_open(&out, run->output, err));
    proa_err work_err = {0};
    proa_status status;
    if (run->input) status = proa_run_file(s, run, &out, &work_err);
    else if (run->logits || s->info.kind == PROA_KIND_ENCODER)
        status = rows(s, run, request, &out, &work_err);
    else status = generate(s, run, request, &out, &work_err);
    /* a failed write is the cause, a request cancelled for it the effect */
    PROA_TRY(proa_out_close(&out, err));
    if (run->verbose) describe_work(s);
    if (status != PROA_OK) *err = work_err;
    return status;
}

static int run_command(const proa_command *self, int argc, char **argv)
{
    proa_run run = {.max_tokens = -1};
    int exit_status = proa_args_parse(self, &run, argc, argv);
    if (exit_status < 0) exit_status = check(&run);
    if (exit_status >= 0) return exit_status;
    proa_err err = {0};
    proa_engine_options options;
    proa_request request = {.task = PROA_TASK_GENERATE};
    proa_session session = {.engine = NULL};
    proa_buf hold;
    proa_buf_init(&hold, 0);
    proa_status status = proa_session_options(&options, &run.common, &err);
    proa_session_room(&options, run.beams, run.max_tokens < 0 ? TEXT_TOKENS : run.max_tokens, run.input != NULL);
    if (status == PROA_OK && !run.input) status = read_request(&run, &request, &hold, &err);
    proa_interrupt_watch();
    if (status == PROA_OK) status = proa_session_open(&session, &run.common, &options, &err);
    if (status == PROA_OK) status = work(&session, &run, &request, &err);
    proa_session_close(&session);
    proa_buf_release(&hold);
    free(run.ids);
    free(run.decoder_ids);
    return status == PROA_OK ? PROA_EXIT_OK : proa_say_err(&err);
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
        "  proa run models/classics-10m --ids \"1 812 316\" --max-tokens 24 --ignore-eos --logprobs --json\n",
    .tables = run_tables,
    .run = run_command,
};
