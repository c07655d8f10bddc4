/* SPDX-License-Identifier: Apache-2.0
 * decoding.h - the table of generation options (options/options.h) as options of the command line, as help and as the
 *              table of docs/decoding.md.
 * Owner:   a command that takes these options has a proa_decoding in its struct and says where (proa_command).
 * Way in:  args.c finds and sets; proa_decoding_help_command is `proa help decoding`. */
#ifndef PROA_CLI_DECODING_H
#define PROA_CLI_DECODING_H

#include "base/arena.h"
#include "options/options.h"
#include "cli/arg.h"

typedef struct proa_decoding {
    proa_options options;                 /* the options that were given, marked as set */
    proa_arena arena;                     /* the lists in it */
    const char *texts[PROA_OPTION_COUNT]; /* the last value of each as it was typed, numbers as JSON; NULL: not given */
} proa_decoding;

void proa_decoding_init(proa_decoding *d);
void proa_decoding_release(proa_decoding *d);

/* A row of the table in the form of args.h. Not to be copied: arg.name points into it. */
typedef struct proa_decoding_arg {
    proa_arg arg; /* offset 0 */
    char name[48], preset[32], help[160];
} proa_decoding_arg;

/* The row of --NAME: the table's name with - or _, or an alias (--stop, --beam-style). NULL if there is none. */
const proa_option_row *proa_decoding_find(const char *name, size_t len);
/* name: as the user typed it, for errors; NULL: the table's with dashes. */
void proa_decoding_arg_of(proa_decoding_arg *out, const proa_option_row *row, const char *name, size_t len);
/* Returns -1, or the exit status after an error was printed. text NULL: a flag. */
int proa_decoding_set(proa_decoding *d, const proa_option_row *row, const proa_arg *arg, const char *text);
/* The i-th alias of an option on the command line; NULL after the last. */
const char *proa_decoding_alias(size_t i);

/* `proa help decoding [--markdown]`, argv after these two words. */
int proa_decoding_help_command(int argc, char **argv);

#endif
