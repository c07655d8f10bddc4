/* SPDX-License-Identifier: Apache-2.0
 * golden_line.h - reads and checks a line of the tokenizers' goldens (format: tools/golden_text.py). */
#ifndef PROA_TESTS_TEXT_GOLDEN_LINE_H
#define PROA_TESTS_TEXT_GOLDEN_LINE_H

#include "base/limits.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static inline uint32_t fnv(const void *bytes, size_t len)
{
    uint32_t h = 0x811C9DC5u;
    for (size_t i = 0; i < len; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x01000193u;
    return h;
}

/* The string of a golden line, with its \xNN undone, in place; returns its length. */
static inline size_t unescape(char *s)
{
    size_t n = 0;
    for (char *p = s; *p; n++) {
        unsigned byte = 0;
        if (*p == '\\' && sscanf(p + 2, "%2x", &byte) == 1) {
            s[n] = (char)byte;
            p += 4;
        } else {
            s[n] = *p++;
        }
    }
    return n;
}

static inline void check_line(const proa_tokenizer *t, proa_str text, const char *field, const char *name)
{
    unsigned count = 0, ids_hash = 0, text_hash = 0;
    proa_ids ids = {0};
    proa_buf out;
    proa_err err = {0};
    assert_int_equal(sscanf(field, "%u %x %x", &count, &ids_hash, &text_hash), 3);
    proa_buf_init(&out, (size_t)PROA_MIB);
    assert_int_equal(proa_tokenizer_encode(t, text, true, &ids, &err), PROA_OK);
    assert_int_equal(proa_tokenizer_decode(t, ids.ptr, ids.len, true, &out, &err), PROA_OK);
    bool same = ids.len == count && fnv(ids.ptr, (size_t)ids.len * 4) == ids_hash;
    if (!same || fnv(out.ptr, out.len) != text_hash) {
        print_error("%s: '%.*s' gives", name, (int)text.len, text.ptr);
        for (int64_t i = 0; i < ids.len; i++) print_error(" %d", ids.ptr[i]);
        print_error(" and '%.*s', expected %s\n", (int)out.len, out.len ? out.ptr : "", field);
        fail();
    }
    proa_ids_release(&ids);
    proa_buf_release(&out);
}

#endif
