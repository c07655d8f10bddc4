/* SPDX-License-Identifier: Apache-2.0
 * items.c - the items of an input as messages of a chat template: function calls join the message of the assistant that
 *           they follow, their outputs become messages of the role tool, reasoning goes with the next message. */
#include "api/responses/responses.h"

typedef struct reader {
    proa_oai *job;
    const char *param; /* "input[3]" */
    proa_json *out;    /* the list of chat messages */
    proa_json *calls; /* of the assistant's message that is the last one; in `out`; NULL: the last one is another */
    proa_buf reasoning;
} reader;

static proa_json *add_message(reader *r, const char *role)
{
    proa_json *message = proa_json_new_object();
    proa_json_put_str(message, "role", proa_str_c(role));
    proa_json_add(r->out, message);
    r->calls = NULL;
    if (r->reasoning.len > 0 && proa_str_is(proa_str_c(role), "assistant")) {
        proa_json_put_str(message, "reasoning_content", proa_buf_view(&r->reasoning));
        proa_buf_clear(&r->reasoning);
    }
    return message;
}

/* input_text of a client's messages, output_text of the model's, refusals; what is left is refused. */
static bool part_text(reader *r, const proa_json *part, proa_str *text)
{
    static const char *const types[] = {"input_text", "output_text", "text", "refusal"};
    proa_str type = proa_json_str(proa_json_get(part, "type"));
    bool known = false;
    for (size_t i = 0; i < PROA_COUNT(types); i++) known = known || proa_str_is(type, types[i]);
    const proa_json *value = proa_json_get(part, proa_str_is(type, "refusal") ? "refusal" : "text");
    if (!known)
        return proa_oai_bad(&r->job->error, r->param, "Invalid '%s': parts of type '%.40s' are not supported.",
                            r->param, type.len ? type.ptr : "");
    if (proa_json_kind(value) != PROA_JSON_STRING)
        return proa_oai_bad(&r->job->error, r->param, "Invalid '%s': a part has no text.", r->param);
    *text = proa_json_str(value);
    return true;
}

/* A string, or parts that become text parts of a chat. */
static proa_json *read_content(reader *r, const proa_json *content)
{
    proa_str text;
    if (proa_json_kind(content) == PROA_JSON_STRING) return proa_json_new_str(proa_json_str(content));
    if (proa_json_kind(content) != PROA_JSON_ARRAY) {
        proa_oai_bad(&r->job->error, r->param, "Invalid type for '%s': expected a string or a list of parts.",
                     r->param);
        return NULL;
    }
    proa_json *parts = proa_json_new_array();
    for (int64_t i = 0; i < proa_json_len(content); i++) {
        if (!part_text(r, proa_json_at(content, i), &text)) return proa_json_free(parts), NULL;
        proa_json *part = proa_json_new_object();
        proa_json_put_str(part, "type", proa_str_c("text"));
        proa_json_put_str(part, "text", text);
        proa_json_add(parts, part);
    }
    return parts;
}

static bool read_message(reader *r, const proa_json *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    proa_str role = proa_json_str(proa_json_get(item, "role"));
    for (size_t i = 0; i < PROA_COUNT(roles); i++) {
        if (!proa_str_is(role, roles[i])) continue;
        proa_json *content = read_content(r, proa_json_get(item, "content"));
        if (content) proa_json_put(add_message(r, roles[i]), "content", content);
        return content != NULL;
    }
    return proa_oai_bad(&r->job->error, r->param,
                        "Invalid '%s': the role is none of user, assistant, system, developer.", r->param);
}

/* {"type":"function_call","call_id","name","arguments"} */
static bool read_call(reader *r, const proa_json *item)
{
    proa_str name = proa_json_str(proa_json_get(item, "name")),
             id = proa_json_str(proa_json_get(item, "call_id"));
    const proa_json *arguments = proa_json_get(item, "arguments");
    if (!name.len || !id.len || proa_json_kind(arguments) != PROA_JSON_STRING)
        return proa_oai_bad(&r->job->error, r->param,
                            "Invalid '%s': a function_call has 'call_id', 'name' and a string 'arguments'.",
                            r->param);
    proa_json *call = proa_json_new_object(), *function = proa_json_new_object();
    proa_json_put_str(function, "name", name);
    proa_json_put_str(function, "arguments", proa_json_str(arguments));
    proa_json_put_str(call, "id", id);
    proa_json_put_str(call, "type", proa_str_c("function"));
    proa_json_put(call, "function", function);
    if (!r->calls) {
        proa_json *last = proa_json_at(r->out, proa_json_len(r->out) - 1), *calls = proa_json_new_array();
        if (!proa_str_is(proa_json_str(proa_json_get(last, "role")), "assistant")) {
            last = add_message(r, "assistant");
            proa_json_put_str(last, "content", (proa_str){"", 0});
        }
        proa_json_put(last, "tool_calls", calls);
        r->calls = calls;
    }
    proa_json_add(r->calls, call);
    return true;
}

