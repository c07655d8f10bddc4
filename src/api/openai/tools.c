/* SPDX-License-Identifier: Apache-2.0
 * tools.c - tools: which may be called, and the calls and the reasoning of a message. */
#include "api/openai/openai.h"

/* ---- what a body says ---- */

static bool check_list(proa_oai *job, const proa_json *tools, bool named)
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
static bool read_named(proa_oai *job, const proa_json *tools, const proa_json *choice)
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

static bool read_choice(proa_oai *job, const proa_json *tools)
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
    if (!job->typed || job->kind != PROA_OAI_CHAT)
        return proa_oai_bad(&job->error, "tool_choice",
                            "Invalid 'tool_choice': only 'none' and 'auto' are supported with '%.200s'.",
                            job->name.ptr);
    if (proa_json_kind(choice) == PROA_JSON_OBJECT) return read_named(job, tools, choice);
    m->choice = PROA_TOOL_CHOICE_REQUIRED;
    if (proa_str_is(how, "required")) return true;
    return proa_oai_bad(&job->error, "tool_choice",
                        "Invalid 'tool_choice': expected 'none', 'auto', 'required', or a function.");
}

bool proa_oai_check_tools(proa_oai *job)
{
    const proa_json *tools = proa_json_get(job->body, "tools");
    bool parallel = true, reasoning = true, goes_on = false;
    job->hide_tools = proa_str_is(proa_json_str(proa_json_get(job->body, "tool_choice")), "none");
    if (!check_list(job, tools, !job->hide_tools) || !read_choice(job, tools)) return false;
    if (!proa_oai_flag(&job->error, job->body, "parallel_tool_calls", &parallel) ||
        !proa_oai_flag(&job->error, job->body, "include_reasoning", &reasoning) ||
        !proa_oai_flag(&job->error, job->body, "continue_final_message", &goes_on))
        return false;
    job->message.split = job->kind == PROA_OAI_CHAT; /* other protocols answer the text as it is */
    job->message.one_call |= !parallel;
    job->message.hide_reasoning = !reasoning;
    return true;
}

/* ---- what a message has ---- */

static void put_comma(proa_buf *out)
{
    if (out->len > 0) proa_buf_char(out, ',');
}

static void put_call(proa_buf *out, const proa_generated_part *part, bool index, proa_str arguments)
{
    put_comma(out);
    proa_buf_char(out, '{');
    if (index) proa_buf_printf(out, "\"index\":%d,", (int)part->call);
    proa_buf_str(out, proa_str_c("\"id\":"));
    proa_buf_json_str(out, proa_str_c(part->id));
    proa_buf_str(out, proa_str_c(",\"type\":\"function\",\"function\":{\"name\":"));
    proa_buf_json_str(out, part->text);
    proa_buf_str(out, proa_str_c(",\"arguments\":"));
    proa_buf_json_str(out, arguments);
    proa_buf_str(out, proa_str_c("}}"));
}

/* A stream has a delta for each part. */
static void put_call_delta(proa_oai_choice *c, const proa_generated_part *part)
{
    if (part->kind == PROA_PART_CALL) put_call(&c->calls, part, true, (proa_str){"", 0});
    if (part->kind != PROA_PART_ARGUMENTS) return;
    put_comma(&c->calls);
    proa_buf_printf(&c->calls, "{\"index\":%d,\"function\":{\"arguments\":", (int)part->call);
    proa_buf_json_str(&c->calls, part->text);
    proa_buf_str(&c->calls, proa_str_c("}}"));
}

/* A whole answer has all of a sequence in one reply: `part` begins a call, whose other parts follow. */
static void put_whole_call(proa_oai_choice *c, const proa_generated_part *part, const proa_generated_part *end)
{
    proa_buf_clear(&c->arguments);
    for (const proa_generated_part *next = part + 1; next < end && next->kind == PROA_PART_ARGUMENTS; next++)
        proa_buf_str(&c->arguments, next->text);
    put_call(&c->calls, part, false, proa_buf_view(&c->arguments));
}

void proa_oai_take_parts(const proa_oai *job, proa_oai_choice *c, const proa_generated_sequence *s)
{
    const proa_generated_part *end = s->parts + s->parts_count;
    c->split = true;
    for (const proa_generated_part *part = s->parts; part < end; part++) {
        if (part->kind == PROA_PART_CONTENT) proa_buf_str(&c->text, part->text);
        else if (part->kind == PROA_PART_REASONING) proa_buf_str(&c->reasoning, part->text);
        else if (job->stream) put_call_delta(c, part);
        else if (part->kind == PROA_PART_CALL) put_whole_call(c, part, end);
        if (part->kind == PROA_PART_CALL) c->called = true;
    }
}
