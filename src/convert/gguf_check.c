/* SPDX-License-Identifier: Apache-2.0
 * gguf_check.c - reads the head of a GGUF file back before its tensors are written: what the format cannot say shows as
 * a difference. */
#include "convert/gguf_values.h"

#include "weights/gguf/arch.h"

/* ---- the configuration ---- */

static proa_status read_config(proa_config *out, const proa_gguf *g, proa_arena *arena, proa_err *err)
{
    const proa_gguf_arch *row;
    const proa_arch *arch;
    proa_json *json = NULL;
    proa_buf text;
    PROA_TRY(proa_gguf_arch_of(&row, g, err));
    proa_buf_init(&text, PROA_CONFIG_BYTES_MAX);
    proa_status status = proa_gguf_config(&text, g, row, err);
    if (status == PROA_OK) status = proa_json_parse(&json, proa_buf_view(&text), g->what, err);
    if (status == PROA_OK) status = proa_arch_configure(&arch, out, json, NULL, arena, err);
    proa_json_free(json);
    proa_buf_release(&text);
    return status;
}

proa_status proa_gguf_check_config(proa_str head, const proa_bound *t, proa_err *err)
{
    proa_gguf g;
    proa_arena arena;
    proa_config read;
    proa_arena_init(&arena);
    proa_status status = proa_gguf_parse(&g, "the GGUF file", (const unsigned char *)head.ptr,
                                         (int64_t)head.len, &arena, err);
    if (status == PROA_OK) status = read_config(&read, &g, &arena, err);
    if (status == PROA_OK) status = proa_bound_compare(t, &read, "GGUF", err);
    proa_arena_release(&arena);
    return status;
}

/* ---- the tokenizer ---- */

/* Texts with spaces in all places, digits, marks, and scripts with and without words. */
static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog.",
    " leading and  double spaces, trailing ",
    "Don't you'll we've it's I'M 1234567 3.14 $5,000 100%",
    "line\nline\n\n\ttab\r\n  indented {x[0] += y->z;} // end",
    "Caf\xc3\xa9 na\xc3\xafve \xc3\x9c"
    "ber Stra\xc3\x9f"
    "e e\xcc\x81",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf \xec\x95\x88\xeb\x85\x95 "
    "\xd8\xb3\xd9\x84\xd8\xa7\xd9\x85",
    "\xf0\x9f\x98\x80 \xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe2\x82\xac"
    "12 \xe2\x80\x9cquoted\xe2\x80\x9d\xe2\x80\xa6 \xc2\xbd <s> </s> <unk>",
    "HTTPServer snake_case camelCase foo@bar.com https://a.b/c?d=e&f#g unbelievableness internationalization",
    "",
};

static proa_status compare_text(const proa_tokenizer *a, const proa_tokenizer *b, const char *text,
                                bool special, proa_err *err)
{
    proa_ids x = {0}, y = {0};
    proa_str s = proa_str_c(text);
    proa_status status = proa_tokenizer_encode(a, s, special, &x, err);
    if (status == PROA_OK) status = proa_tokenizer_encode(b, s, special, &y, err);
    int64_t i = 0;
    while (status == PROA_OK && i < x.len && i < y.len && x.ptr[i] == y.ptr[i]) i++;
    if (status == PROA_OK && (i < x.len || i < y.len))
        status = PROA_FAIL(
            err, UNSUPPORTED,
            "GGUF cannot hold this tokenizer: of the text '%.40s' token %lld would be %d, not %d", text,
            (long long)i, i < y.len ? y.ptr[i] : -1, i < x.len ? x.ptr[i] : -1);
    proa_ids_release(&x), proa_ids_release(&y);
    return status;
}

void proa_gguf_put_vocabulary(proa_buf *out, const proa_gguf_values *v)
{
    proa_buf_str(out, proa_str_c("GGUF"));
    proa_gguf_put_u32(out, 3);
    proa_gguf_put_u64(out, 0);
    proa_gguf_put_u64(out, (uint64_t)v->count);
    proa_buf_str(out, proa_buf_view(&v->bytes));
}

static proa_status compare_tokenizers(const proa_weights *w, const proa_tokenizer *own, proa_err *err)
{
    proa_tokenizer *read = NULL;
    PROA_TRY(proa_tokenizer_open_files(&read, proa_weights_files(w), err));
    proa_status status = PROA_OK;
    for (size_t i = 0; i < 2 * PROA_COUNT(texts) && status == PROA_OK; i++)
        status = compare_text(own, read, texts[i / 2], i % 2, err);
    proa_tokenizer_free(read);
    return status;
}

proa_status proa_gguf_check_tokenizer(const proa_gguf_values *v, const proa_tokenizer *own, proa_err *err)
{
    proa_weights *w = NULL;
    proa_buf bytes;
    proa_buf_init(&bytes, v->bytes.len + 64);
    proa_gguf_put_vocabulary(&bytes, v);
    proa_status status = proa_weights_open_bytes(&w, bytes.ptr, (int64_t)bytes.len, "the GGUF file", err);
    if (status == PROA_OK) status = compare_tokenizers(w, own, err);
    proa_weights_close(w);
    proa_buf_release(&bytes);
    return status;
}
