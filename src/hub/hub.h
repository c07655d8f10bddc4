/* SPDX-License-Identifier: Apache-2.0
 * hub.h - what other folders use of this one: the public interface. */
#ifndef PROA_HUB_HUB_H
#define PROA_HUB_HUB_H

#include "proa/hub.h"

#endif
