/* SPDX-License-Identifier: Apache-2.0
 * test_draft.c - prompt lookup against a naive search, and how many tokens are drafted. That drafts change no token is
 *                in test_traffic. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/decode/draft.h"
#include "engine/decode/lookup.h"

/* Where the longest suffix of `least` to `most` tokens ends that occurs before, of these the last; -1: none does. */
static int64_t naive_end(const int32_t *text, int64_t count, int32_t most, int32_t least)
{
    for (int32_t n = most; n >= least; n--)
        for (int64_t end = count - 2; end >= n - 1; end--)
            if (count >= n && memcmp(text + end + 1 - n, text + count - n, (size_t)n * sizeof *text) == 0)
                return end;
    return -1;
}

static void lookup_finds_the_longest_suffix(void **state)
{
    PROA_UNUSED(state);
    uint32_t random = 1;
    int found = 0;
    for (int round = 0; round < 2000; round++) {
        int32_t draft[8];
        proa_lookup l;
        random = random * 1664525u + 1013904223u;
        uint32_t letters = 2 + (random >> 20) % 6;
        proa_lookup_init(&l, 60);
        for (int64_t i = 0; i < 60; i++) {
            random = random * 1664525u + 1013904223u;
            proa_lookup_append(&l, &(int32_t){(int32_t)((random >> 16) % letters)}, 1);
            proa_lookup_find(&l);
            int64_t end = naive_end(l.text, l.count, PROA_LOOKUP_MOST, PROA_LOOKUP_LEAST);
            int32_t n = proa_lookup_copy(&l, draft, 8);
            assert_int_equal(n, end < 0 ? 0 : (i - end < 8 ? i - end : 8));
            assert_memory_equal(draft, l.text + end + 1, (size_t)n * sizeof *draft);
            assert_int_equal(proa_lookup_guess(&l), n ? draft[0] : -1);
            found += n > 0;
        }
        proa_lookup_append(&l, &(int32_t){1}, 1); /* there is no room */
        assert_int_equal(l.count, 60);
        proa_lookup_release(&l);
    }
    assert_true(found > 50000);
}

/* After the match "1 2 3": three equal tokens, then four, then five. */
static void chances_follow_the_match(void **state)
{
    PROA_UNUSED(state);
    static const int32_t text[] = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3};
    proa_lookup l;
    proa_lookup_rates r;
    float chances[8];
    proa_lookup_init(&l, 16);
    proa_lookup_append(&l, text, PROA_COUNT(text));
    proa_lookup_find(&l);
    assert_int_equal(l.length, 3);
    proa_lookup_rates_init(&r);
    for (int i = 0; i < 1000; i++)
        proa_lookup_learn(&r, 3, i % 2), proa_lookup_learn(&r, 4, i % 5 > 0), proa_lookup_learn(&r, 100, true);
    assert_int_equal(proa_lookup_chances(&l, &r, 1, 0, chances, 2), 2);
    assert_true(fabsf(chances[0] - 0.5F) < 0.05F && fabsf(chances[1] - 0.4F) < 0.05F);
    assert_int_equal(proa_lookup_chances(&l, &r, 1, 1, chances, 8), 6); /* the first one is in flight */
    assert_true(fabsf(chances[0] - 0.4F) < 0.05F);
    proa_lookup_chances(&l, &r, 0.5F, 0, chances, 8);
    assert_true(fabsf(chances[0] - 0.25F) < 0.05F);
    proa_lookup_chances(&l, &r, 10, 0, chances, 8);
    assert_true(chances[0] == 1 && chances[7] <= chances[0]);
    proa_lookup_release(&l);
}

/* Drafts that lose are closed after a few passes, and may lose one part in 128 of the time from then on. */
static void losses_close_the_account(void **state)
{
    PROA_UNUSED(state);
    proa_draft_account a = {0};
    int passes = 0, drafting = 0;
    while (!a.closed) proa_draft_account_pass(&a, 150, 100, 1), passes++;
    assert_in_range(passes, 6, 10);
    for (int i = 0; i < 10000; i++) {
        drafting += !a.closed;
        proa_draft_account_pass(&a, a.closed ? 100 : 150, 100, a.closed ? 0 : 1);
    }
    assert_in_range(drafting, 100, 170); /* each costs half a pass */
    for (int i = 0; i < 64; i++) proa_draft_account_pass(&a, 100, 100, 0);
    for (int i = 0; i < 1000; i++) proa_draft_account_pass(&a, 90, 100, 1);
    assert_false(a.closed);
    for (passes = 0; !a.closed; passes++) proa_draft_account_pass(&a, 1e9, 100, 1); /* interruptions */
    assert_int_equal(passes, 5);                                                    /* each counts as two */
}

