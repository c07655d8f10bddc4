/* SPDX-License-Identifier: Apache-2.0
 * host_devices.c - memory of GPUs in the process of a backend. All that is passed on is the server's: inputs are opened
 * by their handle where they are, and outputs are copied, on their GPU, into memory that it leases from the server. So
 * a process that is killed takes nothing with it that others read. Opened memory stays open, since the server uses the
 * same memory for many tensors; the server gives none back to the driver that may be open here. */
#include "backends/isolate/host.h"

#include "backends/gpu/gpu.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <string.h>

/* Memory of the server that this process has open. */
typedef struct opened {
    struct opened *next; /* the last used first */
    uint64_t number;
    int64_t seen; /* places in it that the server has sent */
    int users;    /* tensors in it */
    proa_buffer *memory;
} opened;

/* A tensor in the server's memory, while a backend uses it: keeps the memory open and the place in it taken. */
typedef struct use {
    opened *in;
    proa_buffer *holder; /* the payload that named the place */
} use;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static opened *all; /* under the lock, with what they hold */
static int all_count;
static atomic_bool refused; /* the memory of GPUs cannot be exchanged: tensors pass through host memory */

/* ---- inputs ---- */

/* Under the lock: the entry at the front of the list; NULL: this memory is not open. */
static opened *find_opened(uint64_t number)
{
    opened **at = &all;
    while (*at && (*at)->number != number) at = &(*at)->next;
    opened *o = *at;
    if (!o) return NULL;
    *at = o->next;
    o->next = all;
    return all = o;
}

/* Under the lock: finds or opens the memory of a place. bytes: the least size that the memory must have. */
static proa_status open_memory(opened **out, const proa_channel_device *place, uint64_t bytes, proa_err *err)
{
    proa_buffer *memory;
    *out = find_opened(place->memory);
    if (*out) return PROA_OK;
    PROA_TRY(proa_gpu_open_handle(&memory, place->gpu, (proa_str){place->handle, sizeof place->handle}, bytes,
                                  err));
    opened *o = *out = proa_calloc(1, sizeof *o);
    *o = (opened){.next = all, .number = place->memory, .memory = memory};
    all = o;
    all_count++;
    return PROA_OK;
}

static void end_use(void *arg)
{
    use *u = arg;
    pthread_mutex_lock(&lock);
    u->in->users--;
    pthread_mutex_unlock(&lock);
    proa_buffer_drop(u->holder);
    free(u);
}

proa_status proa_host_device_open(proa_buffer **out, const char **data, const proa_channel_device *place,
                                  uint64_t bytes, proa_buffer *holder, proa_err *err)
{
    opened *o;
    *out = NULL;
    pthread_mutex_lock(&lock);
    proa_status status = open_memory(&o, place, place->offset + bytes, err);
    if (status == PROA_OK) o->seen++, o->users++;
    pthread_mutex_unlock(&lock);
    if (status != PROA_OK) {
        proa_buffer_drop(holder);
        return status;
    }
    use *u = proa_calloc(1, sizeof *u);
    *u = (use){o, holder};
    *out = proa_buffer_wrap_memory(o->memory->memory, o->memory->data + place->offset, bytes, end_use, u);
    *data = (*out)->data;
    return PROA_OK;
}

/* Under the lock: the longest unused, taken out of the list; NULL: all are in use. */
static opened *take_unused(void)
{
    opened **found = NULL;
    for (opened **at = &all; *at; at = &(*at)->next)
        if (!(*at)->users) found = at;
    if (!found) return NULL;
    opened *o = *found;
    *found = o->next;
    all_count--;
    return o;
}

void proa_host_devices_trim(void)
{
    proa_buf head;
    opened *closed = NULL;
    pthread_mutex_lock(&lock);
    for (opened *o; all_count > PROA_PROCESS_OPENED_KEPT && (o = take_unused());)
        o->next = closed, closed = o;
    pthread_mutex_unlock(&lock);
    if (!closed) return;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&head, "{\"kind\":\"device_closed\",\"memory\":[");
    for (opened *o = closed, *next; o; o = next) {
        next = o->next;
        proa_buffer_drop(o->memory);
        proa_buf_printf(&head, "%llu,%lld%s", (unsigned long long)o->number, (long long)o->seen, next ? "," : "");
        free(o);
    }
    proa_buf_printf(&head, "]}");
    proa_host_post(&head);
}

/* ---- memory leased from the server ---- */

typedef struct lease {
    uint64_t number; /* by which the server knows it */
    proa_tensor at;
} lease;

/* A request to the server for leases on a GPU. Sizes are rounded up, so that the memory serves other batches too. */
typedef struct lease_request {
    struct lease_request *next;
    proa_host_call *call;
    int gpu, count;
    size_t sizes[];
} lease_request;

