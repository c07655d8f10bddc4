/* SPDX-License-Identifier: Apache-2.0
 * chat.c - messages and tools, checked, and what a model's chat template gets of a body. */
#include "api/openai/openai.h"

#include <string.h>

/* Members of the body that templates may see. */
static const char *const members[] = {"messages",
                                      "tools",
                                      "documents",
                                      "add_generation_prompt",
                                      "continue_final_message",
                                      "chat_template",
                                      "chat_template_kwargs",
                                      "reasoning_effort"};

static bool check_parts(proa_oai *job, const proa_json *parts, int64_t message)
{
    for (int64_t i = 0; i < proa_json_len(parts); i++) {
        const proa_json *part = proa_json_at(parts, i);
        proa_str type = proa_json_str(proa_json_get(part, "type"));
        const char *param = proa_arena_printf(&job->arena, "messages[%lld].content[%lld]", (long long)message,
                                              (long long)i);
        if (!proa_str_is(type, "text"))
            return proa_oai_bad(
                &job->error, param,
                "Invalid content part: this model takes parts of type 'text' only, not '%.40s'.",
                type.len ? type.ptr : "");
        if (proa_json_kind(proa_json_get(part, "text")) != PROA_JSON_STRING)
            return proa_oai_bad(&job->error, param, "Invalid content part: 'text' must be a string.");
    }
    return true;
}

/* As OpenAI's API: a role that no template expects would be rendered, and answered, as if it were one. */
static bool check_role(proa_oai *job, const proa_json *role, const char *message)
{
    static const char *const roles[] = {"system", "assistant", "user", "function", "tool", "developer"};
    if (proa_json_kind(role) != PROA_JSON_STRING)
        return proa_oai_bad(&job->error, message, "Missing required parameter: '%s.role'.", message);
    for (size_t i = 0; i < PROA_COUNT(roles); i++)
        if (proa_str_is(proa_json_str(role), roles[i])) return true;
    const char *param = proa_arena_printf(&job->arena, "%s.role", message);
    proa_oai_bad(&job->error, param,
                 "Invalid value: '%.40s'. Supported values of '%s' are: 'system', 'assistant', 'user', "
                 "'function', 'tool', and 'developer'.",
                 proa_json_str(role).ptr, param);
    job->error.code = "invalid_value";
    return false;
}

static bool check_message(proa_oai *job, const proa_json *message, int64_t i)
{
    const proa_json *content = proa_json_get(message, "content");
    const char *param = proa_arena_printf(&job->arena, "messages[%lld]", (long long)i);
    if (proa_json_kind(message) != PROA_JSON_OBJECT)
        return proa_oai_bad(&job->error, param, "Invalid type for '%s': expected an object.", param);
    if (!check_role(job, proa_json_get(message, "role"), param)) return false;
    if (proa_json_kind(content) == PROA_JSON_ARRAY) return check_parts(job, content, i);
    if (content && proa_json_kind(content) != PROA_JSON_STRING)
        return proa_oai_bad(&job->error, param,
                            "Invalid type for '%s.content': expected a string or a list of parts.", param);
    return true;
}

static bool check_messages(proa_oai *job)
{
    const proa_json *messages = proa_json_get(job->body, "messages");
    if (!messages) return proa_oai_bad(&job->error, "messages", "Missing required parameter: 'messages'.");
    if (proa_json_kind(messages) != PROA_JSON_ARRAY || proa_json_len(messages) == 0)
        return proa_oai_bad(&job->error, "messages",
                            "Invalid 'messages': expected a list of at least one message.");
    for (int64_t i = 0; i < proa_json_len(messages); i++)
        if (!check_message(job, proa_json_at(messages, i), i)) return false;
    return true;
}

/* ---- tools ---- */

static bool check_tool_list(proa_oai *job, const proa_json *tools, bool named)
{
    if (tools && proa_json_kind(tools) != PROA_JSON_ARRAY)
        return proa_oai_bad(&job->error, "tools", "Invalid type for 'tools': expected a list of tools.");
    for (int64_t i = 0; i < proa_json_len(tools); i++) {
        const proa_json *function = proa_json_get(proa_json_at(tools, i), "function");
        if (proa_json_kind(function) != PROA_JSON_OBJECT)
            return proa_oai_bad(&job->error, "tools", "Missing required parameter: 'tools[%lld].function'.",
                                (long long)i);
        if (named && proa_json_str(proa_json_get(function, "name")).len == 0)
            return proa_oai_bad(&job->error, "tools",
                                "Missing required parameter: 'tools[%lld].function.name'.", (long long)i);
    }
    return true;
}

