/* SPDX-License-Identifier: Apache-2.0
 * options.c - the table of generation options, and values read from JSON and text into a proa_options. */
#include "options/options.h"

#include "base/checked.h"
#include "base/limits.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define AT(field) PROA_OPTION_##field, #field
#define IN(field) offsetof(proa_options, field)
#define INT       PROA_OPTION_KIND_INT
#define FLOAT     PROA_OPTION_KIND_FLOAT
#define BOOL      PROA_OPTION_KIND_BOOL
#define WORDS     PROA_OPTION_KIND_WORDS
#define STRINGS   PROA_OPTION_KIND_STRINGS
#define TEXT      PROA_OPTION_KIND_TEXT
#define IDS       PROA_OPTION_KIND_TOKENS
#define TOKENS    (double)PROA_CONTEXT_MAX

/* clang-format off: a table. option and name, kind, offset, min, max, min_open, default, help,
 *                   FasterTransformer, TensorRT-LLM, OpenAI, transformers, generation_config.json */
const proa_option_row proa_option_rows[] = {
    {AT(max_tokens), INT, IN(max_tokens), 0, TOKENS, false, 0, "most new tokens; 0: until the end",
     "output_seq_len", "request_output_len", "max_tokens, max_completion_tokens", "max_new_tokens",
     "max_new_tokens"},
    {AT(min_tokens), INT, IN(min_tokens), 0, TOKENS, false, 0, "no end token before N new tokens",
     "min_length", "min_length", "", "min_new_tokens", "min_new_tokens"},
    {AT(temperature), FLOAT, IN(temperature), 0, 1e4, false, 0, "sample from softmax(logits / X); 0: greedy",
     "temperature", "temperature", "temperature", "temperature (with do_sample)", "temperature"},
    {AT(top_k), INT, IN(top_k), 0, PROA_VOCAB_MAX, false, 0, "sample among the N most likely; 0: all",
     "runtime_top_k", "runtime_top_k", "", "top_k", "top_k"},
    {AT(top_p), FLOAT, IN(top_p), 0, 1, false, 1,
     "sample among the most likely with total probability X; 0: greedy", "runtime_top_p", "runtime_top_p",
     "top_p", "top_p", "top_p"},
    {AT(min_p), FLOAT, IN(min_p), 0, 1, false, 0,
     "sample among tokens at least X times as likely as the best", "", "min_p", "", "min_p", "min_p"},
    {AT(typical_p), FLOAT, IN(typical_p), 0, 1, true, 1,
     "sample among the most typical with total probability X", "", "", "", "typical_p", "typical_p"},
    {AT(epsilon_cutoff), FLOAT, IN(epsilon_cutoff), 0, 1, false, 0, "sample among tokens at least X likely",
     "", "", "", "epsilon_cutoff", "epsilon_cutoff"},
    {AT(eta_cutoff), FLOAT, IN(eta_cutoff), 0, 1, false, 0,
     "sample among tokens at least min(X, sqrt(X) exp(-entropy)) likely", "", "", "", "eta_cutoff", "eta_cutoff"},
    {AT(top_p_decay), FLOAT, IN(top_p_decay), 0, 1, true, 1, "multiply top-p by X after each token",
     "top_p_decay", "runtime_top_p_decay", "", "", ""},
    {AT(top_p_min), FLOAT, IN(top_p_min), 0, 1, true, 1e-6, "lower bound of the decayed top-p", "top_p_min",
     "runtime_top_p_min", "", "", ""},
    {AT(top_p_reset_id), INT, IN(top_p_reset_id), -1, PROA_VOCAB_MAX, false, -1,
     "token that resets top-p; -1: none", "top_p_reset_ids", "runtime_top_p_reset_ids", "", "", ""},
    {AT(seed), PROA_OPTION_KIND_U64, IN(seed), 0, 18446744073709551615.0, false, 0,
     "seed of the random numbers", "random_seed", "random_seed", "seed", "torch.manual_seed", ""},
    {AT(repetition_penalty), FLOAT, IN(repetition_penalty), 1e-4, 1e4, false, 1,
     "divide positive logits of earlier tokens by X, multiply negative ones", "repetition_penalty",
     "repetition_penalty", "", "repetition_penalty", "repetition_penalty"},
    {AT(presence_penalty), FLOAT, IN(presence_penalty), -1e4, 1e4, false, 0,
     "subtracted once from the logits of earlier tokens", "presence_penalty", "presence_penalty",
     "presence_penalty", "", ""},
    {AT(frequency_penalty), FLOAT, IN(frequency_penalty), -1e4, 1e4, false, 0,
     "subtracted from a token's logit for each earlier occurrence", "", "frequency_penalty",
     "frequency_penalty", "", ""},
    {AT(no_repeat_ngram), INT, IN(no_repeat_ngram), 0, TOKENS, false, 0,
     "no sequence of N tokens occurs twice; 0: off", "", "no_repeat_ngram_size", "", "no_repeat_ngram_size",
     "no_repeat_ngram_size"},
    {AT(encoder_repetition_penalty), FLOAT, IN(encoder_repetition_penalty), 1e-4, 1e4, false, 1,
     "multiply positive logits of the input's tokens by X, divide negative ones", "", "", "",
     "encoder_repetition_penalty", "encoder_repetition_penalty"},
    {AT(encoder_no_repeat_ngram), INT, IN(encoder_no_repeat_ngram), 0, TOKENS, false, 0,
     "no sequence of N tokens of the input occurs in the output; 0: off", "", "", "",
     "encoder_no_repeat_ngram_size", "encoder_no_repeat_ngram_size"},
    {AT(logit_bias), PROA_OPTION_KIND_BIAS, IN(logit_bias), -1e9, 1e9, false, 0,
     "added to the logits of tokens: {\"id\": value, ...}", "", "embedding_bias", "logit_bias", "", ""},
    {AT(sequence_bias), PROA_OPTION_KIND_SEQUENCE_BIAS, IN(sequence_bias), -1e9, 1e9, false, 0,
     "added to the logit of a sequence's last token: [[[ids], value], ...]", "", "", "", "sequence_bias",
     "sequence_bias"},
    {AT(suppress_tokens), IDS, IN(suppress_tokens), 0, PROA_VOCAB_MAX, false, 0, "tokens that never come", "",
     "", "", "suppress_tokens", "suppress_tokens"},
    {AT(begin_suppress_tokens), IDS, IN(begin_suppress_tokens), 0, PROA_VOCAB_MAX, false, 0,
     "tokens that do not come first (after a forced one: second)", "", "", "", "begin_suppress_tokens",
     "begin_suppress_tokens"},
    {AT(exponential_decay_start), INT, IN(exponential_decay_start), 0, TOKENS, false, 0,
     "end tokens get likelier after N new tokens", "", "", "", "exponential_decay_length_penalty[0]", ""},
    {AT(exponential_decay_factor), FLOAT, IN(exponential_decay_factor), 1e-4, 1e4, false, 1,
     "by |logit| * (X^(new tokens - exponential_decay_start) - 1)", "", "", "",
     "exponential_decay_length_penalty[1]", ""},
    {AT(renormalize_logits), BOOL, IN(renormalize_logits), 0, 1, false, 0,
     "normalise the scores after all processors: changes beam scores", "", "", "", "renormalize_logits",
     "renormalize_logits"},
    {AT(allowed_words), WORDS, IN(allowed_words), 0, 0, false, 0,
     "the output consists only of these words: [[ids], ...]", "", "", "", "prefix_allowed_tokens_fn", ""},
    {AT(json_schema), TEXT, IN(json_schema), 0, 0, false, 0, "the output is JSON that this schema accepts",
     "", "", "", "", ""},
    {AT(json_object), BOOL, IN(json_object), 0, 1, false, 0, "the output is a JSON object", "", "", "", "", ""},
    {AT(regex), TEXT, IN(regex), 0, 0, false, 0, "the whole output matches this regular expression", "", "",
     "", "", ""},
    {AT(grammar), TEXT, IN(grammar), 0, 0, false, 0,
     "the output is a text of this grammar, in GBNF or Lark's form", "", "", "", "", ""},
    {AT(choice), STRINGS, IN(choice), 0, 0, false, 0, "the output is one of these texts", "", "", "", "", ""},
    {AT(banned_words), WORDS, IN(banned_words), 0, 0, false, 0, "words that are never completed: [[ids], ...]",
     "bad_words_list", "bad_words_list", "", "bad_words_ids", "bad_words_ids"},
    {AT(banned_strings), STRINGS, IN(banned_strings), 0, 0, false, 0,
     "banned words as text, with and without a leading space", "bad_words (backend)", "bad_words", "", "", ""},
    {AT(forced_bos_id), INT, IN(forced_bos_id), -1, PROA_VOCAB_MAX, false, -1,
     "the token after a prompt of one token is this one; -1: none", "", "", "", "forced_bos_token_id",
     "forced_bos_token_id"},
    {AT(forced_eos_id), INT, IN(forced_eos_id), -1, PROA_VOCAB_MAX, false, -1,
     "the last token that max_tokens allows is this one; -1: none", "", "", "", "forced_eos_token_id",
     "forced_eos_token_id"},
    {AT(stop_words), WORDS, IN(stop_words), 0, 0, false, 0,
     "words that end the sequence and are part of it: [[ids], ...]", "stop_words_list", "stop_words_list", "",
     "stopping_criteria", ""},
    {AT(stop_strings), STRINGS, IN(stop_strings), 0, 0, false, 0,
     "strings that end the sequence; the text is cut before them", "stop_words (backend)", "stop_words",
     "stop", "stop_strings", "stop_strings"},
    {AT(end_ids), PROA_OPTION_KIND_IDS, IN(end_ids), 0, PROA_VOCAB_MAX, false, 0,
     "end tokens that replace the model's own", "end_id", "end_id", "", "eos_token_id", ""},
    {AT(ignore_eos), BOOL, IN(ignore_eos), 0, 1, false, 0,
     "continue after an end token; with a grammar, as long as it allows more", "", "", "", "", ""},
    {AT(n), INT, IN(n), 0, PROA_SEQUENCES_MAX, false, 1, "sequences to return for each prompt", "",
     "num_return_sequences", "n", "num_return_sequences", ""},
    {AT(best_of), INT, IN(best_of), 0, PROA_SEQUENCES_MAX, false, 0,
     "sequences to generate; the n most likely are returned", "", "best_of", "best_of", "", ""},
    {AT(beams), INT, IN(beams), 0, PROA_BEAMS_MAX, false, 1, "beam search with N beams", "beam_width",
     "beam_width", "", "num_beams", "num_beams"},
    {AT(style), PROA_OPTION_KIND_STYLE, IN(style), 0, 0, false, 0, "rules to follow: hf, ft or trtllm", "",
     "", "", "", ""},
    {AT(length_penalty), FLOAT, IN(length_penalty), -100, 100, false, 1, "beam score: log-probability / length^X",
     "len_penalty", "len_penalty", "", "length_penalty", "length_penalty"},
    {AT(early_stopping), PROA_OPTION_KIND_EARLY, IN(early_stopping), 0, 0, false, 0,
     "stopping rule of beam search: false, true, never", "", "early_stopping", "", "early_stopping",
     "early_stopping"},
    {AT(beams_returned), INT, IN(beams_returned), 0, PROA_BEAMS_MAX, false, 0, "hypotheses to return; 0: all",
     "beam_width", "num_return_sequences", "", "num_return_sequences", ""},
    {AT(beam_groups), INT, IN(beam_groups), 0, PROA_BEAMS_MAX, false, 1, "groups of a diverse beam search",
     "", "", "", "num_beam_groups", "num_beam_groups"},
    {AT(diversity_penalty), FLOAT, IN(diversity_penalty), 0, 1e4, false, 0,
     "subtracted from tokens that earlier groups chose in this step", "", "", "", "diversity_penalty",
     "diversity_penalty"},
    {AT(diversity_rate), FLOAT, IN(diversity_rate), -1e4, 1e4, false, 0,
     "added to a beam's score: ft times the rank among siblings, trtllm times the beam",
     "beam_search_diversity_rate", "beam_search_diversity_rate", "", "", ""},
    {AT(penalty_alpha), FLOAT, IN(penalty_alpha), 0, 1, false, 0,
     "contrastive search: weight of the degeneration penalty", "", "", "", "penalty_alpha", "penalty_alpha"},
    {AT(logprobs), BOOL, IN(logprobs), 0, 1, false, 0, "log-probability of each token", "is_return_log_probs",
     "return_log_probs", "logprobs", "output_scores", ""},
    {AT(top_logprobs), INT, IN(top_logprobs), 0, PROA_TOP_LOGPROBS_MAX, false, 0,
     "log-probabilities of the N most likely tokens", "", "", "top_logprobs", "output_scores", ""},
    {AT(prompt_logprobs), BOOL, IN(prompt_logprobs), 0, 1, false, 0, "log-probability of each prompt token",
     "is_return_context_cum_log_probs", "return_context_logits", "echo with logprobs", "", ""},
    {AT(return_logits), BOOL, IN(return_logits), 0, 1, false, 0, "raw logits of each new token", "",
     "return_generation_logits", NULL, "output_logits", ""},
    {AT(return_hidden), BOOL, IN(return_hidden), 0, 1, false, 0, "hidden state of each new token",
     "is_return_context_embeddings", "", NULL, "output_hidden_states", ""},
    {AT(priority), INT, IN(priority), -1000000, 1000000, false, 0,
     "requests with a higher one are admitted first and preempt others", "", "priority", "", "", ""},
    {AT(timeout_ms), INT, IN(timeout_ms), 0, INT32_MAX, false, 0,
     "milliseconds after which the request ends with an error; 0: none", "", "", "", "", ""},
    {AT(adapter), PROA_OPTION_KIND_TEXT, IN(adapter), 0, 0, false, 0,
     "name of the adapter to use; none: the model alone", "", "lora_task_id", "model", "", ""},
    {AT(speculation), TEXT, IN(speculation), 0, 0, false,
     0, "who drafts tokens: none, ngram (prompt lookup), draft (a model), medusa or eagle; default: the loaded way",
     "", "", "", "", ""},
    {AT(draft_tokens), INT, IN(draft_tokens), 0, PROA_DRAFT_MAX, false, 0,
     "draft tokens in a step at most; 0: as the model was loaded", "", "", "", "num_assistant_tokens", ""},
    {AT(prediction), TEXT, IN(prediction), 0, 0, false, 0,
     "text that the output is expected to repeat in part; tokens are drafted from it", "", "", "prediction",
     "", ""},
    {AT(draft_ids), IDS, IN(draft_ids), 0, PROA_VOCAB_MAX, false, 0,
     "token ids that the output is expected to begin with; tokens are drafted from them", "",
     "draft_input_ids", "", "", ""},
};
/* clang-format on */
_Static_assert(PROA_COUNT(proa_option_rows) == PROA_OPTION_COUNT, "one row for each option");

