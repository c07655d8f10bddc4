/* SPDX-License-Identifier: Apache-2.0
 * print.c - prints a result as JSON, as a table or as one line. */
#include "cli/print.h"

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include <math.h>
#include <string.h>

enum { TOP = 5, HIDDEN_SHOWN = 6 };

static void print_beams_json(proa_output *out, const proa_result *r)
{
    proa_output_str(out, ",\"beams\":[");
    for (int32_t i = 0; i < r->beams_count; i++) {
        const proa_hypothesis *beam = &r->beams[i];
        proa_output_str(out, i ? ",{\"ids\":" : "{\"ids\":");
        proa_output_json_ids(out, beam->ids, beam->count);
        proa_output_str(out, ",\"score\":");
        proa_output_json_num(out, (double)beam->score);
        proa_output_str(out, ",\"text\":");
        proa_output_json_str(out, proa_str_c(beam->text));
        proa_output_str(out, "}");
    }
    proa_output_str(out, "]");
}

/* [[[id, logprob], ...], ...] */
static void print_top_json(proa_output *out, const proa_buf *top, int64_t rows, int32_t n)
{
    const proa_logprob *at = (const void *)top->ptr;
    for (int64_t i = 0; i < rows; i++) {
        proa_output_str(out, i ? ",[" : "[");
        for (int32_t k = 0; k < n && at[i * n + k].id >= 0; k++) {
            proa_output_printf(out, "%s[%d,", k ? "," : "", at[i * n + k].id);
            proa_output_json_num(out, (double)at[i * n + k].logprob);
            proa_output_str(out, "]");
        }
        proa_output_str(out, "]");
    }
}

static double sum_of(const float *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[i];
    return sum;
}

static void print_logprobs_json(proa_output *out, const proa_sequence_result *t, const proa_result *r,
                                const proa_show *show)
{
    if (show->logprobs) {
        proa_output_str(out, ",\"logprobs\":");
        proa_output_json_row(out, t->logprobs, t->count);
    }
    if (show->top && t->top.len == (size_t)t->count * (size_t)r->top_count * sizeof(proa_logprob)) {
        proa_output_str(out, ",\"top_logprobs\":[");
        print_top_json(out, &t->top, t->count, r->top_count);
        proa_output_str(out, "]");
    }
}

static void print_states_json(proa_output *out, const proa_sequence_result *t, const proa_result *r,
                              const proa_show *show)
{
    if (show->logits) {
        proa_output_str(out, ",\"logits\":");
        proa_output_json_rows(out, (const void *)t->logits.ptr, t->count, r->vocab);
    }
    if (show->hidden) {
        proa_output_str(out, ",\"hidden\":");
        proa_output_json_rows(out, (const void *)t->hidden.ptr, t->count, r->hidden);
    }
}

static void print_sequences_json(proa_output *out, const proa_result *r, const proa_show *show)
{
    proa_output_str(out, ",\"sequences\":[");
    for (int32_t i = 0; i < r->beams_count; i++) {
        const proa_hypothesis *s = &r->beams[i];
        proa_output_str(out, i ? ",{\"ids\":" : "{\"ids\":");
        proa_output_json_ids(out, s->ids, s->count);
        print_logprobs_json(out, &r->seq[i], r, show);
        proa_output_str(out, ",\"text\":");
        proa_output_json_str(out, proa_str_c(s->text));
        proa_output_printf(out, ",\"finish\":\"%s\",\"logprob_sum\":", proa_finish_name(s->finish));
        proa_output_json_num(out, s->logprob_sum);
        proa_output_str(out, ",\"score\":");
        proa_output_json_num(out, (double)s->score);
        print_states_json(out, &r->seq[i], r, show);
        proa_output_str(out, "}");
    }
    proa_output_str(out, "]");
}

/* A prompt's log-probabilities: null for the first token, which has no context. */
static void print_prompt_json(proa_output *out, const proa_result *r, const char *name, const char *top_name,
                              int32_t top)
{
    const float *logprobs = (const void *)r->prompt_logprobs.ptr;
    proa_output_printf(out, ",\"%s\":[null", name);
    for (int64_t i = 0; i < r->prompt_scored; i++) {
        proa_output_str(out, ",");
        proa_output_json_num(out, (double)logprobs[i]);
    }
    proa_output_str(out, "]");
    if (!top) return;
    proa_output_printf(out, ",\"%s\":[null%s", top_name, r->prompt_scored ? "," : "");
    print_top_json(out, &r->prompt_top, r->prompt_scored, r->top_count);
    proa_output_str(out, "]");
}

