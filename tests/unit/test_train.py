"""A train.yaml from text to typed run: types, rules, overrides, source text, and where errors point."""

from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.train import (
    ACCELERATORS,
    Compute,
    TrainConfig,
    TrainFile,
    decode,
    load_train,
    read_train,
)

MINIMAL = """\
experiment_name: x
command: "true"
compute:
  accelerator_type: GPU_8xH100
  num_accelerators: 16
"""
TREE = {
    "experiment_name": "x",
    "command": "true",
    "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 16},
}


def train(more: str = "", *overrides: str) -> TrainFile:
    return read_train(MINIMAL + more, file="train.yaml", overrides=overrides)


def refused(more: str, *overrides: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        train(more, *overrides)
    assert "\n" not in str(caught.value)
    return caught.value


def refused_text(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_train(text, file="train.yaml")
    return caught.value


# Shape of a run


@pytest.mark.parametrize(("kind", "per_node"), ACCELERATORS.items())
def test_nodes_follow_from_type_and_count(kind, per_node):
    config = decode({**TREE, "compute": {"accelerator_type": kind, "num_accelerators": 24}})

    assert (config.accelerators_per_node, config.nodes) == (per_node, 24 // per_node)


def test_a_full_file_is_typed_throughout():
    config = train("""\
environment:
  docker_image: {url: ' r.example.com/a:1 ', tag_policy: ' LATEST ', credentials_scope: s, credentials_key: k}
env_variables: {A: 1}
secrets: {HF: nlp/hf}
code_source: {type: snapshot, snapshot: {root_path: ., include_paths: [' a '], git: {branch: main, remote: false}}}
max_retries: 0
timeout_minutes: 90
permissions: [{group_name: ml, level: CAN_VIEW}]
parameters: {lr: 1e-3, opt: {betas: [0.9, 0.99]}}
""").config

    image, snapshot = config.environment.docker_image, config.code_source.snapshot
    assert (image.url, image.tag_policy, image.credentials_scope) == ("r.example.com/a:1", "latest", "s")
    assert (snapshot.root_path, snapshot.include_paths, snapshot.git.branch) == (".", ["a"], "main")
    assert (config.max_retries, config.timeout_minutes, config.permissions[0].level) == (0, 90, "CAN_VIEW")
    assert config.parameters == {"lr": 0.001, "opt": {"betas": [0.9, 0.99]}}


def test_what_is_left_out_has_its_default():
    config = train("environment: {docker_image: {url: a}}\n").config

    assert (config.env_variables, config.secrets, config.parameters, config.permissions) == ({}, {}, {}, None)
    assert (config.max_retries, config.code_source, config.environment.docker_image.tag_policy) == (
        None,
        None,
        "auto",
    )


def test_a_config_cannot_be_changed():
    config = train().config

    with pytest.raises(ValueError, match="frozen"):
        config.command = "other"


def test_python_and_yaml_build_the_same_object():
    built = TrainConfig(
        experiment_name="x",
        command="true",
        compute=Compute(accelerator_type="GPU_8xH100", num_accelerators=16),
        code_source={"root_path": Path("src")},
        env_variables={"N": 2.50, "T": True},
    )

    read = train("code_source: {root_path: src}\nenv_variables: {N: '2.5', T: 'true'}\n").config
    assert built == read
    assert built.model_dump() == read.model_dump()
    assert TrainConfig.model_validate(built.model_dump()) == built


def test_python_is_held_to_the_same_rules():
    with pytest.raises(SpecError, match="12 is not a multiple of 8") as caught:
        TrainConfig(**{**TREE, "compute": {"accelerator_type": "GPU_8xH100", "num_accelerators": 12}})

    assert caught.value.field == "compute.num_accelerators"


# Newer forms


def test_the_flat_code_source_is_the_snapshot_form():
    flat = train(
        "code_source: {root_path: src, include_paths: [a], git: {commit: 1e5}, remote_volume: /Volumes/v}\n"
    )
    long = train(
        "code_source: {type: snapshot, snapshot:"
        " {root_path: src, include_paths: [a], git: {commit: '1e5'}, remote_volume: /Volumes/v}}\n"
    )

    assert flat.config == long.config
    assert flat.tree["code_source"]["root_path"] == "src"


@pytest.mark.parametrize(
    ("more", "field", "words"),
    [
        ("code_source: {root_path: .}", None, ""),
        ("code_source: {type: snapshot, root_path: .}", None, ""),
        ("code_source: {root_path: ' '}", "code_source.root_path", "empty"),
        ("code_source: {include_paths: [a]}", "code_source.root_path", "missing"),
        ("code_source: {root_path: ., include_paths: [../a]}", "code_source.include_paths[0]", ".."),
        ("code_source: {root_path: ., git: {}}", "code_source.git", "branch or a commit"),
        ("code_source: {root_path: ., type: git}", "code_source.type", "'git'"),
        (
            "code_source: {root_path: ., snapshot: {root_path: .}}",
            "code_source.root_path",
            "both here and under",
        ),
        ("mlflow_artifact_location: /Volumes/a/b", None, ""),
        ("mlflow_artifact_location: ' '", "mlflow_artifact_location", "empty"),
        ("environment: {unity_catalog_image: a.b.c:1}", None, ""),
        ("environment: {unity_catalog_image: ' '}", "environment.unity_catalog_image", "empty"),
        (
            "environment: {unity_catalog_image: a.b.c:1, dependencies: []}",
            "environment.unity_catalog_image",
            "dependencies",
        ),
        (
            "environment: {unity_catalog_image: a.b.c:1, docker_image: {url: a}}",
            "environment.unity_catalog_image",
            "docker_image",
        ),
    ],
)
def test_newer_forms(more, field, words):
    if field is None:
        train(more + "\n")
        return
    error = refused(more + "\n")
    assert (error.field, error.line) == (field, 6)
    assert words in error.message


@pytest.mark.parametrize(
    ("compute", "field"),
    [
        ("pool_id: p-1", None),
        *[(f"pool_id: p-1, priority_class: {name}", None) for name in ("BEST_EFFORT", "NORMAL", "CRITICAL")],
        ("pool_id: ' '", "compute.pool_id"),
        ("priority_class: NORMAL", "compute.priority_class"),
        ("pool_id: p-1, priority_class: normal", "compute.priority_class"),
    ],
)
def test_reserved_capacity(compute, field):
    text = MINIMAL.replace("compute:\n", f"compute:\n  <<: {{{compute}}}\n")
    if field is None:
        read_train(text, file="train.yaml")
    else:
        assert refused_text(text).field == field


# Types


@pytest.mark.parametrize(
    "text",
    ["0042", "1.50", "0777", "yes", "True", "1e3", "0x1F", "2024-01-15", "1_000", "12:30", "-0", ".5", "+1"],
)
def test_text_fields_keep_their_source_text(text):
    more = f"""\
env_variables: {{A: {text}, B: '{text}'}}
environment: {{version: {text}, dependencies: [{text}]}}
permissions: [{{user_name: {text}, level: {text}}}]
usage_policy_name: {text}
"""
    for read in (train(more), train(more, "timeout_minutes=5", "env_variables.C=1")):
        config = read.config
        assert (config.env_variables["A"], config.env_variables["B"]) == (text, text)
        assert (config.environment.version, config.environment.dependencies) == (text, [text])
        assert (config.permissions[0].user_name, config.usage_policy_name) == (text, text)
        assert read.tree["env_variables"]["A"] == text
        assert read.notices == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("007", "7"),
        ("2.50", "2.5"),
        ("1e3", "1000"),
        ("0x1F", "31"),
        ("'007'", "007"),
        ("true", "true"),
        ("yes", "yes"),
        ("", ""),
        ("1e6", "1e+06"),
        ("2024-01-15", "2024-01-15T00:00:00Z"),
        ("a=b", "a=b"),
    ],
)
def test_the_value_of_an_override_of_text_is_what_ai_runtime_makes_of_it(value, text):
    assert train("", f"env_variables.N={value}").config.env_variables == {"N": text}


def test_null_is_absent_but_empty_as_a_variable():
    read = train(
        "max_retries: null\nenvironment:\npermissions: ~\nenv_variables: {A: , B: null}\nparameters: {a: null}\n"
    )

    assert (read.config.max_retries, read.config.environment, read.config.permissions) == (None, None, None)
    assert read.config.env_variables == {"A": "", "B": ""}
    assert read.config.parameters == {"a": None}
    assert "environment" not in read.tree


def test_null_items_of_typed_lists_are_dropped():
    assert train("environment: {dependencies: [a, null, b]}\n").config.environment.dependencies == ["a", "b"]
    assert "empty list" in str(refused("code_source: {root_path: ., include_paths: [null]}\n"))


@pytest.mark.parametrize(("text", "value"), [("8.0", 8), ("0x18", 24), ("1e1", 10), ("010", 8)])
def test_integers_may_be_written_in_other_ways(text, value):
    timeout = train(f"timeout_minutes: {text}\n").config.timeout_minutes

    assert (timeout, type(timeout)) == (value, int)


@pytest.mark.parametrize("text", ["'8'", "true", "soon", "1.5", ".inf", ".nan", "[1]", "{a: 1}", "1_0_x"])
def test_other_values_are_no_integers(text):
    error = refused(f"timeout_minutes: {text}\n")

    assert (error.file, error.line, error.field) == ("train.yaml", 6, "timeout_minutes")
    assert "whole number" in error.message


@pytest.mark.parametrize(
    ("more", "line", "field", "words"),
    [
        ("env_variables: [A=1]\n", 6, "env_variables", "a mapping, not a list"),
        ("env_variables:\n  CFG:\n    depth: 2\n", 7, "env_variables.CFG", "text, not a mapping"),
        ("parameters: 5\n", 6, "parameters", "a mapping, not the number 5"),
        ("permissions: {level: x}\n", 6, "permissions", "a list, not a mapping"),
        (
            "permissions:\n  - level: x\n    who: y\n",
            8,
            "permissions[0].who",
            "'who' is not a key of permissions[0]",
        ),
        ("environment: {dependencies: requirements.yaml}\n", 6, "environment.dependencies", "a list"),
        ("code_source: snapshot\n", 6, "code_source", "a mapping, not the text 'snapshot'"),
        (
            "code_source: {root_path: ., git: {branch: a, remote: [b]}}\n",
            6,
            "code_source.git.remote",
            "a list",
        ),
        ("num_nodes: 2\n", 6, "num_nodes", "'num_nodes' is not a key of train.yaml"),
        ("x-note: 2\n", 6, "x-note", "not a key"),
        ("timeout_minute: 2\n", 6, "timeout_minute", "Did you mean timeout_minutes?"),
        ("num_accelerator: 2\n", 6, "num_accelerator", "Did you mean compute.num_accelerators?"),
        (
            "environment: {docker: {url: a}}\n",
            6,
            "environment.docker",
            "Did you mean environment.docker_image?",
        ),
    ],
)
def test_a_type_error_names_line_and_field(more, line, field, words):
    error = refused(more)

    assert (error.file, error.line, error.field) == ("train.yaml", line, field)
    assert words in str(error)


def test_types_are_checked_in_the_whole_file_before_any_rule():
    assert refused_text("experiment_name: ''\nnum_nodes: 2\n").field == "num_nodes"


# Rules


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("mlflow_run_name: é\n", "mlflow_run_name"),
        ('mlflow_run_name: "a\\n"\n', None),
        ('code_source: {root_path: ., git: {branch: "main\\n"}}\n', "code_source.git.branch"),
        (f"idempotency_token: {'é' * 32}\n", None),
        (f"idempotency_token: {'é' * 33}\n", "idempotency_token"),
        (f"idempotency_token: '{'a' * 64} '\n", "idempotency_token"),
        (f"usage_policy_name: {'é' * 63}\n", None),
        (f"usage_policy_name: {'é' * 64}\n", "usage_policy_name"),
        ("usage_policy_name: ' '\n", "usage_policy_name"),
        ("usage_policy_id: ' 0B6F1D2C-4e5a-4c3b-9a7d-11aa22bb33cc '\n", None),
        ("usage_policy_name: ''\nusage_policy_id: x\n", "usage_policy_name"),
        ("mlflow_experiment_directory: /Workspace\n", None),
        ("mlflow_experiment_directory: ' '\n", "mlflow_experiment_directory"),
        ("environment: {version: '', dependencies: []}\n", None),
        ("environment: {version: ''}\n", "environment.version"),
        ("environment: {docker_image: {url: ' '}}\n", "environment.docker_image.url"),
        ("environment: {docker_image: {url: a, tag_policy: ''}}\n", None),
        (
            "environment: {docker_image: {url: a, credentials_scope: s, credentials_key: k}}\n",
            "environment.docker_image.tag_policy",
        ),
        ("environment: {docker_image: {url: a, credentials_scope: ' '}}\n", None),
        ("code_source: {root_path: ., remote_volume: ''}\n", "code_source.remote_volume"),
        ("code_source: {root_path: ., include_paths: [..hidden, a..b]}\n", None),
        ("code_source: {root_path: ., include_paths: [a, ' ']}\n", "code_source.include_paths[1]"),
        ("code_source: {root_path: ., git: {branch: a, remote: ''}}\n", None),
        ("code_source: {root_path: ., git: {branch: a, remote: 'false'}}\n", "code_source.git.remote"),
        ("code_source: {root_path: ., git: {branch: a, remote: no}}\n", "code_source.git.remote"),
        ("code_source: {root_path: ., git: {branch: a, remote: 0}}\n", "code_source.git.remote"),
        ("permissions: []\n", None),
        ("permissions: [{user_name: ' ', level: x}]\n", "permissions[0].user_name"),
        ("permissions: [{user_name: a, level: ' '}]\n", "permissions[0].level"),
        ("secrets: {A: /b}\n", "secrets.A"),
        ("secrets: {A: ' / '}\n", None),
    ],
)
def test_a_rule_names_its_field(more, field):
    if field is None:
        train(more)
    else:
        error = refused(more)
        assert (error.field, error.line) == (field, 6)


