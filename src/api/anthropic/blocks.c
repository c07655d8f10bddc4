/* SPDX-License-Identifier: Apache-2.0
 * blocks.c - messages with content blocks as messages of a chat template: texts stay, tool_use becomes a tool call of
 *            its message, tool_result a message of the role tool, and thinking the reasoning of its message. */
#include "api/anthropic/messages.h"

/* The chat message that is being made of one of Anthropic's. */
typedef struct draft {
    proa_oai *job;
    const char *param; /* "messages[3].content[1]" */
    const char *role;
    proa_json *out;   /* the list of chat messages */
    proa_json *parts; /* texts so far; NULL: none */
    proa_json *calls; /* tool calls so far; NULL: none */
    proa_buf reasoning;
} draft;

static proa_json *new_message(const char *role)
{
    proa_json *message = proa_json_new_object();
    proa_json_put_str(message, "role", proa_str_c(role));
    return message;
}

/* What was collected as one message; nothing if there is nothing. */
static void end_message(draft *d)
{
    if (!d->parts && !d->calls && d->reasoning.len == 0) return;
    proa_json *message = new_message(d->role);
    if (d->parts) proa_json_put(message, "content", d->parts);
    else proa_json_put_str(message, "content", (proa_str){"", 0});
    if (d->calls) proa_json_put(message, "tool_calls", d->calls);
    if (d->reasoning.len > 0) proa_json_put_str(message, "reasoning_content", proa_buf_view(&d->reasoning));
    proa_json_add(d->out, message);
    d->parts = d->calls = NULL;
    proa_buf_clear(&d->reasoning);
}

static bool add_text(draft *d, const proa_json *block)
{
    const proa_json *text = proa_json_get(block, "text");
    if (proa_json_kind(text) != PROA_JSON_STRING)
        return proa_oai_bad(&d->job->error, d->param, "%s: 'text' must be a string", d->param);
    proa_json *part = proa_json_new_object();
    proa_json_put_str(part, "type", proa_str_c("text"));
    proa_json_put_str(part, "text", proa_json_str(text));
    if (!d->parts) d->parts = proa_json_new_array();
    proa_json_add(d->parts, part);
    return true;
}

/* {"type":"tool_use","id","name","input":{}} */
static bool add_call(draft *d, proa_json *block)
{
    proa_str name = proa_json_str(proa_json_get(block, "name")),
             id = proa_json_str(proa_json_get(block, "id"));
    if (name.len == 0 || id.len == 0 || proa_json_kind(proa_json_get(block, "input")) != PROA_JSON_OBJECT)
        return proa_oai_bad(&d->job->error, d->param,
                            "%s: a tool_use block has 'id', 'name' and an object 'input'", d->param);
    proa_json *call = proa_json_new_object(), *function = proa_json_new_object();
    proa_json_put_str(function, "name", name);
    proa_json_put(function, "arguments", proa_json_take(block, "input"));
    proa_json_put_str(call, "id", id);
    proa_json_put_str(call, "type", proa_str_c("function"));
    proa_json_put(call, "function", function);
    if (!d->calls) d->calls = proa_json_new_array();
    proa_json_add(d->calls, call);
    return true;
}

/* The text of a tool's result: a string, or blocks of text. */
static bool result_text(draft *d, const proa_json *content, proa_buf *out)
{
    if (!content) return true;
    if (proa_json_kind(content) == PROA_JSON_STRING) return proa_buf_str(out, proa_json_str(content));
    for (int64_t i = 0; i < proa_json_len(content); i++) {
        const proa_json *block = proa_json_at(content, i);
        if (!proa_str_is(proa_json_str(proa_json_get(block, "type")), "text"))
            return proa_oai_bad(&d->job->error, d->param,
                                "%s: results of tools have blocks of type 'text' only", d->param);
        if (i > 0) proa_buf_char(out, '\n');
        proa_buf_str(out, proa_json_str(proa_json_get(block, "text")));
    }
    return proa_json_kind(content) == PROA_JSON_ARRAY ||
           proa_oai_bad(&d->job->error, d->param, "%s: 'content' must be a string or a list of blocks", d->param);
}

/* {"type":"tool_result","tool_use_id","content"}: a message of its own, after what came before it. */
static bool add_result(draft *d, const proa_json *block)
{
    proa_str id = proa_json_str(proa_json_get(block, "tool_use_id"));
    proa_buf text;
    if (id.len == 0) return proa_oai_bad(&d->job->error, d->param, "%s: 'tool_use_id' is missing", d->param);
    proa_buf_init(&text, PROA_TEXT_BYTES_MAX);
    bool good = result_text(d, proa_json_get(block, "content"), &text);
    if (good) {
        end_message(d);
        proa_json *message = new_message("tool");
        proa_json_put_str(message, "tool_call_id", id);
        proa_json_put_str(message, "content", proa_buf_view(&text));
        proa_json_add(d->out, message);
    }
    proa_buf_release(&text);
    return good;
}

