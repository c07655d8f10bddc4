/* SPDX-License-Identifier: Apache-2.0
 * test_folders.c - tokenizers without a tokenizer.json: a SentencePiece model with a vocabulary beside it (OpenNMT,
 * Marian), and ByT5's bytes. */
#include "base/file.h"
#include "base/limits.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>

#define SPM PROA_SOURCE_DIR "/models/m30k-t5/spiece.model"

/* A folder with up to three files, removed with them. */
typedef struct folder {
    char path[64];
    const char *names[3];
    int count;
} folder;

static void put_file(folder *f, const char *name, const char *text, size_t len)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
    f->names[f->count++] = name;
}

static folder make_folder(void)
{
    folder f = {.path = "/tmp/proa-folders-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    return f;
}

static void put_spm(folder *f, const char *name)
{
    proa_buf bytes;
    assert_int_equal(proa_file_read(&bytes, SPM, PROA_SPM_BYTES_MAX, NULL), PROA_OK);
    put_file(f, name, bytes.ptr, bytes.len);
    proa_buf_release(&bytes);
}

static proa_status open_and_remove(proa_tokenizer **tok, const folder *f, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_status status = proa_tokenizer_open(tok, f->path, err);
    for (int i = 0; i < f->count; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, f->names[i]);
        unlink(path);
    }
    rmdir(f->path);
    return status;
}

static void assert_ids(const proa_tokenizer *tok, const char *text, const int32_t *want, int64_t n)
{
    proa_ids ids = {0};
    proa_err err = {0};
    if (proa_tokenizer_encode(tok, proa_str_c(text), true, &ids, &err) != PROA_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < ids.len && i < n; i++)
        if (ids.ptr[i] != want[i])
            fail_msg("'%s': id %d is %d, expected %d", text, (int)i, ids.ptr[i], want[i]);
    assert_int_equal(ids.len, n);
    proa_ids_release(&ids);
}

static void assert_text(const proa_tokenizer *tok, const int32_t *ids, int64_t n, bool skip, const char *want)
{
    proa_buf text;
    proa_buf_init(&text, 4096);
    assert_int_equal(proa_tokenizer_decode(tok, ids, n, skip, &text, NULL), PROA_OK);
    assert_string_equal(text.len ? text.ptr : "", want);
    proa_buf_release(&text);
}

/* The same pieces in reverse order, without one of them, and with two of its own: "<blank>" and "xyzzy". */
static void write_list(proa_buf *out, const proa_tokenizer *tok, const char *without, bool json)
{
    int32_t id = 2;
    proa_buf_init(out, 4 << 20);
    proa_buf_str(out, proa_str_c(json ? "{\"<blank>\":0,\"xyzzy\":1" : "<blank>\txx\nxyzzy\n"));
    for (int32_t i = proa_tokenizer_vocab(tok) - 1; i >= 0; i--) {
        proa_str piece = proa_tokenizer_token(tok, i);
        if (proa_str_is(piece, without)) continue;
        if (json) {
            proa_buf_char(out, ',');
            proa_buf_json_str(out, piece);
            proa_buf_printf(out, ":%d", id++);
        } else {
            proa_buf_str(out, piece);
            proa_buf_char(out, '\n');
        }
    }
    if (json) proa_buf_char(out, '}');
}

