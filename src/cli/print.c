/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/print.h"

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include <math.h>
#include <string.h>

enum { TOP = 5, HIDDEN_SHOWN = 6 };

static void print_beams_json(proa_out *out, const proa_result *r)
{
    proa_out_str(out, ",\"beams\":[");
    for (int32_t i = 0; i < r->beams_count; i++) {
        const proa_hypothesis *beam = &r->beams[i];
        proa_out_str(out, i ? ",{\"ids\":" : "{\"ids\":");
        proa_out_json_ids(out, beam->ids, beam->count);
        proa_out_str(out, ",\"score\":");
        proa_out_json_num(out, (double)beam->score);
        proa_out_str(out, ",\"text\":");
        proa_out_json_str(out, proa_str_c(beam->text));
        proa_out_str(out, "}");
    }
    proa_out_str(out, "]");
}

void proa_print_generated_json(proa_out *out, const proa_result *r, bool logprobs)
{
    proa_out_str(out, "\"ids\":");
    proa_out_json_ids(out, r->ids, r->count);
    if (logprobs) {
        proa_out_str(out, ",\"logprobs\":");
        proa_out_json_row(out, r->logprobs, r->count);
    }
    proa_out_str(out, ",\"text\":");
    proa_out_json_str(out, proa_buf_view(&r->text));
    if (r->beams_count > 0) print_beams_json(out, r);
    proa_out_printf(out, ",\"finish\":\"%s\",\"prompt_tokens\":%lld,\"new_tokens\":%lld,\"first_token_s\":",
                    proa_finish_name(r->finish), (long long)r->prompt_tokens, (long long)r->new_tokens);
    proa_out_json_num(out, r->queue_s + r->prompt_s);
    proa_out_str(out, ",\"tokens_per_s\":");
    proa_out_json_num(out, proa_result_rate(r));
}

bool proa_print_is_hidden(const proa_info *info)
{
    /* proa_info does not name the head; only a model without one gives rows as wide as its hidden state */
    return info->kind == PROA_KIND_ENCODER && info->outputs == info->hidden;
}

void proa_print_rows_json(proa_out *out, const proa_result *r, const proa_info *info)
{
    bool hidden = proa_print_is_hidden(info);
    proa_out_str(out, hidden ? "\"hidden\":" : "\"logits\":");
    proa_out_json_rows(out, r->rows, r->rows_count, r->columns);
    if (!hidden) return;
    proa_out_str(out, ",\"pooled\":");
    if (r->pooled) proa_out_json_row(out, r->pooled, r->columns);
    else proa_out_str(out, "null");
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

/* Indices of the largest values, best first; returns how many (fewer only in a shorter row). NaN is never among them. */
static int largest(int32_t best[TOP], const float *row, int64_t count)
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

/* Columns on a terminal, near enough: code points. */
static int columns_of(const char *text)
{
    int n = 0;
    for (const char *c = text; *c; c++) n += ((unsigned char)*c & 0xC0) != 0x80;
    return n;
}

static void cell(proa_out *out, const char *text, int width)
{
    proa_out_str(out, text);
    for (int i = columns_of(text); i < width; i++) proa_out_str(out, " ");
}

void proa_print_top(proa_out *out, const proa_engine *engine, const proa_result *r, const int32_t *input,
                    int64_t input_count)
{
    char text[160], piece[64];
    for (int64_t i = 0; i < r->rows_count; i++) {
        int32_t best[TOP];
        const float *row = r->rows + i * r->columns;
        int n = largest(best, row, r->columns);
        bool known = input && i < input_count;
        if (known) proa_print_piece(piece, engine, input[i]);
        if (known) snprintf(text, sizeof text, "%4lld  %d %s", (long long)i, input[i], piece);
        else snprintf(text, sizeof text, "%4lld", (long long)i);
        cell(out, text, 24);
        for (int k = 0; k < n; k++) {
            proa_print_piece(piece, engine, best[k]);
            snprintf(text, sizeof text, "  %d %s %.3f", best[k], piece, (double)row[best[k]]);
            cell(out, text, 24);
        }
        proa_out_str(out, "\n");
    }
}

/* id2label of config.json: names that are worth showing. NULL without them. */
static proa_json *read_labels(proa_json **root, const char *model)
{
    char path[PROA_PATH_MAX];
    *root = NULL;
    if (proa_path_join(path, model, "config.json", NULL) != PROA_OK) return NULL;
    if (proa_json_load(root, path, PROA_CONFIG_BYTES_MAX, NULL) != PROA_OK) return NULL;
    return proa_json_get(*root, "id2label");
}

void proa_print_scores(proa_out *out, const proa_result *r, const char *model)
{
    proa_json *root, *labels = r->columns > 1 ? read_labels(&root, model) : (root = NULL);
    for (int64_t c = 0; c < r->columns; c++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)c);
        proa_str label = proa_json_str(proa_json_get(labels, key));
        if (r->columns > 1) {
            proa_out_bytes(out, label.len ? label.ptr : key, label.len ? label.len : strlen(key));
            proa_out_str(out, "\t");
        }
        proa_out_printf(out, "%.6g\n", (double)r->rows[c]);
    }
    proa_json_free(root);
}

static void hidden_row(proa_out *out, const char *name, const float *row, int64_t columns)
{
    double squares = 0;
    for (int64_t c = 0; c < columns; c++) squares += (double)row[c] * (double)row[c];
    proa_out_printf(out, "%8s  length %9.4f  [", name, sqrt(squares));
    for (int64_t c = 0; c < columns && c < HIDDEN_SHOWN; c++) proa_out_printf(out, "%9.4f", (double)row[c]);
    proa_out_str(out, columns > HIDDEN_SHOWN ? " ...]\n" : "]\n");
}

void proa_print_hidden(proa_out *out, const proa_result *r)
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
    fprintf(stderr, " · prompt %lld token%s\n", (long long)r->prompt_tokens, r->prompt_tokens == 1 ? "" : "s");
}
