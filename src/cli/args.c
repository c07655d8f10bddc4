/* SPDX-License-Identifier: Apache-2.0
 * args.c - parses the command line by tables of options, and prints help from the same tables. */
#include "cli/args.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cli/decoding.h"
#include "cli/hub.h"
#include "hub/cloud/cloud.h"
#include "cli/wrap.h"
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_MAX = 192, HELP_COLUMN = 28, VALUES_INDENT = 6 };

const char *proa_args_nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 3 + (int)(strlen(word) / 5);
    for (size_t i = 0; i < count; i++) {
        int distance = proa_str_distance(word, names[i]);
        size_t typed = strlen(word);
        /* a prefix of the name counts as near: --max for --max-tokens */
        if (typed >= 3 && strncmp(word, names[i], typed) == 0) distance = 1;
        /* two wrong letters of few are nearly another word: --port is no --lora */
        if (distance > 1 && typed < 6 && word[0] != names[i][0]) continue;
        if (distance < best_distance) best = names[i], best_distance = distance;
    }
    return best;
}

/* The option of this name, or the operand of this index; NULL if there is none. */
static const proa_arg *find_arg(const proa_command *command, const char *name, size_t len, int operand)
{
    for (const proa_arg_table *const *t = command->tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const proa_arg *arg = &(*t)->rows[i];
            if (proa_arg_is_operand(arg)) {
                if (!name && (operand-- == 0 || arg->kind == PROA_ARG_OPERANDS)) return arg;
            } else if (name && strlen(arg->name) == len && memcmp(arg->name, name, len) == 0) {
                return arg;
            }
        }
    return NULL;
}

static void set_presets(const proa_command *command, void *options)
{
    for (const proa_arg_table *const *t = command->tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const proa_arg *arg = &(*t)->rows[i];
            if (arg->preset) PROA_ASSERT(proa_arg_set(arg, options, arg->preset) == -1);
        }
}

/* Options of vLLM, llama.cpp, TensorRT-LLM and transformers, and what they are called here (docs/migration). */
static const char *const others[][2] = {{"beam-size", "beams"},
                                        {"beam-width", "beams"},
                                        {"ctx-size", "kv-tokens"},
                                        {"data-parallel-size", "replicas"},
                                        {"enable-expert-parallel", "expert-parallel"},
                                        {"enable-lora", "lora"},
                                        {"enable-prefix-caching", "prefix-cache"},
                                        {"gpu-memory-utilization", "kv-cache-free-gpu-mem-fraction"},
                                        {"host", "http-address"},
                                        {"kv-cache-dtype", "kv-dtype"},
                                        {"lora-modules", "lora"},
                                        {"max-batch-size", "sequences"},
                                        {"max-new-tokens", "max-tokens"},
                                        {"max-num-batched-tokens", "step-tokens"},
                                        {"max-num-seqs", "sequences"},
                                        {"n-gpu-layers", "device"},
                                        {"n-predict", "max-tokens"},
                                        {"num-beams", "beams"},
                                        {"parallel", "sequences"},
                                        {"pipeline-parallel-size", "pp"},
                                        {"port", "http-port"},
                                        {"pp-size", "pp"},
                                        {"quantization", "quant"},
                                        {"ssl-certfile", "http-cert"},
                                        {"ssl-keyfile", "http-key"},
                                        {"tensor-parallel-size", "tp"},
                                        {"tool-call-parser", "tool-parser"},
                                        {"tp-size", "tp"}};

static bool is_among(const char *word, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) return true;
    return false;
}

/* What the user of another engine means, else the name that is nearest; NULL if none is near. */
static const char *meant_name(const char *word, const char *const *names, size_t count)
{
    char dashed[64];
    snprintf(dashed, sizeof dashed, "%s", word);
    for (char *c = dashed; *c; c++)
        if (*c == '_') *c = '-';
    for (size_t i = 0; i < PROA_COUNT(others); i++)
        if (strcmp(dashed, others[i][0]) == 0 && is_among(others[i][1], names, count)) return others[i][1];
    return proa_args_nearest(dashed, names, count);
}

