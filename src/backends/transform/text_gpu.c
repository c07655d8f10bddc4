/* SPDX-License-Identifier: Apache-2.0
 * text_gpu.c - text_features on a GPU: the plan (kernels/text_rows.h) in its memory, and texts through it. */
#include "backends/transform/scan.h"
#include "backends/transform/text_inside.h"
#include "base/alloc.h"
#include "base/checked.h"
#include <string.h>
#include <utf8proc.h>

enum { ARRAYS = 9 + 2 * PROA_NGRAM_LISTS_MAX };

struct proa_text_device {
    proa_text_plan plan;
    proa_buffer *arrays[ARRAYS];
    int arrays_count;
};

/* ---- the letters of Unicode ---- */

typedef struct letters {
    uint16_t page[PROA_TEXT_PAGES];
    uint8_t *kind;
    int32_t *lower;
    int32_t pages;
} letters;

static int32_t lower_of(int32_t c)
{
    if (c >= 'A' && c <= 'Z') return c + ('a' - 'A');
    return c < 0x80 ? c : utf8proc_tolower(c);
}

/* The page with these contents; a new one if there is none. Lower cases are stored as they are, so most pages of
 * letters are of their own. */
static int32_t find_page(letters *l, const uint8_t *kind, const int32_t *lower)
{
    int32_t i = 0;
    while (i < l->pages && (memcmp(l->kind + i * 256, kind, 256) != 0 ||
                            memcmp(l->lower + i * 256, lower, 256 * sizeof *lower) != 0))
        i++;
    if (i < l->pages) return i;
    l->pages++;
    l->kind = proa_realloc(l->kind, (size_t)l->pages * 256);
    l->lower = proa_realloc(l->lower, (size_t)l->pages * 256 * sizeof *lower);
    memcpy(l->kind + i * 256, kind, 256);
    memcpy(l->lower + i * 256, lower, 256 * sizeof *lower);
    return i;
}

/* Pages without letters of words never have their lower case read: it is 0 there, so that they are alike. */
static void make_letters(letters *l)
{
    for (int32_t p = 0; p < PROA_TEXT_PAGES; p++) {
        uint8_t kind[256];
        int32_t lower[256];
        for (int32_t i = 0; i < 256; i++) {
            kind[i] = (uint8_t)proa_text_kind_of_character(p * 256 + i);
            bool read = proa_text_in_words(kind[i]) || p * 256 + i == '\'';
            lower[i] = read ? lower_of(p * 256 + i) : 0;
        }
        l->page[p] = (uint16_t)find_page(l, kind, lower);
    }
}

/* ---- n-grams ---- */

/* A table of at least twice as many slots as lines; malloc'd. */
static proa_text_slot *make_slots(const proa_ngram_file *f, uint64_t *mask)
{
    uint64_t count = 2;
    while (count < 2 * (uint64_t)f->lines.count) count *= 2;
    proa_text_slot *slots = proa_calloc((size_t)count, sizeof *slots);
    *mask = count - 1;
    for (int32_t line = 0; line < (int32_t)f->lines.count; line++) {
        proa_str key = f->keys[line];
        uint64_t hash = proa_text_fnv(key.ptr, (int64_t)key.len), i = hash & *mask;
        while (slots[i].len) i = (i + 1) & *mask;
        slots[i] = (proa_text_slot){
            .hash = hash, .at = (uint32_t)(key.ptr - f->text.ptr), .len = (uint32_t)key.len, .line = line};
    }
    return slots;
}

/* ---- to the device ---- */

static proa_status put_array(proa_text_device *d, proa_gpu_stream *s, const void **at, const void *from,
                             size_t bytes, proa_err *err)
{
    *at = NULL;
    if (bytes == 0) return PROA_OK;
    PROA_ASSERT(d->arrays_count < ARRAYS);
    PROA_TRY(proa_gpu_upload(s, &d->arrays[d->arrays_count], from, bytes, err));
    *at = d->arrays[d->arrays_count++]->data;
    return PROA_OK;
}

static proa_status put_ngrams(proa_text_device *d, proa_gpu_stream *s, proa_text_ngrams *to,
                              const proa_ngram_file *f, proa_err *err)
{
    const void *slots, *text;
    to->words_max = f->words_max;
    if (!f->lines.count) return PROA_OK;
    proa_text_slot *host = make_slots(f, &to->mask);
    proa_status status = put_array(d, s, &slots, host, (size_t)(to->mask + 1) * sizeof *host, err);
    free(host);
    PROA_TRY(status);
    PROA_TRY(put_array(d, s, &text, f->text.ptr, f->text.len, err));
    to->slots = slots;
    to->text = text;
    return PROA_OK;
}

static proa_status put_letters(proa_text_device *d, proa_gpu_stream *s, proa_err *err)
{
    letters *l = proa_calloc(1, sizeof *l);
    const void *page = NULL, *kind = NULL, *lower = NULL;
    make_letters(l);
    proa_status status = put_array(d, s, &page, l->page, sizeof l->page, err);
    if (status == PROA_OK) status = put_array(d, s, &kind, l->kind, (size_t)l->pages * 256, err);
    if (status == PROA_OK)
        status = put_array(d, s, &lower, l->lower, (size_t)l->pages * 256 * sizeof *l->lower, err);
    d->plan.letters = (proa_text_letters){page, kind, lower};
    free(l->kind), free(l->lower), free(l);
    return status;
}

