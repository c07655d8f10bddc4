/* SPDX-License-Identifier: Apache-2.0
 * stop.h - stop strings in a stream of text: found across token edges, never shown in part.
 * Owner:   the strings are the caller's and outlive it. Threads: one stream, one thread. */
#ifndef PROA_ENGINE_DECODE_STOP_H
#define PROA_ENGINE_DECODE_STOP_H

#include "base/str.h"
#include "proa/proa.h"

typedef struct proa_stop {
    proa_strings strings;
    proa_buf held; /* text that may be the beginning of a stop string */
    int32_t hit;   /* after a push returned true: which string is complete */
} proa_stop;

void proa_stop_init(proa_stop *s, proa_strings strings); /* reserves the memory that pushes will need */
void proa_stop_release(proa_stop *s);
/* Adds a piece of text and appends to out what can no longer be part of a stop string. True if a stop string is
 * complete: out then ends where the earliest one begins. */
bool proa_stop_push(proa_stop *s, proa_str piece, proa_buf *out);
/* The sequence has ended without a stop string: appends the text that was held back. */
void proa_stop_flush(proa_stop *s, proa_buf *out);

#endif