/* ---- finding ---- */

/* --top-p and top_p are one name. */
static void normal_name(proa_str name, char out[64])
{
    size_t n = name.len < 63 ? name.len : 63;
    for (size_t i = 0; i < n; i++) out[i] = name.ptr[i] == '-' ? '_' : name.ptr[i];
    out[n] = '\0';
}

const proa_option_row *proa_option_find(proa_str name, const char **nearest)
{
    char wanted[64];
    normal_name(name, wanted);
    int least = 3 + (int)(strlen(wanted) / 5); /* what is further away was not meant */
    if (nearest) *nearest = NULL;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        if (name.len < 64 && strcmp(wanted, row->name) == 0) return row;
        int d = proa_str_distance(wanted, row->name);
        if (d < least && nearest) *nearest = row->name;
        if (d < least) least = d;
    }
    return NULL;
}

proa_status proa_option_unknown(proa_str name, const char *nearest, proa_err *err)
{
    int len = (int)proa_min64((int64_t)name.len, 60);
    if (!nearest) return PROA_FAIL(err, INVALID, "unknown option '%.*s'", len, name.ptr);
    return PROA_FAIL(err, INVALID, "unknown option '%.*s' (did you mean '%s'?)", len, name.ptr, nearest);
}

/* ---- values ---- */

