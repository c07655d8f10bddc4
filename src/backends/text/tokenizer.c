/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.c - the backend `tokenizer`: what the Python model `preprocessing` of FasterTransformer's and
 * TensorRT-LLM's ensembles does, with the same tensors. Each request is on its own; a batch is rows of it, and many
 * rows are tokenised by several threads. */
#include "backends/backends.h"
#include "backends/tensors/io_shapes.h"
#include "backends/text/tokenizer_model.h"
#include "backends/tensors/word_lists.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/thread.h"
#include <string.h>

static const proa_io_row inputs[] = {{"QUERY", T(STRING), ONE, 0},
                                     {"DECODER_QUERY", T(STRING), ONE, OPTIONAL},
                                     {"REQUEST_OUTPUT_LEN", T(INT32), ONE, OPTIONAL},
                                     {"BAD_WORDS_DICT", T(STRING), ANY_1D, OPTIONAL},
                                     {"STOP_WORDS_DICT", T(STRING), ANY_1D, OPTIONAL},
                                     {"EMBEDDING_BIAS_WORDS", T(STRING), ANY_1D, OPTIONAL},
                                     {"EMBEDDING_BIAS_WEIGHTS", T(FP32), ANY_1D, OPTIONAL},
                                     {"END_ID", T(INT32), ONE, OPTIONAL},
                                     {"PAD_ID", T(INT32), ONE, OPTIONAL},
                                     {.name = NULL}};
static const proa_io_row outputs[] = {{"INPUT_ID", T(INT32), ANY_1D, 0},
                                      {"REQUEST_INPUT_LEN", T(INT32), ONE, 0},
                                      {"DECODER_INPUT_ID", T(INT32), ANY_1D, 0},
                                      {"REQUEST_DECODER_INPUT_LEN", T(INT32), ONE, 0},
                                      {"BAD_WORDS_IDS", T(INT32), WORDS, 0},
                                      {"STOP_WORDS_IDS", T(INT32), WORDS, 0},
                                      {"EMBEDDING_BIAS", T(FP32), ANY_1D, 0},
                                      {"REQUEST_OUTPUT_LEN", T(INT32), ANY_1D, 0},
                                      {"OUT_END_ID", T(INT32), ONE, 0},
                                      {"OUT_PAD_ID", T(INT32), ONE, 0},
                                      {.name = NULL}};

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(version_path);
    PROA_UNUSED(err);
    proa_tokenizer_model_complete(config, inputs, outputs, arena);
    return PROA_OK;
}

enum {
    BRIEF_ROWS = 16
}; /* texts that are tokenised on the caller's thread, which may be an event loop: 40 us each */

typedef struct tokenizer_instance {
    const proa_tokenizer_model *model;
    proa_pool *pool; /* for requests of more than BRIEF_ROWS rows; NULL: the model takes none */
} tokenizer_instance;

/* ---- one request ---- */

typedef struct work {
    const proa_tokenizer_model *t;
    proa_pool *pool; /* NULL: this thread alone */
    const proa_infer *r;
    proa_reply *reply;
    int64_t rows;
    bool batched;
} work;

/* An output of integers of the configured type, with the batch dimension where there is one. */
static void add_ints(const work *w, const char *name, const int64_t *inner, int32_t rank, const int32_t *from)
{
    proa_type type = PROA_TYPE_INVALID;
    const char *own = proa_tokenizer_model_output(w->t, w->r, name, &type);
    int64_t shape[4] = {w->rows}, size = proa_type_bytes(type);
    void *data = NULL;
    if (!own || size <= 0) return;
    for (int32_t i = 0; i < rank; i++) shape[i + 1] = inner[i];
    int64_t n = proa_shape_elements(shape, rank + 1);
    proa_reply_add_array(w->reply, own, type, shape + !w->batched, rank + w->batched, &data);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = from ? from[i] : 0;
        memcpy((char *)data + i * size, &value, (size_t)size);
    }
}

