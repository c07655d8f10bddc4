/* SPDX-License-Identifier: Apache-2.0
 * write.c - answers: whole, or as server-sent events. */
#include "api/openai/openai.h"

#include "base/limits.h"
#include "base/log.h"
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

/* Ends the stream with an error, behind the chunks that are queued. */
static void give_up_reader(proa_oai *job)
{
    PROA_LOG(WARNING, "the stream of '%.*s' to %s is ended: its client leaves more than %lld MiB unread",
             (int)job->name.len, job->name.ptr, proa_conn_peer(job->x->conn),
             (long long)(PROA_OPENAI_QUEUED_MAX / PROA_MIB));
    job->failed = true;
    job->error = (proa_oai_error){
        .status = 500, .type = "server_error", .text = "The client does not read its answers."};
    proa_buf_str(&job->out, proa_str_c("data: "));
    proa_oai_error_json(&job->out, &job->error);
    proa_buf_str(&job->out, proa_str_c("\n\n"));
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

/* A piece of chat. what: NULL content, "" nothing, else the role. */
static void chat_chunk(proa_oai *job, int32_t index, const char *role, bool content, const char *finish)
{
    const proa_oai_choice *c = &job->choices[index];
    begin_chunk(job);
    put_index(&job->out, index);
    proa_buf_str(&job->out, proa_str_c(",\"delta\":{"));
    if (role) proa_buf_printf(&job->out, "\"role\":\"%s\",\"content\":\"\",\"refusal\":null", role);
    if (content) {
        proa_buf_str(&job->out, proa_str_c("\"content\":"));
        proa_buf_json_str(&job->out, proa_buf_view(&c->text));
    }
    proa_buf_str(&job->out, proa_str_c("},\"logprobs\":"));
    if (content) proa_oai_put_logprobs(job, &job->out, c);
    else proa_buf_str(&job->out, proa_str_c("null"));
    put_finish(&job->out, finish);
    end_chunk(job);
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

void proa_oai_write_chunk(proa_oai *job, int32_t index)
{
    proa_oai_choice *c = &job->choices[index];
    bool news = c->text.len > 0 || c->tokens.len > 0, ends = c->finish && !c->end_sent;
    if (c->end_sent || !proa_oai_stream_open(job)) return;
    if (job->kind == PROA_OAI_CHAT) {
        if (!c->begun) chat_chunk(job, index, "assistant", false, NULL);
        if (news) chat_chunk(job, index, NULL, true, NULL);
        if (ends) chat_chunk(job, index, NULL, false, c->finish);
    } else if (news || ends) completion_chunk(job, index);
    c->begun = true;
    c->end_sent = ends;
    proa_buf_clear(&c->text);
    proa_buf_clear(&c->tokens);
    proa_buf_clear(&c->values);
    proa_buf_clear(&c->tops);
    proa_buf_clear(&c->offsets);
    proa_oai_stream_send(job);
}

static void put_usage(const proa_oai *job, proa_buf *out)
{
    int64_t prompt = 0, completion = 0;
    for (int32_t i = 0; i < job->prompts_count; i++) prompt += job->prompts[i].tokens;
    for (int32_t i = 0; i < job->choices_count; i++) completion += job->choices[i].count;
    proa_buf_printf(out, "\"usage\":{\"prompt_tokens\":%lld,", (long long)prompt);
    if (job->kind != PROA_OAI_EMBEDDING)
        proa_buf_printf(out, "\"completion_tokens\":%lld,", (long long)completion);
    proa_buf_printf(out, "\"total_tokens\":%lld}", (long long)(prompt + completion));
}

/* A sequence that ended without a reason has ended by a stop. */
static void end_all(proa_oai *job)
{
    for (int32_t i = 0; i < job->choices_count; i++)
        if (!job->choices[i].finish) job->choices[i].finish = "stop";
}

static void end_stream(proa_oai *job)
{
    for (int32_t i = 0; i < job->choices_count && job->x; i++) proa_oai_write_chunk(job, i);
    if (!proa_oai_stream_open(job)) return;
    if (job->usage) {
        begin_chunk(job);
        proa_buf_str(&job->out, proa_str_c("],"));
        put_usage(job, &job->out);
        proa_buf_str(&job->out, proa_str_c("}\n\n"));
    }
    proa_buf_str(&job->out, proa_str_c("data: [DONE]\n\n"));
    send_out(job); /* whatever waits: there is no more to come */
    if (job->x) proa_http_end(job->x);
    job->x = NULL;
}

/* ---- whole answers ---- */

static void put_choice(const proa_oai *job, proa_buf *out, int32_t index)
{
    const proa_oai_choice *c = &job->choices[index];
    bool chat = job->kind == PROA_OAI_CHAT;
    proa_buf_printf(out, "%s{\"index\":%d,", index > 0 ? "," : "", (int)index);
    proa_buf_str(out, proa_str_c(chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":"));
    proa_buf_json_str(out, proa_buf_view(&c->text));
    proa_buf_str(out, proa_str_c(chat ? ",\"refusal\":null},\"logprobs\":" : ",\"logprobs\":"));
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

static void put_embeddings(proa_oai *job, proa_buf *out)
{
    proa_buf_str(out, proa_str_c("{\"object\":\"list\",\"data\":["));
    for (int32_t i = 0; i < job->prompts_count; i++) put_vector(job, out, i);
    proa_buf_str(out, proa_str_c("],\"model\":"));
    proa_buf_json_str(out, job->name);
    proa_buf_char(out, ',');
}

/* Every prompt has a vector, of the requested size. */
static bool vectors_fit(proa_oai *job)
{
    int64_t wanted = job->params.dimensions;
    for (int32_t i = 0; i < job->prompts_count; i++) {
        const proa_oai_prompt *p = &job->prompts[i];
        if (p->vector && (!wanted || p->width == wanted)) continue;
        if (p->vector)
            return proa_oai_bad(&job->error, "dimensions",
                                "Invalid 'dimensions': this model's vectors have %lld.", (long long)p->width);
        job->error = (proa_oai_error){.status = 500, .type = "server_error", .text = "The model gave no vector."};
        return false;
    }
    return true;
}

static void write_whole(proa_oai *job)
{
    if (job->kind == PROA_OAI_EMBEDDING && !vectors_fit(job)) {
        proa_oai_give_up(job);
        return;
    }
    proa_buf body;
    proa_buf_init(&body, (size_t)PROA_OPENAI_ANSWER_MAX);
    if (job->kind == PROA_OAI_EMBEDDING) put_embeddings(job, &body);
    else {
        proa_buf_str(&body, job->head);
        for (int32_t i = 0; i < job->choices_count; i++) put_choice(job, &body, i);
        proa_buf_str(&body, proa_str_c("],"));
    }
    put_usage(job, &body);
    proa_buf_char(&body, '}');
    proa_http_json(job->x, 200, &body);
    job->x = NULL;
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
        bytes += job->choices[i].text.len + job->choices[i].tops.len + job->choices[i].tokens.len;
    for (int32_t i = 0; i < job->prompts_count; i++) bytes += (size_t)job->prompts[i].width * sizeof(float);
    return bytes;
}

void proa_oai_write_end(proa_oai *job)
{
    end_all(job);
    if (job->stream) {
        end_stream(job);
        proa_oai_release(job);
        return;
    }
    job->live++; /* until a worker has written it */
    if (long_bytes(job) >= PROA_WORKER_BYTES_MIN && proa_http_offload(job->x, write_on_worker, job)) return;
    job->live--;
    write_whole(job);
    proa_oai_release(job);
}
