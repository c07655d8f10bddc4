/* SPDX-License-Identifier: Apache-2.0
 * test_decoding.c - what a request can ask for, through the engine: several sequences, stop rules, log-probabilities,
 * and any mixture of options one by one and batched, bit for bit. */
#include "engine_test.h"

#include "base/checked.h"

/* Every event of one request, by sequence. */
typedef struct received {
    int32_t ids[8][200];
    float logprobs[8][200];
    int64_t count[8];
    char text[8][2000];
    size_t len[8];
    int32_t results, sequence[16];
    float score[16];
    double sum[16];
    proa_finish finish[16], last;
    char result_text[16][2000];
    int32_t result_ids[16][200];
    int64_t result_count[16];
    float prompt[200];
    int64_t prompt_count;
    int32_t top_ids[200];
    float top0[200];
    bool done;
    char error[300];
    float logits_at_id, hidden0;
} received;

static void on_token(received *t, const proa_event *e)
{
    int32_t s = e->sequence;
    t->ids[s][t->count[s]] = e->id;
    t->logprobs[s][t->count[s]] = e->logprob;
    if (e->top_count) t->top_ids[t->count[s]] = e->top[0].id, t->top0[t->count[s]] = e->top[0].logprob;
    if (e->logits) t->logits_at_id = e->logits[e->id];
    if (e->hidden) t->hidden0 = e->hidden[0];
    t->count[s]++;
    memcpy(t->text[s] + t->len[s], e->text, e->text_len);
    t->len[s] += e->text_len;
}

static void on_done(received *t, const proa_event *e)
{
    t->done = true;
    t->last = e->finish;
    if (e->error) snprintf(t->error, sizeof t->error, "%s", e->error->text);
    t->results = e->beams_count;
    for (int32_t i = 0; i < e->beams_count && i < 16; i++) {
        const proa_beam_result *b = &e->beams[i];
        t->sequence[i] = b->sequence, t->score[i] = b->score, t->sum[i] = b->logprob_sum,
        t->finish[i] = b->finish;
        t->result_count[i] = b->count;
        memcpy(t->result_ids[i], b->ids, (size_t)b->count * sizeof(int32_t));
        snprintf(t->result_text[i], sizeof t->result_text[i], "%s", b->text ? b->text : "");
    }
}

static void listen(const proa_event *e)
{
    received *t = e->arg;
    assert_false(t->done);
    if (e->kind == PROA_EVENT_TOKEN) on_token(t, e);
    if (e->kind == PROA_EVENT_DONE) on_done(t, e);
    if (e->kind != PROA_EVENT_PROMPT) return;
    assert_int_equal(e->rows_first, t->prompt_count + 1);
    memcpy(t->prompt + t->prompt_count, e->prompt_logprobs, (size_t)e->rows_count * sizeof(float));
    t->prompt_count += e->rows_count;
}

