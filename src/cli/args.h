/* SPDX-License-Identifier: Apache-2.0
 * args.h - options and operands of a command as rows of a table: parsing, checking and the help text read the
 * same rows.
 * Owner:   texts point into argv or into the table; nothing is copied.
 * Threads: main's only.
 * Way in:  a command's options struct starts with the fields of the tables it lists; proa_args_parse fills it. */
#ifndef PROA_CLI_ARGS_H
#define PROA_CLI_ARGS_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses: 0 only on success. */
enum { PROA_EXIT_OK = 0, PROA_EXIT_FAILED = 1, PROA_EXIT_USAGE = 2, PROA_EXIT_INTERRUPTED = 130 };

typedef enum proa_arg_kind {
    PROA_ARG_FLAG,          /* bool; takes no value */
    PROA_ARG_INT,           /* int64_t in [min, max] */
    PROA_ARG_REAL,          /* double in [min, max] */
    PROA_ARG_TEXT,          /* const char * */
    PROA_ARG_OPTIONAL_TEXT, /* const char *: the next word, or "" if there is none or it begins with two dashes */
    PROA_ARG_CHOICE,        /* const char *: one of the words that `value` lists between bars */
    PROA_ARG_DEVICE,        /* const char *: cpu, cuda or cuda:N */
    PROA_ARG_BOOL, /* bool: true or false (1 or 0) after "=" or as the next word; true without a value */
    PROA_ARG_LIST, /* proa_arg_list: may be given more than once */
    PROA_ARG_OPERAND_ALIAS, /* const char *: "--NAME VALUE" replaces the first operand by "NAME:VALUE" */
    PROA_ARG_OPERAND,       /* const char *: given by position */
    PROA_ARG_OPERANDS       /* proa_arg_list: all further operands; the last row of its kind */
} proa_arg_kind;

/* Models may be named as on a hub: proa_args_parse replaces ORG/NAME by a path (cli/hub.h). */
enum { PROA_ARG_MODEL = 1, PROA_ARG_REPOSITORY = 2 };

enum { PROA_ARG_LIST_MAX = 256 };
typedef struct proa_arg_list {
    const char *items[PROA_ARG_LIST_MAX];
    int count;
} proa_arg_list;

typedef struct proa_arg {
    const char *name; /* without the dashes; for an operand the word in the usage line, in brackets if it is optional */
    proa_arg_kind kind;
    size_t offset;      /* of the field in the command's options struct */
    int64_t min, max;   /* of a number; a text or list whose min is PROA_ARG_MODEL names models, and
                           with PROA_ARG_REPOSITORY repositories too, whose addresses in clouds stay as they are */
    const char *value;  /* the placeholder, or the choices "a|b" */
    const char *preset; /* the default as text; NULL: zero */
    const char *help;   /* one sentence; it is wrapped, and the default is appended */
} proa_arg;

typedef struct proa_arg_table {
    const char *title;
    const proa_arg *rows;
    size_t count;
} proa_arg_table;
#define PROA_ARG_TABLE(title, rows)                                                                          \
    {                                                                                                        \
        (title), (rows), sizeof(rows) / sizeof((rows)[0])                                                    \
    }

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
bool proa_arg_is_operand(const proa_arg *arg); /* given by position */

/* What the help of a command lists, in its order: each title, then the rows below it. A row lives until row returns. */
typedef struct proa_args_visitor {
    void (*title)(void *arg, const char *title);
    void (*row)(void *arg, const proa_arg *row);
    void *arg;
} proa_args_visitor;
void proa_args_walk(const proa_command *command, const proa_args_visitor *visitor);

int proa_help_columns(void); /* of the terminal on standard output, 60 to 120; 80 if it is no terminal */
/* Stores one option's text in its field of *options; text is NULL for a flag and for a bool without a
 * value. Returns -1 or the exit status. */
int proa_arg_set(const proa_arg *arg, void *options, const char *text);

/* Parses numbers separated by spaces or commas, each in [min, max], at most count_max of them. The caller
 * frees *out. */
PROA_MUST_CHECK proa_status proa_args_numbers(int32_t **out, int64_t *count, const char *text, const char *what,
                                              int32_t min, int32_t max, int64_t count_max, proa_err *err);

/* Prints "proa: ..." and a newline to standard error; returns exit_status. */
int proa_cli_fail(int exit_status, const char *fmt, ...) PROA_PRINTF(2, 3);
int proa_cli_fail_err(const proa_err *err); /* PROA_EXIT_FAILED, or INTERRUPTED for CANCELLED */

/* The nearest of `count` names (read with stride bytes between their pointers), or NULL if none is near. */
const char *proa_args_nearest(const char *word, const char *const *names, size_t count);

#endif