static lease_request *prefetched; /* sent ahead of their use, the newest first; under the lock */
static int prefetched_max;        /* for all instances */

static void return_lease(uint64_t number)
{
    proa_buf head;
    proa_buf_init(&head, 128);
    proa_buf_printf(&head, "{\"kind\":\"device_unused\",\"memory\":[%llu]}", (unsigned long long)number);
    proa_host_post(&head);
}

/* The server takes memory in powers of two. */
static size_t round_up(size_t bytes)
{
    size_t size = 256;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    return bytes <= PROA_PROCESS_PREFETCH_BYTES ? size : bytes;
}

static lease_request *new_request(int gpu, const size_t *bytes, int count)
{
    lease_request *r = proa_calloc(1, sizeof *r + (size_t)count * sizeof *r->sizes);
    r->gpu = gpu;
    r->count = count;
    for (int i = 0; i < count; i++) r->sizes[i] = round_up(bytes[i]);
    return r;
}

static proa_status send_request(lease_request *r, proa_err *err)
{
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&head, "{\"kind\":\"device_memory\",\"gpu\":%d,\"sizes\":[", r->gpu);
    for (int i = 0; i < r->count; i++) proa_buf_printf(&head, "%s%zu", i ? "," : "", r->sizes[i]);
    proa_buf_printf(&head, "]}");
    return proa_host_call_start(&r->call, &head, NULL, 0, err);
}

static proa_status read_leases(lease *list, int count, const proa_json *numbers, proa_payload *w, proa_err *err)
{
    proa_str name;
    if (proa_json_len(numbers) != count || w->tensors != (uint32_t)count)
        return PROA_FAIL(err, INTERNAL, "the server has leased memory for %u of %d outputs", w->tensors, count);
    for (int i = 0; i < count; i++) {
        list[i].number = proa_json_uint(proa_json_at(numbers, i));
        PROA_TRY(proa_payload_tensor(&list[i].at, &name, w, (uint32_t)i, err));
    }
    return PROA_OK;
}

static void return_leases(lease *list, const proa_json *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        if (list) proa_tensor_release(&list[i].at);
        return_lease(proa_json_uint(proa_json_at(numbers, i)));
    }
}

/* Waits for the answer and frees the request; list [count], zeroed, or NULL: the leases are returned. After a failure
 * there are none. */
static proa_status receive_leases(lease *list, lease_request *r, proa_err *err)
{
    proa_json *answer;
    proa_payload w;
    int count = r->count;
    proa_status status = proa_host_call_finish(&answer, &w, r->call, err);
    free(r);
    if (status != PROA_OK) return status;
    const proa_json *numbers = proa_json_get(answer, "memory");
    if (list) status = read_leases(list, count, numbers, &w, err);
    if (!list || status != PROA_OK) return_leases(list, numbers, count);
    proa_payload_close(&w);
    proa_json_free(answer);
    return status;
}

