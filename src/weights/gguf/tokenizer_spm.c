/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_spm.c - pieces with scores as the bytes of a SentencePiece model (text/sentencepiece_model.proto):
 * protobuf's wire format, a few fields of which are written. */
#include "weights/gguf/tokenizer.h"

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 }; /* wire types */

static void put_varint(proa_buf *out, uint64_t value)
{
    for (; value > 127; value >>= 7) proa_buf_char(out, (char)(value | 128));
    proa_buf_char(out, (char)value);
}

static void put_tag(proa_buf *out, uint32_t field, uint32_t type)
{
    put_varint(out, field << 3 | type);
}

static void put_number(proa_buf *out, uint32_t field, uint64_t value)
{
    put_tag(out, field, VARINT);
    put_varint(out, value);
}

static void put_bytes(proa_buf *out, uint32_t field, proa_str bytes)
{
    put_tag(out, field, BYTES);
    put_varint(out, bytes.len);
    proa_buf_str(out, bytes);
}

static void put_float(proa_buf *out, uint32_t field, float value)
{
    uint32_t bits = proa_f32_bits(value);
    put_tag(out, field, FIXED32);
    for (int i = 0; i < 4; i++) proa_buf_char(out, (char)(bits >> 8 * i));
}

/* A message as the member `field` of another. */
static void put_message(proa_buf *out, uint32_t field, proa_buf *message)
{
    put_bytes(out, field, proa_buf_view(message));
    proa_buf_clear(message);
}

/* Exactly one piece is of type UNKNOWN: the first that says so, or else the one with the unknown token's id. */
static int64_t find_unknown(const proa_gguf_vocab *v)
{
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);)
        if (walk.type == PROA_GGUF_TOKEN_UNKNOWN) return walk.id;
    return v->special_id[PROA_GGUF_UNK];
}

/* Returns whether there are pieces for bytes. */
static bool put_pieces(proa_buf *out, const proa_gguf_vocab *v, proa_buf *message)
{
    int64_t unknown = find_unknown(v);
    bool bytes = false;
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);) {
        double score = 0;
        int64_t type = walk.type == PROA_GGUF_TOKEN_UNKNOWN ? PROA_GGUF_TOKEN_UNUSED : walk.type;
        if (walk.id == unknown) type = PROA_GGUF_TOKEN_UNKNOWN;
        if (walk.text.ptr == walk.empty) type = PROA_GGUF_TOKEN_UNUSED;
        if (v->scores && !proa_gguf_double_at(&score, v->scores, walk.id)) score = 0;
        bytes |= type == PROA_GGUF_TOKEN_BYTE;
        put_bytes(message, 1, walk.text);
        put_float(message, 2, (float)score);
        put_number(message, 3, (uint64_t)type);
        put_message(out, 1, message);
    }
    return bytes;
}

void proa_gguf_write_spm(proa_buf *out, const proa_gguf_vocab *v, bool unigram)
{
    proa_buf message;
    proa_buf_init(&message, (size_t)PROA_SPM_BYTES_MAX);
    bool bytes = put_pieces(out, v, &message);
    put_number(&message, 3, unigram ? 1 : 2); /* trainer_spec: model_type, byte_fallback */
    put_number(&message, 35, bytes);
    put_message(out, 2, &message);
    if (v->charsmap)
        put_bytes(&message, 2, (proa_str){(const char *)v->charsmap->at, (size_t)v->charsmap->count});
    put_number(&message, 3, v->space_prefix); /* normalizer_spec: add_dummy_prefix, remove_extra_whitespaces */
    put_number(&message, 4, v->squeeze);
    put_message(out, 3, &message);
    out->full |= message.full;
    proa_buf_release(&message);
}
