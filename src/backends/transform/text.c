/* SPDX-License-Identifier: Apache-2.0
 * text.c - the operation text_features: reads its options and files, and computes the features of a
 * text. */
#include "backends/transform/text_inside.h"

#include "backends/transform/scan.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/map.h"
#include <math.h>
#include <string.h>

/* ---- counts ---- */

static const char *const count_names[PROA_TEXT_COUNTS] = {
#define COUNT_NAME(name, expression) #name,
    PROA_TEXT_COUNT_LIST(COUNT_NAME)
#undef COUNT_NAME
};

static void add_count(proa_text_features *f, size_t i)
{
    f->counts[f->counts_count++] = (int32_t)i;
    if (i == PROA_TEXT_COUNT_distinct_words || i == PROA_TEXT_COUNT_distinct_share) f->distinct = true;
}

static proa_status read_counts(proa_text_features *f, proa_transform_step *s, proa_arena *arena, bool others,
                               proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(s, "counts");
    f->counts = PROA_ARENA_NEW(arena, int32_t, PROA_TRANSFORM_LIST_MAX);
    for (size_t i = 0; !o && !others && i < PROA_TEXT_COUNTS; i++) add_count(f, i);
    for (int32_t k = 0; o && k < o->count; k++) {
        size_t i = 0;
        while (i < PROA_TEXT_COUNTS && !proa_str_is(o->texts[k], count_names[i])) i++;
        if (i == PROA_TEXT_COUNTS)
            return PROA_TRANSFORM_FAIL(
                err, s, "option 'counts' has '%s', which is none of characters, words, ...", o->texts[k].ptr);
        add_count(f, i);
    }
    return PROA_OK;
}

/* ---- files of n-grams ---- */

typedef struct line_reader {
    const proa_transform_step *step;
    const char *path;
    int64_t number;
    proa_ngram_file *file;
    int64_t cap; /* of weights, in lines */
    proa_err *err;
} line_reader;

static proa_status bad_line(const line_reader *r, const char *what)
{
    return PROA_TRANSFORM_FAIL(r->err, r->step, "'%s', line %lld: %s", r->path, (long long)r->number, what);
}

typedef struct word_comparison {
    proa_str key;
    int32_t words;
    bool same;
} word_comparison;

static void compare_words(void *arg, const char *lower, size_t start, size_t end)
{
    word_comparison *p = arg;
    PROA_UNUSED(start);
    p->words++;
    p->same = end == p->key.len && memcmp(lower, p->key.ptr, end) == 0;
}

/* Words must be as the scanner returns them, otherwise they could never match. */
static proa_status check_key(line_reader *r, proa_str key)
{
    proa_arena arena;
    proa_text_counts n;
    word_comparison p = {.key = key};
    proa_arena_init(&arena);
    proa_text_scan(&n, key, &arena, compare_words, &p);
    proa_arena_release(&arena);
    if (!p.same) return bad_line(r, "must be words in lower case, divided by single spaces");
    if (p.words > PROA_NGRAM_WORDS_MAX) return bad_line(r, "has too many words");
    if (p.words > r->file->words_max) r->file->words_max = p.words;
    return PROA_OK;
}

static proa_status read_weights(line_reader *r, proa_str text)
{
    proa_ngram_file *f = r->file;
    double row[PROA_LEXICON_COLUMNS_MAX];
    int64_t n = 0;
    while (text.len) {
        const char *tab = memchr(text.ptr, '\t', text.len);
        size_t len = tab ? (size_t)(tab - text.ptr) : text.len;
        char number[64], *end;
        if (n == PROA_LEXICON_COLUMNS_MAX) return bad_line(r, "has too many weights");
        snprintf(number, sizeof number, "%.*s", (int)(len < 63 ? len : 63), text.ptr);
        row[n] = strtod(number, &end);
        if (end == number || *end || !isfinite(row[n])) return bad_line(r, "has a weight that is no number");
        n++;
        text = (proa_str){text.ptr + len + (tab != NULL), text.len - len - (tab != NULL)};
    }
    if (n == 0) return bad_line(r, "has no weight: n-gram, tab, number");
    if (f->columns && n != f->columns)
        return bad_line(r, "has another number of weights than the lines before");
    f->columns = n;
    if (f->lines.count > r->cap) {
        r->cap = r->cap ? r->cap * 2 : 1024;
        f->weights = proa_realloc(f->weights, (size_t)(r->cap * n) * sizeof *f->weights);
    }
    memcpy(f->weights + (f->lines.count - 1) * n, row, (size_t)n * sizeof *row);
    return PROA_OK;
}

