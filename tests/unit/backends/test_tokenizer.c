/* SPDX-License-Identifier: Apache-2.0
 * test_tokenizer.c - the native preprocessing and postprocessing: the tensors of both generations of the Python models,
 * lists of words, biases, and the way back; malformed tensors are refused. */
#include "rig.h"

#include "backends/tensors/word_lists.h"

#define CLASSICS              MODELS "classics-10m"
#define PARAMETER(key, value) "parameters { key: \"" key "\" value { string_value: \"" value "\" } } "
#define UINT(name, dims)      "{ name: \"" name "\" data_type: TYPE_UINT32 dims: " dims " }"
#define INT(name, dims)       "{ name: \"" name "\" data_type: TYPE_INT32 dims: " dims " }"
#define TEXT(name, dims)      "{ name: \"" name "\" data_type: TYPE_STRING dims: " dims " }"

static proa_tokenizer *tok;

static int open_tokenizer(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {.status = PROA_OK};
    if (proa_tokenizer_open(&tok, CLASSICS, &err) != PROA_OK) fail_msg("%s", err.text);
    return 0;
}

static int close_tokenizer(void **state)
{
    PROA_UNUSED(state);
    proa_tokenizer_free(tok);
    return 0;
}

static proa_ids ids_of(const char *text, bool special)
{
    proa_ids ids = {0};
    assert_int_equal(proa_tokenizer_encode(tok, proa_str_c(text), special, &ids, NULL), PROA_OK);
    return ids;
}

static void put_rows_of_text(proa_infer *r, const char *name, const char *const *texts, int64_t rows, int64_t each)
{
    put_texts(r, name, texts, rows * each, 2, (int64_t[]){rows, each});
}

/* A list of words [row] as ids: word w must be `text`. */
static void assert_word(const proa_reply *reply, const char *name, int64_t row, int64_t w, const char *text)
{
    const proa_tensor *t = out(reply, name);
    int64_t width = t->shape[2];
    const int32_t *ids = ints(reply, name) + row * 2 * width, *ends = ids + width;
    proa_ids want = ids_of(text, false);
    int64_t begin = w ? ends[w - 1] : 0;
    assert_int_equal(ends[w] - begin, want.len);
    assert_memory_equal(ids + begin, want.ptr, (size_t)want.len * 4);
    proa_ids_release(&want);
}

static void assert_no_word(const proa_reply *reply, const char *name, int64_t row, int64_t w)
{
    int64_t width = out(reply, name)->shape[2];
    if (w < width) assert_int_equal(ints(reply, name)[row * 2 * width + width + w], -1);
}

static void the_newer_generation(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"It was a dark and stormy night", "The sea"};
    static const char *const stops[] = {".", " the end", "", "."};
    rig g;
    rig_open(&g, &proa_backend_tokenizer, PARAMETER("add_special_tokens", "false"), CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", texts, 2, 1);
    put(r, "REQUEST_OUTPUT_LEN", PROA_TYPE_INT32, (const int32_t[]){16, 32}, 8, 2, (int64_t[]){2, 1});
    put_rows_of_text(r, "STOP_WORDS_DICT", stops, 2, 2);
    const void *sent = r->inputs[1].data;
    const proa_reply *reply = only(run(&g, r));
    proa_ids a = ids_of(texts[0], false), b = ids_of(texts[1], false);
    assert_shape(reply, "INPUT_ID", 2, 2, a.len, 0);
    assert_memory_equal(ints(reply, "INPUT_ID"), a.ptr, (size_t)a.len * 4);
    assert_memory_equal(ints(reply, "INPUT_ID") + a.len, b.ptr, (size_t)b.len * 4);
    for (int64_t i = b.len; i < a.len; i++)
        assert_int_equal(ints(reply, "INPUT_ID")[a.len + i], ints(reply, "OUT_PAD_ID")[1]);
    assert_int_equal(ints(reply, "REQUEST_INPUT_LEN")[0], a.len);
    assert_int_equal(ints(reply, "REQUEST_INPUT_LEN")[1], b.len);
    assert_ptr_equal(ints(reply, "REQUEST_OUTPUT_LEN"), sent); /* passed on, not copied */
    assert_word(reply, "STOP_WORDS_IDS", 0, 0, ".");
    assert_word(reply, "STOP_WORDS_IDS", 0, 1, " the end");
    assert_word(reply, "STOP_WORDS_IDS", 1, 0, "."); /* the empty one is no word */
    assert_no_word(reply, "STOP_WORDS_IDS", 1, 1);
    assert_shape(reply, "BAD_WORDS_IDS", 3, 2, 2, 0);
    assert_shape(reply, "EMBEDDING_BIAS", 2, 2, 0, 0);
    assert_shape(reply, "OUT_END_ID", 2, 2, 1, 0);
    assert_int_equal(ints(reply, "OUT_END_ID")[1], 2);
    assert_int_equal(ints(reply, "DECODER_INPUT_ID")[0], ints(reply, "OUT_PAD_ID")[0]);
    assert_int_equal(ints(reply, "REQUEST_DECODER_INPUT_LEN")[0], 1);
    proa_ids_release(&a), proa_ids_release(&b);
    forget(r);
    rig_close(&g);
}

