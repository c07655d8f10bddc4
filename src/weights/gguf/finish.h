/* SPDX-License-Identifier: Apache-2.0
 * finish.h - members of config.json that no key of the metadata gives: what the rows of archs.c finish with. Internal
 *            to weights/gguf. */
#ifndef PROA_WEIGHTS_GGUF_FINISH_H
#define PROA_WEIGHTS_GGUF_FINISH_H

#include "weights/gguf/arch.h"

bool proa_gguf_has_tensor(const proa_gguf *g, const char *name);
/* Which layers have the window as layer_types: a list, or all but every fourth. */
PROA_MUST_CHECK proa_status proa_gguf_put_layer_types(const proa_gguf *g, const proa_gguf_arch *arch,
                                                      proa_buf *json, proa_err *err);

#define FINISH(name)                                                                                         \
    PROA_MUST_CHECK proa_status name(const proa_gguf *g, const proa_gguf_arch *arch, proa_buf *json,         \
                                     proa_err *err)
FINISH(proa_gguf_finish_llama);
FINISH(proa_gguf_finish_deepseek);
FINISH(proa_gguf_finish_modernbert);
FINISH(proa_gguf_finish_modernbert_cls);
FINISH(proa_gguf_finish_partial);
FINISH(proa_gguf_finish_phi3);
FINISH(proa_gguf_finish_seed_oss);
FINISH(proa_gguf_finish_nemotron);
FINISH(proa_gguf_finish_glm);
FINISH(proa_gguf_finish_glm4_moe);
FINISH(proa_gguf_finish_ernie);
FINISH(proa_gguf_finish_phimoe);
FINISH(proa_gguf_finish_gpt_oss);
FINISH(proa_gguf_finish_windows);
FINISH(proa_gguf_finish_minicpm);
FINISH(proa_gguf_finish_qwen_moe);
FINISH(proa_gguf_finish_llama4);
FINISH(proa_gguf_finish_gemma2);
FINISH(proa_gguf_finish_gemma_embedding);
FINISH(proa_gguf_finish_gptneox);
FINISH(proa_gguf_finish_falcon);
FINISH(proa_gguf_finish_starcoder);
FINISH(proa_gguf_finish_mpt);
FINISH(proa_gguf_finish_bert);
FINISH(proa_gguf_finish_nomic);
FINISH(proa_gguf_finish_hy_v3);
FINISH(proa_gguf_finish_minimax);
FINISH(proa_gguf_finish_jina);
FINISH(proa_gguf_finish_nomic_moe);
/* gemma.c */
FINISH(proa_gguf_finish_gemma4);
FINISH(proa_gguf_finish_gemma3n);
#undef FINISH

#endif
