/* SPDX-License-Identifier: Apache-2.0
 * decoder_session.c - tokens of the caller's sequences through the engine's model, between its steps.
 *
 * A session has page tables of its own in the engine's pool. Sequences that were forked or reordered refer to the same
 * pages, and proa_page_table_own copies a page before one of them writes to it. A pass is built in the engine's step
 * arrays, which no step uses meanwhile (sched/job.c), and runs as the engine's own do. */
#include "engine/engine.h"
#include "engine/sched/request_pages.h"
#include "engine/sched/scheduler.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <string.h>

/* One sequence. */
typedef struct session_sequence {
    proa_page_table self, cross; /* of its tokens, and of its encoder memory */
    int64_t length, input_count; /* tokens in each */
} session_sequence;

struct proa_decoder_session {
    proa_engine *engine;
    int32_t sequences;
    int64_t tokens_max;
    int32_t restarts; /* of the ranks when the session began: later ones have lost what it had in their pages */
    int32_t *memory; /* the entries of all page tables */
    /* [sequences] each; spare: tables without pages, for reordering */
    session_sequence *seq, *spare;
    bool *used;                /* [sequences] of the inputs of a step */
    const int32_t *device_ids; /* of a call: the first of its ids that are on the GPU; NULL: none are */
};

/* ---- life ---- */

static proa_status check_model(const proa_engine *e, proa_err *err)
{
    if (e->model->arch->kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no decoder to step", e->model->arch->name);
    if (e->states.numbers)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has recurrent states: it has no steps of a session",
                         e->model->arch->name);
    if (e->model->config.prefix_end >= 0)
        return PROA_FAIL(err, UNSUPPORTED, "a %s sees its prompts both ways: it has no steps of a session",
                         e->model->arch->name);
    return PROA_OK;
}

static proa_status read_session_options(proa_decoder_session *s, const proa_decoder_session_options *o,
                                        proa_err *err)
{
    const proa_engine *e = s->engine;
    int64_t context = e->model->config.context;
    s->sequences = o && o->sequences ? o->sequences : 1;
    s->tokens_max = o && o->tokens_max ? o->tokens_max : context;
    if (s->sequences < 1 || s->sequences > e->sizes.sequences_max)
        return PROA_FAIL(err, LIMIT, "session: 'sequences' is %d, must be 1 to %lld (the engine's sequences_max)",
                         s->sequences, (long long)e->sizes.sequences_max);
    if (s->tokens_max < 1 || s->tokens_max > context)
        return PROA_FAIL(err, LIMIT, "session: 'tokens_max' is %lld, must be 1 to %lld (the model's context)",
                         (long long)s->tokens_max, (long long)context);
    return PROA_OK;
}

static void make_tables(proa_decoder_session *s)
{
    int64_t cap = s->engine->slots.cap, at = 0;
    s->memory = proa_calloc((size_t)(4 * s->sequences * cap), sizeof *s->memory);
    s->seq = proa_calloc((size_t)s->sequences, sizeof *s->seq);
    s->spare = proa_calloc((size_t)s->sequences, sizeof *s->spare);
    s->used = proa_calloc((size_t)s->sequences, sizeof *s->used);
    for (int32_t i = 0; i < s->sequences; i++) {
        proa_page_table *tables[] = {&s->seq[i].self, &s->seq[i].cross, &s->spare[i].self, &s->spare[i].cross};
        for (size_t t = 0; t < PROA_COUNT(tables); t++, at += cap)
            *tables[t] = (proa_page_table){s->memory + at, 0, (int32_t)cap};
    }
}

proa_status proa_decoder_session_open(proa_decoder_session **out, proa_engine *engine,
                                      const proa_decoder_session_options *options, proa_err *err)
{
    *out = NULL;
    PROA_TRY(check_model(engine, err));
    proa_decoder_session *s = proa_calloc(1, sizeof *s);
    s->engine = engine;
    s->restarts = atomic_load(&engine->ranks.restarts);
    proa_status status = read_session_options(s, options, err);
    if (status != PROA_OK) return free(s), status;
    make_tables(s);
    *out = s;
    return PROA_OK;
}

