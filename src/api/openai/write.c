/* SPDX-License-Identifier: Apache-2.0
 * write.c - answers: whole, or as server-sent events. */
#include "api/openai/openai.h"

#include "base/limits.h"
#include "base/log.h"
#include <math.h>
#include <string.h>

/* ---- streams ---- */

bool proa_oai_stream_open(proa_oai *job)
{
    static const char headers[] =
        "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
    if (!job->x) return false;
    if (!job->sending) proa_http_begin(job->x, 200, proa_str_c(headers));
    job->sending = true;
    return true;
}

static void send_out(proa_oai *job)
{
    if (job->x) proa_http_send(job->x, proa_buf_view(&job->out));
    proa_buf_clear(&job->out);
}

/* Ends the stream with an error, after the chunks that are queued. */
static void give_up_reader(proa_oai *job)
{
    PROA_LOG(WARNING, "the stream of '%.*s' to %s is ended: its client leaves more than %lld MiB unread",
             (int)job->name.len, job->name.ptr, proa_conn_peer(job->x->conn),
             (long long)(PROA_OPENAI_QUEUED_MAX / PROA_MIB));
    job->failed = true;
    job->error = (proa_oai_error){
        .status = 500, .type = "server_error", .text = "The client does not read its answers."};
    job->form->put_failure(job);
    send_out(job);
    proa_http_exchange *x = job->x;
    job->x = NULL;
    if (x) proa_http_on_disconnect(x, NULL);
    if (x) proa_http_end(x);
    proa_oai_cancel(job);
}

/* A client that does not read loses its stream at a limit. */
void proa_oai_stream_send(proa_oai *job)
{
    if (!job->x || job->out.len == 0) return;
    send_out(job);
    if (job->x && proa_http_queued(job->x) > (size_t)PROA_OPENAI_QUEUED_MAX) give_up_reader(job);
}

void proa_oai_give_up(proa_oai *job)
{
    proa_http_exchange *x = job->x;
    job->failed = true;
    if (x && job->sending) {
        job->form->put_failure(job);
        proa_oai_stream_send(job);
        if (job->x) proa_http_end(x);
    } else if (x) proa_oai_fail(x, job->form, &job->error);
    job->x = NULL;
    proa_oai_cancel(job);
}

static void begin_chunk(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c("data: "));
    proa_buf_str(&job->out, job->head);
}

static void end_chunk(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c(job->usage ? "],\"usage\":null}\n\n" : "]}\n\n"));
}

/* Most choices have one digit, and a chunk is written for each token: no format is parsed for it. */
static void put_index(proa_buf *out, int32_t index)
{
    proa_buf_str(out, proa_str_c("{\"index\":"));
    if (index < 10) proa_buf_char(out, (char)('0' + index));
    else proa_buf_printf(out, "%d", (int)index);
}

static void put_finish(proa_buf *out, const char *finish)
{
    if (finish) proa_buf_printf(out, ",\"finish_reason\":\"%s\"}", finish);
    else proa_buf_str(out, proa_str_c(",\"finish_reason\":null}"));
}

/* What a piece of chat adds to its message. */
typedef enum chat_piece {
    CHAT_ROLE,
    CHAT_REASONING,
    CHAT_CONTENT,
    CHAT_CALLS,
    CHAT_TOKENS,
    CHAT_END
} chat_piece;

static void put_delta(proa_buf *out, const proa_oai_choice *c, chat_piece piece)
{
    switch (piece) {
    case CHAT_ROLE:
        proa_buf_str(out, proa_str_c("\"role\":\"assistant\",\"content\":\"\",\"refusal\":null"));
        break;
    case CHAT_REASONING:
        proa_buf_str(out, proa_str_c("\"reasoning_content\":"));
        proa_buf_json_str(out, proa_buf_view(&c->reasoning));
        break;
    case CHAT_CONTENT:
        proa_buf_str(out, proa_str_c("\"content\":"));
        proa_buf_json_str(out, proa_buf_view(&c->text));
        break;
    case CHAT_CALLS:
        proa_buf_str(out, proa_str_c("\"tool_calls\":["));
        proa_buf_str(out, proa_buf_view(&c->calls));
        proa_buf_char(out, ']');
        break;
    case CHAT_TOKENS:
    case CHAT_END: break;
    }
}