static void biases_and_given_ids(void **state)
{
    PROA_UNUSED(state);
    static const char *const words[] = {" sea", " sea", " ship"};
    const float weights[] = {1.5f, 1.0f, -2.0f};
    rig g;
    rig_open(&g, &proa_backend_tokenizer, PARAMETER("add_special_tokens", "0"), CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", (const char *const[]){"a"}, 1, 1);
    put_rows_of_text(r, "EMBEDDING_BIAS_WORDS", words, 1, 3);
    put(r, "EMBEDDING_BIAS_WEIGHTS", PROA_TYPE_FP32, weights, 12, 2, (int64_t[]){1, 3});
    put(r, "END_ID", PROA_TYPE_INT32, (const int32_t[]){77}, 4, 2, (int64_t[]){1, 1});
    put_rows_of_text(r, "DECODER_QUERY", (const char *const[]){"The sea"}, 1, 1);
    const proa_reply *reply = only(run(&g, r));
    proa_ids sea = ids_of(" sea", false), ship = ids_of(" ship", false), decoder = ids_of("The sea", false);
    assert_shape(reply, "EMBEDDING_BIAS", 2, 1, 8192, 0);
    assert_int_equal(sea.len, 1);
    assert_true(floats(reply, "EMBEDDING_BIAS")[sea.ptr[0]] == 2.5f);
    assert_true(floats(reply, "EMBEDDING_BIAS")[ship.ptr[0]] == -2.0f);
    assert_int_equal(ints(reply, "OUT_END_ID")[0], 77);
    assert_memory_equal(ints(reply, "DECODER_INPUT_ID"), decoder.ptr, (size_t)decoder.len * 4);
    proa_ids_release(&sea), proa_ids_release(&ship), proa_ids_release(&decoder);
    forget(r);
    rig_close(&g);
}

#define OLDER                                                                                                                                                                         \
    "max_batch_size: 128 input [" TEXT("QUERY", "[-1]") "," TEXT("BAD_WORDS_DICT", "[-1]") "," TEXT(                                                                                  \
        "STOP_WORDS_DICT",                                                                                                                                                            \
        "[-1]") "," UINT("REQUEST_OUTPUT_LEN",                                                                                                                                        \
                         "[-1]") "] output [" UINT("INPUT_ID", "[-1]") "," UINT("REQUEST_INPUT_LEN",                                                                                  \
                                                                                "[1]") "," INT("BAD_WORDS_"                                                                           \
                                                                                               "IDS",                                                                                 \
                                                                                               "[2,-1]") "," INT("STOP_WORDS_IDS",                                                    \
                                                                                                                 "[2,-1]") "," UINT("REQUEST_OUTPUT_LEN",                             \
                                                                                                                                    "[-1]") "," UINT("PROMPT_LEARNING_TASK_NAME_IDS", \
                                                                                                                                                     "[1]") "] "

/* FasterTransformer's: unsigned ids, and words as one line of CSV. */
static void the_older_generation(void **state)
{
    PROA_UNUSED(state);
    static const char *const bad[] = {"Hawks, Hawks,\"a,b\",\"say \"\"no\"\"\"", ""};
    rig g;
    rig_open(&g, &proa_backend_tokenizer, OLDER, CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", (const char *const[]){"The sea", "It was a dark"}, 2, 1);
    put_rows_of_text(r, "BAD_WORDS_DICT", bad, 2, 1);
    put_rows_of_text(r, "STOP_WORDS_DICT", (const char *const[]){"", ""}, 2, 1);
    put(r, "REQUEST_OUTPUT_LEN", PROA_TYPE_UINT32, (const uint32_t[]){24, 24}, 8, 2, (int64_t[]){2, 1});
    const proa_reply *reply = only(run(&g, r));
    assert_int_equal(out(reply, "INPUT_ID")->type, PROA_TYPE_UINT32);
    assert_word(reply, "BAD_WORDS_IDS", 0, 0, "Hawks");
    assert_word(reply, "BAD_WORDS_IDS", 0, 1, " Hawks");
    assert_word(reply, "BAD_WORDS_IDS", 0, 2, "a,b");
    assert_word(reply, "BAD_WORDS_IDS", 0, 3, "say \"no\"");
    assert_no_word(reply, "BAD_WORDS_IDS", 0, 4);
    assert_no_word(reply, "BAD_WORDS_IDS", 1, 0);
    assert_shape(reply, "STOP_WORDS_IDS", 3, 2, 2, 1);
    assert_no_word(reply, "STOP_WORDS_IDS", 0, 0);
    assert_int_equal(ints(reply, "PROMPT_LEARNING_TASK_NAME_IDS")[1], 0);
    assert_null(proa_reply_output(reply, "OUT_END_ID"));
    forget(r);
    rig_close(&g);
}

static void small_names_of_the_t5_encoder(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tokenizer,
             "max_batch_size: 4 input [" TEXT("query", "[-1]") "] output [" UINT("input_ids", "[-1]") "," UINT(
                 "request_input_len", "[1]") "] " PARAMETER("tokenizer_dir", "../m30k-t5"),
             CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "query", (const char *const[]){"A dog runs."}, 1, 1);
    const proa_reply *reply = only(run(&g, r));
    assert_int_equal(ints(reply, "request_input_len")[0], out(reply, "input_ids")->shape[1]);
    forget(r);
    rig_close(&g);
}

/* ---- the way back ---- */

static void texts_come_back(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"It was a dark and stormy night", "The caf\xc3\xa9 by the sea"};
    rig g;
    rig_open(&g, &proa_backend_detokenizer, "", CLASSICS);
    int32_t tokens[2][2][24], lengths[2][2];
    for (int i = 0; i < 4; i++) {
        proa_ids ids = ids_of(texts[i % 2], i < 2);
        lengths[i / 2][i % 2] = (int32_t)ids.len;
        for (int k = 0; k < 24; k++) tokens[i / 2][i % 2][k] = k < ids.len ? ids.ptr[k] : k % 2 ? -1 : 2;
        proa_ids_release(&ids);
    }
    proa_infer *r = ask();
    put(r, "TOKENS_BATCH", PROA_TYPE_INT32, tokens, sizeof tokens, 3, (int64_t[]){2, 2, 24});
    put(r, "SEQUENCE_LENGTH", PROA_TYPE_INT32, lengths, sizeof lengths, 2, (int64_t[]){2, 2});
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "OUTPUT", 1, 4, 0, 0); /* one after the other: rank 1, as the Python model gives it */
    for (int i = 0; i < 4; i++) assert_text(reply, "OUTPUT", i, texts[i % 2]);
    forget(r);
    lengths[1][1] = 25;
    r = ask();
    put(r, "TOKENS_BATCH", PROA_TYPE_INT32, tokens, sizeof tokens, 3, (int64_t[]){2, 2, 24});
    put(r, "SEQUENCE_LENGTH", PROA_TYPE_INT32, lengths, sizeof lengths, 2, (int64_t[]){2, 2});
    assert_refused(&g, r, PROA_INVALID, "SEQUENCE_LENGTH");
    rig_close(&g);
    rig_open(
        &g, &proa_backend_detokenizer,
        "max_batch_size: 8 input [" UINT("TOKENS_BATCH", "[-1,-1]") "," INT("RESPONSE_INPUT_LENGTHS", "[-1]") ",{ name: \"CUM_LOG_PROBS\" data_type: TYPE_FP32 dims: [-1] }] output [" TEXT(
            "OUTPUT", "[-1,-1]") ",{ name: \"OUT_CUM_LOG_PROBS\" data_type: TYPE_FP32 dims: [-1] "
                                 "}] " PARAMETER("skip_special_tokens", "true"),
        CLASSICS);
    r = ask();
    put(r, "TOKENS_BATCH", PROA_TYPE_UINT32, tokens, sizeof tokens, 3, (int64_t[]){2, 2, 24});
    put(r, "RESPONSE_INPUT_LENGTHS", PROA_TYPE_INT32, lengths, sizeof lengths, 2, (int64_t[]){2, 2});
    put(r, "CUM_LOG_PROBS", PROA_TYPE_FP32, (const float[]){1, 2, 3, 4}, 16, 2, (int64_t[]){2, 2});
    reply = only(run(&g, r));
    assert_text(reply, "OUTPUT", 3, texts[1]); /* padding is special, so it is not in the text */
    assert_true(floats(reply, "OUT_CUM_LOG_PROBS")[3] == 4);
    forget(r);
    rig_close(&g);
}

