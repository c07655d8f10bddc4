/* SPDX-License-Identifier: Apache-2.0
 * grant.h - keys in the answers of metadata and token services. The answers are not believed: what goes into headers is
 *           bounded and printable, and times are dates.
 * Threads: any; nothing is kept. */
#ifndef PROA_HUB_CLOUD_IDENTITY_GRANT_H
#define PROA_HUB_CLOUD_IDENTITY_GRANT_H

#include "base/str.h"
#include "hub/cloud/identity/credentials.h"

/* These fill id, secret, token and until_s, which is 0 where the answer names none. CORRUPT for what is no such answer;
 * no error says what the answer holds. */
/* Amazon's container and instance services: {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}. */
PROA_MUST_CHECK proa_status proa_cloud_grant_aws(proa_cloud_key *out, proa_str body, proa_err *err);
/* STS: <AssumeRole...Response><...Result><Credentials>. */
PROA_MUST_CHECK proa_status proa_cloud_grant_sts(proa_cloud_key *out, proa_str body, proa_err *err);
/* Bearers of Google and Azure: {"access_token", "expires_in" or "expires_on"} or {"accessToken", "expireTime"}. Only
 * token and until_s are filled. */
PROA_MUST_CHECK proa_status proa_cloud_grant_bearer(proa_cloud_key *out, proa_str body, int64_t now_s,
                                                    proa_err *err);
/* "2026-01-02T03:04:05Z", with a fraction or not, as seconds since 1970; -1: it is none. */
int64_t proa_cloud_read_time(proa_str text);

#endif