/* A piece of chat; log-probabilities go with one of the pieces that have some. */
static void chat_chunk(proa_oai *job, int32_t index, chat_piece piece, bool logprobs)
{
    const proa_oai_choice *c = &job->choices[index];
    begin_chunk(job);
    put_index(&job->out, index);
    proa_buf_str(&job->out, proa_str_c(",\"delta\":{"));
    put_delta(&job->out, c, piece);
    proa_buf_str(&job->out, proa_str_c("},\"logprobs\":"));
    if (logprobs) proa_oai_put_logprobs(job, &job->out, c);
    else proa_buf_str(&job->out, proa_str_c("null"));
    put_finish(&job->out, piece == CHAT_END ? c->finish : NULL);
    end_chunk(job);
}

/* The news of a choice of a chat, each kind in a chunk of its own. */
static void chat_chunks(proa_oai *job, int32_t index, bool ends)
{
    const proa_oai_choice *c = &job->choices[index];
    const bool news[] = {[CHAT_REASONING] = c->reasoning.len > 0,
                         [CHAT_CONTENT] = c->text.len > 0 || (!c->split && c->tokens.len > 0),
                         [CHAT_CALLS] = c->calls.len > 0,
                         [CHAT_TOKENS] = c->tokens.len > 0};
    bool written = false;
    if (!c->begun) chat_chunk(job, index, CHAT_ROLE, false);
    for (chat_piece piece = CHAT_REASONING; piece <= CHAT_TOKENS; piece++) {
        if (!news[piece] || (piece == CHAT_TOKENS && written)) continue;
        chat_chunk(job, index, piece, !written);
        written = true;
    }
    if (ends) chat_chunk(job, index, CHAT_END, false);
}

static void completion_chunk(proa_oai *job, int32_t index)
{
    const proa_oai_choice *c = &job->choices[index];
    begin_chunk(job);
    put_index(&job->out, index);
    proa_buf_str(&job->out, proa_str_c(",\"text\":"));
    proa_buf_json_str(&job->out, proa_buf_view(&c->text));
    proa_buf_str(&job->out, proa_str_c(",\"logprobs\":"));
    proa_oai_put_logprobs(job, &job->out, c);
    put_finish(&job->out, c->finish);
    end_chunk(job);
}

void proa_oai_clear_choice(proa_oai_choice *c)
{
    proa_buf *const bufs[] = {&c->text,   &c->reasoning, &c->calls,  &c->tokens,
                              &c->values, &c->tops,      &c->offsets};
    for (size_t i = 0; i < PROA_COUNT(bufs); i++) proa_buf_clear(bufs[i]);
}

/* Ends a chunk of a choice: what it had was sent. */
static void chunk_sent(proa_oai *job, proa_oai_choice *c)
{
    c->begun = true;
    c->end_sent = c->finish != NULL;
    proa_oai_clear_choice(c);
    proa_oai_stream_send(job);
}

void proa_oai_chat_chunk(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    if (c->end_sent || !proa_oai_stream_open(job)) return;
    chat_chunks(job, index, c->finish != NULL);
    chunk_sent(job, c);
}

void proa_oai_completion_chunk(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    if (c->end_sent || !proa_oai_stream_open(job)) return;
    if (c->text.len > 0 || c->tokens.len > 0 || c->finish) completion_chunk(job, index);
    chunk_sent(job, c);
}

int64_t proa_oai_prompt_tokens(const proa_oai *job)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < job->prompts_count; i++) sum += job->prompts[i].tokens;
    return sum;
}

int64_t proa_oai_cached_tokens(const proa_oai *job)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < job->prompts_count; i++) sum += job->prompts[i].cached;
    return sum;
}

/* Draft tokens of any proposer: the only such counts of OpenAI's API are those of predicted outputs. */
static void put_drafts(const proa_oai *job, proa_buf *out)
{
    int64_t drafted = 0, accepted = 0;
    for (int32_t i = 0; i < job->prompts_count; i++)
        drafted += job->prompts[i].drafted, accepted += job->prompts[i].accepted;
    if (!drafted) return;
    proa_buf_printf(out,
                    "\"completion_tokens_details\":{\"accepted_prediction_tokens\":%lld,"
                    "\"rejected_prediction_tokens\":%lld},",
                    (long long)accepted, (long long)(drafted - accepted));
}

