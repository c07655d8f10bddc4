/* SPDX-License-Identifier: Apache-2.0
 * test_engine.c - Proa's own contract: what comes through it equals what the engine says when it is called directly,
 * bit for bit; streams add up to the whole; every option has its input and its parameter; cancelling frees pages. */
#include "rig.h"
#include "serve/generation_read.h"

#define CLASSICS MODELS "classics-10m"
#define PROMPT   "It was a dark and stormy night"
#define OWN      "backend: \"engine\" parameters { key: \"sequences_max\" value { string_value: \"16\" } }"

static rig own;
static direct ref;

static int open_classics(void **state)
{
    PROA_UNUSED(state);
    rig_open(&own, &proa_backend_engine, OWN, CLASSICS);
    direct_open(&ref, CLASSICS);
    return 0;
}

static int close_classics(void **state)
{
    PROA_UNUSED(state);
    rig_close(&own);
    direct_close(&ref);
    return 0;
}

static proa_infer *ask_for(const char *text, int32_t max_tokens)
{
    proa_infer *r = ask();
    put_text(r, "text_input", text);
    put_int(r, "max_tokens", max_tokens);
    return r;
}

static void one_reply_equals_the_engine(void **state)
{
    PROA_UNUSED(state);
    direct_run(&ref, (proa_request){.text = PROMPT, .options = {.max_tokens = 20, .logprobs = true}});
    proa_infer *r = ask_for(PROMPT, 20);
    put_bool(r, "logprobs", true);
    const proa_reply *reply = only(run(&own, r));
    assert_shape(reply, "output_ids", 2, 1, 20, 0);
    assert_memory_equal(ints(reply, "output_ids"), ref.ids[0], 20 * 4);
    assert_memory_equal(floats(reply, "output_log_probs"), ref.logprobs[0], 20 * 4);
    assert_text(reply, "text_output", 0, ref.text[0]);
    assert_text(reply, "finish_reason", 0, "length");
    assert_int_equal(ints(reply, "sequence_length")[0], 20);
    assert_int_equal(ints(reply, "completion_tokens")[0], 20);
    int32_t ids[64];
    int64_t count = 0;
    proa_engine_encode(ref.engine, PROMPT, strlen(PROMPT), ids, 64, &count, NULL);
    assert_int_equal(ints(reply, "prompt_tokens")[0], count);
    double sum = 0;
    for (int i = 0; i < 20; i++) sum += (double)ref.logprobs[0][i];
    assert_true(floats(reply, "cum_log_probs")[0] == (float)sum);
    assert_null(proa_reply_output(reply, "top_ids"));
    forget(r);
}

/* The pieces of a stream, in order, are the whole; so are several sequences that mix. */
static void streams_add_up(void **state)
{
    PROA_UNUSED(state);
    proa_options options = {.max_tokens = 24, .temperature = 0.9f, .top_p = 0.95f, .seed = 5, .n = 3};
    direct_run(&ref, (proa_request){.text = PROMPT, .options = options});
    proa_infer *r = ask_for(PROMPT, 24);
    put_bool(r, "stream", true);
    put_float(r, "temperature", 0.9f);
    param_double(r, "top_p", (double)0.95f);
    put_u64(r, "seed", 5);
    param_int(r, "n", 3);
    heard *h = run(&own, r);
    char text[3][4096] = {{0}};
    int64_t count[3] = {0}, ends = 0;
    for (int i = 0; i < h->count; i++) {
        const proa_reply *reply = h->reply[i];
        int32_t s = ints(reply, "sequence_index")[0], k = ints(reply, "sequence_length")[0];
        assert_int_equal(reply->error.status, PROA_OK);
        assert_shape(reply, "output_ids", 2, 1, k, 0);
        if (k) assert_memory_equal(ints(reply, "output_ids"), ref.ids[s] + count[s], (size_t)k * 4);
        count[s] += k;
        assert_int_equal(ints(reply, "completion_tokens")[0], count[s]);
        proa_str piece = text_at(reply, "text_output", 0);
        strncat(text[s], piece.ptr, piece.len);
        ends += text_at(reply, "finish_reason", 0).len > 0;
    }
    assert_int_equal(ends, 3);
    assert_true(text_at(h->reply[h->count - 1], "finish_reason", 0).len > 0);
    for (int s = 0; s < 3; s++) {
        assert_int_equal(count[s], ref.count[s]);
        assert_string_equal(text[s], ref.text[s]);
    }
    forget(r);
    proa_infer *whole = ask_for(PROMPT, 24);
    param_text(whole, "options", "{\"temperature\":0.9,\"top_p\":0.95,\"seed\":5,\"n\":3}");
    const proa_reply *reply = only(run(&own, whole));
    for (int s = 0; s < 3; s++) assert_text(reply, "text_output", s, ref.text[s]);
    forget(whole);
}

static void one_stream_ends_with_its_last_token(void **state)
{
    PROA_UNUSED(state);
    proa_infer *r = ask_for(PROMPT, 7);
    put_bool(r, "stream", true);
    heard *h = run(&own, r);
    assert_int_equal(h->count, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(ints(h->reply[i], "sequence_length")[0], 1);
        assert_text(h->reply[i], "finish_reason", 0, i == 6 ? "length" : "");
        assert_int_equal(ints(h->reply[i], "prompt_tokens")[0], ints(h->reply[6], "prompt_tokens")[0]);
    }
    forget(r);
}

