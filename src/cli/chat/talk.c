/* SPDX-License-Identifier: Apache-2.0
 * talk.c - sends a conversation to /v1/chat/completions and prints the answer while it arrives. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/chat/chat.h"
#include <string.h>

#define DIM   "\033[2m"
#define PLAIN "\033[0m"

void proa_chat_init(proa_talk *c)
{
    *c = (proa_talk){.target = {.timeout_ms = 600000}};
    proa_buf_init(&c->body, (size_t)PROA_HTTP_BODY_MAX);
    proa_buf_init(&c->answer, (size_t)PROA_HTTP_BODY_MAX);
}

void proa_chat_drop(proa_talk *c, int count)
{
    while (count-- > 0 && c->count > 0) free(c->messages[--c->count].content);
}

void proa_chat_release(proa_talk *c)
{
    proa_chat_drop(c, c->count);
    free(c->messages), free(c->model), free(c->system);
    proa_buf_release(&c->body);
    proa_buf_release(&c->answer);
}

static void add_message(proa_talk *c, const char *role, const char *content)
{
    if (c->count == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        c->messages = proa_realloc(c->messages, (size_t)c->cap * sizeof *c->messages);
    }
    c->messages[c->count++] = (proa_chat_message){role, proa_strdup(content)};
}

/* ---- requests ---- */

static void write_message(proa_buf *out, const char *role, const char *content)
{
    proa_buf_printf(
        out, "%s{\"role\":\"%s\",\"content\":", out->len && out->ptr[out->len - 1] == '[' ? "" : ",", role);
    proa_buf_json_str(out, proa_str_c(content));
    proa_buf_char(out, '}');
}

void proa_chat_json(const proa_talk *c, proa_buf *out)
{
    proa_buf_char(out, '[');
    if (c->system) write_message(out, "system", c->system);
    for (int i = 0; i < c->count; i++) write_message(out, c->messages[i].role, c->messages[i].content);
    proa_buf_char(out, ']');
}

/* The value of an option as the API takes it: numbers and JSON as they are, texts in quotes, ids as a list. */
static void write_value(proa_buf *out, const proa_option_row *row, const char *text)
{
    switch (row->kind) {
    case PROA_OPTION_KIND_STYLE:
    case PROA_OPTION_KIND_TEXT: proa_buf_json_str(out, proa_str_c(text)); return;
    case PROA_OPTION_KIND_EARLY:
        if (strcmp(text, "never") == 0) proa_buf_json_str(out, proa_str_c(text));
        else proa_buf_str(out, proa_str_c(text));
        return;
    case PROA_OPTION_KIND_IDS:
    case PROA_OPTION_KIND_TOKENS: proa_buf_printf(out, text[0] == '[' ? "%s" : "[%s]", text); return;
    case PROA_OPTION_KIND_STRINGS:
        if (text[0] == '[') proa_buf_str(out, proa_str_c(text));
        else proa_buf_char(out, '['), proa_buf_json_str(out, proa_str_c(text)), proa_buf_char(out, ']');
        return;
    default: proa_buf_str(out, proa_str_c(text)); return;
    }
}

static void write_options(proa_buf *out, const proa_decoding *d)
{
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        const char *name = row->openai && row->openai[0] ? row->openai : row->name;
        if (!d->texts[i]) continue;
        proa_buf_printf(out, ",\"%.*s\":", (int)strcspn(name, " ,"), name);
        write_value(out, row, d->texts[i]);
    }
}