static void submit_request(proa_engine *engine, const char *text, proa_options o, received *t)
{
    proa_err err = {.status = PROA_OK};
    proa_request r = {.text = text, .options = o, .on_event = listen, .arg = t};
    *t = (received){0};
    if (proa_engine_submit(engine, &r, NULL, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void submit_and_run(proa_engine *engine, const char *text, proa_options o, received *t)
{
    submit_request(engine, text, o, t);
    proa_engine_run(engine);
    assert_true(t->done);
    if (t->error[0]) fail_msg("%s", t->error);
}

#define STORY "It was a dark and stormy night"
static proa_engine *stories;

static int open_stories(void **state)
{
    (void)state;
    stories = open_or_fail(MODELS "classics-10m", &(proa_engine_options){.sequences_max = 16, .kv_tokens = 8192});
    return 0;
}

static int close_stories(void **state)
{
    (void)state;
    proa_stats stats;
    proa_engine_stats(stories, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(stories);
    return 0;
}

static void n_equals_requests_with_derived_seeds(void **state)
{
    static received together, alone;
    (void)state;
    proa_options o = {.max_tokens = 40, .temperature = 0.9f, .top_p = 0.95f, .seed = 5, .n = 4, .logprobs = true};
    submit_and_run(stories, STORY, o, &together);
    assert_int_equal(together.results, 4);
    for (int i = 0; i < 4; i++) {
        o.n = 1;
        o.seed = proa_seed_of(5, i);
        submit_and_run(stories, STORY, o, &alone);
        assert_int_equal(together.count[i], alone.count[0]);
        assert_memory_equal(together.ids[i], alone.ids[0], (size_t)alone.count[0] * sizeof(int32_t));
        assert_memory_equal(together.logprobs[i], alone.logprobs[0], (size_t)alone.count[0] * sizeof(float));
        assert_memory_equal(together.text[i], alone.text[0], alone.len[0]);
        assert_string_equal(together.result_text[i], together.text[i]);
    }
    assert_memory_not_equal(together.ids[0], together.ids[1], 40 * sizeof(int32_t));
}

static void best_of_returns_the_likeliest(void **state)
{
    static received all, best;
    (void)state;
    proa_options o = {.max_tokens = 20, .temperature = 1, .seed = 9, .n = 6, .logprobs = true};
    submit_and_run(stories, STORY, o, &all);
    o.n = 2, o.best_of = 6;
    submit_and_run(stories, STORY, o, &best);
    assert_int_equal(best.results, 2);
    assert_int_equal(best.count[0] + best.count[1], 0); /* nothing is shown before it is chosen */
    int better = 0;
    for (int i = 0; i < 6; i++) better += all.score[i] > best.score[1];
    assert_int_equal(better, 1);
    assert_true(best.score[0] >= best.score[1]);
    assert_true(fabs(best.sum[0] / (double)best.result_count[0] - (double)best.score[0]) < 1e-6);
}

static void n_shares_the_prompts_pages(void **state)
{
    (void)state;
    char prompt[4000] = "";
    static received t;
    proa_stats stats;
    int64_t used[2];
    for (int i = 0; i < 100; i++) strcat(prompt, "It was a dark night, and the wind ");
    for (int i = 0; i < 2; i++) {
        proa_engine *engine = open_or_fail(STORIES,
                                           &(proa_engine_options){.sequences_max = 8, .kv_tokens = 8192});
        submit_and_run(engine, prompt, (proa_options){.max_tokens = 10, .temperature = 1, .n = i ? 8 : 1}, &t);
        proa_engine_stats(engine, &stats);
        used[i] = stats.pages_used_peak;
        proa_engine_close(engine);
    }
    /* the prompt's 13 or so full pages once; a page each for what they write themselves */
    assert_true(used[1] <= used[0] + 8);
}

static void stop_strings_cut_the_text(void **state)
{
    static received whole, cut;
    (void)state;
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 40}, &whole);
    const char *stops[] = {"house, and", "never said"};
    proa_options o = {.max_tokens = 40, .stop_strings = {stops, 2}};
    submit_and_run(stories, STORY, o, &cut);
    assert_int_equal(cut.last, PROA_FINISH_STOP);
    const char *at = strstr(whole.text[0], stops[0]);
    assert_non_null(at);
    assert_int_equal(cut.len[0], at - whole.text[0]);
    assert_memory_equal(cut.text[0], whole.text[0], cut.len[0]);
    const char *none[] = {"no such words"};
    o.stop_strings = (proa_strings){none, 1};
    submit_and_run(stories, STORY, o, &cut);
    assert_int_equal(cut.last, PROA_FINISH_LENGTH);
    assert_int_equal(cut.len[0], whole.len[0]);
    assert_memory_equal(cut.text[0], whole.text[0], whole.len[0]);
}

static void stop_words_and_bans(void **state)
{
    static received whole, t;
    (void)state;
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 30}, &whole);
    int32_t word[2] = {whole.ids[0][6], whole.ids[0][7]}, ends[] = {2};
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 30, .stop_words = {word, ends, 1}}, &t);
    assert_int_equal(t.last, PROA_FINISH_STOP);
    assert_int_equal(t.count[0], 8);
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 30, .banned_words = {word, ends, 1}}, &t);
    assert_memory_equal(t.ids[0], whole.ids[0], 7 * sizeof(int32_t));
    assert_int_not_equal(t.ids[0][7], word[1]);
    const char *ban[] = {"wind"};
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 30, .banned_strings = {ban, 1}}, &t);
    assert_non_null(strstr(whole.text[0], "wind"));
    assert_null(strstr(t.text[0], " wind"));
    proa_bias bias[] = {{whole.ids[0][0], -100}};
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 5, .logit_bias = bias, .logit_bias_count = 1},
                   &t);
    assert_int_not_equal(t.ids[0][0], whole.ids[0][0]);
    int32_t end = whole.ids[0][3];
    proa_options o = {.max_tokens = 30, .end_ids = {end}, .end_ids_count = 1};
    submit_and_run(stories, STORY, o, &t);
    assert_int_equal(t.last, PROA_FINISH_END);
    assert_int_equal(t.count[0], 4);
    o.min_tokens = 10;
    submit_and_run(stories, STORY, o, &t);
    assert_true(t.count[0] > 10);
}

