/* SPDX-License-Identifier: Apache-2.0
 * test_examples.c - the repositories of examples/repository on a server: what comes through the ensembles of the known
 * guides is what the engine says when it is called directly. */
#include "rig.h"

#define EXAMPLES PROA_SOURCE_DIR "/examples/repository/"
#define CLASSICS MODELS "classics-10m"
#define PROMPT   "It was a dark and stormy night"

static proa_server *open_server(const char *folder)
{
    proa_server_options o = {
        .repositories = &folder, .repositories_count = 1, .backends = proa_backends, .exit_on_error = true};
    proa_server *server = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_server_new(&server, &o, &err) != PROA_OK) fail_msg("%s: %s", folder, err.text);
    return server;
}

static void close_server(proa_server *server)
{
    assert_true(proa_server_stop(server, 20000));
    proa_server_free(server);
}

static heard *send(proa_server *server, const char *model, proa_infer *r)
{
    proa_err err = {.status = PROA_OK};
    r->model_name = model;
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
    return wait_for(r);
}

static void put_text2(proa_infer *r, const char *name, const char *text)
{
    put_texts(r, name, &text, 1, 2, (int64_t[]){1, 1});
}

static void put_number(proa_infer *r, const char *name, proa_type type, uint32_t value)
{
    put(r, name, type, &value, 4, 2, (int64_t[]){1, 1});
}

static proa_options options_of(proa_style style, int32_t max_tokens)
{
    return (proa_options){.style = style,
                          .given = {[PROA_OPTION_style] = true, [PROA_OPTION_beams] = true},
                          .beams = 1,
                          .max_tokens = max_tokens};
}

/* Two prompts of the GPT-J guide: INPUT_0.. and OUTPUT_0. */
static void gptj_text_ensemble(void **state)
{
    static const char *const texts[] = {PROMPT, "The sea"};
    const uint32_t lens[] = {16, 16};
    direct ref;
    proa_server *server = open_server(EXAMPLES "gptj-text-ensemble");
    PROA_UNUSED(state);
    direct_open(&ref, CLASSICS);
    proa_infer *r = ask();
    put_texts(r, "INPUT_0", texts, 2, 2, (int64_t[]){2, 1});
    put(r, "INPUT_1", PROA_TYPE_UINT32, lens, sizeof lens, 2, (int64_t[]){2, 1});
    put_texts(r, "INPUT_2", (const char *const[]){"", "ship,ships"}, 2, 2, (int64_t[]){2, 1});
    put_texts(r, "INPUT_3", (const char *const[]){"", ""}, 2, 2, (int64_t[]){2, 1});
    const proa_reply *reply = only(send(server, "ensemble", r));
    assert_shape(reply, "OUTPUT_0", 1, 2, 0, 0);
    for (int i = 0; i < 2; i++) {
        char whole[4200];
        direct_run(&ref, (proa_request){.text = texts[i], .options = options_of(PROA_STYLE_FT, 16)});
        snprintf(whole, sizeof whole, "%s%s", texts[i], ref.text[0]);
        if (!strstr(ref.text[0], "ship")) assert_text(reply, "OUTPUT_0", i, whole);
    }
    assert_true(floats(reply, "cum_log_probs")[0] == 0); /* nobody asked */
    forget(r);
    direct_close(&ref);
    close_server(server);
}

static void t5_client_tokens(void **state)
{
    const char *text = "translate English to German: A dog runs on the beach.";
    int32_t ids[32];
    int64_t count = 0;
    direct ref;
    proa_server *server = open_server(EXAMPLES "t5-client-tokens");
    PROA_UNUSED(state);
    direct_open(&ref, MODELS "m30k-t5");
    assert_int_equal(proa_engine_encode(ref.engine, text, strlen(text), ids, 32, &count, NULL), PROA_OK);
    proa_infer *r = ask();
    put(r, "input_ids", PROA_TYPE_UINT32, ids, (size_t)count * 4, 2, (int64_t[]){1, count});
    put_number(r, "sequence_length", PROA_TYPE_UINT32, (uint32_t)count);
    put_number(r, "max_output_len", PROA_TYPE_UINT32, 32);
    const proa_reply *reply = only(send(server, "fastertransformer", r));
    direct_run(&ref, (proa_request){.text = text, .options = options_of(PROA_STYLE_FT, 32)});
    assert_memory_equal(ints(reply, "output_ids"), ref.ids[0], (size_t)ref.count[0] * 4);
    char back[256];
    size_t len = 0;
    proa_engine_decode(ref.engine, ints(reply, "output_ids"), ints(reply, "sequence_length")[0], back,
                       sizeof back, &len, NULL);
    assert_string_equal((back[len] = '\0', back), ref.text[0]);
    forget(r);
    direct_close(&ref);
    close_server(server);
}