static void times_are_interpolated(void **state)
{
    PROA_UNUSED(state);
    proa_draft_times t = PROA_DRAFT_TIMES;
    assert_true(proa_draft_time_of(&t, 3) == 0);
    proa_draft_time(&t, 2, 100);
    proa_draft_time(&t, 6, 140);
    proa_draft_time(&t, 100000, 1);
    assert_true(proa_draft_time_of(&t, 0) == 0 && proa_draft_time_mean(&t, 0) == 0);
    assert_true(proa_draft_time_of(&t, 1) == 100);
    assert_true(proa_draft_time_of(&t, 2) == 100);
    assert_true(proa_draft_time_of(&t, 4) == 120);
    assert_true(proa_draft_time_of(&t, 38) == 140 * 1.5);
    assert_true(proa_draft_time_of(&t, 70) == 140 * 2);
    proa_draft_time(&t, 2, 108);
    assert_true(proa_draft_time_of(&t, 2) == 101);
    proa_draft_time(&t, 3, 1000); /* once slow, it is not taken to be slower than larger passes */
    assert_true(proa_draft_time_of(&t, 3) == 140);
    proa_draft_time(&t, 170, 200); /* with 161 to 192, as 176 */
    assert_true(proa_draft_time_of(&t, 161) == 200 && proa_draft_time_of(&t, 192) == 200);
    assert_true(proa_draft_time_of(&t, 91) == 170);
    assert_true(proa_draft_time_of(&t, 352) == 400);
}

static int32_t plan_one(proa_draft_state *s, const proa_draft_times *t, int64_t rows, int32_t limit,
                        double token_ns, double pause_ns)
{
    proa_draft_offer o = {.state = s, .limit = limit, .token_ns = token_ns};
    proa_draft_plan(&o, 1, t, rows, pause_ns);
    return o.size;
}

/* Rows that cost nothing beside the first: as many as allowed. Rows that cost as much as the first: none, but a try now
 * and then, and ever more seldom. */
static void sizes_follow_time_and_luck(void **state)
{
    PROA_UNUSED(state);
    proa_draft_times free_rows = PROA_DRAFT_TIMES, dear_rows = PROA_DRAFT_TIMES;
    proa_draft_state s = PROA_DRAFT_STATE;
    for (int64_t n = 1; n <= 64; n++) {
        proa_draft_time(&free_rows, n, 100);
        proa_draft_time(&dear_rows, n, 100.0 * (double)n);
    }
    assert_int_equal(plan_one(&s, &free_rows, 1, 0, 0, 0), 0);
    assert_int_equal(plan_one(&s, &free_rows, 1, 3, 0, 0), 3);
    assert_int_equal(plan_one(&s, &free_rows, 1, 16, 0, 0), 4);
    proa_draft_result(&s, 4, 4);
    assert_int_equal(plan_one(&s, &free_rows, 1, 16, 0, 0), 8);
    proa_draft_result(&s, 8, 1);
    assert_int_equal(plan_one(&s, &free_rows, 1, 16, 0, 0), 3);
    assert_int_equal(plan_one(&s, &free_rows, 1, 16, 60, 0), 1);  /* drafting takes time, */
    assert_int_equal(plan_one(&s, &free_rows, 1, 16, 0, 300), 0); /* waiting too */
    int tries = 0;
    for (int step = 0; step < 2048; step++) {
        int32_t n = plan_one(&s, &dear_rows, 1, 16, 0, 0);
        assert_true(n == 0 || n == 2);
        tries += n > 0;
        if (n) proa_draft_result(&s, n, 0);
        else proa_draft_idle(&s);
    }
    assert_int_equal(tries, 7); /* after 16, 32, ... 1024 */
    assert_true(s.rate < 0.6F);
}

/* Drafts in 2,000 passes of one sequence whose guesses have these chances, where rows cost nothing, but the passes with
 * drafts that were measured before had been interrupted. */
