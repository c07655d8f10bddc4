/* SPDX-License-Identifier: Apache-2.0
 * tokdump.c - reads requests on standard input and answers as the tokenizer does: the other side of
 * test_oracle.py. All numbers are little-endian 32-bit.
 *   tokdump FILE...          each FILE is a tokenizer.json, a *.model, or a folder; requests name it by index
 *   request:  'e' index flags bytes text      flags 1: add special tokens; 2: a pair, another bytes and text follow
 *             'd' index flags count ids       flags 1: skip special tokens
 *   answer:   'e': count ids, and for a pair count type ids; 'd': bytes text, then bytes text of the stream
 *   A failure answers with count 0xFFFFFFFF, bytes and the message. */
#include "base/file.h"
#include "base/limits.h"
#include "text/tokenizer.h"
#include <string.h>

#define FAILED 0xFFFFFFFFu

static uint32_t get_u32(void)
{
    uint32_t v = 0;
    if (fread(&v, sizeof v, 1, stdin) != 1) exit(0);
    return v;
}

static void put_u32(uint32_t v)
{
    fwrite(&v, sizeof v, 1, stdout);
}

static void put_bytes(proa_str s)
{
    put_u32((uint32_t)s.len);
    if (s.len) fwrite(s.ptr, 1, s.len, stdout);
}

static char *get_bytes(uint32_t n)
{
    char *p = malloc(n + 1);
    if (!p || fread(p, 1, n, stdin) != n) exit(1);
    return p;
}

static void put_failure(const proa_err *err)
{
    put_u32(FAILED);
    put_bytes(proa_str_c(err->text));
}

static void put_ids(const proa_ids *ids)
{
    put_u32((uint32_t)ids->len);
    fwrite(ids->ptr, sizeof *ids->ptr, (size_t)ids->len, stdout);
}

static void encode(const proa_tokenizer *tok, uint32_t flags)
{
    proa_err err = {0};
    proa_ids ids = {0}, types = {0};
    uint32_t n = get_u32(), m = 0;
    char *a = get_bytes(n), *b = NULL;
    if (flags & 2) {
        m = get_u32();
        b = get_bytes(m);
    }
    proa_str x = {a, n}, y = {b, m};
    proa_status status = b ? proa_tokenizer_encode_pair(tok, x, y, flags & 1, &ids, &types, &err)
                           : proa_tokenizer_encode(tok, x, flags & 1, &ids, &err);
    if (status != PROA_OK) {
        put_failure(&err);
    } else {
        put_ids(&ids);
        if (b) put_ids(&types);
    }
    proa_ids_release(&ids);
    proa_ids_release(&types);
    free(a);
    free(b);
}

static void decode(const proa_tokenizer *tok, uint32_t flags)
{
    proa_err err = {0};
    uint32_t n = get_u32();
    int32_t *ids = (int32_t *)(void *)get_bytes(n * 4);
    proa_buf whole, stream;
    proa_buf_init(&whole, (size_t)PROA_GIB);
    proa_buf_init(&stream, (size_t)PROA_GIB);
    proa_detok *d = proa_detok_new(tok, flags & 1);
    proa_status status = proa_tokenizer_decode(tok, ids, n, flags & 1, &whole, &err);
    for (uint32_t i = 0; i < n && status == PROA_OK; i++) {
        status = proa_detok_push(d, ids[i], &stream, &err);
        if (!proa_utf8_valid(proa_buf_view(&stream))) abort();
    }
    if (status == PROA_OK) status = proa_detok_flush(d, &stream, &err);
    if (status != PROA_OK) {
        put_failure(&err);
    } else {
        put_bytes(proa_buf_view(&whole));
        put_bytes(proa_buf_view(&stream));
    }
    proa_detok_free(d);
    proa_buf_release(&whole);
    proa_buf_release(&stream);
    free(ids);
}

static proa_tokenizer *open_any(const char *path)
{
    proa_err err = {0};
    proa_buf bytes = {0};
    proa_tokenizer *tok = NULL;
    proa_status status;
    if (proa_dir_exists(path)) {
        status = proa_tokenizer_open(&tok, path, &err);
    } else {
        status = proa_file_read(&bytes, path, PROA_TOKENIZER_BYTES_MAX, &err);
        bool model = proa_str_ends(proa_str_c(path), proa_str_c(".model"));
        if (status == PROA_OK)
            status = model ? proa_tokenizer_open_spm(&tok, bytes.ptr, bytes.len, path, &err)
                           : proa_tokenizer_open_json(&tok, proa_buf_view(&bytes), path, &err);
    }
    proa_buf_release(&bytes);
    if (status == PROA_OK) return tok;
    fprintf(stderr, "tokdump: %s\n", err.text);
    exit(1);
}

int main(int argc, char **argv)
{
    proa_tokenizer *tok[256];
    int n = argc - 1 < 256 ? argc - 1 : 256;
    for (int i = 0; i < n; i++) tok[i] = open_any(argv[i + 1]);
    for (int op; (op = getchar()) != EOF;) {
        uint32_t index = get_u32(), flags = get_u32();
        if (index >= (uint32_t)n) return 1;
        if (op == 'e') encode(tok[index], flags);
        else decode(tok[index], flags);
        fflush(stdout);
    }
    for (int i = 0; i < n; i++) proa_tokenizer_free(tok[i]);
    return 0;
}
