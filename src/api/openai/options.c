/* SPDX-License-Identifier: Apache-2.0
 * options.c - the options of a generation in a body: checked, and read by the table of options/options.h
 * (docs/decoding.md). */
#include "api/openai/openai.h"

#include <string.h>

static bool check_stop(proa_oai *job)
{
    const proa_json *stop = proa_json_get(job->body, "stop");
    bool text = proa_json_kind(stop) == PROA_JSON_STRING;
    if (!stop) return true;
    if (!text && proa_json_kind(stop) != PROA_JSON_ARRAY)
        return proa_oai_bad(&job->error, "stop",
                            "Invalid type for 'stop': expected a string or a list of strings.");
    if (proa_json_len(stop) > PROA_STRINGS_MAX)
        return proa_oai_bad(&job->error, "stop", "Invalid 'stop': at most %d strings.", PROA_STRINGS_MAX);
    for (int64_t i = 0; i < proa_json_len(stop); i++)
        if (proa_json_kind(proa_json_at(stop, i)) != PROA_JSON_STRING)
            return proa_oai_bad(&job->error, "stop", "Invalid type for 'stop[%lld]': expected a string.",
                                (long long)i);
    job->params.stop = stop;
    return true;
}

/* vLLM's field: each id becomes a stop word of one token. */
static bool read_stop_ids(proa_oai *job)
{
    const proa_json *ids = proa_json_get(job->body, "stop_token_ids");
    const proa_json *words = proa_json_get(job->body, "stop_words");
    if (!ids) return true;
    bool whole = proa_json_kind(ids) == PROA_JSON_ARRAY;
    for (int64_t i = 0; whole && i < proa_json_len(ids); i++)
        whole = proa_json_kind(proa_json_at(ids, i)) == PROA_JSON_INT;
    if (!whole)
        return proa_oai_bad(&job->error, "stop_token_ids",
                            "Invalid type for 'stop_token_ids': expected a list of token ids.");
    if (proa_json_len(ids) == 0) return true;
    if (words)
        return proa_oai_bad(&job->error, "stop_token_ids", "'stop_token_ids' is given beside 'stop_words'.");
    proa_json *all = proa_json_new_array();
    for (int64_t i = 0; i < proa_json_len(ids); i++) {
        proa_json *word = proa_json_new_array();
        proa_json_add(word, proa_json_hold(proa_json_at(ids, i)));
        proa_json_add(all, word);
    }
    proa_json_put(job->body, "stop_words", all);
    return true;
}

static bool check_bias(proa_oai *job)
{
    const proa_json *bias = proa_json_get(job->body, "logit_bias");
    if (!bias) return true;
    if (proa_json_kind(bias) != PROA_JSON_OBJECT)
        return proa_oai_bad(&job->error, "logit_bias", "Invalid type for 'logit_bias': expected an object.");
    for (proa_json_iter it = proa_json_begin(bias); proa_json_next(&it);) {
        double v = proa_json_double(it.value);
        bool number = proa_json_kind(it.value) == PROA_JSON_INT || proa_json_kind(it.value) == PROA_JSON_DOUBLE;
        if (it.key.len == 0 || strspn(it.key.ptr, "0123456789") != it.key.len)
            return proa_oai_bad(&job->error, "logit_bias",
                                "Invalid key in 'logit_bias': '%.40s' is no token id.", it.key.ptr);
        if (!number || !(v >= -100 && v <= 100))
            return proa_oai_bad(&job->error, "logit_bias",
                                "Invalid 'logit_bias': the value of '%.40s' is not between -100 and 100.",
                                it.key.ptr);
    }
    return true;
}

static bool read_numbers(proa_oai *job)
{
    proa_oai_params *p = &job->params;
    return proa_oai_number(job, "temperature", 0, 2, &p->temperature, NULL) &&
           proa_oai_number(job, "top_p", 0, 1, &p->top_p, &p->has_top_p) &&
           proa_oai_number(job, "presence_penalty", -2, 2, &p->presence, &p->has_presence) &&
           proa_oai_number(job, "frequency_penalty", -2, 2, &p->frequency, &p->has_frequency) &&
           proa_oai_whole(job, "seed", INT64_MIN, INT64_MAX, &p->seed, &p->seeded) &&
           proa_oai_whole(job, "n", 1, PROA_OPENAI_CHOICES_MAX, &p->n, NULL);
}