/* ---- pages; on the stepping thread ---- */

static int64_t count_pages(const proa_decoder_session *s)
{
    int64_t pages = 0;
    for (int32_t i = 0; i < s->sequences; i++) pages += s->seq[i].self.count + s->seq[i].cross.count;
    return pages;
}

static void clear_sequence(proa_decoder_session *s, session_sequence *seq)
{
    proa_page_table_release(&s->engine->pages, &seq->self);
    proa_page_table_release(&s->engine->pages, &seq->cross);
    seq->length = seq->input_count = 0;
}

/* `to`, which has no pages, refers to those of `from`. */
static void share_sequence(proa_decoder_session *s, session_sequence *to, const session_sequence *from)
{
    proa_page_table_share(&s->engine->pages, &to->self, &from->self, from->length);
    proa_page_table_share(&s->engine->pages, &to->cross, &from->cross, from->input_count);
    to->length = from->length, to->input_count = from->input_count;
}

static proa_status check_room(const proa_decoder_session *s, int64_t pages, proa_err *err)
{
    int64_t room = proa_request_pages_available(s->engine);
    if (pages <= room) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY,
                     "session: needs room for %lld tokens of keys and values, there is room for %lld "
                     "(kv_tokens)",
                     (long long)pages * PROA_PAGE_TOKENS, (long long)room * PROA_PAGE_TOKENS);
}

/* ---- calls; each is a job of the stepping thread ---- */

typedef struct session_call {
    proa_decoder_session *session;
    const proa_decoder_session_input *inputs; /* [count] */
    int32_t count;
    const proa_decoder_session_output *output;
    const int32_t *parents; /* [count] */
    int32_t from, to;       /* sequences */
    int64_t tokens;         /* to keep */
    bool encoded;           /* embeddings of the input are outputs of the encoder */
    proa_err *err;
    proa_status status;
} session_call;

static proa_status run_call(session_call *call, void (*run)(void *arg))
{
    PROA_TRY(proa_sched_run_job(call->session->engine, run, call, call->err));
    return call->status;
}

static proa_status check_sequence(const proa_decoder_session *s, int32_t sequence, proa_err *err)
{
    if (sequence >= 0 && sequence < s->sequences) return PROA_OK;
    return PROA_FAIL(err, INVALID, "session: sequence %d, must be 0 to %d", sequence, s->sequences - 1);
}

static void close_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    s->engine->session_pages -= count_pages(s);
    for (int32_t i = 0; i < s->sequences; i++) clear_sequence(s, &s->seq[i]);
}

void proa_decoder_session_close(proa_decoder_session *session)
{
    if (!session) return;
    session_call call = {.session = session};
    (void)run_call(&call, close_job);
    free(session->memory);
    free(session->seq);
    free(session->spare);
    free(session->used);
    free(session);
}

int64_t proa_decoder_session_length(const proa_decoder_session *session, int32_t sequence)
{
    return check_sequence(session, sequence, NULL) == PROA_OK ? session->seq[sequence].length : -1;
}

static void reorder_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    s->engine->session_pages -= count_pages(s);
    for (int32_t i = 0; i < call->count; i++) share_sequence(s, &s->spare[i], &s->seq[call->parents[i]]);
    for (int32_t i = 0; i < call->count; i++) {
        clear_sequence(s, &s->seq[i]);
        session_sequence swap = s->seq[i];
        s->seq[i] = s->spare[i];
        s->spare[i] = swap;
    }
    s->engine->session_pages += count_pages(s);
}

proa_status proa_decoder_session_reorder(proa_decoder_session *session, const int32_t *parents, int32_t count,
                                         proa_err *err)
{
    session_call call = {.session = session, .parents = parents, .count = count, .err = err};
    if (count < 0 || count > session->sequences)
        return PROA_FAIL(err, INVALID, "session: %d parents, must be 0 to %d", count, session->sequences);
    for (int32_t i = 0; i < count; i++) PROA_TRY(check_sequence(session, parents[i], err));
    return run_call(&call, reorder_job);
}

static void fork_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    s->engine->session_pages -= count_pages(s);
    clear_sequence(s, &s->seq[call->to]);
    share_sequence(s, &s->seq[call->to], &s->seq[call->from]);
    s->engine->session_pages += count_pages(s);
}

