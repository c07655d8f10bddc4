/* SPDX-License-Identifier: Apache-2.0
 * arch.h - how a GGUF architecture becomes a model of the table (model/arch.h): which Hugging Face class has its
 *          layers, which keys of config.json its metadata are, which of that class's tensors its tensors are.
 * Facts:   llama.cpp's conversion/ and src/models/, gguf-py's constants.py and tensor_mapping.py.
 * Way in:  proa_gguf_arch_of for a file; names.c has the tensors, config.c writes the configuration. */
#ifndef PROA_WEIGHTS_GGUF_ARCH_H
#define PROA_WEIGHTS_GGUF_ARCH_H

#include "weights/gguf/metadata.h"

/* What happens to a tensor on its way to the class's name. */
typedef enum proa_gguf_use {
    PROA_GGUF_AS_IS,
    /* The rows of each head are stored as pairs (i, i + d/2) side by side, for rotations of neighbours; the class
     * rotates halves. ROTATED_Q has the query heads, ROTATED_K the key heads. */
    PROA_GGUF_ROTATED_Q,
    PROA_GGUF_ROTATED_K,
    PROA_GGUF_STORED, /* as the class's own file has it: load actions apply */
    PROA_GGUF_OLDER,  /* the same in files of older programs: it is read, not written */
    PROA_GGUF_EXPERTS, /* [experts, rows, cols]: one tensor of the class for each, by the second "%d" of its name */
    PROA_GGUF_PARTS, /* [parts, rows, cols]: tensors of the class, by the "%d" of their names, from 0 on */
    PROA_GGUF_ROW,   /* a vector that is a matrix of one row */
    /* What value heads of recurrent layers have. The class has those of a key head side by side, the file the first one
     * of each key head, then the second ones, ... All rows, the rows behind those of the key heads, the columns. */
    PROA_GGUF_TILED_ROWS,
    PROA_GGUF_TILED_VALUES,
    PROA_GGUF_TILED_COLS,
    PROA_GGUF_DROPPED,  /* says something about the configuration, or nothing */
    PROA_GGUF_UNWRITTEN /* of the class alone, and not needed: a file has no such tensor (gguf is "") */
} proa_gguf_use;

/* What else is different of a tensor of the file. */
typedef enum proa_gguf_form {
    PROA_GGUF_NO_ENDING = 1, /* neither name has ".weight" or ".bias" */
    PROA_GGUF_COLUMN = 2,    /* a vector of the class as a matrix [n, 1] */
    PROA_GGUF_BY_GROUPS = 4, /* a vector of the class as a matrix with a row for each group of value heads */
    PROA_GGUF_NEGATED_EXP = 8,  /* -exp(number) of each number of the class */
    PROA_GGUF_EVERY_LAYER = 16, /* zeros in layers that have none, since llama.cpp wants one in each */
} proa_gguf_form;

/* A tensor without its ending (".weight", ".bias"), which stays; or with it, where the class has another one. "%d" is
 * the layer in both names. */
typedef struct proa_gguf_name {
    const char *gguf, *hf; /* hf NULL: DROPPED */
    proa_gguf_use use;
    int form; /* of proa_gguf_form */
} proa_gguf_name;

typedef enum proa_gguf_kind { PROA_GGUF_KEY_INT, PROA_GGUF_KEY_NUMBER, PROA_GGUF_KEY_BOOL } proa_gguf_kind;

/* A key of the metadata (without "ARCHITECTURE.") and that of config.json. */
typedef struct proa_gguf_key {
    const char *gguf, *hf;
    proa_gguf_kind kind;
    bool required;
} proa_gguf_key;

