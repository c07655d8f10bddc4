/* SPDX-License-Identifier: Apache-2.0
 * test_sessions.c - a conversation in turns gives, to the bit, what a straight run over all its tokens gives; and what
 * is refused. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/sessions.h"

enum { TURNS = 4, ROOM = 512 };

static proa_request turn(const int32_t *ids, int64_t count, const char *session)
{
    return (proa_request){.ids = ids,
                          .ids_count = count,
                          .session_id = session,
                          .options = {.max_tokens = 20, .ignore_eos = true, .logprobs = true}};
}

static proa_status refusal(proa_engine *engine, proa_request r, char text[512])
{
    outcome o = {.done = false};
    proa_err err = {.status = PROA_OK};
    r.on_event = collect, r.arg = &o;
    proa_status status = proa_engine_submit(engine, &r, NULL, &err);
    snprintf(text, 512, "%s", err.text);
    return status;
}

static void turns_equal_a_straight_run(void **state)
{
    static const int64_t lengths[TURNS] = {70, 1, 33, 64};
    const proa_engine_options off = {.prefix_cache = "off"};
    proa_engine *engine = open_or_fail(*state, NULL), *plain = open_or_fail(*state, &off);
    int32_t all[ROOM], new[ROOM];
    int64_t count = 0;
    for (int i = 0; i < TURNS; i++) {
        outcome a = {.done = false}, b = {.done = false};
        for (int64_t k = 0; k < lengths[i]; k++) new[k] = all[count + k] = 3 + (int32_t)(k * 13 + i) % 150;
        count += lengths[i];
        run_request(engine, turn(new, lengths[i], "chat"), &a);
        run_request(plain, turn(all, count, NULL), &b);
        assert_int_equal(a.count, 20);
        assert_same_outcome(&a, &b, false);
        assert_int_equal(a.cached_tokens, i ? (count - lengths[i] - 1) / 64 * 64 : 0);
        memcpy(all + count, a.ids, 20 * sizeof *all);
        count += 20;
        outcome_release(&a), outcome_release(&b);
    }
    proa_engine_close(engine);
    proa_engine_close(plain);
}

/* A text that continues a session gets no second start token. */
static void texts_go_on(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    outcome a = {.done = false}, b = {.done = false};
    proa_request r = {
        .text = "It was a dark night", .session_id = "t", .options = {.max_tokens = 5, .ignore_eos = true}};
    run_request(engine, r, &a);
    int32_t ids[64];
    int64_t count, more;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_engine_encode(engine, r.text, strlen(r.text), ids, 64, &count, &err), PROA_OK);
    memcpy(ids + count, a.ids, 5 * sizeof *ids);
    count += 5;
    outcome_release(&a);
    const char *next = " and the wind";
    assert_int_equal(proa_engine_encode(engine, next, strlen(next), ids + count, 30, &more, &err), PROA_OK);
    proa_info info;
    proa_engine_info(engine, &info);
    bool start = more > 1 && ids[count] == info.bos_id; /* not in the text of a second turn */
    if (start) memmove(ids + count, ids + count + 1, (size_t)(more - 1) * sizeof *ids), more--;
    r.text = next;
    run_request(engine, r, &a);
    r = (proa_request){.ids = ids, .ids_count = count + more, .options = r.options};
    run_request(engine, r, &b);
    assert_same_outcome(&a, &b, false);
    outcome_release(&a), outcome_release(&b);
    proa_engine_close(engine);
}

/* A session that begins anew forgets what it had; if that request is cancelled, it does not. */
static void sessions_begin_anew(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 20 + i;
    outcome a = {.done = false}, b = {.done = false}, c = {.done = false};
    proa_request r = turn(ids, 30, "s");
    r.session_begins = true;
    run_request(engine, r, &a);
    run_request(engine, r, &b); /* the same again, not behind the first one */
    assert_same_outcome(&a, &b, false);
    uint64_t id;
    proa_err err = {.status = PROA_OK};
    r = turn(ids + 10, 25, "s");
    r.session_begins = true, r.on_event = collect, r.arg = &c;
    assert_int_equal(proa_engine_submit(engine, &r, &id, &err), PROA_OK);
    for (int i = 0; i < 5; i++) proa_engine_step(engine);
    proa_engine_cancel(engine, id);
    proa_engine_run(engine);
    outcome_release(&b), outcome_release(&c);
    run_request(engine, turn(ids + 35, 5, "s"), &b);
    int32_t all[60];
    memcpy(all, ids, 30 * sizeof *all);
    memcpy(all + 30, a.ids, 20 * sizeof *all);
    memcpy(all + 50, ids + 35, 5 * sizeof *all);
    run_request(engine, turn(all, 55, NULL), &c);
    assert_same_outcome(&b, &c, false);
    r = turn(ids, 30, "s");
    r.session_begins = r.session_continues = true;
    char text[512];
    assert_int_equal(refusal(engine, r, text), PROA_INVALID);
    outcome_release(&a), outcome_release(&b), outcome_release(&c);
    proa_engine_close(engine);
}