proa_status proa_decoder_session_fork(proa_decoder_session *session, int32_t from, int32_t to, proa_err *err)
{
    session_call call = {.session = session, .from = from, .to = to, .err = err};
    PROA_TRY(check_sequence(session, from, err));
    PROA_TRY(check_sequence(session, to, err));
    return from == to ? PROA_OK : run_call(&call, fork_job);
}

/* Pages after the tokens that stay are returned; a last page that is kept in part is overwritten from there on. */
static void truncate_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    session_sequence *seq = &s->seq[call->from], *spare = &s->spare[call->from];
    s->engine->session_pages -= count_pages(s);
    seq->length = call->tokens;
    if (call->tokens > 0) share_sequence(s, spare, seq);
    clear_sequence(s, seq);
    session_sequence swap = *seq;
    *seq = *spare;
    *spare = swap;
    s->engine->session_pages += count_pages(s);
}

proa_status proa_decoder_session_truncate(proa_decoder_session *session, int32_t sequence, int64_t tokens,
                                          proa_err *err)
{
    session_call call = {.session = session, .from = sequence, .tokens = tokens, .err = err};
    PROA_TRY(check_sequence(session, sequence, err));
    int64_t length = session->seq[sequence].length;
    if (tokens < 0 || tokens > length)
        return PROA_FAIL(err, INVALID, "session: %lld tokens are to be kept of sequence %d, which has %lld",
                         (long long)tokens, sequence, (long long)length);
    return run_call(&call, truncate_job);
}

/* ---- tensors of the caller ---- */

static proa_status check_memory(const proa_decoder_session *s, const char *what,
                                const proa_tensor_memory *memory, proa_err *err)
{
    int32_t gpu = s->engine->model->device->gpu;
    if (memory->kind == PROA_MEMORY_HOST) return PROA_OK;
    if (memory->kind != PROA_MEMORY_CUDA)
        return PROA_FAIL(err, INVALID, "session: %s: 'kind' of memory is %d, must be 0 (host) or 1 (CUDA)",
                         what, (int)memory->kind);
    if (gpu < 0)
        return PROA_FAIL(err, INVALID, "session: %s: memory of cuda:%d, the model runs on the CPU", what,
                         memory->gpu);
    if (memory->gpu != gpu)
        return PROA_FAIL(err, INVALID, "session: %s: memory of cuda:%d, the model runs on cuda:%d", what,
                         memory->gpu, gpu);
    if (s->engine->model->ranks > 1)
        return PROA_FAIL(err, UNSUPPORTED, "session: %s: memory of cuda:%d, a model of %d ranks takes the host's",
                         what, gpu, s->engine->model->ranks);
    return PROA_OK;
}

/* Whether the model can use the caller's memory itself. */
static bool is_in_place(const proa_engine *e, const proa_tensor_memory *memory)
{
    return (memory->kind == PROA_MEMORY_HOST) == e->model->device->host;
}

static void order_stream(proa_engine *e, const proa_tensor_memory *memory,
                         void (*order)(proa_device *device, void *stream))
{
    if (memory->kind == PROA_MEMORY_CUDA) order(e->model->device, memory->stream);
}

/* Makes a call's kernels wait for the streams of its tensors, or these for the kernels: device.h. */
static void order_streams(const session_call *call, void (*order)(proa_device *device, void *stream))
{
    proa_engine *e = call->session->engine;
    const proa_tensor_memory *last = NULL;
    for (int32_t i = 0; i < call->count; i++) {
        const proa_tensor_memory *memory = &call->inputs[i].memory;
        bool again = last && last->kind == memory->kind && last->stream == memory->stream;
        if (!again) order_stream(e, memory, order);
        last = memory;
    }
    if (call->output) order_stream(e, &call->output->memory, order);
}

/* ---- inputs ---- */

static bool has_device_ids(const proa_decoder_session_input *in)
{
    return in->ids && in->memory.kind == PROA_MEMORY_CUDA;
}