typedef struct proa_gguf_arch {
    const char *name; /* general.architecture */
    const char *hf;   /* architectures[0] */
    const proa_gguf_key *keys;
    const proa_gguf_name *names;
    bool window_list;  /* which layers have the window is a list, attention.sliding_window_pattern */
    bool kv_head_list; /* attention.head_count_kv is a list; 0: a layer without attention */
    bool ffn_list;     /* feed_forward_length is a list; 0: a layer without FFN */
    /* attention.recurrent_layers is a list; older files: all layers but every full_attention_interval-th recur */
    bool recurrent_list;
    bool baked; /* factors that the class has of its products are part of the file's weights (Falcon-H1) */
    bool ranked_merges; /* BPE over UTF-8 has ranks of merges, not scores */
    bool rope_sections; /* rope.dimension_sections is required: of images' positions */
    const char *fixed;  /* members of config.json that are always the same; NULL: none */
    /* Whether this row is for the file, where several rows have one name; NULL: it is. */
    bool (*fits)(const proa_gguf *g);
    /* Appends members that no key gives; NULL: none. */
    proa_status (*finish)(const proa_gguf *g, const struct proa_gguf_arch *arch, proa_buf *json, proa_err *err);
} proa_gguf_arch;

extern const proa_gguf_arch proa_gguf_archs[]; /* archs.c; name NULL ends it */

/* names.c: tensors by class, named after what they have in common. */
extern const proa_gguf_name proa_gguf_llama_names[]; /* q and k rotate as pairs */
extern const proa_gguf_name proa_gguf_qwen_names[];  /* the same without that; norms of q and k */
extern const proa_gguf_name proa_gguf_mixtral_names[], proa_gguf_phimoe_names[], proa_gguf_qwen_moe_names[];
extern const proa_gguf_name proa_gguf_gpt_oss_names[], proa_gguf_arcee_names[], proa_gguf_nemotron_names[];
extern const proa_gguf_name proa_gguf_mamba2_names[], proa_gguf_nemotron_h_names[],
    proa_gguf_nemotron_h_moe_names[];                                         /* layers of one part each */
extern const proa_gguf_name proa_gguf_mamba_names[], proa_gguf_jamba_names[]; /* Mamba-1 */
extern const proa_gguf_name proa_gguf_seed_oss_names[], proa_gguf_glm_names[], proa_gguf_glm4_names[];
extern const proa_gguf_name proa_gguf_dots1_names[], proa_gguf_glm4_moe_names[], proa_gguf_ernie_moe_names[];
extern const proa_gguf_name proa_gguf_hunyuan_names[], proa_gguf_hunyuan_moe_names[],
    proa_gguf_granite_moe_names[], proa_gguf_granite_shared_names[], proa_gguf_llama4_names[];
extern const proa_gguf_name proa_gguf_minimax_names[], proa_gguf_afmoe_names[], proa_gguf_exaone_moe_names[],
    proa_gguf_hy_v3_names[];
extern const proa_gguf_name proa_gguf_gemma2_names[]; /* norms before and after attention and FFN */
extern const proa_gguf_name proa_gguf_gemma4_names[], proa_gguf_gemma3n_names[]; /* inputs of layers */
extern const proa_gguf_name proa_gguf_olmo_names[];                              /* norms without weights */
extern const proa_gguf_name proa_gguf_olmo2_names[];                             /* norms after them */
extern const proa_gguf_name proa_gguf_phi2_names[], proa_gguf_phi3_names[], proa_gguf_starcoder2_names[];
extern const proa_gguf_name proa_gguf_gpt2_names[], proa_gguf_gptneox_names[], proa_gguf_mpt_names[];
extern const proa_gguf_name proa_gguf_falcon7b_names[], proa_gguf_falcon40b_names[], proa_gguf_bloom_names[];
extern const proa_gguf_name proa_gguf_bert_names[], proa_gguf_t5_names[], proa_gguf_gated_t5_names[];
extern const proa_gguf_name proa_gguf_t5_encoder_names[], proa_gguf_gated_t5_encoder_names[];
extern const proa_gguf_name proa_gguf_deepseek_names[], proa_gguf_mistral4_names[],
    proa_gguf_modernbert_names[], proa_gguf_baichuan_names[];
extern const proa_gguf_name proa_gguf_nomic_names[], proa_gguf_nomic_moe_names[], proa_gguf_eurobert_names[],
    proa_gguf_jina_names[], proa_gguf_jina_v3_names[];
