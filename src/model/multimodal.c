/* SPDX-License-Identifier: Apache-2.0
 * multimodal.c - makes the rows of multimodal classes of those of their text models.
 * Facts: the classes' modeling_*.py and configuration_*.py of transformers and its conversion_mapping.py, which has the
 * names of published files; of InternVL the published modeling_internvl_chat.py. */
#include "model/multimodal.h"

#include "base/arena.h"
#include "base/checked.h"
#include "model/arch/arch_rows.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A text model, by the model_type of its configuration. */
struct proa_text_model {
    const char *type;
    const proa_arch *row;
    const char *body;     /* what the names of the row's layers begin with */
    const char *defaults; /* keys of its class that config.json may leave out, without braces */
};

/* clang-format off */
#define SIZES(vocab, hidden, layers, heads, ffn, context) \
    "\"vocab_size\":" #vocab ",\"hidden_size\":" #hidden ",\"num_hidden_layers\":" #layers \
    ",\"num_attention_heads\":" #heads ",\"intermediate_size\":" #ffn ",\"max_position_embeddings\":" #context
#define KEY(key, value) ",\"" key "\":" #value
#define TEXT_MODEL(type, row, body, ...) {type, &proa_arch_##row, body, __VA_ARGS__}

/* Defaults that the row has itself are not repeated. Configurations of these types without sizes are not published
 * where none are given. */
static const struct proa_text_model texts[] = {
    TEXT_MODEL("llama",       llama,       "model.", SIZES( 32000, 4096, 32, 32, 11008,   2048)),
    TEXT_MODEL("mistral",     mistral,     "model.", SIZES( 32000, 4096, 32, 32, 14336, 131072)),
    TEXT_MODEL("qwen2",       qwen2,       "model.", SIZES(151936, 4096, 32, 32, 22016,  32768)),
    TEXT_MODEL("qwen3",       qwen3,       "model.", SIZES(151936, 4096, 32, 32, 22016,  32768)),
    TEXT_MODEL("gemma",       gemma,       "model.", SIZES(256000, 3072, 28, 16, 24576,   8192)),
    TEXT_MODEL("gemma2",      gemma2,      "model.", SIZES(256000, 2304, 26,  8,  9216,   8192)),
    TEXT_MODEL("gemma3_text", gemma3,      "model.", NULL),
    TEXT_MODEL("cohere",      cohere,      "model.", SIZES(256000, 8192, 40, 64, 22528,   8192)),
    TEXT_MODEL("cohere2",     cohere2,     "model.", SIZES(256000, 8192, 40, 64, 22528,   8192)),
    TEXT_MODEL("phi",         phi,         "model.", SIZES( 51200, 2048, 24, 32,  8192,   2048)),
    TEXT_MODEL("phi3",        phi3,        "model.", SIZES( 32064, 3072, 32, 32,  8192,   4096)),
    TEXT_MODEL("smollm3",     smollm3,     "model.", SIZES(128256, 2048, 36, 16, 11008,  32768)),
    TEXT_MODEL("ernie4_5",    ernie4_5,    "model.", SIZES(103424, 1024, 18, 16,  3072, 131072)),
    TEXT_MODEL("granite",     granite,     "model.", SIZES( 32000, 4096, 32, 32, 11008,   2048)),
    TEXT_MODEL("hyperclovax", hyperclovax, "model.", SIZES( 32000, 4096, 32, 32, 11008,   2048)),
    TEXT_MODEL("lfm2",        lfm2,        "model.", SIZES( 65536, 2560, 32, 32, 12288, 128000)),
    TEXT_MODEL("lfm2_moe",    lfm2_moe,    "model.", SIZES( 65536, 2048, 32, 32,  7168, 128000)),
    TEXT_MODEL("mixtral",     mixtral,     "model.", SIZES( 32000, 4096, 32, 32, 14336, 131072)),
    TEXT_MODEL("qwen3_moe",   qwen3_moe,   "model.", SIZES(151936, 2048, 24, 32,  6144,  32768)),
    TEXT_MODEL("gpt_oss",     gpt_oss,     "model.", NULL),
    TEXT_MODEL("internlm2",   internlm2,   "model.", NULL),
    TEXT_MODEL("nemotron_h",  nemotron_h,  "backbone.", NULL),
    /* Rows of multimodal classes themselves, and types that are other rows with defaults of their own. */
    TEXT_MODEL("qwen3_vl_text",       qwen3_vl,    "model.language_model.", SIZES(151936, 4096, 32, 32, 22016, 128000)),
    TEXT_MODEL("qwen3_5_text",        qwen3_5,     "model.language_model.", SIZES(248320, 4096, 32, 16, 12288,  32768)),
    TEXT_MODEL("qwen3_5_moe_text",    qwen3_5_moe, "model.language_model.", NULL),
    TEXT_MODEL("qwen2_5_omni_text",   qwen2_vl,    "model.", SIZES(152064, 3584, 28, 28, 18944,  32768)
               KEY("num_key_value_heads", 4)),
    TEXT_MODEL("qwen3_omni_moe_text", qwen3_moe,   "model.", SIZES(  3584, 2048, 28, 28, 18944,  32768)
               KEY("num_key_value_heads", 4) KEY("rope_theta", 1000000) KEY("norm_topk_prob", true)),
    TEXT_MODEL("glm4v_text",          glm4,        "model.", SIZES(151552, 4096, 40, 32, 13696,  32768)
               KEY("rms_norm_eps", 1e-5) KEY("partial_rotary_factor", 1)),
    TEXT_MODEL("glm_ocr_text",        glm4,        "model.", SIZES( 59392, 1024, 16, 16,  4096, 131072)
               KEY("num_key_value_heads", 8) KEY("rms_norm_eps", 1e-5) KEY("partial_rotary_factor", 1)
               KEY("attention_bias", false)),
    TEXT_MODEL("glm4v_moe_text",      glm4_moe,    "model.", SIZES(151424, 4096, 46, 96, 10944,  65536)
               KEY("attention_bias", true)),
    TEXT_MODEL("paddleocr_vl_text",   llama,       "model.", SIZES(103424, 1024, 18, 16,  3072, 131072)
               KEY("num_key_value_heads", 2) KEY("head_dim", 128) KEY("rms_norm_eps", 1e-5)
               KEY("rope_theta", 500000)),
    TEXT_MODEL("hunyuan_vl_text",     hunyuan_v1_dense, "model.", SIZES(290943, 4096, 32, 32, 11008, 2048)
               KEY("rms_norm_eps", 1e-5)),
    TEXT_MODEL("granite4_vision_text", granite,    "model.", SIZES( 32000, 4096, 32, 32, 11008,   2048)),
    TEXT_MODEL("granite_docling_text", granite,    "model.", SIZES(133800, 1024, 28, 16,  2048,  32768)
               KEY("num_key_value_heads", 4) KEY("rms_norm_eps", 1e-5) KEY("embedding_multiplier", 12)
               KEY("logits_scaling", 4) KEY("residual_multiplier", 0.263) KEY("attention_multiplier", 0.015625)),
};