/* Finds the first of a call's ids on the GPU. The others are numbered from there by 32 bits. */
static proa_status find_device_ids(proa_decoder_session *s, const proa_decoder_session_input *inputs,
                                   int32_t count, proa_err *err)
{
    uintptr_t first = UINTPTR_MAX, end = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!has_device_ids(&inputs[i])) continue;
        uintptr_t begin = (uintptr_t)inputs[i].ids;
        if (begin % sizeof(int32_t) != 0)
            return PROA_FAIL(err, INVALID, "session: ids of sequence %d are not aligned to 4 bytes",
                             inputs[i].sequence);
        first = begin < first ? begin : first;
        end = begin > end ? begin : end;
    }
    s->device_ids = end ? (const int32_t *)first : NULL;
    if (end && (end - first) / sizeof(int32_t) > INT32_MAX - PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "session: ids on the GPU are not in one array");
    return PROA_OK;
}

static proa_status check_session_input(const proa_decoder_session *s, const proa_decoder_session_input *in,
                                       proa_err *err)
{
    int64_t vocab = s->engine->model->config.vocab;
    PROA_TRY(check_sequence(s, in->sequence, err));
    if (!in->ids == !in->embeddings)
        return PROA_FAIL(err, INVALID, "session: sequence %d needs either ids or embeddings", in->sequence);
    if (in->embeddings && s->engine->model->config.layer_input)
        return PROA_FAIL(err, UNSUPPORTED, "session: embeddings of a %s, whose layers have inputs of their own",
                         s->engine->model->arch->name);
    if (in->count < 1 || in->count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "session: %lld tokens for sequence %d, at least 1 is needed",
                         (long long)in->count, in->sequence);
    PROA_TRY(check_memory(s, in->ids ? "ids" : "embeddings", &in->memory, err));
    for (int64_t i = 0; in->ids && in->memory.kind == PROA_MEMORY_HOST && i < in->count; i++)
        if (in->ids[i] < 0 || in->ids[i] >= vocab)
            return PROA_FAIL(err, INVALID,
                             "session: token id %d at position %lld is outside of the vocabulary (0 to %lld)",
                             in->ids[i], (long long)i, (long long)vocab - 1);
    return PROA_OK;
}

static proa_status check_step_input(const proa_decoder_session *s, const proa_decoder_session_input *in,
                                    proa_err *err)
{
    PROA_TRY(check_session_input(s, in, err));
    const session_sequence *seq = &s->seq[in->sequence];
    if (in->count > s->tokens_max - seq->length)
        return PROA_FAIL(err, LIMIT,
                         "session: sequence %d has %lld tokens and would get %lld, at most %lld are taken",
                         in->sequence, (long long)seq->length, (long long)in->count, (long long)s->tokens_max);
    if (s->engine->model->arch->kind == PROA_KIND_ENCODER_DECODER && !seq->input_count)
        return PROA_FAIL(err, INVALID, "session: sequence %d has no encoder memory: encode its input first",
                         in->sequence);
    return PROA_OK;
}

static proa_status check_step(proa_decoder_session *s, const proa_decoder_session_input *inputs,
                              int32_t count, proa_err *err)
{
    if (count < 1 || count > s->sequences)
        return PROA_FAIL(err, INVALID, "session: %d inputs, must be 1 to %d", count, s->sequences);
    memset(s->used, 0, (size_t)s->sequences * sizeof *s->used);
    for (int32_t i = 0; i < count; i++) {
        PROA_TRY(check_step_input(s, &inputs[i], err));
        if (s->used[inputs[i].sequence])
            return PROA_FAIL(err, INVALID, "session: sequence %d has two inputs", inputs[i].sequence);
        s->used[inputs[i].sequence] = true;
    }
    return find_device_ids(s, inputs, count, err);
}

/* ---- a step ---- */

/* Pages that the tokens of a sequence can take: new ones, and a copy of a last page that others refer to. */
static int64_t pages_for_input(const session_sequence *seq, int64_t count)
{
    return proa_kv_pages_for(seq->length + count) - seq->self.count + (seq->length % PROA_PAGE_TOKENS != 0);
}