/* Element `column` of row `row`, of as many texts in each row; {NULL, 0} when there are no more. */
typedef struct texts {
    const proa_tensor *tensor;
    size_t at;
    int64_t each, left;
} texts;

static texts begin_texts(const work *w, const proa_tensor *tensor)
{
    return (texts){tensor, 0, tensor ? proa_tensor_count(tensor) / w->rows : 0, 0};
}

static void next_row(texts *t)
{
    t->left = t->each;
}

static bool next_text(texts *t, proa_str *text)
{
    return t->left-- > 0 && proa_tensor_next_string(t->tensor, &t->at, text);
}

/* ---- texts to ids ---- */

/* The texts of a batch, on their way through the tokenizer on several threads. */
typedef struct encoding {
    const proa_tokenizer_model *t;
    const proa_str *text; /* [rows] */
    proa_ids *ids;        /* [rows] */
    pthread_mutex_t lock; /* guards what follows */
    int64_t failed;       /* the first row that failed; rows: none */
    proa_err err;         /* its error */
} encoding;

static void encode_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    encoding *e = arg;
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++) {
        proa_err err = {.status = PROA_OK};
        if (proa_tokenizer_encode(e->t->tokenizer, e->text[i], e->t->add_special, &e->ids[i], &err) == PROA_OK)
            continue;
        pthread_mutex_lock(&e->lock);
        if (i < e->failed) e->failed = i, e->err = err;
        pthread_mutex_unlock(&e->lock);
        return;
    }
}

/* ids [rows], zeroed, of the first text of each row. The error is that of the first row that fails. */
static proa_status encode_texts(const work *w, const proa_tensor *tensor, proa_ids *ids, proa_err *err)
{
    enum { GRAIN = 4 }; /* rows that a thread takes at once */
    texts all = begin_texts(w, tensor);
    proa_str *text = PROA_ARENA_NEW(&w->reply->arena, proa_str, w->rows);
    encoding e = {.t = w->t, .text = text, .ids = ids, .failed = w->rows};
    for (int64_t i = 0; i < w->rows; i++) {
        next_row(&all);
        text[i] = (proa_str){"", 0};
        next_text(&all, &text[i]);
    }
    pthread_mutex_init(&e.lock, NULL);
    if (w->pool) proa_pool_run(w->pool, w->rows, GRAIN, encode_rows, &e);
    else encode_rows(&e, 0, w->rows, 0);
    pthread_mutex_destroy(&e.lock);
    if (e.failed == w->rows) return PROA_OK;
    *err = e.err;
    return err->status;
}

/* One text in each row; the ids of all, padded to the longest. */
static proa_status add_texts(const work *w, const char *input, const char *ids_name, const char *lengths_name,
                             proa_err *err)
{
    proa_ids *ids = PROA_ARENA_NEW(&w->reply->arena, proa_ids, w->rows);
    proa_status status = encode_texts(w, proa_tokenizer_model_input(w->r, input), ids, err);
    int64_t width = 0;
    for (int64_t i = 0; i < w->rows; i++) width = proa_max64(width, ids[i].len);
    if (status == PROA_OK) {
        int32_t *out = PROA_ARENA_NEW(&w->reply->arena, int32_t, w->rows * width);
        int32_t *lengths = PROA_ARENA_NEW(&w->reply->arena, int32_t, w->rows);
        int32_t pad = w->t->unsigned_ids ? w->t->end_id : w->t->pad_id;
        for (int64_t i = 0; i < w->rows * width; i++) out[i] = pad >= 0 ? pad : 0;
        for (int64_t i = 0; i < w->rows; i++) {
            lengths[i] = (int32_t)ids[i].len;
            if (lengths[i]) memcpy(out + i * width, ids[i].ptr, (size_t)lengths[i] * sizeof *out);
        }
        add_ints(w, ids_name, &width, 1, out);
        add_ints(w, lengths_name, (int64_t[]){1}, 1, lengths);
    }
    for (int64_t i = 0; i < w->rows; i++) proa_ids_release(&ids[i]);
    return status;
}

