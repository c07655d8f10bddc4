/* SPDX-License-Identifier: Apache-2.0
 * transform.h - the backend `transform`: a small program of steps from a model's inputs to its outputs, written in
 * config.pbtxt (docs/transform.md). Private to src/backends.
 * Owner:   a program is in the arena that it was read into; what its files hold is released by proa_transform_close.
 * Threads: a program does not change after it was read: any number of threads may run it.
 * Way in:  proa_transform_read, proa_transform_run. */
#ifndef PROA_BACKENDS_TRANSFORM_TRANSFORM_H
#define PROA_BACKENDS_TRANSFORM_TRANSFORM_H

#include "backends/gpu/gpu.h"
#include "base/limits.h"
#include "serve/backend.h"

typedef struct proa_transform_program proa_transform_program;
typedef struct proa_transform_step proa_transform_step;
typedef struct proa_text_features proa_text_features; /* text.h */

/* What a name stands for: an input, or what a step makes. While a program is read shapes are those of a row, -1 where
 * open; while it runs they are whole and there is data. */
typedef struct proa_transform_value {
    const char *name;
    proa_type type;
    int32_t rank;
    int64_t shape[PROA_SERVE_RANK_MAX];
    const char *data; /* of any alignment: elements are copied out */
    size_t bytes;
    proa_buffer *buffer; /* that holds data, of an input or of an output; NULL: the reply's arena does */
} proa_transform_value;

/* One `key=VALUE` of a step: numbers, words or quoted texts; a single one or a list in brackets. */
typedef struct proa_transform_option {
    proa_str key;
    proa_str *texts; /* [count] as written */
    double *numbers; /* [count]; NaN where the text is no number */
    int32_t count;
    bool list, used;
} proa_transform_option;

/* Buffers that launched kernels use; the list is in the reply's arena. */
#define PROA_TRANSFORM_HELD_MAX 3
typedef struct proa_transform_held {
    proa_buffer **buffers;
    int32_t count;
} proa_transform_held;

/* An operation. `shape` reads the step's options (while `reading`) and makes out's type, rank and shape of the
 * arguments'; `run` fills `to`, whose bytes that shape says. */
typedef struct proa_transform_op {
    const char *name;
    int32_t args_min, args_max;
    const char *options; /* "axis, from, to": for messages */
    proa_status (*read)(proa_transform_step *step, proa_transform_program *p, proa_err *err); /* options; NULL: none */
    proa_status (*shape)(const proa_transform_step *step, const proa_transform_value *args,
                         proa_transform_value *out, proa_err *err);
    void (*run)(const proa_transform_step *step, const proa_transform_value *args,
                const proa_transform_value *out, char *to, proa_arena *arena);
    /* Where the bytes of `out` begin if they are, unchanged, part of an argument's. NULL: never. -1: not this time. */
    int64_t (*within)(const proa_transform_step *step, const proa_transform_value *args,
                      const proa_transform_value *out);
    /* As run, on a GPU: out's buffer and arguments that are numbers are in its memory. Other buffers that the kernels
     * use are added to `held`, at most PROA_TRANSFORM_HELD_MAX. */
    proa_status (*launch)(const proa_transform_step *step, const proa_transform_value *args,
                          const proa_transform_value *out, proa_gpu_stream *stream, proa_transform_held *held,
                          proa_err *err);
    /* Once for each GPU, when an instance opens there: what launch needs in its memory. NULL: nothing. */
    proa_status (*prepare)(const proa_transform_step *step, proa_gpu_stream *stream, proa_err *err);
} proa_transform_op;

struct proa_transform_step {
    const proa_transform_op *operation;
    int32_t number; /* from 1 */
    int32_t *args;  /* [args_count], values of the program */
    int32_t args_count;
    proa_transform_option *options;
    int32_t options_count;
    uint64_t needs; /* steps that must run for this one, itself too */
    bool is_output;
    /* options, read */
    int64_t axis, from, to; /* axis counts from the end: -1 is the last */
    bool in_place;          /* text_features: the last dimension is 1 and becomes the features' */
    double scale, offset, low, high;
    double *weights; /* [args_count], of sum 1; NULL: all alike */
    proa_type type;
    proa_text_features *features;
};

/* An output and the value that it is. */
typedef struct proa_transform_output {
    const char *name;
    int32_t value;
} proa_transform_output;

struct proa_transform_program {
    const char *model_name, *model_path, *version_path; /* for files and messages */
    bool external_paths;                                /* files may lie outside of the model's folder */
    bool batched;
    proa_transform_value *values; /* inputs, then one for each step */
    int32_t inputs_count, steps_count;
    proa_transform_step *steps;
    proa_transform_output *outputs;
    int32_t outputs_count;
    proa_arena *arena; /* while it is read */
};

/* Reads the steps of `text` against a configuration's inputs; types and shapes of all values are known afterwards.
 * With no output in the configuration, each value that no later step uses becomes one. INVALID with the step and what
 * is wrong with it. */
PROA_MUST_CHECK proa_status proa_transform_read(proa_transform_program *p, proa_str text,
                                                const Inference__ModelConfig *config, proa_arena *arena,
                                                proa_err *err);
/* The configuration's outputs against what the steps make, in Triton's words. */
PROA_MUST_CHECK proa_status proa_transform_check(const proa_transform_program *p,
                                                 const Inference__ModelConfig *config, proa_err *err);
void proa_transform_close(proa_transform_program *p); /* zeroed is fine */
/* A request through the steps that its outputs need. */
PROA_MUST_CHECK proa_status proa_transform_run(const proa_transform_program *p, const proa_infer *r,
                                               proa_reply *reply, proa_err *err);

/* The same on a GPU. Steps are launched only: the outputs are complete after proa_gpu_stream_wait, and then the held
 * buffers are released, also after a failure. */
PROA_MUST_CHECK proa_status proa_transform_launch(const proa_transform_program *p, const proa_infer *r,
                                                  proa_reply *reply, proa_gpu_stream *stream,
                                                  proa_transform_held *held, proa_err *err);
void proa_transform_held_release(proa_transform_held *held);

/* read.c: for operations. INVALID with the step's name before the text. */
#define PROA_TRANSFORM_FAIL(err, step, ...)                                                                  \
    proa_transform_step_fail((err), (step), __FILE__, __LINE__, __VA_ARGS__)
proa_status proa_transform_step_fail(proa_err *err, const proa_transform_step *step, const char *file,
                                     int line, const char *fmt, ...) PROA_PRINTF(5, 6);
proa_transform_option *proa_transform_option_find(proa_transform_step *step,
                                                  const char *key); /* marks it as used; NULL: not given */
/* *value stays if the option is not given. */
proa_status proa_transform_option_number(double *value, proa_transform_step *step, const char *key,
                                         proa_err *err);
proa_status proa_transform_option_integer(int64_t *value, proa_transform_step *step, const char *key,
                                          int64_t min, int64_t max, proa_err *err);

/* ops.c */
const proa_transform_op *proa_transform_op_find(proa_str name); /* NULL: none */
const char *proa_transform_op_names(void);                      /* "average, cast, ..." */
/* text.c: text_features */
extern const proa_transform_op proa_transform_op_text;

#endif
