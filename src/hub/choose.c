/* SPDX-License-Identifier: Apache-2.0
 * choose.c - which files of a repository Proa reads. Repositories hold the same weights in several forms; one is taken.
 */
#include "hub/tree.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

typedef proa_hub_entry entry;

static bool ends_with(const char *text, const char *ending)
{
    return proa_str_ends(proa_str_c(text), proa_str_c(ending));
}

static bool starts_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool in_root(const char *path)
{
    return !strchr(path, '/');
}

static entry *find_entry(const proa_hub_tree *tree, const char *path)
{
    for (int64_t i = 0; i < tree->count; i++)
        if (strcmp(tree->entries[i].path, path) == 0) return &tree->entries[i];
    return NULL;
}

static void want_entry(entry *e, bool weights)
{
    if (e) e->wanted = true, e->weights = weights;
}

/* ---- small files: configuration, tokenizer, chat templates ---- */

/* "2_Dense/config.json", or its weights: a layer behind the pooling. */
static bool is_of_dense(const char *path)
{
    const char *name = strchr(path, '/');
    if (!isdigit((unsigned char)*path) || !name || name - path < 7 || strncmp(name - 6, "_Dense", 6) != 0)
        return false;
    return strcmp(name, "/config.json") == 0 || strcmp(name, "/model.safetensors") == 0 ||
           strcmp(name, "/pytorch_model.bin") == 0;
}

static bool is_small_file(const char *path)
{
    static const char *const endings[] = {".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken"};
    /* of training; indices come with the weights that they list */
    static const char *const others[] = {"trainer_state.json", "all_results.json", "train_results.json",
                                         "eval_results.json", "requirements.txt"};
    if (ends_with(path, ".index.json")) return false;
    for (size_t i = 0; i < PROA_COUNT(others); i++)
        if (strcmp(path, others[i]) == 0) return false;
    if (!in_root(path)) /* modules of sentence-transformers; chat templates by name */
        return strcmp(path, "1_Pooling/config.json") == 0 || is_of_dense(path) ||
               (starts_with(path, "additional_chat_templates/") && ends_with(path, ".jinja"));
    for (size_t i = 0; i < PROA_COUNT(endings); i++)
        if (ends_with(path, endings[i])) return true;
    return false;
}

static void want_small_files(proa_hub_tree *tree)
{
    for (int64_t i = 0; i < tree->count; i++)
        if (is_small_file(tree->entries[i].path)) want_entry(&tree->entries[i], false);
}

/* ---- weights ---- */

/* "-00001-of-00003" before the ending of a path. Returns where it begins, or NULL. */
static const char *part_number(const char *path, const char *ending)
{
    const char form[] = "-00001-of-00003";
    size_t len = strlen(path), tail = strlen(ending) + sizeof form - 1;
    if (len < tail || !ends_with(path, ending)) return NULL;
    const char *at = path + len - tail;
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (isdigit((unsigned char)form[i]) ? !isdigit((unsigned char)at[i]) : at[i] != form[i]) return NULL;
    return at;
}

/* STEM.ENDING, or STEM.ENDING.index.json with its parts; the single file is preferred, as the reader does. */
static bool want_weights(proa_hub_tree *tree, const char *stem, const char *ending)
{
    char name[128];
    bool found = false;
    snprintf(name, sizeof name, "%s%s", stem, ending);
    entry *single = find_entry(tree, name);
    want_entry(single, true);
    snprintf(name, sizeof name, "%s%s.index.json", stem, ending);
    entry *index = find_entry(tree, name);
    if (single || !index) return single != NULL;
    want_entry(index, false);
    for (int64_t i = 0; i < tree->count; i++) {
        const char *path = tree->entries[i].path, *number = part_number(path, ending);
        if (!number || !in_root(path) || (size_t)(number - path) != strlen(stem) || !starts_with(path, stem))
            continue;
        want_entry(&tree->entries[i], true);
        found = true;
    }
    return found;
}

/* A checkpoint that is one file: "medusa_lm_head.safetensors", OpenNMT-py's "model.pt". */
static bool want_file(proa_hub_tree *tree, const char *path)
{
    entry *e = find_entry(tree, path);
    want_entry(e, true);
    return e != NULL;
}

