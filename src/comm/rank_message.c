/* SPDX-License-Identifier: Apache-2.0
 * rank_message.c - values and arrays, written one after the other at multiples of 16 bytes. An array has its size
 * before it, so a reader whose counts differ from the sender's finds the message broken. */
#include "comm/rank_message.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_ROOM = 4096 };

/* Sent in place of the length of an array that is NULL. */
static const int64_t absent = -1;

void proa_rank_message_release(proa_rank_message *m)
{
    if (!m->shared) free(m->bytes);
    free(m->copy);
    *m = (proa_rank_message){.bytes = NULL};
}

void proa_rank_message_room(proa_rank_message *m, int64_t size)
{
    if (size <= m->room) return;
    int64_t room = proa_max64(FIRST_ROOM, m->room);
    while (room < size) room *= 2;
    m->bytes = proa_realloc(m->bytes, (size_t)room); /* malloc aligns to 16 */
    m->room = room;
}

void proa_rank_message_write(proa_rank_message *m)
{
    m->size = m->at = 0;
    m->reads = m->broken = false;
}

void proa_rank_message_read(proa_rank_message *m, int64_t size)
{
    proa_rank_message_room(m, size);
    m->size = size, m->at = 0;
    m->reads = true, m->broken = false;
}

void proa_rank_message_read_shared(proa_rank_message *m, const proa_rank_message *of)
{
    m->bytes = of->bytes, m->size = of->size, m->at = 0;
    m->reads = m->shared = true, m->broken = false;
}

void *proa_rank_message_own(proa_rank_message *m, const void *array, int64_t bytes)
{
    if (bytes > m->copy_room) m->copy = proa_realloc(m->copy, (size_t)(m->copy_room = bytes));
    memcpy(m->copy, array, (size_t)bytes);
    return m->copy;
}

/* The next `bytes` bytes of the message; NULL: it has fewer. */
static char *next_bytes(proa_rank_message *m, int64_t bytes)
{
    int64_t begin = m->at, end = 0, most = m->reads ? m->size : INT64_MAX - ALIGNMENT;
    bool fits = bytes >= 0 && bytes <= most && proa_add(begin, proa_round_up(bytes, ALIGNMENT), &end);
    if (!m->reads && fits) proa_rank_message_room(m, end), m->size = end;
    if (m->broken || !fits || end > m->size) return m->broken = true, NULL;
    if (!m->reads)
        memset(m->bytes + begin + bytes, 0, (size_t)(end - begin - bytes)); /* no memory of this rank */
    m->at = end;
    return m->bytes + begin;
}

void proa_rank_message_value(proa_rank_message *m, void *value, int64_t bytes)
{
    char *place = next_bytes(m, bytes);
    if (m->reads && place) memcpy(value, place, (size_t)bytes);
    else if (m->reads) memset(value, 0, (size_t)bytes);
    else memcpy(place, value, (size_t)bytes);
}

void proa_rank_message_check_bool(proa_rank_message *m, const bool *value)
{
    if (*(const unsigned char *)value > 1) m->broken = true;
}

void proa_rank_message_bool(proa_rank_message *m, void *value, int64_t bytes)
{
    proa_rank_message_value(m, value, bytes);
    proa_rank_message_check_bool(m, value);
    if (m->broken && m->reads) memset(value, 0, (size_t)bytes);
}

void *proa_rank_message_reserve(proa_rank_message *m, int64_t bytes)
{
    PROA_RANK_MESSAGE_VALUE(m, bytes);
    return next_bytes(m, bytes);
}

static void *write_array(proa_rank_message *m, const void *array, int64_t bytes)
{
    int64_t size = absent;
    if (!array) PROA_RANK_MESSAGE_VALUE(m, size);
    else if (bytes) memcpy(proa_rank_message_reserve(m, bytes), array, (size_t)bytes);
    else PROA_RANK_MESSAGE_VALUE(m, bytes);
    return (void *)(uintptr_t)array;
}

/* An array of no elements is no NULL. */
static void *read_array(proa_rank_message *m, int64_t bytes)
{
    int64_t size = 0;
    PROA_RANK_MESSAGE_VALUE(m, size);
    if (size == absent) return NULL;
    if (size != bytes) m->broken = true;
    return next_bytes(m, bytes);
}

void *proa_rank_message_array(proa_rank_message *m, const void *array, int64_t bytes)
{
    return m->reads ? read_array(m, bytes) : write_array(m, array, bytes);
}

void *proa_rank_message_elements(proa_rank_message *m, const void *array, int64_t count, int64_t element_bytes)
{
    int64_t bytes;
    if (count < 0 || !proa_mul(count, element_bytes, &bytes)) return m->broken = true, NULL;
    return proa_rank_message_array(m, array, bytes);
}

const char *proa_rank_message_text(proa_rank_message *m, const char *text)
{
    int64_t size = text ? (int64_t)strlen(text) + 1 : 0;
    PROA_RANK_MESSAGE_VALUE(m, size);
    text = proa_rank_message_array(m, text, size);
    if (!m->reads || !text) return text;
    if (size > 0 && text[size - 1] == '\0') return text;
    m->broken = true;
    return NULL;
}