/* {"type":"function_call_output","call_id","output"} */
static bool read_output(reader *r, const proa_json *item)
{
    proa_str id = proa_json_str(proa_json_get(item, "call_id"));
    if (!id.len)
        return proa_oai_bad(&r->job->error, r->param, "Missing required parameter: '%s.call_id'.", r->param);
    proa_json *content = read_content(r, proa_json_get(item, "output"));
    if (!content) return false;
    proa_json *message = add_message(r, "tool");
    proa_json_put_str(message, "tool_call_id", id);
    proa_json_put(message, "content", content);
    return true;
}

/* The texts of {"type":"reasoning","content":[{"type":"reasoning_text","text"}]}; without them there is nothing. */
static bool read_reasoning(reader *r, const proa_json *item)
{
    const proa_json *content = proa_json_get(item, "content");
    for (int64_t i = 0; i < proa_json_len(content); i++)
        proa_buf_str(&r->reasoning, proa_json_str(proa_json_get(proa_json_at(content, i), "text")));
    return true;
}

static bool read_item(reader *r, const proa_json *item)
{
    proa_str type = proa_json_str(proa_json_get(item, "type"));
    if (proa_json_kind(item) != PROA_JSON_OBJECT)
        return proa_oai_bad(&r->job->error, r->param, "Invalid type for '%s': expected an object.", r->param);
    if (type.len == 0 || proa_str_is(type, "message")) return read_message(r, item);
    if (proa_str_is(type, "function_call")) return read_call(r, item);
    if (proa_str_is(type, "function_call_output")) return read_output(r, item);
    if (proa_str_is(type, "reasoning")) return read_reasoning(r, item);
    return proa_oai_bad(&r->job->error, r->param, "Invalid '%s': items of type '%.40s' are not supported.",
                        r->param, type.ptr);
}

static bool read_input(reader *r)
{
    const proa_json *input = proa_json_get(r->job->body, "input");
    if (proa_json_kind(input) == PROA_JSON_STRING) {
        proa_json_put_str(add_message(r, "user"), "content", proa_json_str(input));
        return true;
    }
    if (!input) return proa_oai_bad(&r->job->error, "input", "Missing required parameter: 'input'.");
    if (proa_json_kind(input) != PROA_JSON_ARRAY || proa_json_len(input) == 0)
        return proa_oai_bad(&r->job->error, "input", "Invalid 'input': expected a string or a list of items.");
    for (int64_t i = 0; i < proa_json_len(input); i++) {
        r->param = proa_arena_printf(&r->job->arena, "input[%lld]", (long long)i);
        if (!read_item(r, proa_json_at(input, i))) return false;
    }
    return true;
}

/* Kept for the next response, which has instructions of its own. */
static bool keep_history(proa_oai *job, const proa_json *messages)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_RESPONSES_BYTES_MAX);
    proa_oai_put_json(&text, messages);
    job->history = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&text)), text.len};
    bool good = !text.full;
    proa_buf_release(&text);
    return good || proa_oai_bad(&job->error, "input", "The conversation is too long to be stored.");
}

/* [instructions] and the messages after it. */
static void put_messages(proa_oai *job, proa_json *messages)
{
    const proa_json *instructions = proa_json_get(job->body, "instructions");
    if (!instructions) {
        proa_json_put(job->body, "messages", messages);
        return;
    }
    proa_json *all = proa_json_new_array(), *system = proa_json_new_object();
    proa_json_put_str(system, "role", proa_str_c("system"));
    proa_json_put_str(system, "content", proa_json_str(instructions));
    proa_json_add(all, system);
    proa_json_move_all(all, messages);
    proa_json_put(job->body, "messages", all);
}

bool proa_resp_convert_input(proa_oai *job, proa_json *history)
{
    const proa_json *instructions = proa_json_get(job->body, "instructions");
    reader r = {.job = job, .out = history ? history : proa_json_new_array()};
    proa_buf_init(&r.reasoning, PROA_TEXT_BYTES_MAX);
    bool good = !instructions || proa_json_kind(instructions) == PROA_JSON_STRING ||
                proa_oai_bad(&job->error, "instructions", "Invalid type for 'instructions': expected a string.");
    good = good && read_input(&r) && (!job->store || keep_history(job, r.out));
    proa_buf_release(&r.reasoning);
    if (good) put_messages(job, r.out);
    else proa_json_free(r.out);
    return good;
}
