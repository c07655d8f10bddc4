/* SPDX-License-Identifier: Apache-2.0
 * test_gguf_vocab.c - tokenizers of GGUF files against llama.cpp: each NAME.gguf of a folder is given the texts of
 * NAME.gguf.inp, and must give the ids of NAME.gguf.out. The folders are tests/golden/gguf, and the one that is given
 * as the argument or in PROA_GGUF_VOCABS (llama.cpp's models/, whose files ggml-vocab-* are too large to be
 * committed). */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "text/tokenizer.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include "gguf_vocabs.h"

static proa_str read_beside(proa_buf *buf, const char *path, const char *ending)
{
    char name[PROA_PATH_MAX];
    proa_err err = {.status = PROA_OK};
    snprintf(name, sizeof name, "%s%s", path, ending);
    if (proa_file_read(buf, name, 1 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    return proa_buf_view(buf);
}

/* The next text, up to the separator or the end. */
static bool next_text(proa_str *rest, proa_str *text)
{
    const char *end = rest->len
                          ? memmem(rest->ptr, rest->len, GGUF_VOCAB_SEPARATOR, strlen(GGUF_VOCAB_SEPARATOR))
                          : NULL;
    if (rest->len == 0) return false;
    *text = (proa_str){rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = text->len + (end ? strlen(GGUF_VOCAB_SEPARATOR) : 0);
    *rest = (proa_str){rest->ptr + used, rest->len - used};
    return true;
}

static void check_ids(const char *path, int64_t number, proa_str text, const proa_ids *have, char **want)
{
    for (int64_t i = 0;; i++) {
        while (**want == ' ') ++*want;
        bool end = **want == '\n' || **want == 0;
        long id = end ? -1 : strtol(*want, want, 10);
        if (end && i == have->len) break;
        if (end || i == have->len || id != have->ptr[i])
            fail_msg("%s: text %lld ('%.*s'): id %lld is %d, must be %ld", path, (long long)number,
                     text.len < 60 ? (int)text.len : 60, text.ptr, (long long)i,
                     i < have->len ? have->ptr[i] : -1, id);
    }
    *want += **want == '\n';
}

static void check_vocab(void **state)
{
    const char *path = *state;
    proa_weights *w = NULL;
    proa_tokenizer *tok = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf inputs, outputs;
    proa_ids ids = {0};
    if (proa_weights_open(&w, path, &err) != PROA_OK) fail_msg("%s: %s", path, err.text);
    if (proa_tokenizer_open_files(&tok, proa_weights_files(w), &err) != PROA_OK) fail_msg("%s", err.text);
    proa_str rest = read_beside(&inputs, path, ".inp"), text;
    char *want = (char *)(uintptr_t)read_beside(&outputs, path, ".out").ptr;
    int64_t number = 0;
    for (; next_text(&rest, &text); number++) {
        proa_ids_clear(&ids);
        assert_int_equal(proa_tokenizer_encode(tok, text, false, &ids, &err), PROA_OK);
        check_ids(path, number, text, &ids, &want);
    }
    assert_true(number > 0);
    assert_int_equal(*want, 0);
    proa_ids_release(&ids);
    proa_buf_release(&inputs);
    proa_buf_release(&outputs);
    proa_tokenizer_free(tok);
    proa_weights_close(w);
}

int main(int argc, char **argv)
{
    return gguf_vocabs_run("gguf_vocab", argc, argv, check_vocab);
}