/* Takes a request for the same sizes out of those sent ahead; NULL: there is none. */
static lease_request *take_prefetched(const lease_request *like)
{
    pthread_mutex_lock(&lock);
    lease_request **at = &prefetched;
    while (*at && ((*at)->gpu != like->gpu || (*at)->count != like->count ||
                   memcmp((*at)->sizes, like->sizes, (size_t)like->count * sizeof *like->sizes) != 0))
        at = &(*at)->next;
    lease_request *r = *at;
    if (r) *at = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

/* Adds a request to those sent ahead. Returns the oldest one if there are now too many, else NULL. */
static lease_request *add_prefetched(lease_request *r)
{
    int n = 0;
    lease_request *old = NULL;
    pthread_mutex_lock(&lock);
    r->next = prefetched;
    prefetched = r;
    lease_request **at = &prefetched;
    while (*at && ++n <= prefetched_max) at = &(*at)->next;
    old = *at;
    *at = NULL;
    pthread_mutex_unlock(&lock);
    return old;
}

/* Requests memory for the next response, which is probably like this one, so that it need not wait for the server. */
static void prefetch_leases(int gpu, const size_t *bytes, int count)
{
    proa_err ignored = {0};
    size_t all_bytes = 0;
    lease_request *r = new_request(gpu, bytes, count), *old = NULL;
    for (int i = 0; i < count && all_bytes <= PROA_PROCESS_PREFETCH_BYTES; i++) all_bytes += r->sizes[i];
    if (all_bytes <= PROA_PROCESS_PREFETCH_BYTES && send_request(r, &ignored) == PROA_OK)
        old = add_prefetched(r);
    else free(r);
    if (old) (void)receive_leases(NULL, old, &ignored);
}

/* Leases memory for tensors of these sizes: by a request sent ahead, else by a new one. list [count], zeroed. */
static proa_status lease_memory(lease *list, int gpu, const size_t *bytes, int count, proa_err *err)
{
    lease_request *r = new_request(gpu, bytes, count), *found = take_prefetched(r);
    proa_status status = found ? PROA_OK : send_request(r, err);
    if (found || status != PROA_OK) free(r);
    return status == PROA_OK ? receive_leases(list, found ? found : r, err) : status;
}

/* One line for the process: what cannot be done is not tried again. Memory that is short now may be there later. */
static void refuse_devices(int gpu, const proa_err *why)
{
    bool for_now = why->status == PROA_NO_MEMORY || why->status == PROA_LIMIT;
    if (!for_now && !atomic_exchange(&refused, true))
        PROA_LOG(WARNING, "'%s': tensors of GPU %d pass through host memory: %s", proa_host_name(), gpu,
                 why->text);
}

void proa_host_devices_start(int instances)
{
    prefetched_max = instances * PROA_PROCESS_PREFETCHED_MAX;
}

bool proa_host_devices_probe(int gpu)
{
    const size_t least = 1;
    lease one = {0};
    proa_err why = {0};
    if (lease_memory(&one, gpu, &least, 1, &why) != PROA_OK) {
        refuse_devices(gpu, &why);
        return false;
    }
    proa_tensor_release(&one.at);
    return_lease(one.number);
    return true;
}

/* ---- outputs ---- */

static proa_status copy_outputs(const proa_tensor *outputs, const int *which, const lease *list, int count,
                                proa_err *err)
{
    for (int i = 0; i < count; i++) PROA_TRY(proa_tensor_copy_to(list[i].at.buffer, &outputs[which[i]], err));
    return PROA_OK;
}

/* Copies the outputs which[0..count), all on one GPU, into leased memory. */
static proa_status copy_to_leases(uint64_t *numbers, const proa_tensor *outputs, const int *which, int count,
                                  proa_err *err)
{
    size_t *sizes = proa_calloc((size_t)count, sizeof *sizes);
    lease *list = proa_calloc((size_t)count, sizeof *list);
    int gpu = proa_tensor_device(&outputs[which[0]])->gpu;
    for (int i = 0; i < count; i++) sizes[i] = outputs[which[i]].bytes;
    proa_status status = lease_memory(list, gpu, sizes, count, err);
    bool leased = status == PROA_OK;
    if (leased) prefetch_leases(gpu, sizes, count);
    if (leased) status = copy_outputs(outputs, which, list, count, err);
    for (int i = 0; leased && i < count; i++) {
        if (status == PROA_OK) numbers[which[i]] = list[i].number;
        else return_lease(list[i].number);
        proa_tensor_release(&list[i].at);
    }
    free(sizes);
    free(list);
    return status;
}

/* The outputs that are on the same GPU as the first one that is on a GPU and has no memory yet; their number. */
static int choose_outputs(int *which, const uint64_t *numbers, const proa_tensor *outputs, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        const proa_device_memory *memory = outputs[i].bytes ? proa_tensor_device(&outputs[i]) : NULL;
        if (memory && !numbers[i] && (!n || proa_tensor_is_on(&outputs[which[0]], memory))) which[n++] = i;
    }
    return n;
}

/* Puts outputs of one GPU where the server can read them: leased memory, else host memory. */
static proa_status place_outputs(uint64_t *numbers, proa_tensor *outputs, const int *which, int count,
                                 proa_err *err)
{
    proa_err why = {.status = PROA_UNSUPPORTED};
    if (!atomic_load(&refused)) {
        proa_err_clear(&why);
        if (copy_to_leases(numbers, outputs, which, count, &why) == PROA_OK) return PROA_OK;
        refuse_devices(proa_tensor_device(&outputs[which[0]])->gpu, &why);
    }
    for (int i = 0; i < count; i++) PROA_TRY(proa_tensor_to_host(&outputs[which[i]], err));
    return PROA_OK;
}

static bool any_on_device(const proa_reply *reply)
{
    for (int i = 0; i < reply->outputs_count; i++)
        if (proa_tensor_device(&reply->outputs[i])) return true;
    return false;
}

proa_status proa_host_lease_outputs(uint64_t **out, proa_reply *reply, proa_err *err)
{
    int count = reply->outputs_count, n;
    proa_status status = PROA_OK;
    *out = NULL;
    if (!any_on_device(reply)) return PROA_OK;
    int *which = proa_calloc((size_t)count, sizeof *which);
    uint64_t *numbers = proa_calloc((size_t)count, sizeof *numbers);
    while (status == PROA_OK && (n = choose_outputs(which, numbers, reply->outputs, count)))
        status = place_outputs(numbers, reply->outputs, which, n, err);
    free(which);
    if (status == PROA_OK) *out = numbers;
    else proa_host_return_leases(numbers, count), free(numbers);
    return status;
}

void proa_host_return_leases(const uint64_t *leases, int count)
{
    for (int i = 0; i < count; i++)
        if (leases[i]) return_lease(leases[i]);
}
