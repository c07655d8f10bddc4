/* SPDX-License-Identifier: Apache-2.0
 * test_contracts.c - the tensors of FasterTransformer and TensorRT-LLM: a batch says what the engine says for each row
 * alone, with that engine's rules; shapes, padding, prompts and streams are as their guides' clients expect them. */
#include "rig.h"

#include "tensor/dtype.h"

#define CLASSICS              MODELS "classics-10m"
#define T5                    MODELS "m30k-t5"
#define CHECKPOINT            PROA_SOURCE_DIR "/tests/golden/checkpoint/"
#define PARAMETER(key, value) "parameters { key: \"" key "\" value { string_value: \"" value "\" } } "

static direct ref, t5_ref;

static int open_models(void **state)
{
    PROA_UNUSED(state);
    direct_open(&ref, CLASSICS);
    direct_open(&t5_ref, T5);
    return 0;
}

static int close_models(void **state)
{
    PROA_UNUSED(state);
    direct_close(&ref);
    direct_close(&t5_ref);
    return 0;
}

/* ---- batches ---- */

static const char *const prompts[] = {"It was a dark and stormy night", "The sea", "He said that he"};
enum { ROWS = 3, WIDTH = 12 };

typedef struct batch {
    int32_t ids[ROWS][WIDTH], lengths[ROWS];
} batch;

static batch encode(proa_engine *engine, const char *const *texts, int32_t pad)
{
    batch b;
    for (int i = 0; i < ROWS; i++) {
        int64_t count = 0;
        for (int k = 0; k < WIDTH; k++) b.ids[i][k] = pad;
        assert_int_equal(proa_engine_encode(engine, texts[i], strlen(texts[i]), b.ids[i], WIDTH, &count, NULL),
                         PROA_OK);
        assert_true(count <= WIDTH);
        b.lengths[i] = (int32_t)count;
    }
    return b;
}

static void put_ids(proa_infer *r, const char *name, proa_type type, const batch *b, int64_t rows)
{
    put(r, name, type, b->ids, (size_t)rows * WIDTH * 4, 2, (int64_t[]){rows, WIDTH});
}

/* One number for each row, [rows, 1]. */
static void put_rows(proa_infer *r, const char *name, proa_type type, const void *values, int64_t rows)
{
    put(r, name, type, values, (size_t)(rows * proa_type_bytes(type)), 2, (int64_t[]){rows, 1});
}

static void put_all(proa_infer *r, const char *name, proa_type type, int32_t value, int64_t rows)
{
    int32_t values[8];
    for (int64_t i = 0; i < rows; i++) values[i] = value;
    put_rows(r, name, type, values, rows);
}

static void put_all_f(proa_infer *r, const char *name, float value, int64_t rows)
{
    float values[8];
    for (int64_t i = 0; i < rows; i++) values[i] = value;
    put_rows(r, name, PROA_TYPE_FP32, values, rows);
}

static void put_all_b(proa_infer *r, const char *name, bool value, int64_t rows)
{
    bool values[8];
    for (int64_t i = 0; i < rows; i++) values[i] = value;
    put_rows(r, name, PROA_TYPE_BOOL, values, rows);
}

static proa_infer *ask_gptj(const batch *b, int64_t rows, int32_t new_tokens)
{
    proa_infer *r = ask();
    put_ids(r, "input_ids", PROA_TYPE_UINT32, b, rows);
    put_rows(r, "input_lengths", PROA_TYPE_UINT32, b->lengths, rows);
    put_all(r, "request_output_len", PROA_TYPE_UINT32, new_tokens, rows);
    return r;
}

static proa_options ft_options(int32_t new_tokens)
{
    return (proa_options){.style = PROA_STYLE_FT,
                          .given = {[PROA_OPTION_style] = true, [PROA_OPTION_beams] = true},
                          .beams = 1,
                          .max_tokens = new_tokens};
}

#define GPTJ                                                                                                 \
    PARAMETER("model_type", "GPT-J") PARAMETER("tensor_para_size", "1") PARAMETER("data_type", "fp32")

/* ---- FasterTransformer ---- */

static void gptj_batch(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, GPTJ, CLASSICS);
    assert_int_equal(g.model.config->max_batch_size, 1024);
    batch b = encode(ref.engine, prompts, 2);
    const uint64_t seeds[] = {3, 4, 5};
    const int32_t lens[] = {9, 14, 11};
    proa_infer *r = ask();
    put_ids(r, "input_ids", PROA_TYPE_UINT32, &b, ROWS);
    put_rows(r, "input_lengths", PROA_TYPE_UINT32, b.lengths, ROWS);
    put_rows(r, "request_output_len", PROA_TYPE_UINT32, lens, ROWS);
    put_all(r, "runtime_top_k", PROA_TYPE_UINT32, 40, ROWS);
    put_all_f(r, "runtime_top_p", 0.9f, ROWS);
    put_all_f(r, "temperature", 0.8f, ROWS);
    put_all_f(r, "top_p_decay", 0, ROWS); /* out of use */
    put_all(r, "prompt_learning_task_name_ids", PROA_TYPE_UINT32, 0, ROWS);
    put_rows(r, "random_seed", PROA_TYPE_UINT64, seeds, ROWS);
    put_all_b(r, "is_return_log_probs", true, ROWS);
    const proa_reply *reply = only(run(&g, r));
    enum { TOTAL = WIDTH + 14 };
    assert_shape(reply, "output_ids", 3, ROWS, 1, TOTAL);
    assert_int_equal(out(reply, "output_ids")->type, PROA_TYPE_UINT32);
    assert_shape(reply, "sequence_length", 2, ROWS, 1, 0);
    assert_shape(reply, "output_log_probs", 3, ROWS, 1, 14);
    for (int i = 0; i < ROWS; i++) {
        proa_options o = ft_options(lens[i]);
        o.top_k = 40, o.top_p = 0.9f, o.temperature = 0.8f, o.seed = seeds[i], o.logprobs = true;
        o.given[PROA_OPTION_top_k] = true, o.given[PROA_OPTION_top_p] = true,
        o.given[PROA_OPTION_temperature] = true;
        direct_run(&ref, (proa_request){.ids = b.ids[i], .ids_count = b.lengths[i], .options = o});
        const int32_t *row = ints(reply, "output_ids") + i * TOTAL;
        int64_t n = b.lengths[i] + ref.count[0];
        assert_memory_equal(row, b.ids[i], (size_t)b.lengths[i] * 4);
        assert_memory_equal(row + b.lengths[i], ref.ids[0], (size_t)ref.count[0] * 4);
        for (int64_t k = n; k < TOTAL; k++) assert_int_equal(row[k], 2);
        assert_int_equal(ints(reply, "sequence_length")[i], n);
        assert_memory_equal(floats(reply, "output_log_probs") + i * 14, ref.logprobs[0],
                            (size_t)ref.count[0] * 4);
        double sum = 0;
        for (int64_t k = 0; k < ref.count[0]; k++) sum += (double)ref.logprobs[0][k];
        assert_true(floats(reply, "cum_log_probs")[i] == (float)sum);
    }
    forget(r);
    rig_close(&g);
}

