/* SPDX-License-Identifier: Apache-2.0
 * test_openai.c - the OpenAI API over a socket, with models of the test (openai_rig.h): what reaches the model, what
 * the client gets. */
#include "openai_rig.h"

static oai_rig rig;

static oai_answer post(const char *path, const char *body)
{
    return oai_ask(&rig, "POST", path, "Content-Type: application/json\r\n", body);
}

/* Posts and compares values: path, value, path, value, ..., NULL. */
static void expect(const char *path, const char *body, int status, ...)
{
    va_list args;
    const char *at;
    oai_answer a = post(path, body);
    if (a.status != status) fail_msg("%s: status %d: %s", body, a.status, a.body);
    va_start(args, status);
    while ((at = va_arg(args, const char *)) != NULL) {
        const char *want = va_arg(args, const char *), *got = oai_at(&a, at);
        if (strcmp(got, want) != 0) fail_msg("%s: %s is '%s', not '%s': %s", body, at, got, want, a.body);
    }
    va_end(args);
    oai_answer_free(&a);
}

#define COMPLETION "/v1/completions"
#define CHAT       "/v1/chat/completions"
#define EMBEDDING  "/v1/embeddings"
#define SAY(rest)  "{\"model\":\"words\",\"prompt\":\"x\"" rest "}"
#define TALK(rest) "{\"model\":\"words\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" rest "}"

static void test_models(void **state)
{
    (void)state;
    oai_answer a = oai_ask(&rig, "GET", "/v1/models", "", "");
    assert_int_equal(a.status, 200);
    assert_string_equal(oai_at(&a, "object"), "list");
    assert_string_equal(oai_at(&a, "data"), "[2]");
    assert_string_equal(oai_at(&a, "data.0.id"), "plain");
    assert_string_equal(oai_at(&a, "data.1.id"), "words");
    assert_string_equal(oai_at(&a, "data.1.object"), "model");
    oai_answer_free(&a);
    a = oai_ask(&rig, "GET", "/v1/models/w%6Frds", "", "");
    assert_string_equal(oai_at(&a, "id"), "words");
    oai_answer_free(&a);
    a = oai_ask(&rig, "GET", "/v1/models/none", "", "");
    assert_int_equal(a.status, 404);
    assert_string_equal(oai_at(&a, "error.code"), "model_not_found");
    oai_answer_free(&a);
    a = oai_ask(&rig, "DELETE", "/v1/models/words", "", "");
    assert_int_equal(a.status, 405);
    oai_answer_free(&a);
    a = oai_ask(&rig, "GET", "/v1/nothing", "", "");
    assert_int_equal(a.status, 404);
    assert_string_equal(oai_at(&a, "error.code"), "unknown_url");
    oai_answer_free(&a);
    a = oai_ask(&rig, "GET", COMPLETION, "", "");
    assert_int_equal(a.status, 405);
    oai_answer_free(&a);
}

static void test_completion(void **state)
{
    (void)state;
    expect(COMPLETION, SAY(""), 200, "object", "text_completion", "model", "words", "choices", "[1]",
           "choices.0.text", "a \xC3\xA9", "choices.0.index", "0", "choices.0.finish_reason", "length",
           "choices.0.logprobs", "", "usage.prompt_tokens", "2", "usage.completion_tokens", "3",
           "usage.total_tokens", "5", NULL);
    expect(COMPLETION, SAY(",\"n\":2"), 200, "choices", "[2]", "choices.1.index", "1", "choices.1.text",
           "a \xC3\xA9", "usage.completion_tokens", "6", "usage.prompt_tokens", "2", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":[\"x\",\"y\"],\"n\":2}", 200, "choices", "[4]",
           "choices.3.index", "3", "usage.prompt_tokens", "4", "usage.completion_tokens", "12", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":[5,6,7]}", 200, "choices.0.text", "3 ids, the last 7",
           "choices.0.finish_reason", "stop", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":[[5],[6,9]]}", 200, "choices.0.text",
           "1 ids, the last 5", "choices.1.text", "2 ids, the last 9", NULL);
}

