/* SPDX-License-Identifier: Apache-2.0
 * file.c - prints traces in Triton's form and writes its files. */
#include "telemetry/file.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PENDING_WRITTEN = 64 << 10 }; /* without a frequency: so much is written at once */

void proa_trace_file_init(proa_trace_file *f, const char *path)
{
    *f = (proa_trace_file){.path = proa_strdup(path)};
    proa_buf_init(&f->pending, PROA_TRACE_FILE_BYTES);
}

/* ---- files ---- */

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* Writes head, the pending traces and tail to a file. */
static void write_file(proa_trace_file *f, const char *path, int flags, const char *head, const char *tail)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    bool ok = fd >= 0 && write_all(fd, head, strlen(head)) && write_all(fd, f->pending.ptr, f->pending.len) &&
              write_all(fd, tail, strlen(tail));
    if (!ok && !f->failed) PROA_LOG(ERROR, "cannot write trace file '%s': %s", path, strerror(errno));
    f->failed = !ok;
    if (fd >= 0) close(fd);
    proa_buf_clear(&f->pending);
    f->held = 0;
}

static void append_to_file(proa_trace_file *f, const char *tail)
{
    const char *head = !f->opened ? "[" : f->pending.len ? "," : "";
    write_file(f, f->path, f->opened ? O_APPEND : O_TRUNC, head, tail);
    f->opened = true;
}

static void write_numbered(proa_trace_file *f)
{
    proa_buf path;
    proa_buf_init(&path, 2 * PROA_PATH_MAX);
    proa_buf_printf(&path, "%s.%" PRId64, f->path, f->files++);
    write_file(f, path.ptr, O_TRUNC, "[", "]");
    proa_buf_release(&path);
}

void proa_trace_file_release(proa_trace_file *f)
{
    if (f->files && f->pending.len) write_numbered(f);
    else if (f->opened || f->pending.len) append_to_file(f, "]");
    proa_buf_release(&f->pending);
    free(f->path);
}

/* ---- values of tensors: separated by commas, strings in quotes. FP16 and BF16 are left out, as Triton does ---- */

static void print_float(proa_buf *out, double value, int digits)
{
    if (isnan(value)) proa_buf_printf(out, "nan");
    else if (isinf(value)) proa_buf_printf(out, value < 0 ? "-inf" : "inf");
    else proa_buf_printf(out, "%.*g", digits, value);
}

#define PRINT_U(v) proa_buf_printf(out, "%" PRIu64, (uint64_t)(v))
#define PRINT_I(v) proa_buf_printf(out, "%" PRId64, (int64_t)(v))
#define PRINT_F(v) print_float(out, (double)(v), 9)
#define PRINT_D(v) print_float(out, (v), 17)

static void print_element(proa_buf *out, proa_type type, const char *at)
{
    switch (type) {
#define PRINT_CASE(name, ctype, kind)                                                                        \
    case PROA_TYPE_##name: {                                                                                 \
        ctype value;                                                                                         \
        memcpy(&value, at, sizeof value);                                                                    \
        PRINT_##kind(value);                                                                                 \
        break;                                                                                               \
    }
        PROA_TYPE_C_LIST(PRINT_CASE)
#undef PRINT_CASE
    case PROA_TYPE_BOOL: proa_buf_char(out, *at ? '1' : '0'); break;
    default: break;
    }
}

static void print_strings(proa_buf *out, const proa_tensor *t)
{
    proa_str element;
    for (size_t at = 0, i = 0; proa_tensor_next_string(t, &at, &element); i++) {
        if (i) proa_buf_char(out, ',');
        proa_buf_char(out, '"');
        proa_buf_str(out, element);
        proa_buf_char(out, '"');
    }
}

static bool has_text(proa_type type)
{
    return type != PROA_TYPE_FP16 && type != PROA_TYPE_BF16;
}

static void print_values(proa_buf *out, const proa_tensor *t)
{
    size_t size = (size_t)proa_type_bytes(t->type);
    if (t->type == PROA_TYPE_BYTES) {
        print_strings(out, t);
        return;
    }
    for (size_t at = 0; size && has_text(t->type) && at + size <= t->bytes && !out->full; at += size) {
        if (at) proa_buf_char(out, ',');
        print_element(out, t->type, t->data + at);
    }
}