void proa_print_generated_json(proa_output *out, const proa_result *r, const proa_show *show)
{
    static const proa_sequence_result none;
    const proa_sequence_result *first = r->seq_count ? &r->seq[0] : &none;
    proa_finish finish = show->sequences && r->beams_count ? r->beams[0].finish : r->finish;
    proa_output_str(out, "\"ids\":");
    proa_output_json_ids(out, r->ids, r->count);
    print_logprobs_json(out, first, r, show);
    if (show->logprobs) {
        proa_output_str(out, ",\"logprob_sum\":");
        proa_output_json_num(out, sum_of(r->logprobs, r->count));
    }
    proa_output_str(out, ",\"text\":");
    proa_output_json_str(out, proa_buf_view(&r->text));
    if (show->sequences) print_sequences_json(out, r, show);
    else if (r->beams_count > 0) print_beams_json(out, r);
    if (show->prompt_logprobs) print_prompt_json(out, r, "prompt_logprobs", "prompt_top_logprobs", show->top);
    if (!show->sequences) print_states_json(out, first, r, show);
    proa_output_printf(out, ",\"finish\":\"%s\",\"prompt_tokens\":%lld,\"new_tokens\":%lld,\"first_token_s\":",
                       proa_finish_name(finish), (long long)r->prompt_tokens, (long long)r->new_tokens);
    proa_output_json_num(out, r->queue_s + r->prompt_s);
    proa_output_str(out, ",\"tokens_per_s\":");
    proa_output_json_num(out, proa_result_rate(r));
}

/* ---- scores of a given text ---- */

typedef struct score {
    double sum, mean, perplexity; /* mean and perplexity are NaN without a scored token */
} score;

static score score_of(const proa_result *r)
{
    double sum = sum_of((const void *)r->prompt_logprobs.ptr, r->prompt_scored);
    double mean = r->prompt_scored ? sum / (double)r->prompt_scored : (double)NAN;
    return (score){sum, mean, exp(-mean)};
}

void proa_print_score_json(proa_output *out, const proa_result *r, const proa_show *show)
{
    const int32_t *ids = (const void *)r->prompt_ids.ptr;
    score s = score_of(r);
    proa_output_printf(out, "\"ids\":[%d", show->first_id);
    for (int64_t i = 0; i < r->prompt_scored; i++) proa_output_printf(out, ",%d", ids[i]);
    proa_output_str(out, "]");
    print_prompt_json(out, r, "logprobs", "top_logprobs", show->top);
    proa_output_str(out, ",\"sum\":");
    proa_output_json_num(out, s.sum);
    proa_output_str(out, ",\"mean\":");
    proa_output_json_num(out, s.mean);
    proa_output_str(out, ",\"perplexity\":");
    proa_output_json_num(out, s.perplexity);
    proa_output_printf(out, ",\"tokens\":%lld", (long long)r->prompt_scored);
}

void proa_print_score(proa_output *out, const proa_result *r)
{
    score s = score_of(r);
    proa_output_printf(out, "sum         %.6f\nmean        %.6f\nperplexity  %.4f\ntokens      %lld\n", s.sum,
                       s.mean, s.perplexity, (long long)r->prompt_scored);
}

void proa_print_score_line(proa_output *out, const proa_result *r)
{
    score s = score_of(r);
    proa_output_printf(out, "%.6f\t%.6f\t%.4f\t%lld", s.sum, s.mean, s.perplexity, (long long)r->prompt_scored);
}

bool proa_print_is_hidden(const proa_info *info)
{
    /* proa_info does not name the head; only a model without a head gives rows as wide as its hidden state
     * */
    return info->kind == PROA_KIND_ENCODER && info->outputs == info->hidden;
}

void proa_print_rows_json(proa_output *out, const proa_result *r, const proa_info *info)
{
    bool hidden = proa_print_is_hidden(info);
    proa_output_str(out, hidden ? "\"hidden\":" : "\"logits\":");
    proa_output_json_rows(out, r->rows, r->rows_count, r->columns);
    if (!hidden) return;
    proa_output_str(out, ",\"pooled\":");
    if (r->pooled) proa_output_json_row(out, r->pooled, r->columns);
    else proa_output_str(out, "null");
}

void proa_print_piece(char text[64], const proa_engine *engine, int32_t id)
{
    char piece[40] = "";
    size_t len = 0, n = 0;
    proa_err err = {0};
    text[0] = '\0';
    if (proa_engine_decode(engine, &id, 1, piece, sizeof piece, &len, &err) != PROA_OK) return;
    len = len < sizeof piece ? len : sizeof piece - 1;
    text[n++] = '\'';
    for (size_t i = 0; i < len && n < 58;) {
        int32_t c;
        int bytes = proa_utf8_decode(piece + i, len - i, &c);
        if (piece[i] == '\n') text[n++] = '\\', text[n++] = 'n';
        else if (bytes == 0 || c < 0x20 || c == 0x7f) text[n++] = '?';
        else memcpy(text + n, piece + i, (size_t)bytes), n += (size_t)bytes;
        i += bytes ? (size_t)bytes : 1;
    }
    text[n++] = '\'';
    text[n] = '\0';
}

