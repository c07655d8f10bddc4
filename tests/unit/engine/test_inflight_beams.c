/* SPDX-License-Identifier: Apache-2.0
 * test_inflight_beams.c - in-flight steps with beam searches: beams and scores are the same to the bit as with one
 * step at a time and as with beam steps on the host, whatever else runs; all pages are returned. */
#include "engine_test.h"

#include "base/checked.h"

enum { REQUESTS = PART_OF(21, 6), SLOTS = 18 };

static const char *const prompts[] = {"It was a dark and stormy night", "The sea", "He said nothing, and",
                                      "Call me"};
static const char *const sentences[] = {
    "translate English to German: A dog runs over the snow.",
    "translate English to German: Two men in green shirts stand on a ladder.",
    "translate English to German: A girl sits."};

typedef struct place {
    const char *model;
    const char *const *texts;
    int texts_count;
} place;

static const place stories = {STORIES, prompts, 4};
static const place translator = {MODELS "m30k-t5", sentences, 3};

static void end_often(proa_options *o)
{
    o->end_ids_count = 3, o->end_ids[0] = 17, o->end_ids[1] = 202, o->end_ids[2] = 11;
}

/* Groups, with penalties that some tokens lose by and with such that no token comes twice; or a diversity rate. */
static void diversify(proa_options *o, int n)
{
    static const int32_t shapes[][2] = {{4, 2}, {6, 3}, {4, 4}, {6, 2}};
    static const float penalties[] = {0.5F, 20, 1.3F}, rates[] = {0.25F, -0.5F}, lengths[] = {1, 0.6F, 2, 0};
    o->max_tokens = PART_OF(30 + 11 * (n % 4), 9);
    o->style = n % 2 == 0 ? PROA_STYLE_HF : n % 4 == 1 ? PROA_STYLE_FT : PROA_STYLE_TRTLLM;
    o->length_penalty = lengths[n / 2 % 4];
    if (n / 2 % 2) end_often(o);
    if (n % 2) {
        o->diversity_rate = rates[n / 4 % 2];
        return;
    }
    o->beams = shapes[n / 2 % 4][0], o->beam_groups = shapes[n / 2 % 4][1];
    o->diversity_penalty = penalties[n / 2 % 3];
}

/* Each style, as many beams as it may, all rules of ending; lengths that go over two pages' ends. */
static proa_options search_of(int i)
{
    static const int32_t beams[] = {2, 4, 3, 8, 5, 4};
    proa_options o = {
        .beams = beams[i % 6], .max_tokens = 1 + PART_OF(11, 3) * (i * 3 % 8), .style = (proa_style)(i % 3)};
    o.early_stopping = (proa_early)(i / 3 % 3);
    o.length_penalty = i % 4 == 3 ? 0.6F : 1;
    o.ignore_eos = i % 5 == 4;
    if (i % 7 == 2) end_often(&o);
    if (i % 3 == 2) diversify(&o, i / 3);
    return o;
}

/* Other requests in the same steps: greedy, random; with `others` also requests that the host must sample. */
static proa_options options_of(int i, bool others)
{
    if (i % 4 == 1) return (proa_options){.max_tokens = 5 + 9 * (i % 6), .ignore_eos = true};
    if (i % 8 == 3)
        return (proa_options){.max_tokens = 30, .temperature = 1, .top_k = 40, .seed = (uint64_t)i, .n = 2};
    proa_options o = search_of(i);
    if (others && i % 8 == 2) o.repetition_penalty = 1.2F;
    if (others && i % 8 == 6) o.no_repeat_ngram = 2;
    if (others && i % 8 == 0) o.min_tokens = 2; /* afterwards the host takes the model's top-k */
    return o;
}

/* f32: on a GPU the bits of a row depend on how many share its step, and a surplus row may be among them. No prefix
 * cache: a cached input would save the encoder's pass, which is counted here. */
