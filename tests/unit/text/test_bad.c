/* SPDX-License-Identifier: Apache-2.0
 * test_bad.c - broken and hostile tokenizer files: each is refused with one line that names the fault.
 * */
#include "base/file.h"
#include "base/limits.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define BPE(rest)    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}," rest "}"
#define MODEL(model) "{\"model\":" model "}"

static const struct {
    const char *json, *says;
} bad[] = {
    {"", "empty"},
    {"[]", "an object is needed"},
    {"{}", "an object is needed"},
    {"{\"model\":", ""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xFF\":0},\"merges\":[]}}", ""},
    {MODEL("7"), "an object is needed"},
    {MODEL("{\"type\":\"Magic\"}"), "'Magic' is not known"},
    {MODEL("{\"type\":7}"), "type"},
    {MODEL("{\"type\":\"BPE\"}"), "'vocab' is null"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}"), "'vocab' is"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0}}"), "'merges' is null"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"), "the id -1"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":99999999999},\"merges\":[]}"), "the id 99999999999"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}"), "string"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"), "the same id 0"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}"), "needs 'ab'"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a c\"]}"), "needs 'c'"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}"), "not a pair"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}"), "not a pair"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[{}]}"), "not a pair"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":3}"), "fuse_unk"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[[\"a\",\"a\"]],\"continuing_subword_"
           "prefix\":\"####\"}"),
     "shorter than"},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[]}"), "a list of pieces is needed"},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}"), "entry 0"},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}"), "entry 0"},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}"), ""},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0]],\"unk_id\":1}"), "unk_id"},
    {MODEL("{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"max_input_chars_per_word\":-1}"),
     "max_input_chars_per_word"},
    {BPE("\"normalizer\":7"), "normalizer: a step is"},
    {BPE("\"normalizer\":{\"type\":\"Nope\"}"), "type 'Nope' is not known"},
    {BPE("\"normalizer\":{\"type\":\"Sequence\"}"), "no list 'normalizers'"},
    {BPE("\"normalizer\":{\"type\":\"Replace\",\"content\":\"\"}"), "'pattern' has neither"},
    {BPE("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}"), "'content' is missing"},
    {BPE("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"),
     "regular expression"},
    {BPE("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a[^b]c]\"},\"content\":\"\"}"),
     "negated class"},
    {BPE("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a\"},\"content\":\"\"}"),
     "missing ']'"},
    {BPE("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}"), "at least 4"},
    {BPE("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AP//////\"}"),
     "says its trie has"},
    {BPE("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!!!!\"}"), "not base64"},
    {BPE("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Never\"}"),
     "'behavior' is 'Never'"},
    {BPE("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}"),
     "'prepend_scheme' is 'last'"},
    {BPE("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), "one character"},
    {BPE("\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}"), "length"},
    {BPE("\"decoder\":{\"type\":\"Strip\",\"start\":1}"), "'content' is missing"},
    {BPE("\"added_tokens\":{}"), "a list is needed"},
    {BPE("\"added_tokens\":[{\"id\":3}]"), "added_tokens[0]"},
    {BPE("\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]"), "-3"},
    {BPE("\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":1}]"), "lstrip"},
    {BPE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"C\"}}],"
         "\"pair\":[]}"),
     "allowed are A and B"},
    {BPE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}],"
         "\"pair\":[]}"),
     "Sequence B"},
    {BPE("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
         "\"pair\":[]}"),
     "no ids"},
    {BPE("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",7],\"cls\":[\"b\",1]}"),
     "outside the vocabulary"},
    {BPE("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":\"a\"}"), "'cls' is not"},
};

static void refuse(const char *json, size_t len, const char *says)
{
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    proa_status status = proa_tokenizer_open_json(&tok, (proa_str){json, len}, "t.json", &err);
    if (status == PROA_OK || !strstr(err.text, says) || !strstr(err.text, "t.json") || strchr(err.text, '\n')) {
        print_error("%.300s\ngives %d: '%s', expected '%s'\n", json, status, err.text, says);
        fail();
    }
    assert_null(tok);
}

static void test_refused(void **state)
{
    for (size_t i = 0; i < PROA_COUNT(bad); i++)
        refuse(bad[i].json, strlen(bad[i].json), i ? bad[i].says : "");
    (void)state;
}

/* Sequences deeper than the limit, more steps than allowed, ten million entries, a long pattern. */
static void test_huge(void **state)
{
    proa_buf b;
    proa_buf_init(&b, (size_t)PROA_TOKENIZER_BYTES_MAX + 100);
    proa_buf_str(&b, proa_str_c("{\"normalizer\":"));
    for (int i = 0; i < 20; i++) proa_buf_str(&b, proa_str_c("{\"type\":\"Sequence\",\"normalizers\":["));
    for (int i = 0; i < 20; i++) proa_buf_str(&b, proa_str_c("]}"));
    proa_buf_char(&b, '}');
    refuse(b.ptr, b.len, "nests deeper than 16");
    proa_buf_clear(&b);
    proa_buf_str(&b,
                 proa_str_c("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}"));
    for (int i = 0; i < 300; i++) proa_buf_str(&b, proa_str_c(",{\"type\":\"NFC\"}"));
    proa_buf_str(&b, proa_str_c("]}}"));
    refuse(b.ptr, b.len, "more than 256 steps");
    proa_buf_clear(&b);
    proa_buf_str(&b, proa_str_c("{\"model\":{\"type\":\"BPE\",\"merges\":[\"\""));
    for (int i = 0; i < 10000000; i++) proa_buf_str(&b, proa_str_c(",\"\""));
    proa_buf_str(&b, proa_str_c("]}}"));
    refuse(b.ptr, b.len, "");
    proa_buf_clear(&b);
    proa_buf_str(&b, proa_str_c("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\""));
    for (int i = 0; i < 70000; i++) proa_buf_char(&b, 'a');
    proa_buf_str(&b, proa_str_c("\"},\"behavior\":\"Removed\"}}"));
    refuse(b.ptr, b.len, "65536");
    proa_buf_release(&b);
    (void)state;
}