static void beams_come_whole_with_scores(void **state)
{
    PROA_UNUSED(state);
    direct_run(&ref,
               (proa_request){.text = PROMPT, .options = {.max_tokens = 12, .beams = 4, .beams_returned = 3}});
    for (int stream = 0; stream < 2; stream++) {
        proa_infer *r = ask_for(PROMPT, 12);
        put_int(r, "beams", 4);
        put_int(r, "beams_returned", 3);
        put_bool(r, "logprobs", true);
        if (stream) put_bool(r, "stream", true);
        heard *h = run(&own, r);
        assert_int_equal(h->count, stream ? 3 : 1);
        for (int i = 0; i < 3; i++) {
            const proa_reply *reply = h->reply[stream ? i : 0];
            int64_t at = stream ? 0 : i;
            int64_t L = out(reply, "output_ids")->shape[1];
            assert_int_equal(ints(reply, "sequence_index")[at], i);
            assert_int_equal(ints(reply, "sequence_length")[at], ref.count[i]);
            assert_memory_equal(ints(reply, "output_ids") + at * L, ref.ids[i], (size_t)ref.count[i] * 4);
            assert_true(floats(reply, "scores")[at] == ref.score[i]);
            assert_text(reply, "text_output", at, ref.text[i]);
            double sum = 0; /* the pass that tells tokens apart agrees with the search */
            for (int64_t k = 0; k < ref.count[i]; k++)
                sum += (double)floats(reply, "output_log_probs")[at * L + k];
            assert_true(fabs(sum - ref.sum[i]) < 1e-3);
        }
        forget(r);
    }
}

static void best_of_is_the_likeliest(void **state)
{
    PROA_UNUSED(state);
    proa_options options = {.max_tokens = 8, .temperature = 1, .seed = 3, .n = 2, .best_of = 5};
    direct_run(&ref, (proa_request){.text = PROMPT, .options = options});
    proa_infer *r = ask_for(PROMPT, 8);
    param_text(r, "options", "{\"temperature\":1,\"seed\":3,\"n\":2,\"best_of\":5}");
    const proa_reply *reply = only(run(&own, r));
    assert_shape(reply, "text_output", 1, 2, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_text(reply, "text_output", i, ref.text[i]);
        assert_true(floats(reply, "scores")[i] == ref.score[i]);
    }
    forget(r);
}

static void alternatives_and_their_texts(void **state)
{
    PROA_UNUSED(state);
    proa_infer *r = ask_for(PROMPT, 6);
    put_int(r, "top_logprobs", 3);
    const proa_reply *reply = only(run(&own, r));
    assert_shape(reply, "top_ids", 3, 1, 6, 3);
    assert_shape(reply, "top_text", 3, 1, 6, 3);
    assert_shape(reply, "token_text", 2, 1, 6, 0);
    char joined[512] = "";
    for (int k = 0; k < 6; k++) {
        assert_int_equal(ints(reply, "top_ids")[k * 3], ints(reply, "output_ids")[k]); /* greedy: the first of them */
        assert_true(floats(reply, "top_log_probs")[k * 3] == floats(reply, "output_log_probs")[k]);
        assert_true(floats(reply, "top_log_probs")[k * 3] >= floats(reply, "top_log_probs")[k * 3 + 1]);
        proa_str piece = text_at(reply, "token_text", k);
        strncat(joined, piece.ptr, piece.len);
    }
    assert_text(reply, "text_output", 0, joined);
    forget(r);
}

static void scoring_tells_of_the_prompt(void **state)
{
    PROA_UNUSED(state);
    direct_run(&ref, (proa_request){.task = PROA_TASK_SCORE, .text = PROMPT});
    proa_infer *r = ask();
    put_text(r, "text_input", PROMPT);
    put_text(r, "task", "score");
    put_int(r, "top_logprobs", 2);
    const proa_reply *reply = only(run(&own, r));
    int64_t P = out(reply, "prompt_ids")->shape[0];
    assert_int_equal(P - 1, ref.rows_len);
    assert_true(isnan(floats(reply, "prompt_log_probs")[0]));
    assert_memory_equal(floats(reply, "prompt_log_probs") + 1, ref.rows, ref.rows_len * 4);
    assert_shape(reply, "prompt_top_ids", 2, P, 2, 0);
    assert_int_equal(ints(reply, "prompt_top_ids")[0], -1);
    assert_text(reply, "prompt_text", P - 1, " night");
    assert_null(proa_reply_output(reply, "output_ids"));
    forget(r);
    proa_infer *both = ask_for(PROMPT, 3); /* beside generating, in the first reply only */
    put_bool(both, "prompt_logprobs", true);
    put_bool(both, "stream", true);
    heard *h = run(&own, both);
    assert_memory_equal(floats(h->reply[0], "prompt_log_probs") + 1, ref.rows, ref.rows_len * 4);
    assert_null(proa_reply_output(h->reply[1], "prompt_log_probs"));
    forget(both);
}

static void rows_logits_and_hidden_states(void **state)
{
    PROA_UNUSED(state);
    const int32_t ids[] = {1, 812};
    proa_infer *r = ask();
    put_i32(r, "input_ids", ids, 2);
    put_text(r, "task", "rows");
    const proa_reply *reply = only(run(&own, r));
    assert_shape(reply, "rows", 2, 2, 8192, 0);
    proa_infer *g = ask();
    put_i32(g, "input_ids", ids, 2);
    param_int(g, "max_new_tokens", 2);
    put_bool(g, "return_logits", true);
    put_bool(g, "return_hidden", true);
    const proa_reply *made = only(run(&own, g));
    assert_shape(made, "logits", 3, 1, 2, 8192);
    assert_shape(made, "hidden", 3, 1, 2, 320);
    assert_memory_equal(floats(made, "logits"), floats(reply, "rows") + 8192, 8192 * 4);
    proa_infer *e = ask();
    put_i32(e, "input_ids", ids, 2);
    put_text(e, "task", "embed");
    const proa_reply *embedded = only(run(&own, e));
    assert_shape(embedded, "embedding", 1, 320, 0, 0);
    assert_memory_equal(floats(embedded, "embedding"), floats(made, "hidden"), 320 * 4);
    forget(r), forget(g), forget(e);
}