/* A number for each row, from an input or one for all. */
static void add_number(const work *w, const char *input, const char *name, int32_t usual)
{
    const proa_tensor *given = proa_tokenizer_model_input(w->r, input);
    int32_t *values = PROA_ARENA_NEW(&w->reply->arena, int32_t, w->rows);
    for (int64_t i = 0; i < w->rows; i++) {
        int64_t value = usual;
        if (given) proa_element_int(given, proa_tensor_count(given) == 1 ? 0 : i, &value);
        values[i] = (int32_t)value;
    }
    add_ints(w, name, (int64_t[]){1}, 1, values);
}

/* The decoder's first ids: those of a text, or the padding token alone, as T5 in transformers. */
static proa_status add_decoder(const work *w, proa_err *err)
{
    if (proa_tokenizer_model_input(w->r, "DECODER_QUERY"))
        return add_texts(w, "DECODER_QUERY", "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN", err);
    int32_t *ones = PROA_ARENA_NEW(&w->reply->arena, int32_t, w->rows);
    for (int64_t i = 0; i < w->rows; i++) ones[i] = 1;
    add_number(w, "PAD_ID", "DECODER_INPUT_ID", w->t->pad_id);
    add_ints(w, "REQUEST_DECODER_INPUT_LEN", (int64_t[]){1}, 1, ones);
    return PROA_OK;
}

/* ---- words ---- */

/* The next field of a line of CSV, unquoted into `field`; false at the end. */
static bool next_field(proa_str *line, proa_buf *field)
{
    proa_buf_clear(field);
    if (!line->ptr) return false;
    bool quoted = line->len && line->ptr[0] == '"';
    size_t i = quoted;
    for (; i < line->len; i++) {
        bool twice = quoted && line->ptr[i] == '"' && i + 1 < line->len && line->ptr[i + 1] == '"';
        if (twice) i++;
        else if (quoted && line->ptr[i] == '"') {
            quoted = false;
            continue;
        } else if (!quoted && line->ptr[i] == ',') break;
        proa_buf_char(field, line->ptr[i]);
    }
    if (i < line->len) *line = (proa_str){line->ptr + i + 1, line->len - i - 1};
    else *line = (proa_str){NULL, 0};
    return true;
}

static proa_status add_word(const work *w, proa_str word, proa_ids *ids, proa_ids *ends, proa_err *err)
{
    int64_t before = ids->len;
    PROA_TRY(proa_tokenizer_encode(w->t->tokenizer, word, false, ids, err));
    if (ids->len > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "a list of words has more than %d ids", PROA_WORD_IDS_MAX);
    if (ids->len > before) proa_ids_push(ends, (int32_t)ids->len);
    return PROA_OK;
}

/* Repositories of FasterTransformer have all words of a row in one text. */
static proa_status add_text_words(const work *w, proa_str text, proa_ids *ids, proa_ids *ends, proa_err *err)
{
    proa_buf field;
    proa_status status = PROA_OK;
    if (!w->t->unsigned_ids) return add_word(w, text, ids, ends, err);
    proa_buf_init(&field, PROA_TEXT_BYTES_MAX);
    while (status == PROA_OK && next_field(&text, &field))
        status = add_word(w, proa_buf_view(&field), ids, ends, err);
    proa_buf_release(&field);
    return status;
}

typedef struct word_lists {
    proa_ids *ids, *ends; /* [rows] */
} word_lists;

static proa_status read_words(const work *w, const proa_tensor *tensor, word_lists *lists, proa_err *err)
{
    texts all = begin_texts(w, tensor);
    proa_str text;
    for (int64_t i = 0; i < w->rows; i++) {
        next_row(&all);
        while (next_text(&all, &text))
            PROA_TRY(add_text_words(w, text, &lists->ids[i], &lists->ends[i], err));
    }
    return PROA_OK;
}