/* Classes with one usual text model, of images or of audio. */
static const struct proa_family {
    const char *name, *type; /* type: the text model's, where config.json names none */
    const char *const *classes;
} families[] = {
    {"llava", "llama",
     STRINGS("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration",
             "LlavaNextVideoForConditionalGeneration", "VideoLlavaForConditionalGeneration",
             "VipLlavaForConditionalGeneration", "PerceptionLMForConditionalGeneration", "LlavaLlamaForCausalLM")},
    {"llava_onevision", "qwen2",
     STRINGS("LlavaOnevisionForConditionalGeneration", "FastVlmForConditionalGeneration",
             "GotOcr2ForConditionalGeneration", "Ovis2ForConditionalGeneration",
             "VideoLlama3ForConditionalGeneration", "LlavaQwenForCausalLM", "Ovis")},
    {"internvl", "qwen2",
     STRINGS("InternVLForConditionalGeneration", "InternVLChatModel", "H2OVLChatModel", "SkyworkR1VChatModel")},
    {"phi3_v", "phi3", STRINGS("Phi3VForCausalLM")},
    {"idefics2", "mistral", STRINGS("Idefics2ForConditionalGeneration")},
    {"idefics3", "llama", STRINGS("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration")},
    {"janus", "llama",
     STRINGS("JanusForConditionalGeneration", "DeepseekVLForConditionalGeneration",
             "DeepseekVLHybridForConditionalGeneration", "MultiModalityCausalLM")},
    {"cohere2_vision", "cohere2",
     STRINGS("Cohere2VisionForConditionalGeneration", "AyaVisionForConditionalGeneration")},
    {"lfm2_vl", "lfm2", STRINGS("Lfm2VlForConditionalGeneration")},
    {"lighton_ocr", "qwen3",
     STRINGS("LightOnOcrForConditionalGeneration", "LightOnOCRForConditionalGeneration",
             "QianfanOCRForConditionalGeneration")},
    {"glm4v", "glm4v_text", STRINGS("Glm4vForConditionalGeneration", "Glm46VForConditionalGeneration")},
    {"glm4v_moe", "glm4v_moe_text", STRINGS("Glm4vMoeForConditionalGeneration")},
    {"glm_ocr", "glm_ocr_text", STRINGS("GlmOcrForConditionalGeneration")},
    {"paddleocr_vl", "paddleocr_vl_text", STRINGS("PaddleOCRVLForConditionalGeneration")},
    {"hunyuan_vl", "hunyuan_vl_text", STRINGS("HunYuanVLForConditionalGeneration")},
    {"granite_docling", "granite_docling_text",
     STRINGS("GraniteDoclingForConditionalGeneration", "Granite4VisionForConditionalGeneration")},
    {"hyperclovax_vision_v2", "hyperclovax", STRINGS("HyperCLOVAXVisionV2ForConditionalGeneration")},
    {"minicpmv4_6", "qwen3_5_text",
     STRINGS("MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_7ForConditionalGeneration",
             "MiniCPMOcrForConditionalGeneration")},
    {"qwen2_5_omni", "qwen2_5_omni_text",
     STRINGS("Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniThinkerForConditionalGeneration",
             "Qwen2_5OmniModel")},
    {"qwen3_omni_moe", "qwen3_omni_moe_text",
     STRINGS("Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration")},
    {"nemotron_h_omni", "nemotron_h", STRINGS("NemotronH_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2")},
    {"qwen2_audio", "qwen2",
     STRINGS("Qwen2AudioForConditionalGeneration", "AudioFlamingo3ForConditionalGeneration",
             "MusicFlamingoForConditionalGeneration", "VibeVoiceAsrForConditionalGeneration")},
    {"voxtral", "llama", STRINGS("VoxtralForConditionalGeneration", "GlmAsrForConditionalGeneration")},
    {"qwen3_asr", "qwen3",
     STRINGS("Qwen3ASRForConditionalGeneration", "MossTranscribeDiarizeForConditionalGeneration",
             "FunAsrNanoForConditionalGeneration")},
    {"granite_speech", "granite",
     STRINGS("GraniteSpeechForConditionalGeneration", "GraniteSpeechPlusForConditionalGeneration")},
};