static void stops_and_echo(void **state)
{
    PROA_UNUSED(state);
    direct_run(&ref, (proa_request){.text = PROMPT, .options = {.max_tokens = 60}});
    char *comma = strchr(ref.text[0], ',');
    assert_non_null(comma);
    *comma = '\0';
    const char *const ways[] = {"stop", "stop_strings", "stop_words"};
    for (int i = 0; i < 6; i++) {
        proa_infer *r = ask_for(PROMPT, 60);
        if (i < 3) param_text(r, ways[i], i == 1 ? "[\",\"]" : ",");
        else if (i == 3) put_texts(r, "stop_strings", (const char *const[]){"", ","}, 2, 1, (int64_t[]){2});
        else if (i == 4) param_text(r, "options", "{\"stop_strings\":[\",\"]}");
        else put_text(r, "stop_words", ",");
        const proa_reply *reply = only(run(&own, r));
        assert_text(reply, "text_output", 0, ref.text[0]);
        assert_text(reply, "finish_reason", 0, "stop");
        forget(r);
    }
    char both[4200];
    snprintf(both, sizeof both, PROMPT "%s", ref.text[0]);
    proa_infer *r = ask_for(PROMPT, 60);
    param_text(r, "stop", ",");
    put_bool(r, "echo", true);
    assert_text(only(run(&own, r)), "text_output", 0, both);
    forget(r);
}

static void words_and_biases(void **state)
{
    PROA_UNUSED(state);
    direct_run(&ref, (proa_request){.text = PROMPT, .options = {.max_tokens = 1}});
    char text[64];
    int32_t first = ref.ids[0][0];
    for (int i = 0; i < 4; i++) {
        proa_infer *r = ask_for(PROMPT, 1);
        if (i == 0) snprintf(text, sizeof text, "[[%d]]", first), put_text(r, "banned_words", text);
        if (i == 1) snprintf(text, sizeof text, "[%d]", first), put_text(r, "banned_words", text);
        if (i == 2) snprintf(text, sizeof text, "{\"%d\":-100}", first), param_text(r, "logit_bias", text);
        if (i == 3) snprintf(text, sizeof text, "[[%d]]", first), param_text(r, "bad_words_list", text);
        assert_int_not_equal(ints(only(run(&own, r)), "output_ids")[0], first);
        forget(r);
    }
}

#define CHAT "[{\"role\":\"user\",\"content\":\"Tell of the sea.\"}]"

/* Messages are the chat template's text, whose special tokens are in it. */
static void messages_are_rendered(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_engine,
             "parameters { key: \"chat_template\" value { string_value: \"plain\" } }", CLASSICS);
    proa_json *json = NULL;
    proa_buf text;
    proa_ids ids = {0};
    proa_buf_init(&text, 4096);
    assert_int_equal(proa_json_parse(&json, proa_str_c("{\"messages\":" CHAT "}"), "test", NULL), PROA_OK);
    const proa_llm_model *s = g.model.state;
    assert_int_equal(proa_chat_render(s->chat, json, &text, NULL), PROA_OK);
    assert_int_equal(proa_tokenizer_encode(s->tokenizer, proa_buf_view(&text), false, &ids, NULL), PROA_OK);
    direct_run(&ref, (proa_request){.ids = ids.ptr, .ids_count = ids.len, .options = {.max_tokens = 5}});
    for (int i = 0; i < 2; i++) {
        proa_infer *r = ask();
        put_text(r, "messages", i ? CHAT : "{\"messages\":" CHAT ",\"add_generation_prompt\":true}");
        put_int(r, "max_tokens", 5);
        const proa_reply *reply = only(run(&g, r));
        assert_text(reply, "text_output", 0, ref.text[0]);
        assert_int_equal(ints(reply, "prompt_tokens")[0], ids.len);
        forget(r);
    }
    proa_infer *r = ask();
    put_text(r, "messages", "[{]");
    assert_refused(&g, r, PROA_INVALID, "messages");
    proa_json_free(json);
    proa_buf_release(&text);
    proa_ids_release(&ids);
    rig_close(&g);
    r = ask();
    put_text(r, "messages", CHAT);
    assert_refused(&own, r, PROA_UNSUPPORTED, "no chat template");
    assert_int_not_equal(
        rig_try(&g, &proa_backend_engine,
                "parameters { key: \"chat_template\" value { string_value: \"/nowhere.jinja\" } }", CLASSICS),
        PROA_OK);
    rig_release(&g);
}