static void gptj_words_end_and_silence(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, GPTJ, CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = ft_options(10)});
    int32_t plain[10];
    memcpy(plain, ref.ids[0], sizeof plain);
    const int32_t words[] = {plain[0], plain[3], 2, -1}; /* one word of two ids: not completed, so nothing happens */
    const int32_t one[] = {plain[0], 0, 1, -1};
    const int32_t stop[] = {plain[2], plain[3], 2, -1};
    proa_infer *r = ask_gptj(&b, 1, 10);
    put(r, "bad_words_list", PROA_TYPE_INT32, words, sizeof words, 3, (int64_t[]){1, 2, 2});
    const proa_reply *reply = only(run(&g, r));
    assert_memory_equal(ints(reply, "output_ids") + b.lengths[0], plain, sizeof plain);
    assert_shape(reply, "cum_log_probs", 2, 1, 1, 0); /* zeros, so that an ensemble goes on */
    assert_true(floats(reply, "cum_log_probs")[0] == 0);
    forget(r);
    r = ask_gptj(&b, 1, 10);
    put(r, "bad_words_list", PROA_TYPE_INT32, one, sizeof one, 3, (int64_t[]){1, 2, 2});
    assert_int_not_equal(ints(only(run(&g, r)), "output_ids")[b.lengths[0]], plain[0]);
    forget(r);
    r = ask_gptj(&b, 1, 10);
    put(r, "stop_words_list", PROA_TYPE_INT32, stop, sizeof stop, 3, (int64_t[]){1, 2, 2});
    put_all(r, "end_id", PROA_TYPE_UINT32, 7, 1);
    reply = only(run(&g, r));
    assert_int_equal(ints(reply, "sequence_length")[0], b.lengths[0] + 4);
    assert_int_equal(ints(reply, "output_ids")[b.lengths[0] + 3], plain[3]);
    assert_int_equal(ints(reply, "output_ids")[b.lengths[0] + 4], 7); /* the end token that was asked for pads */
    forget(r);
    rig_close(&g);
}

static void gptj_beams(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, GPTJ, CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_gptj(&b, ROWS, 8);
    put_all(r, "beam_width", PROA_TYPE_UINT32, 3, ROWS);
    put_all_f(r, "len_penalty", 1, ROWS);
    put_all_b(r, "is_return_log_probs", true, ROWS);
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "output_ids", 3, ROWS, 3, WIDTH + 8);
    for (int i = 0; i < ROWS; i++) {
        proa_options o = ft_options(8);
        o.beams = 3, o.length_penalty = 1, o.given[PROA_OPTION_length_penalty] = true;
        direct_run(&ref, (proa_request){.ids = b.ids[i], .ids_count = b.lengths[i], .options = o});
        for (int k = 0; k < 3; k++) {
            const int32_t *row = ints(reply, "output_ids") + (i * 3 + k) * (WIDTH + 8);
            assert_memory_equal(row + b.lengths[i], ref.ids[k], (size_t)ref.count[k] * 4);
            assert_true(floats(reply, "cum_log_probs")[i * 3 + k] == (float)ref.sum[k]);
            double sum = 0;
            for (int64_t m = 0; m < ref.count[k]; m++)
                sum += (double)floats(reply, "output_log_probs")[(i * 3 + k) * 8 + m];
            assert_true(fabs(sum - ref.sum[k]) < 1e-3);
        }
    }
    forget(r);
    rig_close(&g);
}

/* Each reply holds the whole so far; one token more each time. */
static void gptj_stream(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, GPTJ "model_transaction_policy { decoupled: true }", CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = ft_options(6)});
    proa_infer *r = ask_gptj(&b, 1, 6);
    heard *h = run(&g, r);
    assert_int_equal(h->count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ints(h->reply[i], "sequence_length")[0], b.lengths[0] + i + 1);
        assert_memory_equal(ints(h->reply[i], "output_ids") + b.lengths[0], ref.ids[0], (size_t)(i + 1) * 4);
    }
    forget(r);
    r = ask_gptj(&b, ROWS, 5);
    h = run(&g, r);
    assert_in_range(h->count, 5, 15);
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(ints(h->reply[h->count - 1], "sequence_length")[i], b.lengths[i] + 5);
    forget(r);
    rig_close(&g);
}

