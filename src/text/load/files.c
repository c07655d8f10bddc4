/* SPDX-License-Identifier: Apache-2.0
 * files.c - finds the tokenizer files of a model folder. The old forms without tokenizer.json
 * (vocab.txt; vocab.json with merges.txt) are written as a tokenizer.json in memory and read as one, so
 * that there is one reader. A SentencePiece model may have its vocabulary beside it: OpenNMT's vocab.txt, Marian's
 * vocab.json. ByT5 has no file of its own: its tokens are bytes. */
#include "base/files.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <dirent.h>
#include <string.h>

typedef struct folder {
    const proa_files *files;
    proa_json *config;        /* tokenizer_config.json, or NULL */
    char name[PROA_PATH_MAX]; /* of the file that is read, ... */
    char file[PROA_PATH_MAX]; /* ... and how errors call it */
    proa_err *err;
} folder;

bool proa_next_line(proa_str *rest, proa_str *line)
{
    if (rest->len == 0) return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    *line = (proa_str){rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = line->len + (end ? 1 : 0);
    *rest = (proa_str){rest->ptr + used, rest->len - used};
    if (line->len && line->ptr[line->len - 1] == '\r') line->len--;
    return true;
}

static bool has(folder *f, const char *name)
{
    snprintf(f->name, sizeof f->name, "%s", name);
    proa_files_name(f->file, f->files, name);
    return proa_files_has(f->files, name);
}

static proa_status open_json_file(proa_tokenizer **out, folder *f)
{
    proa_buf text;
    proa_status status = proa_files_read(&text, f->files, f->name, PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK) status = proa_tokenizer_open_json(out, proa_buf_view(&text), f->file, f->err);
    proa_buf_release(&text);
    return status;
}

/* A SentencePiece model, or the lines of tiktoken under such a name. */
static proa_status open_model_file(proa_tokenizer **out, folder *f, const proa_piece_list *list)
{
    proa_buf bytes;
    proa_status status = proa_files_read(&bytes, f->files, f->name, PROA_SPM_BYTES_MAX, f->err);
    if (status == PROA_OK && proa_tiktoken_is(proa_buf_view(&bytes)))
        status = proa_tokenizer_open_tiktoken(out, proa_buf_view(&bytes), f->name, f->file, f->config, f->err);
    else if (status == PROA_OK)
        status = proa_tokenizer_open_model(out, bytes.ptr, bytes.len, f->file, f->config, list, f->err);
    proa_buf_release(&bytes);
    return status;
}

/* The only file of the folder with this ending; false if there is none, or more than one. */
static bool only_file(folder *f, const char *ending)
{
    DIR *dir = f->files->dir ? opendir(f->files->dir) : NULL;
    int found = 0;
    char name[PROA_PATH_MAX] = "";
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!proa_str_ends(proa_str_c(e->d_name), proa_str_c(ending))) continue;
        snprintf(name, sizeof name, "%s", e->d_name);
        found++;
    }
    if (dir) closedir(dir);
    return found == 1 && has(f, name);
}

/* A SentencePiece model by its usual names, or else whatever its name is. */
static bool has_model(folder *f)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model", "sentencepiece.bpe.model"};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (has(f, names[i])) return true;
    return only_file(f, ".model");
}

/* ---- writing a tokenizer.json ---- */

static void write_token(proa_buf *out, proa_str content, bool *first)
{
    if (content.len == 0) return;
    proa_buf_str(out, proa_str_c(*first ? "" : ","));
    proa_buf_str(out, proa_str_c("{\"special\":true,\"content\":"));
    proa_buf_json_str(out, content);
    proa_buf_char(out, '}');
    *first = false;
}

/* The special tokens that the configuration names, or else the usual ones; then its additional ones, or that many
 * sentinels of T5. */
static void write_added(folder *f, proa_buf *out, const char *const (*names)[2], int64_t sentinels)
{
    char sentinel[32];
    bool first = true;
    proa_buf_str(out, proa_str_c("{\"added_tokens\":["));
    for (; (*names)[0]; names++) {
        proa_str token = proa_config_token(f->config, (*names)[0]);
        write_token(out, token.len ? token : proa_str_c((*names)[1]), &first);
    }
    const proa_json *more = proa_json_get(f->config, "additional_special_tokens");
    for (int64_t i = 0; proa_json_kind(more) == PROA_JSON_ARRAY && i < proa_json_len(more); i++)
        write_token(out, proa_json_str(proa_json_at(more, i)), &first);
    for (int64_t i = 0; proa_json_len(more) == 0 && i < sentinels; i++) {
        snprintf(sentinel, sizeof sentinel, "<extra_id_%lld>", (long long)i);
        write_token(out, proa_str_c(sentinel), &first);
    }
    proa_buf_str(out, proa_str_c("],"));
}