static void wrong_requests_are_refused(void **state)
{
    PROA_UNUSED(state);
    proa_infer *r = ask();
    assert_refused(&own, r, PROA_INVALID, "one of text_input, input_ids and messages");
    r = ask_for(PROMPT, 4);
    put_i32(r, "input_ids", (const int32_t[]){5}, 1);
    assert_refused(&own, r, PROA_INVALID, "one of text_input, input_ids and messages");
    r = ask_for(PROMPT, -1);
    assert_refused(&own, r, PROA_INVALID, "max_tokens");
    r = ask_for(PROMPT, 4);
    put_float(r, "temperature", NAN);
    assert_refused(&own, r, PROA_INVALID, "temperature");
    r = ask_for(PROMPT, 4);
    param_double(r, "temprature", 0.5);
    assert_refused(&own, r, PROA_INVALID, "did you mean 'temperature'");
    r = ask_for(PROMPT, 4);
    param_text(r, "guided_json", "{\"not\":{}}");
    assert_refused(&own, r, PROA_UNSUPPORTED, "option 'json_schema': at #: the keyword 'not' is not supported");
    r = ask_for(PROMPT, 4);
    param_text(r, "options", "{\"max_tokenz\":4}");
    assert_refused(&own, r, PROA_INVALID, "max_tokens");
    r = ask_for(PROMPT, 4);
    put_text(r, "task", "sing");
    assert_refused(&own, r, PROA_INVALID, "sing");
    r = ask_for(PROMPT, 4);
    put_text(r, "task", "classify");
    assert_refused(&own, r, PROA_UNSUPPORTED, "labels");
    r = ask();
    put_i32(r, "input_ids", (const int32_t[]){1, 999999}, 2);
    assert_refused(&own, r, PROA_INVALID, "999999");
    r = ask();
    put_i32(r, "input_ids", NULL, 0);
    assert_refused(&own, r, PROA_INVALID, "empty");
    r = ask_for(PROMPT, 4);
    param_text(r, "x-request-id", "7"); /* a header that was let through is nobody's option */
    only(run(&own, r));
    forget(r);
}

/* ---- cancelling ---- */

static int64_t pages_used(rig *g)
{
    proa_stats stats;
    proa_engine_stats(((proa_llm_model *)g->model.state)->engine, &stats);
    return stats.pages_used;
}

static void cancel_frees_pages(void **state)
{
    PROA_UNUSED(state);
    proa_infer *running = ask_for(PROMPT, 900), *queued = ask_for(PROMPT, 900);
    put_bool(running, "stream", true);
    put_bool(running, "ignore_eos", true);
    start(&own, running);
    heard *h = running->user;
    pthread_mutex_lock(&h->lock);
    while (h->count < 3) pthread_cond_wait(&h->more, &h->lock);
    pthread_mutex_unlock(&h->lock);
    proa_infer_cancel(queued); /* before it began */
    start(&own, queued);
    assert_int_equal(wait_for(queued)->reply[0]->error.status, PROA_CANCELLED);
    proa_infer_cancel(running);
    wait_for(running);
    assert_true(h->count < 800);
    assert_int_equal(h->reply[h->count - 1]->error.status, PROA_CANCELLED);
    proa_infer_cancel(running); /* again, after the end */
    for (int i = 0; i < 1000 && pages_used(&own); i++) usleep(1000);
    assert_int_equal(pages_used(&own), 0);
    forget(running), forget(queued);
}

/* Many at once, some cancelled at any time: those that are left say what they say alone. */
static void many_at_once(void **state)
{
    PROA_UNUSED(state);
    enum { MANY = 24 };
    proa_infer *r[MANY];
    char text[MANY][4096];
    for (int i = 0; i < MANY; i++) {
        proa_options options = {.max_tokens = 10 + i, .temperature = 0.8f, .seed = (uint64_t)i};
        direct_run(&ref, (proa_request){.text = i % 2 ? PROMPT : "The sea", .options = options});
        memcpy(text[i], ref.text[0], sizeof text[i]);
    }
    for (int i = 0; i < MANY; i++) {
        r[i] = ask_for(i % 2 ? PROMPT : "The sea", 10 + i);
        put_float(r[i], "temperature", 0.8f);
        param_int(r[i], "seed", i);
        start(&own, r[i]);
        if (i % 5 == 4) proa_infer_cancel(r[i]);
    }
    for (int i = 0; i < MANY; i++) {
        const heard *h = wait_for(r[i]);
        if (h->reply[0]->error.status != PROA_CANCELLED) assert_text(only(h), "text_output", 0, text[i]);
        else assert_int_equal(i % 5, 4);
        forget(r[i]);
    }
}

/* A long text is read elsewhere: the caller is back before, and what comes is the same; cancelled, it never runs. */
static void long_texts_are_read_aside(void **state)
{
    PROA_UNUSED(state);
    enum { LONG = 100 * 1024 };
    char *text = malloc(LONG + 1);
    for (int i = 0; i < LONG; i++) text[i] = PROMPT "\n"[i % (int)(sizeof PROMPT)];
    text[LONG] = '\0';
    proa_infer *r[6];
    for (int i = 0; i < 6; i++) {
        r[i] = ask_for(text, 4);
        start(&own, r[i]);
        if (i % 2) proa_infer_cancel(r[i]);
    }
    for (int i = 0; i < 6; i++) {
        const heard *h = wait_for(r[i]);
        proa_status status = h->reply[0]->error.status;
        assert_true(status == PROA_LIMIT || (i % 2 && status == PROA_CANCELLED)); /* 1,024 tokens are its context */
        forget(r[i]);
    }
    free(text);
}