static void test_options(void **state)
{
    (void)state;
    expect(COMPLETION,
           "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":7,\"temperature\":0.5,\"max_tokens\":9,"
           "\"stop\":[\"x\",\"\"],"
           "\"top_p\":0.5,\"presence_penalty\":1,\"frequency_penalty\":-1,\"logit_bias\":{\"5\":-100},\"top_"
           "k\":3,"
           "\"best_of\":2,\"user\":\"u\",\"end_ids\":[1,2],\"n\":null}",
           200, "choices.0.text",
           "{\"max_tokens\":9,\"temperature\":0.5,\"top_p\":0.5,\"presence_penalty\":1,\"frequency_penalty\":"
           "-1,\"best_of\":2,"
           "\"stop_strings\":[\"x\"],\"logit_bias\":{\"5\":-100},\"top_k\":3,\"end_ids\":[1,2]} seed=7",
           NULL);
    expect(COMPLETION,
           "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":7,\"stop_token_ids\":[5,6],"
           "\"skip_special_tokens\":true,\"include_stop_str_in_output\":false}",
           200, "choices.0.text", "{\"max_tokens\":16,\"temperature\":1,\"stop_words\":[[5],[6]]} seed=7", NULL);
    expect(
        COMPLETION,
        "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":7,\"structured_outputs\":{\"json_object\":true,"
        "\"disable_any_whitespace\":true}}",
        200, "choices.0.text",
        "{\"max_tokens\":16,\"temperature\":1,\"json_schema\":{\"type\":\"object\",\"x-guidance\":{"
        "\"whitespace_"
        "flexible\":false}}} seed=7",
        NULL);
    expect(COMPLETION,
           "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":7,\"guided_json\":{\"enum\":[1]},"
           "\"guided_whitespace_pattern\":\"[ ]?\"}",
           200, "choices.0.text",
           "{\"max_tokens\":16,\"temperature\":1,\"json_schema\":{\"enum\":[1],\"x-guidance\":{\"whitespace_"
           "pattern\":"
           "\"[ ]?\"}}} seed=7",
           NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":-1}", 200, "choices.0.text",
           "{\"max_tokens\":16,\"temperature\":1} seed=18446744073709551615", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"options\",\"seed\":9223372036854775807}", 200,
           "choices.0.text", "{\"max_tokens\":16,\"temperature\":1} seed=9223372036854775807", NULL);
    oai_answer a = post(COMPLETION, "{\"model\":\"words\",\"prompt\":[\"options\",\"options\"]}");
    char first[4096];
    snprintf(first, sizeof first, "%s", oai_at(&a, "choices.0.text")); /* without a seed each prompt has its own */
    assert_string_not_equal(first, oai_at(&a, "choices.1.text"));
    oai_answer_free(&a);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body, *param;
    } bad[] = {
        {COMPLETION, "{", ""},
        {COMPLETION, "[]", ""},
        {COMPLETION, "{\"prompt\":\"x\"}", "model"},
        {COMPLETION, "{\"model\":\"words\"}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":{}}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":[]}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":[\"a\",5]}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":[5,\"a\"]}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":[-1]}", "prompt"},
        {COMPLETION, "{\"model\":\"words\",\"prompt\":[5000000000]}", "prompt"},
        {COMPLETION, SAY(",\"temperature\":3"), "temperature"},
        {COMPLETION, SAY(",\"temperature\":\"hot\""), "temperature"},
        {COMPLETION, SAY(",\"top_p\":2"), "top_p"},
        {COMPLETION, SAY(",\"n\":0"), "n"},
        {COMPLETION, SAY(",\"n\":1.5"), "n"},
        {COMPLETION, SAY(",\"n\":3,\"best_of\":2"), "best_of"},
        {COMPLETION, SAY(",\"best_of\":2,\"stream\":true"), "best_of"},
        {COMPLETION, SAY(",\"max_tokens\":-1"), "max_tokens"},
        {COMPLETION, SAY(",\"max_tokens\":0"), "max_tokens"},
        {COMPLETION, SAY(",\"logprobs\":21"), "logprobs"},
        {COMPLETION, SAY(",\"suffix\":\"end\""), "suffix"},
        {COMPLETION, SAY(",\"stop\":5"), "stop"},
        {COMPLETION, SAY(",\"stop\":[5]"), "stop"},
        {COMPLETION, SAY(",\"logit_bias\":[]"), "logit_bias"},
        {COMPLETION, SAY(",\"logit_bias\":{\"a\":1}"), "logit_bias"},
        {COMPLETION, SAY(",\"logit_bias\":{\"1\":101}"), "logit_bias"},
        {COMPLETION, SAY(",\"stream\":1"), "stream"},
        {COMPLETION, SAY(",\"stream_options\":{\"include_usage\":true}"), "stream_options"},
        {COMPLETION, SAY(",\"seed\":\"s\""), "seed"},
        {COMPLETION, SAY(",\"seed\":18446744073709551615"), "seed"},
        {COMPLETION, "{\"model\":\"plain\",\"prompt\":[5]}", "prompt"},
        {COMPLETION, "{\"model\":\"plain\",\"prompt\":\"x\",\"n\":2}", "n"},
        {COMPLETION, "{\"model\":\"plain\",\"prompt\":\"x\",\"logprobs\":1}", "logprobs"},
        {CHAT, "{\"model\":\"words\"}", "messages"},
        {CHAT, "{\"model\":\"words\",\"messages\":[]}", "messages"},
        {CHAT, "{\"model\":\"words\",\"messages\":[5]}", "messages[0]"},
        {CHAT, "{\"model\":\"words\",\"messages\":[{\"content\":\"x\"}]}", "messages[0]"},
        {CHAT, "{\"model\":\"words\",\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0]"},
        {CHAT, "{\"model\":\"words\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
         "messages[0].content[0]"},
        {CHAT, "{\"model\":\"words\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
         "messages[0].content[0]"},
        {CHAT, "{\"model\":\"plain\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "model"},
        {CHAT, TALK(",\"tools\":{}"), "tools"},
        {CHAT, TALK(",\"tools\":[{}]"), "tools"},
        {CHAT, TALK(",\"tool_choice\":\"required\""), "tool_choice"},
        {CHAT, TALK(",\"tool_choice\":{\"type\":\"function\"}"), "tool_choice"},
        {CHAT, TALK(",\"response_format\":{\"type\":\"xml\"}"), "response_format"},
        {CHAT, TALK(",\"response_format\":{\"type\":\"json_schema\"}"), "response_format"},
        {CHAT, TALK(",\"structured_outputs\":5"), "structured_outputs"},
        {CHAT, TALK(",\"guided_whitespace_pattern\":\" \""), "whitespace_pattern"},
        {CHAT, TALK(",\"guided_json\":{},\"guided_whitespace_pattern\":5"), "whitespace_pattern"},
        {CHAT, TALK(",\"structured_outputs\":{\"disable_any_whitespace\":true,\"regex\":\"a\"}"),
         "disable_any_whitespace"},
        {CHAT, TALK(",\"functions\":[]"), "functions"},
        {CHAT, TALK(",\"stop_token_ids\":7"), "stop_token_ids"},
        {CHAT, TALK(",\"stop_token_ids\":[\"7\"]"), "stop_token_ids"},
        {CHAT, TALK(",\"stop_token_ids\":[7],\"stop_words\":[[8]]"), "stop_token_ids"},
        {CHAT, TALK(",\"skip_special_tokens\":false"), "skip_special_tokens"},
        {CHAT, TALK(",\"include_stop_str_in_output\":true"), "include_stop_str_in_output"},
        {CHAT, TALK(",\"modalities\":[\"audio\"]"), "modalities"},
        {CHAT, TALK(",\"top_logprobs\":2"), "top_logprobs"},
        {CHAT, TALK(",\"logprobs\":5"), "logprobs"},
        {CHAT, TALK(",\"max_tokens\":0"), "max_tokens"},
        {EMBEDDING, "{\"model\":\"plain\",\"input\":\"x\"}", "model"},
        {EMBEDDING, "{\"model\":\"words\"}", "input"},
        {EMBEDDING, "{\"model\":\"words\",\"input\":\"x\",\"encoding_format\":\"int8\"}", "encoding_format"},
        {EMBEDDING, "{\"model\":\"words\",\"input\":\"x\",\"dimensions\":4}", "dimensions"},
        {EMBEDDING, "{\"model\":\"words\",\"input\":\"x\",\"pooling\":\"max\"}", "pooling"},
        {"/tokenize", "{\"model\":\"words\",\"prompt\":\"x\"}", "model"},
        {"/rerank", "{\"model\":\"words\",\"query\":\"x\",\"documents\":[\"y\"]}", "model"},
    };
    for (size_t i = 0; i < PROA_COUNT(bad); i++)
        expect(bad[i].path, bad[i].body, 400, "error.type", "invalid_request_error", "error.param",
               bad[i].param, "error.code", "", NULL);
    expect(COMPLETION, "{\"model\":\"none\",\"prompt\":\"x\"}", 404, "error.code", "model_not_found",
           "error.param", "model", "error.message", "The model 'none' does not exist", NULL);
}

static void test_failures(void **state)
{
    (void)state;
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"fail\"}", 400, "error.message", "no such thing",
           "error.type", "invalid_request_error", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"busy\"}", 429, "error.code", "rate_limit_exceeded",
           NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"broken\"}", 500, "error.type", "server_error",
           "error.message", "it broke", NULL);
    oai_answer a = post(COMPLETION, "{\"model\":\"words\",\"prompt\":\"busy\"}");
    assert_non_null(strstr(a.all, "\r\nRetry-After: 1\r\n"));
    oai_answer_free(&a);
    /* one of several fails: the others are cancelled, the answer is one error */
    int cancelled = atomic_load(&oai_cancelled);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":[\"hang\",\"hang\",\"fail\"]}", 400, "error.message",
           "no such thing", NULL);
    assert_true(oai_wait(&oai_cancelled, cancelled + 2));
    /* an error behind the first words: an event, then the end without [DONE] */
    a = post(COMPLETION, "{\"model\":\"words\",\"prompt\":\"late\",\"stream\":true}");
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"text\":\"a\""));
    assert_non_null(strstr(a.body, "data: {\"error\":{\"message\":\"it broke later\""));
    assert_null(strstr(a.body, "[DONE]"));
    oai_answer_free(&a);
    /* before them: a status */
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":\"broken\",\"stream\":true}", 500, "error.message",
           "it broke", NULL);
}