static const char *flag(const folder *f, const char *key, const char *fallback)
{
    const proa_json *j = proa_json_get(f->config, key);
    return proa_json_kind(j) != PROA_JSON_BOOL ? fallback : proa_json_bool(j) ? "true" : "false";
}

/* ---- a SentencePiece model and its vocabulary ---- */

/* vocab.txt: a piece on each line, what follows a tab (a count) is left out. */
static proa_status list_lines(proa_piece_list *list, proa_str text, proa_arena *arena, proa_err *err)
{
    proa_str line, rest = text;
    int64_t n = 0;
    while (proa_next_line(&rest, &line)) n++;
    if (n > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "vocab.txt has %lld lines, at most %d are allowed", (long long)n,
                         PROA_VOCAB_MAX);
    proa_str *pieces = PROA_ARENA_NEW(arena, proa_str, n);
    for (int64_t i = 0; proa_next_line(&text, &line); i++) {
        const char *tab = memchr(line.ptr, '\t', line.len);
        pieces[i] = (proa_str){line.ptr, tab ? (size_t)(tab - line.ptr) : line.len};
    }
    *list = (proa_piece_list){pieces, (int32_t)n};
    return PROA_OK;
}

/* vocab.json: {"piece": id, ...} with all ids from 0 on. */
static proa_status list_json(proa_piece_list *list, const proa_json *json, proa_arena *arena, proa_err *err)
{
    int64_t n = proa_json_len(json);
    if (proa_json_kind(json) != PROA_JSON_OBJECT || n < 1 || n > PROA_VOCAB_MAX)
        return PROA_FAIL(err, INVALID, "vocab.json must be an object of 1 to %d pieces", PROA_VOCAB_MAX);
    proa_str *pieces = PROA_ARENA_NEW(arena, proa_str, n);
    for (proa_json_iter it = proa_json_begin(json); proa_json_next(&it);) {
        int64_t id = proa_json_kind(it.value) == PROA_JSON_INT ? proa_json_int(it.value) : -1;
        if (id < 0 || id >= n || pieces[id].ptr)
            return PROA_FAIL(err, INVALID, "vocab.json: the id of '%.*s' is not one of 0 to %lld, each once",
                             it.key.len > 40 ? 40 : (int)it.key.len, it.key.ptr, (long long)n - 1);
        pieces[id] = it.key;
    }
    *list = (proa_piece_list){pieces, (int32_t)n};
    return PROA_OK;
}

/* f names the model's file. */
static proa_status open_listed(proa_tokenizer **out, folder *f, const char *vocabulary)
{
    proa_arena arena;
    proa_buf text = {0};
    proa_json *json = NULL;
    proa_piece_list list;
    bool lines = proa_str_ends(proa_str_c(vocabulary), proa_str_c(".txt"));
    proa_arena_init(&arena);
    proa_status status = proa_files_read(&text, f->files, vocabulary, PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK && !lines)
        status = proa_json_parse(&json, proa_buf_view(&text), vocabulary, f->err);
    if (status == PROA_OK)
        status = lines ? list_lines(&list, proa_buf_view(&text), &arena, f->err)
                       : list_json(&list, json, &arena, f->err);
    if (status == PROA_OK) status = open_model_file(out, f, &list);
    proa_json_free(json);
    proa_buf_release(&text);
    proa_arena_release(&arena);
    return status;
}

/* A .model file, named by f, and a vocabulary if there is one. With merges.txt vocab.json is GPT-2's, and leads to
 * another tokenizer of the same folder. */
static proa_status open_model(proa_tokenizer **out, folder *f)
{
    if (proa_files_has(f->files, "vocab.txt")) return open_listed(out, f, "vocab.txt");
    if (proa_files_has(f->files, "vocab.json") && !proa_files_has(f->files, "merges.txt"))
        return open_listed(out, f, "vocab.json");
    return open_model_file(out, f, NULL);
}

/* ---- vocab.txt alone ---- */

static int64_t line_of(proa_str text, proa_str wanted)
{
    proa_str line;
    for (int64_t i = 0; proa_next_line(&text, &line); i++)
        if (proa_str_eq(line, wanted)) return i;
    return -1;
}

