/* SPDX-License-Identifier: Apache-2.0
 * long_text.h - error texts that do not fit into a proa_err: long ones, and those of more than one line.
 * A proa_err is copied as a value and is never released, so it cannot own memory. It carries a key, and the
 * text is kept here until newer texts need the room (PROA_ERR_KEPT_MAX of them, PROA_ERR_KEPT_BYTES in all).
 * Owner:   the table of the process.
 * Threads: any. */
#ifndef PROA_BASE_LONG_TEXT_H
#define PROA_BASE_LONG_TEXT_H

#include <stdint.h>

/* Stores a text from malloc (and takes ownership) of at most PROA_ERR_TEXT_MAX bytes. Returns its key,
 * never 0. */
uint64_t proa_long_text_keep(char *text);
/* A copy that the caller frees; NULL if the key is 0, the text was evicted or memory ran out. */
char *proa_long_text_copy(uint64_t key);

#endif