static void test_logprobs(void **state)
{
    (void)state;
    expect(COMPLETION, SAY(",\"logprobs\":2"), 200, "choices.0.logprobs.tokens", "[3]",
           "choices.0.logprobs.tokens.0", "a", "choices.0.logprobs.tokens.1", "bytes:\\x20\\xc3",
           "choices.0.logprobs.token_logprobs.2", "-0.75", "choices.0.logprobs.top_logprobs.0.z", "-0.5",
           "choices.0.logprobs.top_logprobs.2.z", "-1", "choices.0.logprobs.text_offset.1", "1",
           "choices.0.logprobs.text_offset.2", "3", NULL);
    /* the token itself, which is not among the two */
    expect(COMPLETION, SAY(",\"logprobs\":2"), 200, "choices.0.logprobs.top_logprobs.0.a", "-0.25", NULL);
    expect(COMPLETION, SAY(",\"logprobs\":0"), 200, "choices.0.logprobs.tokens", "[3]",
           "choices.0.logprobs.top_logprobs", "", NULL);
    expect(COMPLETION, SAY(",\"logprobs\":0,\"n\":2"), 200, "choices.1.logprobs.token_logprobs.1", "-0.5", NULL);
    expect(COMPLETION, SAY(",\"logprobs\":1,\"echo\":true,\"n\":2"), 200, "choices.1.logprobs.tokens", "[5]",
           "choices.1.logprobs.tokens.1", " q", "choices.0.logprobs.token_logprobs.0", "",
           "choices.0.logprobs.token_logprobs.1", "-0.5", "choices.0.logprobs.token_logprobs.2", "-0.25",
           "choices.0.logprobs.text_offset.2", "3", NULL);
    expect(COMPLETION, SAY(",\"logprobs\":1,\"echo\":true,\"max_tokens\":0"), 200, "choices.0.text", "x",
           "choices.0.logprobs.tokens", "[2]", "choices.0.finish_reason", "length", "usage.completion_tokens",
           "0", NULL);
    expect(COMPLETION, "{\"model\":\"words\",\"prompt\":[5,6],\"echo\":true,\"max_tokens\":0}", 200,
           "choices.0.text", "p q", NULL);
}

