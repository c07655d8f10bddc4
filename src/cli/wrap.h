/* SPDX-License-Identifier: Apache-2.0
 * wrap.h - the width of a terminal, and text broken into lines of that width.
 * Threads: main's only. */
#ifndef PROA_CLI_WRAP_H
#define PROA_CLI_WRAP_H

enum { PROA_COLUMNS_DEFAULT = 80, PROA_COLUMNS_MIN = 20 };

/* Columns of the terminal behind the descriptor; PROA_COLUMNS_DEFAULT if it is none or says less than
 * PROA_COLUMNS_MIN. */
int proa_terminal_columns(int fd);

/* Prints text to standard output in lines of at most `columns`, broken at spaces, and a newline. The cursor is in
 * column `at`; the lines that follow the first are indented by `indent`. A word that is longer than a line is not
 * broken. A byte counts as a column. */
void proa_print_wrapped(const char *text, int at, int indent, int columns);

#endif
