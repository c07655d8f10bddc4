/* SPDX-License-Identifier: Apache-2.0
 * site.h - a hub as a site of the client in http.h; object stores have their own (cloud/store.h). */
#ifndef PROA_HUB_SITE_H
#define PROA_HUB_SITE_H

#include "hub/http.h"

extern const proa_hub_site proa_hub_site_hub;

#endif
