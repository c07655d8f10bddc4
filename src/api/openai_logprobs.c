/* SPDX-License-Identifier: Apache-2.0
 * openai_logprobs.c - log-probabilities as the two forms of OpenAI: four lists of a completion, objects of a chat. */
#include "api/openai/openai.h"

#include <math.h>
#include <string.h>

/* A row of [.., tokens, alternatives] of a reply. */
typedef struct rows {
    const float *values;                  /* [tokens] */
    const float *top_values;              /* [tokens, tops] or NULL */
    const proa_tensor *texts, *top_texts; /* BYTES of the same shapes */
    size_t text_at, top_at;               /* where the row begins in them */
    int64_t tokens, tops;
} rows;

/* Behind `count` strings. */
static size_t skip_strings(const proa_tensor *t, size_t at, int64_t count)
{
    proa_str ignored;
    while (count-- > 0 && proa_tensor_next_string(t, &at, &ignored)) {
    }
    return at;
}

static int64_t whole_at(const proa_reply *reply, const char *name, int64_t i, int64_t otherwise)
{
    const proa_tensor *t = proa_reply_output(reply, name);
    if (!t || t->type != PROA_TYPE_INT32 || t->bytes < (size_t)(i + 1) * 4) return otherwise;
    return ((const int32_t *)(const void *)t->data)[i];
}

/* Finds the tensors and checks that they are as large as they say; false if there are none. `count` rows of texts of
 * `width` tokens; the wanted one is `row`. */
static bool find_rows(rows *r, const proa_reply *reply, const char *const names[4], int64_t row, int64_t count)
{
    const proa_tensor *values = proa_reply_output(reply, names[0]), *tops = proa_reply_output(reply, names[2]);
    r->texts = proa_reply_output(reply, names[1]);
    r->top_texts = proa_reply_output(reply, names[3]);
    if (!values || !r->texts || values->type != PROA_TYPE_FP32 || r->texts->type != PROA_TYPE_BYTES)
        return false;
    int64_t width = (int64_t)(values->bytes / sizeof(float)) / count;
    r->values = (const float *)(const void *)values->data + row * width;
    r->tokens = width;
    r->text_at = skip_strings(r->texts, 0, row * width);
    if (!tops || !r->top_texts || tops->type != PROA_TYPE_FP32 || width == 0) return true;
    r->tops = (int64_t)(tops->bytes / sizeof(float)) / (count * width);
    r->top_values = (const float *)(const void *)tops->data + row * width * r->tops;
    r->top_at = skip_strings(r->top_texts, 0, row * width * r->tops);
    return true;
}

/* A token's text; where it is no whole character its bytes, as OpenAI shows them. */
static void put_token(proa_buf *out, proa_str text)
{
    proa_buf hex;
    if (proa_utf8_valid(text)) {
        proa_buf_json_str(out, text);
        return;
    }
    proa_buf_init(&hex, text.len * 4 + 16);
    proa_buf_str(&hex, proa_str_c("bytes:"));
    for (size_t i = 0; i < text.len; i++) proa_buf_printf(&hex, "\\x%02x", (unsigned char)text.ptr[i]);
    proa_buf_json_str(out, proa_buf_view(&hex));
    proa_buf_release(&hex);
}

static void put_value(proa_buf *out, float value)
{
    if (isnan(value)) proa_buf_str(out, proa_str_c("null"));
    else proa_oai_put_number(out, (double)value);
}

static void comma(proa_buf *out)
{
    if (out->len > 0) proa_buf_char(out, ',');
}

static int64_t characters(proa_str s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

/* "token":..., "logprob":..., "bytes":[...] */
static void put_members(proa_buf *out, proa_str text, float value)
{
    proa_buf_str(out, proa_str_c("{\"token\":"));
    put_token(out, text);
    proa_buf_str(out, proa_str_c(",\"logprob\":"));
    put_value(out, value);
    proa_buf_str(out, proa_str_c(",\"bytes\":["));
    for (size_t i = 0; i < text.len; i++)
        proa_buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)text.ptr[i]);
    proa_buf_char(out, ']');
}

