/* SPDX-License-Identifier: Apache-2.0
 * folder.c - the folder that a job writes, and the model's small files in it. */
#include "convert/folder.h"

#include "base/file.h"
#include "base/json.h"
#include "convert/outfile.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".proa-convert"
enum { MARK_BYTES_MAX = 256 };

static void mark_text(char text[MARK_BYTES_MAX], uint64_t key)
{
    snprintf(text, MARK_BYTES_MAX, "unfinished folder of proa convert, job %016llx\n", (unsigned long long)key);
}

/* ---- the folder ---- */

static bool has_name(const char *dir, const char *name)
{
    char path[PROA_PATH_MAX];
    return proa_path_join(path, dir, name, NULL) == PROA_OK && access(path, F_OK) == 0;
}

/* Whether the folder has no files. The mark of a run that was killed while it wrote it is none. */
static bool is_empty(const char *folder)
{
    static const char *const none[] = {".", "..", MARK ".partial"};
    bool empty = true;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && empty && (e = readdir(dir));) {
        empty = false;
        for (size_t i = 0; i < PROA_COUNT(none); i++) empty |= strcmp(e->d_name, none[i]) == 0;
    }
    if (dir) closedir(dir);
    return empty;
}

/* Files of an earlier model, which would be read in place of the new one. */
static bool is_model_file(const char *name)
{
    static const char *const endings[] = {
        ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".proa", ".partial",
        ".journal"};
    for (size_t i = 0; i < PROA_COUNT(endings); i++)
        if (proa_str_ends(proa_str_c(name), proa_str_c(endings[i]))) return true;
    return strcmp(name, "config.ini") == 0 || strcmp(name, "config.json") == 0;
}

static void remove_model(const char *folder)
{
    char path[PROA_PATH_MAX];
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (is_model_file(e->d_name) && proa_path_join(path, folder, e->d_name, NULL) == PROA_OK)
            unlink(path);
    if (dir) closedir(dir);
}

/* Whether the source is the folder to write, or in it: it would be written over while it is read. */
static bool holds_source(const proa_convert_job *job)
{
    char *in = realpath(job->in, NULL), *out = realpath(job->out, NULL);
    bool holds = in && out && proa_str_starts(proa_str_c(in), proa_str_c(out)) &&
                 (in[strlen(out)] == '/' || in[strlen(out)] == '\0');
    free(in);
    free(out);
    return holds;
}

static proa_status check_mark(const proa_convert_job *job, const char *path, const char *want, bool *same,
                              proa_err *err)
{
    proa_buf have;
    proa_status status = proa_file_read(&have, path, MARK_BYTES_MAX, err);
    *same = status == PROA_OK && proa_str_is(proa_buf_view(&have), want);
    proa_buf_release(&have);
    if (status != PROA_OK || *same || job->overwrite) return status;
    return PROA_FAIL(
        err, EXISTS,
        "'%s' was begun from another source or with other options: remove it, or use --overwrite", job->out);
}

static proa_status use_folder(const proa_convert_job *job, const char *mark, const char *want, proa_err *err)
{
    bool same = false;
    if (holds_source(job)) return PROA_FAIL(err, INVALID, "'%s' holds the source: name another", job->out);
    if (has_name(job->out, MARK)) PROA_TRY(check_mark(job, mark, want, &same, err));
    else if (!job->overwrite && !is_empty(job->out))
        return PROA_FAIL(err, EXISTS, "'%s' exists and is not empty: name another, or use --overwrite", job->out);
    if (!same) remove_model(job->out);
    return PROA_OK;
}

proa_status proa_out_folder_begin(const proa_convert_job *job, uint64_t key, proa_err *err)
{
    char mark[PROA_PATH_MAX], want[MARK_BYTES_MAX];
    mark_text(want, key);
    PROA_TRY(proa_path_join(mark, job->out, MARK, err));
    if (mkdir(job->out, 0777) != 0) {
        if (errno != EEXIST || !proa_dir_exists(job->out))
            return PROA_FAIL(err, IO, "cannot make the folder '%s': %s", job->out, strerror(errno));
        PROA_TRY(use_folder(job, mark, want, err));
    }
    return proa_outfile_put(mark, proa_str_c(want), err);
}

proa_status proa_out_folder_end(const proa_convert_job *job, proa_err *err)
{
    char mark[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(mark, job->out, MARK, err));
    if (unlink(mark) == 0 || errno == ENOENT) return PROA_OK;
    return PROA_FAIL(err, IO, "cannot remove '%s': %s", mark, strerror(errno));
}

/* ---- small files ---- */