static void t5_with_tokens_of_the_client(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"translate English to German: A dog runs.",
                                        "translate English to German: Two men.",
                                        "translate English to German: A red ball."};
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, PARAMETER("model_type", "T5"), T5);
    batch b = encode(t5_ref.engine, texts, 0);
    for (int beams = 1; beams <= 4; beams += 3) {
        proa_infer *r = ask();
        put_ids(r, "input_ids", PROA_TYPE_UINT32, &b, ROWS);
        put_rows(r, "sequence_length", PROA_TYPE_UINT32, b.lengths, ROWS);
        put_all(r, "max_output_len", PROA_TYPE_UINT32, 20, ROWS);
        put_all(r, "beam_width", PROA_TYPE_UINT32, beams, ROWS);
        put_all(r, "start_id", PROA_TYPE_UINT32, 0, ROWS);
        const proa_reply *reply = only(run(&g, r));
        assert_shape(reply, "output_ids", 3, ROWS, beams, 20);
        assert_int_equal(out(reply, "output_ids")->type, PROA_TYPE_INT32);
        for (int i = 0; i < ROWS; i++) {
            proa_options o = ft_options(20);
            o.beams = beams;
            direct_run(&t5_ref, (proa_request){.ids = b.ids[i], .ids_count = b.lengths[i], .options = o});
            for (int k = 0; k < beams; k++) {
                const int32_t *row = ints(reply, "output_ids") + (i * beams + k) * 20;
                assert_memory_equal(row, t5_ref.ids[k], (size_t)t5_ref.count[k] * 4);
                assert_int_equal(ints(reply, "sequence_length")[i * beams + k], t5_ref.count[k]);
                for (int64_t m = t5_ref.count[k]; m < 20; m++) assert_int_equal(row[m], 1);
            }
        }
        forget(r);
    }
    rig_close(&g);
}

static void encoders_give_hidden_states(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"translate English to German: A dog runs.", "Two men.", "A red ball."};
    rig g;
    rig_open(&g, &proa_backend_fastertransformer, PARAMETER("model_type", "T5-Encoder"), T5);
    batch b = encode(t5_ref.engine, texts, 0);
    proa_infer *r = ask();
    put_ids(r, "input_ids", PROA_TYPE_UINT32, &b, ROWS);
    put_rows(r, "sequence_length", PROA_TYPE_UINT32, b.lengths, ROWS);
    const proa_reply *reply = only(run(&g, r));
    assert_shape(reply, "output_hidden_state", 3, ROWS, WIDTH, 320);
    for (int i = 0; i < ROWS; i++) {
        direct_run(&t5_ref, (proa_request){.task = PROA_TASK_ENCODE, .ids = b.ids[i], .ids_count = b.lengths[i]});
        const float *rows = floats(reply, "output_hidden_state") + i * WIDTH * 320;
        assert_memory_equal(rows, t5_ref.rows, t5_ref.rows_len * 4);
        if (b.lengths[i] < WIDTH) assert_true(rows[WIDTH * 320 - 1] == 0);
    }
    forget(r);
    rig_close(&g);
    rig_open(&g, &proa_backend_fastertransformer,
             PARAMETER("model_type",
                       "bert") "max_batch_size: 8 "
                               "input [{ name: \"input_ids\" data_type: TYPE_UINT32 dims: [-1] },"
                               "{ name: \"sequence_lengths\" data_type: TYPE_INT32 dims: [1] reshape { } }]",
             MODELS "polarity-bert");
    r = ask();
    put(r, "input_ids", PROA_TYPE_UINT32, (const int32_t[]){2, 40, 41, 3}, 16, 2, (int64_t[]){1, 4});
    put_all(r, "sequence_lengths", PROA_TYPE_INT32, 4, 1);
    assert_shape(only(run(&g, r)), "output_hidden_state", 3, 1, 4, 256);
    forget(r);
    rig_close(&g);
}

/* BERT as FasterTransformer has it: hidden states in, of what the embedding made, and hidden states out. */
static void bert_takes_hidden_states(void **state)
{
    PROA_UNUSED(state);
    enum { H = 256, L = 5 };
    direct bert;
    rig g;
    float in[2][L][H];
    direct_open(&bert, MODELS "polarity-bert");
    for (int i = 0; i < 2 * L * H; i++) (&in[0][0][0])[i] = (float)((i * 37) % 101) / 50 - 1;
    for (int half = 0; half < 2; half++) {
        rig_open(&g, &proa_backend_fastertransformer,
                 half ? PARAMETER("model_type", "bert") PARAMETER("data_type", "fp16")
                            PARAMETER("dtype", "f32")
                      : PARAMETER("model_type", "bert"),
                 MODELS "polarity-bert");
        uint16_t narrow[2 * L * H];
        proa_from_f32(narrow, PROA_DTYPE_F16, &in[0][0][0], 2 * L * H);
        if (half) proa_to_f32(&in[0][0][0], narrow, PROA_DTYPE_F16, 2 * L * H);
        const int32_t lengths[] = {L, 3};
        proa_infer *r = ask();
        put(r, "input_hidden_state", half ? PROA_TYPE_FP16 : PROA_TYPE_FP32,
            half ? (void *)narrow : (void *)in, half ? sizeof narrow : sizeof in, 3, (int64_t[]){2, L, H});
        put_rows(r, "sequence_lengths", PROA_TYPE_INT32, lengths, 2);
        const proa_reply *reply = only(run(&g, r));
        assert_shape(reply, "output_hidden_state", 3, 2, L, H);
        for (int i = 0; i < 2; i++) {
            proa_request request = {.task = PROA_TASK_ENCODE, .embedded = &in[i][0][0], .ids_count = lengths[i]};
            direct_run(&bert, request);
            assert_int_equal(bert.rows_len, lengths[i] * H);
            if (half) proa_from_f32(narrow, PROA_DTYPE_F16, bert.rows, (int64_t)bert.rows_len);
            size_t size = half ? 2 : 4;
            assert_memory_equal(out(reply, "output_hidden_state")->data + (size_t)(i * L * H) * size,
                                half ? (void *)narrow : (void *)bert.rows, bert.rows_len * size);
        }
        forget(r);
        rig_close(&g);
    }
    direct_close(&bert);
}

/* Folders that FasterTransformer's own converters write answer as the checkpoint that they were made from. */
static void ft_own_files(void **state)
{
    PROA_UNUSED(state);
    enum { NEW = 6 };
    direct made;
    direct_open(&made, CHECKPOINT "gptj/safetensors");
    for (int ranks = 1; ranks <= 2; ranks++) {
        rig g;
        rig_open(&g, &proa_backend_fastertransformer, GPTJ,
                 ranks == 1 ? CHECKPOINT "gptj/ft_1" : CHECKPOINT "gptj/ft_2");
        batch b = {.ids = {{5, 17, 42, 9}}, .lengths = {4}};
        proa_infer *r = ask_gptj(&b, 1, NEW);
        const proa_reply *reply = only(run(&g, r));
        direct_run(&made, (proa_request){.ids = b.ids[0], .ids_count = 4, .options = ft_options(NEW)});
        assert_true(made.count[0] > 0);
        assert_memory_equal(ints(reply, "output_ids") + 4, made.ids[0], (size_t)made.count[0] * 4);
        forget(r);
        rig_close(&g);
    }
    direct_close(&made);
}

