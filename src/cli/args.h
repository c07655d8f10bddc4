/* SPDX-License-Identifier: Apache-2.0
 * args.h - options and operands of a command as rows of a table: parsing, checking and the help text read the same rows.
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
    PROA_ARG_FLAG, /* bool; takes no value */
    PROA_ARG_INT,  /* int64_t in [min, max] */
    PROA_ARG_REAL, /* double in [min, max] */
    PROA_ARG_TEXT, /* const char * */
    PROA_ARG_MAYBE, /* const char *: the next word unless there is none or it begins with two dashes: then "" */
    PROA_ARG_CHOICE, /* const char *: one of the words that `value` lists between bars */
    PROA_ARG_BOOL,   /* bool: true or false (1 or 0) behind "=" or as the next word; without a value true */
    PROA_ARG_LIST,   /* proa_arg_list: may be given many times */
    PROA_ARG_STANDIN, /* const char *: "--NAME VALUE" is the first operand "NAME:VALUE", which is then not given by place */
    PROA_ARG_OPERAND, /* const char *: given by place, not by name */
    PROA_ARG_OPERANDS /* proa_arg_list: all operands from here on; the last row of its kind */
} proa_arg_kind;

enum { PROA_ARG_LIST_MAX = 256 };
typedef struct proa_arg_list {
    const char *items[PROA_ARG_LIST_MAX];
    int count;
} proa_arg_list;

typedef struct proa_arg {
    const char *name; /* without the dashes; of an operand the word in the usage line, in brackets if it may lack */
    proa_arg_kind kind;
    size_t offset; /* of the field in the command's options struct */
    int64_t min, max;
    const char *value;  /* the placeholder, or the choices "a|b" */
    const char *preset; /* what holds when the option is absent; NULL: zero */
    const char *help;   /* one line, without the preset, which is added */
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

/* Fills *options from the presets and then from argv. Returns -1 if the command should go on, else the exit status:
 * help was asked for and printed, or something was wrong and was said in one line. */
PROA_MUST_CHECK int proa_args_parse(const proa_command *command, void *options, int argc, char **argv);
void proa_args_help(const proa_command *command);
/* One option from text into its field of *options; text is NULL for a flag and for a bool without a value. -1 or the
 * exit status. */
int proa_arg_set(const proa_arg *arg, void *options, const char *text);

/* Numbers between spaces or commas, each in [min, max]. *out is the caller's to free; at most count_max of them. */
PROA_MUST_CHECK proa_status proa_args_numbers(int32_t **out, int64_t *count, const char *text, const char *what,
                                              int32_t min, int32_t max, int64_t count_max, proa_err *err);

/* "proa: ..." and a newline on standard error; returns the status that goes with it. */
int proa_say(int exit_status, const char *fmt, ...) PROA_PRINTF(2, 3);
int proa_say_err(const proa_err *err); /* PROA_EXIT_FAILED, or INTERRUPTED for CANCELLED */

/* The nearest of `count` names (read with stride bytes between their pointers), or NULL if none is near. */
const char *proa_args_nearest(const char *word, const char *const *names, size_t count);

#endif