/* What a model of Hugging Face has beside its weights. */
static const char *const small_files[] = {"generation_config.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "tokenizer.model",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "target_vocab.json",
                                          "merges.txt",
                                          "vocab.txt",
                                          "spiece.model",
                                          "sentencepiece.bpe.model",
                                          "sentencepiece.model",
                                          "source.spm",
                                          "target.spm",
                                          "ice_text.model",
                                          "chat_template.jinja",
                                          "chat_template.json",
                                          "modules.json",
                                          "sentence_bert_config.json",
                                          "config_sentence_transformers.json",
                                          "preprocessor_config.json",
                                          "processor_config.json",
                                          "LICENSE",
                                          "LICENSE.txt",
                                          "NOTICE"};

static proa_status copy_file(const proa_convert_job *job, const char *name, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf text;
    PROA_TRY(proa_path_join(path, job->out, name, err));
    proa_status status = proa_files_read(&text, job->files, name, PROA_TOKENIZER_BYTES_MAX, err);
    if (status == PROA_OK) status = proa_outfile_put(path, proa_buf_view(&text), err);
    proa_buf_release(&text);
    return status;
}

/* Tokenizers in Python, and vocabularies that only they read. */
static proa_status copy_by_ending(const proa_convert_job *job, proa_err *err)
{
    proa_status status = PROA_OK;
    DIR *dir = job->files->dir && !job->files->made_first ? opendir(job->files->dir) : NULL;
    for (struct dirent *e; dir && status == PROA_OK && (e = readdir(dir));) {
        proa_str name = proa_str_c(e->d_name);
        bool wanted = proa_str_ends(name, proa_str_c(".py")) || proa_str_ends(name, proa_str_c(".tiktoken"));
        if (wanted && proa_files_has(job->files, e->d_name)) status = copy_file(job, e->d_name, err);
    }
    if (dir) closedir(dir);
    return status;
}

proa_status proa_out_folder_copy_files(const proa_convert_job *job, proa_err *err)
{
    for (size_t i = 0; i < PROA_COUNT(small_files); i++)
        if (proa_files_has(job->files, small_files[i])) PROA_TRY(copy_file(job, small_files[i], err));
    return copy_by_ending(job, err);
}

/* ---- config.json ---- */

/* Of BitNet's layers the rows that they read are still rounded when their matrices are floats: those that its class for
 * trained layers multiplies as they are stored. */
static bool keep_rounded_inputs(proa_json *config)
{
    proa_json *quant = proa_json_get(config, "quantization_config");
    if (!proa_str_is(proa_json_str(proa_json_get(quant, "quant_method")), "bitnet")) return false;
    bool masters = proa_str_is(proa_json_str(proa_json_get(quant, "linear_class")), "autobitlinear") &&
                   proa_str_is(proa_json_str(proa_json_get(quant, "quantization_mode")), "online");
    if (masters) return true; /* they are written as they are stored */
    proa_json_put_str(quant, "linear_class", proa_str_c("autobitlinear"));
    proa_json_put_str(quant, "quantization_mode", proa_str_c("offline"));
    return true;
}

static void set_config(proa_json *config, const char *dtype, bool decoded)
{
    const char *key = proa_json_get(config, "dtype") ? "dtype" : "torch_dtype";
    if (dtype) proa_json_put_str(config, key, proa_str_c(dtype));
    if (keep_rounded_inputs(config) || !decoded) return;
    proa_json_remove(config, "quantization_config");
    proa_json_remove(config, "compression_config");
}

/* The config's member quantization_config. */
static proa_status put_quantised(proa_json *config, proa_str text, proa_err *err)
{
    proa_json *value;
    PROA_TRY(proa_json_parse(&value, text, "quantization_config", err));
    proa_json_remove(config, "quantization_config");
    proa_json_put(config, "quantization_config", value);
    return PROA_OK;
}

proa_status proa_out_folder_config(const proa_convert_job *job, const char *dtype, bool decoded,
                                   proa_str quantised, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_json *config = NULL;
    proa_buf text;
    PROA_TRY(proa_path_join(path, job->out, "config.json", err));
    PROA_TRY(proa_files_json(&config, job->files, "config.json", PROA_CONFIG_BYTES_MAX, err));
    proa_buf_init(&text, (size_t)(2 * PROA_CONFIG_BYTES_MAX));
    set_config(config, dtype, decoded);
    proa_status status = quantised.len ? put_quantised(config, quantised, err) : PROA_OK;
    proa_json_print(&text, config);
    proa_buf_char(&text, '\n');
    if (status == PROA_OK && text.full)
        status = PROA_FAIL(err, LIMIT, "config.json is longer than %lld bytes",
                           (long long)(2 * PROA_CONFIG_BYTES_MAX));
    if (status == PROA_OK) status = proa_outfile_put(path, proa_buf_view(&text), err);
    proa_buf_release(&text);
    proa_json_free(config);
    return status;
}
