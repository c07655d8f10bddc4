/* SPDX-License-Identifier: Apache-2.0
 * pretokenizers.c - the table of tokenizer.ggml.pre. Expressions are those of the tokenizers library (Oniguruma),
 * which PCRE2 reads too. */
#include "weights/gguf/pretokenizers.h"

#include "base/compiler.h"

/* clang-format off */

/* Parts of expressions. */
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LINES       "\\s*[\\r\\n]+"
#define BLANKS      "\\s+(?!\\S)|\\s+"
#define SYMBOLS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define OTHER       "[^\\r\\n\\p{L}\\p{N}]?"

#define GPT2    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" BLANKS
#define LLAMA3  CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" LINES "|" BLANKS
#define QWEN2   CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "|" LINES "|" BLANKS
#define QWEN35  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" \
                LINES "|" BLANKS
#define TEKKEN  OTHER UPPER "*" LOWER "+|" OTHER UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" \
                LINES "|" BLANKS
#define GPT4O   OTHER UPPER "*" LOWER "+" CONTRACTION "?|" OTHER UPPER "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}|" \
                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES "|" BLANKS
#define BLOOM   " ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+"
#define DIGITS3 "[0-9][0-9][0-9]"

/* DeepSeek: scripts by their code points. */
#define HAN_HANGUL  "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define HAN_KANA    "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CASED \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}" \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}" \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}" \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}" \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}" \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define MARKS       "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define DEEPSEEK3   "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" \
                    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
                    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" BLANKS

#define SPLIT(...)  .split = {__VA_ARGS__}
static const proa_gguf_pretokenizer table[] = {
    {"", SPLIT("[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", DIGITS3)},
    {"default", SPLIT("[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", DIGITS3)},
    {"gpt-2", SPLIT(GPT2)}, {"phi-2", SPLIT(GPT2)}, {"mpt", SPLIT(GPT2)}, {"olmo", SPLIT(GPT2)}, {"jais", SPLIT(GPT2)},
    {"gigachat", SPLIT(GPT2)}, {"a.x-4.0", SPLIT(GPT2)}, {"mellum", SPLIT(GPT2)}, {"modern-bert", SPLIT(GPT2)},
    {"exaone4", SPLIT(GPT2)}, {"trillion", SPLIT(GPT2)}, {"granite-docling", SPLIT(GPT2)},
    {"llama-bpe", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"llama3", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"llama-v3", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"falcon3", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"falcon-h1", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"pixtral", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"midm-2.0", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"lfm2", SPLIT(LLAMA3), .whole = true, .add_bos = true},
    {"dbrx", SPLIT(LLAMA3)}, {"smaug-bpe", SPLIT(LLAMA3)}, {"chatglm-bpe", SPLIT(LLAMA3)},
    {"glm4", SPLIT(LLAMA3), .whole = true}, {"glm5", SPLIT(LLAMA3), .whole = true},
    {"qwen2", SPLIT(QWEN2)}, {"deepseek-r1-qwen", SPLIT(QWEN2)}, {"stablelm2", SPLIT(QWEN2)}, {"megrez", SPLIT(QWEN2)},
    {"hunyuan", SPLIT(QWEN2)}, {"solar-open", SPLIT(QWEN2)}, {"grok-2", SPLIT(QWEN2)}, {"kormo", SPLIT(QWEN2)},
    {"qwen35", SPLIT(QWEN35)},
    {"starcoder", SPLIT("\\p{N}", GPT2)}, {"refact", SPLIT("\\p{N}", GPT2)}, {"command-r", SPLIT("\\p{N}", GPT2)},
    {"smollm", SPLIT("\\p{N}", GPT2)}, {"codeshell", SPLIT("\\p{N}", GPT2)}, {"exaone", SPLIT("\\p{N}", GPT2)},
    {"minerva-7b", SPLIT("\\p{N}", GPT2)}, {"mellum2", SPLIT("\\p{N}", GPT2)},
    {"falcon", SPLIT("[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, DIGITS3)},
    {"bloom", SPLIT(BLOOM)}, {"poro-chat", SPLIT(BLOOM)}, {"gpt3-finnish", SPLIT(BLOOM)},
    {"viking", SPLIT(BLOOM, "\\p{N}")},
    {"tekken", SPLIT(TEKKEN), .whole = true, .add_bos = true},
    {"gpt-4o", SPLIT(GPT4O)}, {"llama4", SPLIT(GPT4O)}, {"kanana2", SPLIT(GPT4O)}, {"minimax-m2", SPLIT(GPT4O)},
    {"deepseek-llm", SPLIT("[\\r\\n]", "\\s?[" CASED "]+", MARKS, "\\s+$", HAN_HANGUL "|\\p{N}+")},
    {"deepseek-coder", SPLIT("[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_HANGUL, "\\p{N}")},
    {"deepseek-v3", SPLIT("\\p{N}{1,3}", HAN_KANA, DEEPSEEK3)},
    {"hunyuan-dense", SPLIT("\\p{N}{1,3}", HAN_KANA, DEEPSEEK3)},
    {"joyai-llm", SPLIT("\\p{N}{1,3}", HAN_KANA, DEEPSEEK3)},
    {"bailingmoe", SPLIT("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
                         "\\s*[\\r\\n]|" BLANKS)},
    {"seed-coder", SPLIT(CONTRACTION "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES "|" BLANKS)},
    {"minicpm5", SPLIT("\\p{N}{1,3}", CONTRACTION "|" WORD "|\\p{N}+|" SYMBOLS "|" LINES "|" BLANKS), .whole = true},
    {"laguna", SPLIT("[^\\n]+|[\\n]+", QWEN2)},
    {"gemma4", SPLIT("[^\\n]+|[\\n]+"), .add_bos = true, .raw = true},
};
/* clang-format on */

const proa_gguf_pretokenizer *proa_gguf_pretokenizer_of(proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(table); i++)
        if (proa_str_is(name, table[i].name)) return &table[i];
    return NULL;
}

const proa_gguf_pretokenizer *proa_gguf_pretokenizer_at(size_t i)
{
    return i < PROA_COUNT(table) ? &table[i] : NULL;
}