@pytest.mark.parametrize(("lines", "fine"), [(999, True), (1000, False)])
def test_a_command_has_at_most_1000_lines(lines, fine):
    command = "command: |\n" + "  true\n" * lines
    text = MINIMAL.replace('command: "true"\n', command)

    if fine:
        read_train(text, file="train.yaml")
    else:
        assert "1001 lines" in str(refused_text(text))


def test_rules_are_asked_in_the_order_of_the_reference():
    text = "experiment_name: a b\ncommand: ''\ncompute: {accelerator_type: gpu_8xh100, num_accelerators: 0}\n"
    fields = []
    for repair in (
        ("a b", "a"),
        ("gpu_8xh100", "GPU_8xH100"),
        ("accelerators: 0", "accelerators: 8"),
        ("''", "ls"),
    ):
        fields.append(refused_text(text).field)
        text = text.replace(*repair)

    assert fields == ["experiment_name", "compute.accelerator_type", "compute.num_accelerators", "command"]
    read_train(text, file="train.yaml")


def test_messages_say_what_to_do():
    message = str(refused_text(MINIMAL.replace("16", "12")))

    assert message == (
        "train.yaml:5: compute.num_accelerators: 12 is not a multiple of 8, "
        "the accelerators of one GPU_8xH100 node. Use 8 or 16."
    )


# Files


def test_an_empty_file_is_refused():
    for text in ("", "# nothing\n"):
        assert "empty" in str(refused_text(text))


def test_a_null_document_lacks_its_name():
    assert refused_text("---\n").field == "experiment_name"


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "5\n"])
def test_other_documents_are_refused(text):
    assert "is a mapping" in str(refused_text(text))


def test_a_file_is_loaded_with_its_path(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(MINIMAL)

    read = load_train(path, ["compute.num_accelerators=8"])

    assert (read.path, read.config.nodes) == (path, 1)


def test_doubtful_values_of_parameters_are_noticed():
    (notice,) = train("parameters: {ema: on}\nenv_variables: {A: on}\n").notices

    assert (notice.line, notice.field) == (6, "parameters.ema")
