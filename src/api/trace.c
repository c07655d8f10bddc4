/* SPDX-License-Identifier: Apache-2.0
 * trace.c - writes the traces of sampled requests to files in Triton's form. */
#include "api/trace.h"

#include "api/http/infer_json.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    PENDING_MAX = 64 << 20,     /* of one file with a frequency; beyond that traces are lost */
    PENDING_WRITTEN = 64 << 10, /* without one: so much is written at once */
    TENSOR_TEXT_MAX = 1 << 20   /* values of one tensor; a larger one is traced without values */
};

void proa_tracer_init(proa_tracer *t, const char *file)
{
    *t = (proa_tracer){.file = proa_strdup(file)};
    proa_buf_init(&t->pending, PENDING_MAX);
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
static void write_file(proa_tracer *t, const char *path, int flags, const char *head, const char *tail)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    bool ok = fd >= 0 && write_all(fd, head, strlen(head)) && write_all(fd, t->pending.ptr, t->pending.len) &&
              write_all(fd, tail, strlen(tail));
    if (!ok && !t->failed) PROA_LOG(ERROR, "cannot write trace file '%s': %s", path, strerror(errno));
    t->failed = !ok;
    if (fd >= 0) close(fd);
    proa_buf_clear(&t->pending);
    t->in_file = 0;
}

static void append_to_file(proa_tracer *t, const char *tail)
{
    write_file(t, t->file, t->opened ? O_APPEND : O_TRUNC,
               !t->opened       ? "["
               : t->pending.len ? ","
                                : "",
               tail);
    t->opened = true;
}

static void write_numbered(proa_tracer *t)
{
    proa_buf path;
    proa_buf_init(&path, 8192);
    proa_buf_printf(&path, "%s.%" PRId64, t->file, t->files++);
    write_file(t, path.ptr, O_TRUNC, "[", "]");
    proa_buf_release(&path);
}

void proa_tracer_release(proa_tracer *t)
{
    if (t->files && t->pending.len) write_numbered(t);
    else if (t->opened || t->pending.len) append_to_file(t, "]");
    proa_buf_release(&t->pending);
    free(t->file);
}

/* ---- one trace ---- */

static void add_time(proa_buf *out, const char *name, int64_t ns, bool *first)
{
    if (!ns) return; /* not reached, or not recorded by this scheduler */
    proa_buf_printf(out, "%s{\"name\":\"%s\",\"ns\":%" PRId64 "}", *first ? "" : ",", name, ns);
    *first = false;
}

static void add_times(proa_buf *out, int64_t id, const proa_infer *r)
{
    bool first = true;
    proa_buf_printf(out, ",{\"id\":%" PRId64 ",\"timestamps\":[", id);
    add_time(out, "REQUEST_START", r->times.received, &first);
    add_time(out, "QUEUE_START", r->times.queued, &first);
    add_time(out, "COMPUTE_START", r->times.compute_start, &first);
    add_time(out, "COMPUTE_INPUT_END", r->times.input_end, &first);
    add_time(out, "COMPUTE_OUTPUT_START", r->times.output_start, &first);
    add_time(out, "COMPUTE_END", r->times.compute_end, &first);
    add_time(out, "REQUEST_END", proa_clock_ns(), &first);
    proa_buf_append(out, "]}", 2);
}

/* The values are one string, separated by commas; none of a tensor in the memory of a device. */
static void add_tensor(proa_buf *out, int64_t id, const char *activity, const proa_tensor *t)
{
    proa_buf data;
    proa_buf_init(&data, TENSOR_TEXT_MAX);
    bool readable = !proa_tensor_device(t);
    if (!readable || proa_tensor_json(&data, t, false, NULL) != PROA_OK || data.len < 2)
        proa_buf_clear(&data);
    proa_buf_printf(out, ",{\"id\":%" PRId64 ",\"activity\":\"%s\",\"tensor\":{\"name\":", id, activity);
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ",\"data\":");
    proa_buf_json_str(out, data.len ? (proa_str){data.ptr + 1, data.len - 2} : (proa_str){"", 0});
    proa_buf_printf(out, ",\"shape\":\"");
    for (int32_t d = 0; d < t->rank; d++) proa_buf_printf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
    proa_buf_printf(out, "\",\"dtype\":\"%s\"}}", proa_type_name(t->type));
    proa_buf_release(&data);
}

static void print_trace(proa_buf *out, int64_t id, const proa_infer *r, const proa_reply *reply, unsigned level)
{
    proa_buf_printf(out, "{\"id\":%" PRId64 ",\"model_name\":", id);
    proa_buf_json_str(out, proa_str_c(r->model_name));
    proa_buf_printf(out, ",\"model_version\":%" PRId64, reply ? reply->model_version : r->model_version);
    if (r->id[0]) {
        proa_buf_printf(out, ",\"request_id\":");
        proa_buf_json_str(out, proa_str_c(r->id));
    }
    proa_buf_char(out, '}');
    if (level & PROA_TRACE_TIMESTAMPS) add_times(out, id, r);
    if (!(level & PROA_TRACE_TENSORS)) return;
    for (int32_t i = 0; i < r->inputs_count; i++) add_tensor(out, id, "TENSOR_QUEUE_INPUT", &r->inputs[i]);
    for (int32_t i = 0; reply && i < reply->outputs_count; i++)
        add_tensor(out, id, "TENSOR_BACKEND_OUTPUT", &reply->outputs[i]);
}

void proa_tracer_write(proa_tracer *t, const proa_infer *r, const proa_reply *reply, unsigned level,
                       int64_t frequency)
{
    size_t before = t->pending.len;
    if (before) proa_buf_char(&t->pending, ',');
    print_trace(&t->pending, ++t->last_id, r, reply, level);
    if (t->pending.full) { /* half a trace would spoil the file */
        t->pending.len = before;
        t->pending.ptr[before] = 0;
        t->pending.full = false;
        return;
    }
    t->in_file++;
    if (frequency > 0 && t->in_file >= frequency) write_numbered(t);
    else if (frequency <= 0 && t->pending.len >= PENDING_WRITTEN) append_to_file(t, "");
}
