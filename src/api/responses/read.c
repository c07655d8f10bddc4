/* SPDX-License-Identifier: Apache-2.0
 * read.c - a body of /v1/responses becomes that of a chat, by the names of a chat's members. What this server cannot do
 *          is refused by the name that the client used. */
#include "api/responses/responses.h"

#include <string.h>
#include <sys/random.h>

/* ---- what the answer repeats ---- */

/* Members of the request that the response shows, each with what it shows without one. */
static const char *const shown[][2] = {{"instructions", "null"},
                                       {"max_output_tokens", "null"},
                                       {"max_tool_calls", "null"},
                                       {"metadata", "{}"},
                                       {"parallel_tool_calls", "true"},
                                       {"previous_response_id", "null"},
                                       {"prompt_cache_key", "null"},
                                       {"reasoning", "{\"effort\":null,\"summary\":null}"},
                                       {"safety_identifier", "null"},
                                       {"service_tier", "\"default\""},
                                       {"store", "true"},
                                       {"temperature", "1.0"},
                                       {"text", "{\"format\":{\"type\":\"text\"}}"},
                                       {"tool_choice", "\"auto\""},
                                       {"tools", "[]"},
                                       {"top_logprobs", "0"},
                                       {"top_p", "1.0"},
                                       {"truncation", "\"disabled\""},
                                       {"user", "null"}};

static void keep_shown(proa_oai *job)
{
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_HTTP_BODY_MAX * 2);
    for (size_t i = 0; i < PROA_COUNT(shown); i++) {
        const proa_json *value = proa_json_get(job->body, shown[i][0]);
        proa_buf_printf(&out, "\"%s\":", shown[i][0]);
        if (value) proa_oai_put_json(&out, value);
        else proa_buf_str(&out, proa_str_c(shown[i][1]));
        proa_buf_char(&out, ',');
    }
    job->shown = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&out)), out.len};
    proa_buf_release(&out);
}

/* ---- what is refused ---- */

static bool check_absent(proa_oai *job)
{
    static const char *const names[] = {"conversation", "prompt", "context_management", "n"};
    proa_str truncation = proa_json_str(proa_json_get(job->body, "truncation"));
    bool background = false;
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_json_get(job->body, names[i]))
            return proa_oai_bad(&job->error, names[i], "The parameter '%s' is not supported.", names[i]);
    if (!proa_oai_flag(&job->error, job->body, "background", &background)) return false;
    if (background) return proa_oai_bad(&job->error, "background", "'background' true is not supported.");
    if (truncation.len > 0 && !proa_str_is(truncation, "disabled"))
        return proa_oai_bad(&job->error, "truncation", "Invalid 'truncation': only 'disabled' is supported.");
    return true;
}

/* The log-probabilities are the only member of `include` that is supported. */
static bool convert_include(proa_oai *job)
{
    proa_json *include = proa_json_take(job->body, "include"), *yes = NULL;
    bool good = !include || proa_json_kind(include) == PROA_JSON_ARRAY, logprobs = proa_json_len(include) > 0;
    for (int64_t i = 0; i < proa_json_len(include) && good; i++)
        good = proa_str_is(proa_json_str(proa_json_at(include, i)), "message.output_text.logprobs");
    proa_json_free(include);
    proa_json_remove(job->body, "logprobs");
    if (!good)
        return proa_oai_bad(&job->error, "include",
                            "Invalid 'include': only 'message.output_text.logprobs' is supported.");
    if (logprobs && proa_json_parse(&yes, proa_str_c("true"), "logprobs", NULL) == PROA_OK)
        proa_json_put(job->body, "logprobs", yes);
    else proa_json_remove(job->body, "top_logprobs");
    return true;
}

/* ---- what has another name or form in a chat ---- */

static bool convert_lengths(proa_oai *job)
{
    int64_t most = 0;
    if (!proa_oai_whole(job, "max_output_tokens", 1, PROA_CONTEXT_MAX, &most, NULL)) return false;
    proa_json *value = proa_json_take(job->body, "max_output_tokens");
    if (value) proa_json_put(job->body, "max_completion_tokens", value);
    return true;
}

/* {"format":{"type":"json_schema","name","schema","strict"}} */
static bool convert_format(proa_oai *job)
{
    proa_json *text = proa_json_take(job->body, "text"), *format = proa_json_take(text, "format");
    proa_str type = proa_json_str(proa_json_get(format, "type")),
             verbosity = proa_json_str(proa_json_get(text, "verbosity"));
    bool plain = !verbosity.len || proa_str_is(verbosity, "medium");
    if (format && proa_str_is(type, "json_schema")) {
        proa_json *outer = proa_json_new_object();
        proa_json_put_str(outer, "type", type);
        proa_json_remove(format, "type");
        proa_json_put(outer, "json_schema", format);
        format = outer;
    }
    if (format) proa_json_put(job->body, "response_format", format);
    proa_json_free(text);
    return plain ||
           proa_oai_bad(&job->error, "text.verbosity", "Invalid 'text.verbosity': only 'medium' is supported.");
}