static bool add_block(draft *d, proa_json *block)
{
    proa_str type = proa_json_str(proa_json_get(block, "type"));
    bool assistant = proa_str_is(proa_str_c(d->role), "assistant");
    if (proa_str_is(type, "text")) return add_text(d, block);
    if (proa_str_is(type, "tool_use") && assistant) return add_call(d, block);
    if (proa_str_is(type, "tool_result") && !assistant) return add_result(d, block);
    if (proa_str_is(type, "thinking") && assistant)
        return proa_buf_str(&d->reasoning, proa_json_str(proa_json_get(block, "thinking")));
    if (proa_str_is(type, "redacted_thinking") && assistant)
        return true; /* it is encrypted: nothing to read */
    return proa_oai_bad(&d->job->error, d->param, "%s: blocks of type '%.40s' are not supported for the role %s",
                        d->param, type.len ? type.ptr : "", d->role);
}

static bool add_blocks(draft *d, const proa_json *content, const char *param)
{
    bool good = true;
    for (int64_t i = 0; i < proa_json_len(content) && good; i++) {
        d->param = proa_arena_printf(&d->job->arena, "%s[%lld]", param, (long long)i);
        good = add_block(d, proa_json_at(content, i));
    }
    if (good) end_message(d);
    return good;
}

/* Content is a string, or a list of blocks. */
static bool add_content(draft *d, const proa_json *content, const char *param)
{
    if (proa_json_kind(content) == PROA_JSON_STRING) {
        proa_json *message = new_message(d->role);
        proa_json_put_str(message, "content", proa_json_str(content));
        proa_json_add(d->out, message);
        return true;
    }
    if (proa_json_kind(content) != PROA_JSON_ARRAY)
        return proa_oai_bad(&d->job->error, param, "%s: must be a string or a list of content blocks", param);
    return add_blocks(d, content, param);
}

static bool add_message(draft *d, const proa_json *message, int64_t i)
{
    proa_str role = proa_json_str(proa_json_get(message, "role"));
    const char *param = proa_arena_printf(&d->job->arena, "messages[%lld].content", (long long)i);
    d->role = proa_str_is(role, "assistant") ? "assistant" : "user";
    if (!proa_str_is(role, d->role))
        return proa_oai_bad(&d->job->error, "messages", "messages[%lld].role: must be 'user' or 'assistant'",
                            (long long)i);
    return add_content(d, proa_json_get(message, "content"), param);
}

static bool add_all(draft *d)
{
    const proa_json *system = proa_json_get(d->job->body, "system"),
                    *messages = proa_json_get(d->job->body, "messages");
    d->role = "system";
    if (system && !add_content(d, system, "system")) return false;
    if (proa_json_kind(messages) != PROA_JSON_ARRAY || proa_json_len(messages) == 0)
        return proa_oai_bad(&d->job->error, "messages", "messages: at least one message is required");
    for (int64_t i = 0; i < proa_json_len(messages); i++)
        if (!add_message(d, proa_json_at(messages, i), i)) return false;
    return true;
}

static bool has_text(const proa_json *content)
{
    for (int64_t i = 0; i < proa_json_len(content); i++)
        if (proa_json_str(proa_json_get(proa_json_at(content, i), "text")).len > 0) return true;
    return proa_json_str(content).len > 0;
}

/* A last message of the assistant is the beginning of the answer, which continues its text. */
static void continue_last(proa_json *body)
{
    const proa_json *messages = proa_json_get(body, "messages");
    const proa_json *last = proa_json_at(messages, proa_json_len(messages) - 1);
    bool assistant = proa_str_is(proa_json_str(proa_json_get(last, "role")), "assistant");
    proa_json *yes = NULL;
    if (!assistant || proa_json_get(last, "tool_calls") || !has_text(proa_json_get(last, "content"))) return;
    if (proa_json_parse(&yes, proa_str_c("true"), "messages", NULL) == PROA_OK)
        proa_json_put(body, "continue_final_message", yes);
}

bool proa_msg_convert_messages(proa_oai *job)
{
    draft d = {.job = job, .out = proa_json_new_array()};
    proa_buf_init(&d.reasoning, PROA_TEXT_BYTES_MAX);
    bool good = add_all(&d);
    proa_buf_release(&d.reasoning);
    proa_json_free(d.parts);
    proa_json_free(d.calls);
    if (!good) return proa_json_free(d.out), false;
    proa_json_remove(job->body, "system");
    proa_json_put(job->body, "messages", d.out);
    continue_last(job->body);
    return true;
}
