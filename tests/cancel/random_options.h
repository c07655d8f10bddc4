/* SPDX-License-Identifier: Apache-2.0
 * random_options.h - a client's source of randomness, and random prompts, lengths and options of its requests, as
 * members of a JSON object. */
#ifndef PROA_TEST_RANDOM_OPTIONS_H
#define PROA_TEST_RANDOM_OPTIONS_H

#include "base/str.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define BASE "tiny" /* the model */
/* Itself and its adapters, which are models of OpenAI's API. */
static const char *const models[] = {BASE, "one", "two"};
enum { MODELS = 3 };

typedef struct client {
    uint32_t state;
    int index;
    pthread_t thread;
    int whole, left; /* requests that were answered; that were left */
} client;

static inline uint32_t dice(client *c, uint32_t below)
{
    c->state = c->state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(c->state >> 4) * below) >> 28);
}

static inline bool one_in(client *c, uint32_t n)
{
    return dice(c, n) == 0;
}

/* Short against a request's time in a fast build; long enough for a slow one. */
static inline int64_t choose_time_ms(client *c)
{
    return 1 + (one_in(c, 3) ? dice(c, 1500) : dice(c, 100));
}

/* The model, or one of its adapters. */
static const char *choose_model(client *c)
{
    return models[one_in(c, 3) ? 1 + dice(c, MODELS - 1) : 0];
}

/* ---- options of a request, as members of a JSON object ---- */

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":999},"
    "\"b\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\",\"y\"]},\"maxItems\":4}},"
    "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}";

static inline void put_text(proa_buf *b, const char *name, const char *text)
{
    proa_buf_printf(b, ",\"%s\":", name);
    proa_buf_json_str(b, proa_str_c(text));
}

static inline void put_constraint(client *c, proa_buf *b)
{
    switch (dice(c, 5)) {
    case 0: put_text(b, "json_schema", schema); break;
    case 1: put_text(b, "regex", "[a-z ]{3,40}[.]"); break;
    case 2: put_text(b, "grammar", "root ::= item+\nitem ::= \"- \" [a-z]+ \"\\n\""); break;
    case 3: proa_buf_printf(b, ",\"choice\":[\"the sea\",\"the ship\"]"); break;
    default: proa_buf_printf(b, ",\"json_object\":true");
    }
}

static inline void put_sampling(client *c, proa_buf *b, bool session)
{
    uint32_t kind = dice(c, 4);
    if (kind == 0 && !session) {
        proa_buf_printf(b, ",\"temperature\":0,\"beams\":%u", 2 + dice(c, 3));
    } else if (kind == 1) {
        proa_buf_printf(b, ",\"temperature\":0");
    } else {
        proa_buf_printf(b, ",\"temperature\":0.9,\"seed\":%u", dice(c, 1000));
        if (!session && one_in(c, 2)) proa_buf_printf(b, ",\"n\":%u", 2 + dice(c, 2));
        if (one_in(c, 4)) proa_buf_printf(b, ",\"typical_p\":0.8");
    }
}

/* session: what goes beside one. Without the length, whose name depends on the protocol. */
static inline void put_options(client *c, proa_buf *b, bool session)
{
    static const char *const speculations[] = {"none", "ngram"};
    put_sampling(c, b, session);
    if (one_in(c, 3)) put_constraint(c, b);
    if (one_in(c, 3)) put_text(b, "speculation", speculations[dice(c, 2)]);
    if (one_in(c, 4)) proa_buf_printf(b, ",\"repetition_penalty\":1.2");
    if (one_in(c, 4)) proa_buf_printf(b, ",\"priority\":%d", (int)dice(c, 3) - 1);
    proa_buf_printf(b, ",\"ignore_eos\":true");
}

/* Words that many requests begin alike with, so that they share pages. */
static inline void choose_prompt(client *c, char *text, size_t size)
{
    static const char *const words[] = {"the ", "sea ", "ship ", "and ", "was ", "night ", "a ", "dark "};
    uint32_t count = one_in(c, 3) ? 90 + dice(c, 30) : 2 + dice(c, 30);
    size_t len = 0;
    for (uint32_t i = 0; i < count && len + 8 < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s", words[i < 70 ? i % 8 : dice(c, 8)]);
}

static inline uint32_t choose_length(client *c)
{
    return one_in(c, 4) ? 40 + dice(c, 80) : 1 + dice(c, 24);
}

static inline void put_salt(client *c, proa_buf *b)
{
    static const char *const salts[] = {"one", "two"};
    if (one_in(c, 4)) put_text(b, "cache_salt", salts[dice(c, 2)]);
}

#endif