void *proa_option_field(const proa_options *o, const proa_option_row *row)
{
    return (char *)(uintptr_t)o + row->offset;
}

double proa_option_number(const proa_options *o, const proa_option_row *row)
{
    const void *field = proa_option_field(o, row);
    if (row->kind == PROA_OPTION_KIND_INT) return *(const int32_t *)field;
    if (row->kind == PROA_OPTION_KIND_FLOAT) return (double)*(const float *)field;
    return 0;
}

proa_status proa_option_out_of_range(const proa_option_row *row, double value, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "option '%s' is %g, must be %s%.10g to %.10g", row->name, value,
                     row->min_open ? "above " : "", row->min, row->max);
}

/* A float option is the nearest float to its value, and that is what must be in range: 1e-50 is 0, and the float
 * nearest to 0.0001 is a little less than it, as is the bound then. */
bool proa_option_in_range(const proa_option_row *row, double value)
{
    double min = row->min, max = row->max;
    if (row->kind == PROA_OPTION_KIND_FLOAT) {
        if (!(fabs(value) <= (double)FLT_MAX)) return false;
        value = (double)(float)value, min = (double)(float)min, max = (double)(float)max;
    }
    return value >= min && value <= max && !(row->min_open && value == min);
}

static void mark_given(proa_options *o, const proa_option_row *row)
{
    o->given[row->option] = true;
}

