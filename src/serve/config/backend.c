/* SPDX-License-Identifier: Apache-2.0
 * backend.c - finds the backend of a model from its configuration and files. */
#include "base/checked.h"
#include "base/file.h"
#include "base/limits.h"
#include "serve/config/config.h"
#include <dirent.h>
#include <string.h>

/* What a file in the version's folder, a platform and a backend say about each other; the first row that fits
 * counts. */
typedef struct row {
    const char *backend, *platform, *file;
    enum { FILE_ONLY, FOLDER_ONLY, EITHER } kind;
} row;
static const row rows[] = {
    {"tensorflow", "tensorflow_savedmodel", "model.savedmodel", FOLDER_ONLY},
    {"tensorflow", "tensorflow_graphdef", "model.graphdef", FILE_ONLY},
    {"tensorrt", "tensorrt_plan", "model.plan", FILE_ONLY},
    {"onnxruntime", "onnxruntime_onnx", "model.onnx", EITHER},
    {"openvino", "", "model.xml", EITHER},
    {"pytorch", "pytorch_libtorch", "model.pt", FILE_ONLY},
    {"pytorch", "torch_aoti", "model.pt2", FILE_ONLY},
    {"python", "", "model.py", EITHER},
};

bool proa_config_version_folder(const char *folder, int64_t *version)
{
    int64_t value = 0;
    if (!folder[0] || (folder[0] == '0' && folder[1])) return false;
    for (const char *c = folder; *c; c++)
        if (*c < '0' || *c > '9' || !proa_mul(value, 10, &value) || !proa_add(value, *c - '0', &value))
            return false;
    *version = value;
    return true;
}

bool proa_config_is_gguf_file(const char *path)
{
    return proa_str_ends(proa_str_c(path), proa_str_c(".gguf")) && !proa_dir_exists(path) &&
           proa_file_exists(path);
}

/* Files by which a model's folder is known: "*" begins an ending. */
enum {
    CONFIG = 1,
    SAFETENSORS = 2,
    TORCH = 4,
    GGUF = 8,
    INI = 16,
    FT = 32,
    PT = 64,
    PIECES = 128,
    PACKED = 256
};
static const struct {
    const char *name;
    unsigned is;
} known_files[] = {
    {"config.json", CONFIG},
    {"*.safetensors", SAFETENSORS},
    {"pytorch_model.bin", TORCH},
    {"*.gguf", GGUF},
    {"model.proa", PACKED},
    {"config.ini", INI},
    {"pytorch_model.bin.index.json", TORCH},
    {"model.wte.bin", FT},
    {"shared.weight_T.bin", FT},
    {"*.pt", PT},
    {"*.model", PIECES},
};
/* What is a model: weights of Hugging Face, packed ones, GGUF, FasterTransformer, OpenNMT-py (a .pt alone may be a
 * TorchScript). */
static const unsigned model_forms[] = {CONFIG | SAFETENSORS, CONFIG | TORCH, CONFIG | PACKED, GGUF, INI | FT,
                                       PT | PIECES};

static unsigned known_file(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(known_files); i++) {
        const char *pattern = known_files[i].name;
        bool same = pattern[0] == '*' ? proa_str_ends(proa_str_c(name), proa_str_c(pattern + 1))
                                      : strcmp(name, pattern) == 0;
        if (same) return known_files[i].is;
    }
    return 0;
}

bool proa_config_is_model_folder(const char *path)
{
    unsigned has = 0;
    bool found = false;
    if (proa_config_is_gguf_file(path)) return true;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) has |= known_file(entry->d_name);
    if (folder) closedir(folder);
    for (size_t i = 0; i < PROA_COUNT(model_forms); i++) found |= (has & model_forms[i]) == model_forms[i];
    return found;
}

/* The folder of the lowest version, or false. */
static bool first_version(char *path, const char *model_path)
{
    char name[PROA_PATH_MAX];
    int64_t best = -1, version;
    DIR *folder = opendir(model_path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!proa_config_version_folder(entry->d_name, &version) || (best >= 0 && version >= best)) continue;
        if (proa_path_join(name, model_path, entry->d_name, NULL) != PROA_OK || !proa_dir_exists(name))
            continue;
        best = version;
        memcpy(path, name, sizeof name);
    }
    if (folder) closedir(folder);
    return best >= 0;
}

static bool has_file(const char *version_path, const row *r)
{
    char path[PROA_PATH_MAX];
    if (proa_path_join(path, version_path, r->file, NULL) != PROA_OK) return false;
    return (r->kind != FOLDER_ONLY && proa_file_exists(path)) || (r->kind != FILE_ONLY && proa_dir_exists(path));
}

/* Does the configuration without a backend name this row? */
static bool row_fits(const Inference__ModelConfig *c, const row *r, const char *version_path)
{
    if (r->platform[0] && strcmp(c->platform, r->platform) == 0) return true;
    if (strcmp(c->default_model_filename, r->file) == 0) return true;
    return !c->platform[0] && !c->default_model_filename[0] && version_path && has_file(version_path, r);
}

static const row *find_row(const Inference__ModelConfig *c, const char *version_path)
{
    const row *same_backend = NULL;
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        bool same = strcmp(c->backend, rows[i].backend) == 0;
        if (c->backend[0] && !same) continue;
        if (row_fits(c, &rows[i], version_path)) return &rows[i];
        if (same && !same_backend) same_backend = &rows[i];
    }
    return same_backend;
}

static void set_if_empty(char **field, const char *value, proa_arena *arena)
{
    if (!(*field)[0] && value[0]) *field = proa_arena_strdup(arena, proa_str_c(value));
}

/* "m.identity" is of backend identity, its file model.identity. */
static proa_status by_model_name(Inference__ModelConfig *c, const char *name, proa_arena *arena, proa_err *err)
{
    const char *dot = strchr(name, '.');
    if (!dot)
        return PROA_FAIL(
            err, INVALID,
            "Invalid model name: Could not determine backend for model '%s' with no backend in model "
            "configuration. Expected model name of the form 'model.<backend_name>'.",
            name);
    c->backend = proa_arena_strdup(arena, proa_str_c(dot + 1));
    c->default_model_filename = proa_arena_printf(arena, "model.%s", dot + 1);
    return PROA_OK;
}

/* Some guides write backend: "ensemble" in place of platform: "ensemble". */
static void ensemble_is_platform(Inference__ModelConfig *c, proa_arena *arena)
{
    if (strcmp(c->backend, "ensemble") != 0 || (c->platform[0] && strcmp(c->platform, "ensemble") != 0))
        return;
    c->platform = c->backend;
    c->backend = proa_arena_strdup(arena, proa_str_c(""));
}

proa_status proa_config_find_backend(Inference__ModelConfig *config, const char *name, const char *model_path,
                                     proa_arena *arena, proa_err *err)
{
    char path[PROA_PATH_MAX];
    const char *version_path = first_version(path, model_path) ? path : NULL;
    set_if_empty(&config->name, name, arena);
    ensemble_is_platform(config, arena);
    const row *r = find_row(config, version_path);
    if (r) {
        set_if_empty(&config->backend, r->backend, arena);
        set_if_empty(&config->platform, r->platform, arena);
        set_if_empty(&config->default_model_filename, r->file, arena);
        return PROA_OK;
    }
    if (config->backend[0] || config->platform[0] || config->default_model_filename[0]) return PROA_OK;
    if ((version_path && proa_config_is_model_folder(version_path)) || proa_config_is_model_folder(model_path)) {
        set_if_empty(&config->backend, "engine", arena);
        return PROA_OK;
    }
    return by_model_name(config, name, arena, err);
}
