/* SPDX-License-Identifier: Apache-2.0
 * rerank.c - /rerank and /score: how well pairs of texts fit each other. A cross-encoder (a classifier with one output)
 *            rates each pair; of other models the score is the cosine of two embeddings. */
#include "api/openai/openai.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* ---- reading ---- */

/* Texts of a member: one, or a list; an element may be {"text": ...}. */
typedef struct texts {
    const proa_json *all;
    bool one;
    int64_t count;
} texts;

static const proa_json *text_at(const texts *t, int64_t i)
{
    const proa_json *at = t->one ? t->all : proa_json_at(t->all, i);
    return proa_json_kind(at) == PROA_JSON_OBJECT ? proa_json_get(at, "text") : at;
}

static bool read_texts(proa_oai *job, texts *t, const char *key, int64_t most)
{
    t->all = proa_json_get(job->body, key);
    t->one = proa_json_kind(t->all) != PROA_JSON_ARRAY;
    t->count = t->one ? 1 : proa_json_len(t->all);
    if (!t->all) return proa_oai_bad(&job->error, key, "Missing required parameter: '%s'.", key);
    if (t->count < 1 || t->count > most)
        return proa_oai_bad(&job->error, key, "Invalid '%s': %lld texts, must be 1 to %lld.", key,
                            (long long)t->count, (long long)most);
    for (int64_t i = 0; i < t->count; i++)
        if (proa_json_kind(text_at(t, i)) != PROA_JSON_STRING)
            return proa_oai_bad(&job->error, key, "Invalid type for '%s': element %lld is no text.", key,
                                (long long)i);
    return true;
}

static bool is_cross_encoder(const proa_oai *job)
{
    return proa_served_model_labels(job->model) == 1;
}

static void add_pairs(proa_oai *job, const texts *first, const texts *second)
{
    proa_oai_input *inputs = proa_oai_add_inputs(job, (int32_t)second->count);
    for (int64_t i = 0; i < second->count; i++) {
        inputs[i].prompt = text_at(first, first->count > 1 ? i : 0);
        inputs[i].pair = text_at(second, i);
    }
    job->task = PROA_GENERATION_CLASSIFY;
}

/* All texts, the first ones first; each once. */
static void add_vectors(proa_oai *job, const texts *first, const texts *second)
{
    proa_oai_input *inputs = proa_oai_add_inputs(job, (int32_t)(first->count + second->count));
    for (int64_t i = 0; i < first->count; i++) inputs[i].prompt = text_at(first, i);
    for (int64_t i = 0; i < second->count; i++) inputs[first->count + i].prompt = text_at(second, i);
    job->task = PROA_GENERATION_EMBED;
}

static bool add_texts(proa_oai *job, const texts *first, const texts *second)
{
    int64_t labels = proa_served_model_labels(job->model);
    if (labels > 1)
        return proa_oai_bad(
            &job->error, "model",
            "The model '%.200s' is a classifier with %lld labels; one that rates pairs has one.",
            job->name.ptr, (long long)labels);
    job->first_count = (int32_t)first->count;
    job->pairs_count = (int32_t)second->count;
    if (is_cross_encoder(job)) add_pairs(job, first, second);
    else add_vectors(job, first, second);
    return proa_oai_read_pooling(job);
}

bool proa_oai_read_score(proa_oai *job)
{
    texts first, second;
    if (!read_texts(job, &first, "text_1", PROA_OPENAI_PROMPTS_MAX / 2) ||
        !read_texts(job, &second, "text_2", PROA_OPENAI_PROMPTS_MAX / 2))
        return false;
    if (first.count != 1 && first.count != second.count)
        return proa_oai_bad(&job->error, "text_1",
                            "Invalid 'text_1': %lld texts, must be one, or as many as 'text_2' has (%lld).",
                            (long long)first.count, (long long)second.count);
    return add_texts(job, &first, &second);
}

/* They are returned with their scores, when the body is gone. */
static void keep_documents(proa_oai *job, const texts *documents)
{
    proa_str *list = PROA_ARENA_NEW(&job->arena, proa_str, documents->count);
    for (int64_t i = 0; i < documents->count; i++) {
        proa_str text = proa_json_str(text_at(documents, i));
        list[i] = (proa_str){proa_arena_strdup(&job->arena, text), text.len};
    }
    job->documents = list;
}