static proa_status wrong_kind(const proa_option_row *row, const char *want, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "option '%s' must be %s", row->name, want);
}

static proa_status set_ranged(proa_options *o, const proa_option_row *row, double value, proa_err *err)
{
    void *field = proa_option_field(o, row);
    if (!proa_option_in_range(row, value)) return proa_option_out_of_range(row, value, err);
    if (row->kind == PROA_OPTION_KIND_FLOAT) *(float *)field = (float)value;
    else if (value != floor(value))
        return PROA_FAIL(err, INVALID, "option '%s' is %g, must be an integer", row->name, value);
    else *(int32_t *)field = (int32_t)value;
    return PROA_OK;
}

static proa_status set_end_id(proa_options *o, const proa_option_row *row, double value, proa_err *err)
{
    if (!(value >= 0 && value <= PROA_VOCAB_MAX && value == floor(value)))
        return PROA_FAIL(err, INVALID, "option '%s' has the token id %g", row->name, value);
    o->end_ids[0] = (int32_t)value;
    o->end_ids_count = 1;
    return PROA_OK;
}

proa_status proa_option_set_number(proa_options *o, const proa_option_row *row, double value, proa_err *err)
{
    switch (row->kind) {
    case PROA_OPTION_KIND_INT:
    case PROA_OPTION_KIND_FLOAT: PROA_TRY(set_ranged(o, row, value, err)); break;
    case PROA_OPTION_KIND_BOOL:
        if (value != 0 && value != 1) return wrong_kind(row, "true or false", err);
        *(bool *)proa_option_field(o, row) = value != 0;
        break;
    case PROA_OPTION_KIND_EARLY:
        if (!isfinite(value)) return wrong_kind(row, "a number", err);
        o->early_stopping = value == 0 ? PROA_EARLY_FALSE : value == 1 ? PROA_EARLY_TRUE : PROA_EARLY_NEVER;
        break;
    case PROA_OPTION_KIND_IDS:
        if (value != -1) {
            PROA_TRY(set_end_id(o, row, value, err));
            break;
        }
        o->ignore_eos = true; /* other engines' way to say that there is no end token */
        o->given[PROA_OPTION_ignore_eos] = true;
        return PROA_OK;
    default: return wrong_kind(row, "no number", err);
    }
    mark_given(o, row);
    return PROA_OK;
}

static proa_status set_choice(proa_options *o, const proa_option_row *row, proa_str value, proa_err *err)
{
    static const char *const styles[] = {"hf", "ft", "trtllm", NULL}, *const early[] = {"false", "true",
                                                                                        "never", NULL};
    bool is_style = row->kind == PROA_OPTION_KIND_STYLE;
    for (int i = 0; (is_style ? styles : early)[i]; i++) {
        if (!proa_str_is(value, (is_style ? styles : early)[i])) continue;
        if (is_style) o->style = (proa_style)i;
        else o->early_stopping = (proa_early)i;
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "option '%s' is '%.*s', must be %s", row->name,
                     (int)proa_min64((int64_t)value.len, 60), value.ptr,
                     is_style ? "hf, ft or trtllm" : "false, true or never");
}

/* ---- lists ---- */

static proa_status read_id(int32_t *id, const proa_json *j, const proa_option_row *row, proa_err *err)
{
    int64_t value = proa_json_int(j);
    if (proa_json_kind(j) != PROA_JSON_INT) return wrong_kind(row, "made of token ids", err);
    if (value < 0 || value > PROA_VOCAB_MAX)
        return PROA_FAIL(err, INVALID, "option '%s' has the token id %lld", row->name, (long long)value);
    *id = (int32_t)value;
    return PROA_OK;
}

