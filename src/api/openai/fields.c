/* SPDX-License-Identifier: Apache-2.0
 * fields.c - every member that a body may have, by operation: what is read elsewhere, what changes nothing and is only
 *            checked, and what is refused. A member that is in no row and is no option is refused by its name. The
 *            tables of docs/openai.md say the same. */
#include "api/openai/openai.h"

#include <string.h>

/* Operations, as bits. */
enum {
    COMPLETIONS = 1 << PROA_OAI_COMPLETION,
    CHATS = 1 << PROA_OAI_CHAT,
    EMBEDDINGS = 1 << PROA_OAI_EMBEDDING,
    RESPONSES = 1 << PROA_OAI_RESPONSE,
    MESSAGES = 1 << PROA_OAI_MESSAGE,
    COUNTS = 1 << PROA_OAI_COUNT,
    RERANKS = 1 << PROA_OAI_RERANK,
    SCORES = 1 << PROA_OAI_SCORE,
    TOKENS = 1 << PROA_OAI_TOKENIZE,
    TEXTS = 1 << PROA_OAI_DETOKENIZE,
    TEMPLATES = CHATS | TOKENS,     /* take the variables of a chat template */
    GENERATE = COMPLETIONS | CHATS, /* OpenAI's options of sampling */
    ANTHROPIC = MESSAGES | COUNTS,
    ALL = (1 << PROA_OAI_KINDS) - 1
};

typedef enum rule {
    READ,   /* by the operation */
    LABEL,  /* a text, for the client's own use: it changes nothing */
    LABELS, /* an object of the same kind */
    NEVER,  /* only false: what it asks for is not done */
    ALWAYS, /* only true: it is always done */
    TIER,   /* "auto" or "default": there is one */
    MEDIUM, /* "medium" only */
    REFUSED
} rule;

typedef struct field {
    const char *name;
    rule rule;
    unsigned of; /* operations */
} field;

static const field fields[] = {
    {"model", READ, ALL},
    {"user", LABEL, GENERATE | EMBEDDINGS | RESPONSES | RERANKS | SCORES},
    {"safety_identifier", LABEL, CHATS | RESPONSES},
    {"prompt_cache_key", LABEL, CHATS | RESPONSES}, /* equal prefixes are found without it */
    {"prompt_cache_retention", LABEL, CHATS | RESPONSES},
    {"metadata", LABELS, CHATS | RESPONSES | MESSAGES},
    {"service_tier", TIER, GENERATE | RESPONSES},
    {"service_tier", READ, MESSAGES},
    {"cache_control", LABELS, MESSAGES | COUNTS},
    /* generation */
    {"stream", READ, GENERATE | RESPONSES | MESSAGES},
    {"stream_options", READ, GENERATE | RESPONSES},
    {"temperature", READ, GENERATE | RESPONSES | MESSAGES},
    {"top_p", READ, GENERATE | RESPONSES | MESSAGES},
    {"presence_penalty", READ, GENERATE | RESPONSES},
    {"frequency_penalty", READ, GENERATE | RESPONSES},
    {"logit_bias", READ, GENERATE | RESPONSES},
    {"cache_salt", READ, GENERATE | RESPONSES | MESSAGES},
    {"seed", READ, GENERATE | RESPONSES | MESSAGES},
    {"stop", READ, GENERATE | RESPONSES},
    {"stop_token_ids", READ, GENERATE | RESPONSES},
    {"include_stop_str_in_output", NEVER, GENERATE | RESPONSES},
    {"skip_special_tokens", ALWAYS, GENERATE | RESPONSES},
    {"n", READ, GENERATE | RESPONSES},
    {"max_tokens", READ, GENERATE | MESSAGES},
    {"max_completion_tokens", READ, CHATS},
    {"logprobs", READ, GENERATE},
    {"top_logprobs", READ, CHATS | RESPONSES},
    {"response_format", READ, GENERATE},
    {"structured_outputs", READ, GENERATE | RESPONSES},
    {"guided_json", READ, GENERATE | RESPONSES},
    {"guided_regex", READ, GENERATE | RESPONSES},
    {"guided_choice", READ, GENERATE | RESPONSES},
    {"guided_grammar", READ, GENERATE | RESPONSES},
    {"guided_whitespace_pattern", READ, GENERATE | RESPONSES},
    {"prompt", READ, COMPLETIONS | TOKENS | RESPONSES},
    {"echo", READ, COMPLETIONS},
    {"best_of", READ, COMPLETIONS},
    {"suffix", READ, COMPLETIONS},
    /* chats */
    {"messages", READ, TEMPLATES | ANTHROPIC},
    {"tools", READ, TEMPLATES | RESPONSES | ANTHROPIC},
    {"tool_choice", READ, TEMPLATES | RESPONSES | ANTHROPIC},
    {"parallel_tool_calls", READ, CHATS | RESPONSES},
    {"documents", READ, TEMPLATES | RERANKS},
    {"add_generation_prompt", READ, TEMPLATES},
    {"continue_final_message", READ, TEMPLATES},
    {"chat_template", READ, TEMPLATES},
    {"chat_template_kwargs", READ, TEMPLATES | RESPONSES | MESSAGES},
    {"reasoning_effort", READ, TEMPLATES},
    {"include_reasoning", READ, CHATS},
    {"verbosity", MEDIUM, CHATS},
    {"store", NEVER, CHATS},
    {"modalities", READ, CHATS},
    {"audio", REFUSED, CHATS},
    {"function_call", REFUSED, CHATS},
    {"functions", REFUSED, CHATS},
    {"moderation", REFUSED, CHATS | RESPONSES},
    {"prediction", READ, GENERATE},
    {"web_search_options", REFUSED, CHATS},
    /* responses */
    {"input", READ, RESPONSES | EMBEDDINGS},
    {"instructions", READ, RESPONSES},
    {"max_output_tokens", READ, RESPONSES},
    {"max_tool_calls", READ, RESPONSES}, /* of built-in tools, of which there are none */
    {"previous_response_id", READ, RESPONSES},
    {"store", READ, RESPONSES},
    {"include", READ, RESPONSES},
    {"text", READ, RESPONSES},
    {"reasoning", READ, RESPONSES},
    {"truncation", READ, RESPONSES},
    {"background", READ, RESPONSES},
    {"conversation", READ, RESPONSES},
    {"context_management", READ, RESPONSES | MESSAGES},
    /* Anthropic's messages */
    {"system", READ, ANTHROPIC},
    {"stop_sequences", READ, MESSAGES},
    {"thinking", READ, ANTHROPIC},
    {"container", READ, ANTHROPIC},
    {"mcp_servers", READ, ANTHROPIC},
    {"output_config", READ, ANTHROPIC},
    {"output_format", READ, ANTHROPIC},
    {"inference_geo", READ, ANTHROPIC},
    {"speed", READ, ANTHROPIC},
    /* vectors, pairs, tokens */
    {"dimensions", READ, EMBEDDINGS},
    {"encoding_format", READ, EMBEDDINGS},
    {"pooling", READ, EMBEDDINGS | RERANKS | SCORES},
    {"normalize", READ, EMBEDDINGS | RERANKS | SCORES},
    {"query", READ, RERANKS},
    {"top_n", READ, RERANKS},
    {"return_documents", READ, RERANKS},
    {"rank_fields", REFUSED, RERANKS},
    {"text_1", READ, SCORES},
    {"text_2", READ, SCORES},
    {"return_token_strs", READ, TOKENS},
    {"add_special_tokens", READ, TOKENS},
    {"tokens", READ, TEXTS},
};

