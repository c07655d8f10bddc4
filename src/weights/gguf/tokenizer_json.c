/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_json.c - byte-level BPE and WordPiece vocabularies as the text of a tokenizer.json. */
#include "weights/gguf/tokenizer.h"

#define WORD_MARK "\xe2\x96\x81" /* U+2581: a space, and of WordPiece the begin of a word */

/* ---- parts of the file ---- */

/* Tokens that are found in a text before anything else: control tokens and those that users defined. */
static void write_added(proa_buf *out, const proa_gguf_vocab *v)
{
    const char *comma = "";
    proa_buf_printf(out, "\"added_tokens\": [");
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);) {
        bool special = walk.type == PROA_GGUF_TOKEN_CONTROL || walk.type == PROA_GGUF_TOKEN_UNKNOWN;
        if (!special && walk.type != PROA_GGUF_TOKEN_USER) continue;
        proa_buf_printf(out, "%s{\"id\": %lld, \"special\": %s, \"normalized\": false, \"content\": ", comma,
                        (long long)walk.id, special ? "true" : "false");
        proa_buf_json_str(out, walk.text);
        proa_buf_char(out, '}');
        comma = ",\n";
    }
    proa_buf_printf(out, "]");
}

static void write_special(proa_buf *out, const proa_gguf_vocab *v, proa_gguf_special s, int type)
{
    proa_buf_printf(out, "{\"SpecialToken\": {\"id\": ");
    proa_buf_json_str(out, v->special[s]);
    proa_buf_printf(out, ", \"type_id\": %d}}", type);
}

/* The tokens before and after a text; the second of a pair has the one before only in byte-level BPE. */
static void write_pieces(proa_buf *out, const proa_gguf_vocab *v, proa_gguf_special before,
                         proa_gguf_special after, bool pair)
{
    for (int text = 0; text <= (pair ? 1 : 0); text++) {
        if (text) proa_buf_char(out, ',');
        if (before < PROA_GGUF_SPECIAL_COUNT && (text == 0 || v->pre)) {
            write_special(out, v, before, text);
            proa_buf_char(out, ',');
        }
        proa_buf_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}", 'A' + text, text);
        if (after == PROA_GGUF_SPECIAL_COUNT) continue;
        proa_buf_char(out, ',');
        write_special(out, v, after, text);
    }
}

static void write_special_ids(proa_buf *out, const proa_gguf_vocab *v, proa_gguf_special before,
                              proa_gguf_special after)
{
    const proa_gguf_special both[2] = {before, after};
    const char *comma = "";
    for (int i = 0; i < 2; i++) {
        if (both[i] == PROA_GGUF_SPECIAL_COUNT || (i == 1 && both[1] == both[0])) continue;
        proa_buf_str(out, proa_str_c(comma));
        proa_buf_json_str(out, v->special[both[i]]);
        proa_buf_printf(out, ": {\"id\": ");
        proa_buf_json_str(out, v->special[both[i]]);
        proa_buf_printf(out, ", \"ids\": [%lld], \"tokens\": [", (long long)v->special_id[both[i]]);
        proa_buf_json_str(out, v->special[both[i]]);
        proa_buf_printf(out, "]}");
        comma = ", ";
    }
}

static proa_gguf_special if_known(const proa_gguf_vocab *v, bool wanted, proa_gguf_special s)
{
    return wanted && v->special[s].ptr ? s : PROA_GGUF_SPECIAL_COUNT;
}

static void write_post_processor(proa_buf *out, const proa_gguf_vocab *v)
{
    proa_gguf_special before = if_known(v, v->add_bos, v->pre ? PROA_GGUF_BOS : PROA_GGUF_CLS);
    proa_gguf_special after = if_known(v, v->add_eos, PROA_GGUF_EOS);
    if (after == PROA_GGUF_SPECIAL_COUNT) after = if_known(v, v->add_sep, PROA_GGUF_SEP);
    if (before == PROA_GGUF_SPECIAL_COUNT && after == PROA_GGUF_SPECIAL_COUNT) return;
    proa_buf_printf(out, ",\n\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    write_pieces(out, v, before, after, false);
    proa_buf_printf(out, "], \"pair\": [");
    write_pieces(out, v, before, after, true);
    proa_buf_printf(out, "], \"special_tokens\": {");
    write_special_ids(out, v, before, after);
    proa_buf_printf(out, "}}");
}

/* ---- BPE ---- */

static void write_vocab(proa_buf *out, const proa_gguf_vocab *v)
{
    proa_buf_printf(out, "\"vocab\": {");
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);) {
        if (walk.id) proa_buf_char(out, ',');
        proa_buf_json_str(out, walk.text);
        proa_buf_printf(out, ":%lld", (long long)walk.id);
    }
    proa_buf_printf(out, "}");
}