static proa_status add_words(const work *w, const char *input, const char *name, proa_err *err)
{
    const proa_tensor *tensor = proa_tokenizer_model_input(w->r, input);
    word_lists lists = {PROA_ARENA_NEW(&w->reply->arena, proa_ids, w->rows),
                        PROA_ARENA_NEW(&w->reply->arena, proa_ids, w->rows)};
    int64_t width = tensor || w->t->unsigned_ids ? 1 : 0;
    proa_status status = tensor ? read_words(w, tensor, &lists, err) : PROA_OK;
    for (int64_t i = 0; i < w->rows; i++) width = proa_max64(width, lists.ids[i].len);
    if (status == PROA_OK) {
        int32_t *out = PROA_ARENA_NEW(&w->reply->arena, int32_t, w->rows * 2 * width);
        for (int64_t i = 0; i < w->rows; i++)
            proa_words_write(out + i * 2 * width, width, &lists.ids[i], &lists.ends[i]);
        add_ints(w, name, (int64_t[]){2, width}, 2, out);
    }
    for (int64_t i = 0; i < w->rows; i++) proa_ids_release(&lists.ids[i]), proa_ids_release(&lists.ends[i]);
    return status;
}

/* ---- biases ---- */

static proa_status add_bias_row(const work *w, texts *words, const proa_tensor *weights, int64_t row,
                                float *bias, int64_t vocab, proa_err *err)
{
    proa_ids ids = {0};
    proa_str text;
    proa_status status = PROA_OK;
    double weight = 0;
    next_row(words);
    for (int64_t k = 0; status == PROA_OK && next_text(words, &text); k++) {
        proa_ids_clear(&ids);
        status = proa_tokenizer_encode(w->t->tokenizer, text, w->t->add_special, &ids, err);
        if (!proa_element_double(weights, row * words->each + k, &weight)) weight = 0;
        for (int64_t i = 0; i < ids.len && status == PROA_OK; i++)
            if (ids.ptr[i] < vocab) bias[ids.ptr[i]] += (float)weight;
    }
    proa_ids_release(&ids);
    return status;
}

static proa_status add_biases(const work *w, proa_err *err)
{
    const proa_tensor *words = proa_tokenizer_model_input(w->r, "EMBEDDING_BIAS_WORDS");
    const proa_tensor *weights = proa_tokenizer_model_input(w->r, "EMBEDDING_BIAS_WEIGHTS");
    proa_type type = PROA_TYPE_INVALID;
    const char *name = proa_tokenizer_model_output(w->t, w->r, "EMBEDDING_BIAS", &type);
    int64_t vocab = words && weights ? proa_tokenizer_vocab(w->t->tokenizer) : 0;
    const int64_t shape[] = {w->rows, vocab};
    void *data = NULL;
    if (!name) return PROA_OK;
    if (type != PROA_TYPE_FP32)
        return PROA_FAIL(err, UNSUPPORTED, "output 'EMBEDDING_BIAS' must be TYPE_FP32");
    proa_reply_add_array(w->reply, name, type, shape + !w->batched, 1 + w->batched, &data);
    if (!vocab) return PROA_OK;
    if (proa_tensor_count(words) != proa_tensor_count(weights))
        return PROA_FAIL(err, INVALID, "Embedding bias words must have same dimension as embedding bias weights");
    memset(data, 0, (size_t)(w->rows * vocab) * sizeof(float));
    texts all = begin_texts(w, words);
    for (int64_t i = 0; i < w->rows; i++)
        PROA_TRY(add_bias_row(w, &all, weights, i, (float *)data + i * vocab, vocab, err));
    return PROA_OK;
}

/* ---- the whole ---- */