static void what_is_refused(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    int32_t ids[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    char text[512], name[400];
    proa_request r = turn(ids, 8, "a");
    r.session_continues = true;
    assert_int_equal(refusal(engine, r, text), PROA_NOT_FOUND);
    assert_string_equal(text, "session 'a' does not exist");
    r = turn(ids, 8, "");
    assert_int_equal(refusal(engine, r, text), PROA_INVALID);
    memset(name, 'x', sizeof name), name[399] = 0;
    assert_int_equal(refusal(engine, turn(ids, 8, name), text), PROA_INVALID);
    r = turn(ids, 8, "a"), r.options.n = 2;
    assert_int_equal(refusal(engine, r, text), PROA_INVALID);
    r = turn(ids, 8, "a"), r.options.beams = 2;
    assert_int_equal(refusal(engine, r, text), PROA_INVALID);
    r = turn(ids, 8, "a"), r.task = PROA_TASK_SCORE;
    assert_int_equal(refusal(engine, r, text), PROA_UNSUPPORTED);
    r = turn(ids, 8, NULL), r.session_ends = true;
    assert_int_equal(refusal(engine, r, text), PROA_INVALID);
    /* none of these has left a session, or holds one */
    outcome a = {.done = false}, b = {.done = false};
    submit_or_fail(engine, turn(ids, 8, "a"), &a);
    assert_int_equal(refusal(engine, turn(ids, 8, "a"), text), PROA_UNAVAILABLE);
    assert_string_equal(text, "session 'a' is in use by another request");
    proa_engine_run(engine);
    r = turn(ids, 1, "a"), r.session_continues = r.session_ends = true;
    run_request(engine, r, &b);
    r = turn(ids, 8, "a"), r.session_continues = true;
    assert_int_equal(refusal(engine, r, text), PROA_NOT_FOUND);
    outcome_release(&a), outcome_release(&b);
    proa_engine_close(engine);
}

/* A cancelled turn leaves the session as it was. */
static void cancelled_turns_leave_it(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = 20 + i;
    outcome a = {.done = false}, b = {.done = false}, c = {.done = false};
    uint64_t id;
    proa_err err = {.status = PROA_OK};
    run_request(engine, turn(ids, 30, "s"), &a);
    proa_request r = turn(ids, 40, "s");
    r.on_event = collect, r.arg = &b;
    assert_int_equal(proa_engine_submit(engine, &r, &id, &err), PROA_OK);
    for (int i = 0; i < 5; i++) proa_engine_step(engine);
    proa_engine_cancel(engine, id);
    proa_engine_run(engine);
    assert_int_equal(b.finish, PROA_FINISH_CANCELLED);
    outcome_release(&b);
    run_request(engine, turn(ids + 5, 7, "s"), &b);
    int32_t all[60];
    memcpy(all, ids, 30 * sizeof *all);
    memcpy(all + 30, a.ids, 20 * sizeof *all);
    memcpy(all + 50, ids + 5, 7 * sizeof *all);
    run_request(engine, turn(all, 57, NULL), &c);
    assert_same_outcome(&b, &c, false);
    outcome_release(&a), outcome_release(&b), outcome_release(&c);
    proa_engine_close(engine);
}

/* The tokens of all sessions together are limited: the oldest ones that nobody holds are dropped. */
static void the_oldest_are_dropped(void **state)
{
    enum { EACH = PROA_SESSION_TOKENS_MAX / 4 };
    proa_sessions s;
    proa_engine_session *session, *held;
    proa_err err = {.status = PROA_OK};
    int32_t *ids = calloc(EACH, sizeof *ids);
    (void)state;
    proa_sessions_init(&s);
    assert_int_equal(proa_sessions_begin(&s, &held, "held", false, &err), PROA_OK);
    proa_sessions_end(held, ids, EACH, NULL, 0);
    assert_int_equal(proa_sessions_begin(&s, &held, "held", true, &err), PROA_OK);
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(proa_sessions_begin(&s, &session, name, false, &err), PROA_OK);
        proa_sessions_end(session, ids, EACH - 1, ids, 1);
    }
    assert_int_equal(s.count, 4);
    assert_int_equal(s.tokens, 4 * (int64_t)EACH);
    assert_int_equal(proa_sessions_begin(&s, &session, "1", true, &err), PROA_NOT_FOUND);
    assert_int_equal(proa_sessions_begin(&s, &session, "2", true, &err), PROA_OK);
    proa_sessions_drop(session);
    proa_sessions_drop(held);
    for (int i = 0; i < PROA_SESSIONS_MAX + 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(proa_sessions_begin(&s, &session, name, false, &err), PROA_OK);
        proa_sessions_end(session, ids, 1, NULL, 0);
    }
    assert_int_equal(s.count, PROA_SESSIONS_MAX);
    assert_int_equal(proa_sessions_begin(&s, &session, "n0", true, &err), PROA_NOT_FOUND);
    proa_sessions_release(&s);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(turns_equal_a_straight_run, "llama3"),
        {.name = "texts_go_on",
         .test_func = texts_go_on,
         .initial_state = (void *)(uintptr_t)(MODELS "classics-10m")},
        ON(what_is_refused, "llama3"),
        ON(cancelled_turns_leave_it, "llama3"),
        ON(sessions_begin_anew, "llama3"),
        cmocka_unit_test(the_oldest_are_dropped),
    };
    return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