static int say_unknown(const proa_command *command, const char *name, size_t len)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), name);
    for (const proa_arg_table *const *t = command->tables; *t; t++)
        for (size_t i = 0; i < (*t)->count && count < NAMES_MAX; i++)
            if (!proa_arg_is_operand(&(*t)->rows[i])) names[count++] = (*t)->rows[i].name;
    proa_decoding_arg option[PROA_OPTION_COUNT];
    for (int i = 0; i < PROA_OPTION_COUNT && command->decoding && count < NAMES_MAX; i++) {
        proa_decoding_arg_of(&option[i], &proa_option_rows[i], NULL, 0);
        names[count++] = option[i].name;
    }
    for (size_t i = 0; command->decoding && proa_decoding_alias(i) && count < NAMES_MAX; i++)
        names[count++] = proa_decoding_alias(i);
    const char *near = meant_name(word, names, count);
    if (near)
        return proa_cli_fail(PROA_EXIT_USAGE, "unknown option '--%s' of 'proa %s' (did you mean '--%s'?)",
                             word, command->name, near);
    return proa_cli_fail(PROA_EXIT_USAGE, "unknown option '--%s' of 'proa %s' (see 'proa %s --help')", word,
                         command->name, command->name);
}

/* The value of the option at argv[*at]: after "=", or the next word, in which case *at moves on. NULL:
 * none. */
static const char *value_of(const proa_arg *arg, const char *joined, int argc, char **argv, int *at)
{
    if (joined || arg->kind == PROA_ARG_FLAG) return joined;
    bool has_next = *at + 1 < argc;
    if (arg->kind == PROA_ARG_OPTIONAL_TEXT && (!has_next || strncmp(argv[*at + 1], "--", 2) == 0)) return "";
    bool value;
    if (arg->kind == PROA_ARG_BOOL && (!has_next || !proa_arg_is_bool(&value, argv[*at + 1]))) return NULL;
    return has_next ? argv[++*at] : NULL;
}

static int parse_option(const proa_command *command, void *options, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    if (len == 4 && memcmp(name, "help", 4) == 0) return proa_args_help(command), PROA_EXIT_OK;
    const proa_arg *arg = find_arg(command, name, len, -1);
    const proa_option_row *row = NULL;
    proa_decoding_arg option;
    if (!arg && command->decoding) row = proa_decoding_find(name, len);
    if (row) proa_decoding_arg_of(&option, row, name, len), arg = &option.arg;
    if (!arg) return say_unknown(command, name, len);
    bool joined = name[len] == '=', flag = arg->kind == PROA_ARG_FLAG;
    if (flag && joined) return proa_cli_fail(PROA_EXIT_USAGE, "--%s takes no value", arg->name);
    const char *text = value_of(arg, joined ? name + len + 1 : NULL, argc, argv, at);
    if (!flag && arg->kind != PROA_ARG_BOOL && !text)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s needs a value: %s", arg->name, arg->value);
    if (!row) return proa_arg_set(arg, options, text);
    return proa_decoding_set((void *)((char *)options + command->decoding), row, arg, text);
}

static int parse_operand(const proa_command *command, void *options, const char *text, int index)
{
    const proa_arg *arg = find_arg(command, NULL, 0, index);
    if (!arg)
        return proa_cli_fail(PROA_EXIT_USAGE,
                             "'%s' is one argument too many for 'proa %s' (quote a prompt of several words)",
                             text, command->name);
    return proa_arg_set(arg, options, text);
}

/* One word that is not a value; -1 or the exit status. */
static int parse_word(const proa_command *command, void *options, int argc, char **argv, int *at, int *operands)
{
    const char *word = argv[*at];
    if (strcmp(word, "-h") == 0) return proa_args_help(command), PROA_EXIT_OK;
    if (strncmp(word, "--", 2) == 0) return parse_option(command, options, argc, argv, at);
    if (word[0] == '-' && isalpha((unsigned char)word[1]))
        return proa_cli_fail(PROA_EXIT_USAGE, "unknown option '%s' of 'proa %s' (options have two dashes)",
                             word, command->name);
    return parse_operand(command, options, word, (*operands)++);
}

/* Whether an option anywhere on the command line gives the first operand. */
static bool stands_in(const proa_command *command, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0) continue;
        const proa_arg *arg = find_arg(command, argv[i] + 2, strcspn(argv[i] + 2, "="), -1);
        if (arg && arg->kind == PROA_ARG_OPERAND_ALIAS) return true;
    }
    return false;
}