static void test_embeddings(void **state)
{
    (void)state;
    expect(EMBEDDING, "{\"model\":\"words\",\"input\":[\"x\",\"y\"]}", 200, "object", "list", "data", "[2]",
           "data.1.object", "embedding", "data.1.index", "1", "data.0.embedding.1", "0.8",
           "usage.prompt_tokens", "4", "usage.total_tokens", "4", NULL);
    expect(EMBEDDING, "{\"model\":\"words\",\"input\":[5,6],\"encoding_format\":\"base64\",\"dimensions\":3}",
           200, "data.0.embedding", "mpkZP83MTD8AAAAA", NULL);
}

/* ---- streams ---- */

/* The events of a stream; what stands behind "data: ", one a call. */
static const char *next_event(char **at)
{
    char *from = strstr(*at, "data: "), *end = from ? strstr(from, "\n\n") : NULL;
    if (!end) return NULL;
    *end = '\0';
    *at = end + 1;
    return from + 6;
}

static void expect_event(char **at, const char *path, const char *want)
{
    const char *text = next_event(at);
    oai_answer a = {0};
    assert_non_null(text);
    assert_int_equal(proa_json_parse(&a.json, proa_str_c(text), "event", NULL), PROA_OK);
    if (strcmp(oai_at(&a, path), want) != 0) fail_msg("%s is not '%s': %s", path, want, text);
    proa_json_free(a.json);
}