static proa_engine *open_with(const char *ahead, const place *p)
{
    setenv("PROA_AHEAD", ahead, 1);
    const proa_engine_options o = {
        .sequences_max = SLOTS, .kv_tokens = 4096, .dtype = "f32", .prefix_cache = "off"};
    proa_engine *engine = open_or_fail(p->model, &o);
    unsetenv("PROA_AHEAD");
    return engine;
}

static void same(const outcome *a, const outcome *b, int i)
{
    if (!a->done || !b->done) fail_msg("request %d is not done", i);
    assert_string_equal(a->error, b->error);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->new_tokens, b->new_tokens);
    assert_int_equal(a->count, b->count);
    if (a->count) assert_memory_equal(a->ids, b->ids, (size_t)a->count * sizeof *a->ids);
    assert_int_equal(a->beams, b->beams);
    for (int k = 0; k < a->beams; k++) {
        if (a->beam_count[k] != b->beam_count[k]) fail_msg("request %d, beam %d: other length", i, k);
        assert_memory_equal(a->beam_ids[k], b->beam_ids[k], (size_t)a->beam_count[k] * sizeof(int32_t));
        assert_memory_equal(&a->beam_score[k], &b->beam_score[k], sizeof(float));
    }
}

/* One after the other, so that all modes run the same passes. */
static void same_beams_wherever_they_are_chosen(void **state)
{
    static const char *const modes[] = {"host", "0", "1"};
    const place *p = *state;
    proa_engine *engine[3];
    bool there = getenv("PROA_TEST_DEVICE") != NULL; /* where the host sums a row's exponentials otherwise */
    for (int m = 0; m < 3; m++) engine[m] = open_with(modes[m], p);
    for (int i = 0; i < REQUESTS; i++) {
        outcome out[3] = {{.count = 0}};
        proa_request r = {.text = p->texts[i % p->texts_count], .options = search_of(i)};
        for (int m = 0; m < 3; m++) run_request(engine[m], r, &out[m]);
        assert_int_equal(out[0].finish == PROA_FINISH_ERROR, 0);
        if (!there) same(&out[1], &out[0], i);
        same(&out[2], &out[1], i);
        for (int m = 0; m < 3; m++) outcome_release(&out[m]);
    }
    for (int m = 0; m < 3; m++) proa_engine_close(engine[m]);
}

/* Fewer slots and pages than requests, some cancelled with a step in the air. */
static void run_all(const char *ahead, const place *p, outcome *all, bool others)
{
    proa_engine *engine = open_with(ahead, p);
    proa_stats stats;
    proa_err err = {.status = PROA_OK};
    uint64_t id[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        proa_request r = {.text = p->texts[i % p->texts_count], .options = options_of(i, others)};
        r.on_event = collect, r.arg = &all[i];
        if (proa_engine_submit(engine, &r, &id[i], &err) != PROA_OK) fail_msg("%s", err.text);
    }
    for (int step = 0; proa_engine_step(engine); step++)
        if (step == 7 || step == 20) proa_engine_cancel(engine, id[step == 7 ? 2 : REQUESTS - 1]);
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.finished, REQUESTS);
    proa_engine_close(engine);
}

static void compare_runs(const place *p, bool others)
{
    outcome *plain = calloc(REQUESTS, sizeof *plain), *ahead = calloc(REQUESTS, sizeof *ahead);
    run_all("host", p, plain, others);
    for (int m = 0; m < 2; m++) {
        run_all(m ? "1" : "0", p, ahead, others);
        for (int i = 0; i < REQUESTS; i++) {
            bool cancelled = plain[i].finish == PROA_FINISH_CANCELLED || ahead[i].finish == PROA_FINISH_CANCELLED;
            if (!cancelled) same(&ahead[i], &plain[i], i);
            outcome_release(&ahead[i]);
        }
    }
    for (int i = 0; i < REQUESTS; i++) outcome_release(&plain[i]);
    free(plain), free(ahead);
}