static proa_status set_tokens(proa_options *o, const proa_option_row *row, const proa_json *list,
                              proa_arena *arena, proa_err *err)
{
    int64_t n = proa_json_len(list);
    if (proa_json_kind(list) != PROA_JSON_ARRAY) return wrong_kind(row, "a list of token ids", err);
    if (n > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %lld ids, at most %d are taken", row->name,
                         (long long)n, PROA_WORD_IDS_MAX);
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, n);
    for (int64_t i = 0; i < n; i++) PROA_TRY(read_id(&ids[i], proa_json_at(list, i), row, err));
    *(proa_tokens *)proa_option_field(o, row) = (proa_tokens){ids, (int32_t)n};
    return PROA_OK;
}

static proa_status set_end_ids(proa_options *o, const proa_option_row *row, const proa_json *list, proa_err *err)
{
    if (proa_json_kind(list) == PROA_JSON_INT) {
        o->end_ids_count = 1;
        return read_id(&o->end_ids[0], list, row, err);
    }
    int64_t n = proa_json_len(list);
    if (proa_json_kind(list) != PROA_JSON_ARRAY) return wrong_kind(row, "a list of token ids", err);
    if (n > PROA_END_IDS_MAX)
        return PROA_FAIL(err, INVALID, "option '%s' has %lld ids, at most %d are taken", row->name,
                         (long long)n, PROA_END_IDS_MAX);
    o->end_ids_count = (int32_t)n;
    for (int64_t i = 0; i < n; i++) PROA_TRY(read_id(&o->end_ids[i], proa_json_at(list, i), row, err));
    return PROA_OK;
}

/* Word i of a list of words, or of a list of words and numbers. */
static const proa_json *word_at(const proa_option_row *row, const proa_json *list, int64_t i)
{
    const proa_json *item = proa_json_at(list, i);
    return row->kind == PROA_OPTION_KIND_WORDS ? item : proa_json_at(item, 0);
}

static proa_status count_words(const proa_option_row *row, const proa_json *list, int64_t *ids, proa_err *err)
{
    *ids = 0;
    if (proa_json_kind(list) != PROA_JSON_ARRAY) return wrong_kind(row, "a list of lists of token ids", err);
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        const proa_json *word = word_at(row, list, i);
        if (proa_json_kind(word) != PROA_JSON_ARRAY || proa_json_len(word) == 0)
            return wrong_kind(row, "a list of lists of token ids, none of them empty", err);
        *ids += proa_json_len(word);
    }
    if (*ids > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %lld ids, at most %d are taken", row->name,
                         (long long)*ids, PROA_WORD_IDS_MAX);
    return PROA_OK;
}

static proa_status read_words(proa_words *out, const proa_option_row *row, const proa_json *list,
                              proa_arena *arena, proa_err *err)
{
    int64_t total = 0, at = 0, n = proa_json_len(list);
    PROA_TRY(count_words(row, list, &total, err));
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, total), *ends = PROA_ARENA_NEW(arena, int32_t, n);
    for (int64_t w = 0; w < n; w++) {
        const proa_json *word = word_at(row, list, w);
        for (int64_t i = 0; i < proa_json_len(word); i++)
            PROA_TRY(read_id(&ids[at++], proa_json_at(word, i), row, err));
        ends[w] = (int32_t)at;
    }
    *out = (proa_words){ids, ends, (int32_t)n};
    return PROA_OK;
}

/* [[[5, 6], -1.5], ...], as transformers writes it. */
static proa_status set_sequence_bias(proa_options *o, const proa_option_row *row, const proa_json *list,
                                     proa_arena *arena, proa_err *err)
{
    int64_t n = proa_json_len(list);
    proa_sequence_bias bias = {.values = NULL};
    float *values = PROA_ARENA_NEW(arena, float, n);
    for (int64_t i = 0; i < n && proa_json_kind(list) == PROA_JSON_ARRAY; i++) {
        const proa_json *pair = proa_json_at(list, i), *value = proa_json_at(pair, 1);
        bool number = proa_json_kind(value) == PROA_JSON_INT || proa_json_kind(value) == PROA_JSON_DOUBLE;
        if (proa_json_kind(pair) != PROA_JSON_ARRAY || proa_json_len(pair) != 2 || !number)
            return wrong_kind(row, "a list of pairs [[token ids], number]", err);
        if (!proa_option_in_range(row, proa_json_double(value)))
            return proa_option_out_of_range(row, proa_json_double(value), err);
        values[i] = (float)proa_json_double(value);
    }
    PROA_TRY(read_words(&bias.words, row, list, arena, err));
    bias.values = values;
    o->sequence_bias = bias;
    return PROA_OK;
}

