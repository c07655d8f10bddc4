/* SPDX-License-Identifier: Apache-2.0
 * decoding.c - the engine's table of decoding options as command-line options and as help. */
#include "cli/decoding.h"

#include "base/file.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    proa_option option;
} aliases[] = {{"beam-style", PROA_OPTION_style}, {"stop", PROA_OPTION_stop_strings}};

void proa_decoding_init(proa_decoding *d)
{
    *d = (proa_decoding){.options = {.given = {false}}};
    proa_arena_init(&d->arena);
}

void proa_decoding_release(proa_decoding *d)
{
    proa_arena_release(&d->arena);
}

const char *proa_decoding_alias(size_t i)
{
    return i < PROA_COUNT(aliases) ? aliases[i].name : NULL;
}

const proa_option_row *proa_decoding_find(const char *name, size_t len)
{
    for (size_t i = 0; i < PROA_COUNT(aliases); i++)
        if (strlen(aliases[i].name) == len && memcmp(aliases[i].name, name, len) == 0)
            return &proa_option_rows[aliases[i].option];
    return proa_option_find((proa_str){name, len}, NULL);
}

/* The placeholder of the value in the help; for choices the choices. */
static const char *option_placeholder(const proa_option_row *row)
{
    switch (row->kind) {
    case PROA_OPTION_KIND_INT:
    case PROA_OPTION_KIND_U64: return "N";
    case PROA_OPTION_KIND_FLOAT: return "X";
    case PROA_OPTION_KIND_BOOL: return NULL;
    case PROA_OPTION_KIND_STYLE: return "hf|ft|trtllm";
    case PROA_OPTION_KIND_EARLY: return "false|true|never";
    case PROA_OPTION_KIND_IDS:
    case PROA_OPTION_KIND_TOKENS: return "\"2 5\"";
    case PROA_OPTION_KIND_WORDS: return row->option == PROA_OPTION_allowed_words ? "IDS" : "IDS|TEXT";
    case PROA_OPTION_KIND_STRINGS: return "TEXT";
    case PROA_OPTION_KIND_TEXT:
        if (row->option == PROA_OPTION_adapter) return "NAME";
        return row->option == PROA_OPTION_regex ? "REGEX" : "TEXT|@FILE";
    case PROA_OPTION_KIND_BIAS:
    case PROA_OPTION_KIND_SEQUENCE_BIAS: return "JSON";
    }
    return "VALUE";
}

static proa_arg_kind arg_kind(proa_option_kind kind)
{
    switch (kind) {
    case PROA_OPTION_KIND_INT: return PROA_ARG_INT;
    case PROA_OPTION_KIND_FLOAT: return PROA_ARG_REAL;
    case PROA_OPTION_KIND_BOOL: return PROA_ARG_FLAG;
    case PROA_OPTION_KIND_STYLE:
    case PROA_OPTION_KIND_EARLY: return PROA_ARG_CHOICE;
    case PROA_OPTION_KIND_U64:
    case PROA_OPTION_KIND_IDS:
    case PROA_OPTION_KIND_WORDS:
    case PROA_OPTION_KIND_STRINGS:
    case PROA_OPTION_KIND_BIAS:
    case PROA_OPTION_KIND_TOKENS:
    case PROA_OPTION_KIND_SEQUENCE_BIAS:
    case PROA_OPTION_KIND_TEXT: break;
    }
    return PROA_ARG_TEXT;
}

/* "" if there is no default worth printing: lists are empty, flags are off. */
static void default_of(char out[32], const proa_option_row *row)
{
    out[0] = '\0';
    if (row->kind == PROA_OPTION_KIND_STYLE) snprintf(out, 32, "hf");
    else if (row->option == PROA_OPTION_temperature) snprintf(out, 32, "0; ft, trtllm: 1");
    else if (row->option == PROA_OPTION_top_p) snprintf(out, 32, "1; ft, trtllm: 0");
    else if (row->option == PROA_OPTION_length_penalty) snprintf(out, 32, "1; ft, trtllm: 0");
    else if (row->option == PROA_OPTION_early_stopping) snprintf(out, 32, "false; trtllm: true");
    else if (row->option == PROA_OPTION_best_of) snprintf(out, 32, "n");
    else if (row->kind <= PROA_OPTION_KIND_U64) snprintf(out, 32, "%g", row->fallback);
}

