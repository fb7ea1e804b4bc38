"""The fake workspace's files, users and grants, as databricks-sdk and plain HTTP see them."""

import base64
import io

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import (
    AlreadyExists,
    InvalidParameterValue,
    NotFound,
    PermissionDenied,
    ResourceAlreadyExists,
    ResourceConflict,
    Unauthenticated,
)
from databricks.sdk.service import iam
from databricks.sdk.service.workspace import ImportFormat

from airflows.testing.workspace import FakeWorkspace, submission

HOME = "/Workspace/Users/kim@example.com"
RAW = {"Content-Type": "application/octet-stream"}
IMPORT = "/api/2.0/workspace-files/import-file"
NASTY = bytes(range(256)) + b"\r\n--boundary\r\n\r\n"


@pytest.fixture(scope="module")
def workspace():
    with FakeWorkspace(
        volumes=["main.ml.data"],
        secrets={"nlp": {"hf": "s3cret"}},
        policies=[
            {"policy_id": f"id-{number}", "policy_name": name}
            for number, name in enumerate(("NLP", "nlp-large", "vision"))
        ],
        images=[{"docker_image_url": "docker.io/acme/x:1", "states": ["PENDING", "AVAILABLE"]}],
        validation_errors=[{"path": "compute", "message": "too many", "experiment": "greedy"}],
    ) as workspace:
        yield workspace


@pytest.fixture
def client(workspace):
    return WorkspaceClient(config=Config(host=workspace.host, token=workspace.token, retry_timeout_seconds=1))


def put_raw(client, path, content, overwrite="true"):
    query = {"overwrite": overwrite}
    return client.api_client.do("POST", f"{IMPORT}{path}", query=query, data=content, headers=dict(RAW))


def test_the_user_and_the_workspace_are_known_by_the_token(client):
    assert client.current_user.me().user_name == "kim@example.com"
    assert client.get_workspace_id() == 900


@pytest.mark.parametrize("token", ["nobody", "expired-token"])
def test_a_bad_token_opens_nothing(workspace, token):
    client = WorkspaceClient(config=Config(host=workspace.host, token=token, retry_timeout_seconds=1))

    with pytest.raises(Unauthenticated):
        client.current_user.me()


def test_a_service_principal_gets_a_token_by_oauth(workspace):
    config = Config(host=workspace.host, client_id="fake-client", client_secret="fake-secret")

    assert WorkspaceClient(config=config).current_user.me().user_name == "kim@example.com"
    assert config.auth_type == "oauth-m2m"


def test_raw_uploads_need_a_parent_and_overwrite_when_told(workspace, client):
    path = f"{HOME}/.air/a b/command.sh"
    with pytest.raises(NotFound, match="doesn't exist"):
        put_raw(client, path, b"echo one")
    client.workspace.mkdirs(f"{HOME}/.air/a b")
    put_raw(client, path, NASTY)
    with pytest.raises(ResourceConflict, match="already exists"):
        put_raw(client, path, b"echo two", overwrite="false")
    put_raw(client, path.replace("/", "%2F"), NASTY)

    assert workspace.get_file(path) == NASTY
    assert client.workspace.download(path).read() == NASTY
    assert client.workspace.get_status(path).object_type.value == "FILE"
    assert client.workspace.get_status("/Users/kim@example.com/.air").object_type.value == "DIRECTORY"


def test_the_sdk_s_upload_is_a_form(workspace, client):
    path = f"{HOME}/form.bin"
    client.workspace.upload(path, io.BytesIO(NASTY), format=ImportFormat.AUTO, overwrite=True)

    with pytest.raises(ResourceAlreadyExists, match="already exists"):
        client.workspace.upload(path, io.BytesIO(b""), format=ImportFormat.AUTO)
    assert workspace.get_file(path) == NASTY


def test_uploads_as_json_are_base64(workspace, client):
    content = base64.b64encode(NASTY).decode()
    client.workspace.import_(f"{HOME}/json.bin", content=content, format=ImportFormat.AUTO)

    assert workspace.get_file(f"{HOME}/json.bin") == NASTY
    assert base64.b64decode(client.workspace.export(f"{HOME}/json.bin").content) == NASTY
    assert f"{HOME}/json.bin" in [entry.path for entry in client.workspace.list(HOME)]


def test_paths_do_not_lead_out(client):
    for path in ("/../../etc/passwd", f"{HOME}/../../../x", "relative"):
        with pytest.raises(InvalidParameterValue):
            client.workspace.mkdirs(path)
        with pytest.raises(InvalidParameterValue):
            client.workspace.get_status(path)


def test_a_directory_cannot_take_a_file_s_place(client):
    put_raw(client, f"{HOME}/file", b"")

    with pytest.raises(ResourceAlreadyExists, match="already exists"):
        client.workspace.mkdirs(f"{HOME}/file/below")


def test_volume_files_go_through_the_files_api(workspace, client):
    path = "/Volumes/main/ml/data/.internal/x y.tar.gz"
    with pytest.raises(NotFound):
        client.files.get_metadata(path)
    with pytest.raises(NotFound):
        client.api_client.do("PUT", f"/api/2.0/fs/files{path}", data=NASTY, headers=dict(RAW))
    client.files.create_directory("/Volumes/main/ml/data/.internal")
    client.files.upload(path, io.BytesIO(NASTY), overwrite=True)
    with pytest.raises(AlreadyExists):
        client.files.upload(path, io.BytesIO(b""), overwrite=False)

    assert client.files.download(path).contents.read() == NASTY
    assert client.files.get_metadata(path).content_length == len(NASTY)
    listed = list(client.files.list_directory_contents("/Volumes/main/ml/data/.internal"))
    assert [(entry.name, entry.file_size) for entry in listed] == [("x y.tar.gz", len(NASTY))]
    assert workspace.get_file(path) == NASTY
    client.files.delete(path)
    assert workspace.get_file(path) is None