/* {"type": "function", "function": {"name": ..}} with the name of a tool. */
static bool read_named_choice(proa_oai *job, const proa_json *tools, const proa_json *choice)
{
    proa_str name = proa_json_str(proa_json_get(proa_json_get(choice, "function"), "name"));
    if (name.len == 0)
        return proa_oai_bad(&job->error, "tool_choice",
                            "Missing required parameter: 'tool_choice.function.name'.");
    for (int64_t i = 0; i < proa_json_len(tools); i++) {
        const proa_json *function = proa_json_get(proa_json_at(tools, i), "function");
        if (!proa_str_eq(proa_json_str(proa_json_get(function, "name")), name)) continue;
        job->message.choice = PROA_TOOL_CHOICE_NAMED;
        job->message.one_call = true;
        job->message.tool = (proa_str){proa_arena_strdup(&job->arena, name), name.len};
        return true;
    }
    return proa_oai_bad(&job->error, "tool_choice",
                        "Invalid 'tool_choice': the function '%.100s' is not in 'tools'.", name.ptr);
}

static bool read_tool_choice(proa_oai *job, const proa_json *tools)
{
    const proa_json *choice = proa_json_get(job->body, "tool_choice");
    proa_str how = proa_json_str(choice);
    proa_message_options *m = &job->message;
    bool some = proa_json_len(tools) > 0;
    m->choice = some && !job->hide_tools ? PROA_TOOL_CHOICE_AUTO : PROA_TOOL_CHOICE_NONE;
    if (!choice || job->hide_tools || proa_str_is(how, "auto")) return true;
    if (!some)
        return proa_oai_bad(&job->error, "tool_choice",
                            "Invalid 'tool_choice': it is only allowed when 'tools' are specified.");
    if (!job->typed)
        return proa_oai_bad(&job->error, "tool_choice",
                            "Invalid 'tool_choice': only 'none' and 'auto' are supported with '%.200s'.",
                            job->name.ptr);
    if (proa_json_kind(choice) == PROA_JSON_OBJECT) return read_named_choice(job, tools, choice);
    m->choice = PROA_TOOL_CHOICE_REQUIRED;
    if (proa_str_is(how, "required")) return true;
    return proa_oai_bad(&job->error, "tool_choice",
                        "Invalid 'tool_choice': expected 'none', 'auto', 'required', or a function.");
}

static bool check_tools(proa_oai *job)
{
    const proa_json *tools = proa_json_get(job->body, "tools");
    bool parallel = true, reasoning = true, goes_on = false;
    job->hide_tools = proa_str_is(proa_json_str(proa_json_get(job->body, "tool_choice")), "none");
    if (!check_tool_list(job, tools, !job->hide_tools) || !read_tool_choice(job, tools)) return false;
    if (!proa_oai_flag(&job->error, job->body, "parallel_tool_calls", &parallel) ||
        !proa_oai_flag(&job->error, job->body, "include_reasoning", &reasoning) ||
        !proa_oai_flag(&job->error, job->body, "continue_final_message", &goes_on))
        return false;
    job->message.split = job->form->chat;
    job->message.one_call |= !parallel;
    job->message.hide_reasoning = !reasoning;
    return true;
}

/* ---- the whole ---- */

static bool check_modalities(proa_oai *job)
{
    const proa_json *modalities = proa_json_get(job->body, "modalities");
    for (int64_t i = 0; i < proa_json_len(modalities); i++)
        if (!proa_str_is(proa_json_str(proa_json_at(modalities, i)), "text"))
            return proa_oai_bad(&job->error, "modalities", "Invalid 'modalities': only 'text' is supported.");
    return true;
}

bool proa_oai_check_chat(proa_oai *job)
{
    return check_messages(job) && check_tools(job) && check_modalities(job);
}

static bool print_chat(proa_oai *job)
{
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_HTTP_BODY_MAX * 2);
    proa_buf_char(&out, '{');
    for (size_t i = 0; i < PROA_COUNT(members); i++) {
        const proa_json *value = proa_json_get(job->body, members[i]);
        if (!value) continue;
        proa_buf_printf(&out, "%s\"%s\":", out.len > 1 ? "," : "", members[i]);
        proa_oai_put_json(&out, value);
    }
    proa_buf_char(&out, '}');
    job->chat_text = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&out)), out.len};
    bool full = out.full;
    proa_buf_release(&out);
    return !full || proa_oai_bad(&job->error, "messages", "The messages are too long.");
}

bool proa_oai_take_chat(proa_oai *job)
{
    const char *kept[PROA_COUNT(members)];
    int count = 0;
    for (size_t i = 0; i < PROA_COUNT(members); i++)
        if (!job->hide_tools || strcmp(members[i], "tools") != 0) kept[count++] = members[i];
    proa_json_keep(job->body, kept, count);
    if (!job->typed || proa_json_bytes(job->body) > (size_t)PROA_CHAT_TREE_BYTES_MAX) return print_chat(job);
    job->chat = job->body;
    job->chat_bytes = job->body_bytes;
    job->body = NULL;
    return true;
}