static bool convert_reasoning(proa_oai *job)
{
    proa_json *reasoning = proa_json_take(job->body, "reasoning"),
              *effort = proa_json_take(reasoning, "effort");
    bool summary = proa_json_get(reasoning, "summary") || proa_json_get(reasoning, "generate_summary");
    if (effort) proa_json_put(job->body, "reasoning_effort", effort);
    proa_json_free(reasoning);
    return !summary ||
           proa_oai_bad(&job->error, "reasoning.summary", "Summaries of the reasoning are not supported.");
}

/* {"type":"function","name","parameters",...}: a chat has the members but for the type in `function`. */
static bool convert_tools(proa_oai *job)
{
    const proa_json *tools = proa_json_get(job->body, "tools");
    if (!tools) return true;
    proa_json *out = proa_json_new_array(), *list = proa_json_take(job->body, "tools");
    bool good = proa_json_kind(list) == PROA_JSON_ARRAY;
    for (int64_t i = 0; i < proa_json_len(list) && good; i++) {
        proa_json *tool = proa_json_at(list, i);
        good = proa_str_is(proa_json_str(proa_json_get(tool, "type")), "function") &&
               proa_json_str(proa_json_get(tool, "name")).len > 0;
        if (!good) break;
        proa_json *outer = proa_json_new_object(), *function = proa_json_new_object();
        proa_json_remove(tool, "type");
        proa_json_move_all(function, proa_json_hold(tool));
        proa_json_put_str(outer, "type", proa_str_c("function"));
        proa_json_put(outer, "function", function);
        proa_json_add(out, outer);
    }
    proa_json_free(list);
    if (good) return proa_json_put(job->body, "tools", out), true;
    proa_json_free(out);
    return proa_oai_bad(&job->error, "tools",
                        "Invalid 'tools': only tools of type 'function' with a 'name' are supported.");
}

/* {"type":"function","name"}; texts are those of a chat. */
static void convert_choice(proa_oai *job)
{
    proa_json *choice = proa_json_get(job->body, "tool_choice");
    proa_json *name = proa_json_take(choice, "name");
    if (!name) return;
    proa_json *function = proa_json_new_object();
    proa_json_put(function, "name", name);
    proa_json_put(choice, "function", function);
}

/* ---- the conversation ---- */

/* Ids of stored responses must not be guessed. */
static void choose_id(proa_oai *job)
{
    uint64_t bits[2];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        bits[0] = proa_oai_random(), bits[1] = proa_oai_random();
    job->id = proa_arena_printf(&job->arena, "resp_%016llx%016llx", (unsigned long long)bits[0],
                                (unsigned long long)bits[1]);
}

static bool find_previous(proa_oai *job, proa_json **history)
{
    const proa_json *id = proa_json_get(job->body, "previous_response_id");
    proa_buf text;
    if (!id) return true;
    proa_buf_init(&text, (size_t)PROA_RESPONSES_BYTES_MAX);
    bool found = proa_response_store_get(proa_api_responses(job->api), proa_json_str(id), job->owner, &text,
                                         NULL);
    bool read = found && proa_json_parse_within(history, proa_buf_view(&text), PROA_REQUEST_NODES_MAX,
                                                "previous response", NULL) == PROA_OK;
    proa_buf_release(&text);
    if (read) return true;
    proa_str shown_id = proa_json_str(id);
    proa_oai_bad(&job->error, "previous_response_id", "Previous response with id '%.100s' not found.",
                 shown_id.len ? shown_id.ptr : "");
    job->error.code = "previous_response_not_found";
    return false;
}

static bool convert_conversation(proa_oai *job)
{
    proa_json *history = NULL;
    job->store = true;
    job->owner = proa_resp_owner(job->x);
    choose_id(job);
    if (!proa_oai_flag(&job->error, job->body, "store", &job->store) || !find_previous(job, &history))
        return false;
    return proa_resp_convert_input(job, history);
}

bool proa_resp_read(proa_oai *job)
{
    if (!check_absent(job)) return false;
    keep_shown(job);
    if (!convert_include(job) || !convert_lengths(job) || !convert_format(job) || !convert_reasoning(job) ||
        !convert_tools(job))
        return false;
    convert_choice(job);
    return convert_conversation(job) && proa_oai_read_generation(job);
}
