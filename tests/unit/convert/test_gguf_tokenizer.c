/* SPDX-License-Identifier: Apache-2.0
 * test_gguf_tokenizer.c - tokenizers written as GGUF metadata: each NAME.gguf of a folder is opened, its tokenizer is
 * written again, and what is written must give the same ids for the texts of NAME.gguf.inp. The folders are
 * tests/golden/gguf, and the one that is given as the argument or in PROA_GGUF_VOCABS (llama.cpp's models/). A second
 * argument is a folder for the written vocabularies, which llama.cpp can read. */
#include "base/alloc.h"
#include "base/file.h"
#include "convert/gguf_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include "../engine/gguf_vocabs.h"

static const char *out_folder;

/* A GGUF file without tensors. */
static void write_vocabulary(proa_buf *out, const proa_files *files, int64_t tokens)
{
    proa_err err = {.status = PROA_OK};
    proa_gguf_values v = {.count = 0};
    const proa_config c = {.vocab = tokens, .bos = -1, .pad = -1};
    proa_buf_init(&v.bytes, (size_t)PROA_ST_HEADER_BYTES_MAX);
    proa_gguf_value_str(&v, "general.architecture", proa_str_c("llama"));
    if (proa_gguf_put_tokenizer(&v, files, &c, false, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_gguf_put_vocabulary(out, &v);
    assert_false(out->full);
    proa_buf_release(&v.bytes);
}

static void keep_file(const char *path, const proa_buf *bytes)
{
    char name[PROA_PATH_MAX];
    const char *last = strrchr(path, '/');
    if (!out_folder) return;
    snprintf(name, sizeof name, "%s%s", out_folder, last);
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes->ptr, 1, bytes->len, f), bytes->len);
    fclose(f);
}

static void compare_text(const proa_tokenizer *a, const proa_tokenizer *b, proa_str text, bool special)
{
    proa_ids x = {0}, y = {0};
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_tokenizer_encode(a, text, special, &x, &err), PROA_OK);
    assert_int_equal(proa_tokenizer_encode(b, text, special, &y, &err), PROA_OK);
    if (x.len != y.len || (x.len && memcmp(x.ptr, y.ptr, (size_t)x.len * sizeof *x.ptr) != 0))
        fail_msg("'%.*s': other ids", text.len < 60 ? (int)text.len : 60, text.ptr);
    proa_ids_release(&x);
    proa_ids_release(&y);
}

static void compare_texts(const proa_tokenizer *a, const proa_tokenizer *b, const char *path)
{
    char name[PROA_PATH_MAX];
    proa_buf texts;
    proa_err err = {.status = PROA_OK};
    snprintf(name, sizeof name, "%s.inp", path);
    assert_int_equal(proa_file_read(&texts, name, 1 << 20, &err), PROA_OK);
    for (char *at = texts.ptr, *end = texts.ptr; end; at = end + strlen(GGUF_VOCAB_SEPARATOR)) {
        end = strstr(at, GGUF_VOCAB_SEPARATOR);
        proa_str text = {at, end ? (size_t)(end - at) : strlen(at)};
        for (int special = 0; special < 2; special++) compare_text(a, b, text, special);
    }
    proa_buf_release(&texts);
}

static void check_vocab(void **state)
{
    const char *path = *state;
    proa_weights *w = NULL, *again = NULL;
    proa_tokenizer *tok = NULL, *read = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf bytes;
    proa_buf_init(&bytes, (size_t)PROA_ST_HEADER_BYTES_MAX);
    if (proa_weights_open(&w, path, &err) != PROA_OK) fail_msg("%s: %s", path, err.text);
    if (proa_tokenizer_open_files(&tok, proa_weights_files(w), &err) != PROA_OK) fail_msg("%s", err.text);
    write_vocabulary(&bytes, proa_weights_files(w), proa_tokenizer_vocab(tok));
    keep_file(path, &bytes);
    if (proa_weights_open_bytes(&again, bytes.ptr, (int64_t)bytes.len, "written", &err) != PROA_OK)
        fail_msg("%s", err.text);
    if (proa_tokenizer_open_files(&read, proa_weights_files(again), &err) != PROA_OK)
        fail_msg("%s", err.text);
    assert_int_equal(proa_tokenizer_vocab(read), proa_tokenizer_vocab(tok));
    compare_texts(tok, read, path);
    proa_tokenizer_free(tok);
    proa_tokenizer_free(read);
    proa_weights_close(w);
    proa_weights_close(again);
    proa_buf_release(&bytes);
}

int main(int argc, char **argv)
{
    out_folder = argc > 2 ? argv[2] : NULL;
    return gguf_vocabs_run("gguf_tokenizer", argc, argv, check_vocab);
}