void proa_decoding_arg_of(proa_decoding_arg *out, const proa_option_row *row, const char *name, size_t len)
{
    *out = (proa_decoding_arg){.arg = {.kind = arg_kind(row->kind)}};
    snprintf(out->name, sizeof out->name, "%.*s", name ? (int)len : 47, name ? name : row->name);
    for (char *c = out->name; *c; c++)
        if (*c == '_') *c = '-';
    out->arg.name = out->name;
    out->arg.min = (int64_t)row->min;
    out->arg.max = (int64_t)row->max;
    out->arg.value = option_placeholder(row);
    default_of(out->preset, row);
    if (out->preset[0]) out->arg.preset = out->preset;
    snprintf(out->help, sizeof out->help, "%s", row->help);
    for (size_t i = 0; i < PROA_COUNT(aliases); i++)
        if (aliases[i].option == row->option)
            snprintf(out->help, sizeof out->help, "%s (also --%s)", row->help, aliases[i].name);
    out->arg.help = out->help;
}

/* --stop-words and --banned-words also take text: a value that is no list of ids goes to --stop-strings or
 * --banned-strings. */
static const proa_option_row *row_of_value(const proa_option_row *row, const char *text)
{
    if (text[0] == '[') return row;
    if (row->option == PROA_OPTION_stop_words) return &proa_option_rows[PROA_OPTION_stop_strings];
    if (row->option == PROA_OPTION_banned_words) return &proa_option_rows[PROA_OPTION_banned_strings];
    return row;
}

/* A schema or a grammar from a file: @FILE. False: the file cannot be read. */
static bool read_text_file(proa_decoding *d, const proa_option_row *row, const char **text, proa_err *err)
{
    bool file = (row->option == PROA_OPTION_json_schema || row->option == PROA_OPTION_grammar) &&
                (*text)[0] == '@';
    proa_buf content;
    if (!file) return true;
    proa_status status = proa_file_read(&content, *text + 1, PROA_GRAMMAR_BYTES_MAX, err);
    if (status == PROA_OK) *text = proa_arena_strdup(&d->arena, proa_buf_view(&content));
    proa_buf_release(&content);
    return status == PROA_OK;
}

int proa_decoding_set(proa_decoding *d, const proa_option_row *row, const proa_arg *arg, const char *text)
{
    /* parsed and checked like other options, so that errors look alike; then written as valid JSON (no
     * ".5") */
    union {
        bool flag;
        int64_t whole;
        double real;
        const char *text;
    } value;
    char number[40];
    int exit_status = proa_arg_set(arg, &value, text);
    if (exit_status >= 0) return exit_status;
    if (arg->kind == PROA_ARG_FLAG) text = "true";
    if (arg->kind == PROA_ARG_INT) snprintf(number, sizeof number, "%lld", (long long)value.whole);
    if (arg->kind == PROA_ARG_REAL) snprintf(number, sizeof number, "%.17g", value.real);
    if (arg->kind == PROA_ARG_INT || arg->kind == PROA_ARG_REAL) text = number;
    proa_err err = {0};
    if (read_text_file(d, row, &text, &err) &&
        proa_options_set(&d->options, row_of_value(row, text), proa_str_c(text), &d->arena, &err) == PROA_OK) {
        d->texts[row_of_value(row, text)->option] = proa_arena_strdup(&d->arena, proa_str_c(text));
        return -1;
    }
    return proa_cli_fail(PROA_EXIT_USAGE, "%s", err.text);
}

/* ---- proa help decoding ---- */

