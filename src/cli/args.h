/* SPDX-License-Identifier: Apache-2.0
 * args.h - options and operands of a command as rows of a table: parsing, checking and the help text read the
 * same rows.
 * Owner:   texts point into argv or into the table; nothing is copied.
 * Threads: main's only.
 * Way in:  a command's options struct starts with the fields of the tables it lists; proa_args_parse fills it. */
#ifndef PROA_CLI_ARGS_H
#define PROA_CLI_ARGS_H

#include "cli/arg.h"

typedef struct proa_command proa_command;
struct proa_command {
    const char *name, *summary;
    const char *examples;                /* lines, each ending in a newline */
    const proa_arg_table *const *tables; /* ends with NULL */
    size_t decoding;                     /* offset of a proa_decoding; 0: takes no such options */
    const char *decoding_title;          /* of these in the help */
    int (*run)(const proa_command *self, int argc, char **argv); /* argv after the command's name; the exit status */
};

/* Fills *options with the defaults and then from argv. Returns -1 if the command should continue, else the
 * exit status: help was printed, or an error was reported in one line. */
PROA_MUST_CHECK int proa_args_parse(const proa_command *command, void *options, int argc, char **argv);
/* Prints the help of a command to standard output. Texts are wrapped to proa_help_columns. */
void proa_args_help(const proa_command *command);
/* "proa NAME OPERANDS [options]" */
void proa_args_usage(char *out, size_t size, const proa_command *command);

/* What the help of a command lists, in its order: each title, then the rows below it. A row lives until row returns. */
typedef struct proa_args_visitor {
    void (*title)(void *arg, const char *title);
    void (*row)(void *arg, const proa_arg *row);
    void *arg;
} proa_args_visitor;
void proa_args_walk(const proa_command *command, const proa_args_visitor *visitor);

int proa_help_columns(void); /* of the terminal on standard output, 60 to 120; 80 if it is no terminal */
/* Parses numbers separated by spaces or commas, each in [min, max], at most count_max of them. The caller
 * frees *out. */
PROA_MUST_CHECK proa_status proa_args_numbers(int32_t **out, int64_t *count, const char *text, const char *what,
                                              int32_t min, int32_t max, int64_t count_max, proa_err *err);

/* The nearest of `count` names (read with stride bytes between their pointers), or NULL if none is near. */
const char *proa_args_nearest(const char *word, const char *const *names, size_t count);

#endif