static bool read_lengths(proa_oai *job)
{
    proa_oai_params *p = &job->params;
    bool chat = job->form->chat, max = false;
    p->max_tokens = chat ? 0 : 16; /* OpenAI's: a completion has 16 tokens, a chat as many as it takes */
    if (!proa_oai_whole(job, "max_tokens", chat, PROA_CONTEXT_MAX, &p->max_tokens, &max)) return false;
    if (chat && !proa_oai_whole(job, "max_completion_tokens", 1, PROA_CONTEXT_MAX, &p->max_tokens, &max))
        return false;
    p->has_max = max;
    return true;
}

static bool read_chat_logprobs(proa_oai *job)
{
    proa_oai_params *p = &job->params;
    bool tops = false;
    if (!proa_oai_flag(&job->error, job->body, "logprobs", &p->logprobs)) return false;
    if (!proa_oai_whole(job, "top_logprobs", 0, PROA_OPENAI_LOGPROBS_MAX, &p->top_logprobs, &tops))
        return false;
    if (tops && !p->logprobs)
        return proa_oai_bad(&job->error, "top_logprobs",
                            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.");
    return true;
}

/* What only /v1/completions has. */
static bool read_completion(proa_oai *job)
{
    proa_oai_params *p = &job->params;
    proa_oai_error *e = &job->error;
    if (!proa_oai_whole(job, "logprobs", 0, PROA_OPENAI_LOGPROBS_MAX, &p->top_logprobs, &p->logprobs) ||
        !proa_oai_flag(e, job->body, "echo", &p->echo))
        return false;
    p->best_of = p->n;
    if (!proa_oai_whole(job, "best_of", p->n, PROA_OPENAI_CHOICES_MAX, &p->best_of, NULL)) return false;
    if (p->best_of > p->n && job->stream)
        return proa_oai_bad(
            e, "best_of", "Only 'best_of' equal to 'n' can be streamed: which are best is known at the end.");
    proa_str suffix = proa_json_str(proa_json_get(job->body, "suffix"));
    if (suffix.len > 0) return proa_oai_bad(e, "suffix", "This model cannot insert text before a 'suffix'.");
    p->score = p->max_tokens == 0;
    if (p->score && !p->echo)
        return proa_oai_bad(e, "max_tokens",
                            "Invalid 'max_tokens': 0 needs 'echo', for the log-probabilities of the prompt.");
    return true;
}

/* vLLM's field: requests share cached prompts only with those of the same salt. */
static bool read_salt(proa_oai *job)
{
    const proa_json *value = proa_json_get(job->body, "cache_salt");
    proa_str salt = proa_json_str(value);
    if (!value || proa_json_kind(value) == PROA_JSON_NULL) return true;
    if (salt.len == 0 || memchr(salt.ptr, 0, salt.len))
        return proa_oai_bad(
            &job->error, "cache_salt",
            "Invalid 'cache_salt': expected a string that is not empty, without the character 0.");
    job->params.cache_salt = proa_arena_strdup(&job->arena, salt);
    return true;
}

bool proa_oai_read_options(proa_oai *job)
{
    bool chat = job->form->chat;
    const proa_json *top_k = proa_json_get(job->body, "top_k");
    job->params.temperature = 1; /* OpenAI's */
    job->params.all_top_k = proa_json_kind(top_k) == PROA_JSON_INT && proa_json_int(top_k) == -1;
    if (!read_numbers(job) || !read_lengths(job) || !check_stop(job) || !read_stop_ids(job) ||
        !check_bias(job) || !proa_oai_check_format(job) || !read_salt(job))
        return false;
    return chat ? read_chat_logprobs(job) : read_completion(job);
}

/* The member of an option that OpenAI does not have, which clients may send by our name; NULL: it has it, or it is not
 * there. */
static const proa_json *extension_of(const proa_oai *job, const proa_option_row *row)
{
    if (job->params.all_top_k && row == &proa_option_rows[PROA_OPTION_top_k]) return NULL;
    return row->openai && !*row->openai ? proa_json_get(job->body, row->name) : NULL;
}

/* ---- as options of a typed generation ---- */

#define SET(o, field, value) ((o)->field = (value), (o)->given[PROA_OPTION_##field] = true)

static void set_common(const proa_oai_params *p, proa_options *o)
{
    SET(o, max_tokens, (int32_t)p->max_tokens);
    SET(o, temperature, (float)p->temperature);
    if (p->has_top_p) SET(o, top_p, (float)p->top_p);
    if (p->all_top_k) SET(o, top_k, 0);
    if (p->has_presence) SET(o, presence_penalty, (float)p->presence);
    if (p->has_frequency) SET(o, frequency_penalty, (float)p->frequency);
    if (p->n > 1) SET(o, n, (int32_t)p->n);
    if (p->best_of > p->n) SET(o, best_of, (int32_t)p->best_of);
    if (p->logprobs) SET(o, logprobs, true);
    if (p->top_logprobs > 0) SET(o, top_logprobs, (int32_t)p->top_logprobs);
    if (p->logprobs && p->echo) SET(o, prompt_logprobs, true);
}

static proa_status set_stop(proa_oai *job, proa_options *o, proa_err *err)
{
    const proa_option_row *row = &proa_option_rows[PROA_OPTION_stop_strings];
    const proa_json *stop = job->params.stop;
    bool one = proa_json_kind(stop) == PROA_JSON_STRING;
    if (!stop) return PROA_OK;
    o->given[PROA_OPTION_stop_strings] = true;
    for (int64_t i = 0; i < (one ? 1 : proa_json_len(stop)); i++) {
        const proa_json *text = one ? stop : proa_json_at(stop, i);
        if (proa_json_str(text).len > 0) PROA_TRY(proa_option_read_json(o, row, text, &job->arena, err));
    }
    return PROA_OK;
}

/* The text of OpenAI's predicted output: {"type": "content", "content": a text or a list of text parts}. Empty: there
 * is none. */
static proa_status read_prediction(proa_oai *job, proa_str *text, proa_err *err)
{
    const proa_json *prediction = proa_json_get(job->body, "prediction");
    const proa_json *content = proa_json_get(prediction, "content");
    bool one = proa_json_kind(content) == PROA_JSON_STRING, list = proa_json_kind(content) == PROA_JSON_ARRAY;
    proa_buf all;
    *text = (proa_str){NULL, 0};
    if (!prediction || proa_json_kind(prediction) == PROA_JSON_NULL) return PROA_OK;
    if (!proa_str_is(proa_json_str(proa_json_get(prediction, "type")), "content") || (!one && !list))
        return PROA_FAIL(
            err, INVALID,
            "option 'prediction' must have the type 'content', and as content a text or text parts");
    proa_buf_init(&all, PROA_GRAMMAR_BYTES_MAX);
    for (int64_t i = 0; i < (one ? 1 : proa_json_len(content)); i++) {
        proa_str part = proa_json_str(one ? content : proa_json_get(proa_json_at(content, i), "text"));
        proa_buf_append(&all, part.ptr, part.len);
    }
    *text = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&all)), all.len};
    proa_buf_release(&all);
    return PROA_OK;
}