static bool want_folder(proa_hub_tree *tree)
{
    bool adapter = want_file(tree, "adapter_model.safetensors") || want_file(tree, "adapter_model.bin");
    bool medusa = want_file(tree, "medusa_lm_head.safetensors") || want_file(tree, "medusa_lm_head.pt");
    return want_weights(tree, "model", ".safetensors") || want_weights(tree, "pytorch_model", ".bin") ||
           want_file(tree, "model.pt") || adapter || medusa;
}

/* ---- GGUF ---- */

/* The first file of a model in GGUF: every one, but of a split one the first part. */
static bool is_gguf(const char *path)
{
    const char *number = part_number(path, ".gguf");
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return ends_with(path, ".gguf") && (!number || starts_with(number, "-00001-")) &&
           !starts_with(base, "mmproj") && !strstr(base, "imatrix");
}

static bool contains_text(const char *path, const char *part)
{
    size_t n = strlen(part);
    for (const char *c = path; *c; c++)
        if (strncasecmp(c, part, n) == 0) return true;
    return false;
}

/* Whether the last word of the name before ".gguf" and the part's number is `part`: Q4_K of "x-Q4_K.gguf". */
static bool is_last_word(const char *path, const char *part)
{
    const char *number = part_number(path, ".gguf");
    const char *end = number ? number : path + strlen(path) - strlen(".gguf");
    size_t n = strlen(part);
    if ((size_t)(end - path) < n || strncasecmp(end - n, part, n) != 0) return false;
    return end - n == path || strchr("-._/", end[-(ptrdiff_t)n - 1]) != NULL;
}

/* The one GGUF file that `file` names: its path, else its last word, else any part of it. *count: how many fit. */
static entry *find_gguf(const proa_hub_tree *tree, const char *file, int *count)
{
    entry *found = find_entry(tree, file);
    *count = found != NULL;
    for (int loose = 0; loose < 2 && *count == 0; loose++)
        for (int64_t i = 0; i < tree->count; i++) {
            entry *e = &tree->entries[i];
            if (!is_gguf(e->path)) continue;
            if (loose || !file[0] ? contains_text(e->path, file) : is_last_word(e->path, file))
                found = e, ++*count;
        }
    return found;
}

static void list_gguf(char *out, size_t size, const proa_hub_tree *tree)
{
    size_t n = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < tree->count; i++)
        if (is_gguf(tree->entries[i].path) && n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", tree->entries[i].path);
}

/* With all its parts. */
static void want_gguf(proa_hub_tree *tree, entry *first)
{
    const char *number = part_number(first->path, ".gguf");
    want_entry(first, true);
    for (int64_t i = 0; i < tree->count && number; i++) {
        entry *e = &tree->entries[i];
        const char *other = part_number(e->path, ".gguf");
        size_t stem = (size_t)(number - first->path);
        if (other && (size_t)(other - e->path) == stem && strncmp(e->path, first->path, stem) == 0)
            want_entry(e, true);
    }
}

static proa_status choose_gguf(proa_hub_tree *tree, const char *repo, const char *file, const char **gguf,
                               proa_err *err)
{
    char names[300];
    int count;
    entry *e = find_gguf(tree, file, &count);
    list_gguf(names, sizeof names, tree);
    if (count == 0 && !names[0] && file[0])
        return PROA_FAIL(err, NOT_FOUND, "'%s' has no GGUF files: leave ':%s' out of the name", repo, file);
    if (count == 0 && !names[0])
        return PROA_FAIL(err, NOT_FOUND,
                         "'%s' has no weights that Proa reads: no safetensors, pytorch_model.bin or .gguf",
                         repo);
    if (count == 0)
        return PROA_FAIL(err, NOT_FOUND, "'%s' has no GGUF file '%s', it has: %s", repo, file, names);
    if (count > 1)
        return PROA_FAIL(err, INVALID, "'%s' has several GGUF files%s%s: add :FILE to the name, one of %s",
                         repo, file[0] ? " that fit " : "", file, names);
    want_gguf(tree, e);
    *gguf = e->path;
    return PROA_OK;
}

proa_status proa_hub_choose(proa_hub_tree *tree, const char *repo, const char *file, const char **gguf,
                            proa_err *err)
{
    *gguf = NULL;
    if (file[0]) return choose_gguf(tree, repo, file, gguf, err);
    if (!want_folder(tree)) return choose_gguf(tree, repo, file, gguf, err);
    want_small_files(tree);
    return PROA_OK;
}
