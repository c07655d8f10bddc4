/* SPDX-License-Identifier: Apache-2.0
 * check_text.h - what must hold for any tokenizer that opened: ids are inside the vocabulary, decoded text is UTF-8,
 * and a stream gives what a whole decode gives. For the targets fuzz_tokenizer and fuzz_spm. */
#ifndef PROA_TESTS_FUZZ_CHECK_TEXT_H
#define PROA_TESTS_FUZZ_CHECK_TEXT_H

#include "base/limits.h"
#include "text/tokenizer.h"
#include <string.h>

static const char *const check_texts[] = {
    "",
    "a",
    "Hello, world! It's 3.14",
    "  lead and  trail\n\n",
    "e\xCC\x81\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9",
    "\xFF\xE2\x82 broken",
    "<s>a</s><unk> ab ab",
    "\xE2\x96\x81\xC4\xA0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

static inline void check_decode(const proa_tokenizer *tok, const int32_t *ids, int64_t n, bool skip)
{
    proa_buf whole, stream;
    proa_buf_init(&whole, (size_t)PROA_MIB);
    proa_buf_init(&stream, (size_t)PROA_MIB);
    proa_detok *d = proa_detok_new(tok, skip);
    proa_status status = proa_tokenizer_decode(tok, ids, n, skip, &whole, NULL), streamed = PROA_OK;
    for (int64_t i = 0; i < n && streamed == PROA_OK; i++)
        streamed = proa_detok_push(d, ids[i], &stream, NULL);
    if (streamed == PROA_OK) streamed = proa_detok_flush(d, &stream, NULL);
    PROA_ASSERT(status == streamed);
    if (status == PROA_OK) {
        PROA_ASSERT(proa_utf8_valid(proa_buf_view(&whole)));
        PROA_ASSERT(proa_str_eq(proa_buf_view(&whole), proa_buf_view(&stream)));
    }
    proa_detok_free(d);
    proa_buf_release(&whole);
    proa_buf_release(&stream);
}

static inline void check_text(const proa_tokenizer *tok, proa_str text)
{
    proa_ids ids = {0}, types = {0};
    if (proa_tokenizer_encode(tok, text, true, &ids, NULL) == PROA_OK) {
        for (int64_t i = 0; i < ids.len; i++)
            PROA_ASSERT(ids.ptr[i] >= 0 && ids.ptr[i] < proa_tokenizer_vocab(tok));
        check_decode(tok, ids.ptr, ids.len, ids.len & 1);
    } else {
        PROA_ASSERT(ids.len == 0);
    }
    if (proa_tokenizer_encode_pair(tok, text, text, true, &ids, &types, NULL) == PROA_OK)
        PROA_ASSERT(types.len <= ids.len);
    proa_ids_release(&ids);
    proa_ids_release(&types);
}

static inline void check_tokenizer(const proa_tokenizer *tok)
{
    int32_t ids[64];
    for (size_t i = 0; i < PROA_COUNT(check_texts); i++) check_text(tok, proa_str_c(check_texts[i]));
    for (int32_t i = 0; i < 64; i++) ids[i] = i - 2; /* the first pieces, and ids outside */
    check_decode(tok, ids, 64, false);
}

#endif
