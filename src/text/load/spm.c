/* SPDX-License-Identifier: Apache-2.0
 * spm.c - reads SentencePiece's .model file: protobuf-c unpacks it into an arena with a budget, and it
 * becomes a tokenizer with one normalizer, one model and one decoder. */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/models/spm.h"
#include "text/sentencepiece_model.pb-c.h"
#include <math.h>
#include <string.h>

typedef ProaSpm__Model spm_model;

typedef struct spm_loader {
    proa_tokenizer *tok;
    const spm_model *m;
    const proa_piece_list *list; /* or NULL: the ids are the pieces' places in the file */
    int32_t *ids;                /* [pieces of the file] */
    proa_err *err;
} spm_loader;

/* ---- memory for protobuf-c: taken in sequence, refused beyond the budget ---- */

static void *budget_alloc(void *data, size_t bytes)
{
    proa_arena *arena = data;
    if (bytes > (size_t)PROA_SPM_MEMORY_MAX || arena->bytes + bytes > (size_t)PROA_SPM_MEMORY_MAX)
        return NULL;
    return proa_arena_alloc(arena, bytes);
}

static void budget_free(void *data, void *ptr)
{
    PROA_UNUSED(data);
    PROA_UNUSED(ptr);
}

static proa_str bytes_of(ProtobufCBinaryData b)
{
    return (proa_str){b.data ? (const char *)b.data : "", b.len};
}

/* ---- pieces ---- */

static bool is_findable(const ProaSpm__Piece *p)
{
    return p->type == PROA_SPM_NORMAL || p->type == PROA_SPM_USER || p->type == PROA_SPM_UNUSED;
}

static proa_status check_piece(const spm_loader *ld, int32_t i)
{
    const ProaSpm__Piece *p = ld->m->pieces[i];
    const proa_unigram *u = &ld->tok->unigram;
    proa_err *err = ld->err;
    if (p->piece.len == 0) return PROA_FAIL(err, INVALID, "piece %d is empty", i);
    if (p->type < PROA_SPM_NORMAL || p->type > PROA_SPM_BYTE)
        return PROA_FAIL(err, INVALID, "piece %d has type %d, allowed is 1..6", i, p->type);
    if (!isfinite(p->score)) return PROA_FAIL(err, INVALID, "piece %d has a score that is no number", i);
    if (p->type == PROA_SPM_UNKNOWN && u->unk >= 0)
        return PROA_FAIL(err, INVALID, "pieces %d and %d are both of type UNKNOWN", u->unk, i);
    return PROA_OK;
}

/* A name of the list that is no text: SentencePiece and its users write them so. */
static bool is_control(proa_str piece)
{
    static const char *const names[] = {"<s>", "</s>", "<blank>", "<pad>"};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_is(piece, names[i])) return true;
    return false;
}

/* Puts the pieces of the list into the vocabulary, as if the file lacked them all. */
static proa_status load_list(const spm_loader *ld)
{
    proa_vocab *vocab = &ld->tok->vocab;
    for (int32_t i = 0; i < ld->list->len; i++) {
        proa_str piece = ld->list->ptr[i];
        if (proa_vocab_find(vocab, piece) >= 0)
            return PROA_FAIL(ld->err, INVALID, "entry %d '%.*s' of the vocabulary is there twice", i,
                             piece.len > 40 ? 40 : (int)piece.len, piece.ptr);
        PROA_TRY(proa_vocab_put(vocab, piece, i, ld->err));
        ld->tok->unigram.types[i] = is_control(piece) ? PROA_SPM_CONTROL : PROA_SPM_OUTSIDE;
    }
    ld->tok->listed = ld->list->len;
    return PROA_OK;
}

/* The id of piece i: its place in the list, or a new one after the list, or its place in the file. A name that is in
 * the file twice is refused. */
