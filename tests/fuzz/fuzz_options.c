/* SPDX-License-Identifier: Apache-2.0
 * Options of a request. The first byte chooses: a JSON object as an option set of the library; one option as text,
 * which the second byte chooses; or a list of "name=value" lines as parameters of a request. What is taken has numbers
 * in their ranges, a copy like it, and defaults that stay as they are. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "serve/generation_read.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 1000, LINES_MAX = 16 };

static void check_numbers(const proa_options *o)
{
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        bool number = row->kind == PROA_OPTION_KIND_INT || row->kind == PROA_OPTION_KIND_FLOAT;
        if (number) PROA_ASSERT(proa_option_in_range(row, proa_option_number(o, row)));
    }
}

/* Of the lists every text and id is read. */
static size_t walk(const proa_options *o)
{
    size_t sum = 0;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const void *field = proa_option_field(o, &proa_option_rows[i]);
        const proa_strings *s = field;
        if (proa_option_rows[i].kind == PROA_OPTION_KIND_STRINGS)
            for (int32_t k = 0; k < s->count; k++) sum += strlen(s->text[k]);
        const proa_tokens *t = field;
        if (proa_option_rows[i].kind == PROA_OPTION_KIND_TOKENS)
            for (int32_t k = 0; k < t->count; k++) sum += (size_t)t->ids[k];
    }
    return sum;
}

static void check(proa_options *o)
{
    proa_options copy, again;
    proa_arena arena;
    proa_err err = {.status = PROA_OK}, second = {.status = PROA_OK};
    proa_arena_init(&arena);
    proa_options_copy(&copy, o, &arena);
    PROA_ASSERT(walk(&copy) == walk(o));
    proa_options_resolve(&copy, NULL);
    again = copy;
    proa_options_resolve(&again, NULL);
    PROA_ASSERT(memcmp(&again, &copy, sizeof copy) == 0);
    proa_status status = proa_options_check(&copy, VOCAB, 64, &err);
    PROA_ASSERT(status == proa_options_check(&copy, VOCAB, 64, &second));
    if (status == PROA_OK) check_numbers(&copy);
    else PROA_ASSERT(err.text[0]);
    proa_arena_release(&arena);
}

static void read_set(proa_str text)
{
    proa_options *options;
    proa_err err = {.status = PROA_OK};
    char *copy = proa_str_copy(text);
    if (proa_options_new(&options, copy, &err) == PROA_OK) check(options);
    else PROA_ASSERT(err.text[0] && !options && err.status != PROA_OK);
    proa_options_free(options);
    free(copy);
}

static void read_one(proa_str text)
{
    proa_options options = {.max_tokens = 0};
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    const proa_option_row *row = &proa_option_rows[(uint8_t)text.ptr[0] % PROA_OPTION_COUNT];
    proa_arena_init(&arena);
    text = (proa_str){text.ptr + 1, text.len - 1};
    if (proa_options_set(&options, row, text, &arena, &err) == PROA_OK) {
        PROA_ASSERT(options.given[row->option]);
        check(&options);
    } else PROA_ASSERT(err.text[0]);
    proa_arena_release(&arena);
}

/* "name=value": the value's first letter says its kind, and the rest is it. */
static void add_param(proa_infer *r, proa_str line)
{
    const char *sign = memchr(line.ptr, '=', line.len);
    if (!sign || sign + 1 == line.ptr + line.len) return;
    proa_str name = {line.ptr, (size_t)(sign - line.ptr)},
             value = {sign + 2, line.len - (size_t)(sign + 2 - line.ptr)};
    proa_infer_param *p = proa_infer_add_param(r, name);
    if (!p) return;
    const char *copy = proa_arena_strdup(&r->arena, value);
    p->kind = sign[1] == 'i'   ? PROA_PARAM_INT
              : sign[1] == 'd' ? PROA_PARAM_DOUBLE
              : sign[1] == 'b' ? PROA_PARAM_BOOL
                               : PROA_PARAM_STRING;
    if (p->kind == PROA_PARAM_INT) p->i = strtoll(copy, NULL, 10);
    else if (p->kind == PROA_PARAM_DOUBLE) p->d = strtod(copy, NULL);
    else if (p->kind == PROA_PARAM_BOOL) p->b = copy[0] == '1';
    else p->s = (proa_str){copy, value.len};
}

static proa_str no_text(const void *arg, const char *name)
{
    PROA_UNUSED(arg);
    PROA_UNUSED(name);
    return (proa_str){NULL, 0};
}

static bool no_flag(const void *arg, const char *name, bool *value)
{
    PROA_UNUSED(arg);
    PROA_UNUSED(name);
    PROA_UNUSED(value);
    return false;
}

static void read_params(proa_str text)
{
    static const proa_generation_inputs inputs = {no_text, no_flag, NULL};
    proa_generation g = {.stream = false};
    proa_err err = {.status = PROA_OK};
    proa_infer *r = proa_infer_new();
    for (int i = 0; i < LINES_MAX && text.len; i++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        add_param(r, (proa_str){text.ptr, len});
        text.ptr += end ? len + 1 : len, text.len -= end ? len + 1 : len;
    }
    if (proa_generation_read_settings(&g, r, &inputs, true, &r->arena, &err) == PROA_OK) check(&g.options);
    else PROA_ASSERT(err.text[0]);
    proa_infer_drop(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    proa_str text = {(const char *)data + 1, size - 1};
    switch (data[0] % 3) {
    case 0: read_set(text); break;
    case 1: read_one(text); break;
    default: read_params(text);
    }
    return 0;
}