/* Numbers that f16 has, as large as embeddings. */
static void make_table(float *values, uint16_t *narrow, int64_t count)
{
    for (int64_t i = 0; i < count; i++) values[i] = (float)((i * 37) % 101 - 50) / 1024;
    proa_from_f32(narrow, PROA_DTYPE_F16, values, count);
}

/* A soft prompt comes before each row's prompt, and is not among the outputs; ids of a table may stand anywhere. */
static void gpt_prompt_tables(void **state)
{
    PROA_UNUSED(state);
    enum { TABLE = 4, H = 320, TOTAL = WIDTH + 6 };
    static float table[ROWS * TABLE * H];
    static uint16_t narrow[ROWS * TABLE * H];
    const int32_t used[ROWS] = {4, 2, 0};
    rig g;
    make_table(table, narrow, ROWS * TABLE * H);
    rig_open(&g, &proa_backend_fastertransformer,
             PARAMETER("model_type", "GPT") PARAMETER("prompt_learning_start_id", "9000"), CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    for (int type = 1; type <= 3; type += 2) {
        batch sent = b;
        if (type == 3) sent.ids[0][1] = 9002, sent.ids[1][0] = 9001;
        proa_infer *r = ask_gptj(&sent, ROWS, 6);
        put_all(r, "request_prompt_type", PROA_TYPE_UINT32, type, ROWS);
        put_rows(r, "request_prompt_lengths", PROA_TYPE_UINT32, used, ROWS);
        put(r, "request_prompt_embedding", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){ROWS, TABLE, H});
        const proa_reply *reply = only(run(&g, r));
        assert_shape(reply, "output_ids", 3, ROWS, 1, TOTAL);
        for (int i = 0; i < ROWS; i++) {
            int32_t ids[TABLE + WIDTH], first = type == 1 ? used[i] : 0, n = b.lengths[i];
            for (int32_t k = 0; k < first; k++) ids[k] = 8192 + k;
            for (int32_t k = 0; k < n; k++)
                ids[first + k] = sent.ids[i][k] >= 9000 ? sent.ids[i][k] - 9000 + 8192 : sent.ids[i][k];
            direct_run(&ref, (proa_request){.ids = ids,
                                            .ids_count = first + n,
                                            .prompt_table = used[i] ? table + i * TABLE * H : NULL,
                                            .prompt_table_rows = used[i],
                                            .options = ft_options(6)});
            const int32_t *row = ints(reply, "output_ids") + i * TOTAL;
            assert_int_equal(ints(reply, "sequence_length")[i], n + 6);
            assert_memory_equal(row, sent.ids[i], (size_t)n * 4);
            assert_memory_equal(row + n, ref.ids[0], 6 * 4);
        }
        forget(r);
    }
    rig_close(&g);
}

/* A T5's table is one of p-tuning, for the encoder's input. */
static void t5_prompt_tables(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"translate English to German: A dog runs.", "Two men.", "A red ball."};
    enum { TABLE = 3 };
    rig g;
    proa_info info;
    proa_engine_info(t5_ref.engine, &info);
    int64_t H = info.embedding, vocab = info.vocab, count = TABLE * H;
    float *table = malloc((size_t)count * sizeof *table);
    uint16_t *narrow = malloc((size_t)count * sizeof *narrow);
    make_table(table, narrow, count);
    rig_open(&g, &proa_backend_fastertransformer, PARAMETER("model_type", "T5"), T5);
    batch b = encode(t5_ref.engine, texts, 0);
    b.ids[0][1] = (int32_t)vocab + 2, b.ids[0][3] = (int32_t)vocab;
    proa_infer *r = ask();
    put_ids(r, "input_ids", PROA_TYPE_UINT32, &b, 1);
    put_rows(r, "sequence_length", PROA_TYPE_UINT32, b.lengths, 1);
    put_all(r, "max_output_len", PROA_TYPE_UINT32, 8, 1);
    put_all(r, "start_id", PROA_TYPE_UINT32, 0, 1);
    put(r, "request_prompt_embedding", PROA_TYPE_FP16, narrow, (size_t)count * 2, 3, (int64_t[]){1, TABLE, H});
    const proa_reply *reply = only(run(&g, r));
    direct_run(&t5_ref, (proa_request){.ids = b.ids[0],
                                       .ids_count = b.lengths[0],
                                       .prompt_table = table,
                                       .prompt_table_rows = TABLE,
                                       .options = ft_options(8)});
    assert_memory_equal(ints(reply, "output_ids"), t5_ref.ids[0], (size_t)t5_ref.count[0] * 4);
    forget(r);
    free(table), free(narrow);
    rig_close(&g);
}