/* Indices of the largest values, best first; returns how many (fewer only in a shorter row). NaN is never
 * among them. */
static int find_largest(int32_t best[TOP], const float *row, int64_t count)
{
    int n = 0;
    for (int64_t i = 0; i < count; i++) {
        int at = n;
        while (at > 0 && row[i] > row[best[at - 1]]) at--;
        if (at == TOP || isnan(row[i])) continue;
        if (n < TOP) n++;
        memmove(best + at + 1, best + at, (size_t)(n - 1 - at) * sizeof *best);
        best[at] = (int32_t)i;
    }
    return n;
}

/* Approximate columns on a terminal: code points. */
static int columns_of(const char *text)
{
    int n = 0;
    for (const char *c = text; *c; c++) n += ((unsigned char)*c & 0xC0) != 0x80;
    return n;
}

static void print_cell(proa_output *out, const char *text, int width)
{
    proa_output_str(out, text);
    for (int i = columns_of(text); i < width; i++) proa_output_str(out, " ");
}

void proa_print_top(proa_output *out, const proa_engine *engine, const proa_result *r, const int32_t *input,
                    int64_t input_count)
{
    char text[160], piece[64];
    for (int64_t i = 0; i < r->rows_count; i++) {
        int32_t best[TOP];
        const float *row = r->rows + i * r->columns;
        int n = find_largest(best, row, r->columns);
        bool known = input && i < input_count;
        if (known) proa_print_piece(piece, engine, input[i]);
        if (known) snprintf(text, sizeof text, "%4lld  %d %s", (long long)i, input[i], piece);
        else snprintf(text, sizeof text, "%4lld", (long long)i);
        print_cell(out, text, 24);
        for (int k = 0; k < n; k++) {
            proa_print_piece(piece, engine, best[k]);
            snprintf(text, sizeof text, "  %d %s %.3f", best[k], piece, (double)row[best[k]]);
            print_cell(out, text, 24);
        }
        proa_output_str(out, "\n");
    }
}

/* id2label of config.json, if its names are not just LABEL_0 and so on; else NULL. */
static proa_json *read_labels(proa_json **root, const char *model)
{
    char path[PROA_PATH_MAX];
    *root = NULL;
    if (proa_path_join(path, model, "config.json", NULL) != PROA_OK) return NULL;
    if (proa_json_load(root, path, PROA_CONFIG_BYTES_MAX, NULL) != PROA_OK) return NULL;
    return proa_json_get(*root, "id2label");
}

void proa_print_scores(proa_output *out, const proa_result *r, const char *model)
{
    proa_json *root, *labels = r->columns > 1 ? read_labels(&root, model) : (root = NULL);
    for (int64_t c = 0; c < r->columns; c++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)c);
        proa_str label = proa_json_str(proa_json_get(labels, key));
        if (r->columns > 1) {
            proa_output_bytes(out, label.len ? label.ptr : key, label.len ? label.len : strlen(key));
            proa_output_str(out, "\t");
        }
        proa_output_printf(out, "%.6g\n", (double)r->rows[c]);
    }
    proa_json_free(root);
}

static void hidden_row(proa_output *out, const char *name, const float *row, int64_t columns)
{
    double squares = 0;
    for (int64_t c = 0; c < columns; c++) squares += (double)row[c] * (double)row[c];
    proa_output_printf(out, "%8s  length %9.4f  [", name, sqrt(squares));
    for (int64_t c = 0; c < columns && c < HIDDEN_SHOWN; c++)
        proa_output_printf(out, "%9.4f", (double)row[c]);
    proa_output_str(out, columns > HIDDEN_SHOWN ? " ...]\n" : "]\n");
}

void proa_print_hidden(proa_output *out, const proa_result *r)
{
    char name[24];
    for (int64_t i = 0; i < r->rows_count; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        hidden_row(out, name, r->rows + i * r->columns, r->columns);
    }
    if (r->pooled) hidden_row(out, "pooled", r->pooled, r->columns);
}

void proa_print_summary(const proa_result *r)
{
    double first_ms = (r->queue_s + r->prompt_s) * 1e3;
    fprintf(stderr, "%lld token%s, %.0f tokens/s", (long long)r->new_tokens, r->new_tokens == 1 ? "" : "s",
            proa_result_rate(r));
    fprintf(stderr, first_ms < 9.5 ? " (first after %.1f ms)" : " (first after %.0f ms)", first_ms);
    fprintf(stderr, " · prompt %lld token%s", (long long)r->prompt_tokens, r->prompt_tokens == 1 ? "" : "s");
    if (r->drafted_tokens)
        fprintf(stderr, " · %lld of %lld draft tokens accepted", (long long)r->accepted_tokens,
                (long long)r->drafted_tokens);
    fputs("\n", stderr);
}
