/* SPDX-License-Identifier: Apache-2.0
 * config.c - reads a configuration from its file or from JSON, fills placeholders, and completes it. */
#include "serve/config/config.h"

#include "base/file.h"
#include "base/limits.h"
#include "proto/pbtxt.h"
#include "proto/proto_json.h"
#include <string.h>

static bool starts_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Length of the name at s[at..]; 0 if there is none. */
static size_t name_length(proa_str s, size_t at)
{
    size_t end = at;
    if (at >= s.len || !starts_name(s.ptr[at])) return 0;
    while (end < s.len && (starts_name(s.ptr[end]) || (s.ptr[end] >= '0' && s.ptr[end] <= '9'))) end++;
    return end - at;
}

/* The placeholder whose $ is at s[at]: its name, and its whole length. False if it is none. */
static bool find_placeholder(proa_str s, size_t at, proa_str *name, size_t *length)
{
    bool braces = at + 1 < s.len && s.ptr[at + 1] == '{';
    size_t begin = at + 1 + braces, n = name_length(s, begin);
    if (n == 0 || (braces && (begin + n >= s.len || s.ptr[begin + n] != '}'))) return false;
    *name = (proa_str){s.ptr + begin, n};
    *length = 1 + n + (braces ? 2 : 0);
    return true;
}

static const char *fill_of(proa_str name, const proa_setting *fills, int count)
{
    for (int i = count - 1; i >= 0; i--) /* the last --set of a name counts */
        if (proa_str_is(name, fills[i].key)) return fills[i].value;
    return NULL;
}

void proa_config_fill(proa_buf *out, proa_str text, const proa_setting *fills, int fills_count)
{
    for (size_t at = 0; at < text.len;) {
        const char *dollar = memchr(text.ptr + at, '$', text.len - at);
        size_t plain = dollar ? (size_t)(dollar - text.ptr) - at : text.len - at, length = 1;
        proa_str name = {"", 0};
        proa_buf_append(out, text.ptr + at, plain);
        at += plain;
        if (!dollar) return;
        const char *value = NULL;
        if (at + 1 < text.len && text.ptr[at + 1] == '$') value = "$", length = 2;
        else if (find_placeholder(text, at, &name, &length)) value = fill_of(name, fills, fills_count);
        if (value) proa_buf_str(out, proa_str_c(value));
        else proa_buf_append(out, text.ptr + at, length);
        at += length;
    }
}

/* What to say where the text did not parse, if a placeholder may be the reason. */
static void hint_at_placeholder(proa_str text, proa_err *err)
{
    proa_str name;
    size_t length;
    if (!err || !strstr(err->text, "found '$'")) return;
    for (size_t at = 0; at < text.len; at++) {
        if (text.ptr[at] != '$' || !find_placeholder(text, at, &name, &length)) continue;
        proa_err old = *err;
        proa_err_clear(err);
        (void)proa_err_set(err, old.status, old.file, old.line, "%s (--set %.*s=VALUE fills this placeholder)",
                           old.text, (int)(name.len < 64 ? name.len : 64), name.ptr);
        return;
    }
}

/* configs/NAME.pbtxt if that is requested and exists, else config.pbtxt. */
static proa_status find_file(char *path, const char *model_path, const char *config_name, proa_err *err)
{
    if (config_name && config_name[0]) {
        int n = snprintf(path, PROA_PATH_MAX, "%s/configs/%s.pbtxt", model_path, config_name);
        if (n < 0 || n >= PROA_PATH_MAX) return PROA_FAIL(err, INVALID, "path too long: %s", model_path);
        if (proa_file_exists(path)) return PROA_OK;
    }
    return proa_path_join(path, model_path, "config.pbtxt", err);
}

static proa_status parse_config(Inference__ModelConfig **out, proa_str text, const char *path,
                                proa_arena *arena, proa_err *err)
{
    char what[PROA_PATH_MAX + 32];
    ProtobufCMessage *m = NULL;
    snprintf(what, sizeof what, "failed to read text proto from %s", path);
    proa_status status = proa_pbtxt_parse(&m, &inference__model_config__descriptor, text, what, arena, err);
    *out = (Inference__ModelConfig *)m;
    if (status != PROA_OK) hint_at_placeholder(text, err);
    return status;
}

