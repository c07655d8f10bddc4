/* SPDX-License-Identifier: Apache-2.0
 * tables_json.c - `proa help [COMMAND] --json`: the tables of the help for programs that print them in another form. */
#include "cli/commands.h"
#include "cli/output.h"
#include "proa/proa.h"

#include <string.h>

typedef struct json_help {
    proa_output *out;
    int tables, rows; /* written so far: of this command, of this table */
} json_help;

static void put_key(proa_output *out, const char *key, const char *text)
{
    proa_output_printf(out, ",\"%s\":", key);
    if (text && text[0]) proa_output_json_str(out, proa_str_c(text));
    else proa_output_str(out, "null");
}

static void put_title(void *arg, const char *title)
{
    json_help *h = arg;
    proa_output_str(h->out, h->tables++ ? "]},{\"title\":" : "{\"title\":");
    proa_output_json_str(h->out, proa_str_c(title));
    proa_output_str(h->out, ",\"rows\":[");
    h->rows = 0;
}

static void put_row(void *arg, const proa_arg *row)
{
    json_help *h = arg;
    bool operand = proa_arg_is_operand(row), optional = row->name[0] == '[';
    char name[64];
    snprintf(name, sizeof name, "%s%.*s", operand ? "" : "--", (int)strcspn(row->name + optional, "]"),
             row->name + optional);
    proa_output_str(h->out, h->rows++ ? ",{\"name\":" : "{\"name\":");
    proa_output_json_str(h->out, proa_str_c(name));
    put_key(h->out, "value", row->kind == PROA_ARG_FLAG || operand ? NULL : row->value);
    proa_output_printf(h->out, ",\"value_optional\":%s",
                       row->kind == PROA_ARG_OPTIONAL_TEXT || row->kind == PROA_ARG_BOOL ? "true" : "false");
    put_key(h->out, "default", row->preset);
    put_key(h->out, "help", row->help);
    proa_output_str(h->out, "}");
}

static void put_command(proa_output *out, const proa_command *command)
{
    json_help help = {.out = out};
    proa_args_visitor visitor = {put_title, put_row, &help};
    char usage[256];
    proa_output_str(out, "{\"name\":");
    proa_output_json_str(out, proa_str_c(command->name));
    put_key(out, "summary", command->summary);
    proa_args_usage(usage, sizeof usage, command);
    put_key(out, "usage", usage);
    put_key(out, "examples", command->examples);
    proa_output_str(out, ",\"tables\":[");
    proa_args_walk(command, &visitor);
    proa_output_str(out, "]}]}");
}

int proa_help_json(const proa_command *const *commands, size_t count)
{
    proa_output out;
    proa_err err = {0};
    if (proa_output_open(&out, NULL, &err) != PROA_OK) return proa_cli_fail_err(&err);
    proa_output_printf(&out, "{\"version\":\"%s\",\"commands\":[", proa_version());
    for (size_t i = 0; i < count; i++) {
        if (i) proa_output_str(&out, ",");
        put_command(&out, commands[i]);
    }
    proa_output_str(&out, "]}\n");
    return proa_output_close(&out, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}