static void add_key(proa_ngram_file *f, proa_str key)
{
    if (f->lines.count > f->keys_cap) {
        f->keys_cap = f->keys_cap ? f->keys_cap * 2 : 1024;
        f->keys = proa_realloc(f->keys, (size_t)f->keys_cap * sizeof *f->keys);
    }
    f->keys[f->lines.count - 1] = key;
}

static proa_status read_line(line_reader *r, proa_str line, bool weighted)
{
    const char *tab = memchr(line.ptr, '\t', line.len);
    proa_str key = {line.ptr, tab ? (size_t)(tab - line.ptr) : line.len};
    if (!line.len || line.ptr[0] == '#') return PROA_OK;
    PROA_TRY(check_key(r, key));
    if (!weighted && tab) return bad_line(r, "has a tab: a vocabulary has nothing but n-grams");
    if (r->file->lines.count >= PROA_TEXT_COLUMNS_MAX * (weighted ? 16 : 1))
        return bad_line(r, "one line too many");
    if (!proa_map_put(&r->file->lines, key, (int32_t)r->file->lines.count))
        return bad_line(r, "stands there twice");
    add_key(r->file, key);
    if (!weighted) return PROA_OK;
    return read_weights(r, tab ? (proa_str){tab + 1, line.len - key.len - 1} : (proa_str){"", 0});
}

static proa_status read_lines(line_reader *r, bool weighted)
{
    proa_str rest = proa_buf_view(&r->file->text), line;
    while (proa_str_next_line(&rest, &line)) {
        if (line.len && line.ptr[line.len - 1] == '\r') line.len--;
        r->number++;
        PROA_TRY(read_line(r, line, weighted));
    }
    if (!r->file->lines.count) return PROA_TRANSFORM_FAIL(r->err, r->step, "'%s' has no n-gram", r->path);
    return PROA_OK;
}

/* A file of the version's folder, or else of the model's. */
static proa_status open_file(proa_ngram_file *f, const char *name, const proa_transform_step *s,
                             const proa_transform_program *p, bool weighted, proa_err *err)
{
    char path[PROA_PATH_MAX];
    if (proa_path_climbs(name) && !p->external_paths)
        return PROA_TRANSFORM_FAIL(
            err, s, "file '%s' leaves the model's folder, which needs --allow-external-paths", name);
    PROA_TRY(proa_path_join(path, p->version_path, name, err));
    if (!proa_file_exists(path)) PROA_TRY(proa_path_join(path, p->model_path, name, err));
    if (!proa_file_exists(path))
        return PROA_TRANSFORM_FAIL(err, s, "file '%s' is neither in '%s' nor in '%s'", name, p->version_path,
                                   p->model_path);
    PROA_TRY(proa_file_read(&f->text, path, PROA_NGRAM_FILE_BYTES_MAX, err));
    proa_map_init(&f->lines, 1024);
    line_reader r = {.step = s, .path = path, .file = f, .err = err};
    return read_lines(&r, weighted);
}

static proa_status read_file(proa_ngram_file *f, const char *key, proa_transform_step *s,
                             const proa_transform_program *p, bool weighted, proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(s, key);
    if (!o) return PROA_OK;
    if (o->list) return PROA_TRANSFORM_FAIL(err, s, "option '%s' must be one file", key);
    return open_file(f, o->texts[0].ptr, s, p, weighted, err);
}

static proa_status read_lists(proa_text_features *f, proa_transform_step *s, const proa_transform_program *p,
                              proa_err *err)
{
    const proa_transform_option *o = proa_transform_option_find(s, "lists");
    if (!o) return PROA_OK;
    if (o->count < 1 || o->count > PROA_NGRAM_LISTS_MAX)
        return PROA_TRANSFORM_FAIL(err, s, "option 'lists' has %d files, must be 1 to %d", o->count,
                                   PROA_NGRAM_LISTS_MAX);
    f->lists = proa_calloc((size_t)o->count, sizeof *f->lists);
    f->lists_count = o->count;
    for (int32_t i = 0; i < o->count; i++)
        PROA_TRY(open_file(&f->lists[i], o->texts[i].ptr, s, p, false, err));
    return PROA_OK;
}

