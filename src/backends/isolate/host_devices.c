/* SPDX-License-Identifier: Apache-2.0
 * host_devices.c - memory of GPUs in the process of a backend. All that is passed on is the server's: inputs are opened
 * by their handle where they are, and outputs are copied, on their GPU, into memory that the server lends. So a process
 * that is killed takes nothing with it that others read. Opened memory stays open, since the server uses the same
 * memory for many tensors; the server gives none back to the driver that may be open here. */
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
    (void)proa_host_send(PROA_CHANNEL_POST, 0, 0, proa_buf_view(&head), NULL, NULL, 0);
    proa_buf_release(&head);
}

/* ---- memory that the server lends ---- */

typedef struct lent {
    uint64_t number;
    proa_tensor at;
} lent;

/* A request to the server for memory on a GPU. Sizes are rounded up, so that the memory serves other batches too. */
typedef struct loan {
    struct loan *next;
    proa_host_call *call;
    int gpu, count;
    size_t sizes[];
} loan;

static loan *spare; /* asked for ahead, the newest first; under the lock */

static void post_unused(uint64_t number)
{
    proa_buf head;
    proa_buf_init(&head, 128);
    proa_buf_printf(&head, "{\"kind\":\"device_unused\",\"memory\":[%llu]}", (unsigned long long)number);
    (void)proa_host_send(PROA_CHANNEL_POST, 0, 0, proa_buf_view(&head), NULL, NULL, 0);
    proa_buf_release(&head);
}

/* The server takes memory in powers of two. */
static size_t round_up(size_t bytes)
{
    size_t size = 256;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    return bytes <= PROA_PROCESS_SPARE_BYTES ? size : bytes;
}

static loan *loan_new(int gpu, const size_t *bytes, int count)
{
    loan *l = proa_calloc(1, sizeof *l + (size_t)count * sizeof *l->sizes);
    l->gpu = gpu;
    l->count = count;
    for (int i = 0; i < count; i++) l->sizes[i] = round_up(bytes[i]);
    return l;
}

static proa_status loan_ask(loan *l, proa_err *err)
{
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&head, "{\"kind\":\"device_memory\",\"gpu\":%d,\"sizes\":[", l->gpu);
    for (int i = 0; i < l->count; i++) proa_buf_printf(&head, "%s%zu", i ? "," : "", l->sizes[i]);
    proa_buf_printf(&head, "]}");
    return proa_host_call_start(&l->call, &head, NULL, 0, err);
}

static proa_status take_lent(lent *list, int count, const proa_json *numbers, proa_payload *w, proa_err *err)
{
    proa_str name;
    if (proa_json_len(numbers) != count || w->tensors != (uint32_t)count)
        return PROA_FAIL(err, INTERNAL, "the server has lent memory for %u of %d outputs", w->tensors, count);
    for (int i = 0; i < count; i++) {
        list[i].number = proa_json_uint(proa_json_at(numbers, i));
        PROA_TRY(proa_payload_tensor(&list[i].at, &name, w, (uint32_t)i, err));
    }
    return PROA_OK;
}

static void give_back(lent *list, const proa_json *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        if (list) proa_tensor_release(&list[i].at);
        post_unused(proa_json_uint(proa_json_at(numbers, i)));
    }
}

/* Waits for the memory and frees the loan; list [count], zeroed, or NULL: it is given back. After a failure nothing is
 * lent. */
static proa_status loan_take(lent *list, loan *l, proa_err *err)
{
    proa_json *answer;
    proa_payload w;
    int count = l->count;
    proa_status status = proa_host_call_finish(&answer, &w, l->call, err);
    free(l);
    if (status != PROA_OK) return status;
    const proa_json *numbers = proa_json_get(answer, "memory");
    if (list) status = take_lent(list, count, numbers, &w, err);
    if (!list || status != PROA_OK) give_back(list, numbers, count);
    proa_payload_close(&w);
    proa_json_free(answer);
    return status;
}

/* Takes a loan of the same sizes out of those requested ahead; NULL: there is none. */
static loan *take_spare(const loan *like)
{
    pthread_mutex_lock(&lock);
    loan **at = &spare;
    while (*at && ((*at)->gpu != like->gpu || (*at)->count != like->count ||
                   memcmp((*at)->sizes, like->sizes, (size_t)like->count * sizeof *like->sizes) != 0))
        at = &(*at)->next;
    loan *l = *at;
    if (l) *at = l->next;
    pthread_mutex_unlock(&lock);
    return l;
}