static void overload_is_told(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_engine,
             "backend: \"engine\" parameters [{ key: \"sequences_max\" value { string_value: \"1\" } },"
             "{ key: \"max_queue_size\" value { string_value: \"2\" } }]",
             CLASSICS);
    proa_infer *r[8];
    int refused = 0;
    for (int i = 0; i < 8; i++) {
        r[i] = ask_for(PROMPT, 200);
        put_bool(r[i], "ignore_eos", true);
        start(&g, r[i]);
    }
    for (int i = 0; i < 8; i++) {
        const heard *h = wait_for(r[i]);
        const proa_err *err = &h->reply[0]->error;
        if (err->status != PROA_OK) {
            assert_int_equal(err->status, PROA_UNAVAILABLE);
            assert_string_equal(err->text,
                                "Exceeds maximum queue size: Maximum queue size of 2 has been reached");
            refused++;
        }
        forget(r[i]);
    }
    assert_in_range(refused, 1, 6); /* 5 unless one ends while others are sent */
    rig_close(&g);
}

/* ---- other kinds of models ---- */

static void encoder_decoders(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_engine, OWN, MODELS "m30k-t5");
    direct t5;
    direct_open(&t5, MODELS "m30k-t5");
    const char *text = "translate English to German: A dog runs on the beach.";
    direct_run(&t5, (proa_request){.text = text, .options = {.max_tokens = 32}});
    proa_infer *r = ask_for(text, 32);
    const proa_reply *reply = only(run(&g, r));
    assert_text(reply, "text_output", 0, t5.text[0]);
    assert_text(reply, "finish_reason", 0, "stop");
    forget(r);
    direct_run(&t5, (proa_request){.task = PROA_TASK_ENCODE, .text = text});
    r = ask();
    put_text(r, "text_input", text);
    put_text(r, "task", "embed");
    reply = only(run(&g, r));
    assert_shape(reply, "embedding", 1, 320, 0, 0);
    double sum = 0;
    for (size_t i = 0; i < t5.rows_len; i += 320) sum += (double)t5.rows[i];
    assert_true(floats(reply, "embedding")[0] == (float)(sum / ((double)t5.rows_len / 320)));
    forget(r);
    direct_close(&t5);
    rig_close(&g);
}

static void classifiers(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_engine, "backend: \"engine\"", MODELS "polarity-bert");
    direct bert;
    direct_open(&bert, MODELS "polarity-bert");
    const char *text = "a warm and funny film";
    direct_run(&bert, (proa_request){.task = PROA_TASK_ROWS, .text = text});
    proa_infer *r = ask();
    put_text(r, "text_input", text);
    const proa_reply *reply = only(run(&g, r));
    assert_true(floats(reply, "scores")[0] == bert.rows[0]);
    assert_true(floats(reply, "logits")[0] == bert.rows[0]);
    assert_text(reply, "label", 0, "LABEL_0");
    forget(r);
    r = ask();
    put_text(r, "text_input", text);
    param_text(r, "task", "embed");
    assert_shape(only(run(&g, r)), "embedding", 1, 256, 0, 0);
    forget(r);
    r = ask();
    put_text(r, "text_input", text);
    param_text(r, "task", "generate");
    assert_refused(&g, r, PROA_UNSUPPORTED, "an encoder does not generate");
    direct_close(&bert);
    rig_close(&g);
}

/* Classifiers of other architectures than BERT, by ids; a head on every row answers to task rows. */
static void other_classifiers(void **state)
{
    static const int32_t ids[] = {5, 17, 42};
    static const char *const folders[] = {GOLDEN "arch/roberta", GOLDEN "arch/distilbert"};
    PROA_UNUSED(state);
    rig g;
    for (size_t i = 0; i < PROA_COUNT(folders); i++) {
        rig_open(&g, &proa_backend_engine, "backend: \"engine\"", folders[i]);
        proa_infer *r = ask();
        put_i32(r, "input_ids", ids, 3);
        const proa_reply *reply = only(run(&g, r));
        assert_shape(reply, "scores", 1, i == 0 ? 3 : 2, 0, 0);
        forget(r);
        rig_close(&g);
    }
    rig_open(&g, &proa_backend_engine, "backend: \"engine\"", GOLDEN "arch/roberta_token");
    proa_infer *r = ask();
    put_i32(r, "input_ids", ids, 3);
    put_text(r, "task", "rows");
    assert_shape(only(run(&g, r)), "rows", 2, 3, 5, 0);
    forget(r);
    rig_close(&g);
}

#define ROWS "backend: \"engine\" max_batch_size: 8"

/* An encoder with a batch dimension: each row is what it is alone. */
static void rows_of_prompts(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_engine, ROWS, MODELS "polarity-bert");
    assert_false(g.model.decoupled);
    direct bert;
    direct_open(&bert, MODELS "polarity-bert");
    static const char *const texts[] = {"a warm and funny film", "a dull film", "",
                                        "so it goes , and goes , and goes"};
    float want[4];
    for (int i = 0; i < 4; i++) {
        direct_run(&bert, (proa_request){.task = PROA_TASK_ROWS, .text = texts[i]});
        want[i] = bert.rows[0];
    }
    proa_infer *r = ask();
    put_texts(r, "text_input", texts, 4, 2, (int64_t[]){4, 1});
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "scores", 2, 4, 1, 0);
    assert_memory_equal(floats(reply, "scores"), want, sizeof want);
    assert_memory_equal(floats(reply, "logits"), want, sizeof want);
    assert_shape(reply, "label", 2, 4, 1, 0);
    assert_shape(reply, "prompt_tokens", 2, 4, 1, 0);
    assert_int_equal(ints(reply, "prompt_tokens")[2], 2);
    forget(r);
    r = ask();
    put_texts(r, "text_input", texts, 2, 2, (int64_t[]){2, 1});
    param_text(r, "task", "embed");
    reply = only(run(&g, r));
    assert_shape(reply, "embedding", 2, 2, 256, 0);
    assert_true(floats(reply, "embedding")[0] != floats(reply, "embedding")[256]);
    forget(r);
    r = ask();
    put_texts(r, "text_input", texts, 2, 2, (int64_t[]){2, 1});
    param_text(r, "task", "rows");
    assert_refused(&g, r, PROA_UNSUPPORTED, "task rows is for a model without a batch dimension");
    r = ask();
    const int32_t ids[] = {2, 100, 3, 2, 200, 3};
    put(r, "input_ids", PROA_TYPE_INT32, ids, sizeof ids, 2, (int64_t[]){2, 3});
    assert_int_equal(ints(only(run(&g, r)), "prompt_tokens")[1], 3);
    forget(r);
    direct_close(&bert);
    rig_close(&g);
    rig bad;
    assert_int_equal(rig_try(&bad, &proa_backend_engine, ROWS " model_transaction_policy { decoupled: true }",
                             MODELS "polarity-bert"),
                     PROA_INVALID);
    assert_non_null(strstr(bad.err.text, "answers once: it cannot be decoupled"));
    rig_release(&bad);
}