enum { COLUMNS = 8, CELL = 200 };
static const char *const titles[COLUMNS] = {"option", "what it does",      "default",
                                            "range",  "FasterTransformer", "TensorRT-LLM",
                                            "OpenAI", "transformers"};

static void range_of(char out[CELL], const proa_option_row *row)
{
    out[0] = '\0';
    if (row->kind == PROA_OPTION_KIND_U64) snprintf(out, CELL, "64 bits");
    else if (row->kind == PROA_OPTION_KIND_BOOL) snprintf(out, CELL, "true, false");
    else if (row->kind == PROA_OPTION_KIND_STYLE) snprintf(out, CELL, "hf, ft, trtllm");
    else if (row->kind == PROA_OPTION_KIND_EARLY) snprintf(out, CELL, "false, true, never");
    else if (row->kind == PROA_OPTION_KIND_STRINGS) snprintf(out, CELL, "texts");
    else if (row->kind == PROA_OPTION_KIND_TEXT) snprintf(out, CELL, "a text");
    else if (row->kind == PROA_OPTION_KIND_WORDS) snprintf(out, CELL, "lists of ids");
    else if (row->kind == PROA_OPTION_KIND_TOKENS) snprintf(out, CELL, "list of ids");
    else if (row->kind == PROA_OPTION_KIND_IDS) snprintf(out, CELL, "up to %d ids", PROA_END_IDS_MAX);
    else snprintf(out, CELL, "%s%.10g to %.10g", row->min_open ? "above " : "", row->min, row->max);
}

static void cells_of(char cell[COLUMNS][CELL], const proa_option_row *row, bool markdown)
{
    const char *const names[] = {row->ft, row->trtllm, row->openai, row->hf};
    char preset[32];
    default_of(preset, row);
    if (row->kind == PROA_OPTION_KIND_BOOL) snprintf(preset, sizeof preset, "false");
    snprintf(cell[0], CELL, markdown ? "`%s`" : "%s", row->name);
    snprintf(cell[1], CELL, "%s", row->help);
    snprintf(cell[2], CELL, "%s", preset);
    range_of(cell[3], row);
    for (int i = 0; i < 4; i++) snprintf(cell[4 + i], CELL, "%s", names[i] ? names[i] : "");
}

/* A cell of a Markdown table, in which a bar would begin the next one. */
static void print_cell(const char *text)
{
    printf("| ");
    for (const char *c = text; *c; c++) printf(*c == '|' ? "\\|" : "%c", *c);
    if (text[0]) printf(" ");
}

static void print_markdown(void)
{
    char cell[COLUMNS][CELL];
    for (int c = 0; c < COLUMNS; c++) printf("| %s ", titles[c]);
    printf("|\n");
    for (int c = 0; c < COLUMNS; c++) printf("|---");
    printf("|\n");
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        cells_of(cell, &proa_option_rows[i], true);
        for (int c = 0; c < COLUMNS; c++) print_cell(cell[c]);
        printf("|\n");
    }
}

static void print_aligned(void)
{
    char cell[COLUMNS][CELL];
    int width[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) width[c] = (int)strlen(titles[c]);
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        cells_of(cell, &proa_option_rows[i], false);
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(cell[c]) > width[c]) width[c] = (int)strlen(cell[c]);
    }
    for (int i = -1; i < PROA_OPTION_COUNT; i++) {
        if (i >= 0) cells_of(cell, &proa_option_rows[i], false);
        for (int c = 0; c < COLUMNS; c++)
            printf("%-*s%s", c + 1 < COLUMNS ? width[c] : 0, i < 0 ? titles[c] : cell[c],
                   c + 1 < COLUMNS ? "  " : "\n");
    }
}

int proa_decoding_help_command(int argc, char **argv)
{
    bool markdown = argc > 0 && strcmp(argv[0], "--markdown") == 0;
    if (argc > markdown) return proa_cli_fail(PROA_EXIT_USAGE, "'proa help decoding' takes --markdown only");
    if (markdown) print_markdown();
    else print_aligned();
    return PROA_EXIT_OK;
}