@pytest.mark.parametrize("path", ["/Volumes/main/ml/other/x", "/Volumes/main"])
def test_volumes_are_not_made_by_writing_into_them(client, path):
    with pytest.raises((NotFound, InvalidParameterValue)):
        client.files.create_directory(path)


def test_dbfs_takes_files_at_once_and_in_blocks(client):
    client.dbfs.put("/scratch/small", contents=base64.b64encode(NASTY).decode())
    with client.dbfs.open("/scratch/large", write=True) as file:
        file.write(NASTY * 9000)
    with client.dbfs.open("/scratch/large", read=True) as file:
        read = file.read()

    assert base64.b64decode(client.dbfs.read("/scratch/small").data) == NASTY
    assert read == (NASTY * 9000)[: len(read)]
    assert client.dbfs.get_status("/scratch/large").file_size == len(NASTY) * 9000


def test_policies_are_found_by_part_of_a_name_in_pages(client):
    query = {"filter_by": {"policy_name": "nLp"}, "page_size": 1}
    first = client.api_client.do("GET", "/api/2.0/serverless-policies", query=query)
    query["page_token"] = first["next_page_token"]
    second = client.api_client.do("GET", "/api/2.0/serverless-policies", query=query)

    found = [page["policies"][0]["policy_name"] for page in (first, second)]
    assert found == ["NLP", "nlp-large"]
    assert second["next_page_token"] == ""


def test_images_get_further_each_time_they_are_asked_for(client):
    at = "/api/2.0/ai-compute-manager/images"
    query = {"docker_image_url": "docker.io/acme/x:1"}
    states = [client.api_client.do("GET", f"{at}:get", query=query)["state"] for _ in range(3)]
    made = client.api_client.do("POST", at, body={"docker_image_url": "docker.io/acme/new:1"})

    assert states == ["PENDING", "AVAILABLE", "AVAILABLE"]
    assert made["image"]["state"] == "AVAILABLE"
    assert client.api_client.do("GET", f"{at}:checkImageAccess", query=query) == {"publicly_accessible": True}
    with pytest.raises(NotFound):
        client.api_client.do("GET", f"{at}:get", query={"docker_image_url": "docker.io/acme/unknown:1"})


def test_compute_options_are_the_accelerators(client):
    options = client.api_client.do("GET", "/api/2.0/ai-compute-manager/compute-options")

    assert {"hardware_accelerator": "GPU_8xH100"} in options["compute_options"]


def test_a_submission_can_be_checked_beforehand(workspace, client):
    def errors(**changes):
        task = submission(**changes)["tasks"][0]["ai_runtime_task"]
        body = {"task": task, "run_options": {"max_retries": 1}}
        answer = client.api_client.do("POST", "/api/2.0/ai-training/config:validate", body=body)
        return [error["path"] for error in answer.get("errors", [])]

    assert errors() == []
    assert errors(ai_task={"experiment": "greedy"}) == ["compute"]
    assert errors(compute=("GPU_8xH100", 3)) == ["compute"]
    assert workspace.runs == []


def test_secrets_are_kept_in_scopes(client):
    client.secrets.create_scope("mine")
    client.secrets.put_secret("mine", "key", string_value="värde")

    assert base64.b64decode(client.secrets.get_secret("mine", "key").value).decode() == "värde"
    assert [secret.key for secret in client.secrets.list_secrets("nlp")] == ["hf"]
    with pytest.raises(NotFound):
        client.secrets.get_secret("nlp", "other")
    with pytest.raises(NotFound):
        client.secrets.get_secret("other", "hf")


def test_permissions_are_granted_on_own_jobs(workspace, client):
    run_id = client.api_client.do("POST", "/api/2.2/jobs/runs/submit", body=submission())["run_id"]
    job = str(client.jobs.get_run(run_id).job_id)
    ask = iam.AccessControlRequest(group_name="team", permission_level=iam.PermissionLevel.CAN_VIEW)
    client.permissions.update("jobs", job, access_control_list=[ask])
    wrong = iam.AccessControlRequest(group_name="team", permission_level=iam.PermissionLevel.CAN_BIND)
    other = WorkspaceClient(config=Config(host=workspace.host, token="other-token"))

    granted = client.permissions.get("jobs", job).access_control_list

    assert [entry.group_name for entry in granted] == ["team"]
    with pytest.raises(InvalidParameterValue):
        client.permissions.update("jobs", job, access_control_list=[wrong])
    with pytest.raises(NotFound):
        client.permissions.update("jobs", "5", access_control_list=[ask])
    with pytest.raises(PermissionDenied):
        other.permissions.update("jobs", job, access_control_list=[ask])


def test_an_unknown_path_is_an_unknown_endpoint(client):
    with pytest.raises(NotFound, match="No API found") as caught:
        client.api_client.do("GET", "/api/2.0/no-such-thing")
    assert caught.value.error_code == "ENDPOINT_NOT_FOUND"