static void put_usage(const proa_oai *job, proa_buf *out)
{
    int64_t prompt = proa_oai_prompt_tokens(job), completion = 0, cached = proa_oai_cached_tokens(job);
    for (int32_t i = 0; i < job->choices_count; i++) completion += job->choices[i].count;
    proa_buf_printf(out, "\"usage\":{\"prompt_tokens\":%lld,", (long long)prompt);
    if (job->form->choices)
        proa_buf_printf(out, "\"completion_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},",
                        (long long)completion, (long long)cached);
    if (job->form->choices) put_drafts(job, out);
    proa_buf_printf(out, "\"total_tokens\":%lld}", (long long)(prompt + completion));
}

/* A sequence that ended without a reason has ended by a stop. */
static void end_all(proa_oai *job)
{
    for (int32_t i = 0; i < job->choices_count; i++)
        if (!job->choices[i].finish) job->choices[i].finish = "stop";
}

void proa_oai_stream_end(proa_oai *job)
{
    send_out(job); /* whatever waits: there is no more to come */
    if (job->x) proa_http_end(job->x);
    job->x = NULL;
}

void proa_oai_end_stream(proa_oai *job)
{
    if (!proa_oai_stream_open(job)) return;
    if (job->usage) {
        begin_chunk(job);
        proa_buf_str(&job->out, proa_str_c("],"));
        put_usage(job, &job->out);
        proa_buf_str(&job->out, proa_str_c("}\n\n"));
    }
    proa_buf_str(&job->out, proa_str_c("data: [DONE]\n\n"));
    proa_oai_stream_end(job);
}

void proa_oai_put_failure(proa_oai *job)
{
    proa_buf_str(&job->out, proa_str_c("data: "));
    job->form->put_error(&job->out, &job->error);
    proa_buf_str(&job->out, proa_str_c("\n\n"));
}

/* ---- whole answers ---- */

/* A message without content has null if it has something else. */
static void put_message(proa_buf *out, const proa_oai_choice *c)
{
    bool other = c->reasoning.len > 0 || c->calls.len > 0;
    proa_buf_str(out, proa_str_c("\"message\":{\"role\":\"assistant\",\"content\":"));
    if (c->text.len == 0 && other) proa_buf_str(out, proa_str_c("null"));
    else proa_buf_json_str(out, proa_buf_view(&c->text));
    proa_buf_str(out, proa_str_c(",\"refusal\":null"));
    if (c->reasoning.len > 0) {
        proa_buf_str(out, proa_str_c(",\"reasoning_content\":"));
        proa_buf_json_str(out, proa_buf_view(&c->reasoning));
    }
    if (c->calls.len > 0) {
        proa_buf_str(out, proa_str_c(",\"tool_calls\":["));
        proa_buf_str(out, proa_buf_view(&c->calls));
        proa_buf_char(out, ']');
    }
    proa_buf_char(out, '}');
}

static void put_choice(const proa_oai *job, proa_buf *out, int32_t index)
{
    const proa_oai_choice *c = &job->choices[index];
    bool chat = job->form->chat;
    proa_buf_printf(out, "%s{\"index\":%d,", index > 0 ? "," : "", (int)index);
    if (chat) put_message(out, c);
    else {
        proa_buf_str(out, proa_str_c("\"text\":"));
        proa_buf_json_str(out, proa_buf_view(&c->text));
    }
    proa_buf_str(out, proa_str_c(",\"logprobs\":"));
    proa_oai_put_logprobs(job, out, c);
    put_finish(out, c->finish);
}

static void put_vector(const proa_oai *job, proa_buf *out, int32_t index)
{
    const proa_oai_prompt *p = &job->prompts[index];
    proa_buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", index > 0 ? "," : "",
                    (int)index);
    proa_buf_char(out, job->params.base64 ? '"' : '[');
    if (job->params.base64)
        proa_buf_base64(out, (proa_str){(const char *)p->vector, (size_t)p->width * sizeof(float)});
    for (int64_t i = 0; !job->params.base64 && i < p->width; i++) {
        if (i > 0) proa_buf_char(out, ',');
        proa_oai_put_number(out, (double)p->vector[i]);
    }
    proa_buf_str(out, proa_str_c(job->params.base64 ? "\"}" : "]}"));
}