static void add_tensor(proa_buf *out, int64_t id, const proa_trace_tensor *one)
{
    const proa_tensor *t = &one->tensor;
    proa_buf values;
    proa_buf_init(&values, PROA_TRACE_TENSOR_BYTES_MAX);
    if (!proa_tensor_device(t)) print_values(&values, t); /* the host cannot read the others */
    if (values.full) proa_buf_clear(&values);
    proa_buf_printf(out, ",{\"id\":%" PRId64 ",\"activity\":\"%s\",\"tensor\":{\"name\":", id,
                    one->output ? "TENSOR_BACKEND_OUTPUT" : "TENSOR_QUEUE_INPUT");
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ",\"data\":");
    proa_buf_json_str(out, proa_buf_view(&values));
    proa_buf_printf(out, ",\"shape\":\"");
    for (int32_t d = 0; d < t->rank; d++) proa_buf_printf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
    proa_buf_printf(out, "\",\"dtype\":\"%s\"}}", proa_type_name(t->type));
    proa_buf_release(&values);
}

/* ---- one trace ---- */

/* The name is one of ours, or what a backend reports. */
static void add_time(proa_buf *out, int64_t id, const char *name, int64_t ns)
{
    if (!ns) return; /* not reached, or not recorded by this scheduler */
    proa_buf_printf(out, ",{\"id\":%" PRId64 ",\"timestamps\":[{\"name\":", id);
    proa_buf_json_str(out, proa_str_c(name));
    proa_buf_printf(out, ",\"ns\":%" PRId64 "}]}", ns);
}

static void add_model_times(proa_buf *out, const proa_trace_span *s)
{
    add_time(out, s->id, "REQUEST_START", s->begun_ns);
    add_time(out, s->id, "QUEUE_START", s->times.queued);
    if (!s->ensemble) {
        add_time(out, s->id, "COMPUTE_START", s->times.compute_start);
        add_time(out, s->id, "COMPUTE_INPUT_END", s->times.input_end);
        add_time(out, s->id, "COMPUTE_OUTPUT_START", s->times.output_start);
        add_time(out, s->id, "COMPUTE_END", s->times.compute_start ? s->times.compute_end : 0);
    }
    for (const proa_trace_activity *a = s->activities; a; a = a->next) add_time(out, s->id, a->name, a->ns);
    add_time(out, s->id, "REQUEST_END", s->times.ended);
}

/* What the front end noted. */
static void add_front_end_times(proa_buf *out, const proa_trace *t)
{
    bool grpc = t->origin.grpc;
    int64_t id = t->first->id;
    add_time(out, id, grpc ? "GRPC_WAITREAD_START" : "HTTP_RECV_START", t->origin.received_ns);
    add_time(out, id, grpc ? "GRPC_WAITREAD_END" : "HTTP_RECV_END", t->origin.read_ns);
    add_time(out, id, "INFER_RESPONSE_COMPLETE", t->complete_ns);
    add_time(out, id, grpc ? "GRPC_SEND_START" : "HTTP_SEND_START", t->send_start_ns);
    add_time(out, id, grpc ? "GRPC_SEND_END" : "HTTP_SEND_END", t->send_end_ns);
}

static void print_span(proa_buf *out, const proa_trace_span *s)
{
    const proa_trace *t = s->trace;
    proa_buf_printf(out, "{\"id\":%" PRId64 ",\"model_name\":", s->id);
    proa_buf_json_str(out, proa_str_c(s->model_name));
    proa_buf_printf(out, ",\"model_version\":%" PRId64, s->model_version);
    if (s->request_id[0]) {
        proa_buf_printf(out, ",\"request_id\":");
        proa_buf_json_str(out, proa_str_c(s->request_id));
    }
    if (s->parent) proa_buf_printf(out, ",\"parent_id\":%" PRId64, s->parent);
    proa_buf_char(out, '}');
    if (t->level & PROA_TRACE_TIMESTAMPS) {
        if (s == t->first) add_front_end_times(out, t);
        add_model_times(out, s);
    }
    for (const proa_trace_tensor *one = s->tensors; one; one = one->next) add_tensor(out, s->id, one);
}

bool proa_trace_file_add(proa_trace_file *f, const proa_trace *trace)
{
    size_t before = f->pending.len;
    for (const proa_trace_span *s = trace->first; s; s = s->next) {
        if (f->pending.len) proa_buf_char(&f->pending, ',');
        print_span(&f->pending, s);
    }
    bool fits = !f->pending.full;
    if (!fits) { /* half a trace would spoil the file */
        f->pending.len = before;
        f->pending.ptr[before] = 0;
        f->pending.full = false;
    } else f->held++;
    if (f->held && (trace->ends_count || (trace->frequency > 0 && f->held >= trace->frequency)))
        write_numbered(f);
    else if (trace->frequency <= 0 && f->pending.len >= PENDING_WRITTEN) append_to_file(f, "");
    return fits;
}