static proa_status append_string(proa_options *o, const proa_option_row *row, proa_str text,
                                 proa_arena *arena, proa_err *err)
{
    proa_strings *s = proa_option_field(o, row);
    if (text.len == 0) return PROA_FAIL(err, INVALID, "option '%s' has an empty string", row->name);
    if (memchr(text.ptr, 0, text.len))
        return PROA_FAIL(err, INVALID, "option '%s' has a string with a NUL", row->name);
    if (s->count >= PROA_STRINGS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has more than %d strings", row->name, PROA_STRINGS_MAX);
    const char **list = PROA_ARENA_NEW(arena, const char *, s->count + 1);
    if (s->count) memcpy(list, s->text, (size_t)s->count * sizeof *list);
    list[s->count] = proa_arena_strdup(arena, text);
    *s = (proa_strings){list, s->count + 1};
    return PROA_OK;
}

proa_status proa_option_add_string(proa_options *o, const proa_option_row *row, proa_str text,
                                   proa_arena *arena, proa_err *err)
{
    PROA_TRY(append_string(o, row, text, arena, err));
    mark_given(o, row);
    return PROA_OK;
}

static proa_status set_strings(proa_options *o, const proa_option_row *row, const proa_json *j,
                               proa_arena *arena, proa_err *err)
{
    if (proa_json_kind(j) == PROA_JSON_STRING) return append_string(o, row, proa_json_str(j), arena, err);
    if (proa_json_kind(j) != PROA_JSON_ARRAY) return wrong_kind(row, "a string or a list of strings", err);
    for (int64_t i = 0; i < proa_json_len(j); i++) {
        if (proa_json_kind(proa_json_at(j, i)) != PROA_JSON_STRING)
            return wrong_kind(row, "a list of strings", err);
        PROA_TRY(append_string(o, row, proa_json_str(proa_json_at(j, i)), arena, err));
    }
    return PROA_OK;
}

/* A text; a document of JSON that is no string (a schema) as it was written. */
static proa_status set_text(proa_options *o, const proa_option_row *row, proa_str text, proa_arena *arena,
                            proa_err *err)
{
    if (memchr(text.ptr, 0, text.len)) return PROA_FAIL(err, INVALID, "option '%s' has a NUL", row->name);
    if (text.len > PROA_GRAMMAR_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %zu bytes, at most %d are taken", row->name, text.len,
                         PROA_GRAMMAR_BYTES_MAX);
    *(const char **)proa_option_field(o, row) = text.len ? proa_arena_strdup(arena, text) : NULL;
    return PROA_OK;
}

static proa_status set_document(proa_options *o, const proa_option_row *row, const proa_json *j,
                                proa_arena *arena, proa_err *err)
{
    proa_buf text;
    if (proa_json_kind(j) == PROA_JSON_STRING) return set_text(o, row, proa_json_str(j), arena, err);
    proa_buf_init(&text, 8 * PROA_GRAMMAR_BYTES_MAX);
    proa_json_print(&text, j);
    proa_status status = set_text(o, row, proa_buf_view(&text), arena, err);
    proa_buf_release(&text);
    return status;
}

static proa_status read_bias(proa_bias *bias, proa_str key, const proa_json *value,
                             const proa_option_row *row, proa_err *err)
{
    char text[16], *end;
    snprintf(text, sizeof text, "%.*s", (int)proa_min64((int64_t)key.len, 15), key.ptr);
    long id = strtol(text, &end, 10);
    if (*end || end == text || id < 0 || id > PROA_VOCAB_MAX)
        return PROA_FAIL(err, INVALID, "option '%s' has the key '%s', which is no token id", row->name, text);
    double v = proa_json_double(value);
    bool number = proa_json_kind(value) == PROA_JSON_INT || proa_json_kind(value) == PROA_JSON_DOUBLE;
    if (!number || !proa_option_in_range(row, v)) return proa_option_out_of_range(row, v, err);
    *bias = (proa_bias){(int32_t)id, (float)v};
    return PROA_OK;
}

static proa_status set_bias(proa_options *o, const proa_option_row *row, const proa_json *j,
                            proa_arena *arena, proa_err *err)
{
    int64_t n = proa_json_len(j), i = 0;
    if (proa_json_kind(j) != PROA_JSON_OBJECT)
        return wrong_kind(row, "an object of token ids and numbers", err);
    if (n > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %lld entries", row->name, (long long)n);
    proa_bias *list = PROA_ARENA_NEW(arena, proa_bias, n);
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it); i++)
        PROA_TRY(read_bias(&list[i], it.key, it.value, row, err));
    o->logit_bias = list;
    o->logit_bias_count = (int32_t)n;
    return PROA_OK;
}

/* ---- from JSON and text ---- */

static proa_status set_seed(proa_options *o, const proa_option_row *row, const proa_json *j, proa_err *err)
{
    if (proa_json_kind(j) != PROA_JSON_INT) return wrong_kind(row, "an integer", err);
    o->seed = (uint64_t)proa_json_int(j);
    return PROA_OK;
}

static proa_status set_json(proa_options *o, const proa_option_row *row, const proa_json *j,
                            proa_arena *arena, proa_err *err)
{
    proa_json_type kind = proa_json_kind(j);
    switch (row->kind) {
    case PROA_OPTION_KIND_INT:
    case PROA_OPTION_KIND_FLOAT:
        if (kind != PROA_JSON_INT && kind != PROA_JSON_DOUBLE) return wrong_kind(row, "a number", err);
        return proa_option_set_number(o, row, proa_json_double(j), err);
    case PROA_OPTION_KIND_U64: return set_seed(o, row, j, err);
    case PROA_OPTION_KIND_BOOL:
        if (kind != PROA_JSON_BOOL) return wrong_kind(row, "true or false", err);
        return proa_option_set_number(o, row, proa_json_bool(j), err);
    case PROA_OPTION_KIND_EARLY:
        if (kind == PROA_JSON_BOOL)
            return set_choice(o, row, proa_str_c(proa_json_bool(j) ? "true" : "false"), err);
        return set_choice(o, row, proa_json_str(j), err);
    case PROA_OPTION_KIND_STYLE: return set_choice(o, row, proa_json_str(j), err);
    case PROA_OPTION_KIND_IDS: return set_end_ids(o, row, j, err);
    case PROA_OPTION_KIND_WORDS: return read_words(proa_option_field(o, row), row, j, arena, err);
    case PROA_OPTION_KIND_TOKENS: return set_tokens(o, row, j, arena, err);
    case PROA_OPTION_KIND_SEQUENCE_BIAS: return set_sequence_bias(o, row, j, arena, err);
    case PROA_OPTION_KIND_STRINGS: return set_strings(o, row, j, arena, err);
    case PROA_OPTION_KIND_BIAS: return set_bias(o, row, j, arena, err);
    case PROA_OPTION_KIND_TEXT: return set_document(o, row, j, arena, err);
    }
    return PROA_OK;
}