static int drafts_after_interruption(const float *chances)
{
    proa_draft_times t = PROA_DRAFT_TIMES;
    proa_draft_state s = PROA_DRAFT_STATE;
    int drafts = 0;
    for (int64_t n = 1; n <= 8; n++) proa_draft_time(&t, n, n == 1 ? 100 : 1000);
    for (int pass = 0; pass < 2000; pass++) {
        proa_draft_offer o = {.state = &s, .limit = 2, .chances = chances, .is_known = true};
        proa_draft_plan(&o, 1, &t, 1, 0);
        proa_draft_time(&t, 1 + o.size, 100);
        drafts += o.size > 0;
        if (o.size) proa_draft_result(&s, o.size, o.size);
        else proa_draft_idle(&s);
    }
    return drafts;
}

/* Prompt lookup knows how often it is right. Times that are wrong are measured again if the guess is a likely one. */
static void slow_times_are_measured_again(void **state)
{
    PROA_UNUSED(state);
    assert_in_range(drafts_after_interruption((const float[]){0.9F, 0.8F}), 1000, 1999);
    assert_int_equal(drafts_after_interruption((const float[]){0.4F, 0.2F}), 0);
}

/* A proposer that knows how often it is right is asked to stop where a token costs more than it promises. */
static void chances_are_learned(void **state)
{
    PROA_UNUSED(state);
    proa_draft_chances c;
    proa_draft_chances_init(&c);
    assert_int_equal(proa_draft_chance_of(0), 0);
    assert_int_equal(proa_draft_chance_of(0.55F), 5);
    assert_int_equal(proa_draft_chance_of(1), PROA_DRAFT_CHANCES - 1);
    assert_int_equal(proa_draft_chance_of(NAN), 0);
    for (int i = 0; i < 500; i++) proa_draft_chance_result(&c, 5, i % 5 == 0);
    assert_true(c.right[5] > 0.1F && c.right[5] < 0.3F && c.right[6] == 0.825F);
    proa_draft_times t = PROA_DRAFT_TIMES;
    proa_draft_state s = PROA_DRAFT_STATE;
    for (int64_t n = 1; n <= 64; n++) proa_draft_time(&t, n, 900 + 100.0 * (double)n);
    proa_draft_offer o = {.state = &s, .limit = 16, .token_ns = 100};
    assert_true(proa_draft_plan(&o, 1, &t, 1, 0));
    /* about two tokens in 1,500 ns with two drafts: a row of 100 ns must be right one time in eight, and a row and a
     * token of 200 ns one time in four, which is 0.7 of the chance of those before it */
    assert_true(o.size > 1 && o.chance_least > 0.1F && o.chance_least < 0.18F);
    assert_true(o.chance_more > 0.28F && o.chance_more < 0.5F);
    for (int i = 0; i < 50; i++) proa_draft_dropped(&s, false);
    assert_false(proa_draft_plan(&o, 1, &t, 1, 0)); /* tokens that were dropped were wrong indeed, */
    for (int i = 0; i < 50; i++) proa_draft_dropped(&s, true);
    assert_true(proa_draft_plan(&o, 1, &t, 1, 0)); /* or not */
    proa_draft_time(&t, 1, 2000);                  /* an interruption */
    assert_true(proa_draft_time_of(&t, 1) < 1070);
}

/* ---- a simulated engine ---- */

/* Sequences that decode together on a device, with passes submitted ahead as async_step.c does, or without (pause 0).
 * Of a sequence's next tokens, `matches` have a draft, whose tokens are right with probability `right` each. */
typedef struct simulated {
    int64_t sequences;
    double base_ns, row_ns, pause_ns;           /* a pass takes base + rows * row */
    double matches, right, token_ns, behind_ns; /* to draft a token; to run one that was not drafted */
} simulated;

static uint32_t random_state;
static double random_unit(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (double)(random_state >> 8) / (double)(1 << 24);
}

static int32_t right_tokens(int32_t size, double right)
{
    int32_t n = 0;
    while (n < size && random_unit() < right) n++;
    return n;
}

enum { SIMULATED_MOST = 64 };