/* The alternatives of one token: {"a":-0.1,...}, or objects for a chat. */
static void put_tops(proa_buf *out, rows *r, int64_t token, bool chat)
{
    proa_str text = {"", 0};
    proa_buf_char(out, chat ? '[' : '{');
    for (int64_t i = 0; i < r->tops && proa_tensor_next_string(r->top_texts, &r->top_at, &text); i++) {
        float value = r->top_values[token * r->tops + i];
        if (i > 0) proa_buf_char(out, ',');
        if (chat) {
            put_members(out, text, value);
            proa_buf_char(out, '}');
            continue;
        }
        put_token(out, text);
        proa_buf_char(out, ':');
        put_value(out, value);
    }
    proa_buf_char(out, chat ? ']' : '}');
}

static void take_chat(proa_oai_choice *c, rows *r, int64_t token, proa_str text)
{
    comma(&c->tokens);
    put_members(&c->tokens, text, r->values[token]);
    proa_buf_str(&c->tokens, proa_str_c(",\"top_logprobs\":"));
    put_tops(&c->tokens, r, token, true);
    proa_buf_char(&c->tokens, '}');
}

static void take_completion(proa_oai_choice *c, rows *r, int64_t token, proa_str text)
{
    comma(&c->tokens);
    put_token(&c->tokens, text);
    comma(&c->values);
    put_value(&c->values, r->values[token]);
    comma(&c->offsets);
    proa_buf_printf(&c->offsets, "%lld", (long long)c->characters);
    c->characters += characters(text);
    comma(&c->tops);
    if (isnan(r->values[token])) { /* the first token of a prompt: nothing before it */
        proa_buf_str(&c->tops, proa_str_c("null"));
        r->top_at = r->top_texts ? skip_strings(r->top_texts, r->top_at, r->tops) : 0;
    } else put_tops(&c->tops, r, token, false);
}

static void take(const proa_oai *job, proa_oai_choice *c, rows *r)
{
    proa_str text;
    for (int64_t k = 0; k < r->tokens && proa_tensor_next_string(r->texts, &r->text_at, &text); k++) {
        if (job->kind == PROA_OAI_CHAT) take_chat(c, r, k, text);
        else take_completion(c, r, k, text);
    }
}

void proa_oai_take_logprobs(proa_oai *job, proa_oai_choice *c, const proa_reply *reply, int64_t row, int64_t count)
{
    static const char *const names[] = {"output_log_probs", "token_text", "top_log_probs", "top_text"};
    rows r = {.tokens = 0};
    if (!job->params.logprobs || count <= 0 || !find_rows(&r, reply, names, row, count)) return;
    int64_t length = whole_at(reply, "sequence_length", row, r.tokens);
    if (length < r.tokens) r.tokens = length;
    take(job, c, &r);
}

void proa_oai_take_prompt(proa_oai *job, proa_oai_prompt *p, const proa_reply *reply)
{
    static const char *const names[] = {"prompt_log_probs", "prompt_text", "prompt_top_log_probs",
                                        "prompt_top_text"};
    rows r = {.tokens = 0};
    proa_str text;
    if (!job->params.echo || p->said.begun || !find_rows(&r, reply, names, 0, 1)) return;
    p->said.begun = true;
    size_t at = 0;
    while (!p->text.ptr && job->params.score && proa_tensor_next_string(r.texts, &at, &text))
        proa_buf_str(&p->said.text, text);
    if (job->params.logprobs) take(job, &p->said, &r);
}

static void put_list(proa_buf *out, const char *name, const proa_buf *items)
{
    proa_buf_printf(out, "\"%s\":[", name);
    proa_buf_str(out, proa_buf_view(items));
    proa_buf_char(out, ']');
}

void proa_oai_put_logprobs(const proa_oai *job, proa_buf *out, const proa_oai_choice *c)
{
    if (!job->params.logprobs) {
        proa_buf_str(out, proa_str_c("null"));
        return;
    }
    proa_buf_char(out, '{');
    if (job->kind == PROA_OAI_CHAT) {
        put_list(out, "content", &c->tokens);
        proa_buf_str(out, proa_str_c(",\"refusal\":null}"));
        return;
    }
    put_list(out, "text_offset", &c->offsets);
    proa_buf_char(out, ',');
    put_list(out, "token_logprobs", &c->values);
    proa_buf_char(out, ',');
    put_list(out, "tokens", &c->tokens);
    proa_buf_char(out, ',');
    if (job->params.top_logprobs > 0) put_list(out, "top_logprobs", &c->tops);
    else proa_buf_str(out, proa_str_c("\"top_logprobs\":null"));
    proa_buf_char(out, '}');
}