/* Adds a loan to those requested ahead. Returns the oldest one if there are now too many, else NULL. */
static loan *add_spare(loan *l)
{
    int n = 0;
    loan *old = NULL;
    pthread_mutex_lock(&lock);
    l->next = spare;
    spare = l;
    loan **at = &spare;
    while (*at && ++n <= PROA_PROCESS_SPARES) at = &(*at)->next;
    old = *at;
    *at = NULL;
    pthread_mutex_unlock(&lock);
    return old;
}

/* Asks for memory for the next response, which is probably like this one: so none waits for the server. */
static void ask_ahead(int gpu, const size_t *bytes, int count)
{
    proa_err ignored = {0};
    size_t all_bytes = 0;
    loan *l = loan_new(gpu, bytes, count), *old = NULL;
    for (int i = 0; i < count && all_bytes <= PROA_PROCESS_SPARE_BYTES; i++) all_bytes += l->sizes[i];
    if (all_bytes <= PROA_PROCESS_SPARE_BYTES && loan_ask(l, &ignored) == PROA_OK) old = add_spare(l);
    else free(l);
    if (old) (void)loan_take(NULL, old, &ignored);
}

/* Borrows memory for tensors of these sizes: a loan requested ahead, else a new one. list [count], zeroed. */
static proa_status borrow_memory(lent *list, int gpu, const size_t *bytes, int count, proa_err *err)
{
    loan *l = loan_new(gpu, bytes, count), *found = take_spare(l);
    proa_status status = found ? PROA_OK : loan_ask(l, err);
    if (found || status != PROA_OK) free(l);
    return status == PROA_OK ? loan_take(list, found ? found : l, err) : status;
}

/* One line for the process: what cannot be done is not tried again. Memory that is short now may be there later. */
static void refuse_devices(int gpu, const proa_err *why)
{
    bool for_now = why->status == PROA_NO_MEMORY || why->status == PROA_LIMIT;
    if (!for_now && !atomic_exchange(&refused, true))
        PROA_LOG(WARNING, "'%s': tensors of GPU %d pass through host memory: %s", proa_host_instance(), gpu,
                 why->text);
}

bool proa_host_devices_probe(int gpu)
{
    const size_t least = 1;
    lent one = {0};
    proa_err why = {0};
    if (borrow_memory(&one, gpu, &least, 1, &why) != PROA_OK) {
        refuse_devices(gpu, &why);
        return false;
    }
    proa_tensor_release(&one.at);
    post_unused(one.number);
    return true;
}

/* ---- outputs ---- */

static proa_status copy_outputs(const proa_tensor *outputs, const int *which, const lent *list, int count,
                                proa_err *err)
{
    for (int i = 0; i < count; i++) PROA_TRY(proa_tensor_copy_to(list[i].at.buffer, &outputs[which[i]], err));
    return PROA_OK;
}

/* Copies the outputs which[0..count), all on one GPU, into memory that the server lends. */
static proa_status lend_outputs(uint64_t *numbers, const proa_tensor *outputs, const int *which, int count,
                                proa_err *err)
{
    size_t *sizes = proa_calloc((size_t)count, sizeof *sizes);
    lent *list = proa_calloc((size_t)count, sizeof *list);
    int gpu = proa_tensor_device(&outputs[which[0]])->gpu;
    for (int i = 0; i < count; i++) sizes[i] = outputs[which[i]].bytes;
    proa_status status = borrow_memory(list, gpu, sizes, count, err);
    bool borrowed = status == PROA_OK;
    if (borrowed) ask_ahead(gpu, sizes, count);
    if (borrowed) status = copy_outputs(outputs, which, list, count, err);
    for (int i = 0; borrowed && i < count; i++) {
        if (status == PROA_OK) numbers[which[i]] = list[i].number;
        else post_unused(list[i].number);
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

/* Puts outputs of one GPU where the server can read them: memory that it lends, else host memory. */
static proa_status place_outputs(uint64_t *numbers, proa_tensor *outputs, const int *which, int count,
                                 proa_err *err)
{
    proa_err why = {.status = PROA_UNSUPPORTED};
    if (!atomic_load(&refused)) {
        proa_err_clear(&why);
        if (lend_outputs(numbers, outputs, which, count, &why) == PROA_OK) return PROA_OK;
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

proa_status proa_host_device_outputs(uint64_t **out, proa_reply *reply, proa_err *err)
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
    else proa_host_device_unsent(numbers, count), free(numbers);
    return status;
}

void proa_host_device_unsent(const uint64_t *lent_numbers, int count)
{
    for (int i = 0; i < count; i++)
        if (lent_numbers[i]) post_unused(lent_numbers[i]);
}