/* vocab.txt: BERT's, one piece a line, the id is the line. */
static void write_wordpiece(folder *f, proa_str lines, proa_buf *out)
{
    static const char *const names[][2] = {{"unk_token", "[UNK]"},   {"sep_token", "[SEP]"},
                                           {"pad_token", "[PAD]"},   {"cls_token", "[CLS]"},
                                           {"mask_token", "[MASK]"}, {NULL, NULL}};
    proa_str cls = proa_config_token(f->config, "cls_token"), sep = proa_config_token(f->config, "sep_token");
    proa_str unk = proa_config_token(f->config, "unk_token"), line, rest = lines;
    int64_t cls_id = line_of(lines, cls.len ? cls : proa_str_c("[CLS]"));
    int64_t sep_id = line_of(lines, sep.len ? sep : proa_str_c("[SEP]"));
    write_added(f, out, names, 0);
    proa_buf_printf(
        out,
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":%s,\"handle_chinese_chars\":%s,"
        "\"strip_accents\":%s},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},",
        flag(f, "do_lower_case", "true"), flag(f, "tokenize_chinese_chars", "true"),
        flag(f, "strip_accents", "null"));
    if (cls_id >= 0 && sep_id >= 0)
        proa_buf_printf(
            out, "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"\",%lld],\"cls\":[\"\",%lld]},",
            (long long)sep_id, (long long)cls_id);
    proa_buf_str(out, proa_str_c("\"model\":{\"type\":\"WordPiece\",\"unk_token\":"));
    proa_buf_json_str(out, unk.len ? unk : proa_str_c("[UNK]"));
    proa_buf_str(out, proa_str_c(",\"vocab\":{"));
    for (int64_t i = 0; proa_next_line(&rest, &line); i++) {
        if (i) proa_buf_char(out, ',');
        proa_buf_json_str(out, line);
        proa_buf_printf(out, ":%lld", (long long)i);
    }
    proa_buf_str(out, proa_str_c("}}}"));
}

/* RoBERTa and its variants put special tokens around texts; vocab.json has the ids. */
static void write_roberta(folder *f, proa_str vocab, proa_buf *out)
{
    static const char *const classes[] = {"Roberta", "Longformer", "Bart", "LED", NULL};
    proa_json *pieces = NULL;
    if (!proa_config_adds(f->config, "", classes) || proa_json_parse(&pieces, vocab, "vocab.json", NULL) != PROA_OK)
        return;
    const proa_json *cls = proa_json_get(pieces, "<s>"), *sep = proa_json_get(pieces, "</s>");
    if (cls && sep)
        proa_buf_printf(
            out, "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"\",%lld],\"cls\":[\"\",%lld]},",
            (long long)proa_json_int(sep), (long long)proa_json_int(cls));
    proa_json_free(pieces);
}

/* vocab.json with merges.txt: GPT-2's byte-level BPE. */
static void write_byte_bpe(folder *f, proa_str vocab, proa_str merges, proa_buf *out)
{
    static const char *const names[][2] = {{"bos_token", ""},  {"eos_token", ""}, {"unk_token", ""},
                                           {"sep_token", ""},  {"pad_token", ""}, {"cls_token", ""},
                                           {"mask_token", ""}, {NULL, NULL}};
    proa_str line;
    write_added(f, out, names, 0);
    write_roberta(f, vocab, out);
    proa_buf_printf(out,
                    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s},"
                    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":",
                    flag(f, "add_prefix_space", "false"));
    proa_buf_str(out, vocab);
    proa_buf_str(out, proa_str_c(",\"merges\":["));
    for (bool first = true; proa_next_line(&merges, &line);) {
        if (line.len == 0 || proa_str_starts(line, proa_str_c("#version"))) continue;
        if (!first) proa_buf_char(out, ',');
        proa_buf_json_str(out, line);
        first = false;
    }
    proa_buf_str(out, proa_str_c("]}}"));
}

/* ByT5 (Xue et al. 2022): pad, end and unknown, then the 256 bytes, then sentinels; a text ends with the end token. A
 * byte is the character that GPT-2 writes for it. Broken characters are left out, as transformers' tokenizer does. */
static const char byt5_steps[] =
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xEF\xBF\xBD\"},\"content\":\"\"}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\","
    "\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"end\"}}],"
    "\"pair\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"end\"}},"
    "{\"Sequence\":{\"id\":\"B\"}},{\"SpecialToken\":{\"id\":\"end\"}}],"
    "\"special_tokens\":{\"end\":{\"ids\":[1]}}},"
    "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{";