proa_status proa_option_read_json(proa_options *o, const proa_option_row *row, const proa_json *value,
                                  proa_arena *arena, proa_err *err)
{
    PROA_TRY(set_json(o, row, value, arena, err));
    mark_given(o, row);
    return PROA_OK;
}

proa_status proa_options_read_json(proa_options *o, const proa_json *object, bool strict, proa_arena *arena,
                                   proa_err *err)
{
    for (proa_json_iter it = proa_json_begin(object); proa_json_next(&it);) {
        const char *nearest;
        const proa_option_row *row = proa_option_find(it.key, &nearest);
        if (!row && strict) return proa_option_unknown(it.key, nearest, err);
        if (!row || proa_json_kind(it.value) == PROA_JSON_NULL) continue;
        PROA_TRY(proa_option_read_json(o, row, it.value, arena, err));
    }
    return PROA_OK;
}

/* "1, 2 3" becomes the JSON list [1,2,3]; what is JSON already stays. */
static void list_text(proa_buf *out, proa_str value)
{
    bool json = value.len && (value.ptr[0] == '[' || value.ptr[0] == '{');
    if (!json) proa_buf_char(out, '[');
    for (size_t i = 0; i < value.len; i++) {
        bool gap = value.ptr[i] == ' ' && !json;
        if (gap && (i + 1 == value.len || out->ptr[out->len - 1] == ',' || out->ptr[out->len - 1] == '['))
            continue;
        proa_buf_char(out, gap ? ',' : value.ptr[i]);
    }
    if (!json) proa_buf_char(out, ']');
}

static proa_status set_from_json_text(proa_options *o, const proa_option_row *row, proa_str text,
                                      proa_arena *arena, proa_err *err)
{
    proa_json *json = NULL;
    proa_status status = proa_json_parse_within(&json, text, PROA_REQUEST_NODES_MAX, row->name, NULL);
    if (status != PROA_OK)
        status = PROA_FAIL(err, INVALID, "option '%s': cannot read '%.*s'", row->name,
                           (int)proa_min64((int64_t)text.len, 80), text.ptr);
    else status = set_json(o, row, json, arena, err);
    proa_json_free(json);
    return status;
}

proa_status proa_options_set(proa_options *o, const proa_option_row *row, proa_str value, proa_arena *arena,
                             proa_err *err)
{
    proa_buf text;
    proa_status status;
    proa_buf_init(&text, PROA_TEXT_BYTES_MAX);
    bool json_strings = row->kind == PROA_OPTION_KIND_STRINGS && value.len && value.ptr[0] == '[';
    if (row->kind == PROA_OPTION_KIND_STYLE || row->kind == PROA_OPTION_KIND_EARLY)
        status = set_choice(o, row, value, err);
    else if (row->kind == PROA_OPTION_KIND_STRINGS && !json_strings)
        status = append_string(o, row, value, arena, err);
    else if (row->kind == PROA_OPTION_KIND_TEXT) status = set_text(o, row, value, arena, err);
    else if (row->kind == PROA_OPTION_KIND_IDS || row->kind == PROA_OPTION_KIND_TOKENS) {
        list_text(&text, value);
        status = set_from_json_text(o, row, proa_buf_view(&text), arena, err);
    } else status = set_from_json_text(o, row, value, arena, err);
    proa_buf_release(&text);
    if (status == PROA_OK) mark_given(o, row);
    return status;
}

/* ---- defaults ---- */

static bool is_set(const proa_options *o, const proa_option_row *row)
{
    return o->given[row->option] || proa_option_number(o, row) != 0;
}

/* Lists and switches: the field's size, and whether it is empty. 0: other kinds. */
static size_t list_bytes(const proa_options *o, const proa_option_row *row, bool *empty)
{
    const void *field = proa_option_field(o, row);
    switch (row->kind) {
    case PROA_OPTION_KIND_WORDS: return *empty = !((const proa_words *)field)->count, sizeof(proa_words);
    case PROA_OPTION_KIND_STRINGS:
        return *empty = !((const proa_strings *)field)->count, sizeof(proa_strings);
    case PROA_OPTION_KIND_TOKENS: return *empty = !((const proa_tokens *)field)->count, sizeof(proa_tokens);
    case PROA_OPTION_KIND_SEQUENCE_BIAS:
        return *empty = !((const proa_sequence_bias *)field)->words.count, sizeof(proa_sequence_bias);
    case PROA_OPTION_KIND_BOOL: return *empty = !*(const bool *)field, sizeof(bool);
    default: return *empty = false, 0;
    }
}