static void ft_refusals(void **state)
{
    PROA_UNUSED(state);
    rig g;
    const char *const bad[][2] = {
        {PARAMETER("model_type", "XLNet"), "parameter 'model_type' is 'XLNet', must be GPT, GPT-J, GPT-NeoX"},
        {PARAMETER("model_type", "T5"), "holds a llama"},
        {"input { name: \"inputs\" data_type: TYPE_FP32 dims: [-1] } max_batch_size: 1", "inputs"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        assert_int_not_equal(rig_try(&g, &proa_backend_fastertransformer, bad[i][0], CLASSICS), PROA_OK);
        if (!strstr(g.err.text, bad[i][1])) fail_msg("'%s' does not say '%s'", g.err.text, bad[i][1]);
        rig_release(&g);
    }
    rig_open(&g, &proa_backend_fastertransformer, GPTJ PARAMETER("pipeline_para_size", "2"), CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_gptj(&b, 1, 0);
    assert_refused(&g, r, PROA_INVALID, "request_output_len");
    r = ask_gptj(&b, 1, 4);
    put_all(r, "prompt_learning_task_name_ids", PROA_TYPE_UINT32, 3, 1);
    assert_refused(&g, r, PROA_INVALID, "'prompt_learning_task_name_ids' is 3: there is no adapter '3'");
    r = ask_gptj(&b, 1, 4);
    put_all(r, "request_prompt_type", PROA_TYPE_UINT32, 2, 1);
    assert_refused(&g, r, PROA_UNSUPPORTED, "'request_prompt_type' is 2");
    r = ask_gptj(&b, 1, 4);
    put_all(r, "request_prompt_type", PROA_TYPE_UINT32, 1, 1);
    assert_refused(&g, r, PROA_INVALID, "there is no request_prompt_embedding");
    r = ask_gptj(&b, 1, 4);
    put_all(r, "request_prompt_type", PROA_TYPE_UINT32, 1, 1);
    put(r, "request_prompt_embedding", PROA_TYPE_FP16, (const uint16_t[]){0, 0}, 4, 3, (int64_t[]){1, 1, 2});
    assert_refused(&g, r, PROA_INVALID, "'request_prompt_embedding' has vectors of 2, the model's have 320");
    r = ask_gptj(&b, 1, 4);
    put(r, "stop_words_list", PROA_TYPE_INT32, (const int32_t[]){5, 6, 2, 1}, 16, 3, (int64_t[]){1, 2, 2});
    assert_refused(&g, r, PROA_INVALID, "a word ends at 1");
    b.lengths[0] = WIDTH + 1;
    r = ask_gptj(&b, 1, 4);
    assert_refused(&g, r, PROA_INVALID, "input_lengths");
    b.lengths[0] = 3, b.ids[1][0] = 99999;
    r = ask_gptj(&b, ROWS, 4); /* one bad row: nothing of the others comes */
    assert_refused(&g, r, PROA_INVALID, "99999");
    b = encode(ref.engine, prompts, 2);
    r = ask_gptj(&b, ROWS, 100 * 1000 * 1000);
    assert_refused(&g, r, PROA_INVALID, "max_tokens");
    r = ask_gptj(&b, ROWS, 16 * 1000 * 1000);
    put_all(r, "beam_width", PROA_TYPE_UINT32, 8, ROWS);
    assert_refused(&g, r, PROA_LIMIT, "over the limit");
    rig_close(&g);
}

/* ---- TensorRT-LLM ---- */

static proa_infer *ask_trt(const batch *b, int64_t rows, int32_t new_tokens)
{
    proa_infer *r = ask();
    put_ids(r, "input_ids", PROA_TYPE_INT32, b, rows);
    put_rows(r, "input_lengths", PROA_TYPE_INT32, b->lengths, rows);
    put_all(r, "request_output_len", PROA_TYPE_INT32, new_tokens, rows);
    return r;
}

static proa_options trt_options(int32_t new_tokens)
{
    proa_options o = ft_options(new_tokens);
    o.style = PROA_STYLE_TRTLLM;
    return o;
}

#define DECOUPLED "model_transaction_policy { decoupled: true } "

static void trtllm_one_reply(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8", CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, 1, 10);
    put_all(r, "runtime_top_k", PROA_TYPE_INT32, 20, 1);
    put_all_f(r, "temperature", 0.7f, 1);
    put_all_f(r, "runtime_top_p", 0, 1); /* as not given */
    put_rows(r, "seed", PROA_TYPE_UINT64, (const uint64_t[]){77}, 1);
    put_all_b(r, "return_log_probs", true, 1);
    put_all_b(r, "return_context_logits", true, 1);
    put_all_b(r, "return_generation_logits", true, 1);
    put_all_b(r, "return_perf_metrics", true, 1);
    proa_options o = trt_options(10);
    o.top_k = 20, o.temperature = 0.7f, o.seed = 77, o.logprobs = true;
    o.given[PROA_OPTION_top_k] = true, o.given[PROA_OPTION_temperature] = true, o.given[PROA_OPTION_seed] = true;
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = o});
    const proa_reply *reply = only(run(&g, r));
    int32_t P = b.lengths[0];
    assert_shape(reply, "output_ids", 3, 1, 1, P + 10);
    assert_memory_equal(ints(reply, "output_ids"), b.ids[0], (size_t)P * 4);
    assert_memory_equal(ints(reply, "output_ids") + P, ref.ids[0], 40);
    assert_int_equal(ints(reply, "sequence_length")[0], P + 10);
    assert_shape(reply, "output_log_probs", 3, 1, 1, 10);
    assert_memory_equal(floats(reply, "output_log_probs"), ref.logprobs[0], 40);
    assert_shape(reply, "context_logits", 3, 1, P, 8192);
    assert_int_equal(out(reply, "generation_logits")->rank, 4);
    assert_int_equal(out(reply, "generation_logits")->bytes, 10 * 8192 * 4);
    assert_memory_equal(floats(reply, "generation_logits"), floats(reply, "context_logits") + (P - 1) * 8192,
                        8192 * 4);
    assert_int_equal(ints(reply, "num_input_tokens")[0], P);
    assert_int_equal(ints(reply, "num_output_tokens")[0], 10);
    assert_int_equal(ints(reply, "kv_cache_alloc_total_blocks")[0], 1);
    int64_t times[4];
    static const char *const names[] = {"arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns",
                                        "last_token_time_ns"};
    for (int i = 0; i < 4; i++) memcpy(&times[i], out(reply, names[i])->data, 8);
    assert_true(times[0] > 0 && times[0] <= times[1] && times[1] < times[2] && times[2] < times[3]);
    forget(r);
    r = ask_trt(&b, 1, 10);
    put_all_b(r, "exclude_input_in_output", true, 1);
    put_all_b(r, "return_log_probs", false, 1);
    reply = only(run(&g, r));
    assert_shape(reply, "output_ids", 3, 1, 1, 10);
    assert_shape(reply, "context_logits", 3, 1, 1, 1);
    assert_shape(reply, "output_log_probs", 3, 1, 1, 10);
    forget(r);
    rig_close(&g);
}

