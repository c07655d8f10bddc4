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

static const proa_json *format_of(const proa_oai *job, const char *type)
{
    const proa_json *format = proa_json_get(job->body, "response_format");
    return proa_str_is(proa_json_str(proa_json_get(format, "type")), type) ? format : NULL;
}

bool proa_oai_check_format(proa_oai *job)
{
    const proa_json *format = proa_json_get(job->body, "response_format");
    const proa_json *outer = proa_json_get(job->body, "structured_outputs");
    const proa_json *schema = format_of(job, "json_schema");
    if (outer && proa_json_kind(outer) != PROA_JSON_OBJECT)
        return proa_oai_bad(&job->error, "structured_outputs",
                            "Invalid type for 'structured_outputs': expected an object.");
    if (proa_json_get(outer, "structural_tag"))
        return proa_oai_bad(&job->error, "structured_outputs.structural_tag",
                            "'structured_outputs.structural_tag' is not supported.");
    if (!format || format_of(job, "text") || format_of(job, "json_object")) return true;
    if (!schema)
        return proa_oai_bad(
            &job->error, "response_format",
            "Invalid 'response_format': the type must be 'text', 'json_object' or 'json_schema'.");
    const proa_json *inner = proa_json_get(proa_json_get(schema, "json_schema"), "schema");
    if (proa_json_kind(inner) == PROA_JSON_OBJECT) return true;
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