/* `type` is that of the lengths: INT32, in TensorRT-LLM's first release UINT32. */
static proa_infer *ask_llama(proa_type type, int32_t max_tokens, bool stream)
{
    proa_infer *r = ask();
    put_text2(r, "text_input", PROMPT);
    put_number(r, "max_tokens", type, (uint32_t)max_tokens);
    put(r, "stream", PROA_TYPE_BOOL, &stream, 1, 2, (int64_t[]){1, 1});
    return r;
}

static void join(const heard *h, char joined[4096])
{
    joined[0] = '\0';
    for (int i = 0; i < h->count; i++) {
        if (h->reply[i]->error.status != PROA_OK) fail_msg("%s", h->reply[i]->error.text);
        proa_str piece = text_at(h->reply[i], "text_output", 0);
        strncat(joined, piece.ptr, piece.len);
    }
}

static void llama_streaming(void **state)
{
    char joined[4096];
    direct ref;
    proa_server *server = open_server(EXAMPLES "llama-streaming");
    PROA_UNUSED(state);
    direct_open(&ref, CLASSICS);
    direct_run(&ref, (proa_request){.text = PROMPT, .options = options_of(PROA_STYLE_TRTLLM, 24)});
    for (int stream = 0; stream < 2; stream++) {
        proa_infer *r = ask_llama(PROA_TYPE_INT32, 24, stream);
        const heard *h = send(server, "ensemble", r);
        assert_int_equal(h->count, stream ? 24 : 1);
        join(h, joined);
        assert_string_equal(joined, ref.text[0]);
        forget(r);
    }
    proa_infer *r = ask_llama(PROA_TYPE_INT32, 24, true); /* words as text, options by their outer names */
    const uint64_t seed = 9;
    const float top_p = 0.9f;
    put_text2(r, "stop_words", ".");
    put_text2(r, "bad_words", " and");
    put(r, "seed", PROA_TYPE_UINT64, &seed, 8, 2, (int64_t[]){1, 1});
    put(r, "top_p", PROA_TYPE_FP32, &top_p, 4, 2, (int64_t[]){1, 1});
    join(send(server, "ensemble", r), joined);
    assert_null(strstr(joined, " and"));
    char *dot = strchr(joined, '.');
    if (dot) assert_string_equal(dot, "."); /* the stop word is the last */
    forget(r);
    direct_close(&ref);
    close_server(server);
}

/* The first release's tensors: UINT32 lengths, words not optional, the prompt in an answer that comes whole. */
static void llama_streaming_uint32(void **state)
{
    char joined[4096], whole[4096];
    direct ref;
    proa_server *server = open_server(EXAMPLES "llama-streaming-uint32");
    PROA_UNUSED(state);
    direct_open(&ref, CLASSICS);
    direct_run(&ref, (proa_request){.text = PROMPT, .options = options_of(PROA_STYLE_TRTLLM, 24)});
    snprintf(whole, sizeof whole, "%s%s", PROMPT, ref.text[0]);
    for (int stream = 0; stream < 2; stream++) {
        proa_infer *r = ask_llama(PROA_TYPE_UINT32, 24, stream);
        put_text2(r, "bad_words", "");
        put_text2(r, "stop_words", "");
        const heard *h = send(server, "ensemble", r);
        assert_int_equal(h->count, stream ? 24 : 1);
        join(h, joined);
        assert_string_equal(joined, stream ? ref.text[0] : whole);
        forget(r);
    }
    direct_close(&ref);
    close_server(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptj_text_ensemble),
        cmocka_unit_test(t5_client_tokens),
        cmocka_unit_test(llama_streaming),
        cmocka_unit_test(llama_streaming_uint32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