bool proa_oai_read_rerank(proa_oai *job)
{
    texts query, documents;
    job->params.cohere = proa_str_is(job->x->path, "/v2/rerank");
    job->params.documents = !job->params.cohere;
    if (!read_texts(job, &query, "query", 1) ||
        !read_texts(job, &documents, "documents", PROA_OPENAI_PROMPTS_MAX - 1))
        return false;
    job->params.top_n = documents.count;
    if (!proa_oai_whole(job, "top_n", 1, INT32_MAX, &job->params.top_n, NULL) ||
        !proa_oai_flag(&job->error, job->body, "return_documents", &job->params.documents))
        return false;
    if (job->params.documents) keep_documents(job, &documents);
    return add_texts(job, &query, &documents);
}

/* ---- scores ---- */

typedef struct score {
    int32_t index;
    float value;
} score;

static float cosine_of(const proa_oai_prompt *a, const proa_oai_prompt *b)
{
    double dot = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < a->width; i++) {
        dot += (double)a->vector[i] * (double)b->vector[i];
        aa += (double)a->vector[i] * (double)a->vector[i];
        bb += (double)b->vector[i] * (double)b->vector[i];
    }
    return aa > 0 && bb > 0 ? (float)(dot / (sqrt(aa) * sqrt(bb))) : 0;
}

/* One for each pair, in order. */
static score *scores_of(proa_oai *job)
{
    score *all = PROA_ARENA_NEW(&job->arena, score, job->pairs_count);
    const proa_oai_prompt *p = job->prompts;
    for (int32_t i = 0; i < job->pairs_count; i++) {
        all[i].index = i;
        if (is_cross_encoder(job)) all[i].value = p[i].relevance;
        else all[i].value = cosine_of(&p[job->first_count > 1 ? i : 0], &p[job->first_count + i]);
    }
    return all;
}

bool proa_oai_put_score(proa_oai *job, proa_buf *out)
{
    score *all = scores_of(job);
    long long tokens = (long long)proa_oai_prompt_tokens(job);
    proa_buf_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", job->id,
                    (long long)time(NULL));
    proa_buf_json_str(out, job->name);
    proa_buf_str(out, proa_str_c(",\"data\":["));
    for (int32_t i = 0; i < job->pairs_count; i++) {
        proa_buf_printf(out, "%s{\"index\":%d,\"object\":\"score\",\"score\":", i ? "," : "", (int)i);
        proa_oai_put_number(out, (double)all[i].value);
        proa_buf_char(out, '}');
    }
    proa_buf_printf(out, "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld,\"completion_tokens\":0}}",
                    tokens, tokens);
    return true;
}

/* The best first; equal ones in their order. */
static int by_score(const void *a, const void *b)
{
    const score *x = a, *y = b;
    if (x->value > y->value) return -1;
    if (x->value < y->value) return 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void put_result(const proa_oai *job, proa_buf *out, const score *s)
{
    proa_buf_printf(out, "{\"index\":%d,", (int)s->index);
    if (job->documents) {
        proa_buf_str(out, proa_str_c("\"document\":{\"text\":"));
        proa_buf_json_str(out, job->documents[s->index]);
        proa_buf_str(out, proa_str_c("},"));
    }
    proa_buf_str(out, proa_str_c("\"relevance_score\":"));
    proa_oai_put_number(out, (double)s->value);
    proa_buf_char(out, '}');
}

bool proa_oai_put_rerank(proa_oai *job, proa_buf *out)
{
    score *all = scores_of(job);
    long long tokens = (long long)proa_oai_prompt_tokens(job);
    qsort(all, (size_t)job->pairs_count, sizeof *all, by_score);
    proa_buf_printf(out, "{\"id\":\"%s\",\"model\":", job->id);
    proa_buf_json_str(out, job->name);
    proa_buf_str(out, proa_str_c(",\"results\":["));
    for (int32_t i = 0; i < job->pairs_count && i < job->params.top_n; i++) {
        if (i > 0) proa_buf_char(out, ',');
        put_result(job, out, &all[i]);
    }
    proa_buf_printf(out, "],\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}", tokens, tokens);
    if (job->params.cohere)
        proa_buf_printf(
            out,
            ",\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":{\"search_units\":1},"
            "\"tokens\":{\"input_tokens\":%lld}}",
            tokens);
    proa_buf_char(out, '}');
    return true;
}
