/* SPDX-License-Identifier: Apache-2.0
 * pipeline.h - what a tokenizer is made of; internal to this folder.
 * A text passes: added tokens that match the raw text, the normalisers, added tokens that match the normalised
 * text, the pre-tokenisers, the model, the post-processor. Each stage is a row of a table: its name in
 * tokenizer.json, a function that reads its settings, a function that applies it. Sequences are flattened. */
#ifndef PROA_TEXT_PIPELINE_H
#define PROA_TEXT_PIPELINE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/models/vocab.h"

/* ---- a text between two steps: consecutive parts of one buffer ---- */

/* `zero`: how many leading bytes of the part come from offset 0 of the caller's text; Metaspace's prepend_scheme
 * "first" asks for it. It stands for the alignment table that the tokenizers library keeps for each byte. */
typedef struct proa_part {
    int32_t at, len, zero;
    int32_t id; /* id of an added token, which no later step changes; -1: text */
} proa_part;
typedef struct proa_parts {
    proa_part *ptr;
    int64_t len, cap;
    proa_buf text;
} proa_parts;
void proa_parts_init(proa_parts *parts);
void proa_parts_release(proa_parts *parts);
void proa_parts_clear(proa_parts *parts);
proa_str proa_parts_text(const proa_parts *parts, int64_t i);
/* The bytes [from, to) of the text that begins at base, as a part; empty ones are left out unless id >= 0. */
void proa_parts_add(proa_parts *parts, size_t base, size_t from, size_t to, size_t zero, int32_t id);

/* ---- steps ---- */

typedef enum proa_behavior {
    PROA_REMOVED,
    PROA_ISOLATED,
    PROA_MERGED_WITH_PREVIOUS,
    PROA_MERGED_WITH_NEXT,
    PROA_CONTIGUOUS
} proa_behavior;
typedef enum proa_prepend { PROA_PREPEND_ALWAYS, PROA_PREPEND_FIRST, PROA_PREPEND_NEVER } proa_prepend;

/* A step with its settings; each kind uses those that its parser fills. */
typedef struct proa_text_step {
    const struct proa_text_step_kind *kind;
    proa_str pattern,
        content; /* Replace, Prepend (content), Split, WordPiece prefix and BPEDecoder suffix (pattern) */
    proa_regex *regex;       /* NULL: `pattern` is a plain string */
    proa_charsmap *charsmap; /* Precompiled, and SentencePiece's normaliser (NULL there: identity) */
    proa_trie *symbols;      /* SentencePiece's user defined symbols, never normalised; or NULL */
    int32_t mark;            /* Metaspace replacement, delimiter, Strip decoder's character */
    int64_t start, stop;     /* Strip decoder; FixedLength (start) */
    proa_behavior behavior;
    proa_prepend prepend;
    bool on[4]; /* switches, named by the parser of each kind */
} proa_text_step;
typedef struct proa_text_steps {
    proa_text_step *ptr;
    int64_t len;
} proa_text_steps;

typedef struct proa_loader proa_loader;
typedef struct proa_detok proa_stream;
typedef struct proa_text_step_kind {
    const char *name;
    proa_status (*parse)(proa_loader *ld, const proa_json *j, proa_text_step *step,
                         proa_err *err); /* NULL: no settings */
    /* normaliser: appends in's new form to out and corrects *zero for it */
    proa_status (*normalize)(const proa_text_step *step, proa_str in, size_t *zero, proa_buf *out, proa_err *err);
    /* pre-tokeniser: appends in, maybe changed, to out->text and its parts to out */
    proa_status (*split)(const proa_text_step *step, proa_str in, size_t zero, proa_parts *out, proa_err *err);
    /* decoder: see decode.c */
    void (*feed)(proa_stream *stream, int64_t at, proa_str bytes, bool end);
    void (*finish)(proa_stream *stream, int64_t at);
} proa_text_step_kind;
extern const proa_text_step_kind proa_normalizers[], proa_pre_tokenizers[],
    proa_decoders[]; /* name NULL ends each */
extern const proa_text_step_kind proa_spm_normalizer, proa_spm_decoder;

/* ---- models ---- */

typedef struct proa_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free slot */
    uint32_t rank;
    int32_t id;
} proa_merge;