static proa_status write_bytes(folder *f, proa_buf *out)
{
    static const char *const names[][2] = {
        {"pad_token", "<pad>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {NULL, NULL}};
    int64_t sentinels = 125;
    PROA_TRY(proa_json_get_int(&sentinels, f->config, "extra_ids", 0, 10000, f->err));
    write_added(f, out, names, sentinels);
    proa_buf_str(out, proa_str_c(byt5_steps));
    for (int i = 0; i < 3; i++) {
        proa_str token = proa_config_token(f->config, names[i][0]);
        proa_buf_json_str(out, token.len ? token : proa_str_c(names[i][1]));
        proa_buf_printf(out, ":%d,", i);
    }
    for (int b = 0; b < 256; b++) {
        char bytes[4];
        int n = proa_utf8_encode(proa_byte_to_char((unsigned char)b), bytes);
        proa_buf_json_str(out, (proa_str){bytes, (size_t)n});
        proa_buf_printf(out, ":%d%s", 3 + b, b < 255 ? "," : "}}}");
    }
    return PROA_OK;
}

static proa_status open_written(proa_tokenizer **out, folder *f, const proa_buf *json)
{
    if (json->full)
        return PROA_FAIL(f->err, LIMIT, "'%s' is longer than %lld bytes", f->file,
                         (long long)PROA_TOKENIZER_BYTES_MAX);
    return proa_tokenizer_open_json(out, proa_buf_view(json), f->file, f->err);
}

static proa_status open_wordpiece(proa_tokenizer **out, folder *f)
{
    proa_buf lines, json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_files_read(&lines, f->files, f->name, PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK) {
        write_wordpiece(f, proa_buf_view(&lines), &json);
        status = open_written(out, f, &json);
    }
    proa_buf_release(&lines);
    proa_buf_release(&json);
    return status;
}

static proa_status open_bytes(proa_tokenizer **out, folder *f)
{
    proa_buf json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = write_bytes(f, &json);
    if (status == PROA_OK) status = open_written(out, f, &json);
    proa_buf_release(&json);
    return status;
}

static proa_status open_byte_bpe(proa_tokenizer **out, folder *f)
{
    proa_buf vocab, merges = {0}, json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_files_read(&vocab, f->files, f->name, PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK)
        status = proa_files_read(&merges, f->files, "merges.txt", PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK) {
        write_byte_bpe(f, proa_buf_view(&vocab), proa_buf_view(&merges), &json);
        status = open_written(out, f, &json);
    }
    proa_buf_release(&vocab);
    proa_buf_release(&merges);
    proa_buf_release(&json);
    return status;
}

static proa_status open_folder(proa_tokenizer **out, folder *f)
{
    if (has(f, "tokenizer.json")) return open_json_file(out, f);
    if (has(f, "tokenizer_config.json"))
        PROA_TRY(proa_files_json(&f->config, f->files, f->name, PROA_CONFIG_BYTES_MAX, f->err));
    if (proa_files_has(f->files, "vocab.json") && has(f, "source.spm"))
        return open_listed(out, f, "vocab.json");
    if (has_model(f)) return open_model(out, f);
    if (only_file(f, ".tiktoken")) return open_model_file(out, f, NULL);
    if (has(f, "vocab.txt")) return open_wordpiece(out, f);
    if (has(f, "merges.txt") && has(f, "vocab.json")) return open_byte_bpe(out, f);
    if (proa_str_is(proa_json_str(proa_json_get(f->config, "tokenizer_class")), "ByT5Tokenizer"))
        return open_bytes(out, f);
    return PROA_FAIL(
        f->err, NOT_FOUND,
        "'%s' has no tokenizer: no tokenizer.json, no single *.model or *.tiktoken, no vocab.txt, "
        "no vocab.json with merges.txt, no ByT5Tokenizer in tokenizer_config.json",
        f->files->what  ? f->files->what
        : f->files->dir ? f->files->dir
                        : "the model");
}

proa_status proa_tokenizer_open(proa_tokenizer **out, const char *path, proa_err *err)
{
    proa_files files = proa_files_of(path);
    return proa_tokenizer_open_files(out, &files, err);
}

proa_status proa_tokenizer_open_files(proa_tokenizer **out, const proa_files *files, proa_err *err)
{
    folder f = {.files = files, .err = err};
    proa_status status = open_folder(out, &f);
    proa_json_free(f.config);
    return status;
}