static proa_status take_step_pages(proa_decoder_session *s, const proa_decoder_session_input *inputs,
                                   int32_t count, proa_err *err)
{
    int64_t pages = 0, before = count_pages(s);
    for (int32_t i = 0; i < count; i++)
        pages += pages_for_input(&s->seq[inputs[i].sequence], inputs[i].count);
    PROA_TRY(check_room(s, pages, err));
    for (int32_t i = 0; i < count; i++) {
        session_sequence *seq = &s->seq[inputs[i].sequence];
        proa_request_pages_take(s->engine, &seq->self, seq->length, seq->length + inputs[i].count);
    }
    s->engine->session_pages += count_pages(s) - before;
    return PROA_OK;
}

static void add_session_span(proa_decoder_session *s, const session_sequence *seq, int64_t rows, int64_t context)
{
    proa_step_arrays *a = &s->engine->step;
    int32_t self = (int32_t)(seq->self.page - s->memory), cross = (int32_t)(seq->cross.page - s->memory);
    a->self_spans[a->spans] = (proa_span){(int32_t)a->rows, (int32_t)rows, (int32_t)context, self, 0, 0, 0};
    a->cross_spans[a->spans] = (proa_span){
        (int32_t)a->rows, (int32_t)rows, (int32_t)seq->input_count, cross, 0, 0, 0};
    a->spans++;
}

/* The next row of the pass: token i of an input. */
static void add_session_row(proa_decoder_session *s, const proa_decoder_session_input *in, int64_t i,
                            int64_t position, int64_t length)
{
    proa_engine *e = s->engine;
    int64_t row = e->step.rows;
    bool on_device = has_device_ids(in);
    proa_batch_add_row(e, in->ids && !on_device ? in->ids[i] : 0, position, length);
    if (!on_device) return;
    e->step.sampled_at[row] = (int32_t)(in->ids + i - s->device_ids);
    e->step.any_sampled_at = true;
}

/* Embeddings [first, first + rows) of an input. */
static void add_session_embeddings(proa_engine *e, const proa_decoder_session_input *in, int64_t first,
                                   int64_t rows, bool of_table)
{
    proa_step_arrays *a = &e->step;
    int64_t width = of_table ? proa_prompt_table_width(e->model, false) : e->model->config.hidden;
    a->inputs_embeds[a->inputs_embeds_count++] = (proa_inputs_embeds){.row = a->rows,
                                                                      .count = rows,
                                                                      .values = in->embeddings + first * width,
                                                                      .on_device = is_in_place(e, &in->memory),
                                                                      .of_table = of_table};
}

/* Tokens [first, first + rows) of an input. */
static void add_session_rows(proa_decoder_session *s, const proa_decoder_session_input *in, int64_t first,
                             int64_t rows)
{
    proa_engine *e = s->engine;
    const session_sequence *seq = &s->seq[in->sequence];
    int64_t end = seq->length + in->count;
    add_session_span(s, seq, rows, seq->length + first + rows);
    if (in->embeddings) add_session_embeddings(e, in, first, rows, true);
    for (int64_t i = first; i < first + rows; i++) {
        int64_t position = seq->length + i;
        add_session_row(s, in, i, position,
                        proa_rope_length(&e->model->config.rope, position, end, s->tokens_max));
    }
}

static proa_batch session_batch(const proa_decoder_session *s)
{
    proa_batch batch = proa_batch_of_step(s->engine);
    batch.self.pages = batch.cross.pages = s->memory;
    batch.device_ids = s->device_ids;
    return batch;
}

static void count_pass(proa_engine *e)
{
    e->now.steps++;
    e->now.rows += (uint64_t)e->step.rows;
}

/* The head's output for some rows, and what its last product reads, by way of the host. */
static void fetch_rows(proa_model *m, const int32_t *rows, int64_t count, float *to_logits, float *to_hidden)
{
    int64_t vocab = m->plan.width[PROA_REG_OUT], hidden = proa_model_hidden_width(m);
    proa_view logits = proa_model_head(m, rows, count);
    for (int64_t i = 0; i < count; i++) {
        const float *row = proa_view_f32(logits) + i * logits.stride[0];
        if (to_logits) memcpy(to_logits + i * vocab, row, (size_t)vocab * sizeof *row);
        if (to_hidden) memcpy(to_hidden + i * hidden, proa_model_hidden(m, i), (size_t)hidden * sizeof *row);
    }
}