/* Tokens of a stream, one by one: spaces stay, and characters of several tokens join at the client. */
static void continuations(void **state)
{
    PROA_UNUSED(state);
    for (int model = 0; model < 2; model++) {
        const char *folder = model ? MODELS "m30k-t5" : CLASSICS,
                   *text = model ? "Ein Hund l\xc3\xa4uft ." : "a \xf0\x9f\x90\x8b at sea";
        proa_tokenizer *own = NULL;
        proa_ids ids = {0};
        rig g;
        char joined[256] = "";
        assert_int_equal(proa_tokenizer_open(&own, folder, NULL), PROA_OK);
        assert_int_equal(proa_tokenizer_encode(own, proa_str_c(text), false, &ids, NULL), PROA_OK);
        rig_open(&g, &proa_backend_detokenizer, PARAMETER("continuation", "true"), folder);
        for (int64_t i = 0; i < ids.len; i++) {
            proa_infer *r = ask();
            put(r, "TOKENS_BATCH", PROA_TYPE_INT32, &ids.ptr[i], 4, 3, (int64_t[]){1, 1, 1});
            put(r, "SEQUENCE_LENGTH", PROA_TYPE_INT32, (const int32_t[]){1}, 4, 2, (int64_t[]){1, 1});
            proa_str piece = text_at(only(run(&g, r)), "OUTPUT", 0);
            strncat(joined, piece.ptr, piece.len);
            forget(r);
        }
        assert_string_equal(joined[0] == ' ' ? joined + 1 : joined, text);
        rig_close(&g);
        proa_ids_release(&ids);
        proa_tokenizer_free(own);
    }
}