static proa_status place_piece(const spm_loader *ld, bool *taken, int32_t *next, int32_t i)
{
    proa_str piece = bytes_of(ld->m->pieces[i]->piece);
    int32_t id = proa_vocab_find(&ld->tok->vocab, piece);
    if (id >= 0 && taken[id])
        return PROA_FAIL(ld->err, INVALID, "piece %d '%.*s' is there twice", i,
                         piece.len > 40 ? 40 : (int)piece.len, piece.ptr);
    if (id < 0) {
        id = (*next)++;
        PROA_TRY(proa_vocab_put(&ld->tok->vocab, piece, id, ld->err));
    }
    taken[id] = true;
    ld->ids[i] = id;
    return PROA_OK;
}

/* Room for the pieces of the list and of the file. */
static proa_status init_pieces(spm_loader *ld, int32_t *listed)
{
    proa_tokenizer *tok = ld->tok;
    int32_t n = (int32_t)ld->m->n_pieces;
    int64_t bytes = 1;
    *listed = ld->list ? ld->list->len : 0;
    for (int32_t i = 0; i < n; i++) bytes += (int64_t)ld->m->pieces[i]->piece.len + 1;
    for (int32_t i = 0; i < *listed; i++) bytes += (int64_t)ld->list->ptr[i].len + 1;
    PROA_TRY(proa_vocab_init(&tok->vocab, &tok->arena, n + *listed, bytes, ld->err));
    tok->unigram.scores = PROA_ARENA_NEW(&tok->arena, double, n + *listed);
    tok->unigram.types = PROA_ARENA_NEW(&tok->arena, unsigned char, n + *listed);
    ld->ids = PROA_ARENA_NEW(&tok->arena, int32_t, n);
    return ld->list ? load_list(ld) : PROA_OK;
}

/* Pieces, then what is not text of its own (control, unknown, bytes): a name that both have means the latter, as
 * in SentencePiece's PieceToId. BPE and the trie look at types, so that text never becomes a control piece. */
static proa_status load_pieces(spm_loader *ld)
{
    const spm_model *m = ld->m;
    proa_tokenizer *tok = ld->tok;
    proa_unigram *u = &tok->unigram;
    int32_t n = (int32_t)m->n_pieces, next;
    PROA_TRY(init_pieces(ld, &next));
    bool *taken = PROA_ARENA_NEW(&tok->arena, bool, tok->vocab.size);
    u->unk = -1;
    float low = INFINITY, high = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        const ProaSpm__Piece *p = m->pieces[i];
        PROA_TRY(check_piece(ld, i));
        PROA_TRY(place_piece(ld, taken, &next, i));
        u->scores[ld->ids[i]] = (double)p->score;
        u->types[ld->ids[i]] = (unsigned char)p->type;
        u->has_unused |= p->type == PROA_SPM_UNUSED;
        if (p->type == PROA_SPM_UNKNOWN) u->unk = ld->ids[i];
        if (p->type != PROA_SPM_NORMAL) continue;
        low = p->score < low ? p->score : low;
        high = p->score > high ? p->score : high;
    }
    u->min_score = isfinite(low) ? (double)low : 0;
    u->max_score = isfinite(high) ? (double)high : 0;
    tok->vocab.size = next;
    tok->unlisted_id = u->unk;
    if (u->unk < 0) return PROA_FAIL(ld->err, INVALID, "no piece is of type UNKNOWN");
    if (tok->listed == 0 || u->unk < tok->listed) return PROA_OK;
    return PROA_FAIL(ld->err, INVALID, "the vocabulary has no piece for what is unknown");
}

static proa_status load_bytes(proa_tokenizer *tok, bool byte_fallback, proa_err *err)
{
    proa_unigram *u = &tok->unigram;
    u->byte_fallback = byte_fallback;
    proa_byte_ids(&tok->vocab, u->bytes);
    for (int b = 0; byte_fallback && b < 256; b++)
        if (u->bytes[b] < 0 || u->types[u->bytes[b]] != PROA_SPM_BYTE)
            return PROA_FAIL(err, INVALID, "byte_fallback is set, but the piece <0x%02X> is missing",
                             (unsigned)b);
    for (int32_t i = 0; i < tok->vocab.size; i++)
        if (u->types[i] == PROA_SPM_BYTE && proa_spm_byte(proa_vocab_piece(&tok->vocab, i)) < 0)
            return PROA_FAIL(err, INVALID, "piece %d is of type BYTE, but is not <0x00>..<0xFF>", i);
    return PROA_OK;
}

