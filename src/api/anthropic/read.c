/* SPDX-License-Identifier: Apache-2.0
 * read.c - a body of /v1/messages becomes that of a chat, by the names of OpenAI's members. What this server cannot do
 *          is refused by the name that the client used. */
#include "api/anthropic/messages.h"

static bool is_type(const proa_json *object, const char *type)
{
    return proa_str_is(proa_json_str(proa_json_get(object, "type")), type);
}

static bool convert_stop(proa_oai *job)
{
    proa_json *stop = proa_json_take(job->body, "stop_sequences");
    proa_json_remove(job->body, "stop");
    bool good = !stop || proa_json_kind(stop) == PROA_JSON_ARRAY;
    for (int64_t i = 0; i < proa_json_len(stop) && good; i++)
        good = proa_json_str(proa_json_at(stop, i)).len > 0;
    good = good && proa_json_len(stop) <= PROA_STRINGS_MAX;
    if (stop && good) proa_json_put(job->body, "stop", stop);
    else proa_json_free(stop);
    return good || proa_oai_bad(&job->error, "stop_sequences",
                                "stop_sequences: expected a list of at most %d texts that are not empty",
                                PROA_STRINGS_MAX);
}

/* {"name","description","input_schema"} to {"type":"function","function":{"name","description","parameters"}} */
static proa_json *convert_tool(proa_oai *job, proa_json *tool, int64_t i)
{
    proa_str name = proa_json_str(proa_json_get(tool, "name"));
    if (proa_json_get(tool, "type") && !is_type(tool, "custom")) {
        proa_str type = proa_json_str(proa_json_get(tool, "type"));
        proa_oai_bad(&job->error, "tools", "tools[%lld]: tools of type '%.60s' are not supported",
                     (long long)i, type.len ? type.ptr : "");
        return NULL;
    }
    if (name.len == 0 || proa_json_kind(proa_json_get(tool, "input_schema")) != PROA_JSON_OBJECT) {
        proa_oai_bad(&job->error, "tools", "tools[%lld]: 'name' and an object 'input_schema' are required",
                     (long long)i);
        return NULL;
    }
    proa_json *function = proa_json_new_object(), *out = proa_json_new_object();
    proa_json_put_str(function, "name", name);
    if (proa_json_get(tool, "description"))
        proa_json_put(function, "description", proa_json_take(tool, "description"));
    proa_json_put(function, "parameters", proa_json_take(tool, "input_schema"));
    if (proa_json_get(tool, "strict")) proa_json_put(function, "strict", proa_json_take(tool, "strict"));
    proa_json_put_str(out, "type", proa_str_c("function"));
    proa_json_put(out, "function", function);
    return out;
}

static bool convert_tools(proa_oai *job)
{
    const proa_json *tools = proa_json_get(job->body, "tools");
    if (!tools) return true;
    if (proa_json_kind(tools) != PROA_JSON_ARRAY)
        return proa_oai_bad(&job->error, "tools", "tools: expected a list");
    proa_json *out = proa_json_new_array();
    for (int64_t i = 0; i < proa_json_len(tools); i++) {
        proa_json *tool = convert_tool(job, proa_json_at(tools, i), i);
        if (!tool) return proa_json_free(out), false;
        proa_json_add(out, tool);
    }
    proa_json_put(job->body, "tools", out);
    return true;
}

static void put_named_choice(proa_oai *job, proa_str name)
{
    proa_json *choice = proa_json_new_object(), *function = proa_json_new_object();
    proa_json_put_str(function, "name", name);
    proa_json_put_str(choice, "type", proa_str_c("function"));
    proa_json_put(choice, "function", function);
    proa_json_put(job->body, "tool_choice", choice);
}

