/* SPDX-License-Identifier: Apache-2.0
 * arch_vision.c - text models of multimodal checkpoints, whose other parts are not read: Mistral Small 3, Ministral 3,
 * Qwen2-VL and Qwen2.5-VL, Qwen3-VL (its mixture of experts is in arch_moe.c, Gemma 3 in arch_gemma.c), Mllama (Llama
 * 3.2 Vision), Emu3. They are the layers of Mistral, Qwen2, Qwen3 and Llama. Qwen's images have three positions each;
 * those of text are one. Mllama's layers that attend to an image do nothing where there is none. Published names are
 * first, those of transformers 5 second. Facts: transformers'
 * modeling_{mistral3,ministral3,qwen2_5_vl,qwen3_vl,mllama,emu3}.py, and the published files. */
#include "model/arch/llama_rows.h"

#include "base/checked.h"

#define STACK PROA_STACK_DECODER

/* clang-format off */
static const proa_key keys[] = {LLAMA_KEYS(layers), KV_HEADS(8), END_KEYS};
static const proa_key ministral3_keys[] = {LLAMA_KEYS(layers), KV_HEADS(8), PAD(11), END_KEYS};
static const proa_key qwen3_keys[] = {LLAMA_KEYS(layers), KV_HEADS(32), END_KEYS};
static const proa_key emu3_keys[] = {
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  9216),
    LLAMA_KEYS(layers),
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",            1e-5),
    END_KEYS};
static const proa_key mllama_keys[] = {
    INTEGER   ("max_position_embeddings", context,         1, CONTEXT,  131072),
    LLAMA_KEYS(layers),
    KV_HEADS  (8),
    EPSILON   ("rms_norm_eps",            1e-5),
    END_KEYS};

#define MISTRAL "language_model.model."
#define QWEN3   "model.language_model."
#define EMU3    "text_model.model."
static const proa_name ministral_tensors[] = {
    LLAMA_BODY("model."), LLAMA_HEAD("model.", "lm_head.weight"), END_TENSORS};
static const proa_name mistral_tensors[] = {
    LLAMA_BODY(MISTRAL), LLAMA_HEAD(MISTRAL, "language_model.lm_head.weight"), END_TENSORS};
/* The embedding has rows behind those of the head; so the head is never tied. */
static const proa_name mllama_tensors[] = {
    TABLE    (MISTRAL "embed_tokens.weight", TOKENS, TOKENS, HIDDEN),
    LLAMA_LAYERS(MISTRAL),
    LLAMA_FFN_TENSORS(MISTRAL),
    MATRIX   ("language_model.lm_head.weight", HEAD, VOCAB, HIDDEN),
    END_TENSORS};
static const proa_name emu3_tensors[] = {
    LLAMA_ATTENTION_BIASES(EMU3), LLAMA_MLP_BIASES(EMU3), LLAMA_BODY(EMU3),
    LLAMA_HEAD(EMU3, "text_model.lm_head.weight"), END_TENSORS};
static const proa_name qwen2_tensors[] = {
    LLAMA_QWEN2_BIASES("model."), LLAMA_BODY("model."), LLAMA_HEAD("model.", "lm_head.weight"), END_TENSORS};
static const proa_name qwen3_tensors[] = {
    LLAMA_ATTENTION_BIASES(QWEN3), LLAMA_HEAD_NORMS(QWEN3), LLAMA_BODY(QWEN3), LLAMA_HEAD(QWEN3, "lm_head.weight"),
    END_TENSORS};
static const char *const mistral_aliases[] = {MISTRAL, "model.language_model.", "language_model.", "", NULL};
static const char *const emu3_aliases[] = {EMU3, "model.text_model.", "text_model.", "", NULL};
static const char *const qwen2_aliases[] = {"model.", "model.language_model.", NULL};
static const char *const qwen3_aliases[] = {QWEN3, "language_model.model.", QWEN3, "model.", NULL};
static const char *const unused[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                     "model.multi_modal_projector.", "visual.", "model.visual.", "vision_model.",
                                     "model.vision_model.", "vqmodel.", "model.vqmodel.", NULL};
static const char *const ignored[] = {"rotary_emb.inv_freq", "lm_head.weight", NULL}; /* a tied head's copy */