static void write_request(proa_buf *out, const proa_talk *c)
{
    proa_buf_printf(out, "{\"model\":");
    proa_buf_json_str(out, proa_str_c(c->model));
    proa_buf_printf(out, ",\"messages\":");
    proa_chat_json(c, out);
    proa_buf_printf(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    write_options(out, c->decoding);
    proa_buf_char(out, '}');
}

/* ---- answers ---- */

static void show_text(proa_talk *c, proa_str text, bool thinking)
{
    if (text.len == 0) return;
    if (!c->first_ns) c->first_ns = proa_clock_ns();
    if (thinking != c->thinking && c->terminal) proa_output_str(&c->out, thinking ? DIM : PLAIN "\n");
    else if (thinking != c->thinking && c->thinking) proa_output_str(&c->out, "\n");
    c->thinking = thinking;
    proa_output_text(&c->out, text);
    if (!thinking) proa_buf_append(&c->answer, text.ptr, text.len);
}

/* The part of a delta that is reasoning: DeepSeek's name for it, which Proa uses too, or that of later vLLM. */
static proa_str reasoning_of(const proa_json *delta)
{
    proa_str text = proa_json_str(proa_json_get(delta, "reasoning_content"));
    return text.len ? text : proa_json_str(proa_json_get(delta, "reasoning"));
}

static proa_status take_event(void *arg, proa_str event, proa_err *err)
{
    proa_talk *c = arg;
    proa_json *root = NULL;
    PROA_TRY(proa_json_parse(&root, event, "the answer", err));
    proa_json *delta = proa_json_get(proa_json_at(proa_json_get(root, "choices"), 0), "delta");
    proa_json *usage = proa_json_get(root, "usage");
    proa_str message = proa_json_str(proa_json_get(proa_json_get(root, "error"), "message"));
    show_text(c, reasoning_of(delta), true);
    show_text(c, proa_json_str(proa_json_get(delta, "content")), false);
    proa_output_flush(&c->out);
    if (usage) {
        c->tokens = proa_json_int(proa_json_get(usage, "completion_tokens"));
        c->prompt_tokens = proa_json_int(proa_json_get(usage, "prompt_tokens"));
    }
    proa_status status = message.len ? PROA_FAIL(err, UNAVAILABLE, "%.*s", (int)message.len, message.ptr)
                                     : PROA_OK;
    proa_json_free(root);
    return status;
}

static proa_status take_body(void *arg, int status, proa_str bytes, proa_err *err)
{
    proa_talk *c = arg;
    c->status = status;
    if (proa_chat_interrupted()) return PROA_FAIL(err, CANCELLED, "interrupted");
    if (!proa_buf_append(&c->body, bytes.ptr, bytes.len))
        return PROA_FAIL(err, LIMIT, "the answer is too large");
    return status < 400 ? proa_client_events(&c->body, take_event, c, err) : PROA_OK;
}

/* The server's own words after a status of 400 or more. */
static proa_status check_status(proa_talk *c, proa_err *err)
{
    proa_json *root = NULL;
    if (c->status < 400) return PROA_OK;
    proa_status status = proa_json_parse(&root, proa_buf_view(&c->body), "the answer", NULL);
    proa_json *error = proa_json_get(root, "error");
    proa_str text = proa_json_str(proa_json_kind(error) == PROA_JSON_OBJECT ? proa_json_get(error, "message")
                                                                            : error);
    if (status == PROA_OK && text.len) (void)PROA_FAIL(err, INVALID, "%.*s", (int)text.len, text.ptr);
    else (void)PROA_FAIL(err, INVALID, "the server answers %d", c->status);
    proa_json_free(root);
    return PROA_INVALID;
}

static void show_speed(const proa_talk *c)
{
    double first = (double)(c->first_ns - c->start_ns) * 1e-9,
           all = (double)(proa_clock_ns() - c->start_ns) * 1e-9;
    if (c->quiet || c->tokens <= 0) return;
    fprintf(stderr, "%s[%lld tokens, %.1f tokens/s, first after %.2f s, %lld in the prompt]%s\n",
            c->terminal ? DIM : "", (long long)c->tokens,
            c->tokens > 1 && all > first ? (double)(c->tokens - 1) / (all - first) : 0, first,
            (long long)c->prompt_tokens, c->terminal ? PLAIN : "");
}

static void begin_answer(proa_talk *c)
{
    proa_buf_clear(&c->body);
    proa_buf_clear(&c->answer);
    c->status = 0, c->thinking = false;
    c->start_ns = proa_clock_ns();
    c->first_ns = c->tokens = c->prompt_tokens = 0;
}

/* Ends the line of the answer. */
static void end_answer(proa_talk *c)
{
    if (c->thinking && c->terminal) proa_output_str(&c->out, PLAIN);
    if (c->first_ns) proa_output_str(&c->out, "\n");
    proa_output_flush(&c->out);
}

proa_status proa_chat_say(proa_talk *c, const char *text, proa_err *err)
{
    proa_buf request;
    proa_err why = {0};
    add_message(c, "user", text);
    proa_buf_init(&request, (size_t)PROA_HTTP_BODY_MAX);
    write_request(&request, c);
    begin_answer(c);
    proa_status status = proa_client_http(&c->target, "POST", "/v1/chat/completions", proa_buf_view(&request),
                                          take_body, c, &why);
    if (status == PROA_OK) status = check_status(c, &why);
    bool stopped = proa_chat_interrupted();
    end_answer(c);
    if (status == PROA_OK || (stopped && c->answer.len))
        add_message(c, "assistant", c->answer.len ? c->answer.ptr : "");
    else proa_chat_drop(c, 1);
    if (status == PROA_OK) show_speed(c);
    proa_buf_release(&request);
    if (stopped && status != PROA_OK) return PROA_FAIL(err, CANCELLED, "interrupted");
    if (status != PROA_OK && err) *err = why;
    return status;
}

static proa_status take_all(void *arg, int status, proa_str bytes, proa_err *err)
{
    proa_talk *c = arg;
    c->status = status;
    return proa_buf_append(&c->body, bytes.ptr, bytes.len) ? PROA_OK
                                                           : PROA_FAIL(err, LIMIT, "the answer is too large");
}

proa_status proa_chat_find_model(proa_talk *c, proa_err *err)
{
    proa_json *root = NULL;
    begin_answer(c);
    PROA_TRY(proa_client_http(&c->target, "GET", "/v1/models", (proa_str){"", 0}, take_all, c, err));
    PROA_TRY(check_status(c, err));
    PROA_TRY(proa_json_parse(&root, proa_buf_view(&c->body), "the list of models", err));
    proa_str id = proa_json_str(proa_json_get(proa_json_at(proa_json_get(root, "data"), 0), "id"));
    if (id.len) c->model = proa_str_copy(id);
    proa_json_free(root);
    return id.len ? PROA_OK : PROA_FAIL(err, NOT_FOUND, "the server has no model");
}