/* {"type": "auto", "any", "none" or "tool" with "name"} */
static bool convert_choice(proa_oai *job)
{
    static const char *const names[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    proa_json *choice = proa_json_take(job->body, "tool_choice");
    bool known = !choice, serial = false;
    for (size_t i = 0; i < PROA_COUNT(names) && choice; i++) {
        if (!is_type(choice, names[i][0])) continue;
        proa_json_put_str(job->body, "tool_choice", proa_str_c(names[i][1]));
        known = true;
    }
    proa_str name = proa_json_str(proa_json_get(choice, "name"));
    if (choice && is_type(choice, "tool") && name.len > 0) put_named_choice(job, name), known = true;
    known = known && proa_oai_flag(&job->error, choice, "disable_parallel_tool_use", &serial);
    proa_json_free(choice);
    proa_json *parallel = NULL;
    if (serial && proa_json_parse(&parallel, proa_str_c("false"), "tool_choice", NULL) == PROA_OK)
        proa_json_put(job->body, "parallel_tool_calls", parallel);
    return known ||
           proa_oai_bad(&job->error, "tool_choice",
                        "tool_choice: the type must be 'auto', 'any', 'none', or 'tool' with a 'name'");
}

/* Templates know a switch, not a budget. */
static bool convert_thinking(proa_oai *job)
{
    proa_json *thinking = proa_json_take(job->body, "thinking"), *values = NULL;
    bool off = is_type(thinking, "disabled"), on = is_type(thinking, "adaptive"), given = thinking != NULL;
    proa_str text = proa_str_c(off ? "{\"enable_thinking\":false}" : "{\"enable_thinking\":true}");
    proa_json_free(thinking);
    if (given && !off && !on)
        return proa_oai_bad(&job->error, "thinking",
                            "thinking: the type must be 'adaptive' or 'disabled'; budgets are not supported");
    if (given && proa_json_parse(&values, text, "thinking", NULL) == PROA_OK)
        proa_json_put(job->body, "chat_template_kwargs", values);
    return true;
}

static bool bad_output(proa_oai *job, const char *param)
{
    return proa_oai_bad(&job->error, param,
                        "%s: expected a format {\"type\": \"json_schema\", \"schema\": {...}}%s", param,
                        proa_str_is(proa_str_c(param), "output_config") ? " and a text 'effort'" : "");
}

/* {"type":"json_schema","schema"}, in output_config.format or by its older name output_format. */
static bool convert_format(proa_oai *job, proa_json *format, const char *param)
{
    proa_json *schema = proa_json_take(format, "schema");
    bool good = is_type(format, "json_schema") && proa_json_kind(schema) == PROA_JSON_OBJECT;
    proa_json_free(format);
    if (!good) return proa_json_free(schema), bad_output(job, param);
    proa_json *outer = proa_json_new_object(), *named = proa_json_new_object();
    proa_json_put_str(named, "name", proa_str_c("output"));
    proa_json_put(named, "schema", schema);
    proa_json_put_str(outer, "type", proa_str_c("json_schema"));
    proa_json_put(outer, "json_schema", named);
    proa_json_put(job->body, "response_format", outer);
    return true;
}

static bool convert_output(proa_oai *job)
{
    proa_json *config = proa_json_take(job->body, "output_config"),
              *format = proa_json_take(job->body, "output_format"), *inner = proa_json_take(config, "format"),
              *effort = proa_json_take(config, "effort");
    bool good = (!config || proa_json_kind(config) == PROA_JSON_OBJECT) &&
                (!effort || proa_json_kind(effort) == PROA_JSON_STRING) && proa_json_len(config) == 0;
    proa_json_free(config);
    if (effort) proa_json_put(job->body, "reasoning_effort", effort);
    if (!good) return proa_json_free(format), proa_json_free(inner), bad_output(job, "output_config");
    if (format && !convert_format(job, format, "output_format")) return proa_json_free(inner), false;
    return !inner || convert_format(job, inner, "output_config");
}

/* What Anthropic has and this server has not. */
static bool check_absent(proa_oai *job)
{
    static const char *const names[] = {"container", "context_management", "mcp_servers", "inference_geo",
                                        "speed"};
    proa_str tier = proa_json_str(proa_json_get(job->body, "service_tier"));
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_json_get(job->body, names[i]))
            return proa_oai_bad(&job->error, names[i], "%s: is not supported", names[i]);
    if (tier.len > 0 && !proa_str_is(tier, "auto") && !proa_str_is(tier, "standard_only"))
        return proa_oai_bad(&job->error, "service_tier", "service_tier: must be 'auto' or 'standard_only'");
    return true;
}

static bool convert_body(proa_oai *job)
{
    return check_absent(job) && proa_msg_convert_messages(job) && convert_stop(job) && convert_tools(job) &&
           convert_choice(job) && convert_thinking(job) && convert_output(job);
}

bool proa_msg_read(proa_oai *job)
{
    double temperature = 1;
    if (!proa_json_get(job->body, "max_tokens"))
        return proa_oai_bad(&job->error, "max_tokens", "max_tokens: Field required");
    if (!proa_oai_number(job, "temperature", 0, 1, &temperature, NULL)) return false;
    return convert_body(job) && proa_oai_read_generation(job);
}

bool proa_msg_read_count(proa_oai *job)
{
    job->task = PROA_GENERATION_TOKENIZE;
    return convert_body(job);
}
