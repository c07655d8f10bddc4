/* SPDX-License-Identifier: Apache-2.0
 * grammar.c - constrained output in a body: OpenAI's response_format, and what vLLM has for it. */
#include "api/openai/openai.h"

#include <string.h>

/* vLLM's own members, the older form and the newer one. */
static const struct {
    const char *outer, *name; /* outer NULL: a member of the body */
    proa_option option;
} members[] = {{NULL, "guided_json", PROA_OPTION_json_schema},
               {NULL, "guided_regex", PROA_OPTION_regex},
               {NULL, "guided_choice", PROA_OPTION_choice},
               {NULL, "guided_grammar", PROA_OPTION_grammar},
               {"structured_outputs", "json", PROA_OPTION_json_schema},
               {"structured_outputs", "regex", PROA_OPTION_regex},
               {"structured_outputs", "choice", PROA_OPTION_choice},
               {"structured_outputs", "grammar", PROA_OPTION_grammar},
               {"structured_outputs", "json_object", PROA_OPTION_json_object}};

static proa_json *format_of(const proa_oai *job, const char *type)
{
    proa_json *format = proa_json_get(job->body, "response_format");
    return proa_str_is(proa_json_str(proa_json_get(format, "type")), type) ? format : NULL;
}

/* The schema of the body, to which vLLM's options of white space belong; of json_object one that says only that. NULL:
 * there is none, or it is a text. */
static proa_json *schema_of(proa_oai *job, proa_json *outer)
{
    proa_json *found = proa_json_get(proa_json_get(format_of(job, "json_schema"), "json_schema"), "schema");
    if (!found) found = proa_json_get(job->body, "guided_json");
    if (!found) found = proa_json_get(outer, "json");
    if (!found && (format_of(job, "json_object") || proa_json_bool(proa_json_get(outer, "json_object")))) {
        found = proa_json_new_object();
        proa_json_put_str(found, "type", proa_str_c("object"));
        proa_json_remove(job->body, "response_format");
        proa_json_remove(outer, "json_object");
        proa_json_put(job->body, "guided_json", found);
    }
    return proa_json_kind(found) == PROA_JSON_OBJECT ? found : NULL;
}

/* White space between tokens of JSON, as vLLM's bodies have it, becomes what schemas have for it (grammar/schema.h). */
static bool move_whitespace(proa_oai *job, proa_json *outer)
{
    bool none = proa_json_bool(proa_json_get(outer, "disable_any_whitespace"));
    const proa_json *pattern = proa_json_get(outer, "whitespace_pattern");
    if (!pattern) pattern = proa_json_get(job->body, "guided_whitespace_pattern");
    if (!none && !pattern) return true;
    const char *name = none ? "disable_any_whitespace" : "whitespace_pattern";
    proa_str text = proa_json_str(pattern);
    if (!none && proa_json_kind(pattern) != PROA_JSON_STRING)
        return proa_oai_bad(&job->error, name, "Invalid type for '%s': expected a string.", name);
    proa_json *schema = schema_of(job, outer), *guidance = NULL;
    if (!schema) return proa_oai_bad(&job->error, name, "'%s' needs a JSON schema that is an object.", name);
    if (proa_json_parse(&guidance, proa_str_c("{\"whitespace_flexible\":false}"), "", NULL) != PROA_OK)
        return false;
    if (!none) proa_json_remove(guidance, "whitespace_flexible");
    if (!none) proa_json_put_str(guidance, "whitespace_pattern", text);
    proa_json_put(schema, "x-guidance", guidance);
    return true;
}

bool proa_oai_check_format(proa_oai *job)
{
    const proa_json *format = proa_json_get(job->body, "response_format");
    proa_json *outer = proa_json_get(job->body, "structured_outputs");
    const proa_json *schema = format_of(job, "json_schema");
    if (outer && proa_json_kind(outer) != PROA_JSON_OBJECT)
        return proa_oai_bad(&job->error, "structured_outputs",
                            "Invalid type for 'structured_outputs': expected an object.");
    if (proa_json_get(outer, "structural_tag"))
        return proa_oai_bad(&job->error, "structured_outputs.structural_tag",
                            "'structured_outputs.structural_tag' is not supported.");
    if (!format || format_of(job, "text") || format_of(job, "json_object"))
        return move_whitespace(job, outer);
    if (!schema)
        return proa_oai_bad(
            &job->error, "response_format",
            "Invalid 'response_format': the type must be 'text', 'json_object' or 'json_schema'.");
    const proa_json *inner = proa_json_get(proa_json_get(schema, "json_schema"), "schema");
    if (proa_json_kind(inner) == PROA_JSON_OBJECT) return move_whitespace(job, outer);
    return proa_oai_bad(&job->error, "response_format",
                        "Missing required parameter: 'response_format.json_schema.schema'.");
}

const proa_option_row *proa_oai_grammar(const proa_oai *job, const proa_json **value)
{
    const proa_json *schema = proa_json_get(format_of(job, "json_schema"), "json_schema");
    *value = proa_json_get(schema, "schema");
    if (*value) return &proa_option_rows[PROA_OPTION_json_schema];
    if (format_of(job, "json_object")) return &proa_option_rows[PROA_OPTION_json_object];
    for (size_t i = 0; i < PROA_COUNT(members); i++) {
        const proa_json *in = members[i].outer ? proa_json_get(job->body, members[i].outer) : job->body;
        *value = proa_json_get(in, members[i].name);
        if (*value) return &proa_option_rows[members[i].option];
    }
    return NULL;
}
