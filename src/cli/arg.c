/* SPDX-License-Identifier: Apache-2.0
 * arg.c - checks the value of one option and stores it, and prints the one line of an error. */
#include "cli/arg.h"

#include "kernels/device_name.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

int proa_cli_fail(int exit_status, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* control characters of the input must not break the line */
    fprintf(stderr, "proa: %s\n", text);
    return exit_status;
}

int proa_cli_fail_err(const proa_err *err)
{
    int exit_status = err->status == PROA_CANCELLED ? PROA_EXIT_INTERRUPTED : PROA_EXIT_FAILED;
    return proa_cli_fail(exit_status, "%s", err->text[0] ? err->text : proa_status_text(err->status));
}

bool proa_arg_is_operand(const proa_arg *arg)
{
    return arg->kind == PROA_ARG_OPERAND || arg->kind == PROA_ARG_OPERANDS;
}

static bool choice_has(const char *choices, const char *word)
{
    size_t len = strlen(word);
    for (const char *c = choices; *c;) {
        size_t n = strcspn(c, "|");
        if (n == len && memcmp(c, word, n) == 0) return true;
        c += n + (c[n] == '|');
    }
    return false;
}

static int set_int(const proa_arg *arg, char *field, const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s '%s' is not a whole number (%lld..%lld)", arg->name, text,
                             (long long)arg->min, (long long)arg->max);
    if (errno || value < arg->min || value > arg->max)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s %s is outside %lld..%lld", arg->name, text,
                             (long long)arg->min, (long long)arg->max);
    *(int64_t *)(void *)field = value;
    return -1;
}

static int set_real(const proa_arg *arg, char *field, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || isnan(value))
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s '%s' is not a number (%lld..%lld)", arg->name, text,
                             (long long)arg->min, (long long)arg->max);
    if (value < (double)arg->min || value > (double)arg->max)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s %s is outside %lld..%lld", arg->name, text,
                             (long long)arg->min, (long long)arg->max);
    *(double *)(void *)field = value;
    return -1;
}

bool proa_arg_is_bool(bool *value, const char *text)
{
    *value = strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0;
    return *value || strcasecmp(text, "false") == 0 || strcmp(text, "0") == 0;
}

static int set_bool(const proa_arg *arg, char *field, const char *text)
{
    bool value = true;
    if (text && !proa_arg_is_bool(&value, text))
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s '%s' is neither true nor false", arg->name, text);
    *(bool *)(void *)field = value;
    return -1;
}

/* At most one option of a command line gives the first operand, so one text is enough. */
static int set_operand_alias(const proa_arg *arg, char *field, const char *text)
{
    static char operand[128];
    if (strlen(arg->name) + strlen(text) + 2 > sizeof operand)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s '%.40s...' is no %s", arg->name, text, arg->value);
    snprintf(operand, sizeof operand, "%s:%s", arg->name, text);
    *(const char **)(void *)field = operand;
    return -1;
}

static int add_to_list(const proa_arg *arg, char *field, const char *text)
{
    proa_arg_list *list = (void *)field;
    if (list->count == PROA_ARG_LIST_MAX)
        return proa_cli_fail(PROA_EXIT_USAGE, "more than %d of '%s'", PROA_ARG_LIST_MAX, arg->name);
    list->items[list->count++] = text;
    return -1;
}

static int set_device(const proa_arg *arg, char *field, const char *text)
{
    proa_err err = {0};
    int gpu;
    if (proa_device_parse(&gpu, text, &err) != PROA_OK)
        return proa_cli_fail(PROA_EXIT_USAGE, "--%s: %s", arg->name, err.text);
    *(const char **)(void *)field = text;
    return -1;
}

int proa_arg_set(const proa_arg *arg, void *options, const char *text)
{
    char *field = (char *)options + arg->offset;
    switch (arg->kind) {
    case PROA_ARG_FLAG: *(bool *)(void *)field = true; return -1;
    case PROA_ARG_BOOL: return set_bool(arg, field, text);
    case PROA_ARG_OPERAND_ALIAS: return set_operand_alias(arg, field, text);
    case PROA_ARG_LIST:
    case PROA_ARG_OPERANDS: return add_to_list(arg, field, text);
    case PROA_ARG_INT: return set_int(arg, field, text);
    case PROA_ARG_REAL: return set_real(arg, field, text);
    case PROA_ARG_DEVICE: return set_device(arg, field, text);
    case PROA_ARG_CHOICE:
        if (!choice_has(arg->value, text))
            return proa_cli_fail(PROA_EXIT_USAGE, "--%s '%s' is none of %s", arg->name, text, arg->value);
        break;
    case PROA_ARG_TEXT:
    case PROA_ARG_OPTIONAL_TEXT:
    case PROA_ARG_OPERAND: break;
    }
    *(const char **)(void *)field = text;
    return -1;
}
