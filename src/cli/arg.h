/* SPDX-License-Identifier: Apache-2.0
 * arg.h - one option or operand of a command: its row in a table, its value, and the one line of an error.
 * Owner:   texts point into argv or into the table; nothing is copied.
 * Threads: main's only. */
#ifndef PROA_CLI_ARG_H
#define PROA_CLI_ARG_H

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

bool proa_arg_is_operand(const proa_arg *arg); /* given by position */
/* Whether a text is true or false, and which: as in tritonserver true, True and 1 are true. */
bool proa_arg_is_bool(bool *value, const char *text);
/* Stores one option's text in its field of *options; text is NULL for a flag and for a bool without a
 * value. Returns -1 or the exit status. */
int proa_arg_set(const proa_arg *arg, void *options, const char *text);

/* Prints "proa: ..." and a newline to standard error; returns exit_status. */
int proa_cli_fail(int exit_status, const char *fmt, ...) PROA_PRINTF(2, 3);
int proa_cli_fail_err(const proa_err *err); /* PROA_EXIT_FAILED, or INTERRUPTED for CANCELLED */

#endif
