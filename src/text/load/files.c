/* SPDX-License-Identifier: Apache-2.0
 * files.c - finds the tokenizer files of a model folder. The forms without tokenizer.json (vocab.txt; vocab.json with
 * merges.txt; tiktoken's ranks) are written as a tokenizer.json in memory and read as one, so that there is one reader.
 * A SentencePiece model, or subword-nmt's codes, may have a separate vocabulary: OpenNMT's vocab.txt, Marian's
 * vocab.json. */
#include "base/files.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <dirent.h>
#include <string.h>

typedef struct folder {
    const proa_files *files;
    proa_json *config;        /* proa_tokenizer_config_read; or NULL */
    char name[PROA_PATH_MAX]; /* of the file that is read, ... */
    char file[PROA_PATH_MAX]; /* ... and how errors call it */
    proa_err *err;
} folder;

static bool has_file(folder *f, const char *name)
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
    return found == 1 && has_file(f, name);
}

/* A SentencePiece model by its usual names, or else whatever its name is. */
static bool has_model(folder *f)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model", "sentencepiece.bpe.model"};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (has_file(f, names[i])) return true;
    return only_file(f, ".model");
}

/* subword-nmt's codes by their usual names, or as the only *.codes. */
static bool has_codes(folder *f)
{
    return has_file(f, "bpe.codes") || has_file(f, "bpecodes") || only_file(f, ".codes");
}

/* ---- a SentencePiece model, or codes, and their vocabulary ---- */

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

static proa_status open_written(proa_tokenizer **out, folder *f, const proa_buf *json)
{
    if (json->full)
        return PROA_FAIL(f->err, LIMIT, "'%s' is longer than %lld bytes", f->file,
                         (long long)PROA_TOKENIZER_BYTES_MAX);
    return proa_tokenizer_open_json(out, proa_buf_view(json), f->file, f->err);
}

/* subword-nmt's codes, whose file f names. */
static proa_status open_codes_file(proa_tokenizer **out, folder *f, const proa_piece_list *list)
{
    proa_buf lines, json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_files_read(&lines, f->files, f->name, PROA_BPE_CODES_BYTES_MAX, f->err);
    if (status == PROA_OK) {
        status = proa_bpe_codes_write(&json, proa_buf_view(&lines), list, f->err);
        if (status != PROA_OK) proa_err_prefix(f->err, "%s", f->file);
        else status = open_written(out, f, &json);
    }
    proa_buf_release(&lines);
    proa_buf_release(&json);
    return status;
}

typedef proa_status open_fn(proa_tokenizer **out, folder *f, const proa_piece_list *list);

/* Opens the file that f names with a vocabulary. */
static proa_status open_listed(proa_tokenizer **out, folder *f, const char *vocabulary, open_fn *open)
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
    if (status == PROA_OK) status = open(out, f, &list);
    proa_json_free(json);
    proa_buf_release(&text);
    proa_arena_release(&arena);
    return status;
}

/* The separate vocabulary of a file of pieces or codes; NULL: none. With merges.txt vocab.json is GPT-2's, and leads to
 * another tokenizer of the same folder. */
static const char *vocabulary_of(const folder *f)
{
    if (proa_files_has(f->files, "vocab.txt")) return "vocab.txt";
    return proa_files_has(f->files, "vocab.json") && !proa_files_has(f->files, "merges.txt") ? "vocab.json"
                                                                                             : NULL;
}

/* A .model file, named by f, and a vocabulary if there is one. */
static proa_status open_model(proa_tokenizer **out, folder *f)
{
    const char *vocabulary = vocabulary_of(f);
    return vocabulary ? open_listed(out, f, vocabulary, open_model_file) : open_model_file(out, f, NULL);
}

/* ---- what is written as a tokenizer.json ---- */

static proa_status open_vocab_txt(proa_tokenizer **out, folder *f)
{
    bool residues = proa_str_is(proa_json_str(proa_json_get(f->config, "tokenizer_class")), "EsmTokenizer");
    proa_buf lines, json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_files_read(&lines, f->files, f->name, PROA_TOKENIZER_BYTES_MAX, f->err);
    if (status == PROA_OK)
        status = (residues ? proa_residues_write : proa_wordpiece_write)(&json, proa_buf_view(&lines),
                                                                         f->config, f->err);
    if (status == PROA_OK) status = open_written(out, f, &json);
    proa_buf_release(&lines);
    proa_buf_release(&json);
    return status;
}

static proa_status open_bytes(proa_tokenizer **out, folder *f)
{
    proa_buf json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_bytes_write(&json, f->config, f->err);
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
    if (status == PROA_OK)
        status = proa_byte_bpe_write(&json, proa_buf_view(&vocab), proa_buf_view(&merges), f->config, f->err);
    if (status == PROA_OK) status = open_written(out, f, &json);
    proa_buf_release(&vocab);
    proa_buf_release(&merges);
    proa_buf_release(&json);
    return status;
}

static proa_status open_folder(proa_tokenizer **out, folder *f)
{
    if (has_file(f, "tokenizer.json")) return open_json_file(out, f);
    PROA_TRY(proa_tokenizer_config_read(&f->config, f->files, f->err));
    if (proa_files_has(f->files, "vocab.json") && has_file(f, "source.spm"))
        return open_listed(out, f, "vocab.json", open_model_file);
    if (vocabulary_of(f) && has_codes(f)) return open_listed(out, f, vocabulary_of(f), open_codes_file);
    if (has_model(f)) return open_model(out, f);
    if (only_file(f, ".tiktoken")) return open_model_file(out, f, NULL);
    if (has_file(f, "vocab.txt")) return open_vocab_txt(out, f);
    if (has_file(f, "merges.txt") && has_file(f, "vocab.json")) return open_byte_bpe(out, f);
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