static proa_status build_tries(const spm_loader *ld, proa_trie **symbols)
{
    proa_tokenizer *tok = ld->tok;
    proa_trie_key *keys = proa_calloc(ld->m->n_pieces + 1, sizeof *keys);
    int64_t n = 0;
    for (size_t i = 0; i < ld->m->n_pieces; i++)
        if (is_findable(ld->m->pieces[i]))
            keys[n++] = (proa_trie_key){proa_vocab_piece(&tok->vocab, ld->ids[i]), ld->ids[i]};
    proa_status status = proa_trie_build(&tok->unigram.trie, &tok->arena, keys, n, ld->err);
    n = 0;
    for (size_t i = 0; i < ld->m->n_pieces; i++)
        if (ld->m->pieces[i]->type == PROA_SPM_USER)
            keys[n++] = (proa_trie_key){proa_vocab_piece(&tok->vocab, ld->ids[i]), ld->ids[i]};
    if (n && status == PROA_OK) {
        *symbols = PROA_ARENA_NEW(&tok->arena, proa_trie, 1);
        status = proa_trie_build(*symbols, &tok->arena, keys, n, ld->err);
    }
    free(keys);
    return status;
}

/* ---- the steps ---- */

static proa_text_step *one_step(proa_tokenizer *tok, proa_text_steps *steps, const proa_text_step_kind *kind)
{
    steps->ptr = PROA_ARENA_NEW(&tok->arena, proa_text_step, 1);
    steps->len = 1;
    steps->ptr->kind = kind;
    return steps->ptr;
}

static proa_status load_normalizer(proa_tokenizer *tok, const spm_model *m, proa_trie *symbols, proa_err *err)
{
    static const ProaSpm__NormalizerSpec defaults = PROA_SPM__NORMALIZER_SPEC__INIT;
    const ProaSpm__NormalizerSpec *spec = m->normalizer_spec ? m->normalizer_spec : &defaults;
    proa_text_step *n = one_step(tok, &tok->normalizers, &proa_spm_normalizer);
    proa_text_step *d = one_step(tok, &tok->decoders, &proa_spm_decoder);
    n->on[PROA_SPM_DUMMY_PREFIX] = d->on[PROA_SPM_DUMMY_PREFIX] = spec->add_dummy_prefix;
    n->on[PROA_SPM_SQUEEZE] = d->on[PROA_SPM_SQUEEZE] = spec->remove_extra_whitespaces;
    n->on[PROA_SPM_ESCAPE] = spec->escape_whitespaces;
    n->on[PROA_SPM_SUFFIX] = m->trainer_spec && m->trainer_spec->treat_whitespace_as_suffix;
    n->symbols = symbols;
    if (spec->precompiled_charsmap.len)
        PROA_TRY(proa_charsmap_new(&n->charsmap, &tok->arena, spec->precompiled_charsmap.data,
                                   spec->precompiled_charsmap.len, err));
    if (m->denormalizer_spec && m->denormalizer_spec->precompiled_charsmap.len)
        return PROA_FAIL(err, UNSUPPORTED, "the model has denormalisation rules");
    return PROA_OK;
}