/* What PROMPT events say equals the log-softmax of the rows. */
static void prompt_logprobs_are_the_rows(void **state)
{
    static received t, score;
    outcome rows = {0};
    int32_t ids[64];
    int64_t n = 0;
    (void)state;
    assert_int_equal(proa_engine_encode(stories, STORY, strlen(STORY), ids, 64, &n, NULL), PROA_OK);
    submit_and_run(stories, STORY,
                   (proa_options){.max_tokens = 3, .prompt_logprobs = true, .top_logprobs = 2, .logprobs = true},
                   &t);
    run_request(stories, (proa_request){.task = PROA_TASK_ROWS, .text = STORY}, &rows);
    assert_int_equal(t.prompt_count, n - 1);
    for (int64_t i = 0; i + 1 < n; i++) {
        const float *row = rows.rows + i * rows.columns;
        double sum = 0, most = -1e30;
        for (int64_t v = 0; v < rows.columns; v++) most = fmax(most, (double)row[v]);
        for (int64_t v = 0; v < rows.columns; v++) sum += exp((double)row[v] - most);
        assert_true(fabs((double)t.prompt[i] - ((double)row[ids[i + 1]] - most - log(sum))) < 1e-4);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.top_ids[i], t.ids[0][i]); /* greedy takes the most likely */
        assert_true(fabsf(t.top0[i] - t.logprobs[0][i]) < 1e-5f);
    }
    proa_request r = {.task = PROA_TASK_SCORE, .text = STORY, .on_event = listen, .arg = &score};
    assert_int_equal(proa_engine_submit(stories, &r, NULL, NULL), PROA_OK);
    proa_engine_run(stories);
    assert_int_equal(score.prompt_count, n - 1);
    assert_memory_equal(score.prompt, t.prompt, (size_t)(n - 1) * sizeof(float));
    outcome_release(&rows);
}

static void logits_and_hidden_states(void **state)
{
    static received t;
    outcome rows = {0};
    (void)state;
    submit_and_run(stories, STORY,
                   (proa_options){.max_tokens = 1, .return_logits = true, .return_hidden = true}, &t);
    run_request(stories, (proa_request){.task = PROA_TASK_ROWS, .text = STORY}, &rows);
    float last = rows.rows[(rows.rows_count - 1) * rows.columns + t.ids[0][0]];
    assert_memory_equal(&last, &t.logits_at_id, sizeof last);
    assert_true(t.hidden0 != 0);
    outcome_release(&rows);
}

/* alpha near 0 is greedy; a larger one breaks the circle that greedy runs in. */
static void contrastive_search(void **state)
{
    static received greedy, t;
    (void)state;
    submit_and_run(stories, STORY, (proa_options){.max_tokens = 60, .logprobs = true}, &greedy);
    proa_options o = {.max_tokens = 60, .top_k = 4, .penalty_alpha = 1e-6f, .logprobs = true};
    submit_and_run(stories, STORY, o, &t);
    assert_int_equal(t.count[0], 60);
    assert_memory_equal(t.ids[0], greedy.ids[0], 60 * sizeof(int32_t));
    for (int i = 0; i < 60; i++) assert_true(fabsf(t.logprobs[0][i] - greedy.logprobs[0][i]) < 1e-4f);
    o.penalty_alpha = 0.6f;
    submit_and_run(stories, STORY, o, &t);
    const char *circle = "I was in the house, and I was in the house";
    assert_non_null(strstr(greedy.text[0], circle));
    assert_null(strstr(t.text[0], circle));
}

