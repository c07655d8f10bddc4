/* SPDX-License-Identifier: Apache-2.0
 * models.c - `proa help models`: the architectures that run, from the table of rows; `proa help heads`: the other
 * classes on their layers, one line for each row that has some. */
#include "cli/commands.h"
#include "model/derive.h"
#include "model/multimodal.h"

#include <stdio.h>
#include <string.h>

static const char *kind_name(const proa_arch *a)
{
    switch (a->kind) {
    case PROA_KIND_DECODER: return "decoder";
    case PROA_KIND_ENCODER: return "encoder";
    default: return "encoder-decoder";
    }
}

static const char *output_name(const proa_arch *a)
{
    if (a->kind != PROA_KIND_ENCODER) return "text";
    if (a->outputs == PROA_DIM_VOCAB) return "masked words";
    if (a->outputs == PROA_DIM_HIDDEN || proa_arch_projects(a)) return "hidden states";
    if (strstr(a->hf[0], "QuestionAnswering")) return "start and end scores";
    if (strstr(a->hf[0], "MultipleChoice")) return "a number";
    return a->head_rows == PROA_ROWS_ALL ? "a class for each token" : "a class or a number";
}

static void print_classes(const proa_arch *a, bool markdown)
{
    const char *quote = markdown ? "`" : "";
    for (const char *const *hf = a->hf; *hf; hf++)
        printf("%s%s%s%s", hf == a->hf ? "" : ", ", quote, *hf, quote);
}

/* Puts a row into rows[0, count), which is sorted by name. */
static void insert_row(const proa_arch **rows, int count, const proa_arch *row)
{
    int at = count;
    for (; at > 0 && strcmp(rows[at - 1]->name, row->name) > 0; at--) rows[at] = rows[at - 1];
    rows[at] = row;
}

static void print_rows(const proa_arch *const *rows, int count, bool markdown)
{
    if (markdown) printf("| row | `architectures` in config.json | kind | gives |\n|---|---|---|---|\n");
    for (int i = 0; i < count; i++) {
        const proa_arch *a = rows[i];
        printf(markdown ? "| %s | " : "%-14s ", a->name);
        if (!markdown) printf("%-16s %-22s ", kind_name(a), output_name(a));
        print_classes(a, markdown);
        if (markdown) printf(" | %s | %s |", kind_name(a), output_name(a));
        printf("\n");
    }
}

/* The classes of all forms, a form after the other. */
static void print_heads(const proa_arch *origin, bool markdown)
{
    bool first = true;
    for (const proa_arch *const *row = proa_arch_rows(); *row; row++) {
        if ((*row)->origin != origin) continue;
        printf("%s", first ? "" : ", ");
        print_classes(*row, markdown);
        first = false;
    }
}

static void print_origins(const proa_arch *const *rows, int count, bool markdown)
{
    if (markdown) printf("| row | `architectures` in config.json |\n|---|---|\n");
    for (int i = 0; i < count; i++) {
        printf(markdown ? "| %s | " : "%-17s ", rows[i]->name);
        print_heads(rows[i], markdown);
        printf(markdown ? " |\n" : "\n");
    }
}

/* The rows that are written and those of multimodal classes. Others are listed with the rows that they are made of. */
#define ONE(name) +1
enum { ROWS_MAX = PROA_ARCH_LIST(ONE) + PROA_MULTIMODAL_MAX };
#undef ONE

/* What `proa help models` lists (draft heads are no models), or the rows that have other classes, too. */
static int list_rows(const proa_arch *rows[ROWS_MAX], bool heads)
{
    int count = 0;
    for (const proa_arch *const *row = proa_arch_rows(); count < ROWS_MAX && *row; row++)
        if (heads ? (*row)->stems != NULL : !(*row)->of_target && !(*row)->origin)
            insert_row(rows, count++, *row);
    return count;
}

int proa_models_help_command(int argc, char **argv)
{
    const proa_arch *rows[ROWS_MAX];
    bool markdown = argc > 0 && strcmp(argv[0], "--markdown") == 0;
    if (argc > markdown) return proa_cli_fail(PROA_EXIT_USAGE, "'proa help models' takes --markdown only");
    print_rows(rows, list_rows(rows, false), markdown);
    return PROA_EXIT_OK;
}

int proa_heads_help_command(int argc, char **argv)
{
    const proa_arch *rows[ROWS_MAX];
    bool markdown = argc > 0 && strcmp(argv[0], "--markdown") == 0;
    if (argc > markdown) return proa_cli_fail(PROA_EXIT_USAGE, "'proa help heads' takes --markdown only");
    print_origins(rows, list_rows(rows, true), markdown);
    return PROA_EXIT_OK;
}