static bool refuse_value(proa_oai *job, const char *name, const char *only)
{
    return proa_oai_bad(&job->error, name, "Invalid '%s': only %s is supported.", name, only);
}

static bool is_one_of(proa_str text, const char *a, const char *b)
{
    return proa_str_is(text, a) || proa_str_is(text, b);
}

static bool check_value(proa_oai *job, const field *f, const proa_json *value)
{
    proa_json_type kind = proa_json_kind(value);
    switch (f->rule) {
    case READ: return true;
    case LABEL:
        return kind == PROA_JSON_STRING ||
               proa_oai_bad(&job->error, f->name, "Invalid type for '%s': expected a string.", f->name);
    case LABELS:
        return kind == PROA_JSON_OBJECT ||
               proa_oai_bad(&job->error, f->name, "Invalid type for '%s': expected an object.", f->name);
    case NEVER:
        return (kind == PROA_JSON_BOOL && !proa_json_bool(value)) || refuse_value(job, f->name, "false");
    case ALWAYS:
        return (kind == PROA_JSON_BOOL && proa_json_bool(value)) || refuse_value(job, f->name, "true");
    case TIER:
        return is_one_of(proa_json_str(value), "auto", "default") ||
               refuse_value(job, f->name, "'auto' or 'default'");
    case MEDIUM: return proa_str_is(proa_json_str(value), "medium") || refuse_value(job, f->name, "'medium'");
    case REFUSED: break;
    }
    return proa_oai_bad(&job->error, f->name, "The parameter '%s' is not supported.", f->name);
}

static const field *find_field(proa_oai_kind kind, proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(fields); i++)
        if ((fields[i].of >> kind & 1) && proa_str_is(name, fields[i].name)) return &fields[i];
    return NULL;
}

/* An option by our name: extension_of in options.c reads it. */
static bool is_option(const proa_oai *job, proa_str name)
{
    bool found = false;
    for (int i = 0; i < PROA_OPTION_COUNT && job->form->choices && !found; i++) {
        const char *openai = proa_option_rows[i].openai;
        found = openai && !*openai && proa_str_is(name, proa_option_rows[i].name);
    }
    return found;
}

bool proa_oai_check_fields(proa_oai *job)
{
    for (proa_json_iter it = proa_json_begin(job->body); proa_json_next(&it);) {
        const field *f = find_field(job->kind, it.key);
        bool absent = proa_json_kind(it.value) == PROA_JSON_NULL;
        if (f && (absent || check_value(job, f, it.value))) continue;
        if (f) return false;
        if (absent || is_option(job, it.key)) continue;
        const char *name = proa_arena_strdup(&job->arena, it.key);
        return proa_oai_bad(&job->error, name, "Unrecognized request argument supplied: %.100s", name);
    }
    return true;
}