/* A pattern that would take exponential time ends with an error instead. */
static void test_slow_pattern(void **state)
{
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_"
                               "tokenizer\":{\"type\":\"Split\","
                               "\"pattern\":{\"Regex\":\"(?:a|aa)+[bc]\"},\"behavior\":\"Removed\"}}";
    proa_tokenizer *tok = NULL;
    proa_ids ids = {0};
    proa_err err = {0};
    char text[200];
    memset(text, 'a', sizeof text);
    assert_int_equal(proa_tokenizer_open_json(&tok, proa_str_c(json), "t", &err), PROA_OK);
    assert_int_equal(proa_tokenizer_encode(tok, (proa_str){text, sizeof text}, true, &ids, &err), PROA_LIMIT);
    assert_int_equal(ids.len, 0);
    proa_ids_release(&ids);
    proa_tokenizer_free(tok);
    (void)state;
}

/* ---- SentencePiece ---- */

static void refuse_spm(const void *bytes, size_t len)
{
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    proa_status status = proa_tokenizer_open_spm(&tok, bytes, len, "m.model", &err);
    if (status == PROA_OK) proa_tokenizer_free(tok);
    else assert_true(strstr(err.text, "m.model") && !strchr(err.text, '\n'));
}

/* The shipped model cut at many places, and with bytes changed: refused or opened, never a crash. */
static void test_spm(void **state)
{
    proa_buf b;
    proa_err err = {0};
    proa_tokenizer *tok = NULL;
    assert_int_equal(
        proa_file_read(&b, PROA_SOURCE_DIR "/models/m30k-t5/spiece.model", PROA_SPM_BYTES_MAX, &err), PROA_OK);
    assert_int_not_equal(proa_tokenizer_open_spm(&tok, b.ptr, b.len - 1, "m", &err), PROA_OK);
    assert_int_not_equal(proa_tokenizer_open_spm(&tok, b.ptr, 0, "m", NULL), PROA_OK);
    assert_int_not_equal(proa_tokenizer_open_spm(&tok, "\x0a\x00", 2, "m", NULL), PROA_OK);
    for (size_t n = 1; n < 200; n++) refuse_spm(b.ptr, n);
    for (size_t i = 0; i < 300; i++) {
        size_t at = i * 7919 % b.len;
        char old = b.ptr[at];
        b.ptr[at] = (char)(old ^ (1 << i % 8));
        refuse_spm(b.ptr, b.len);
        b.ptr[at] = old;
    }
    proa_buf_clear(&b); /* 20 million empty pieces: refused, without the memory that they would need */
    for (int i = 0; i < 20000000; i++) proa_buf_append(&b, "\x0a\x00", 2);
    err = (proa_err){0};
    assert_int_not_equal(proa_tokenizer_open_spm(&tok, b.ptr, b.len, "m", &err), PROA_OK);
    proa_buf_release(&b);
    (void)state;
}

/* ---- folders and texts ---- */

static void test_folder(void **state)
{
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    assert_int_equal(proa_tokenizer_open(&tok, PROA_SOURCE_DIR "/src", &err), PROA_NOT_FOUND);
    assert_non_null(strstr(err.text, "no tokenizer.json"));
    assert_int_equal(proa_tokenizer_open(&tok, "/no/such/folder", NULL), PROA_NOT_FOUND);
    (void)state;
}

static void test_text_too_long(void **state)
{
    proa_tokenizer *tok = NULL;
    proa_ids ids = {0};
    proa_err err = {0};
    size_t len = (size_t)PROA_TEXT_BYTES_MAX + 1;
    char *text = calloc(len, 1);
    assert_int_equal(proa_tokenizer_open_json(&tok, proa_str_c(BPE("\"version\":\"1.0\"")), "t", &err), PROA_OK);
    assert_int_equal(proa_tokenizer_encode(tok, (proa_str){text, len}, true, &ids, &err), PROA_LIMIT);
    proa_tokenizer_free(tok);
    free(text);
    (void)state;
}

/* Two rules that make 1,024 letters of one, and 1,000 tokens of a letter and a number: 1 GiB of 20 kB. */
static void test_growing_tokens(void **state)
{
    (void)state;
    char many[1025] = "";
    proa_buf json;
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    memset(many, 'a', 1024);
    proa_buf_init(&json, 1 << 20);
    proa_buf_str(&json, proa_str_c("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["));
    for (int i = 0; i < 2; i++)
        proa_buf_printf(&json, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
                        i ? "," : "", many);
    proa_buf_str(&json, proa_str_c("]},\"added_tokens\":["));
    for (int i = 0; i < 1000; i++) proa_buf_printf(&json, "%s{\"content\":\"a%d\"}", i ? "," : "", i);
    proa_buf_str(&json,
                 proa_str_c("],\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}"));
    assert_int_equal(proa_tokenizer_open_json(&tok, proa_buf_view(&json), "test", &err), PROA_LIMIT);
    assert_non_null(strstr(err.text, "added_tokens: more than 134217728 bytes"));
    proa_buf_release(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_tokens), cmocka_unit_test(test_refused), cmocka_unit_test(test_huge),
        cmocka_unit_test(test_slow_pattern),   cmocka_unit_test(test_spm),     cmocka_unit_test(test_folder),
        cmocka_unit_test(test_text_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