/* Logits and hidden states of rows of the last pass, as rows [at, at + count) of the output. */
static void fetch_output(proa_engine *e, const proa_decoder_session_output *out, int64_t at,
                         const int32_t *rows, int64_t count)
{
    int64_t vocab = e->model->plan.width[PROA_REG_OUT], hidden = proa_model_hidden_width(e->model);
    e->model->hidden_wanted = out->hidden != NULL;
    for (int64_t first = 0, n; first < count; first += n) {
        n = proa_min64(count - first, PROA_HEAD_ROWS);
        float *to_logits = out->logits ? out->logits + (at + first) * vocab : NULL;
        float *to_hidden = out->hidden ? out->hidden + (at + first) * hidden : NULL;
        if (is_in_place(e, &out->memory)) proa_model_head_to(e->model, rows + first, n, to_logits, to_hidden);
        else fetch_rows(e->model, rows + first, n, to_logits, to_hidden);
    }
    e->model->hidden_wanted = false;
}

/* Runs the rows that were collected; *done rows of the output are there already. */
static void run_session_pass(proa_decoder_session *s, const proa_decoder_session_output *out, int64_t wanted,
                             int64_t *done)
{
    proa_engine *e = s->engine;
    if (!e->step.rows) return;
    proa_batch batch = session_batch(s);
    proa_model_decode(e->model, e->kv, &batch);
    count_pass(e);
    if (wanted) fetch_output(e, out, *done, e->step.logits_rows, wanted);
    *done += wanted;
    proa_batch_clear(e);
}

/* All inputs, in as few passes as the token budget allows. */
static void run_step(proa_decoder_session *s, const proa_decoder_session_input *inputs, int32_t count,
                     const proa_decoder_session_output *out)
{
    proa_engine *e = s->engine;
    int64_t wanted = 0, done = 0;
    proa_batch_clear(e);
    for (int32_t i = 0; i < count; i++)
        for (int64_t first = 0, rows; first < inputs[i].count; first += rows) {
            if (e->step.rows == e->sizes.step_tokens) run_session_pass(s, out, wanted, &done), wanted = 0;
            rows = proa_min64(inputs[i].count - first, e->sizes.step_tokens - e->step.rows);
            int64_t begin = e->step.rows, last = first + rows == inputs[i].count;
            add_session_rows(s, &inputs[i], first, rows);
            for (int64_t row = out->all_rows ? begin : begin + rows - last; row < begin + rows; row++)
                e->step.logits_rows[wanted++] = (int32_t)row;
        }
    run_session_pass(s, out, wanted, &done);
    for (int32_t i = 0; i < count; i++) s->seq[inputs[i].sequence].length += inputs[i].count;
}

static proa_status check_restarts(const proa_decoder_session *s, proa_err *err)
{
    if (s->restarts == atomic_load(&s->engine->ranks.restarts)) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "the session has lost its keys and values: a rank has failed");
}

static void step_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    call->status = check_restarts(s, call->err);
    if (call->status != PROA_OK) return;
    call->status = take_step_pages(s, call->inputs, call->count, call->err);
    if (call->status != PROA_OK) return;
    order_streams(call, s->engine->model->device->wait_for_stream);
    run_step(s, call->inputs, call->count, call->output);
    order_streams(call, s->engine->model->device->make_stream_wait);
    call->status = proa_rank_set_failed(&s->engine->ranks, call->err);
}

proa_status proa_decoder_session_step(proa_decoder_session *session, const proa_decoder_session_input *inputs,
                                      int32_t count, const proa_decoder_session_output *output, proa_err *err)
{
    session_call call = {.session = session, .inputs = inputs, .count = count, .output = output, .err = err};
    PROA_TRY(check_step(session, inputs, count, err));
    PROA_TRY(check_memory(session, "outputs", &output->memory, err));
    return run_call(&call, step_job);
}

/* ---- encoder memory ---- */