/* A path, or NAME=PATH of an adapter. */
static proa_status find_model(const char **text, const proa_arg *arg, proa_err *err)
{
    if (arg->min == PROA_ARG_REPOSITORY && *text && proa_cloud_is_address(*text)) return PROA_OK;
    const char *equals = *text ? strchr(*text, '=') : NULL, *path = equals ? equals + 1 : *text;
    if (!path || !*path) return PROA_OK;
    const char *given = path;
    PROA_TRY(proa_cli_find_model(&path, err));
    if (path == given || !equals) return *text = equals ? *text : path, PROA_OK;
    size_t name = (size_t)(given - *text), size = name + strlen(path) + 1;
    char *joined = proa_malloc(size); /* lives as long as argv */
    snprintf(joined, size, "%.*s%s", (int)name, *text, path);
    *text = joined;
    return PROA_OK;
}

/* Models that are named as on a hub become paths; what is not in the cache is downloaded. */
static int find_models(const proa_command *command, void *options)
{
    proa_err err = {0};
    for (const proa_arg_table *const *t = command->tables; *t; t++)
        for (size_t i = 0; i < (*t)->count; i++) {
            const proa_arg *arg = &(*t)->rows[i];
            void *field = (char *)options + arg->offset;
            bool models = arg->min == PROA_ARG_MODEL || arg->min == PROA_ARG_REPOSITORY;
            if (!models || arg->kind == PROA_ARG_INT || arg->kind == PROA_ARG_REAL) continue;
            bool list = arg->kind == PROA_ARG_LIST || arg->kind == PROA_ARG_OPERANDS;
            proa_arg_list *texts = field;
            for (int k = 0; list && k < texts->count; k++)
                if (find_model(&texts->items[k], arg, &err) != PROA_OK) return proa_cli_fail_err(&err);
            if (!list && find_model(field, arg, &err) != PROA_OK) return proa_cli_fail_err(&err);
        }
    return -1;
}

int proa_args_parse(const proa_command *command, void *options, int argc, char **argv)
{
    set_presets(command, options);
    int operands = stands_in(command, argc, argv) ? 1 : 0, exit_status = -1;
    bool only_operands = false;
    for (int i = 0; i < argc && exit_status < 0; i++) {
        if (only_operands) exit_status = parse_operand(command, options, argv[i], operands++);
        else if (strcmp(argv[i], "--") == 0) only_operands = true;
        else exit_status = parse_word(command, options, argc, argv, &i, &operands);
    }
    if (exit_status >= 0) return exit_status;
    const proa_arg *missing = find_arg(command, NULL, 0, operands);
    if (missing && missing->name[0] != '[' && (missing->kind == PROA_ARG_OPERAND || operands == 0))
        return proa_cli_fail(PROA_EXIT_USAGE, "'proa %s' needs %s: %s", command->name, missing->name,
                             missing->help);
    return find_models(command, options);
}

/* The help of a row with its default, as one line. */
static void describe_row(char *out, size_t size, const proa_arg *arg)
{
    const char *help = arg->help ? arg->help : "";
    if (arg->preset && arg->preset[0])
        snprintf(out, size, "%s%s(default %s)", help, help[0] ? " " : "", arg->preset);
    else snprintf(out, size, "%s", help);
}

/* Prints an option with its value. A list of values that is wider than the terminal is broken after a '|'. */
static void print_option(const char *text, int columns)
{
    int room = columns;
    while ((int)strlen(text) > room) {
        int cut = room;
        while (cut > 0 && text[cut - 1] != '|') cut--;
        if (cut == 0) break;
        printf("%.*s\n%*s", cut, text, VALUES_INDENT, "");
        text += cut;
        room = columns - VALUES_INDENT;
    }
    printf("%s", text);
}

