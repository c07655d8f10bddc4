# SPDX-License-Identifier: Apache-2.0
"""Credentials of a machine's role for object stores: the services of identity_services.py give them, and the stores want the
newest."""
import json
import os
import pathlib
import subprocess
import time

import identity_services as ids
import object_stores
import pytest
from test_cloud import address, azure, env, fails, google, infer, s3  # noqa: F401
from wire import PROA, Server, wait_until

# ruff: noqa: F811


@pytest.fixture
def aws(s3, env):
    """S3's store without keys in the environment, beside Amazon's services."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        del env[name]
    with ids.serve(s3) as service:
        env["AWS_ENDPOINT_URL_STS"] = f"http://{service.host}"
        env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"http://{service.host}"
        yield service


@pytest.fixture
def azure_ids(azure, env):
    del env["AZURE_STORAGE_KEY"]
    with ids.serve(azure) as service:
        env["AZURE_POD_IDENTITY_AUTHORITY_HOST"] = f"http://{service.host}/"
        yield service


@pytest.fixture
def google_ids(google, env):
    del env["GOOGLE_APPLICATION_CREDENTIALS"], env["NO_GCE_CHECK"]
    with ids.serve(google) as service:
        env["GCE_METADATA_HOST"] = service.host
        yield service


def web_token(tmp_path):
    path = tmp_path / "token"
    path.write_text(ids.WEB_TOKEN + "\n")
    return str(path)


def serves(store, env):
    with Server(repositories=[address(store)], env=env) as server:
        infer(server)
        check_log(server.log_text())
        return server.log_text()


def check_log(text):
    for secret in (object_stores.SECRET, object_stores.SESSION, "ya29.token", ids.WEB_TOKEN, ids.CONTAINER_TOKEN, ids.IMDS_TOKEN, "client-secret",
                   "base-secret", ids.IDENTITY_HEADER):
        assert secret not in text


def refused(store, env):
    text = fails(address(store), env=env)
    check_log(text)
    return text


# ---- Amazon ----


def test_instance_role(aws, env):
    log = serves(aws.store, env)
    assert "credentials come from the instance's role" in log
    assert [r["path"].rsplit("/", 1)[-1] for r in aws.requests] == ["token", "", ids.ROLE]
    assert aws.grants == 1


def test_instance_region(aws, env):
    del env["AWS_DEFAULT_REGION"]
    aws.region = "eu-south-2"
    serves(aws.store, env)
    assert "/eu-south-2/s3/" in aws.store.requests[0]["headers"]["Authorization"]
    aws.region = "evil.example/"
    serves(aws.store, env)
    assert "/us-east-1/s3/" in aws.store.requests[-1]["headers"]["Authorization"]


def test_web_identity(aws, env, tmp_path):
    env.update(AWS_WEB_IDENTITY_TOKEN_FILE=web_token(tmp_path), AWS_ROLE_ARN=ids.ROLE_ARN, AWS_ROLE_SESSION_NAME="a session")
    serves(aws.store, env)
    assert [r["form"]["RoleSessionName"] for r in aws.requests] == ["a session"]
    pathlib.Path(env["AWS_WEB_IDENTITY_TOKEN_FILE"]).write_text("other")
    assert "no credentials from a web identity: http://127.0.0.1" in refused(aws.store, env)
    assert "/absent" in refused(aws.store, {**env, "AWS_WEB_IDENTITY_TOKEN_FILE": "/absent"})
    assert "AWS_ROLE_ARN" in refused(aws.store, {**env, "AWS_ROLE_ARN": ""})


def test_container(aws, env, tmp_path):
    (tmp_path / "container").write_text(ids.CONTAINER_TOKEN + "\n")
    env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"http://{aws.host}/container"
    serves(aws.store, {**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": ids.CONTAINER_TOKEN})
    serves(aws.store, {**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "container"), "AWS_CONTAINER_AUTHORIZATION_TOKEN": "x"})
    assert "answers 400" in refused(aws.store, {**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "other"})
    (tmp_path / "container").write_text("a\r\nX: y")
    assert "that it cannot have" in refused(aws.store, {**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "a\r\nX: y"})
    assert "has a character" in refused(aws.store, {**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "container")})


@pytest.mark.parametrize("host", ["169.254.169.254", "example.com", "169.254.170.2.example.com", "127.0.0.1@example.com", "127.1.example.com", "10.0.0.1"])
def test_container_of_another_host(aws, env, host):
    start = time.monotonic()
    log = refused(aws.store, {**env, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/container"})
    assert "must be https, or http to this machine" in log
    assert time.monotonic() - start < 30


def test_role_of_a_profile(aws, env, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[base]\naws_access_key_id = base-key\naws_secret_access_key = base-secret\n")
    (tmp_path / ".aws/config").write_text(
        f"[profile work]\nrole_arn = {ids.ROLE_ARN}\nsource_profile = base\nexternal_id = an id\nregion = eu-west-3\n"
        f"[profile web]\nrole_arn = {ids.ROLE_ARN}\nweb_identity_token_file = {web_token(tmp_path)}\n"
        f"[profile env]\nrole_arn = {ids.ROLE_ARN}\ncredential_source = Environment\n"
        f"[profile chain]\nrole_arn = {ids.ROLE_ARN}\nsource_profile = work\n"
        f"[profile mfa]\nrole_arn = {ids.ROLE_ARN}\nsource_profile = base\nmfa_serial = x\n[profile run]\ncredential_process = /bin/false\n")
    serves(aws.store, {**env, "AWS_PROFILE": "work"})
    assert aws.requests[-1]["form"]["ExternalId"] == "an id" and len(aws.requests) == 1
    serves(aws.store, {**env, "AWS_PROFILE": "web"})
    assert aws.requests[-1]["form"]["Action"] == "AssumeRoleWithWebIdentity"
    for profile, says in (("env", "'Environment' of a profile has no credentials"), ("chain", "has neither keys nor a web identity"),
                          ("mfa", "mfa_serial"), ("run", "credential_process, which is not read")):
        assert says in refused(aws.store, {**env, "AWS_PROFILE": profile})


def test_keys_are_renewed(aws, env):
    """A poll goes on beyond the end of the first keys, over a failure of the service too."""
    aws.seconds = 4
    with Server("--model-control-mode=poll", "--repository-poll-secs=1", repositories=[address(aws.store)], env=env) as server:
        infer(server)
        wait_until(lambda: aws.grants >= 3, 15)
        assert "answers 403" not in server.log_text()
        aws.broken = 500
        wait_until(lambda: "the ones before are used" in server.log_text(), 15)
        infer(server)
        check_log(server.log_text())


def test_no_metadata_service(aws, env):
    """Nobody answers: requests are anonymous, and a refusal says what was tried. A start waits a second."""
    dead = {**env, "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    log = refused(aws.store, dead)
    assert "no credentials were found in the environment or ~/.aws; no credentials from the instance's role: cannot reach http://127.0.0.1:9" in log
    aws.store.anonymous = True
    serves(aws.store, dead)
    aws.slow = 60
    start = time.monotonic()
    serves(aws.store, env)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("raw,says", [
    (b"", "has no word"), (b"{}", "has no word"), (b"<html>no</html>", "has no word"), (b"r" * 70000, "the answer has more than 65536 bytes")])
def test_instance_that_lies(aws, env, raw, says):
    aws.raw = raw
    assert says in refused(aws.store, env)
    aws.raw, aws.role = None, "a/../b"
    assert "name of the instance's role has a '/'" in refused(aws.store, env)


@pytest.mark.parametrize("raw,says", [
    (b"[]", "has no AccessKeyId"), (b"{", "credentials"), ({"Code": "AssumeRoleUnauthorizedAccess"}, "has the code AssumeRoleUnauthorizedAccess"),
    ({"AccessKeyId": "a b", "SecretAccessKey": "s"}, "has no AccessKeyId"), ({"AccessKeyId": "a\r\nX: y", "SecretAccessKey": "s"}, "that it cannot have"),
    ({"AccessKeyId": "a", "SecretAccessKey": "s" * 600}, "longer than 511 bytes"),
    ({"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t", "Expiration": "tomorrow"}, "Expiration is no time")])
def test_container_that_lies(aws, env, raw, says):
    aws.raw = raw
    env.update(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://{aws.host}/container", AWS_CONTAINER_AUTHORIZATION_TOKEN=ids.CONTAINER_TOKEN)
    assert says in refused(aws.store, env)


def test_redirects_get_no_secret(aws, env, tmp_path):
    aws.broken = 307
    env.update(AWS_WEB_IDENTITY_TOKEN_FILE=web_token(tmp_path), AWS_ROLE_ARN=ids.ROLE_ARN)
    assert "answers 307" in refused(aws.store, env)
    assert "/elsewhere" not in [r["path"] for r in aws.requests]


def test_entry_of_triton_without_a_key(aws, env, tmp_path):
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"s3": {"": {"key_id": "", "secret_key": "", "region": "ap-south-1", "session_token": "", "profile": ""}}}))
    serves(aws.store, {**env, "TRITON_CLOUD_CREDENTIAL_PATH": str(path)})
    assert "/ap-south-1/s3/" in aws.store.requests[0]["headers"]["Authorization"]


# ---- Google ----


def test_google_instance(google_ids, env):
    google_ids.seconds = 4
    with Server("--model-control-mode=poll", "--repository-poll-secs=1", repositories=[address(google_ids.store)], env=env) as server:
        infer(server)
        wait_until(lambda: google_ids.grants >= 2, 15)
        check_log(server.log_text())
    assert "the instance's service account: cannot reach" in refused(google_ids.store, {**env, "GCE_METADATA_HOST": "127.0.0.1:9"})


def test_google_federation(google_ids, env, tmp_path):
    file, subject = tmp_path / "federated.json", tmp_path / "subject.json"
    subject.write_text(json.dumps({"id_token": ids.WEB_TOKEN}))
    account = {"type": "external_account", "audience": "//iam/pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
               "token_url": f"http://{google_ids.host}/exchange", "credential_source": {"file": web_token(tmp_path)}}
    env["GOOGLE_APPLICATION_CREDENTIALS"] = str(file)
    file.write_text(json.dumps(account))
    serves(google_ids.store, env)
    file.write_text(json.dumps({**account, "service_account_impersonation_url": f"http://{google_ids.host}{ids.IMPERSONATE}",
                                "credential_source": {"file": str(subject), "format": {"type": "json", "subject_token_field_name": "id_token"}}}))
    serves(google_ids.store, env)
    assert [r["path"] for r in google_ids.requests] == ["/exchange", "/exchange", ids.IMPERSONATE]
    for change, says in (({"credential_source": {"executable": {"command": "x"}}}, "is no file"), ({"audience": ""}, "must have audience"),
                         ({"token_url": "http://example.com/token"}, "asked for by https"), ({"audience": "other"}, "the request is wrong"),
                         ({"credential_source": {"file": str(tmp_path / "absent")}}, "absent")):
        file.write_text(json.dumps({**account, **change}))
        assert says in refused(google_ids.store, env)


def test_google_default_file(google, env, tmp_path):
    folder = tmp_path / ".config/gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").write_text(pathlib.Path(env.pop("GOOGLE_APPLICATION_CREDENTIALS")).read_text())
    serves(google, env)


# ---- Azure ----


def test_azure_managed_identity(azure_ids, env):
    azure_ids.seconds = 4
    with Server("--model-control-mode=poll", "--repository-poll-secs=1", repositories=[address(azure_ids.store)],
                env={**env, "AZURE_CLIENT_ID": ids.CLIENT}) as server:
        infer(server)
        wait_until(lambda: azure_ids.grants >= 2, 15)
        check_log(server.log_text())
    assert {r["query"]["client_id"] for r in azure_ids.requests} == {ids.CLIENT}
    env["AZURE_POD_IDENTITY_AUTHORITY_HOST"] = "http://127.0.0.1:9"
    serves(azure_ids.store, {**env, "IDENTITY_ENDPOINT": f"http://{azure_ids.host}/msi/token", "IDENTITY_HEADER": ids.IDENTITY_HEADER})
    assert "Azure Arc" in refused(azure_ids.store, {**env, "IDENTITY_ENDPOINT": f"http://{azure_ids.host}/msi/token"})
    assert "the instance's managed identity: cannot reach" in refused(azure_ids.store, env)


def test_azure_workload_identity(azure_ids, env, tmp_path):
    env.update(AZURE_AUTHORITY_HOST=f"http://{azure_ids.host}/", AZURE_TENANT_ID=ids.TENANT, AZURE_CLIENT_ID=ids.CLIENT)
    serves(azure_ids.store, {**env, "AZURE_FEDERATED_TOKEN_FILE": web_token(tmp_path)})
    serves(azure_ids.store, {**env, "AZURE_CLIENT_SECRET": "client-secret"})
    assert "answers 400 Bad Request: invalid_request: the request is wrong" in refused(azure_ids.store, {**env, "AZURE_CLIENT_SECRET": "wrong"})
    assert "must name a tenant" in refused(azure_ids.store, {**env, "AZURE_CLIENT_SECRET": "client-secret", "AZURE_TENANT_ID": "../x"})
    assert "asked for by https" in refused(azure_ids.store, {**env, "AZURE_CLIENT_SECRET": "client-secret", "AZURE_AUTHORITY_HOST": "http://example.com"})


def test_a_command_reads_them_too(aws, env):
    run = subprocess.run([PROA, "run", address(aws.store, "absent"), "It was"], capture_output=True, text=True, env={**os.environ, **env})
    assert run.returncode == 1 and "has no objects" in run.stderr and aws.grants == 1
