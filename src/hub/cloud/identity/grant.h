/* SPDX-License-Identifier: Apache-2.0
 * grant.h - reads keys from the responses of metadata and token services. Responses are untrusted: values that go into
 *           headers are bounded and printable, and times must be dates.
 * Threads: any; there is no state. */
#ifndef PROA_HUB_CLOUD_IDENTITY_GRANT_H
#define PROA_HUB_CLOUD_IDENTITY_GRANT_H

#include "base/str.h"
#include "hub/cloud/identity/credentials.h"

/* These set id, secret, token and until_s, which is 0 if the response has no expiry. CORRUPT for any other response;
 * errors never quote the response. */
/* Amazon's container and instance services: {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}. */
PROA_MUST_CHECK proa_status proa_cloud_grant_aws(proa_cloud_key *out, proa_str body, proa_err *err);
/* STS: <AssumeRole...Response><...Result><Credentials>. */
PROA_MUST_CHECK proa_status proa_cloud_grant_sts(proa_cloud_key *out, proa_str body, proa_err *err);
/* Bearers of Google and Azure: {"access_token", "expires_in" or "expires_on"} or {"accessToken", "expireTime"}. Only
 * token and until_s are set. */
PROA_MUST_CHECK proa_status proa_cloud_grant_bearer(proa_cloud_key *out, proa_str body, int64_t now_s,
                                                    proa_err *err);
/* "2026-01-02T03:04:05Z", with a fraction or not, as seconds since 1970; -1: not a time. */
int64_t proa_cloud_read_time(proa_str text);

#endif