/* Tokens a second beside the same engine without drafts. */
static double simulated_gain(const simulated *m)
{
    static proa_draft_state states[SIMULATED_MOST];
    proa_draft_offer offers[SIMULATED_MOST];
    proa_draft_times times = PROA_DRAFT_TIMES;
    double ns = 0, tokens = 0;
    random_state = 7;
    for (int i = 0; i < SIMULATED_MOST; i++) states[i] = PROA_DRAFT_STATE;
    for (int step = 0; step < 4000; step++) {
        int64_t rows = m->sequences;
        if (step % 400 == 0) states[(step / 400) % m->sequences] = PROA_DRAFT_STATE; /* a new one */
        for (int64_t i = 0; i < m->sequences; i++) {
            int32_t limit = random_unit() < m->matches ? PROA_DRAFT_MAX : 0;
            offers[i] = (proa_draft_offer){.state = &states[i], .token_ns = m->token_ns, .limit = limit};
        }
        proa_draft_plan(offers, m->sequences, &times, m->sequences, m->pause_ns);
        for (int64_t i = 0; i < m->sequences; i++) {
            int32_t size = offers[i].size, accepted = right_tokens(size, m->right);
            if (size) ns += m->behind_ns * states[i].idle;
            if (size) proa_draft_result(&states[i], size, accepted);
            else if (offers[i].limit) proa_draft_idle(&states[i]);
            tokens += 1 + accepted, rows += size;
            ns += m->token_ns * size;
        }
        double pass = (m->base_ns + (double)rows * m->row_ns) * (0.95 + 0.1 * random_unit());
        proa_draft_time(&times, rows, pass);
        ns += pass + (rows > m->sequences ? m->pause_ns : 0);
    }
    double plain = 4000 * (m->base_ns + (double)m->sequences * m->row_ns);
    return tokens / (double)(4000 * m->sequences) * plain / ns;
}

/* Whatever rows and pauses cost and however seldom drafts are right: never below 0.97 times the speed without. */
static void drafts_never_cost_much(void **state)
{
    static const double rights[] = {0, 0.1, 0.3, 0.6, 0.9}, rows[] = {0.002, 0.02, 0.1, 0.5},
                        pauses[] = {0, 0.03, 0.2};
    static const double shares[] = {0.1, 0.5, 1}, tokens[] = {0, 0.1};
    static const int64_t sequences[] = {1, 8, 32};
    enum { COMBINATIONS = PROA_COUNT(shares) * PROA_COUNT(tokens) * PROA_COUNT(sequences) };
    double least = 2;
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(rights) * PROA_COUNT(rows) * PROA_COUNT(pauses); i++)
        for (size_t k = i % PART_OF(1, 15); k < COMBINATIONS; k += PART_OF(1, 15)) {
            simulated m = {.base_ns = 1e6, .right = rights[i % 5], .row_ns = 1e6 * rows[i / 5 % 4]};
            m.pause_ns = 1e6 * pauses[i / 20], m.matches = shares[k % 3], m.token_ns = 1e6 * tokens[k / 3 % 2];
            m.sequences = sequences[k / 6], m.behind_ns = m.token_ns / 6;
            double gain = simulated_gain(&m);
            if (gain < 0.97)
                fail_msg("%.3f: %d sequences, row %g, pause %g, right %g of %g, token %g", gain, (int)m.sequences,
                         rows[i / 5 % 4], pauses[i / 20], m.right, m.matches, tokens[k / 3 % 2]);
            least = gain < least ? gain : least;
        }
    assert_true(least > 0.97 && least < 1.0);
}

/* Copying on the measured figures of a GPU (3 ms a pass, 0.1 ms between passes) and of a CPU. */
static void copying_gains(void **state)
{
    PROA_UNUSED(state);
    simulated gpu = {1, 3e6, 2e4, 1e5, 1, 0.95, 0, 0}, eight = {8, 3e6, 2e4, 1e5, 1, 0.95, 0, 0};
    simulated cpu = {1, 1.4e6, 1.5e5, 0, 1, 0.95, 0, 0}, model = {1, 1.4e6, 1.5e5, 0, 1, 0.65, 1.6e5, 2.7e4};
    assert_true(simulated_gain(&gpu) > 5);
    assert_true(simulated_gain(&eight) > 3);
    assert_true(simulated_gain(&cpu) > 2.5);
    assert_true(simulated_gain(&model) > 1.2); /* a draft model */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_finds_the_longest_suffix),
        cmocka_unit_test(chances_follow_the_match),
        cmocka_unit_test(losses_close_the_account),
        cmocka_unit_test(times_are_interpolated),
        cmocka_unit_test(sizes_follow_time_and_luck),
        cmocka_unit_test(drafts_never_cost_much),
        cmocka_unit_test(copying_gains),
        cmocka_unit_test(chances_are_learned),
        cmocka_unit_test(slow_times_are_measured_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