/* ---- what is wrong ---- */

static void refusals(void **state)
{
    PROA_UNUSED(state);
    rig g;
    assert_int_equal(rig_try(&g, &proa_backend_tokenizer, PARAMETER("tokenizer_dir", "nowhere"), CLASSICS),
                     PROA_NOT_FOUND);
    rig_release(&g);
    assert_int_equal(rig_try(&g, &proa_backend_tokenizer, PARAMETER("add_special_tokens", "perhaps"), CLASSICS),
                     PROA_INVALID);
    rig_release(&g);
    rig_open(&g, &proa_backend_tokenizer, "", CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", (const char *const[]){"a"}, 1, 1);
    put_rows_of_text(r, "EMBEDDING_BIAS_WORDS", (const char *const[]){"a", "b"}, 1, 2);
    put(r, "EMBEDDING_BIAS_WEIGHTS", PROA_TYPE_FP32, (const float[]){1}, 4, 2, (int64_t[]){1, 1});
    assert_refused(&g, r, PROA_INVALID, "same dimension");
    rig_close(&g);
}

/* Lists of words from outside: whatever they hold, they are read or refused. */
static void word_lists(void **state)
{
    PROA_UNUSED(state);
    const struct {
        int32_t n[8];
        int64_t count;
        int32_t words; /* -1: refused */
    } cases[] = {{{5, 6, 7, 0, 1, 3, -1, -1}, 8, 2},
                 {{0, -1}, 2, 0},
                 {{5, 6, 2, 1}, 4, -1},
                 {{5, 6, 3, -1}, 4, -1},
                 {{5, 6, -2, -1}, 4, -1},
                 {{-5, 6, 2, -1}, 4, -1},
                 {{5, 6, 0, 2}, 4, 1},
                 {{5, 6, 7}, 3, -1},
                 {{5, 6, 1, 1}, 4, 1}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_arena arena;
        proa_words words;
        proa_err err = {.status = PROA_OK};
        proa_tensor t = {.name = "w", .type = PROA_TYPE_INT32, .rank = 1, .shape = {cases[i].count}};
        t.data = (const void *)cases[i].n;
        t.bytes = (size_t)cases[i].count * 4;
        proa_arena_init(&arena);
        proa_status status = proa_words_read(&words, (proa_tensor_row){&t, 0, 1}, &arena, &err);
        if ((status != PROA_OK) != (cases[i].words < 0)) fail_msg("case %zu: %s", i, err.text);
        if (status == PROA_OK) assert_int_equal(words.count, cases[i].words);
        proa_arena_release(&arena);
    }
}

/* A request of many rows, on one thread and on three: each row has the ids of its text alone. */
static void many_rows(const char *config)
{
    enum { ROWS = 61 };
    char text[ROWS][120];
    const char *texts[ROWS];
    rig g;
    rig_open(&g, &proa_backend_tokenizer, config, CLASSICS);
    for (int i = 0; i < ROWS; i++) {
        snprintf(text[i], sizeof text[i], "It was night %d, %.*s", i * i, i,
                 "and the ship lay still in a calm and shining sea");
        texts[i] = text[i];
    }
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", texts, ROWS, 1);
    const proa_reply *reply = only(run(&g, r));
    int64_t width = out(reply, "INPUT_ID")->shape[1], longest = 0;
    for (int i = 0; i < ROWS; i++) {
        proa_ids want = ids_of(texts[i], false);
        assert_int_equal(ints(reply, "REQUEST_INPUT_LEN")[i], want.len);
        assert_memory_equal(ints(reply, "INPUT_ID") + i * width, want.ptr, (size_t)want.len * 4);
        longest = want.len > longest ? want.len : longest;
        proa_ids_release(&want);
    }
    assert_int_equal(width, longest);
    forget(r);
    rig_close(&g);
}

static void rows_of_several_threads(void **state)
{
    PROA_UNUSED(state);
    many_rows(PARAMETER("add_special_tokens", "false") PARAMETER("threads", "1"));
    many_rows(PARAMETER("add_special_tokens", "false") PARAMETER("threads", "3"));
}

/* The error is that of the first row that fails, whichever thread finds one. */
static void a_row_that_fails(void **state)
{
    PROA_UNUSED(state);
    enum { ROWS = 40 };
    const char *texts[ROWS];
    size_t long_bytes[2] = {PROA_TEXT_BYTES_MAX + 7, PROA_TEXT_BYTES_MAX + 3};
    char *too_long[2];
    rig g;
    for (int i = 0; i < 2; i++) {
        too_long[i] = proa_calloc(long_bytes[i] + 1, 1);
        memset(too_long[i], 'a', long_bytes[i]);
    }
    for (int i = 0; i < ROWS; i++) texts[i] = i == 9 ? too_long[0] : i == 30 ? too_long[1] : "sea";
    rig_open(&g, &proa_backend_tokenizer, PARAMETER("threads", "3"), CLASSICS);
    proa_infer *r = ask();
    put_rows_of_text(r, "QUERY", texts, ROWS, 1);
    char want[80];
    snprintf(want, sizeof want, "text has %zu bytes", long_bytes[0]);
    assert_refused(&g, r, PROA_LIMIT, want);
    rig_close(&g);
    free(too_long[0]), free(too_long[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newer_generation),
        cmocka_unit_test(biases_and_given_ids),
        cmocka_unit_test(the_older_generation),
        cmocka_unit_test(small_names_of_the_t5_encoder),
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(continuations),
        cmocka_unit_test(rows_of_several_threads),
        cmocka_unit_test(a_row_that_fails),
        cmocka_unit_test(refusals),
        cmocka_unit_test(word_lists),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
