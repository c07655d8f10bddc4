/* SPDX-License-Identifier: Apache-2.0
 * logprobs.c - log-probabilities as the two forms of OpenAI: four lists of a completion, objects of a chat. */
#include "api/openai/openai.h"

#include <math.h>
#include <string.h>

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

static void put_comma(proa_buf *out)
{
    if (out->len > 0) proa_buf_char(out, ',');
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

static void put_chat_tops(proa_buf *out, const proa_generated_tokens *t, int64_t token)
{
    proa_buf_char(out, '[');
    for (int64_t i = token * t->tops; i < (token + 1) * t->tops; i++) {
        if (i > token * t->tops) proa_buf_char(out, ',');
        put_members(out, t->top_texts[i], t->top_logprobs[i]);
        proa_buf_char(out, '}');
    }
    proa_buf_char(out, ']');
}

static void put_entry(proa_buf *out, proa_str text, float value)
{
    put_token(out, text);
    proa_buf_char(out, ':');
    put_value(out, value);
}

/* {"a":-0.1,...}. The token itself is always among them, so there may be one more than N, as OpenAI documents. */
static void put_completion_tops(proa_buf *out, const proa_generated_tokens *t, int64_t token)
{
    bool found = false;
    proa_buf_char(out, '{');
    for (int64_t i = token * t->tops; i < (token + 1) * t->tops; i++) {
        if (i > token * t->tops) proa_buf_char(out, ',');
        put_entry(out, t->top_texts[i], t->top_logprobs[i]);
        found = found || proa_str_eq(t->top_texts[i], t->texts[token]);
    }
    if (!found) {
        if (t->tops > 0) proa_buf_char(out, ',');
        put_entry(out, t->texts[token], t->logprobs[token]);
    }
    proa_buf_char(out, '}');
}

static void take_chat(proa_oai_choice *c, const proa_generated_tokens *t, int64_t token)
{
    put_comma(&c->tokens);
    put_members(&c->tokens, t->texts[token], t->logprobs[token]);
    proa_buf_str(&c->tokens, proa_str_c(",\"top_logprobs\":"));
    put_chat_tops(&c->tokens, t, token);
    proa_buf_char(&c->tokens, '}');
}

static void take_completion(proa_oai_choice *c, const proa_generated_tokens *t, int64_t token)
{
    put_comma(&c->tokens);
    put_token(&c->tokens, t->texts[token]);
    put_comma(&c->values);
    put_value(&c->values, t->logprobs[token]);
    put_comma(&c->offsets);
    proa_buf_printf(&c->offsets, "%lld", (long long)c->characters);
    c->characters += proa_utf8_count(t->texts[token]);
    put_comma(&c->tops);
    if (isnan(t->logprobs[token]))
        proa_buf_str(&c->tops, proa_str_c("null")); /* a prompt's first: nothing before it */
    else put_completion_tops(&c->tops, t, token);
}

void proa_oai_take_logprobs(const proa_oai *job, proa_oai_choice *c, const proa_generated_tokens *tokens)
{
    for (int64_t i = 0; job->params.logprobs && i < tokens->count; i++) {
        if (job->form->chat) take_chat(c, tokens, i);
        else take_completion(c, tokens, i);
    }
}

void proa_oai_take_prompt(const proa_oai *job, proa_oai_prompt *p, const proa_generated_tokens *tokens)
{
    if (!job->params.echo || p->echoed.begun) return;
    p->echoed.begun = true;
    for (int64_t i = 0; !p->text.ptr && job->params.score && i < tokens->count; i++)
        proa_buf_str(&p->echoed.text, tokens->texts[i]);
    proa_oai_take_logprobs(job, &p->echoed, tokens);
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
    if (job->form->chat) {
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