static proa_status set_all(proa_oai *job, proa_options *o, proa_err *err)
{
    proa_str prediction;
    const proa_json *bias = proa_json_get(job->body, "logit_bias");
    set_common(&job->params, o);
    if (job->adapter) SET(o, adapter, job->adapter);
    PROA_TRY(set_stop(job, o, err));
    if (proa_json_len(bias) > 0)
        PROA_TRY(proa_option_read_json(o, &proa_option_rows[PROA_OPTION_logit_bias], bias, &job->arena, err));
    PROA_TRY(read_prediction(job, &prediction, err));
    if (prediction.len) SET(o, prediction, prediction.ptr);
    const proa_json *source;
    const proa_option_row *grammar = proa_oai_grammar(job, &source);
    if (grammar && source) PROA_TRY(proa_option_read_json(o, grammar, source, &job->arena, err));
    if (grammar && !source) PROA_TRY(proa_option_set_number(o, grammar, 1, err));
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_json *value = extension_of(job, &proa_option_rows[i]);
        if (value) PROA_TRY(proa_option_read_json(o, &proa_option_rows[i], value, &job->arena, err));
    }
    return PROA_OK;
}

bool proa_oai_set_options(proa_oai *job)
{
    proa_err err = {.status = PROA_OK};
    if (set_all(job, &job->options, &err) == PROA_OK) return true;
    proa_oai_error_of(&job->error, &err);
    return false;
}