extern const proa_gguf_name proa_gguf_granite_hybrid_names[], proa_gguf_granite_hybrid_moe_names[]; /* Mamba-2 */
extern const proa_gguf_name proa_gguf_bamba_names[], proa_gguf_falcon_h1_names[];
extern const proa_gguf_name proa_gguf_lfm2_names[], proa_gguf_lfm2_moe_names[]; /* short convolutions */
extern const proa_gguf_name proa_gguf_qwen3_next_names[], proa_gguf_qwen3_5_names[],
    proa_gguf_qwen3_5_moe_names[]; /* gated delta rule */

/* The row of the file. UNSUPPORTED names the architecture and lists the known ones. */
PROA_MUST_CHECK proa_status proa_gguf_arch_of(const proa_gguf_arch **out, const proa_gguf *g, proa_err *err);
/* "blk.7.attn_q.weight" to the pattern "blk.%d.attn_q", the layer 7 and the ending ".weight". layer -1: none. The
 * name has at most PROA_TENSOR_NAME_MAX bytes. */
proa_str proa_gguf_split_name(char pattern[PROA_TENSOR_NAME_MAX + 1], int64_t *layer, proa_str name);
/* The entry of a pattern with or without the ending; NULL: none. The ending becomes empty where the entry has it. */
const proa_gguf_name *proa_gguf_name_of(const proa_gguf_arch *arch, const char *pattern, proa_str *ending);
/* Reads "ARCHITECTURE.key" as proa_gguf_get_int does, in [0, INT32_MAX]. */
PROA_MUST_CHECK proa_status proa_gguf_arch_int(int64_t *out, const proa_gguf *g, const proa_gguf_arch *arch,
                                               const char *key, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_arch_number(double *out, const proa_gguf *g, const proa_gguf_arch *arch,
                                                  const char *key, proa_err *err);
/* rope.c: rope_theta and the scaling, from the metadata or from the tensors with factors. */
PROA_MUST_CHECK proa_status proa_gguf_put_rope(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch,
                                               proa_err *err);
/* The numbers of a vector of f32; NULL if it is not one that lies in the data. One of them. */
const unsigned char *proa_gguf_f32_vector(const proa_gguf *g, const proa_gguf_tensor *t);
float proa_gguf_f32_at(const unsigned char *data, int64_t i);
/* recurrent.c: members of config.json of models with recurrent layers. */
PROA_MUST_CHECK proa_status proa_gguf_finish_granite_hybrid(const proa_gguf *g, const proa_gguf_arch *arch,
                                                            proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_bamba(const proa_gguf *g, const proa_gguf_arch *arch,
                                                   proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_falcon_h1(const proa_gguf *g, const proa_gguf_arch *arch,
                                                       proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_lfm2(const proa_gguf *g, const proa_gguf_arch *arch,
                                                  proa_buf *json, proa_err *err);
/* Whether a file of granitehybrid is a Bamba: half of each head rotates. */
bool proa_gguf_is_bamba(const proa_gguf *g);
PROA_MUST_CHECK proa_status proa_gguf_finish_delta(const proa_gguf *g, const proa_gguf_arch *arch,
                                                   proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_mamba2(const proa_gguf *g, const proa_gguf_arch *arch,
                                                    proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_mamba(const proa_gguf *g, const proa_gguf_arch *arch,
                                                   proa_buf *json, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_finish_jamba(const proa_gguf *g, const proa_gguf_arch *arch,
                                                   proa_buf *json, proa_err *err);
/* Whether a file of mamba is a Falcon Mamba: what makes the steps, B and C are normed. */
bool proa_gguf_is_falcon_mamba(const proa_gguf *g);
PROA_MUST_CHECK proa_status proa_gguf_finish_nemotron_h(const proa_gguf *g, const proa_gguf_arch *arch,
                                                        proa_buf *json, proa_err *err);
/* config.c: members of a JSON object, each with a comma before it. Numbers that are f32 in the file get the shortest
 * decimal that is the same f32. */
void proa_gguf_put_int(proa_buf *json, const char *key, int64_t value);
void proa_gguf_put_number(proa_buf *json, const char *key, double value);
void proa_gguf_put_bool(proa_buf *json, const char *key, bool value);
/* Writes config.json. */
PROA_MUST_CHECK proa_status proa_gguf_config(proa_buf *out, const proa_gguf *g, const proa_gguf_arch *arch,
                                             proa_err *err);

#endif