static void take_default(proa_options *o, const proa_option_row *row, const proa_options *defaults)
{
    bool empty, given = o->given[row->option];
    void *field = proa_option_field(o, row);
    size_t bytes = list_bytes(o, row, &empty);
    if (bytes && empty && !given && defaults) memcpy(field, proa_option_field(defaults, row), bytes);
    if ((row->kind != PROA_OPTION_KIND_INT && row->kind != PROA_OPTION_KIND_FLOAT) || is_set(o, row)) return;
    bool from_model = defaults && is_set(defaults, row);
    double value = from_model ? proa_option_number(defaults, row) : row->fallback;
    if (row->kind == PROA_OPTION_KIND_INT) *(int32_t *)field = (int32_t)value;
    else *(float *)field = (float)value;
}

void proa_options_resolve(proa_options *o, const proa_options *defaults)
{
    bool penalty_given = o->given[PROA_OPTION_length_penalty] || o->length_penalty != 0;
    bool top_p_given = o->given[PROA_OPTION_top_p] || o->top_p != 0;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) take_default(o, &proa_option_rows[i], defaults);
    if (!penalty_given && o->style != PROA_STYLE_HF) o->length_penalty = 0;
    if (!top_p_given && o->style != PROA_STYLE_HF) o->top_p = 0; /* with top_k 0 that is greedy there */
    if (o->best_of < o->n) o->best_of = o->n;
    if (!o->given[PROA_OPTION_early_stopping] && o->early_stopping == PROA_EARLY_FALSE) {
        if (defaults) o->early_stopping = defaults->early_stopping;
        if (o->style == PROA_STYLE_TRTLLM) o->early_stopping = PROA_EARLY_TRUE; /* its own default */
    }
    /* ft and trtllm divide by a temperature of zero that was given; one that was not given is 1 to them. */
    bool temperature_given = o->given[PROA_OPTION_temperature];
    memset(o->given, true, sizeof o->given);
    o->given[PROA_OPTION_temperature] = temperature_given;
}

/* ---- copies ---- */

static proa_words copy_words(proa_words w, proa_arena *arena)
{
    if (w.count <= 0) return (proa_words){0};
    int32_t total = w.ends[w.count - 1];
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, total), *ends = PROA_ARENA_NEW(arena, int32_t, w.count);
    memcpy(ids, w.ids, (size_t)total * sizeof *ids);
    memcpy(ends, w.ends, (size_t)w.count * sizeof *ends);
    return (proa_words){ids, ends, w.count};
}

static proa_tokens copy_tokens(proa_tokens t, proa_arena *arena)
{
    if (t.count <= 0) return (proa_tokens){0};
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, t.count);
    memcpy(ids, t.ids, (size_t)t.count * sizeof *ids);
    return (proa_tokens){ids, t.count};
}

static proa_sequence_bias copy_sequence_bias(proa_sequence_bias b, proa_arena *arena)
{
    if (b.words.count <= 0) return (proa_sequence_bias){.values = NULL};
    float *values = PROA_ARENA_NEW(arena, float, b.words.count);
    memcpy(values, b.values, (size_t)b.words.count * sizeof *values);
    return (proa_sequence_bias){copy_words(b.words, arena), values};
}

static proa_strings copy_strings(proa_strings s, proa_arena *arena)
{
    if (s.count <= 0) return (proa_strings){0};
    const char **text = PROA_ARENA_NEW(arena, const char *, s.count);
    for (int32_t i = 0; i < s.count; i++) text[i] = proa_arena_strdup(arena, proa_str_c(s.text[i]));
    return (proa_strings){text, s.count};
}

bool proa_options_constrain(const proa_options *o)
{
    return o->json_schema || o->json_object || o->regex || o->grammar || o->choice.count > 0;
}

void proa_options_copy(proa_options *o, const proa_options *from, proa_arena *arena)
{
    *o = *from;
    o->allowed_words = copy_words(from->allowed_words, arena);
    o->banned_words = copy_words(from->banned_words, arena);
    o->stop_words = copy_words(from->stop_words, arena);
    o->suppress_tokens = copy_tokens(from->suppress_tokens, arena);
    o->begin_suppress_tokens = copy_tokens(from->begin_suppress_tokens, arena);
    o->sequence_bias = copy_sequence_bias(from->sequence_bias, arena);
    o->banned_strings = copy_strings(from->banned_strings, arena);
    o->stop_strings = copy_strings(from->stop_strings, arena);
    o->choice = copy_strings(from->choice, arena);
    o->json_schema = proa_arena_copy_text(arena, from->json_schema);
    o->regex = proa_arena_copy_text(arena, from->regex);
    o->grammar = proa_arena_copy_text(arena, from->grammar);
    o->adapter = proa_arena_copy_text(arena, from->adapter);
    o->speculation = proa_arena_copy_text(arena, from->speculation);
    o->prediction = proa_arena_copy_text(arena, from->prediction);
    o->draft_ids = copy_tokens(from->draft_ids, arena);
    if (from->logit_bias_count <= 0) return;
    proa_bias *bias = PROA_ARENA_NEW(arena, proa_bias, from->logit_bias_count);
    memcpy(bias, from->logit_bias, (size_t)from->logit_bias_count * sizeof *bias);
    o->logit_bias = bias;
}