static void close_file(proa_ngram_file *f)
{
    proa_buf_release(&f->text);
    proa_map_release(&f->lines);
    free(f->weights);
    free(f->keys);
}

/* ---- options ---- */

static proa_status find_word(int *value, const proa_transform_step *s, const proa_transform_option *o,
                             int32_t at, const char *const *words, int count, proa_err *err)
{
    for (int i = 0; i < count; i++) {
        if (!proa_str_is(o->texts[at], words[i])) continue;
        *value = i;
        return PROA_OK;
    }
    return PROA_TRANSFORM_FAIL(err, s, "option '%s' has '%s', which is none of %s, %s, ...", o->key.ptr,
                               o->texts[at].ptr, words[0], words[1]);
}

static proa_status read_stats(proa_text_features *f, proa_transform_step *s, proa_err *err)
{
    static const char *const names[PROA_TEXT_STATS] = {"sum", "mean", "min", "max"};
    const proa_transform_option *o = f->lexicon.columns ? proa_transform_option_find(s, "stats") : NULL;
    if (o && (!o->count || o->count > PROA_TEXT_STATS))
        return PROA_TRANSFORM_FAIL(err, s, "option 'stats' has 1 to 4 names");
    f->stats_count = f->lexicon.columns ? 1 : 0;
    if (o) f->stats_count = o->count;
    for (int32_t i = 0; o && i < o->count; i++) {
        int stat = 0;
        PROA_TRY(find_word(&stat, s, o, i, names, PROA_TEXT_STATS, err));
        f->stats[i] = (proa_text_stat)stat;
    }
    return PROA_OK;
}

static proa_status read_hashed(proa_text_features *f, proa_transform_step *s, proa_err *err)
{
    static const char *const values[] = {"count", "share", "present"};
    PROA_TRY(proa_transform_option_integer(&f->buckets, s, "hashed", 0, PROA_TEXT_COLUMNS_MAX, err));
    f->hashed_words = 1;
    if (f->buckets)
        PROA_TRY(proa_transform_option_integer(&f->hashed_words, s, "ngrams", 1, PROA_NGRAM_WORDS_MAX, err));
    bool counted = f->buckets || f->vocabulary.lines.count || f->lists_count;
    const proa_transform_option *o = counted ? proa_transform_option_find(s, "value") : NULL;
    int value = PROA_TEXT_COUNT;
    if (o) PROA_TRY(find_word(&value, s, o, 0, values, PROA_COUNT(values), err));
    f->value = (proa_text_value)value;
    return PROA_OK;
}

static proa_status lay_out(proa_text_features *f, const proa_transform_step *s, proa_err *err)
{
    f->lists_at = f->counts_count;
    f->vocabulary_at = f->lists_at + f->lists_count;
    f->lexicon_at = f->vocabulary_at + f->vocabulary.lines.count;
    f->buckets_at = f->lexicon_at + f->lexicon.columns * f->stats_count;
    f->columns = f->buckets_at + f->buckets;
    f->words_max = f->buckets ? (int32_t)f->hashed_words : 0;
    for (int32_t i = 0; i < f->lists_count; i++)
        if (f->lists[i].words_max > f->words_max) f->words_max = f->lists[i].words_max;
    if (f->vocabulary.words_max > f->words_max) f->words_max = f->vocabulary.words_max;
    if (f->lexicon.words_max > f->words_max) f->words_max = f->lexicon.words_max;
    if (f->columns < 1 || f->columns > PROA_TEXT_COLUMNS_MAX)
        return PROA_TRANSFORM_FAIL(err, s, "makes %lld features, must be 1 to %d", (long long)f->columns,
                                   PROA_TEXT_COLUMNS_MAX);
    return PROA_OK;
}

