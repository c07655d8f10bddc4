/* SPDX-License-Identifier: Apache-2.0
 * tokens.c - /tokenize and /detokenize in vLLM's form: texts and chats as token ids, and ids as text. */
#include "api/openai/openai.h"

#include <string.h>

/* add_special_tokens; without it a text gets the special tokens and a chat does not. */
static bool read_special(proa_oai *job)
{
    bool add = false;
    if (!proa_json_get(job->body, "add_special_tokens")) return true;
    if (!proa_oai_flag(&job->error, job->body, "add_special_tokens", &add)) return false;
    job->params.special = add ? PROA_SPECIAL_ADD : PROA_SPECIAL_NONE;
    return true;
}

bool proa_oai_read_tokenize(proa_oai *job)
{
    const proa_json *messages = proa_json_get(job->body, "messages"),
                    *prompt = proa_json_get(job->body, "prompt");
    job->task = PROA_GENERATION_TOKENIZE;
    if (!read_special(job) || !proa_oai_flag(&job->error, job->body, "return_token_strs", &job->params.pieces))
        return false;
    if (messages && prompt)
        return proa_oai_bad(&job->error, "messages", "Only one of 'prompt' and 'messages' can be given.");
    if (messages) return true;
    if (prompt && proa_json_kind(prompt) != PROA_JSON_STRING)
        return proa_oai_bad(&job->error, "prompt", "Invalid type for 'prompt': expected a string.");
    return proa_oai_read_prompts(job, "prompt");
}

bool proa_oai_read_detokenize(proa_oai *job)
{
    const proa_json *tokens = proa_json_get(job->body, "tokens");
    job->task = PROA_GENERATION_DETOKENIZE;
    if (!tokens) return proa_oai_bad(&job->error, "tokens", "Missing required parameter: 'tokens'.");
    if (proa_json_kind(tokens) != PROA_JSON_ARRAY)
        return proa_oai_bad(&job->error, "tokens", "Invalid type for 'tokens': expected a list of token ids.");
    return proa_oai_read_ids(job, tokens, "tokens");
}

/* ---- answers ---- */

static void put_ids(proa_buf *out, const proa_generated *g)
{
    proa_buf_printf(out, "{\"count\":%lld,\"max_model_len\":%lld,\"tokens\":[", (long long)g->ids_count,
                    (long long)g->context);
    for (int64_t i = 0; i < g->ids_count; i++) proa_buf_printf(out, "%s%d", i ? "," : "", (int)g->ids[i]);
    proa_buf_str(out, proa_str_c("],\"token_strs\":"));
}

static void put_pieces(proa_buf *out, const proa_generated *g)
{
    proa_buf_char(out, '[');
    for (int64_t i = 0; i < g->ids_count && g->pieces; i++) {
        if (i > 0) proa_buf_char(out, ',');
        proa_buf_json_str(out, g->pieces[i]);
    }
    proa_buf_char(out, ']');
}

void proa_oai_take_tokens(proa_oai *job, const proa_generated *g)
{
    proa_buf *out = &job->out;
    proa_buf_clear(out);
    if (g->task == PROA_GENERATION_DETOKENIZE) {
        proa_buf_str(out, proa_str_c("{\"prompt\":"));
        proa_buf_json_str(out, g->text);
        proa_buf_char(out, '}');
        return;
    }
    put_ids(out, g);
    if (job->params.pieces) put_pieces(out, g);
    else proa_buf_str(out, proa_str_c("null"));
    proa_buf_char(out, '}');
}

bool proa_oai_put_tokens(proa_oai *job, proa_buf *out)
{
    return proa_buf_str(out, proa_buf_view(&job->out)) ||
           proa_oai_bad(&job->error, NULL, "The answer is too long.");
}