/* "a b": the halves are parted by the first space after the first character (which may be one). */
static void write_merges(proa_buf *out, const proa_gguf_vocab *v)
{
    const unsigned char *at = v->merges ? v->merges->at : NULL;
    proa_buf_printf(out, ", \"merges\": [");
    for (int64_t i = 0; v->merges && i < v->merges->count; i++) {
        proa_str merge = proa_gguf_next_str(&at);
        const char *space = merge.len > 1 ? memchr(merge.ptr + 1, ' ', merge.len - 1) : NULL;
        size_t left = space ? (size_t)(space - merge.ptr) : merge.len, right = space ? left + 1 : left;
        proa_buf_str(out, proa_str_c(i ? ",[" : "["));
        proa_buf_json_str(out, (proa_str){merge.ptr, left});
        proa_buf_char(out, ',');
        proa_buf_json_str(out, (proa_str){merge.ptr + right, merge.len - right});
        proa_buf_char(out, ']');
    }
    proa_buf_printf(out, "]");
}

void proa_gguf_write_splits(proa_buf *out, const proa_gguf_pretokenizer *pre)
{
    proa_buf_printf(out, ",\n\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (int i = 0; i < PROA_GGUF_SPLITS_MAX && pre->split[i]; i++) {
        proa_buf_printf(out,
                        "%s{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, "
                        "\"pattern\": {\"Regex\": ",
                        i ? ", " : "");
        proa_buf_json_str(out, proa_str_c(pre->split[i]));
        proa_buf_printf(out, "}}");
    }
    if (!pre->raw)
        proa_buf_printf(out,
                        ", {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}");
    proa_buf_printf(out, "]}");
}

/* The byte alphabet of GPT-2, or spaces as U+2581 with bytes as tokens of their own. */
static void write_alphabet(proa_buf *out, bool raw)
{
    proa_buf_str(
        out, proa_str_c(raw ? ",\n\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                              "\"content\": \"" WORD_MARK "\"},\n\"decoder\": {\"type\": \"Sequence\", "
                              "\"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                              "{\"String\": \"" WORD_MARK
                              "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}"
                            : ",\n\"decoder\": {\"type\": \"ByteLevel\"}"));
}

/* Of UTF-8 for whose bytes there are no tokens. */
static void write_unknown(proa_buf *out, const proa_gguf_vocab *v)
{
    proa_buf_printf(out, "\"unk_token\": ");
    proa_buf_json_str(out, v->special[PROA_GGUF_UNK]);
    proa_buf_printf(out, ", \"fuse_unk\": true, ");
}

void proa_gguf_write_bpe(proa_buf *out, const proa_gguf_vocab *v)
{
    const proa_gguf_pretokenizer *pre = v->pre;
    proa_buf_char(out, '{');
    write_added(out, v);
    proa_gguf_write_splits(out, pre);
    write_alphabet(out, pre->raw);
    write_post_processor(out, v);
    proa_buf_printf(out, ",\n\"model\": {\"type\": \"BPE\", \"byte_fallback\": %s, \"ignore_merges\": %s, ",
                    pre->raw ? "true" : "false", pre->whole ? "true" : "false");
    if (pre->raw && v->special[PROA_GGUF_UNK].ptr) write_unknown(out, v);
    write_vocab(out, v);
    write_merges(out, v);
    proa_buf_printf(out, "}}");
}

/* ---- WordPiece ---- */

/* The file has the begin of a word marked, where WordPiece marks what continues one. */
static void write_wordpieces(proa_buf *out, const proa_gguf_vocab *v)
{
    const proa_str mark = proa_str_c(WORD_MARK);
    proa_buf_printf(out, "\"vocab\": {");
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);) {
        proa_buf piece;
        bool control = walk.type == PROA_GGUF_TOKEN_CONTROL || walk.type == PROA_GGUF_TOKEN_UNKNOWN;
        bool begins = proa_str_starts(walk.text, mark);
        proa_buf_init(&piece, walk.text.len + 3);
        if (!control && !begins) proa_buf_str(&piece, proa_str_c("##"));
        if (control || !begins) proa_buf_str(&piece, walk.text);
        else proa_buf_append(&piece, walk.text.ptr + mark.len, walk.text.len - mark.len);
        if (walk.id) proa_buf_char(out, ',');
        proa_buf_json_str(out, proa_buf_view(&piece));
        proa_buf_printf(out, ":%lld", (long long)walk.id);
        proa_buf_release(&piece);
    }
    proa_buf_printf(out, "}");
}

void proa_gguf_write_wordpiece(proa_buf *out, const proa_gguf_vocab *v)
{
    proa_buf_char(out, '{');
    write_added(out, v);
    proa_buf_printf(out,
                    ",\n\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, "
                    "\"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": %s},\n"
                    "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},\n"
                    "\"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
                    v->lowercase ? "true" : "false");
    write_post_processor(out, v);
    proa_buf_printf(out, ",\n\"model\": {\"type\": \"WordPiece\", \"continuing_subword_prefix\": \"##\", "
                         "\"max_input_chars_per_word\": 100, \"unk_token\": ");
    proa_buf_json_str(out, v->special[PROA_GGUF_UNK].ptr ? v->special[PROA_GGUF_UNK] : proa_str_c("[UNK]"));
    proa_buf_printf(out, ", ");
    write_wordpieces(out, v);
    proa_buf_printf(out, "}}");
}