static proa_status read_text(proa_transform_step *s, proa_transform_program *p, proa_err *err)
{
    proa_text_features *f = s->features = proa_calloc(1, sizeof *f);
    const proa_transform_value *in = &p->values[s->args[0]];
    if (in->type != PROA_TYPE_BYTES)
        return PROA_TRANSFORM_FAIL(err, s, "'%s' is %s, must be BYTES", in->name, proa_type_name(in->type));
    s->in_place = in->rank > 0 && in->shape[in->rank - 1] == 1;
    if (!s->in_place && in->rank + p->batched >= PROA_SERVE_RANK_MAX)
        return PROA_TRANSFORM_FAIL(err, s, "'%s' has no room for one more dimension", in->name);
    PROA_TRY(read_lists(f, s, p, err));
    PROA_TRY(read_file(&f->vocabulary, "vocabulary", s, p, false, err));
    PROA_TRY(read_file(&f->lexicon, "lexicon", s, p, true, err));
    PROA_TRY(read_stats(f, s, err));
    PROA_TRY(read_hashed(f, s, err));
    bool others = f->lists_count || f->vocabulary.lines.count || f->lexicon.columns || f->buckets;
    PROA_TRY(read_counts(f, s, p->arena, others, err));
    return lay_out(f, s, err);
}

void proa_text_features_close(proa_text_features *f)
{
    if (!f) return;
    for (int32_t i = 0; i < f->lists_count; i++) close_file(&f->lists[i]);
    free(f->lists);
    for (int i = 0; i < PROA_GPUS_MAX; i++) proa_text_device_free(f->devices[i]);
    close_file(&f->vocabulary);
    close_file(&f->lexicon);
    free(f);
}

/* ---- a row ---- */

/* A set of distinct words by 64-bit hashes: a text of a million words has a collision once in 37 million
 * texts. */
typedef struct word_set {
    uint64_t *slots;
    int64_t cap, count;
} word_set;

typedef struct maker {
    const proa_text_features *f;
    float *row;
    double *weights; /* [stats][columns], running */
    int64_t matched;
    size_t starts[PROA_NGRAM_WORDS_MAX]; /* ring of the starts of the last words */
    int64_t words;
    word_set set;
    proa_arena *arena;
} maker;

static void place_word(word_set *set, uint64_t hash)
{
    int64_t i = (int64_t)(hash & (uint64_t)(set->cap - 1));
    while (set->slots[i] && set->slots[i] != hash) i = (i + 1) & (set->cap - 1);
    set->count += set->slots[i] == 0;
    set->slots[i] = hash;
}

static void add_distinct(maker *m, proa_str word)
{
    word_set *set = &m->set;
    uint64_t hash = proa_str_hash(word);
    if ((set->count + 1) * 2 > set->cap) {
        word_set larger = {.cap = set->cap ? set->cap * 2 : 128};
        larger.slots = PROA_ARENA_NEW(m->arena, uint64_t, larger.cap);
        for (int64_t i = 0; i < set->cap; i++)
            if (set->slots[i]) place_word(&larger, set->slots[i]);
        *set = larger;
    }
    place_word(set, hash ? hash : 1);
}

static void add_weights(maker *m, int32_t line)
{
    const proa_text_features *f = m->f;
    int64_t n = f->lexicon.columns;
    const double *from = f->lexicon.weights + line * n;
    bool first = m->matched++ == 0;
    for (int32_t s = 0; s < f->stats_count; s++) {
        double *to = m->weights + s * n;
        for (int64_t i = 0; i < n; i++) {
            bool less = f->stats[s] == PROA_TEXT_MIN, more = f->stats[s] == PROA_TEXT_MAX;
            if (!less && !more) to[i] += from[i];
            else if (first || (less ? from[i] < to[i] : from[i] > to[i])) to[i] = from[i];
        }
    }
}

static void add_to(float *to, proa_text_value value)
{
    *to = value == PROA_TEXT_PRESENT ? 1 : *to + 1;
}

/* 64-bit FNV-1a with its halves folded together. */
static int64_t bucket_of(proa_str s, int64_t buckets)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.len; i++) hash = (hash ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    return (int64_t)((hash ^ hash >> 32) % (uint64_t)buckets);
}