/* Batches, beams and several sequences in one reply; what ends at the end token is shorter and padded with -1. */
static void trtllm_batches(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8 " PARAMETER("exclude_input_in_output", "true"),
             CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, ROWS, 12);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(12)});
    put_all(r, "end_id", PROA_TYPE_INT32, ref.ids[0][4], ROWS);
    const proa_reply *reply = only(run(&g, r));
    int64_t width = out(reply, "output_ids")->shape[2];
    for (int i = 0; i < ROWS; i++) {
        proa_options o = trt_options(12);
        o.end_ids[0] = ints(reply, "output_ids") ? ref.ids[0][4] : 0;
        o.end_ids_count = 1;
        direct d = {.engine = ref.engine};
        direct_run(&d, (proa_request){.ids = b.ids[i], .ids_count = b.lengths[i], .options = o});
        int64_t visible = d.count[0] - (d.finish[0] == PROA_FINISH_END);
        assert_int_equal(ints(reply, "sequence_length")[i], visible);
        assert_memory_equal(ints(reply, "output_ids") + i * width, d.ids[0], (size_t)visible * 4);
        for (int64_t k = visible; k < width; k++)
            assert_int_equal(ints(reply, "output_ids")[i * width + k], -1);
    }
    assert_int_equal(ints(reply, "sequence_length")[0], 4);
    forget(r);
    r = ask_trt(&b, 1, 6);
    put_all(r, "beam_width", PROA_TYPE_INT32, 3, 1);
    put_all_b(r, "return_log_probs", true, 1);
    reply = only(run(&g, r));
    proa_options o = trt_options(6);
    o.beams = 3;
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = o});
    width = out(reply, "output_ids")->shape[2];
    assert_shape(reply, "cum_log_probs", 2, 1, 3, 0);
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(ints(reply, "output_ids") + k * width, ref.ids[k], (size_t)(ref.count[k] - 1) * 4);
        assert_true(floats(reply, "cum_log_probs")[k] == (float)ref.sum[k]);
    }
    forget(r);
    r = ask_trt(&b, 1, 6);
    put_all(r, "num_return_sequences", PROA_TYPE_INT32, 2, 1);
    put_all_f(r, "temperature", 1, 1);
    put_all_f(r, "runtime_top_p", 0.9f, 1);
    assert_shape(only(run(&g, r)), "output_ids", 3, 1, 2, 6);
    forget(r);
    rig_close(&g);
}

static void trtllm_streams(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8 " DECOUPLED, CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, 1, 7);
    put_all_b(r, "streaming", true, 1);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(7)});
    heard *h = run(&g, r);
    assert_int_equal(h->count, 7);
    for (int i = 0; i < 7; i++) {
        assert_shape(h->reply[i], "output_ids", 3, 1, 1, 1);
        assert_int_equal(ints(h->reply[i], "output_ids")[0], ref.ids[0][i]);
        assert_int_equal(ints(h->reply[i], "sequence_length")[0], 1);
    }
    forget(r);
    r = ask_trt(&b, 1, 7); /* the end token is not shown: the last reply is empty */
    put_all_b(r, "streaming", true, 1);
    put_all(r, "end_id", PROA_TYPE_INT32, ref.ids[0][3], 1);
    h = run(&g, r);
    assert_int_equal(h->count, 4);
    assert_shape(h->reply[3], "output_ids", 3, 1, 1, 0);
    forget(r);
    r = ask_trt(&b, ROWS, 5); /* not streaming: a reply for each row */
    h = run(&g, r);
    assert_int_equal(h->count, ROWS);
    int seen = 0;
    for (int i = 0; i < ROWS; i++) {
        int32_t row = ints(h->reply[i], "batch_index")[0];
        seen |= 1 << row;
        assert_int_equal(ints(h->reply[i], "sequence_length")[0], b.lengths[row] + 5);
    }
    assert_int_equal(seen, 7);
    forget(r);
    r = ask_trt(&b, 1, 5); /* a reply for each sequence */
    put_all(r, "num_return_sequences", PROA_TYPE_INT32, 3, 1);
    put_all(r, "runtime_top_k", PROA_TYPE_INT32, 50, 1);
    h = run(&g, r);
    assert_int_equal(h->count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(ints(h->reply[i], "sequence_index")[0], i);
    forget(r);
    rig_close(&g);
}

static void trtllm_stop(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8 " DECOUPLED, CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, 1, 900);
    r->id = "7";
    put_all_b(r, "streaming", true, 1);
    put_all(r, "end_id", PROA_TYPE_INT32, -1, 1); /* none */
    start(&g, r);
    heard *h = r->user;
    pthread_mutex_lock(&h->lock);
    while (h->count < 3) pthread_cond_wait(&h->more, &h->lock);
    pthread_mutex_unlock(&h->lock);
    proa_infer *s = ask_trt(&b, 1, 1);
    s->id = "7";
    put_all_b(s, "stop", true, 1);
    assert_int_equal(only(run(&g, s))->outputs_count, 0);
    forget(s);
    wait_for(r);
    assert_true(h->count < 890);
    assert_int_equal(h->reply[h->count - 1]->error.status, PROA_OK); /* it ends with what it has said */
    forget(r);
    s = ask_trt(&b, 1, 1);
    put_all_b(s, "stop", true, 1);
    assert_refused(&g, s, PROA_INVALID, "Trying to stop a request but request ID is not provided");
    rig_close(&g);
}