/* ---- configurations ---- */

static void every_option_has_its_input(void **state)
{
    PROA_UNUSED(state);
    const Inference__ModelConfig *config = own.model.config;
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        bool found = false;
        for (size_t k = 0; k < config->n_input; k++)
            found |= !strcmp(config->input[k]->name, proa_option_rows[i].name);
        if (!found) fail_msg("no input '%s'", proa_option_rows[i].name);
        assert_ptr_equal(proa_option_by_alias(proa_option_rows[i].name), &proa_option_rows[i]);
    }
    const char *const names[][2] = {{"max_new_tokens", "max_tokens"},
                                    {"max_completion_tokens", "max_tokens"},
                                    {"stop", "stop_strings"},
                                    {"random_seed", "seed"},
                                    {"beam_width", "beams"},
                                    {"len_penalty", "length_penalty"},
                                    {"request_output_len", "max_tokens"},
                                    {"runtime_top_p", "top_p"},
                                    {"bad_words", "banned_strings"},
                                    {"end_id", "end_ids"}};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        assert_string_equal(proa_option_by_alias(names[i][0])->name, names[i][1]);
    assert_null(proa_option_by_alias("return_context_logits"));
    assert_null(proa_option_by_alias("nothing"));
    assert_int_equal(config->max_batch_size, 0);
    assert_true(config->model_transaction_policy->decoupled);
}