/* Fewer numbers, as models that are trained for it allow: the first ones, with length 1 again. */
static void shorten_vector(proa_oai_prompt *p, int64_t dimensions, bool normalize)
{
    double sum = 0;
    p->width = dimensions;
    for (int64_t i = 0; i < p->width; i++) sum += (double)p->vector[i] * (double)p->vector[i];
    for (int64_t i = 0; i < p->width && normalize && sum > 0; i++)
        p->vector[i] = (float)((double)p->vector[i] / sqrt(sum));
}

/* Every prompt has a vector, of the requested size. */
static bool fit_vectors(proa_oai *job)
{
    int64_t wanted = job->params.dimensions;
    for (int32_t i = 0; i < job->prompts_count; i++) {
        proa_oai_prompt *p = &job->prompts[i];
        if (!p->vector) {
            job->error = (proa_oai_error){
                .status = 500, .type = "server_error", .text = "The model gave no vector."};
            return false;
        }
        if (wanted > p->width)
            return proa_oai_bad(&job->error, "dimensions",
                                "Invalid 'dimensions': this model's vectors have %lld.", (long long)p->width);
        if (wanted && wanted < p->width) shorten_vector(p, wanted, !job->params.plain_vectors);
    }
    return true;
}

bool proa_oai_put_embeddings(proa_oai *job, proa_buf *out)
{
    if (!fit_vectors(job)) return false;
    proa_buf_str(out, proa_str_c("{\"object\":\"list\",\"data\":["));
    for (int32_t i = 0; i < job->prompts_count; i++) put_vector(job, out, i);
    proa_buf_str(out, proa_str_c("],\"model\":"));
    proa_buf_json_str(out, job->name);
    proa_buf_char(out, ',');
    put_usage(job, out);
    proa_buf_char(out, '}');
    return true;
}

bool proa_oai_put_completion(proa_oai *job, proa_buf *out)
{
    proa_buf_str(out, job->head);
    for (int32_t i = 0; i < job->choices_count; i++) put_choice(job, out, i);
    proa_buf_str(out, proa_str_c("],"));
    put_usage(job, out);
    proa_buf_char(out, '}');
    return true;
}

static void write_whole(proa_oai *job)
{
    proa_buf body;
    proa_buf_init(&body, (size_t)PROA_OPENAI_ANSWER_MAX);
    if (job->form->put_answer(job, &body)) {
        proa_http_json(job->x, 200, &body);
        job->x = NULL;
    } else proa_oai_give_up(job);
    proa_buf_release(&body);
}

static void write_on_worker(proa_http_exchange *x, void *arg)
{
    proa_oai *job = arg;
    PROA_UNUSED(x);
    write_whole(job);
    job->live--;
    proa_oai_release(job);
}

/* Bytes of the lists and vectors that become text. */
static size_t long_bytes(const proa_oai *job)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < job->choices_count; i++)
        bytes += job->choices[i].text.len + job->choices[i].reasoning.len + job->choices[i].calls.len +
                 job->choices[i].tops.len + job->choices[i].tokens.len;
    for (int32_t i = 0; i < job->items_count; i++)
        bytes += job->items[i].text.len + job->items[i].logprobs.len;
    for (int32_t i = 0; i < job->prompts_count; i++) bytes += (size_t)job->prompts[i].width * sizeof(float);
    return bytes;
}

void proa_oai_write_end(proa_oai *job)
{
    end_all(job);
    if (job->stream) {
        for (int32_t i = 0; i < job->choices_count && job->x; i++) job->form->write_chunk(job, i);
        if (job->x) job->form->end_stream(job);
        proa_oai_release(job);
        return;
    }
    job->live++; /* until a worker has written it */
    if (long_bytes(job) >= PROA_WORKER_BYTES_MIN && proa_http_offload(job->x, write_on_worker, job)) return;
    job->live--;
    write_whole(job);
    proa_oai_release(job);
}