/* BPE as in the tokenizers library: merges have ranks. */
typedef struct proa_bpe {
    proa_merge *merges; /* open addressing, a power of two */
    uint64_t mask, seed;
    int32_t bytes[256];      /* ids of <0x00>..<0xFF>; -1 where there is none */
    int32_t chars[0x250];    /* ids of the characters below U+0250 for a direct lookup; -1: none */
    proa_str prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix; empty: none */
    proa_str joiner;         /* subword-nmt: ends each piece that is not the last of its word; empty: none */
    int32_t unk;             /* -1: none, -2: named but not in the vocabulary */
    bool fuse_unk, byte_fallback, ignore_merges;
    bool by_id; /* as tiktoken: no list of merges, two symbols merge if they make a piece, whose id is the rank */
} proa_bpe;

/* Unigram, of tokenizer.json (scores are double) and of SentencePiece (float, and types of pieces). Also
 * SentencePiece's BPE, whose merges are implied by the scores. */
typedef struct proa_unigram {
    proa_trie trie;
    double *scores;       /* by id */
    unsigned char *types; /* SentencePiece: proa_spm_type by id; NULL for tokenizer.json */
    proa_trie *symbols;   /* SentencePiece BPE: user defined symbols; or NULL */
    double min_score, max_score;
    int32_t bytes[256];
    int32_t unk; /* -1: none */
    bool byte_fallback, has_unused;
} proa_unigram;
/* The values are those of the file format. */
typedef enum proa_spm_type {
    PROA_SPM_NORMAL = 1,
    PROA_SPM_UNKNOWN = 2,
    PROA_SPM_CONTROL = 3,
    PROA_SPM_USER = 4,
    PROA_SPM_UNUSED = 5,
    PROA_SPM_BYTE = 6,
    PROA_SPM_OUTSIDE = 7 /* not of the file: a piece that only the list of proa_load_spm has; text never becomes it */
} proa_spm_type;

typedef struct proa_wordpiece {
    proa_trie trie;
    proa_str prefix;
    int64_t chars_max;
    int32_t unk; /* -1: none */
} proa_wordpiece;

/* Scratch of one encode call: grows to the longest word and is reused for the next. */
typedef struct proa_encode_scratch {
    void *ptr[3];
    size_t cap[3];
} proa_encode_scratch;
void *proa_encode_scratch_take(proa_encode_scratch *work, int which, size_t count, size_t bytes);
void proa_encode_scratch_release(proa_encode_scratch *work);

typedef proa_status proa_model_fn(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                  proa_ids *out, proa_err *err);
proa_model_fn proa_bpe_encode, proa_unigram_encode, proa_wordpiece_encode, proa_wordlevel_encode,
    proa_spm_unigram_encode, proa_spm_bpe_encode;

/* ---- added tokens ---- */

typedef struct proa_added_token {
    proa_str content; /* as the file has it */
    proa_str text; /* its normalised form when `normalized` and a normaliser changes it, else the content */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool silent; /* text never becomes it */
} proa_added_token;
typedef struct proa_added {
    proa_added_token *ptr;
    int64_t len, cap;
    int32_t *of_id;            /* by id: index of the token, or -1 */
    int32_t next_id;           /* for the next token that the model does not have */
    proa_map by_content;       /* content -> index */
    proa_trie raw, normalized; /* content or text -> index */
} proa_added;
/* Splits text (a part that is not done) at the tokens of the trie. */
void proa_added_split(const proa_added *added, const proa_trie *trie, proa_str text, size_t zero,
                      proa_parts *out);

/* ---- post-processor ---- */

typedef struct proa_post_piece {
    int32_t *ids; /* of a special token; NULL for a sequence */
    int32_t ids_len;
    int32_t sequence; /* 0: the first text, 1: the second */
    int32_t type_id;
} proa_post_piece;
typedef struct proa_post_template {
    proa_post_piece *ptr;
    int64_t len;
} proa_post_template;
typedef struct proa_post {
    bool on;         /* false: the texts in order, types 0 and 1 */
    bool only_added; /* Bert: the template applies only where special tokens are requested */
    proa_post_template single, pair;
} proa_post;

/* ---- the tokenizer ---- */