/* Where the tensors of a text model are: with its head, or the layers alone beside a head of its own name. */
static const char *const whole_places[] = {
    "language_model.", "text_model.", "thinker.", "llm.", "model.language_model.", "language_model.model."};
static const char *const body_places[] = {
    "model.language_model.", "language_model.", "model.text_model.", "thinker.model.language_model.", "model.llm.",
    "model."};
/* Beginnings of the tensors of all other parts, which may have one of these before them. */
static const char *const part_places[] = {"", "model.", "thinker."};
static const char *const parts[] = {
    "vision_tower.", "vision_model.", "vision_encoder.", "vision_projection.", "vision_projector.",
    "visual.", "vit.", "vision_embed_tokens.", "image_tower.", "video_tower.", "image_newline",
    "multi_modal_projector.", "mm_projector.", "connector.", "projector.", "aligner.", "mlp1.", "mlp_AR.",
    "merger.", "resampler.", "high_res_vision_", "visual_tokenizer.", "vte.", "visual_embeddings_table.",
    "gen_", "vqmodel.", "generation_", "layerwise_projectors.", "spatial_projectors.", "discrete_vision",
    "audio_tower.", "audio_encoder.", "audio_adaptor.", "encoder.", "acoustic_tokenizer_encoder.",
    "semantic_tokenizer_encoder.", "sound_", "talker.", "token2wav.", "code2wav."};
/* clang-format on */

enum { TEXT_COUNT = PROA_COUNT(texts), FAMILY_COUNT = PROA_COUNT(families), DEFAULTS_MAX = 1024 };

/* Rows are made when they are asked for: a process uses the usual one of each family and that of its model. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proa_arena arena; /* zero is what proa_arena_init leaves; never released */
static const proa_arch *rows[FAMILY_COUNT][TEXT_COUNT];
static struct text_names {
    const char *const *beginnings, *const *parts;
} names_of[TEXT_COUNT];

static int64_t list_length(const char *const *list)
{
    int64_t n = 0;
    while (list && list[n]) n++;
    return n;
}

static const char *join_texts(const char *a, const char *b)
{
    size_t bytes = strlen(a) + strlen(b) + 1;
    char *out = PROA_ARENA_NEW(&arena, char, (int64_t)bytes);
    snprintf(out, bytes, "%s%s", a, b);
    return out;
}

/* Pairs (the row's beginning, another one): those of all places, the row's own, these within the places. */
static const char *const *make_beginnings(const struct proa_text_model *text)
{
    const char *const *aliases = text->row->prefix_aliases;
    const int64_t own = list_length(aliases), wholes = PROA_COUNT(whole_places),
                  bodies = PROA_COUNT(body_places);
    const char **out = PROA_ARENA_NEW(&arena, const char *, (2 + own) * (wholes + 1) + 2 * bodies);
    int64_t n = 0;
    for (int64_t i = 0; i < wholes; i++) out[n++] = "", out[n++] = whole_places[i];
    for (int64_t i = 0; i < bodies; i++) out[n++] = text->body, out[n++] = body_places[i];
    for (int64_t k = 0; k < own; k += 2) out[n++] = aliases[k], out[n++] = aliases[k + 1];
    for (int64_t i = 0; i < wholes; i++)
        for (int64_t k = 0; k < own; k += 2)
            out[n++] = aliases[k], out[n++] = join_texts(whole_places[i], aliases[k + 1]);
    return out;
}