/* ---- as JSON, for models that take tensors ---- */

static void put_key(proa_buf *out, const char *key)
{
    proa_buf_printf(out, "%s\"%s\":", out->len > 1 ? "," : "", key);
}

static void put_whole(proa_buf *out, const char *key, int64_t value)
{
    put_key(out, key);
    proa_buf_printf(out, "%lld", (long long)value);
}

static void put_decimal(proa_buf *out, const char *key, double value)
{
    put_key(out, key);
    proa_buf_printf(out, "%.17g", value);
}

static void put_flag(proa_buf *out, const char *key)
{
    put_key(out, key);
    proa_buf_str(out, proa_str_c("true"));
}

static void put_stop(proa_buf *out, const proa_json *stop)
{
    bool text = proa_json_kind(stop) == PROA_JSON_STRING, first = true;
    int64_t count = text ? 1 : proa_json_len(stop);
    put_key(out, "stop_strings");
    proa_buf_char(out, '[');
    for (int64_t i = 0; i < count; i++) {
        proa_str s = proa_json_str(text ? stop : proa_json_at(stop, i));
        if (s.len == 0) continue;
        if (!first) proa_buf_char(out, ',');
        proa_buf_json_str(out, s);
        first = false;
    }
    proa_buf_char(out, ']');
}

static void put_common(const proa_oai *job, proa_buf *out)
{
    const proa_oai_params *p = &job->params;
    put_whole(out, "max_tokens", p->max_tokens);
    put_decimal(out, "temperature", p->temperature);
    if (p->has_top_p) put_decimal(out, "top_p", p->top_p);
    if (p->all_top_k) put_whole(out, "top_k", 0);
    if (p->has_presence) put_decimal(out, "presence_penalty", p->presence);
    if (p->has_frequency) put_decimal(out, "frequency_penalty", p->frequency);
    if (p->n > 1) put_whole(out, "n", p->n);
    if (p->best_of > p->n) put_whole(out, "best_of", p->best_of);
    if (p->logprobs) put_flag(out, "logprobs");
    if (p->top_logprobs > 0) put_whole(out, "top_logprobs", p->top_logprobs);
    if (p->logprobs && p->echo) put_flag(out, "prompt_logprobs");
    if (p->stop) put_stop(out, p->stop);
    if (!job->adapter) return;
    put_key(out, "adapter");
    proa_buf_json_str(out, proa_str_c(job->adapter));
}

static void put_extras(proa_oai *job, proa_buf *out)
{
    const proa_json *bias = proa_json_get(job->body, "logit_bias");
    if (proa_json_len(bias) > 0) {
        put_key(out, "logit_bias");
        proa_oai_put_json(out, bias);
    }
    proa_str prediction;
    if (read_prediction(job, &prediction, NULL) == PROA_OK && prediction.len) {
        put_key(out, "prediction");
        proa_buf_json_str(out, prediction);
    }
    const proa_json *source;
    const proa_option_row *grammar = proa_oai_grammar(job, &source);
    if (grammar) put_key(out, grammar->name);
    if (grammar && source) proa_oai_put_json(out, source);
    if (grammar && !source) proa_buf_str(out, proa_str_c("true"));
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_json *value = extension_of(job, &proa_option_rows[i]);
        if (!value) continue;
        put_key(out, proa_option_rows[i].name);
        proa_oai_put_json(out, value);
    }
}

void proa_oai_print_options(proa_oai *job)
{
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_HTTP_BODY_MAX);
    proa_buf_char(&out, '{');
    put_common(job, &out);
    put_extras(job, &out);
    proa_buf_char(&out, '}');
    job->options_text = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&out)), out.len};
    proa_buf_release(&out);
}
