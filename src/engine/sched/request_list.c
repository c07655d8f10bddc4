/* SPDX-License-Identifier: Apache-2.0
 * request_list.c - lists of requests. */
#include "engine/sched/request_list.h"

#include "engine/sched/request.h"

void proa_request_list_init(proa_request_list *list)
{
    *list = (proa_request_list){.last = NULL};
}

void proa_request_list_push(proa_request_list *list, proa_engine_request *req)
{
    req->next = NULL;
    if (list->first) *list->last = req;
    else list->first = req;
    list->last = &req->next;
    list->count++;
}

void proa_request_list_push_first(proa_request_list *list, proa_engine_request *req)
{
    if (!list->first) list->last = &req->next;
    req->next = list->first;
    list->first = req;
    list->count++;
}

proa_engine_request *proa_request_list_pop(proa_request_list *list)
{
    proa_engine_request *req = list->first;
    if (!req) return NULL;
    list->first = req->next;
    list->count--;
    req->next = NULL;
    return req;
}

int32_t proa_request_list_split(proa_request_list *list, proa_request_list *to,
                                bool (*moves)(void *arg, proa_engine_request *req), void *arg)
{
    proa_request_list kept;
    int32_t before = list->count;
    proa_request_list_init(&kept);
    for (proa_engine_request *req; (req = proa_request_list_pop(list));)
        proa_request_list_push(moves(arg, req) ? to : &kept, req);
    *list = kept;
    /* `last` of an empty list is not read; that of another one points into its last request */
    return before - kept.count;
}