static proa_status load_trainer(proa_tokenizer *tok, const spm_model *m, proa_err *err)
{
    static const ProaSpm__TrainerSpec defaults = PROA_SPM__TRAINER_SPEC__INIT;
    const ProaSpm__TrainerSpec *spec = m->trainer_spec ? m->trainer_spec : &defaults;
    proa_str surface = {" \xE2\x81\x87 ", 5};
    if (spec->model_type != 1 && spec->model_type != 2)
        return PROA_FAIL(err, UNSUPPORTED, "model_type is %d, known are 1 (unigram) and 2 (bpe)",
                         spec->model_type);
    tok->model = spec->model_type == 1 ? proa_spm_unigram_encode : proa_spm_bpe_encode;
    if (spec->has_unk_surface) surface = bytes_of(spec->unk_surface);
    if (!proa_utf8_valid(surface)) return PROA_FAIL(err, INVALID, "unk_surface is not UTF-8");
    tok->unk_surface = (proa_str){proa_arena_strdup(&tok->arena, surface), surface.len};
    return load_bytes(tok, spec->byte_fallback, err);
}

/* The ids that fairseq gives the pieces of the file, or those of vocab.json. */
static proa_status order_pieces(proa_piece_list *out, const spm_model *m, const proa_fairseq *order,
                                const proa_piece_list *listed, proa_arena *arena, proa_err *err)
{
    proa_str *pieces = PROA_ARENA_NEW(arena, proa_str, (int64_t)m->n_pieces);
    for (size_t i = 0; i < m->n_pieces; i++) pieces[i] = bytes_of(m->pieces[i]->piece);
    proa_piece_list file = {pieces, (int32_t)m->n_pieces};
    return proa_fairseq_list(out, order, &file, listed, arena, err);
}

static proa_status load_model(proa_tokenizer *tok, const spm_model *m, const proa_fairseq *order,
                              const proa_piece_list *list, proa_arena *scratch, proa_err *err)
{
    proa_trie *symbols = NULL;
    proa_piece_list ordered;
    spm_loader ld = {.tok = tok, .m = m, .err = err};
    if (m->n_pieces == 0) return PROA_FAIL(err, INVALID, "the model has no pieces");
    if (m->n_pieces > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "the model has %zu pieces, at most %d are allowed", m->n_pieces,
                         PROA_VOCAB_MAX);
    if (order) {
        PROA_TRY(order_pieces(&ordered, m, order, list, scratch, err));
        list = &ordered;
    }
    if (list && list->len > PROA_VOCAB_MAX - (int64_t)m->n_pieces)
        return PROA_FAIL(err, LIMIT,
                         "the vocabulary has %d entries, with the model's pieces at most %d are allowed",
                         list->len, PROA_VOCAB_MAX);
    ld.list = list;
    PROA_TRY(load_pieces(&ld));
    PROA_TRY(load_trainer(tok, m, err));
    PROA_TRY(build_tries(&ld, &symbols));
    tok->unigram.symbols = symbols;
    return load_normalizer(tok, m, symbols, err);
}

/* SeamlessM4T has an order of ids of its own, which is not among those of fairseq.c. */
static proa_status check_order(const proa_json *config, proa_err *err)
{
    proa_str class = proa_json_str(proa_json_get(config, "tokenizer_class"));
    if (!proa_str_starts(class, proa_str_c("SeamlessM4T"))) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED,
                     "the ids of SeamlessM4T are not those of its .model file: needs tokenizer.json");
}

proa_status proa_load_spm(proa_tokenizer *tok, const void *bytes, size_t len, const proa_json *config,
                          const proa_piece_list *list, proa_err *err)
{
    proa_arena scratch;
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &scratch};
    if (len == 0 || len > (size_t)PROA_SPM_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "the model has %zu bytes, allowed is 1..%lld", len,
                         (long long)PROA_SPM_BYTES_MAX);
    PROA_TRY(check_order(config, err));
    proa_arena_init(&scratch);
    const spm_model *m = proa_spm__model__unpack(&allocator, len, bytes);
    proa_status status =
        m ? load_model(tok, m, proa_fairseq_of(config), list, &scratch, err)
          : PROA_FAIL(err, CORRUPT,
                      "not a SentencePiece model: broken, cut short, or needs more than %lld MiB to read",
                      (long long)(PROA_SPM_MEMORY_MAX / PROA_MIB));
    proa_arena_release(&scratch);
    return status;
}
