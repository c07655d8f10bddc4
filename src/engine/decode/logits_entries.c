/* SPDX-License-Identifier: Apache-2.0
 * logits_entries.c - what the processors do to a row as a list of entries, which a device applies (process_logits of
 * decode.def). The newest token may still be unknown to the host: then entries have it as their condition. */
#include "engine/decode/logits_state.h"

int64_t proa_logits_processor_entries_max(const proa_logits_processor *l, int64_t length)
{
    const proa_options *o = &l->options;
    int64_t counts = wants_repetition(o) || wants_counts(o) ? length : 0;
    int64_t bans = o->banned_words.count + (wants_min(o) ? o->end_ids_count : 0) +
                   (wants_no_repeat(o) ? length : 0) + o->suppress_tokens.count + o->begin_suppress_tokens.count;
    bool on_host = wants_sequence_bias(o) || wants_encoder_repetition(o) || wants_encoder_no_repeat(o) ||
                   wants_decay(o) || wants_renormalize(o);
    if (on_host) return -1;
    next_epoch(l);
    for (int32_t i = 0; i < o->logit_bias_count; i++)
        if (count_of(l, o->logit_bias[i].id)->count++) return -1;
    return o->logit_bias_count + counts + bans;
}

/* Each distinct token with its count, from the position from which the style counts. */
static int32_t put_counts(const proa_logits_processor *l, const proa_history *h, bool unknown,
                          proa_logits_row *row, proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    bool hf = o->style == PROA_STYLE_HF, repeats = wants_repetition(o), counts = wants_counts(o);
    int64_t from = hf ? h->prompt_count : 0, length = length_of(h);
    int32_t n = 0;
    if (!(repeats || counts) || (o->style == PROA_STYLE_FT && length + unknown <= 1)) return 0;
    if (repeats) row->repetition = o->repetition_penalty;
    if (counts) row->presence = o->presence_penalty, row->frequency = o->frequency_penalty;
    row->presence_first = !hf;
    row->last = unknown;
    next_epoch(l);
    for (int64_t i = repeats ? 0 : from; i < length; i++) {
        int32_t id = token_at(h, i);
        if (!is_column(l, id)) continue;
        proa_token_count *m = count_of(l, id); /* 1 + index of its entry */
        if (!m->count) entries[n] = (proa_logits_entry){.id = id, .number = 0}, m->count = ++n;
        entries[m->count - 1].number += i >= from;
    }
    return n;
}

/* Tokens that would complete an n-gram of the known history. */
static int32_t put_known_ngram_bans(const proa_logits_processor *l, const proa_history *h,
                                    proa_logits_entry *entries)
{
    int64_t n = l->options.no_repeat_ngram, length = length_of(h);
    int32_t count = 0;
    for (int64_t i = 0; i + n <= length; i++) {
        int32_t id = token_at(h, i + n - 1);
        if (repeats_end(h, i, n - 1) && is_column(l, id))
            entries[count++] = (proa_logits_entry){.id = id, .number = -1};
    }
    return count;
}

/* The same if one more token u follows the known history. For n > 1 the n-gram at i bans its last token if its
 * first n - 2 tokens are the last known ones and u is its last but one; so that token is the entry's condition.
 * The n-gram that ends with u itself bans u. For n == 1 all tokens are banned, u too. */
static int32_t put_ngram_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                              proa_logits_entry *entries)
{
    int64_t n = l->options.no_repeat_ngram, length = length_of(h);
    if (!unknown) return put_known_ngram_bans(l, h, entries);
    if (n == 1) {
        int32_t known = put_known_ngram_bans(l, h, entries);
        entries[known] = (proa_logits_entry){.id = PROA_LOGITS_LAST_TOKEN, .number = -1};
        return known + 1;
    }
    int32_t count = 0;
    for (int64_t i = 0; i + n <= length + 1; i++) {
        int32_t u = token_at(h, i + n - 2);
        int32_t id = i + n <= length ? token_at(h, i + n - 1) : u;
        if (repeats_end(h, i, n - 2) && is_column(l, id))
            entries[count++] = (proa_logits_entry){.id = id, .number = u};
    }
    return count;
}

/* Last tokens of banned words that are about to come. With an unknown token u the condition is that u is the
 * word's last but one. */
static int32_t put_word_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                             proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    const proa_words *w = &o->banned_words;
    int32_t count = 0;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++]) {
        const int32_t *ids = w->ids + begin;
        int64_t n = w->ends[i] - begin;
        bool may = o->style == PROA_STYLE_HF ? length_of(h) + 1 >= n : ids[n - 1] > 0;
        if (!unknown || n == 1) {
            if (proa_logits_is_banned(o, h, ids, n))
                entries[count++] = (proa_logits_entry){.id = ids[n - 1], .number = -1};
        } else if (may && ends_with(h, ids, n - 2))
            entries[count++] = (proa_logits_entry){.id = ids[n - 1], .number = ids[n - 2]};
    }
    return count;
}

static int32_t put_end_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                            proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    int32_t count = 0;
    if (!wants_min(o) || h->generated_count + unknown >= o->min_tokens) return 0;
    for (int32_t i = 0; i < o->end_ids_count; i++)
        if (is_column(l, o->end_ids[i]))
            entries[count++] = (proa_logits_entry){.id = o->end_ids[i], .number = -1};
    return count;
}

/* suppress_tokens, and begin_suppress_tokens where they count. */
static int32_t put_suppressed(const proa_logits_processor *l, const proa_history *h, bool unknown,
                              proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    bool begins = proa_logits_begins_here(o, h, h->generated_count + unknown);
    const proa_tokens *lists[] = {&o->suppress_tokens, &o->begin_suppress_tokens};
    int32_t count = 0;
    for (int k = 0; k < 1 + begins; k++)
        for (int32_t i = 0; i < lists[k]->count; i++)
            if (is_column(l, lists[k]->ids[i]))
                entries[count++] = (proa_logits_entry){.id = lists[k]->ids[i], .number = -1};
    return count;
}

/* One order fits all styles: a token that is banned, or that the mask excludes, stays at -infinity whatever else is
 * applied to it. */
void proa_logits_processor_entries(const proa_logits_processor *l, const proa_history *history, bool unknown,
                                   proa_logits_row *row, proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    const int32_t first = row->first;
    *row = (proa_logits_row){.first = first, .bias_count = o->logit_bias_count, .scale = 1};
    if (o->style != PROA_STYLE_HF && wants_temperature(o)) row->scale = 1.0F / (temperature_of(o) + 1e-6F);
    for (int32_t i = 0; i < o->logit_bias_count; i++)
        entries[i] = (proa_logits_entry){.id = o->logit_bias[i].id, .value = o->logit_bias[i].value};
    entries += row->bias_count;
    row->seen_count = put_counts(l, history, unknown, row, entries);
    entries += row->seen_count;
    if (wants_no_repeat(o)) row->mask_count = put_ngram_bans(l, history, unknown, entries);
    row->mask_count += put_word_bans(l, history, unknown, entries + row->mask_count);
    row->only = 1 + proa_logits_forced_token(o, history->prompt_count, history->generated_count + unknown);
    row->mask_count += put_end_bans(l, history, unknown, entries + row->mask_count);
    row->mask_count += put_suppressed(l, history, unknown, entries + row->mask_count);
}