static void test_stream(void **state)
{
    (void)state;
    oai_answer a = post(COMPLETION, SAY(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    char *at = a.body;
    assert_non_null(strstr(a.all, "Content-Type: text/event-stream"));
    expect_event(&at, "choices.0.text", "a");
    expect_event(&at, "choices.0.text", " \xC3\xA9"); /* the second token had no whole character */
    expect_event(&at, "usage.completion_tokens", "3");
    assert_string_equal(next_event(&at), "[DONE]");
    assert_null(next_event(&at));
    oai_answer_free(&a);
    a = post(COMPLETION, SAY(",\"stream\":true,\"n\":2,\"logprobs\":0"));
    at = a.body;
    expect_event(&at, "choices.0.index", "0");
    expect_event(&at, "choices.0.index", "1");
    expect_event(&at, "choices.0.logprobs.token_logprobs.0", "-0.5");
    expect_event(&at, "choices.0.logprobs.text_offset.0", "1");
    expect_event(&at, "choices.0.finish_reason", "length");
    expect_event(&at, "choices.0.finish_reason", "length");
    assert_string_equal(next_event(&at), "[DONE]");
    oai_answer_free(&a);
}

static void test_chat(void **state)
{
    (void)state;
    expect(CHAT,
           TALK(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
                "\"tool_choice\":\"auto\",\"seed\":1"),
           200, "object", "chat.completion", "choices.0.message.role", "assistant", "choices.0.finish_reason",
           "stop",
           "choices.0.message.content", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}",
           NULL);
    expect(
        CHAT,
        TALK(",\"tools\":[{\"type\":\"function\",\"function\":{}}],\"tool_choice\":\"none\",\"chat_template_"
             "kwargs\":{\"a\":[1.5,true]},"
             "\"response_format\":{\"type\":\"text\"}"),
        200, "choices.0.message.content",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"a\":[1.5,true]}}",
        NULL);
    oai_answer a = post(CHAT, TALK(",\"stream\":true"));
    char *at = a.body;
    expect_event(&at, "choices.0.delta.role", "assistant");
    expect_event(&at, "choices.0.delta.content", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    expect_event(&at, "choices.0.finish_reason", "stop");
    assert_string_equal(next_event(&at), "[DONE]");
    oai_answer_free(&a);
}

static void test_plain(void **state)
{
    (void)state;
    expect(COMPLETION, "{\"model\":\"plain\",\"prompt\":\"hi\",\"max_tokens\":5}", 200, "choices.0.text",
           "hi max_tokens=5 stream=0 rank=2", "choices.0.finish_reason", "stop", NULL);
    oai_answer a = post(COMPLETION, "{\"model\":\"plain\",\"prompt\":\"hi\",\"stream\":true}");
    char *at = a.body;
    expect_event(&at, "choices.0.text", "hi max_tokens=16 stream=1 rank=2");
    expect_event(&at, "choices.0.finish_reason", "stop");
    assert_string_equal(next_event(&at), "[DONE]");
    oai_answer_free(&a);
}

/* ---- clients that leave ---- */

static void test_gone(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{\"model\":\"words\",\"prompt\":[\"hang\",\"hang\"]}",
                                         "{\"model\":\"words\",\"prompt\":\"hang\",\"stream\":true}"};
    for (int i = 0; i < 2; i++) {
        int cancelled = atomic_load(&oai_cancelled), count = 2 - i;
        int fd = oai_connect(&rig);
        oai_send(fd, "POST", COMPLETION, "", bodies[i]);
        assert_true(oai_wait(&oai_hanging, count));
        close(fd);
        assert_true(oai_wait(&oai_cancelled, cancelled + count));
        assert_true(oai_wait(&oai_hanging, 0));
    }
    for (int i = 0; i < 500 && proa_sinks_live() > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(proa_sinks_live(), 0);
}

/* Reads until what has come ends so, or the connection does. */
static void oai_until(int fd, char *bytes, size_t cap, size_t *got, const char *end)
{
    size_t len = strlen(end);
    for (ssize_t n; *got < cap && (n = read(fd, bytes + *got, cap - *got)) > 0;) {
        *got += (size_t)n;
        if (*got >= len && memcmp(bytes + *got - len, end, len) == 0) break;
    }
    bytes[*got] = 0;
}

/* A client that reads nothing: its request ends when 64 MiB wait for it, and behind these stands why. */
static void test_slow_reader(void **state)
{
    (void)state;
    int fd = oai_connect(&rig);
    oai_send(fd, "POST", COMPLETION, "", "{\"model\":\"words\",\"prompt\":\"flood\",\"stream\":true}");
    for (int i = 0; i < 6000 && (proa_sinks_live() > 0 || atomic_load(&oai_floods) == 0); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(proa_sinks_live(), 0);
    assert_in_range(atomic_load(&oai_floods), 60, 100);
    static const char why[] = "data: {\"error\":{\"message\":\"The client does not read its answers.\","
                              "\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n\r\n0\r\n\r\n";
    size_t cap = (size_t)2 * PROA_OPENAI_QUEUED_MAX, got = 0;
    char *bytes = malloc(cap + 1);
    oai_until(fd, bytes, cap, &got, "\r\n0\r\n\r\n");
    assert_in_range(got, PROA_OPENAI_QUEUED_MAX, PROA_OPENAI_QUEUED_MAX + (16 << 20));
    assert_true(got > sizeof why && strcmp(bytes + got - (sizeof why - 1), why) == 0);
    free(bytes);
    close(fd);
}

/* ---- keys ---- */

static void test_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"secret"};
    oai_rig locked;
    oai_start(&locked, keys, 1);
    oai_answer a = oai_ask(&locked, "POST", COMPLETION, "", SAY(""));
    assert_int_equal(a.status, 401);
    assert_string_equal(oai_at(&a, "error.code"), "invalid_api_key");
    oai_answer_free(&a);
    a = oai_ask(&locked, "POST", COMPLETION, "Authorization: Bearer secret\r\n", SAY(""));
    assert_int_equal(a.status, 200);
    oai_answer_free(&a);
    a = oai_ask(&locked, "GET", "/v1/models", "Authorization: Bearer wrong\r\n", "");
    assert_int_equal(a.status, 401);
    oai_answer_free(&a);
    oai_stop(&locked);
}

/* ---- the console ---- */

static void test_console(void **state)
{
    (void)state;
    static const char *const paths[][2] = {
        {"/", "text/html"}, {"/console/base.css", "text/css"}, {"/console/main.js", "text/javascript"}};
    oai_answer a;
    for (int i = 0; i < 3; i++) {
        a = oai_ask(&rig, "GET", paths[i][0], "", "");
        assert_int_equal(a.status, 200);
        assert_non_null(strstr(a.all, paths[i][1]));
        assert_non_null(strstr(a.all, "Content-Security-Policy: default-src 'none'"));
        assert_true(strlen(a.body) > 1000);
        oai_answer_free(&a);
    }
    a = oai_ask(&rig, "GET", "/figures", "", "");
    assert_int_equal(a.status, 200);
    assert_string_equal(oai_at(&a, "version"), PROA_VERSION);
    assert_string_equal(oai_at(&a, "models"), "[2]");
    assert_string_equal(oai_at(&a, "models.0.state"), "READY");
    oai_answer_free(&a);
    a = oai_ask(&rig, "GET", "/nothing", "", "");
    assert_int_equal(a.status, 404);
    oai_answer_free(&a);
}

/* The query of /figures/requests; what it refuses is named. */
static void test_recent_requests(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int status;
        const char *text;
    } cases[] = {{"/figures/requests", 200, "\"kept\":512,\"requests\":["},
                 {"/figures/requests?since=0", 200, "\"last\":"},
                 {"/figures/requests?since=999999999999999999", 200, "\"requests\":[]"},
                 {"/figures/requests?since=1999999999999999999", 400, "at most 18 digits"},
                 {"/figures/requests?since=", 400, "must be since=NUMBER"},
                 {"/figures/requests?since=1x", 400, "'since' is '1x', must be a number"},
                 {"/figures/requests?since=-1", 400, "'since' is '-1', must be a number"},
                 {"/figures/requests?sinc", 400, "the query is 'sinc'"},
                 {"/figures/requests/", 404, ""},
                 {"/console/", 404, ""},
                 {"/console/main.js/", 404, ""}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        oai_answer a = oai_ask(&rig, "GET", cases[i].path, "", "");
        assert_int_equal(a.status, cases[i].status);
        assert_non_null(strstr(a.body, cases[i].text));
        oai_answer_free(&a);
    }
}

static int start(void **state)
{
    (void)state;
    oai_start(&rig, NULL, 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    oai_stop(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_console),
        cmocka_unit_test(test_recent_requests),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
