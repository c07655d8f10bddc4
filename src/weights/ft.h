/* SPDX-License-Identifier: Apache-2.0
 * ft.h - a folder of FasterTransformer while it is read. ft_files.c opens its files, ft_models.c knows which files a
 * model has, for reading and for writing (convert/ft.c), ft.c how numbers are laid out in them. */
#ifndef PROA_WEIGHTS_FT_H
#define PROA_WEIGHTS_FT_H

#include "weights/ini.h"
#include "weights/parts.h"

/* Sizes of a model. */
typedef enum proa_ft_dim {
    PROA_FT_ONE, /* 1: the row of a vector */
    PROA_FT_HIDDEN,
    PROA_FT_INNER, /* heads times the size of a head */
    PROA_FT_FFN,
    PROA_FT_VOCAB,
    PROA_FT_POSITIONS,
    PROA_FT_HEADS,
    PROA_FT_BUCKETS,
    PROA_FT_LAYERS, /* of the decoder, or the only stack */
    PROA_FT_ENCODER_LAYERS,
    PROA_FT_DIM_COUNT
} proa_ft_dim;

typedef enum proa_ft_split {
    PROA_FT_WHOLE,   /* one file NAME.bin: [in][groups][out] */
    PROA_FT_OUTPUTS, /* rank R has NAME.R.bin with its part of the outputs: [in][groups][out / ranks] */
    PROA_FT_INPUTS,  /* rank R has its part of the inputs: [in / ranks][groups][out] */
} proa_ft_split;

/* Which models have a tensor. */
typedef enum proa_ft_when {
    PROA_FT_ALWAYS,
    PROA_FT_IF_GATED,
    PROA_FT_IF_PLAIN,
    PROA_FT_IF_UNTIED,
    PROA_FT_IF_FILE,
    /* Files which are written for other readers but not read: of a tensor a second time, of a sum of tensors. */
    PROA_FT_COPY_IF_TIED,
    PROA_FT_COPY_IF_PARALLEL
} proa_ft_when;

/* One tensor of the checkpoint that the files were made from. */
typedef struct proa_ft_tensor {
    const char *name; /* its name in Hugging Face's checkpoint; "%d" is the layer */
    const char *file; /* FasterTransformer's file, without rank and ".bin" */
    proa_ft_split split;
    proa_ft_dim in, out;
    int groups;  /* tensors side by side in the file: q, k, v */
    int group;   /* the one taken; -1: all */
    bool turned; /* the checkpoint has it as [out, in] */
    bool final;  /* the checkpoint has its rows in another order; the file as they are used */
    bool shared; /* a vector that each rank adds: the file has it divided by the number of ranks */
    bool summed; /* the file is the sum of the groups, not the groups side by side; it is not read */
    proa_ft_when when;
    proa_ft_dim layers; /* how many layers have one; PROA_FT_ONE: it is of no layer, or of layer 0 alone */
} proa_ft_tensor;

/* A size that config.ini must give. */
typedef struct proa_ft_key {
    const char *key; /* NULL ends a list */
    proa_ft_dim dim;
    int64_t max;
} proa_ft_key;

typedef struct proa_ft {
    proa_weights *w;
    const char *dir; /* NULL: nothing is read but config.ini, and `wanted` has the files that there will be */
    const proa_map *wanted;
    proa_ini ini;
    proa_dtype dtype;
    int32_t ranks;
    int64_t dim[PROA_FT_DIM_COUNT];
    bool gated, tied, parallel;
    proa_map files; /* name to the row of w->files */
    proa_err *err;
} proa_ft;

enum { PROA_FT_RANKS_MAX = 256, PROA_FT_NAME_MAX = 256 };

#define FAIL_FT(ft, status, fmt, ...)                                                                        \
    PROA_FAIL((ft)->err, status, "%.120s: " fmt, (ft)->ini.what, __VA_ARGS__)

/* What a config.ini says of a model that is written. */
typedef struct proa_ft_facts {
    int64_t dim[PROA_FT_DIM_COUNT];
    int64_t head_dim, rotary_dim, rel_distance;
    proa_dtype dtype;
    int32_t ranks;
    double eps;
    int64_t bos, eos, pad, decoder_start; /* -1: none */
    bool relu, gated, tied, parallel;
    const char *act; /* its name in config.json */
    const char *ffn; /* T5's feed_forward_proj */
} proa_ft_facts;

typedef struct proa_ft_model {
    const char *section;             /* of config.ini, by which it is known; NULL ends the list */
    const char *variant;             /* and by this value of model_variant; NULL: any */
    const char *hf;                  /* the class of Hugging Face whose names its tables have */
    const proa_ft_tensor *tables[3]; /* each ends with a row without a name; NULL ends the list */
    /* Reads the sizes and writes the config.json of that class. */
    proa_status (*read)(proa_ft *ft, proa_buf *config);
    /* Appends a config.ini. */
    void (*write)(proa_buf *ini, const proa_ft_facts *f);
} proa_ft_model;
extern const proa_ft_model proa_ft_models[]; /* ft_models.c */

/* ft_files.c. */
bool proa_ft_has_file(const proa_ft *ft, const char *name);
/* Maps a file of that many numbers, or finds it mapped. *file: its row of ft->w->files. */
PROA_MUST_CHECK proa_status proa_ft_open_file(proa_ft *ft, const char *name, int64_t elements,
                                              const char **data, int32_t *file);
/* Reads the config.ini of that name in the folder, and calls `read` with it and room for a text. */
PROA_MUST_CHECK proa_status proa_ft_open(proa_weights *w, const char *dir, const char *name,
                                         proa_status (*read)(proa_ft *ft, proa_buf *text, void *arg),
                                         void *arg, proa_err *err);
/* ft_models.c: the model of ft->ini, whose sizes are read and whose config.json is written. */
PROA_MUST_CHECK proa_status proa_ft_read_model(proa_ft *ft, const proa_ft_model **model, proa_buf *config);
/* ft.c: whether the model has the tensor, and it is read. */
bool proa_ft_applies(const proa_ft *ft, const proa_ft_tensor *row);

#endif