/* prompt_embedding_table: ids from the vocabulary's size on are its rows. */
static void trtllm_prompt_tables(void **state)
{
    PROA_UNUSED(state);
    enum { TABLE = 3, H = 320 };
    static float table[TABLE * H];
    static uint16_t narrow[TABLE * H];
    rig g;
    make_table(table, narrow, TABLE * H);
    rig_open(&g, &proa_backend_tensorrtllm, "", CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    b.ids[0][0] = 8194, b.ids[0][2] = 8192;
    proa_infer *r = ask_trt(&b, 1, 6);
    put(r, "prompt_embedding_table", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, TABLE, H});
    put_all(r, "prompt_vocab_size", PROA_TYPE_INT32, TABLE, 1);
    const proa_reply *reply = only(run(&g, r));
    proa_request same = {.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(6)};
    same.prompt_table = table, same.prompt_table_rows = TABLE;
    direct_run(&ref, same);
    assert_memory_equal(ints(reply, "output_ids"), b.ids[0], (size_t)b.lengths[0] * 4);
    assert_memory_equal(ints(reply, "output_ids") + b.lengths[0], ref.ids[0], 6 * 4);
    forget(r);
    r = ask_trt(&b, 1, 6);
    put(r, "prompt_embedding_table", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, TABLE, H});
    put_all(r, "prompt_vocab_size", PROA_TYPE_INT32, 2, 1);
    assert_refused(&g, r, PROA_INVALID, "token id 8194");
    r = ask_trt(&b, 1, 6);
    put(r, "prompt_embedding_table", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, TABLE, H});
    put_all(r, "prompt_vocab_size", PROA_TYPE_INT32, TABLE + 1, 1);
    assert_refused(&g, r, PROA_INVALID, "prompt_vocab_size is 4, must be 1 to 3");
    r = ask_trt(&b, 1, 6);
    put_all(r, "prompt_vocab_size", PROA_TYPE_INT32, 1, 1);
    assert_refused(&g, r, PROA_INVALID, "there is no prompt_embedding_table");
    rig_close(&g);
}

/* The first request with a task id brings the weights, later ones the id alone. */
static void trtllm_adapters(void **state)
{
    PROA_UNUSED(state);
    enum { RANK = 2, H = 320, ROW = RANK * H * 2 };
    static float weights[2 * ROW];
    static uint16_t narrow[2 * ROW];
    const int32_t config[] = {1, 0, RANK, 4, 1, RANK}; /* attn_q of layer 0, attn_dense of layer 1 */
    rig g;
    for (int64_t i = 0; i < 2 * ROW; i++) weights[i] = (float)((i * 73) % 97 - 48) / 64;
    proa_from_f32(narrow, PROA_DTYPE_F16, weights, 2 * ROW);
    rig_open(&g, &proa_backend_tensorrtllm, PARAMETER("lora_slots", "2"), CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(6)});
    proa_infer *r = ask_trt(&b, 1, 6);
    put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){7}, 1);
    assert_refused(&g, r, PROA_INVALID, "there is no adapter '7': the first request with a lora_task_id brings");
    int32_t first[6];
    for (int turn = 0; turn < 4; turn++) { /* task 7 with weights and alone; tasks 8 and 9, which drops 7 */
        r = ask_trt(&b, 1, 6);
        put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){(uint64_t)(turn < 2 ? 7 : 6 + turn)}, 1);
        if (turn != 1) {
            put(r, "lora_weights", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, 2, ROW});
            put(r, "lora_config", PROA_TYPE_INT32, config, sizeof config, 3, (int64_t[]){1, 2, 3});
        }
        const proa_reply *reply = only(run(&g, r));
        const int32_t *ids = ints(reply, "output_ids") + b.lengths[0];
        if (turn == 0) memcpy(first, ids, sizeof first);
        assert_memory_equal(ids, first, sizeof first);
        assert_memory_not_equal(ids, ref.ids[0], sizeof first);
        forget(r);
    }
    r = ask_trt(&b, 1, 6);
    put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){7}, 1);
    assert_refused(&g, r, PROA_INVALID, "there is no adapter '7'");
    r = ask_trt(&b, 1, 6);
    put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){5}, 1);
    put(r, "lora_weights", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, 2, ROW});
    assert_refused(&g, r, PROA_INVALID, "'lora_weights' needs 'lora_config'");
    r = ask_trt(&b, 1, 6);
    put(r, "lora_weights", PROA_TYPE_FP16, narrow, sizeof narrow, 3, (int64_t[]){1, 2, ROW});
    put(r, "lora_config", PROA_TYPE_INT32, config, sizeof config, 3, (int64_t[]){1, 2, 3});
    assert_refused(&g, r, PROA_INVALID, "needs 'lora_task_id'");
    const struct {
        int32_t config[3];
        const char *says;
    } bad[] = {{{13, 0, 2}, "lora_task_id 5: row 0 of lora_config: module 13"},
               {{1, 99, 2}, "layer 99"},
               {{1, 0, 0}, "rank 0"},
               {{1, 0, 500}, "module 'attn_q' of rank 500 has"},
               {{8, 0, 2}, "module 8"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        r = ask_trt(&b, 1, 6);
        put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){5}, 1);
        put(r, "lora_weights", PROA_TYPE_FP16, narrow, sizeof narrow / 2, 3, (int64_t[]){1, 1, ROW});
        put(r, "lora_config", PROA_TYPE_INT32, bad[i].config, sizeof bad[i].config, 3, (int64_t[]){1, 1, 3});
        assert_refused(&g, r, bad[i].config[0] == 1 ? PROA_INVALID : PROA_UNSUPPORTED, bad[i].says);
    }
    rig_close(&g);
}