static proa_status check_encoder_input(proa_decoder_session *s, const proa_decoder_session_input *in,
                                       proa_err *err)
{
    const proa_engine *e = s->engine;
    int64_t most = proa_min64(proa_config_input_context(&e->model->config), e->model->plan.rows_max);
    if (e->model->arch->kind != PROA_KIND_ENCODER_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder", e->model->arch->name);
    PROA_TRY(check_session_input(s, in, err));
    if (in->count > most)
        return PROA_FAIL(err, LIMIT, "the input has %lld tokens, the model takes at most %lld",
                         (long long)in->count, (long long)most);
    return find_device_ids(s, in, 1, err);
}

static proa_status take_input_pages(proa_decoder_session *s, session_sequence *seq, int64_t count, proa_err *err)
{
    int64_t before = count_pages(s);
    clear_sequence(s, seq);
    s->engine->session_pages += count_pages(s) - before;
    PROA_TRY(check_room(s, proa_kv_pages_for(count), err));
    proa_request_pages_take(s->engine, &seq->cross, 0, count);
    s->engine->session_pages += seq->cross.count;
    seq->input_count = count;
    return PROA_OK;
}

/* The pass writes the encoder memory of every decoder layer into the sequence's pages. */
static void run_encoder(proa_decoder_session *s, const proa_decoder_session_input *in, bool encoded)
{
    proa_engine *e = s->engine;
    session_sequence *seq = &s->seq[in->sequence];
    int32_t table = (int32_t)(seq->cross.page - s->memory), n = (int32_t)in->count;
    proa_batch_clear(e);
    e->step.encoded = encoded;
    e->step.self_spans[0] = (proa_span){
        0, n, n, table, 0, 0, (int32_t)proa_min64(n, e->model->config.globals)};
    e->step.cross_spans[0] = (proa_span){0, n, 0, table, 0, 0, 0};
    e->step.spans = 1;
    if (in->embeddings) add_session_embeddings(e, in, 0, in->count, false);
    for (int64_t i = 0; i < in->count; i++) add_session_row(s, in, i, i, in->count);
    proa_batch batch = session_batch(s);
    e->model->encoder_ticket = -1;
    proa_model_encode(e->model, e->kv, &batch);
    count_pass(e);
    proa_batch_clear(e);
}

static void fetch_encoded(proa_engine *e, const proa_decoder_session_output *out, int64_t count)
{
    if (is_in_place(e, &out->memory)) proa_model_encoded_to(e->model, out->hidden, 0, count);
    else proa_model_encoded(e->model, out->hidden, 0, count);
}

static void encode_job(void *arg)
{
    session_call *call = arg;
    proa_decoder_session *s = call->session;
    proa_engine *e = s->engine;
    const proa_decoder_session_input *in = call->inputs;
    call->status = check_restarts(s, call->err);
    if (call->status != PROA_OK) return;
    call->status = take_input_pages(s, &s->seq[in->sequence], in->count, call->err);
    if (call->status != PROA_OK) return;
    order_streams(call, e->model->device->wait_for_stream);
    run_encoder(s, in, call->encoded);
    if (call->output && call->output->hidden) fetch_encoded(e, call->output, in->count);
    order_streams(call, e->model->device->make_stream_wait);
    call->status = proa_rank_set_failed(&e->ranks, call->err);
}

proa_status proa_decoder_session_encode(proa_decoder_session *session, const proa_decoder_session_input *input,
                                        const proa_decoder_session_output *output, proa_err *err)
{
    session_call call = {.session = session, .inputs = input, .count = 1, .output = output, .err = err};
    PROA_TRY(check_encoder_input(session, input, err));
    if (output) PROA_TRY(check_memory(session, "outputs", &output->memory, err));
    return run_call(&call, encode_job);
}

proa_status proa_decoder_session_set_encoder_outputs(proa_decoder_session *session,
                                                     const proa_decoder_session_input *input, proa_err *err)
{
    session_call call = {.session = session, .inputs = input, .count = 1, .encoded = true, .err = err};
    PROA_TRY(check_encoder_input(session, input, err));
    if (!input->embeddings)
        return PROA_FAIL(err, INVALID, "session: sequence %d needs encoder outputs, not ids", input->sequence);
    return run_call(&call, encode_job);
}