/* Copies an input to its output, by reference if the type is the same. */
static void pass_on(const work *w, const char *name)
{
    proa_type type = PROA_TYPE_INVALID;
    const proa_tensor *given = proa_tokenizer_model_input(w->r, name);
    const char *own = proa_tokenizer_model_output(w->t, w->r, name, &type);
    if (own && given && given->type == type) proa_tokenizer_model_share(w->reply, own, given);
}

static proa_status fill_outputs(const work *w, proa_err *err)
{
    static const char *const refused[] = {"IMAGE_BYTES", "IMAGE_URL", "VIDEO_BYTES", "PROMPT_TABLE_EXTRA_ID",
                                          NULL};
    PROA_TRY(proa_refuse_inputs(w->r, refused, err));
    PROA_TRY(add_texts(w, "QUERY", "INPUT_ID", "REQUEST_INPUT_LEN", err));
    PROA_TRY(add_decoder(w, err));
    PROA_TRY(add_words(w, "BAD_WORDS_DICT", "BAD_WORDS_IDS", err));
    PROA_TRY(add_words(w, "STOP_WORDS_DICT", "STOP_WORDS_IDS", err));
    PROA_TRY(add_biases(w, err));
    pass_on(w, "REQUEST_OUTPUT_LEN");
    add_number(w, "END_ID", "OUT_END_ID", w->t->end_id);
    add_number(w, "PAD_ID", "OUT_PAD_ID", w->t->pad_id);
    add_ints(w, "PROMPT_LEARNING_TASK_NAME_IDS", (int64_t[]){1}, 1, NULL);
    add_ints(w, "OUT_PROMPT_TABLE_EXTRA_IDS", (int64_t[]){0}, 1, NULL);
    return PROA_OK;
}

static void answer_request(const tokenizer_instance *in, proa_infer *r)
{
    const proa_tokenizer_model *t = in->model;
    const proa_tensor *query = proa_tokenizer_model_input(r, "QUERY");
    proa_err err = {.status = PROA_OK};
    work w = {.t = t, .r = r, .rows = 1, .batched = proa_served_model_config(t->model)->max_batch_size > 0};
    if (w.batched && query && query->rank > 0) w.rows = query->shape[0];
    if (w.rows > BRIEF_ROWS) w.pool = in->pool;
    proa_status status = !query || query->type != PROA_TYPE_BYTES
                             ? PROA_FAIL(&err, INVALID, "input 'QUERY' is not there")
                         : w.rows < 1 ? PROA_FAIL(&err, INVALID, "input 'QUERY' is empty")
                                      : PROA_OK;
    w.reply = proa_reply_new(r);
    if (status == PROA_OK) status = fill_outputs(&w, &err);
    if (status != PROA_OK) w.reply->error = err;
    proa_infer_reply(r, w.reply, true);
}

/* ---- the table ---- */

static void execute_tokenizer(void *instance_state, proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++) answer_request(instance_state, requests[i]);
}

static proa_status open_tokenizer(void **state, proa_served_model *model, proa_err *err)
{
    PROA_TRY(proa_tokenizer_model_open(state, model, err));
    proa_served_model_set_inline_rows(model, BRIEF_ROWS);
    return PROA_OK;
}

static proa_status open_instance(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    tokenizer_instance *in = proa_calloc(1, sizeof *in);
    PROA_UNUSED(instance);
    PROA_UNUSED(err);
    in->model = model_state;
    if (proa_served_model_config(in->model->model)->max_batch_size > BRIEF_ROWS)
        in->pool = proa_pool_new(in->model->threads);
    *state = in;
    return PROA_OK;
}

static void close_instance(void *state)
{
    tokenizer_instance *in = state;
    proa_pool_free(in->pool);
    free(in);
}

const proa_backend proa_backend_tokenizer = {.name = "tokenizer",
                                             .flags = PROA_BACKEND_INLINE,
                                             .complete = complete_config,
                                             .model_open = open_tokenizer,
                                             .model_close = proa_tokenizer_model_close,
                                             .instance_open = open_instance,
                                             .instance_close = close_instance,
                                             .execute = execute_tokenizer};