static const proa_step embed[] = {EMBED(TOKENS), ROPE_TABLE, END};
static const proa_step layer[] = {LLAMA_QKV, SCALE_QUERIES(0), ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step layer_qk_norm[] = {
    LLAMA_QKV, Q_NORM(Q_NORM), K_NORM(K_NORM), ROTATE, LLAMA_ATTEND, LLAMA_FFN, END};
static const proa_step head[] = {LM_HEAD(0)};
/* clang-format on */

/* Ministral 3 scales queries by a step of the position that is 1 up to the length of the training. */
static proa_status finish_mistral(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    double beta = 0;
    proa_str type = {"", 0};
    PROA_TRY(proa_json_get_str(&type, json, "model_type", err));
    if (proa_str_is(type, "ministral3") && !proa_json_get(json, "rms_norm_eps")) c->norm_eps = 1e-5;
    const proa_json *rope = proa_json_get(json, "rope_parameters");
    if (!rope) rope = proa_json_get(json, "rope_scaling");
    PROA_TRY(proa_llama_finish(c, json, arena, err));
    if (proa_str_is(type, "mistral")) c->window = 4096;
    PROA_TRY(proa_config_read_common_window(c, json, err));
    PROA_TRY(proa_json_get_double(&beta, rope, "llama_4_scaling_beta", 0, 1e6, err));
    if (beta > 0 && c->rope.original > 0)
        c->query_scale = (proa_query_scale){.beta = (float)beta, .length = (int32_t)c->rope.original};
    return PROA_OK;
}

static proa_status finish_qwen2(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 1e6;
    c->window_from = 80;
    return proa_qwen_finish(c, json, arena, err);
}

static proa_status finish_qwen3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 5e5;
    return proa_qwen_finish(c, json, arena, err);
}

static proa_status finish_emu3(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    c->rope.theta = 1e6;
    return proa_llama_finish(c, json, arena, err);
}

/* The layers that attend to an image: cross_attention_layers. */
static proa_status skip_layers(proa_config *c, const proa_json *list, proa_err *err)
{
    static const int64_t usual[] = {3, 8, 13, 18, 23, 28, 33, 38};
    int64_t count = list ? proa_json_len(list) : (int64_t)PROA_COUNT(usual);
    for (int64_t i = 0; i < count; i++) {
        int64_t skipped = list ? proa_json_int(proa_json_at(list, i)) : usual[i];
        if (list && (skipped < 0 || skipped >= c->layers))
            return PROA_FAIL(err, INVALID, "'cross_attention_layers' names layer %lld of %lld",
                             (long long)skipped, (long long)c->layers);
        if (skipped >= c->layers) continue;
        proa_config_mix(c, skipped, false, false);
        c->ffn_layers[skipped] = false;
    }
    return PROA_OK;
}

static proa_status finish_mllama(proa_config *c, const proa_json *json, proa_arena *arena, proa_err *err)
{
    if (c->tied) return PROA_FAIL(err, UNSUPPORTED, "'tie_word_embeddings' true is not supported");
    c->extra_tokens = 8;
    c->rope.theta = 5e5;
    proa_config_mix_all(c, true, false, arena);
    c->ffn_layers = PROA_ARENA_NEW(arena, bool, c->layers);
    for (int64_t i = 0; i < c->layers; i++) c->ffn_layers[i] = true;
    PROA_TRY(skip_layers(c, proa_json_get(json, "cross_attention_layers"), err));
    return proa_llama_finish(c, json, arena, err);
}

/* clang-format off */
#define ROW(type, class, keylist, tensors, program, finisher, text, others, skipped) \
    .name = type, .model_type = type, .hf = class, DECODER(RMS), .keys = keylist, .names = tensors##_tensors,      \
     .ignored = ignored, .stacks = {CAUSAL(embed, program)}, .head = head, .finish = finisher,                  \
     .text_config = text, .prefix_aliases = others, .unused_parts = skipped

const proa_arch proa_arch_mistral3 = {
    ROW("mistral3", STRINGS("Mistral3ForConditionalGeneration"), keys, mistral, layer, finish_mistral, "text_config",
        mistral_aliases, unused)};
const proa_arch proa_arch_ministral3 = {
    ROW("ministral3", STRINGS("Ministral3ForCausalLM"), ministral3_keys, ministral, layer, finish_mistral, NULL, NULL,
        NULL),
    HEADS(TEXTS | TOKENS | SPANS, "Ministral3")};
const proa_arch proa_arch_qwen2_vl = {
    ROW("qwen2_vl", STRINGS("Qwen2_5_VLForConditionalGeneration", "Qwen2VLForConditionalGeneration"), keys, qwen2,
        layer, finish_qwen2, "text_config", qwen2_aliases, unused)};
const proa_arch proa_arch_qwen3_vl = {
    ROW("qwen3_vl", STRINGS("Qwen3VLForConditionalGeneration"), qwen3_keys, qwen3, layer_qk_norm, finish_qwen3,
        "text_config", qwen3_aliases, unused)};
const proa_arch proa_arch_mllama = {
    ROW("mllama", STRINGS("MllamaForConditionalGeneration"), mllama_keys, mllama, layer, finish_mllama, "text_config",
        mistral_aliases, unused)};
const proa_arch proa_arch_emu3 = {
    ROW("emu3", STRINGS("Emu3ForConditionalGeneration", "Emu3ForCausalLM"), emu3_keys, emu3, layer, finish_emu3,
        "text_config", emu3_aliases, unused)};
/* clang-format on */