static uint32_t random_state;
static uint32_t pick(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

#define MANY PART_OF(200, 40)
/* What a warper or penalty may be asked, each now and then. */
static void any_steps(proa_options *o, uint32_t kind)
{
    if (pick(3) == 0 && kind != 5) o->top_k = (int32_t)(1 + pick(40));
    if (pick(3) == 0) o->top_p = 0.7f;
    if (pick(4) == 0) o->min_p = 0.05f;
    if (pick(4) == 0) o->typical_p = 0.8f;
    if (pick(3) == 0) o->repetition_penalty = 1.3f;
    else if (pick(3) == 0) o->presence_penalty = 0.5f, o->frequency_penalty = 0.2f;
    if (pick(4) == 0) o->no_repeat_ngram = 2;
    if (pick(4) == 0) o->min_tokens = 3;
}

/* Lists point to static memory, another for each request. */
static void any_lists(proa_options *o, uint32_t kind)
{
    static int32_t words[MANY][3], ends[MANY][2];
    static proa_bias bias[MANY];
    static const char *const stops[] = {" the", "and", "\n"};
    static int next;
    int k = next++;
    for (int i = 0; i < 3; i++) words[k][i] = (int32_t)(4 + pick(500));
    ends[k][0] = 1, ends[k][1] = 3;
    if (pick(3) == 0) o->banned_words = (proa_words){words[k], ends[k], 2};
    bias[k] = (proa_bias){(int32_t)(4 + pick(500)), 2};
    if (pick(3) == 0) o->logit_bias = &bias[k], o->logit_bias_count = 1;
    if (pick(5) == 0 && kind != 0) o->stop_strings = (proa_strings){stops + pick(3), 1};
}

/* A request with any of the options: beams, contrastive search, greedy, samples. */
static proa_options any_options(void)
{
    proa_options o = {.max_tokens = (int32_t)(1 + pick(24)), .logprobs = true, .seed = pick(1000)};
    uint32_t kind = pick(6);
    if (kind == 0) o.beams = (int32_t)(2 + pick(3)), o.style = (proa_style)pick(3), o.logprobs = false;
    else if (kind == 5) o.penalty_alpha = 0.5f, o.top_k = (int32_t)(2 + pick(4));
    else if (kind < 4) o.temperature = 0.5f + 0.25f * (float)pick(4), o.style = (proa_style)pick(2);
    if (o.style != PROA_STYLE_HF && kind != 0) o.top_k = 5;
    if (o.beams == 4 && o.style == PROA_STYLE_HF) o.beam_groups = 2, o.diversity_penalty = 1;
    any_steps(&o, kind);
    any_lists(&o, kind);
    if (pick(4) == 0 && kind != 0 && kind != 5) o.n = (int32_t)(1 + pick(3));
    return o;
}

/* One by one equals batched, in any mixture, bit for bit. */
static void any_mixture_batched_equals_single(void **state)
{
    static const char *const prompts[] = {STORY, "The", "Once upon a time there was a little girl who",
                                          "He said nothing", "Call me Ishmael. Some years ago"};
    received *alone = calloc(MANY, sizeof *alone), *mixed = calloc(MANY, sizeof *mixed);
    proa_options *options = calloc(MANY, sizeof *options);
    (void)state;
    proa_engine *engine = open_or_fail(STORIES, &(proa_engine_options){.sequences_max = 16, .kv_tokens = 8192});
    random_state = 4242;
    for (int i = 0; i < MANY; i++) {
        options[i] = any_options();
        submit_and_run(engine, prompts[i % 5], options[i], &alone[i]);
    }
    for (int i = 0; i < MANY; i++) submit_request(engine, prompts[i % 5], options[i], &mixed[i]);
    proa_engine_run(engine);
    for (int i = 0; i < MANY; i++)
        if (memcmp(&alone[i], &mixed[i], sizeof *alone) != 0) fail_msg("request %d differs", i);
    proa_engine_close(engine);
    free(alone);
    free(mixed);
    free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(n_equals_requests_with_derived_seeds),
                                       cmocka_unit_test(best_of_returns_the_likeliest),
                                       cmocka_unit_test(n_shares_the_prompts_pages),
                                       cmocka_unit_test(stop_strings_cut_the_text),
                                       cmocka_unit_test(stop_words_and_bans),
                                       cmocka_unit_test(prompt_logprobs_are_the_rows),
                                       cmocka_unit_test(logits_and_hidden_states),
                                       cmocka_unit_test(contrastive_search),
                                       cmocka_unit_test(any_mixture_batched_equals_single)};
    return cmocka_run_group_tests(tests, open_stories, close_stories);
}
