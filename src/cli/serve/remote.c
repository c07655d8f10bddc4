/* SPDX-License-Identifier: Apache-2.0
 * remote.c - repositories in object stores (hub/cloud) for the server. */
#include "cli/serve/options.h"

static proa_status open_cloud(void **remote, const char *address, void *arg, proa_err *err)
{
    proa_cloud *cloud = NULL;
    PROA_TRY(proa_cloud_open(&cloud, address, arg, err));
    *remote = cloud;
    return PROA_OK;
}

static void close_cloud(void *remote)
{
    proa_cloud_close(remote);
}

static const char *folder_of(void *remote)
{
    return proa_cloud_folder(remote);
}

static const char *single_of(void *remote)
{
    return proa_cloud_single(remote);
}

static proa_status list_cloud(void *remote, proa_err *err)
{
    return proa_cloud_list(remote, err);
}

static proa_status fetch_cloud(void *remote, const char *model, bool relist, proa_err *err)
{
    return proa_cloud_fetch(remote, model, relist, err);
}

const proa_remote_ops proa_serve_remote = {.is_address = proa_cloud_is_address,
                                           .open = open_cloud,
                                           .close = close_cloud,
                                           .folder = folder_of,
                                           .single = single_of,
                                           .list = list_cloud,
                                           .fetch = fetch_cloud};
