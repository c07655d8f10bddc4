# SPDX-License-Identifier: Apache-2.0
"""The declarations of include/proa/proa.h. Written by tools/python-cdef; do not edit."""

CDEF = """
typedef enum proa_status {
    PROA_OK, PROA_CANCELLED, PROA_INVALID, PROA_DEADLINE, PROA_NOT_FOUND, PROA_EXISTS, PROA_NO_MEMORY, PROA_LIMIT, PROA_UNSUPPORTED, PROA_INTERNAL, PROA_UNAVAILABLE, PROA_CORRUPT, PROA_IO,
        PROA_STATUS_COUNT
} proa_status;
typedef struct proa_err {
    proa_status status;
    int line;
    const char *file;
    uint64_t whole;
    char text[480];
} proa_err;
const char *proa_status_text(proa_status status);
int proa_status_grpc(proa_status status);
int proa_status_http(proa_status status);
typedef struct proa_engine proa_engine;
typedef void proa_progress_fn(void *arg, const char *what, double part);
typedef struct proa_adapter_source {
    const char *name, *path;
} proa_adapter_source;
typedef struct proa_engine_options {
    const char *device;
    const char *dtype;
    const char *quant;
    const char *kv_dtype;
    int32_t threads;
    int32_t sequences_max;
    int32_t step_tokens;
    int32_t prompt_rows;
    float prompt_slowdown;
    int64_t kv_tokens;
    float kv_share;
    const char *prefix_cache;
    const char *prefix_host_memory;
    const char *prefix_dir, *prefix_dir_size;
    const char *policy;
    proa_progress_fn *progress;
    void *progress_arg;
    const char *speculation;
    const char *draft_model;
    int32_t draft_tokens;
    bool detach_files;
    const proa_adapter_source *adapters;
    int32_t adapters_count;
    int32_t adapter_slots;
    int32_t adapters_max;
    int32_t adapter_rank;
} proa_engine_options;
 proa_status proa_engine_open(proa_engine **out, const char *path,
                                         const proa_engine_options *options, proa_err *err);
 void proa_engine_close(proa_engine *engine);
typedef enum proa_kind {
    PROA_KIND_DECODER,
    PROA_KIND_ENCODER_DECODER,
    PROA_KIND_ENCODER
} proa_kind;
typedef struct proa_info {
    const char *arch;
    proa_kind kind;
    int32_t vocab, hidden, layers, encoder_layers;
    int32_t context;
    int32_t outputs;
    bool has_tokenizer, has_pooler;
    int32_t threads;
    const char *isa, *dtype, *quant, *kv_dtype;
    int64_t parameters, weight_bytes;
    int64_t kv_tokens, kv_bytes;
    int64_t memory_bytes;
    int32_t bos_id, eos_id, decoder_start_id;
    const char *plan;
    int32_t labels;
    int32_t embedding;
} proa_info;
 void proa_engine_info(const proa_engine *engine, proa_info *info);
typedef enum proa_task {
    PROA_TASK_GENERATE,
    PROA_TASK_SCORE,
    PROA_TASK_ROWS,
    PROA_TASK_ENCODE
} proa_task;
typedef enum proa_early {
    PROA_EARLY_FALSE,
    PROA_EARLY_TRUE,
    PROA_EARLY_NEVER
} proa_early;
typedef enum proa_style {
    PROA_STYLE_HF,
    PROA_STYLE_FT,
    PROA_STYLE_TRTLLM
} proa_style;
typedef struct proa_words {
    const int32_t *ids, *ends;
    int32_t count;
} proa_words;
typedef struct proa_tokens {
    const int32_t *ids;
    int32_t count;
} proa_tokens;
typedef struct proa_sequence_bias {
    proa_words words;
    const float *values;
} proa_sequence_bias;
typedef struct proa_bias {
    int32_t id;
    float value;
} proa_bias;
typedef struct proa_strings {
    const char *const *text;
    int32_t count;
} proa_strings;
typedef enum proa_option {
    PROA_OPTION_max_tokens, PROA_OPTION_min_tokens, PROA_OPTION_temperature, PROA_OPTION_top_k, PROA_OPTION_top_p, PROA_OPTION_min_p, PROA_OPTION_typical_p, PROA_OPTION_epsilon_cutoff, PROA_OPTION_eta_cutoff, PROA_OPTION_top_p_decay, PROA_OPTION_top_p_min, PROA_OPTION_top_p_reset_id, PROA_OPTION_seed, PROA_OPTION_repetition_penalty, PROA_OPTION_presence_penalty, PROA_OPTION_frequency_penalty, PROA_OPTION_no_repeat_ngram, PROA_OPTION_encoder_repetition_penalty, PROA_OPTION_encoder_no_repeat_ngram, PROA_OPTION_logit_bias, PROA_OPTION_sequence_bias, PROA_OPTION_suppress_tokens, PROA_OPTION_begin_suppress_tokens, PROA_OPTION_exponential_decay_start, PROA_OPTION_exponential_decay_factor, PROA_OPTION_renormalize_logits, PROA_OPTION_allowed_words, PROA_OPTION_json_schema, PROA_OPTION_json_object, PROA_OPTION_regex, PROA_OPTION_grammar, PROA_OPTION_choice, PROA_OPTION_banned_words, PROA_OPTION_banned_strings, PROA_OPTION_forced_bos_id, PROA_OPTION_forced_eos_id, PROA_OPTION_stop_words, PROA_OPTION_stop_strings, PROA_OPTION_end_ids, PROA_OPTION_ignore_eos, PROA_OPTION_n, PROA_OPTION_best_of, PROA_OPTION_beams, PROA_OPTION_style, PROA_OPTION_length_penalty, PROA_OPTION_early_stopping, PROA_OPTION_beams_returned, PROA_OPTION_beam_groups, PROA_OPTION_diversity_penalty, PROA_OPTION_diversity_rate, PROA_OPTION_penalty_alpha, PROA_OPTION_logprobs, PROA_OPTION_top_logprobs, PROA_OPTION_prompt_logprobs, PROA_OPTION_return_logits, PROA_OPTION_return_hidden, PROA_OPTION_priority, PROA_OPTION_timeout_ms, PROA_OPTION_adapter, PROA_OPTION_speculation, PROA_OPTION_draft_tokens, PROA_OPTION_prediction, PROA_OPTION_draft_ids,
        PROA_OPTION_COUNT
} proa_option;
typedef struct proa_options {
    uint64_t given;
    int32_t max_tokens;
    int32_t min_tokens;
    float temperature;
    int32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float epsilon_cutoff;
    float eta_cutoff;
    float top_p_decay;
    float top_p_min;
    int32_t top_p_reset_id;
    uint64_t seed;
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    int32_t no_repeat_ngram;
    float encoder_repetition_penalty;
    int32_t encoder_no_repeat_ngram;
    const proa_bias *logit_bias;
    int32_t logit_bias_count;
    proa_sequence_bias sequence_bias;
    proa_tokens suppress_tokens;
    proa_tokens begin_suppress_tokens;
    int32_t exponential_decay_start;
    float exponential_decay_factor;
    bool renormalize_logits;
    proa_words allowed_words;
    const char *json_schema;
    bool json_object;
    const char *regex;
    const char *grammar;
    proa_strings choice;
    proa_words banned_words;
    proa_strings banned_strings;
    int32_t forced_bos_id;
    int32_t forced_eos_id;
    proa_words stop_words;
    proa_strings stop_strings;
    int32_t end_ids[16];
    int32_t end_ids_count;
    bool ignore_eos;
    int32_t n;
    int32_t best_of;
    int32_t beams;
    proa_style style;
    float length_penalty;
    proa_early early_stopping;
    int32_t beams_returned;
    int32_t beam_groups;
    float diversity_penalty;
    float diversity_rate;
    float penalty_alpha;
    bool logprobs;
    int32_t top_logprobs;
    bool prompt_logprobs;
    bool return_logits;
    bool return_hidden;
    int32_t priority;
    int32_t timeout_ms;
    const char *adapter;
    const char *speculation;
    int32_t draft_tokens;
    const char *prediction;
    proa_tokens draft_ids;
} proa_options;
 proa_status proa_options_new(proa_options **out, const char *json, proa_err *err);
 void proa_options_free(proa_options *options);
 uint64_t proa_seed_of(uint64_t seed, int32_t i);
typedef enum proa_event_kind {
    PROA_EVENT_TOKEN,
    PROA_EVENT_ROWS,
    PROA_EVENT_PROMPT,
    PROA_EVENT_DONE,
    PROA_EVENT_BEGIN
} proa_event_kind;
typedef enum proa_finish {
    PROA_FINISH_NONE,
    PROA_FINISH_END,
    PROA_FINISH_STOP,
    PROA_FINISH_LENGTH,
    PROA_FINISH_CANCELLED,
    PROA_FINISH_ERROR
} proa_finish;
typedef struct proa_logprob {
    int32_t id;
    float logprob;
} proa_logprob;
typedef struct proa_beam_result {
    const int32_t *ids;
    int64_t count;
    float score;
    double logprob_sum;
    proa_finish finish;
    int32_t sequence;
    const char *text;
    size_t text_len;
} proa_beam_result;
typedef struct proa_event {
    proa_event_kind kind;
    uint64_t request;
    void *arg;
    int32_t id;
    float logprob;
    const char *text;
    size_t text_len;
    int32_t sequence;
    const proa_logprob *top;
    int32_t top_count;
    const float *logits, *hidden;
    const char *stop_string;
    const float *rows, *pooled;
    int64_t rows_first, rows_count, columns;
    const float *prompt_logprobs;
    const int32_t *prompt_ids;
    const proa_logprob *prompt_top;
    proa_finish finish;
    const proa_err *error;
    const proa_beam_result *beams;
    int32_t beams_count;
    double logprob_sum;
    int64_t prompt_tokens, new_tokens;
    int64_t cached_tokens;
    int64_t drafted_tokens, accepted_tokens;
    double queue_s, prompt_s, decode_s;
} proa_event;
typedef void proa_event_fn(const proa_event *event);
typedef struct proa_request {
    proa_task task;
    const char *text;
    size_t text_len;
    const char *text_pair;
    size_t text_pair_len;
    const int32_t *ids;
    int64_t ids_count;
    const float *prompt_table;
    int64_t prompt_table_rows;
    const int32_t *type_ids;
    const float *embedded;
    const float *encoder_outputs;
    const int32_t *decoder_ids;
    int64_t decoder_ids_count;
    const char *session_id;
    bool session_continues;
    bool session_begins;
    bool session_ends;
    const char *cache_salt;
    const int32_t *visible_ids;
    int64_t visible_ids_count;
    proa_options options;
    const char *client;
    proa_event_fn *on_event;
    void *arg;
} proa_request;
 proa_status proa_engine_load_adapter(proa_engine *engine, const char *name, const char *path,
                                                 proa_err *err);
 proa_status proa_engine_unload_adapter(proa_engine *engine, const char *name, proa_err *err);
 int32_t proa_engine_adapters(const proa_engine *engine,
                                         void (*see)(void *arg, const char *name, const char *path), void *arg);
typedef struct proa_adapter_rows {
    const float *weights;
    const int32_t *config;
    int64_t rows, width;
} proa_adapter_rows;
 proa_status proa_engine_load_adapter_rows(proa_engine *engine, const char *name,
                                                      const proa_adapter_rows *rows, proa_err *err);
 proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id,
                                           proa_err *err);
 void proa_engine_cancel(proa_engine *engine, uint64_t id);
 bool proa_engine_step(proa_engine *engine);
 void proa_engine_run(proa_engine *engine);
 proa_status proa_engine_start(proa_engine *engine, proa_err *err);
 void proa_engine_stop(proa_engine *engine);
typedef struct proa_stats {
    uint64_t steps, rows;
    uint64_t prompt_tokens, new_tokens;
    uint64_t drafted, accepted;
    uint64_t submitted, finished, cancelled, failed;
    uint64_t preemptions;
    int32_t running, waiting;
    int64_t pages_used, pages_free, pages_used_peak;
    int64_t pages_cached;
    uint64_t pages_evicted;
    uint64_t prefix_queries, prefix_hits;
    uint64_t prefix_hits_host,
        prefix_hits_dir;
    int64_t pages_host, pages_dir;
    double step_s;
} proa_stats;
 void proa_engine_stats(proa_engine *engine, proa_stats *stats);
 proa_status proa_engine_encode(const proa_engine *engine, const char *text, size_t text_len,
                                           int32_t *ids, int64_t cap, int64_t *count, proa_err *err);
 proa_status proa_engine_encode_plain(const proa_engine *engine, const char *text, size_t text_len,
                                                 int32_t *ids, int64_t cap, int64_t *count, proa_err *err);
 proa_status proa_engine_decode(const proa_engine *engine, const int32_t *ids, int64_t count,
                                           char *text, size_t cap, size_t *text_len, proa_err *err);
 proa_status proa_engine_chat(proa_engine *engine, const char *request, char *text, size_t cap,
                                         size_t *text_len, proa_err *err);
typedef struct proa_decoder_session proa_decoder_session;
typedef struct proa_decoder_session_options {
    int32_t sequences;
    int64_t tokens_max;
} proa_decoder_session_options;
 proa_status proa_decoder_session_open(proa_decoder_session **out, proa_engine *engine,
                                                  const proa_decoder_session_options *options, proa_err *err);
 void proa_decoder_session_close(proa_decoder_session *session);
typedef struct proa_decoder_session_input {
    int32_t sequence;
    const int32_t *ids;
    const float *embeddings;
    int64_t count;
} proa_decoder_session_input;
typedef struct proa_decoder_session_output {
    float *logits;
    float *hidden;
    bool all_rows;
} proa_decoder_session_output;
 proa_status proa_decoder_session_step(proa_decoder_session *session,
                                                  const proa_decoder_session_input *inputs, int32_t count,
                                                  const proa_decoder_session_output *output, proa_err *err);
 proa_status proa_decoder_session_reorder(proa_decoder_session *session, const int32_t *parents,
                                                     int32_t count, proa_err *err);
 proa_status proa_decoder_session_fork(proa_decoder_session *session, int32_t from, int32_t to,
                                                  proa_err *err);
 proa_status proa_decoder_session_truncate(proa_decoder_session *session, int32_t sequence,
                                                      int64_t tokens, proa_err *err);
 int64_t proa_decoder_session_length(const proa_decoder_session *session, int32_t sequence);
 proa_status proa_decoder_session_encode(proa_decoder_session *session,
                                                    const proa_decoder_session_input *input, float *hidden,
                                                    proa_err *err);
 proa_status proa_decoder_session_set_encoder_outputs(proa_decoder_session *session,
                                                                 int32_t sequence, const float *hidden,
                                                                 int64_t count, proa_err *err);
 const char *proa_version(void);
"""
