/* SPDX-License-Identifier: Apache-2.0
 * rank_message.h - what one rank sends to others: values and arrays, each described once for writing and for reading. A
 * function that calls these on the members of a struct writes the struct into a message, or reads it from one,
 * depending on the message. Both sides are the same version of this program (link.h), so numbers are sent as they are
 * in memory.
 * Owner:   the caller's memory; the bytes belong to the message. Threads: one at a time. */
#ifndef PROA_COMM_RANK_MESSAGE_H
#define PROA_COMM_RANK_MESSAGE_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_rank_message {
    char *bytes; /* aligned to 16 */
    int64_t size, room;
    int64_t at; /* of what is read next */
    bool reads;
    bool broken; /* it is shorter than what was read of it: all that was read since is 0 or NULL */
    bool shared; /* the bytes are another message's: nothing is written into them */
    void *copy;  /* of an array that the reader changes; of at most copy_room bytes */
    int64_t copy_room;
} proa_rank_message;

void proa_rank_message_release(proa_rank_message *m); /* a zero message is fine */
/* So that messages of at most so many bytes take no memory. */
void proa_rank_message_room(proa_rank_message *m, int64_t size);
/* Begins an empty message, into which is written. */
void proa_rank_message_write(proa_rank_message *m);
/* Room for `size` bytes, which the caller fills, and which are then read. */
void proa_rank_message_read(proa_rank_message *m, int64_t size);
/* Reads the bytes of another message where they are. Several threads may do so at the same time. */
void proa_rank_message_read_shared(proa_rank_message *m, const proa_rank_message *of);
/* A copy of an array of the message that the caller may change. One at a time: until the next copy or release. */
void *proa_rank_message_own(proa_rank_message *m, const void *array, int64_t bytes);
/* Writes a value, or reads it. */
void proa_rank_message_value(proa_rank_message *m, void *value, int64_t bytes);
/* Writes an array of that many bytes, or returns where it is in the message: aligned to 16, valid as long as that. A
 * reader whose number of bytes is not the sender's finds the message broken. NULL is sent as NULL. Returns the
 * array. */
void *proa_rank_message_array(proa_rank_message *m, const void *array, int64_t bytes);
void *proa_rank_message_elements(proa_rank_message *m, const void *array, int64_t count, int64_t element_bytes);
/* Writes an array that the caller fills, before the next is written. */
void *proa_rank_message_reserve(proa_rank_message *m, int64_t bytes);
/* A text; NULL is sent as NULL. */
const char *proa_rank_message_text(proa_rank_message *m, const char *text);

/* A bool that is neither 0 nor 1 breaks the message. */
void proa_rank_message_bool(proa_rank_message *m, void *value, int64_t bytes);
void proa_rank_message_check_bool(proa_rank_message *m, const bool *value); /* of an array that was read */

#define PROA_RANK_MESSAGE_VALUE(m, x)                                                                        \
    _Generic(&(x), bool *: proa_rank_message_bool, default: proa_rank_message_value)((m), &(x),              \
                                                                                     (int64_t)sizeof(x))
/* The same for `count` elements: a count that a reader has of the message may be any number. */
#define PROA_RANK_MESSAGE_ARRAY(m, array, count)                                                             \
    ((array) = proa_rank_message_elements((m), (array), (int64_t)(count), (int64_t)sizeof *(array)))

#endif