static proa_status read_config_file(Inference__ModelConfig **out, bool *provided, const char *model_path,
                                    const proa_config_options *options, proa_arena *arena, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_buf text, filled;
    *provided = false;
    *out = NULL;
    PROA_TRY(find_file(path, model_path, options->config_name, err));
    if (!proa_file_exists(path)) {
        if (options->no_auto_complete)
            return PROA_FAIL(err, INTERNAL, "failed to open text file for read %s: No such file or directory",
                             path);
        *out = (Inference__ModelConfig *)proa_message_new(&inference__model_config__descriptor, arena);
        return PROA_OK;
    }
    *provided = true;
    proa_buf_init(&filled, (size_t)PROA_PBTXT_BYTES_MAX +
                               1); /* one more, so that the parser reports a text that is too long */
    proa_status status = proa_file_read(&text, path, PROA_PBTXT_BYTES_MAX, err);
    if (status == PROA_OK && options->fills_count > 0) {
        proa_config_fill(&filled, proa_buf_view(&text), options->fills, options->fills_count);
        if (filled.full)
            status = PROA_FAIL(err, LIMIT, "%s: too long after its placeholders were filled", path);
    }
    if (status == PROA_OK)
        status = parse_config(out, proa_buf_view(options->fills_count > 0 ? &filled : &text), path, arena, err);
    proa_buf_release(&text);
    proa_buf_release(&filled);
    return status;
}

static proa_status config_from_json(Inference__ModelConfig **out, proa_str json, proa_arena *arena, proa_err *err)
{
    ProtobufCMessage *m = NULL;
    proa_status status = proa_proto_json_parse(&m, &inference__model_config__descriptor, json,
                                               "Invalid config override", arena, err);
    *out = (Inference__ModelConfig *)m;
    if (status == PROA_OK) return PROA_OK;
    if (err) err->status = PROA_INVALID; /* broken JSON is the caller's fault here, not a corrupt file */
    return PROA_INVALID;
}

proa_status proa_config_not_provided(const Inference__ModelConfig *config, proa_err *err)
{
    return PROA_FAIL(err, NOT_FOUND, "model configuration is not provided for model '%s'", config->name);
}

proa_status proa_config_load(Inference__ModelConfig **out, bool *provided, const proa_config_place *place,
                             const proa_config_options *options, proa_arena *arena, proa_err *err)
{
    bool have = true;
    *out = NULL;
    Inference__ModelConfig *config = NULL;
    if (place->json) PROA_TRY(config_from_json(&config, proa_str_c(place->json), arena, err));
    else PROA_TRY(read_config_file(&config, &have, place->path, options, arena, err));
    if (provided) *provided = have;
    PROA_TRY(proa_config_find_backend(config, place->name, place->path, arena, err));
    proa_config_normalise(config, arena);
    PROA_TRY(proa_config_check(config, err));
    PROA_TRY(proa_config_check_names(config, options->external_paths, err));
    if (options->no_auto_complete) PROA_TRY(proa_config_check_io(config, err));
    if (strcmp(config->name, place->name) != 0)
        return PROA_FAIL(
            err, INVALID, "unexpected directory name '%s' for model '%s', directory name must equal model name",
            place->name, config->name);
    *out = config;
    return PROA_OK;
}

proa_status proa_config_finish(Inference__ModelConfig *config, const proa_config_options *options,
                               proa_arena *arena, proa_err *err)
{
    proa_config_normalise(config, arena);
    proa_config_normalise_groups(config, options, arena);
    PROA_TRY(proa_config_check(config, err));
    PROA_TRY(proa_config_check_names(config, options->external_paths, err));
    PROA_TRY(proa_config_check_io(config, err));
    return proa_config_check_groups(config, options, err);
}

bool proa_config_print_json(proa_buf *out, const Inference__ModelConfig *config)
{
    /* the three whose numbers Triton leaves in quotes */
    static const char *const quoted[] = {"Shape", "SecondaryDevice", "InitialState", NULL};
    return proa_proto_json_print(out, &config->base, quoted);
}
