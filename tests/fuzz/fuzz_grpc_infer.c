/* SPDX-License-Identifier: Apache-2.0
 * ModelInfer and ModelStreamInfer through the real service: a client's HTTP/2 frames around one message, which is
 * either the input itself or made of it field by field. Each call must end with trailers or a reset. */
#include "api/grpc/pb_wire.h"
#include "fuzz.h"
#include "service.h"

enum { BY_FIELD = 1, STREAM = 2, WAIT_MS = 100, FRAME_MAX = 16384, OPS_MAX = 24 };

static const char *const models[] = {"tests/repository/simple",           "tests/repository/simple_string",
                                     "tests/repository/simple_sequence",  "tests/repository/identity_fp32",
                                     "tests/repository/identity_bytes",   "tests/repository/identity_bool",
                                     "tests/repository/identity_nobatch", "tests/repository/repeat_int32"};

/* ---- the message, field by field ---- */

typedef struct source { /* the input, used up from its front */
    const uint8_t *at, *end;
} source;

static unsigned next(source *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static proa_str next_bytes(source *s, size_t n)
{
    size_t have = (size_t)(s->end - s->at);
    proa_str bytes = {(const char *)s->at, n < have ? n : have};
    s->at += bytes.len;
    return bytes;
}

static proa_str next_word(source *s, const char *const *words, unsigned count)
{
    unsigned pick = next(s);
    return pick < count ? proa_str_c(words[pick]) : next_bytes(s, pick % 16);
}

static void put_varint(proa_buf *out, uint64_t value)
{
    char bytes[10];
    proa_buf_append(out, bytes, (size_t)(pb_put_varint(bytes, value) - bytes));
}

static void put_bytes(proa_buf *out, unsigned number, proa_str bytes)
{
    put_varint(out, number << 3 | PB_BYTES);
    put_varint(out, bytes.len);
    proa_buf_str(out, bytes);
}

static void put_nested(proa_buf *out, unsigned number, proa_buf *inner)
{
    put_bytes(out, number, proa_buf_view(inner));
    proa_buf_release(inner);
}

static uint64_t next_number(source *s)
{
    static const int64_t edges[] = {0, 1, 2, 16, -1, INT32_MAX, INT64_MAX, INT64_MIN, 4, 64};
    unsigned pick = next(s);
    return pick < PROA_COUNT(edges) ? (uint64_t)edges[pick] : pick;
}

static void put_param(source *s, proa_buf *out, unsigned number)
{
    static const char *const names[] = {"sequence_id",
                                        "sequence_start",
                                        "sequence_end",
                                        "priority",
                                        "timeout",
                                        "binary_data",
                                        "classification",
                                        "shared_memory_region",
                                        "shared_memory_offset",
                                        "shared_memory_byte_size",
                                        "triton_enable_empty_final_response",
                                        "triton_x"};
    proa_buf entry, value;
    proa_buf_init(&entry, 1 << 16);
    proa_buf_init(&value, 1 << 16);
    put_bytes(&entry, 1, next_word(s, names, PROA_COUNT(names)));
    unsigned kind = 1 + next(s) % 5;
    if (kind == 3) put_bytes(&value, 3, next_bytes(s, next(s) % 32));
    else if (kind == 4)
        put_varint(&value, 4 << 3 | PB_FIXED64), proa_buf_append(&value, "\0\0\0\0\0\0\xf0\x7f", 8);
    else put_varint(&value, kind << 3 | PB_VARINT), put_varint(&value, next_number(s));
    put_nested(&entry, 2, &value);
    put_nested(out, number, &entry);
}

static void put_contents(source *s, proa_buf *out)
{
    proa_buf contents;
    proa_buf_init(&contents, 1 << 16);
    unsigned kind = 1 + next(s) % 9, count = next(s) % 40;
    if (kind < 8) put_bytes(&contents, kind, next_bytes(s, count));
    else
        for (unsigned i = 0; i < count % 8; i++) put_bytes(&contents, 8, next_bytes(s, next(s) % 8));
    put_nested(out, 5, &contents);
}

static void put_input(source *s, proa_buf *out)
{
    static const char *const names[] = {"INPUT0", "INPUT1", "INPUT", "IN", "DELAY", "WAIT", "OPTIONAL"};
    static const char *const types[] = {"INT32",  "FP32", "BYTES", "BOOL", "FP16",
                                        "UINT64", "FP64", "INT8",  "BF16"};
    proa_buf input, shape;
    proa_buf_init(&input, 1 << 18);
    proa_buf_init(&shape, 1 << 16);
    put_bytes(&input, 1, next_word(s, names, PROA_COUNT(names)));
    put_bytes(&input, 2, next_word(s, types, PROA_COUNT(types)));
    for (unsigned rank = next(s) % 6; rank > 0; rank--) put_varint(&shape, next_number(s));
    put_nested(&input, 3, &shape);
    unsigned more = next(s);
    if (more & 1) put_param(s, &input, 4);
    if (more & 2) put_param(s, &input, 4);
    if (more & 4) put_contents(s, &input);
    put_nested(out, 5, &input);
}

static void put_output(source *s, proa_buf *out)
{
    static const char *const names[] = {"OUTPUT0", "OUTPUT1", "OUTPUT", "OUT", "IDX"};
    proa_buf output;
    proa_buf_init(&output, 1 << 16);
    put_bytes(&output, 1, next_word(s, names, PROA_COUNT(names)));
    if (next(s) & 1) put_param(s, &output, 2);
    put_nested(out, 6, &output);
}

static void put_op(source *s, proa_buf *out)
{
    static const char *const names[] = {"simple",           "simple_string",  "simple_sequence",
                                        "identity_fp32",    "identity_bytes", "identity_bool",
                                        "identity_nobatch", "repeat_int32"};
    switch (next(s) % 8) {
    case 0: put_bytes(out, 1, next_word(s, names, PROA_COUNT(names))); break;
    case 1: put_bytes(out, 2, next_bytes(s, next(s) % 4)); break;
    case 2: put_bytes(out, 3, next_bytes(s, next(s) % 20)); break;
    case 3: put_param(s, out, 4); break;
    case 4: put_input(s, out); break;
    case 5: put_output(s, out); break;
    case 6: put_bytes(out, 7, next_bytes(s, next(s))); break;
    default: put_varint(out, next(s)), put_varint(out, next_number(s)); break;
    }
}

/* ---- the frames ---- */

static void put_frame(proa_buf *out, unsigned type, unsigned flags, unsigned stream, proa_str payload)
{
    const unsigned char head[9] = {(unsigned char)(payload.len >> 16),
                                   (unsigned char)(payload.len >> 8),
                                   (unsigned char)payload.len,
                                   (unsigned char)type,
                                   (unsigned char)flags,
                                   0,
                                   0,
                                   0,
                                   (unsigned char)stream};
    proa_buf_append(out, head, sizeof head);
    proa_buf_str(out, payload);
}

/* A field that is not indexed; neither text has more than 126 bytes. */
static void put_header(proa_buf *block, const char *name, const char *value)
{
    proa_buf_char(block, 0);
    proa_buf_char(block, (char)strlen(name));
    proa_buf_str(block, proa_str_c(name));
    proa_buf_char(block, (char)strlen(value));
    proa_buf_str(block, proa_str_c(value));
}

static void put_head(proa_buf *out, bool stream)
{
    static const char settings[] = {0,          4,          0x7f,
                                    (char)0xff, (char)0xff, (char)0xff}; /* all of an answer may come */
    static const char window[] = {0x7f, (char)0xff, 0, 0};
    proa_buf block;
    proa_buf_init(&block, 4096);
    proa_buf_str(out, proa_str_c("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    put_frame(out, 4, 0, 0, (proa_str){settings, sizeof settings});
    put_frame(out, 8, 0, 0, (proa_str){window, sizeof window});
    put_header(&block, ":method", "POST");
    put_header(&block, ":scheme", "http");
    put_header(&block, ":authority", "localhost");
    put_header(&block, ":path",
               stream ? "/inference.GRPCInferenceService/ModelStreamInfer"
                      : "/inference.GRPCInferenceService/ModelInfer");
    put_header(&block, "te", "trailers");
    put_header(&block, "content-type", "application/grpc");
    put_frame(out, 1, 4, 1, proa_buf_view(&block));
    proa_buf_release(&block);
}

static void put_message(proa_buf *out, proa_str message)
{
    proa_buf data;
    const unsigned char prefix[5] = {0, (unsigned char)(message.len >> 24), (unsigned char)(message.len >> 16),
                                     (unsigned char)(message.len >> 8), (unsigned char)message.len};
    proa_buf_init(&data, 1 << 20);
    proa_buf_append(&data, prefix, sizeof prefix);
    proa_buf_str(&data, message);
    for (size_t at = 0; at < data.len;) {
        size_t n = data.len - at < FRAME_MAX ? data.len - at : FRAME_MAX;
        put_frame(out, 0, at + n == data.len, 1, (proa_str){data.ptr + at, n});
        at += n;
    }
    proa_buf_release(&data);
}

/* Has the call ended in what came: HEADERS with END_STREAM, RST_STREAM, or GOAWAY? */
static bool has_end(const proa_buf *in)
{
    for (size_t at = 0; at + 9 <= in->len;) {
        const unsigned char *f = (const unsigned char *)in->ptr + at;
        if ((f[3] == 1 && (f[4] & 1)) || f[3] == 3 || f[3] == 7) return true;
        at += 9 + ((size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2]);
    }
    return false;
}

static void call(proa_str bytes)
{
    proa_buf answer;
    bool quiet = false;
    int fd = service_dial(service.grpc);
    proa_buf_init(&answer, SERVICE_ANSWER_MAX);
    int64_t begin_ns = proa_clock_ns();
    while (!has_end(&answer)) {
        if (service_step(fd, &bytes, &answer, WAIT_MS, &quiet)) continue;
        if (!quiet || proa_sinks_live() > 0) break; /* the server has closed, or a model takes its time */
        PROA_ASSERT(proa_clock_ns() - begin_ns < SERVICE_END_MS * INT64_C(1000000)); /* a call without an end */
    }
    close(fd);
    proa_buf_release(&answer);
    service_rest();
}

SERVICE_AT_START(models)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_buf message, frames;
    if (size < 1) return 0;
    source s = {data + 1, data + size};
    service_open(models, PROA_COUNT(models));
    proa_buf_init(&message, 1 << 20);
    proa_buf_init(&frames, 1 << 21);
    if (data[0] & BY_FIELD)
        for (int i = 0; i < OPS_MAX && s.at < s.end; i++) put_op(&s, &message);
    else proa_buf_append(&message, data + 1, size - 1);
    put_head(&frames, data[0] & STREAM);
    put_message(&frames, proa_buf_view(&message));
    call(proa_buf_view(&frames));
    proa_buf_release(&message);
    proa_buf_release(&frames);
    return 0;
}