static void help_row(void *arg_columns, const proa_arg *arg)
{
    int columns = *(int *)arg_columns;
    char left[128], right[1024];
    bool bracket = arg->name[0] == '[';
    if (proa_arg_is_operand(arg))
        snprintf(left, sizeof left, "  %.*s", (int)strcspn(arg->name + bracket, "]"), arg->name + bracket);
    else if (arg->kind == PROA_ARG_FLAG) snprintf(left, sizeof left, "  --%s", arg->name);
    else if (arg->kind == PROA_ARG_OPTIONAL_TEXT)
        snprintf(left, sizeof left, "  --%s [%s]", arg->name, arg->value);
    else snprintf(left, sizeof left, "  --%s %s", arg->name, arg->value);
    print_option(left, columns);
    if (strlen(left) + 1 > HELP_COLUMN) printf("\n%*s", HELP_COLUMN, "");
    else printf("%*s", HELP_COLUMN - (int)strlen(left), "");
    describe_row(right, sizeof right, arg);
    proa_print_wrapped(right, HELP_COLUMN, HELP_COLUMN, columns);
}

/* The decoding options as rows, except those that a table of the command has. */
static void walk_decoding(const proa_command *command, const proa_args_visitor *visitor)
{
    if (!command->decoding) return;
    visitor->title(visitor->arg, command->decoding_title);
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        proa_decoding_arg option;
        proa_decoding_arg_of(&option, &proa_option_rows[i], NULL, 0);
        /* a default of 0 is not printed: the help explains what 0 means */
        if (strcmp(option.preset, "0") == 0) option.arg.preset = NULL;
        if (!find_arg(command, option.name, strlen(option.name), -1)) visitor->row(visitor->arg, &option.arg);
    }
}

void proa_args_walk(const proa_command *command, const proa_args_visitor *visitor)
{
    for (const proa_arg_table *const *t = command->tables; *t; t++) {
        visitor->title(visitor->arg, (*t)->title);
        for (size_t i = 0; i < (*t)->count; i++) visitor->row(visitor->arg, &(*t)->rows[i]);
        if (t == command->tables) walk_decoding(command, visitor);
    }
}

int proa_help_columns(void)
{
    int columns = proa_terminal_columns(STDOUT_FILENO);
    return columns < HELP_COLUMN + 32 ? HELP_COLUMN + 32 : columns < 120 ? columns : 120;
}

static void help_title(void *columns, const char *title)
{
    putchar('\n');
    proa_print_wrapped(title, 0, 0, *(int *)columns);
}

void proa_args_usage(char *out, size_t size, const proa_command *command)
{
    const proa_arg *arg;
    snprintf(out, size, "proa %s", command->name);
    for (int i = 0; (arg = find_arg(command, NULL, 0, i)); i++) {
        bool last = arg->kind == PROA_ARG_OPERANDS;
        size_t len = strlen(out);
        snprintf(out + len, size - len, last ? " %s..." : " %s", arg->name);
        if (last) break;
    }
    size_t len = strlen(out);
    snprintf(out + len, size - len, " [options]");
}

void proa_args_help(const proa_command *command)
{
    char usage[256];
    int columns = proa_help_columns();
    proa_args_visitor visitor = {help_title, help_row, &columns};
    signal(SIGPIPE, SIG_DFL); /* `proa run --help | head` ends like other programs */
    proa_args_usage(usage, sizeof usage, command);
    printf("usage: %s\n\n", usage);
    proa_print_wrapped(command->summary, 0, 0, columns);
    proa_args_walk(command, &visitor);
    if (command->examples) printf("\nexamples\n%s", command->examples);
}

proa_status proa_args_numbers(int32_t **out, int64_t *count, const char *text, const char *what, int32_t min,
                              int32_t max, int64_t count_max, proa_err *err)
{
    int64_t cap = 0;
    *out = NULL;
    *count = 0;
    for (const char *c = text;;) {
        c += strspn(c, " ,\t\r\n");
        if (!*c) return PROA_OK;
        char *end;
        errno = 0;
        long long value = strtoll(c, &end, 10);
        int len = (int)strcspn(c, " ,\t\r\n");
        if (end != c + len || len > 20)
            return PROA_FAIL(err, INVALID, "%s: '%.*s' is not a whole number", what, len < 20 ? len : 20, c);
        if (errno || value < min || value > max)
            return PROA_FAIL(err, INVALID, "%s: %.*s is outside %d..%d", what, len, c, min, max);
        if (*count == count_max)
            return PROA_FAIL(err, LIMIT, "%s: more than %lld numbers", what, (long long)count_max);
        if (*count == cap) *out = proa_realloc(*out, (size_t)(cap = cap ? 2 * cap : 64) * sizeof **out);
        (*out)[(*count)++] = (int32_t)value;
        c = end;
    }
}