static void add_ngram(maker *m, proa_str ngram, int32_t words)
{
    const proa_text_features *f = m->f;
    int32_t line;
    for (int32_t i = 0; i < f->lists_count; i++)
        if (words <= f->lists[i].words_max && proa_map_find(&f->lists[i].lines, ngram, &line))
            add_to(&m->row[f->lists_at + i], f->value);
    if (words <= f->vocabulary.words_max && proa_map_find(&f->vocabulary.lines, ngram, &line))
        add_to(&m->row[f->vocabulary_at + line], f->value);
    if (words <= f->lexicon.words_max && proa_map_find(&f->lexicon.lines, ngram, &line)) add_weights(m, line);
    if (f->buckets && words <= f->hashed_words)
        add_to(&m->row[f->buckets_at + bucket_of(ngram, f->buckets)], f->value);
}

/* Counts all n-grams that end with this word, the shortest first. */
static void add_word(void *arg, const char *lower, size_t start, size_t end)
{
    maker *m = arg;
    if (m->f->distinct) add_distinct(m, (proa_str){lower + start, end - start});
    m->starts[m->words++ % PROA_NGRAM_WORDS_MAX] = start;
    for (int32_t n = 1; n <= m->f->words_max && n <= m->words; n++) {
        size_t from = m->starts[(m->words - n) % PROA_NGRAM_WORDS_MAX];
        add_ngram(m, (proa_str){lower + from, end - from}, n);
    }
}

static void finish_row(const maker *m, const proa_text_counts *n)
{
    const proa_text_features *f = m->f;
    for (int32_t i = 0; i < f->counts_count; i++)
        m->row[i] = (float)proa_text_count(f->counts[i], n, m->set.count);
    for (int32_t s = 0; s < f->stats_count; s++) {
        double by = f->stats[s] == PROA_TEXT_MEAN && m->matched ? (double)m->matched : 1;
        for (int64_t i = 0; i < f->lexicon.columns; i++) {
            int64_t at = s * f->lexicon.columns + i;
            m->row[f->lexicon_at + at] = (float)(m->weights[at] / by);
        }
    }
    if (f->value != PROA_TEXT_SHARE || !n->words) return;
    for (int64_t i = f->lists_at; i < f->lexicon_at; i++)
        m->row[i] = (float)((double)m->row[i] / (double)n->words);
    for (int64_t i = f->buckets_at; i < f->columns; i++)
        m->row[i] = (float)((double)m->row[i] / (double)n->words);
}

void proa_text_features_row(const proa_text_features *f, proa_str text, float *row, proa_arena *arena)
{
    maker m = {.f = f, .row = row, .arena = arena};
    proa_text_counts n;
    bool words = f->distinct || f->words_max;
    memset(row, 0, (size_t)f->columns * sizeof *row);
    m.weights = PROA_ARENA_NEW(arena, double, f->stats_count * f->lexicon.columns);
    proa_text_scan(&n, text, arena, words ? add_word : NULL, &m);
    finish_row(&m, &n);
}

/* ---- the operation ---- */

static proa_status shape_text(const proa_transform_step *s, const proa_transform_value *args,
                              proa_transform_value *out, proa_err *err)
{
    PROA_UNUSED(err);
    out->type = PROA_TYPE_FP32;
    out->rank = args[0].rank + !s->in_place;
    memcpy(out->shape, args[0].shape, sizeof out->shape);
    out->shape[out->rank - 1] = s->features->columns;
    return PROA_OK;
}

static void run_text(const proa_transform_step *s, const proa_transform_value *args,
                     const proa_transform_value *out, char *to, proa_arena *arena)
{
    const proa_tensor texts = {.type = PROA_TYPE_BYTES, .data = args[0].data, .bytes = args[0].bytes};
    float *row = (void *)to; /* a new buffer or arena memory: aligned */
    proa_arena scratch;
    proa_str text;
    size_t at = 0, end = out->bytes / sizeof *row;
    PROA_UNUSED(arena);
    proa_arena_init(&scratch);
    for (size_t i = 0; i < end && proa_tensor_next_string(&texts, &at, &text); i += (size_t)s->features->columns) {
        proa_text_features_row(s->features, text, row + i, &scratch);
        proa_arena_reset(&scratch);
    }
    proa_arena_release(&scratch);
}

const proa_transform_op proa_transform_op_text = {
    "text_features",
    1,
    1,
    "counts, lists, vocabulary, lexicon, stats, hashed, ngrams, value",
    read_text,
    shape_text,
    run_text,
    NULL,
    proa_text_launch,
    proa_text_prepare};