static void same_beams_beside_other_sequences(void **state)
{
    if (getenv("PROA_TEST_DEVICE")) skip(); /* there a row's bits depend on who shares its step */
    compare_runs(*state, false);
}

static void same_beams_beside_what_the_host_chooses(void **state)
{
    if (getenv("PROA_TEST_DEVICE")) skip();
    compare_runs(*state, true);
}

/* The first call completes one step and has submitted two passes; the last has submitted no surplus pass. */
static void in_flight(proa_engine *engine, const place *p, proa_options options)
{
    outcome o = {.count = 0};
    proa_stats before, stats;
    options.max_tokens = 9, options.ignore_eos = true;
    proa_engine_stats(engine, &before);
    submit_or_fail(engine, (proa_request){.text = p->texts[0], .options = options}, &o);
    uint64_t encoded = before.steps + (p == &translator);
    for (uint64_t steps = 1; steps <= 9; steps++) {
        assert_false(o.done);
        assert_true(proa_engine_step(engine));
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.steps, encoded + (steps < 9 ? steps + 1 : 9));
    }
    assert_true(o.done);
    assert_int_equal(o.finish, PROA_FINISH_LENGTH);
    outcome_release(&o);
}

static void one_step_is_in_flight(void **state)
{
    const place *p = *state;
    proa_engine *engine = open_with("1", p);
    in_flight(engine, p, (proa_options){.beams = 4});
    in_flight(engine, p, (proa_options){.beams = 6, .beam_groups = 3, .diversity_penalty = 1});
    in_flight(engine, p, (proa_options){.beams = 4, .style = PROA_STYLE_TRTLLM, .diversity_rate = 0.5F});
    in_flight(engine, p, (proa_options){.beams = 4, .style = PROA_STYLE_FT, .diversity_rate = 0.5F});
    proa_engine_close(engine);
}

/* With just the pages that it was promised a search never wants for one, over page ends too. */
static void the_promised_pages_suffice(void **state)
{
    const place *p = *state;
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        setenv("PROA_AHEAD", mode == 0 ? "host" : mode == 1 ? "0" : "1", 1);
        const proa_engine_options o = {
            .sequences_max = 4, .kv_tokens = (1 + 4 * 3) * PROA_PAGE_TOKENS, .dtype = "f32"};
        proa_engine *engine = open_or_fail(p->model, &o);
        unsetenv("PROA_AHEAD");
        for (int i = 0; i < 2; i++) {
            outcome out = {.count = 0};
            proa_options options = {.beams = 4, .max_tokens = 140 + i, .ignore_eos = true};
            run_request(engine, (proa_request){.text = p->texts[i], .options = options}, &out);
            assert_int_equal(out.finish, PROA_FINISH_LENGTH);
            assert_int_equal(out.new_tokens, 140 + i);
            outcome_release(&out);
        }
        proa_engine_close(engine);
    }
}

static int start_stories(void **state)
{
    *state = (void *)(uintptr_t)&stories;
    return 0;
}

static int start_translator(void **state)
{
    *state = (void *)(uintptr_t)&translator;
    return 0;
}

#define ON_BOTH(test)                                                                                        \
    cmocka_unit_test_setup(test, start_stories), cmocka_unit_test_setup(test, start_translator)

int main(void)
{
    /* a sanitiser sees less often what it sees in half a minute */
    const struct CMUnitTest tests[] = {
        ON_BOTH(same_beams_beside_what_the_host_chooses),
        ON_BOTH(one_step_is_in_flight),
        ON_BOTH(same_beams_wherever_they_are_chosen),
        ON_BOTH(same_beams_beside_other_sequences),
        ON_BOTH(the_promised_pages_suffice),
    };
    return _cmocka_run_group_tests("beams in flight", tests, PART_OF(PROA_COUNT(tests), 4), NULL, NULL);
}