static const char *const *make_parts(const struct proa_text_model *text)
{
    static const char *joined[PROA_COUNT(part_places)][PROA_COUNT(parts)]; /* one copy for all text models */
    const char *const *own = text->row->unused_parts;
    const int64_t others = PROA_COUNT(part_places) * PROA_COUNT(parts), owns = list_length(own);
    const char **out = PROA_ARENA_NEW(&arena, const char *, others + owns + 1);
    int64_t n = 0;
    for (size_t i = 0; i < PROA_COUNT(part_places); i++)
        for (size_t k = 0; k < PROA_COUNT(parts); k++) {
            if (!joined[i][k]) joined[i][k] = join_texts(part_places[i], parts[k]);
            out[n++] = joined[i][k];
        }
    for (int64_t i = 0; i < owns; i++) out[n++] = own[i];
    return out;
}

static const proa_arch *make_row(int64_t family, int64_t text)
{
    struct text_names *names = &names_of[text];
    if (!names->parts) *names = (struct text_names){make_beginnings(&texts[text]), make_parts(&texts[text])};
    proa_arch *row = PROA_ARENA_NEW(&arena, proa_arch, 1);
    *row = *texts[text].row;
    row->name = row->model_type = families[family].name;
    row->hf = families[family].classes;
    row->prefix_aliases = names->beginnings;
    row->unused_parts = names->parts;
    row->key = row->text_config = NULL;
    row->embedder = NULL;
    row->stems = NULL;
    row->forms = 0;
    row->text = &texts[text];
    row->family = &families[family];
    return row;
}

static const proa_arch *get_row(int64_t family, int64_t text)
{
    pthread_mutex_lock(&lock);
    if (!rows[family][text]) rows[family][text] = make_row(family, text);
    const proa_arch *row = rows[family][text];
    pthread_mutex_unlock(&lock);
    return row;
}

static int64_t find_text(proa_str type)
{
    int64_t t = 0;
    while (t < TEXT_COUNT && !proa_str_is(type, texts[t].type)) t++;
    return t;
}

const proa_arch *proa_multimodal_row(int i)
{
    PROA_ASSERT((int)FAMILY_COUNT <= PROA_MULTIMODAL_MAX);
    return i < FAMILY_COUNT ? get_row(i, find_text(proa_str_c(families[i].type))) : NULL;
}

const proa_json *proa_multimodal_text(const proa_json *config)
{
    static const char *const keys[] = {"text_config", "language_config", "llm_config"};
    const proa_json *thinker = proa_json_get(config, "thinker_config");
    if (thinker) config = thinker;
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        const proa_json *text = proa_json_get(config, keys[i]);
        if (text) return text;
    }
    return thinker;
}

proa_status proa_multimodal_find(const proa_arch **out, const proa_arch *family, const proa_json *config,
                                 proa_err *err)
{
    proa_str type = {"", 0};
    PROA_TRY(proa_json_get_str(&type, proa_multimodal_text(config), "model_type", err));
    if (!type.len) type = proa_str_c(family->family->type);
    int64_t t = find_text(type);
    if (t == TEXT_COUNT)
        return PROA_FAIL(err, UNSUPPORTED, "%s: a text model '%.*s' is not supported", family->hf[0],
                         (int)proa_min64((int64_t)type.len, 64), type.ptr);
    *out = get_row(family->family - families, t);
    return PROA_OK;
}

/* Members of an object as text, in the place of those of the same name. */
static proa_status put_members(proa_json *to, const char *members, proa_err *err)
{
    char text[DEFAULTS_MAX];
    proa_json *from = NULL;
    int n = snprintf(text, sizeof text, "{%s}", members ? members : "");
    PROA_ASSERT(n < (int)sizeof text);
    PROA_TRY(proa_json_parse(&from, proa_str_c(text), "the defaults of a class", err));
    proa_json_move_all(to, from);
    return PROA_OK;
}

proa_status proa_multimodal_keys(proa_json **out, const proa_arch *arch, const proa_json *keys, proa_err *err)
{
    proa_json *all = proa_json_new_object();
    proa_status status = put_members(all, arch->text->defaults, err);
    for (proa_json_iter it = proa_json_begin(keys); status == PROA_OK && proa_json_next(&it);)
        proa_json_put(all, it.key.ptr, proa_json_hold(it.value)); /* null, too: the row has its own meaning of it */
    if (status != PROA_OK) proa_json_free(all), all = NULL;
    *out = all;
    return status;
}