static void check_listed(bool json)
{
    static const char *const text = "A dog runs on the beach.";
    proa_tokenizer *plain, *listed;
    proa_ids ids = {0}, want = {0};
    proa_err err = {0};
    proa_buf list, bytes;
    int32_t unk = -1;
    assert_int_equal(proa_file_read(&bytes, SPM, PROA_SPM_BYTES_MAX, NULL), PROA_OK);
    assert_int_equal(proa_tokenizer_open_spm(&plain, bytes.ptr, bytes.len, "spm", &err), PROA_OK);
    assert_int_equal(proa_tokenizer_encode(plain, proa_str_c(text), false, &ids, &err), PROA_OK);
    proa_str lost = proa_tokenizer_token(plain, ids.ptr[1]);
    char without[64];
    snprintf(without, sizeof without, "%.*s", (int)lost.len, lost.ptr);
    write_list(&list, plain, without, json);
    folder f = make_folder();
    put_spm(&f, json ? "source.spm" : "sp.model");
    put_file(&f, json ? "vocab.json" : "vocab.txt", list.ptr, list.len);
    if (open_and_remove(&listed, &f, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(proa_tokenizer_vocab(listed), proa_tokenizer_vocab(plain) + 1);
    assert_true(proa_tokenizer_find(listed, proa_str_c("<unk>"), &unk));
    for (int64_t i = 0; i < ids.len; i++) {
        int32_t id = -1;
        bool found = proa_tokenizer_find(listed, proa_tokenizer_token(plain, ids.ptr[i]), &id);
        proa_ids_push(&want, found && id < proa_tokenizer_vocab(listed) ? id : unk);
    }
    assert_int_equal(want.ptr[1], unk);
    assert_ids(listed, text, want.ptr, want.len);
    assert_text(listed, (int32_t[]){0, want.ptr[0], 1}, 3, true, "Axyzzy");
    assert_true(proa_tokenizer_is_special(listed, 0));
    proa_ids_release(&ids);
    proa_ids_release(&want);
    proa_buf_release(&list);
    proa_buf_release(&bytes);
    proa_tokenizer_free(plain);
    proa_tokenizer_free(listed);
}

static void lists_of_pieces(void **state)
{
    PROA_UNUSED(state);
    check_listed(false);
    check_listed(true);
}

static void broken_lists(void **state)
{
    static const struct {
        const char *name, *text, *says;
    } bad[] = {{"vocab.txt", "<unk>\na\na\n", "entry 2 'a' of the vocabulary is there twice"},
               {"vocab.txt", "a\nb\n", "the vocabulary has no piece for what is unknown"},
               {"vocab.json", "{\"<unk>\":0,\"a\":2}", "the id of 'a' is not one of 0 to 1"},
               {"vocab.json", "{\"<unk>\":0,\"a\":0}", "the id of 'a' is not one of 0 to 1"},
               {"vocab.json", "[]", "vocab.json must be an object"},
               {"vocab.json", "{\"<unk>\":\"0\"}", "the id of '<unk>'"}};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        folder f = make_folder();
        put_spm(&f, "sp.model");
        put_file(&f, bad[i].name, bad[i].text, strlen(bad[i].text));
        assert_int_equal(open_and_remove(&tok, &f, &err), PROA_INVALID);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
}

/* The expected ids and texts are those of transformers 5.17's ByT5Tokenizer. */
static void bytes(void **state)
{
    static const char config[] = "{\"tokenizer_class\":\"ByT5Tokenizer\",\"extra_ids\":125}";
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    PROA_UNUSED(state);
    folder f = make_folder();
    put_file(&f, "tokenizer_config.json", config, strlen(config));
    if (open_and_remove(&tok, &f, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(proa_tokenizer_vocab(tok), 384);
    assert_ids(tok,
               "Gr\xC3\xBC\xC3\x9F"
               "e <extra_id_0>\n",
               (int32_t[]){74, 117, 198, 191, 198, 162, 104, 35, 259, 13, 1}, 11);
    assert_ids(tok, "", (int32_t[]){1}, 1);
    assert_ids(tok, "a</s>b", (int32_t[]){100, 1, 101, 1}, 4);
    assert_ids(tok, "\xE2\x82\xAC", (int32_t[]){229, 133, 175, 1}, 4);
    /* broken bytes are left out */
    const int32_t broken[] = {74, 198, 191, 258, 229, 133, 35, 260, 1};
    assert_text(tok, broken, 9, true, "G\xC3\xBC ");
    assert_text(tok, broken, 9, false, "G\xC3\xBC <extra_id_1></s>");
    proa_tokenizer_free(tok);
}

/* 256 lines of tiktoken, then more. */
static void write_ranks(proa_buf *out, const char *more)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    proa_buf_init(out, 1 << 16);
    for (int b = 0; b < 256; b++)
        proa_buf_printf(out, "%c%c== %d\n", digits[b >> 2], digits[(b & 3) << 4], b);
    proa_buf_str(out, proa_str_c(more));
}

static void broken_tiktoken(void **state)
{
    static const struct {
        const char *name, *more, *config, *says;
    } bad[] = {
        {"qwen.tiktoken", "YWI= 255\n", "{}", "token 'ab' has id 255, which another token has"},
        {"qwen.tiktoken", "YWI= 2097152\n", "{}", "token 'ab' has id 2097152, allowed is 0..2097151"},
        {"qwen.tiktoken", "YWI= \n", "{}", "line 257 is not a token in base64 and a rank"},
        {"qwen.tiktoken", "YWI=\n", "{}", "line 257 is not"},
        {"qwen.tiktoken", "YW-= 256\n", "{}", "line 257 is not"},
        {"qwen.tiktoken", "== 256\n", "{}", "line 257 is not"},
        {"qwen.tiktoken", "YWI= -1\n", "{}", "line 257 is not"},
        {"other.tiktoken", "", "{}", "does not say which encoding"},
        {"tokenizer.model", "", "{\"added_tokens_decoder\":{\"255\":{\"content\":\"<s>\"}}}",
         "token '<s>' has id 255"},
        {"tokenizer.model", "", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<s>\"}}}", "has the id 'x'"},
        {"tokenizer.model", "", "{\"added_tokens_decoder\":{\"256\":{\"content\":7}}}", "'content'"},
    };
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        proa_buf lines;
        folder f = make_folder();
        write_ranks(&lines, bad[i].more);
        put_file(&f, bad[i].name, lines.ptr, lines.len);
        put_file(&f, "tokenizer_config.json", bad[i].config, strlen(bad[i].config));
        if (open_and_remove(&tok, &f, &err) == PROA_OK) fail_msg("case %d opens", (int)i);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
        proa_buf_release(&lines);
    }
    proa_tokenizer *tok = NULL;
    proa_err err = {0};
    folder f = make_folder();
    put_file(&f, "qwen.tiktoken", "AA== 0\nAg== 1\n", 14);
    assert_int_equal(open_and_remove(&tok, &f, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "no token is the byte 0x01"));
}

static void broken_special_tokens(void **state)
{
    static const struct {
        const char *name, *text, *says;
    } bad[] = {{"added_tokens.json", "[]", "added_tokens.json is an array, an object is needed"},
               {"added_tokens.json", "{\"<x>\":-1}", "the id of '<x>' is not in"},
               {"added_tokens.json", "{\"<x>\":\"7\"}", "the id of '<x>' is not in"},
               {"added_tokens.json", "{\"<x>\":0}", "have the same id 0"},
               {"special_tokens_map.json", "{\"bos_token\":{\"content\":\"<s>\",\"lstrip\":1}}", "lstrip"},
               {"special_tokens_map.json", "{", "special_tokens_map.json"},
               {"tokenizer_config.json", "[1]", "tokenizer_config.json is an array"},
               {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"1x\":{}}}", "has the id '1x'"}};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        folder f = make_folder();
        put_file(&f, "vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}\n", 21);
        put_file(&f, "merges.txt", "a b\n", 4);
        put_file(&f, bad[i].name, bad[i].text, strlen(bad[i].text));
        if (open_and_remove(&tok, &f, &err) == PROA_OK) fail_msg("case %d opens", (int)i);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
}

static void broken_codes(void **state)
{
    static const struct {
        const char *vocab, *codes, *says;
    } bad[] = {{"<unk>\na\n", "a b\n", "before version 0.2"},
               {"<unk>\na\n", "#version: 0.1\na b\n", "before version 0.2"},
               {"<unk>\na\n", "#version: 0.2\nab\n", "line 2 is not two pieces"},
               {"<unk>\na\n", "#version: 0.2\n a\n", "line 2 is not two pieces"},
               {"a\n", "#version: 0.2\na b\n", "no piece <unk>"},
               {"<unk>\na\na\n", "#version: 0.2\na b\n", "entry 2 'a' of the vocabulary is there twice"}};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        folder f = make_folder();
        put_file(&f, "vocab.txt", bad[i].vocab, strlen(bad[i].vocab));
        put_file(&f, "my.codes", bad[i].codes, strlen(bad[i].codes));
        if (open_and_remove(&tok, &f, &err) == PROA_OK) fail_msg("case %d opens", (int)i);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
}

/* vocab.json: fairseq's four special tokens, then the other pieces of the file in their order. */
static void put_fairseq(folder *f)
{
    proa_tokenizer *plain;
    proa_buf bytes, list;
    int32_t id = 4;
    assert_int_equal(proa_file_read(&bytes, SPM, PROA_SPM_BYTES_MAX, NULL), PROA_OK);
    assert_int_equal(proa_tokenizer_open_spm(&plain, bytes.ptr, bytes.len, "spm", NULL), PROA_OK);
    proa_buf_init(&list, 4 << 20);
    proa_buf_str(&list, proa_str_c("{\"<s>\":0,\"<pad>\":1,\"</s>\":2,\"<unk>\":3"));
    for (int32_t i = 3; i < proa_tokenizer_vocab(plain); i++) { /* behind <pad>, </s>, <unk> */
        proa_buf_char(&list, ',');
        proa_buf_json_str(&list, proa_tokenizer_token(plain, i));
        proa_buf_printf(&list, ":%d", id++);
    }
    proa_buf_char(&list, '}');
    put_file(f, "vocab.json", list.ptr, list.len);
    proa_buf_release(&list);
    proa_buf_release(&bytes);
    proa_tokenizer_free(plain);
}

/* M2M100's languages and those of WMT21; the expected ids are those of transformers 5.17's M2M100Tokenizer. */
static void language_codes(void **state)
{
    static const struct {
        const char *config;
        int32_t size, language;
    } of[] = {{"{\"tokenizer_class\":\"M2M100Tokenizer\",\"src_lang\":\"am\"}", 8101, 8002},
              {"{\"tokenizer_class\":\"M2M100Tokenizer\",\"language_codes\":\"wmt21\"}", 8009, 8001},
              {"{\"tokenizer_class\":\"M2M100Tokenizer\",\"language_codes\":\"wmt21\",\"src_lang\":\"ja\"}",
               8009, 8004}};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(of); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        folder f = make_folder();
        put_spm(&f, "sentencepiece.bpe.model");
        put_file(&f, "tokenizer_config.json", of[i].config, strlen(of[i].config));
        put_fairseq(&f);
        if (open_and_remove(&tok, &f, &err) != PROA_OK) fail_msg("%s", err.text);
        assert_int_equal(proa_tokenizer_vocab(tok), of[i].size);
        const int32_t ids[] = {of[i].language, 8, 107, 773, 23, 18, 328, 4, 2};
        assert_ids(tok, "A dog runs on the beach.", ids, 9);
        assert_text(tok, ids, 9, true, "A dog runs on the beach.");
        proa_tokenizer_free(tok);
    }
}

static void broken_fairseq(void **state)
{
    static const struct {
        const char *config, *says;
    } bad[] = {{"{\"tokenizer_class\":\"MBartTokenizer\",\"src_lang\":\"xx_YY\"}",
                "the tokenizer has no token 'xx_YY'"},
               {"{\"tokenizer_class\":\"M2M100Tokenizer\"}", "M2M100's tokenizer needs vocab.json"},
               {"{\"tokenizer_class\":\"SeamlessM4TTokenizer\"}", "needs tokenizer.json"},
               {"{\"tokenizer_class\":\"CamembertTokenizer\"}", "there twice"}}; /* T5's model has <pad> itself */
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_tokenizer *tok = NULL;
        proa_err err = {0};
        folder f = make_folder();
        put_spm(&f, "sentencepiece.bpe.model");
        put_file(&f, "tokenizer_config.json", bad[i].config, strlen(bad[i].config));
        if (open_and_remove(&tok, &f, &err) == PROA_OK) fail_msg("case %d opens", (int)i);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_of_pieces),
                                       cmocka_unit_test(broken_lists),
                                       cmocka_unit_test(bytes),
                                       cmocka_unit_test(broken_tiktoken),
                                       cmocka_unit_test(broken_special_tokens),
                                       cmocka_unit_test(broken_codes),
                                       cmocka_unit_test(language_codes),
                                       cmocka_unit_test(broken_fairseq)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