static void trtllm_refusals(void **state)
{
    PROA_UNUSED(state);
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm,
             "max_batch_size: 8 input [{ name: \"input_ids\" data_type: TYPE_INT32 dims: [-1] },"
             "{ name: \"input_lengths\" data_type: TYPE_INT32 dims: [1] reshape { } },"
             "{ name: \"request_output_len\" data_type: TYPE_INT32 dims: [1] reshape { } },"
             "{ name: \"streaming\" data_type: TYPE_BOOL dims: [1] reshape { } optional: true },"
             "{ name: \"lora_task_id\" data_type: TYPE_UINT64 dims: [1] reshape { } optional: true },"
             "{ name: \"random_seed\" data_type: TYPE_UINT64 dims: [1] reshape { } optional: true },"
             "{ name: \"beam_width\" data_type: TYPE_UINT32 dims: [1] reshape { } optional: true },"
             "{ name: \"embedding_bias\" data_type: TYPE_FP32 dims: [-1] optional: true },"
             "{ name: \"prompt_embedding_table\" data_type: TYPE_FP16 dims: [-1,-1] optional: true }]",
             CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, 1, 4);
    put_all_b(r, "streaming", true, 1);
    assert_refused(&g, r, PROA_INVALID, "Streaming is only supported if model is deployed using decoupled mode.");
    r = ask_trt(&b, 1, 4);
    put_rows(r, "lora_task_id", PROA_TYPE_UINT64, (const uint64_t[]){1}, 1);
    assert_refused(&g, r, PROA_INVALID, "there is no adapter '1'");
    r = ask_trt(&b, 1, 4);
    param_text(r, "request_type", "context_only");
    assert_refused(&g, r, PROA_UNSUPPORTED, "context_only");
    r = ask_trt(&b, 1, 4);
    put(r, "prompt_embedding_table", PROA_TYPE_FP16, NULL, 0, 3, (int64_t[]){1, 0, 320}); /* empty: nothing is asked */
    float *bias = calloc(8192, sizeof *bias);
    direct_run(&ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(4)});
    bias[ref.ids[0][0]] = -100;
    put(r, "embedding_bias", PROA_TYPE_FP32, bias, 8192 * 4, 2, (int64_t[]){1, 8192});
    put_rows(r, "random_seed", PROA_TYPE_UINT64, (const uint64_t[]){1}, 1);
    put_all(r, "beam_width", PROA_TYPE_UINT32, 1, 1);
    assert_int_not_equal(ints(only(run(&g, r)), "output_ids")[b.lengths[0]], ref.ids[0][0]);
    free(bias);
    forget(r);
    rig_close(&g);
    assert_int_equal(rig_try(&g, &proa_backend_tensorrtllm,
                             "max_batch_size: 1 input { name: \"tokens\" data_type: TYPE_INT32 dims: [-1] }",
                             CLASSICS),
                     PROA_INVALID);
    assert_non_null(strstr(g.err.text, "tokens"));
    rig_release(&g);
}

static void trtllm_encoder_decoder(void **state)
{
    PROA_UNUSED(state);
    static const char *const texts[] = {"translate English to German: A dog runs.", "x", "y"};
    rig g;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8", T5);
    batch b = encode(t5_ref.engine, texts, 0);
    proa_infer *r = ask_trt(&b, 1, 20);
    put_all(r, "decoder_input_ids", PROA_TYPE_INT32, 0, 1);
    put_all(r, "decoder_input_lengths", PROA_TYPE_INT32, 1, 1);
    put_all_b(r, "exclude_input_in_output", true, 1);
    direct_run(&t5_ref, (proa_request){.ids = b.ids[0], .ids_count = b.lengths[0], .options = trt_options(20)});
    const proa_reply *reply = only(run(&g, r));
    assert_int_equal(ints(reply, "sequence_length")[0], t5_ref.count[0] - 1);
    assert_memory_equal(ints(reply, "output_ids"), t5_ref.ids[0], (size_t)(t5_ref.count[0] - 1) * 4);
    forget(r);
    rig_close(&g);
}

static void trtllm_metrics(void **state)
{
    PROA_UNUSED(state);
    rig g;
    proa_buf buf;
    rig_open(&g, &proa_backend_tensorrtllm, "max_batch_size: 8 " PARAMETER("max_num_sequences", "5"), CLASSICS);
    batch b = encode(ref.engine, prompts, 2);
    proa_infer *r = ask_trt(&b, 1, 30);
    only(run(&g, r));
    forget(r);
    proa_stats stats = {.running = 1}; /* they are published at the end of the step that gave the last reply */
    while (stats.running) proa_engine_stats(((proa_llm_model *)g.model.state)->engine, &stats);
    proa_buf_init(&buf, 1 << 20);
    proa_backend_tensorrtllm.metrics(g.model.state, "model=\"m\",version=\"1\"", &buf);
    const char *const lines[] = {
        "nv_trt_llm_request_metrics{request_type=\"max\",model=\"m\",version=\"1\"} 5\n",
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\",version=\"1\"} "
        "64\n",
        "nv_llm_output_token_len_bucket{response_metric_type=\"total_output_tokens\",model=\"m\",version="
        "\"1\",le=\"10\"} 0\n",
        "nv_llm_output_token_len_bucket{response_metric_type=\"total_output_tokens\",model=\"m\",version="
        "\"1\",le=\"50\"} 1\n",
        "nv_llm_output_token_len_sum{response_metric_type=\"total_output_tokens\",model=\"m\",version=\"1\"} "
        "30\n",
        "nv_trt_llm_general_metrics{general_type=\"iteration_counter\",model=\"m\",version=\"1\"} 30\n"};
    for (size_t i = 0; i < PROA_COUNT(lines); i++)
        if (!strstr(buf.ptr, lines[i])) fail_msg("no line '%s' in\n%s", lines[i], buf.ptr);
    proa_buf_release(&buf);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptj_batch),
        cmocka_unit_test(gptj_words_end_and_silence),
        cmocka_unit_test(gptj_beams),
        cmocka_unit_test(gptj_stream),
        cmocka_unit_test(t5_with_tokens_of_the_client),
        cmocka_unit_test(encoders_give_hidden_states),
        cmocka_unit_test(bert_takes_hidden_states),
        cmocka_unit_test(ft_own_files),
        cmocka_unit_test(gpt_prompt_tables),
        cmocka_unit_test(t5_prompt_tables),
        cmocka_unit_test(ft_refusals),
        cmocka_unit_test(trtllm_one_reply),
        cmocka_unit_test(trtllm_batches),
        cmocka_unit_test(trtllm_streams),
        cmocka_unit_test(trtllm_stop),
        cmocka_unit_test(trtllm_prompt_tables),
        cmocka_unit_test(trtllm_adapters),
        cmocka_unit_test(trtllm_refusals),
        cmocka_unit_test(trtllm_encoder_decoder),
        cmocka_unit_test(trtllm_metrics),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