static void bad_configurations_are_refused(void **state)
{
    PROA_UNUSED(state);
    const char *const bad[][2] = {
        {"max_batch_size: 4", "max_batch_size"},
        {"parameters { key: \"dtype\" value { string_value: \"f8\" } }", "f8"},
        {"parameters { key: \"threads\" value { string_value: \"-1\" } }", "threads"},
        {"parameters { key: \"model_path\" value { string_value: \"nowhere\" } }", "nowhere"},
        {"parameters { key: \"batch_scheduler_policy\" value { string_value: \"x\" } }",
         "batch_scheduler_policy"},
        {"parameters { key: \"replicas\" value { string_value: \"65\" } }", "replicas"},
        {"instance_group { count: 65 kind: KIND_CPU }", "64 replicas"},
        {"instance_group { count: 2 kind: KIND_CPU } parameters { key: \"replicas\" value { string_value: "
         "\"3\" } }",
         "have 2 instances"},
        {"instance_group { kind: KIND_GPU gpus: [0, 1, 2] } parameters { key: \"tensor_para_size\" value { "
         "string_value: \"2\" } }",
         "multiple of the 2"},
        {"instance_group { kind: KIND_GPU gpus: [0, 1, 2, 4] } parameters { key: \"tensor_para_size\" value "
         "{ "
         "string_value: \"2\" } }",
         "GPU 4 follows 2"},
        {"parameters { key: \"kv_cache_free_gpu_mem_fraction\" value { string_value: \"7\" } }", "fraction"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        rig g;
        assert_int_not_equal(rig_try(&g, &proa_backend_engine, bad[i][0], CLASSICS), PROA_OK);
        if (!strstr(g.err.text, bad[i][1])) fail_msg("'%s' does not name '%s'", g.err.text, bad[i][1]);
        rig_release(&g);
    }
    rig g; /* relative to the model's folder; what --set left open is not set */
    rig_open(&g, &proa_backend_engine,
             "parameters [{ key: \"model_path\" value { string_value: \"../models/classics-10m\" } },"
             "{ key: \"dtype\" value { string_value: \"${dtype}\" } },"
             "{ key: \"kv_cache_free_gpu_mem_fraction\" value { string_value: \"0.01\" } }]",
             PROA_SOURCE_DIR "/models");
    assert_string_equal(((proa_llm_model *)g.model.state)->info.arch, "llama");
    rig_close(&g);
}

static void every_scheduler_policy_is_known(void **state)
{
    PROA_UNUSED(state);
    const char *const policies[] = {"max_utilization", "guaranteed_no_evict", "guaranteed_completion", ""};
    for (size_t i = 0; i < PROA_COUNT(policies); i++) {
        char config[160];
        rig g;
        snprintf(config, sizeof config,
                 "parameters { key: \"batch_scheduler_policy\" value { string_value: \"%s\" } }", policies[i]);
        rig_open(&g, &proa_backend_engine, config, CLASSICS);
        rig_close(&g);
    }
}

static void figures_and_metrics(void **state)
{
    PROA_UNUSED(state);
    proa_buf buf;
    proa_json *json = NULL;
    proa_buf_init(&buf, 1 << 20);
    proa_buf_char(&buf, '{');
    proa_backend_engine.figures(own.model.state, &buf);
    proa_buf_char(&buf, '}');
    assert_int_equal(proa_json_parse(&json, proa_buf_view(&buf), "figures", NULL), PROA_OK);
    assert_true(proa_json_int(proa_json_get(json, "new_tokens")) > 0);
    assert_true(proa_json_int(proa_json_get(json, "pages_total")) > 0);
    proa_json_free(json);
    proa_buf_clear(&buf);
    proa_stats stats = {.running = 1}; /* published at the end of a step */
    while (stats.running) proa_engine_stats(((proa_llm_model *)own.model.state)->engine, &stats);
    proa_backend_engine.metrics(own.model.state, "model=\"m\",version=\"1\"", &buf);
    assert_non_null(strstr(buf.ptr, "proa_engine_pages_used{model=\"m\",version=\"1\"} 0\n"));
    proa_buf_release(&buf);
}

/* Each instance is a replica, with samples of its own. */
static void instances_are_replicas(void **state)
{
    PROA_UNUSED(state);
    static const char *const configs[] = {
        OWN "instance_group { count: 2 kind: KIND_CPU }",
        OWN
        "instance_group [{ kind: KIND_CPU }, { count: 1 kind: KIND_CPU }, { kind: KIND_CPU passive: true }]",
        OWN "parameters { key: \"replicas\" value { string_value: \"2\" } }"};
    for (size_t i = 0; i < PROA_COUNT(configs); i++) {
        rig g;
        proa_buf buf;
        proa_buf_init(&buf, 1 << 20);
        rig_open(&g, &proa_backend_engine, configs[i], CLASSICS);
        proa_llm_model *s = g.model.state;
        assert_int_equal(proa_fleet_count(s->fleet), 2);
        assert_true(proa_backend_engine.ready(s, NULL));
        direct_run(&ref, (proa_request){.text = PROMPT, .options = {.max_tokens = 20}});
        proa_infer *first = ask_for(PROMPT, 20), *second = ask_for(PROMPT, 20);
        start(&g, first), start(&g, second);
        assert_memory_equal(ints(only(wait_for(first)), "output_ids"), ref.ids[0], 20 * 4);
        assert_memory_equal(ints(only(wait_for(second)), "output_ids"), ref.ids[0], 20 * 4);
        forget(first), forget(second);
        proa_backend_engine.metrics(s, "model=\"m\"", &buf);
        assert_non_null(strstr(buf.ptr, "proa_replica_serves{model=\"m\",replica=\"1\"} 1\n"));
        assert_non_null(strstr(buf.ptr, "proa_engine_pages_free{model=\"m\",replica=\"0\"} "));
        assert_null(strstr(buf.ptr, "{model=\"m\"}"));
        proa_buf_release(&buf);
        rig_close(&g);
    }
}

/* The tree of a chat goes with the request. */
static proa_infer *ask_typed(const char *text, const char *chat)
{
    proa_infer *r = ask();
    proa_generation *g = proa_infer_generate(r);
    proa_arena *arena = &r->arena;
    if (text) g->text = (proa_str){proa_arena_strdup(arena, proa_str_c(text)), strlen(text)};
    if (chat) assert_int_equal(proa_json_parse(&g->chat, proa_str_c(chat), "chat", NULL), PROA_OK);
    g->options = (proa_options){.max_tokens = 12, .top_logprobs = 2};
    return r;
}

/* A typed generation says what tensors say, and has no tensors. */
static void typed_equals_tensors(void **state)
{
    PROA_UNUSED(state);
    assert_true(proa_served_model_takes_generation(&own.model));
    proa_infer *a = ask_for(PROMPT, 12), *b = ask_typed(PROMPT, NULL);
    put_int(a, "top_logprobs", 2);
    put_bool(a, "echo", true);
    b->generation->echo = true;
    const proa_reply *x = only(run(&own, a)), *y = only(run(&own, b));
    const proa_generated *g = y->generated;
    assert_null(x->generated);
    assert_int_equal(y->outputs_count, 0);
    assert_int_equal(g->count, 1);
    const proa_generated_sequence *s = &g->sequences[0];
    assert_text(x, "text_output", 0, proa_arena_strdup(&b->arena, s->text));
    assert_int_equal(s->finish, PROA_FINISH_LENGTH);
    assert_int_equal(s->tokens, 12);
    assert_int_equal(g->prompt_tokens, ints(x, "prompt_tokens")[0]);
    assert_int_equal(s->added.count, 12);
    assert_int_equal(s->added.tops, 2);
    assert_memory_equal(s->added.logprobs, floats(x, "output_log_probs"), 12 * sizeof(float));
    assert_memory_equal(s->added.top_logprobs, floats(x, "top_log_probs"), 24 * sizeof(float));
    for (int i = 0; i < 12; i++)
        assert_text(x, "token_text", i, proa_arena_strdup(&b->arena, s->added.texts[i]));
    for (int i = 0; i < 24; i++)
        assert_text(x, "top_text", i, proa_arena_strdup(&b->arena, s->added.top_texts[i]));
    forget(a);
    forget(b);
}

static void typed_streams_and_scores(void **state)
{
    PROA_UNUSED(state);
    proa_infer *r = ask_typed(PROMPT, NULL);
    r->generation->stream = true;
    heard *h = run(&own, r);
    assert_int_equal(h->count, 12);
    for (int i = 0; i < 12; i++) {
        const proa_generated_sequence *s = &h->reply[i]->generated->sequences[0];
        assert_int_equal(s->tokens, i + 1);
        assert_int_equal(s->added.count, 1);
        assert_int_equal(s->finish, i < 11 ? PROA_FINISH_NONE : PROA_FINISH_LENGTH);
    }
    forget(r);
    r = ask_typed(PROMPT, NULL);
    r->generation->task = PROA_GENERATION_SCORE;
    const proa_generated *g = only(run(&own, r))->generated;
    assert_int_equal(g->prompt->count, g->prompt_tokens);
    assert_true(isnan(g->prompt->logprobs[0]));
    assert_true(g->prompt->logprobs[1] < 0);
    forget(r);
    r = ask_typed(PROMPT, NULL);
    r->generation->task = PROA_GENERATION_EMBED;
    r->generation->normalize = true;
    g = only(run(&own, r))->generated;
    double sum = 0;
    for (int64_t i = 0; i < g->embedding_count; i++) sum += (double)g->embedding[i] * (double)g->embedding[i];
    assert_int_equal(g->embedding_count, 320);
    assert_true(fabs(sum - 1) < 1e-5);
    forget(r);
}

/* Members that tensors could say before typed generations could: the same answers. */
static void typed_members_equal_tensors(void **state)
{
    PROA_UNUSED(state);
    static const int32_t start[] = {0, 5, 9};
    rig g;
    rig_open(&g, &proa_backend_engine, OWN, MODELS "m30k-t5");
    proa_infer *a = ask_for(PROMPT, 12), *b = ask_typed(PROMPT, NULL);
    put_i32(a, "decoder_input_ids", start, 3);
    b->generation->decoder_ids = start;
    b->generation->decoder_ids_count = 3;
    const proa_reply *x = only(run(&g, a)), *y = only(run(&g, b));
    const proa_generated_sequence *s = &y->generated->sequences[0];
    assert_text(x, "text_output", 0, proa_arena_strdup(&b->arena, s->text));
    assert_int_equal(y->generated->prompt_tokens, ints(x, "prompt_tokens")[0]);
    forget(a);
    forget(b);
    a = ask();
    put_text(a, "text_input", PROMPT);
    put_text(a, "task", "embed");
    param_text(a, "pooling", "cls");
    b = ask_typed(PROMPT, NULL);
    b->generation->task = PROA_GENERATION_EMBED;
    b->generation->pooling = PROA_POOLING_CLS;
    x = only(run(&g, a)), y = only(run(&g, b));
    assert_memory_equal(y->generated->embedding, floats(x, "embedding"),
                        (size_t)y->generated->embedding_count * sizeof(float));
    forget(a);
    forget(b);
    b = ask_typed(PROMPT, NULL);
    b->generation->task = PROA_GENERATION_ENCODE;
    assert_refused(&g, b, PROA_UNSUPPORTED, "task encode has no typed answer");
    rig_close(&g);
}

/* As a tree, and as text: the same prompt. A configuration with tensors of its own takes none of it. */
static void typed_chats(void **state)
{
    PROA_UNUSED(state);
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"}]}";
    rig g;
    rig_open(&g, &proa_backend_engine,
             "backend: \"engine\" parameters { key: \"chat_template\" value { string_value: \"chatml\" } }",
             CLASSICS);
    proa_infer *tree = ask_typed(NULL, chat), *text = ask_typed(NULL, NULL);
    text->generation->chat_text = (proa_str){chat, sizeof chat - 1};
    const proa_generated *a = only(run(&g, tree))->generated, *b = only(run(&g, text))->generated;
    assert_null(tree->generation->chat);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->sequences[0].text.len, b->sequences[0].text.len);
    assert_memory_equal(a->sequences[0].text.ptr, b->sequences[0].text.ptr, a->sequences[0].text.len);
    forget(tree);
    forget(text);
    rig_close(&g);
    rig_open(&g, &proa_backend_engine,
             "backend: \"engine\" input { name: \"text_input\" data_type: TYPE_STRING dims: [1] }", CLASSICS);
    assert_false(proa_served_model_takes_generation(&g.model));
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reply_equals_the_engine),
        cmocka_unit_test(streams_add_up),
        cmocka_unit_test(one_stream_ends_with_its_last_token),
        cmocka_unit_test(beams_come_whole_with_scores),
        cmocka_unit_test(best_of_is_the_likeliest),
        cmocka_unit_test(alternatives_and_their_texts),
        cmocka_unit_test(scoring_tells_of_the_prompt),
        cmocka_unit_test(rows_logits_and_hidden_states),
        cmocka_unit_test(stops_and_echo),
        cmocka_unit_test(words_and_biases),
        cmocka_unit_test(messages_are_rendered),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(cancel_frees_pages),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(long_texts_are_read_aside),
        cmocka_unit_test(overload_is_told),
        cmocka_unit_test(encoder_decoders),
        cmocka_unit_test(classifiers),
        cmocka_unit_test(other_classifiers),
        cmocka_unit_test(rows_of_prompts),
        cmocka_unit_test(every_option_has_its_input),
        cmocka_unit_test(bad_configurations_are_refused),
        cmocka_unit_test(every_scheduler_policy_is_known),
        cmocka_unit_test(figures_and_metrics),
        cmocka_unit_test(instances_are_replicas),
        cmocka_unit_test(typed_equals_tensors),
        cmocka_unit_test(typed_streams_and_scores),
        cmocka_unit_test(typed_chats),
        cmocka_unit_test(typed_members_equal_tensors),
    };
    return cmocka_run_group_tests(tests, open_classics, close_classics);
}