static proa_status put_plan(proa_text_device *d, proa_gpu_stream *s, const proa_text_features *f, proa_err *err)
{
    const void *counts, *weights;
    proa_text_plan *p = &d->plan;
    PROA_TRY(put_letters(d, s, err));
    for (int32_t i = 0; i < f->lists_count; i++) PROA_TRY(put_ngrams(d, s, &p->lists[i], &f->lists[i], err));
    PROA_TRY(put_ngrams(d, s, &p->vocabulary, &f->vocabulary, err));
    PROA_TRY(put_ngrams(d, s, &p->lexicon, &f->lexicon, err));
    PROA_TRY(put_array(d, s, &counts, f->counts, (size_t)f->counts_count * sizeof *f->counts, err));
    PROA_TRY(put_array(d, s, &weights, f->lexicon.weights,
                       (size_t)(f->lexicon.lines.count * f->lexicon.columns) * sizeof(double), err));
    p->counts = counts;
    p->weights = weights;
    p->counts_count = f->counts_count;
    p->distinct = f->distinct;
    p->lexicon_columns = f->lexicon.columns;
    p->stats_count = f->stats_count;
    for (int32_t i = 0; i < f->stats_count; i++) p->stats[i] = (int32_t)f->stats[i];
    p->buckets = f->buckets, p->hashed_words = f->hashed_words;
    p->value = (int32_t)f->value, p->words_max = f->words_max;
    p->lists_count = f->lists_count, p->lists_at = f->lists_at;
    p->columns = f->columns, p->vocabulary_at = f->vocabulary_at;
    p->lexicon_at = f->lexicon_at, p->buckets_at = f->buckets_at;
    return proa_gpu_stream_wait(s, err);
}

proa_status proa_text_prepare(const proa_transform_step *step, proa_gpu_stream *s, proa_err *err)
{
    proa_text_features *f = step->features;
    proa_text_device **d = &f->devices[s->device->gpu];
    if (*d) return PROA_OK;
    *d = proa_calloc(1, sizeof **d);
    proa_status status = put_plan(*d, s, f, err);
    if (status == PROA_OK) return PROA_OK;
    proa_text_device_free(*d);
    *d = NULL;
    return status;
}

void proa_text_device_free(proa_text_device *d)
{
    if (!d) return;
    for (int i = 0; i < d->arrays_count; i++) proa_buffer_drop(d->arrays[i]);
    free(d);
}

/* ---- texts ---- */

static int64_t take_bytes(int64_t *used, int64_t bytes)
{
    int64_t at = *used;
    *used = proa_round_up(at + bytes, 8);
    return at;
}

/* Where each text is, and its parts of the scratch memory; returns the bytes of that. */
static int64_t place_rows(const proa_text_features *f, const proa_transform_value *texts, proa_text_row *rows,
                          int64_t count)
{
    const proa_tensor t = {.type = PROA_TYPE_BYTES, .data = texts->data, .bytes = texts->bytes};
    int64_t used = 0;
    size_t at = 0;
    proa_str text;
    for (int64_t i = 0; i < count && proa_tensor_next_string(&t, &at, &text); i++) {
        proa_text_row *r = &rows[i];
        r->at = text.ptr - texts->data;
        r->len = (int64_t)text.len;
        r->set_cap = f->distinct ? 2 : 0;
        while (f->distinct && r->set_cap < r->len + 3) r->set_cap *= 2;
        r->lower = take_bytes(&used, 2 * r->len + 1);
        r->set = take_bytes(&used, r->set_cap * 8);
        r->weights = take_bytes(&used, f->stats_count * f->lexicon.columns * 8);
    }
    return used;
}

proa_status proa_text_launch(const proa_transform_step *step, const proa_transform_value *args,
                             const proa_transform_value *out, proa_gpu_stream *s, proa_transform_held *held,
                             proa_err *err)
{
    const proa_text_features *f = step->features;
    int64_t count = (int64_t)(out->bytes / sizeof(float)) / f->columns;
    proa_text_row *rows = proa_calloc((size_t)count, sizeof *rows);
    int64_t scratch_bytes = place_rows(f, &args[0], rows, count);
    proa_buffer *bytes = NULL, *places = NULL, *scratch = NULL;
    proa_status status = proa_gpu_upload(s, &bytes, args[0].data, args[0].bytes, err);
    if (bytes) held->buffers[held->count++] = bytes;
    if (status == PROA_OK) status = proa_gpu_upload(s, &places, rows, (size_t)count * sizeof *rows, err);
    if (places) held->buffers[held->count++] = places;
    if (status == PROA_OK) status = proa_gpu_buffer(s, &scratch, (size_t)scratch_bytes, err);
    if (scratch) held->buffers[held->count++] = scratch;
    free(rows);
    if (status != PROA_OK) return status;
    proa_device_copies_add(false, args[0].bytes);
    s->ops->text_features(&s->ctx, (float *)(void *)out->buffer->data, bytes->data,
                          (const proa_text_row *)(void *)places->data, count, scratch->data,
                          &f->devices[s->device->gpu]->plan);
    return PROA_OK;
}