struct proa_tokenizer {
    proa_arena arena; /* owns everything below unless stated otherwise */
    proa_vocab vocab; /* the model's pieces; added tokens may have ids beyond them */
    proa_added added;
    proa_text_steps normalizers, pre_tokenizers, decoders;
    proa_post post;
    proa_model_fn *model;
    proa_bpe bpe;
    proa_unigram unigram;
    proa_wordpiece wordpiece;
    int32_t size;        /* ids are below this */
    int32_t listed;      /* > 0: the model's pieces from this id on are not in its separate vocabulary ... */
    int32_t unlisted_id; /* ... and become this, the unknown token */
    proa_str *texts; /* by id: the text that decoding starts from: that of the added token, or the piece */
    bool *special;
    proa_str unk_surface; /* SentencePiece: what an unknown id decodes to */
};

/* A stream of tokens through the decoders (proa_detok). A stage receives a token in parts of whole
 * characters; `end` marks its last part. A stage that fuses tokens passes on one token for the whole
 * stream. */
typedef struct proa_decoder_state {
    proa_buf hold, made; /* bytes held back; scratch for output */
    int64_t count;       /* tokens so far, or as the stage defines it */
    int64_t run;
    bool seen, more;
} proa_decoder_state;
struct proa_detok {
    const proa_tokenizer *tok;
    proa_decoder_state *stages; /* one for each decoder */
    proa_buf *out;              /* of the call under way */
    int64_t tokens;             /* pushed and not skipped */
    int32_t id;                 /* the one under way */
    bool skip_special;
    const int32_t *shown; /* [shown_count] special tokens that are not skipped */
    int64_t shown_count;
};
void proa_stream_emit(proa_stream *stream, int64_t at, proa_str bytes, bool end); /* to stage `at`, or out */

/* While a tokenizer is read. */
struct proa_loader {
    proa_tokenizer *tok;
    int64_t steps;   /* of all pipelines so far */
    bool nul_marked; /* see proa_load_text */
};
proa_status proa_load_json(proa_tokenizer *tok, const proa_json *root, bool nul_marked, proa_err *err);
proa_status proa_load_steps(proa_loader *ld, const proa_json *j, const proa_text_step_kind *kinds,
                            const char *list_key, proa_text_steps *out, proa_err *err);
proa_status proa_load_model(proa_loader *ld, const proa_json *m, proa_err *err);
proa_status proa_load_post(proa_loader *ld, const proa_json *j, proa_err *err);
proa_status proa_load_added(proa_loader *ld, const proa_json *list, proa_err *err);
/* A separate vocabulary of a SentencePiece model: ids are places in it (OpenNMT, Marian). */
typedef struct proa_piece_list {
    const proa_str *ptr; /* by id */
    int32_t len;
} proa_piece_list;
/* list: NULL, or the ids that the pieces have in place of their order in the file. A piece of the file that the list
 * lacks is unknown; one that only the list has can be decoded, but text never becomes it. config: may be NULL; its
 * class may have an order of its own (load/fairseq.c). */
proa_status proa_load_spm(proa_tokenizer *tok, const void *bytes, size_t len, const proa_json *config,
                          const proa_piece_list *list, proa_err *err);
/* What tokenizer_config.json says about a SentencePiece model: added tokens, beginning and end. */
proa_status proa_load_spm_config(proa_tokenizer *tok, const proa_json *config, proa_err *err);
/* proa_tokenizer_open_spm with a tokenizer_config.json and a vocabulary, each may be NULL. */
proa_status proa_tokenizer_open_model(proa_tokenizer **out, const void *bytes, size_t len, const char *what,
                                      const proa_json *config, const proa_piece_list *list, proa_err *err);
/* tiktoken's lines, see proa_tiktoken_write; name: the file's, what: how errors call it. */
proa_status proa_tokenizer_open_tiktoken(proa_tokenizer **out, proa_str lines, const char *name,
                                         const char *what, const proa_json *config, proa_err *err);
void proa_byte_ids(const proa_vocab *vocab, int32_t ids[256]); /* of <0x00>..<0xFF>; -1: none */
void proa_added_init(proa_tokenizer *tok, int64_t cap);        /* after the vocabulary is there */
proa_status proa_added_put(proa_tokenizer *tok, proa_added_token token, proa_err *err);
proa_status proa_added_seal(proa_tokenizer *tok, proa_err *err);
/* Builds the tables that depend on all of the above. Every way of opening calls it once at its end. */
proa_status proa_tokenizer_seal(proa_tokenizer *tok, proa_err *err);
proa_status proa_normalize(const proa_tokenizer *tok, proa_str in, size_t *zero, proa_buf *out, proa_err *err);

#endif
