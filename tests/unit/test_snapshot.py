import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflows import gitrepo
from airflows.errors import AirflowsError, SpecError
from airflows.snapshot import kept_snapshot, root_directory, snapshot
from airflows.train import read_train

AT = datetime(2026, 1, 31, 8, tzinfo=UTC)


@pytest.fixture(autouse=True)
def own_git(monkeypatch, tmp_path):
    """A git without what the machine's user has configured."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()


@pytest.fixture
def project(tmp_path):
    """A directory with code, outside any repository."""
    path = tmp_path / "project"
    write(path, {"train.py": "print(1)\n", "lib/model.py": "x = 1\n", "data/big.bin": "0\n"})
    return path


@pytest.fixture
def repository(project):
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", ".")
    commit(project, "first")
    return project


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def write(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def git(directory, *arguments):
    done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(directory, message):
    identity = ["-c", "user.name=Kim", "-c", "user.email=kim@example.com"]
    git(directory, *identity, "commit", "--quiet", "--all", "--message", message)
    return git(directory, "rev-parse", "HEAD")


def config(extra="", root_path="."):
    text = f"""
experiment_name: demo
command: "true"
compute: {{accelerator_type: GPU_1xA10, num_accelerators: 1}}
code_source:
  type: snapshot
  snapshot:
    root_path: {root_path!r}
    {extra}
"""
    return read_train(text, file="train.yaml").config


def packed(made):
    return sorted(str(path.relative_to(made.path)) for path in made.path.rglob("*") if not path.is_dir())


def take(project, root, extra="", **how):
    return snapshot(config(extra), project, root, at=AT, **how)


def test_without_a_code_source_there_is_nothing_to_keep(project, root):
    text = "experiment_name: e\ncommand: c\ncompute: {accelerator_type: GPU_1xA10, num_accelerators: 1}\n"

    assert snapshot(read_train(text, file="train.yaml").config, project, root) is None
    assert not root.exists()


def test_files_are_kept_below_their_digest_and_the_name_of_the_root(project, root):
    made = take(project, root)

    assert made.path == root / "snapshots" / made.digest / "project"
    assert packed(made) == ["data/big.bin", "lib/model.py", "train.py"]
    assert (made.path / "train.py").read_text() == "print(1)\n"
    assert sorted(path.name for path in (root / "snapshots").iterdir()) == [made.digest]


def test_the_digest_depends_on_names_contents_and_the_right_to_run_alone(project, root, tmp_path):
    first = take(project, root).digest
    shutil.copytree(project, tmp_path / "elsewhere" / "copy")
    assert take(tmp_path / "elsewhere" / "copy", tmp_path / "other root").digest == first
    (project / "train.py").touch()
    (project / "train.py").chmod(0o640)
    assert take(project, root).digest == first

    changes = []
    (project / "train.py").chmod(0o755)
    changes.append(take(project, root).digest)
    (project / "train.py").rename(project / "main.py")
    changes.append(take(project, root).digest)
    (project / "main.py").write_text("print(2)\n")
    changes.append(take(project, root).digest)

    assert len({first, *changes}) == 4


def test_what_is_kept_does_not_change_with_the_project(project, root):
    before = take(project, root)
    (project / "train.py").write_text("print(2)\n")
    after = take(project, root)

    assert before.digest != after.digest
    assert (before.path / "train.py").read_text() == "print(1)\n"
    assert kept_snapshot(root, before.digest, "project").path == before.path
    assert kept_snapshot(root, "", "project") is None
    assert kept_snapshot(root, "0" * 64, "project") is None


def test_equal_code_is_kept_once(project, root):
    before = take(project, root)
    marker = before.path / "train.py"
    inode = marker.stat().st_ino

    assert take(project, root).path == before.path
    assert marker.stat().st_ino == inode


def change(path, text):
    """Write into a snapshot, as root could, and whoever gives himself the right."""
    path.parent.chmod(0o755)
    if path.exists():
        path.chmod(0o644)
    path.write_text(text)


def test_what_is_kept_is_read_only(project, root):
    (project / "train.py").chmod(0o775)
    made = take(project, root)

    kept = [made.path, *made.path.rglob("*")]
    assert [path for path in kept if path.stat().st_mode & 0o222] == []
    assert (made.path / "train.py").stat().st_mode & 0o100


@pytest.mark.parametrize("extra", ["", "git: {commit: HEAD}"])
@pytest.mark.parametrize("name", ["train.py", "new.py"])
def test_a_snapshot_that_was_changed_is_made_anew_and_the_change_is_kept(repository, root, extra, name):
    before = take(repository, root, extra)
    change(before.path / name, "by a trial\n")
    assert kept_snapshot(root, before.digest, "project") is None

    after = take(repository, root, extra)

    assert after.path == before.path
    assert kept_snapshot(root, before.digest, "project") == replace(after, notices=())
    (notice,) = after.notices
    (changed,) = after.path.parent.glob("project.changed-*")
    assert str(changed) in notice
    assert (changed / name).read_text() == "by a trial\n"
    assert take(repository, root, extra).notices == ()


def test_byte_code_in_a_snapshot_is_no_change(project, root):
    made = take(project, root)
    (made.path / "lib").chmod(0o755)
    (made.path / "lib" / "__pycache__").mkdir()
    (made.path / "lib" / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"\0")

    assert kept_snapshot(root, made.digest, "project") == made


@pytest.mark.parametrize("in_repository", [True, False])
def test_what_git_ignores_stays_out(project, root, in_repository):
    if in_repository:
        git(project, "init", "--quiet")
    write(
        project,
        {
            ".gitignore": "*.log\n/data/\n!keep.log\nlib/*.tmp\n",
            "lib/.gitignore": "secret.txt\n",
            "a.log": "", "keep.log": "", "lib/b.log": "", "lib/c.tmp": "", "lib/secret.txt": "",
        },
    )  # fmt: skip

    names = packed(take(project, root))

    assert names == [".gitignore", "keep.log", "lib/.gitignore", "lib/model.py", "train.py"]


def test_without_git_the_simple_rules_of_the_root_hold(project, root, monkeypatch):
    monkeypatch.setattr(gitrepo, "is_installed", lambda: False)
    write(
        project, {".gitignore": "# c\n\n*.log\n/data/\n!x\n**/deep\nout/**\n", "a/b.log": "", "a/deep/f": ""}
    )
    write(project, {"out/f": "", "a/data/f": "", ".git/config": ""})

    assert packed(take(project, root)) == [".gitignore", "a/data/f", "lib/model.py", "train.py"]


def test_repositories_byte_code_and_attribute_files_stay_out(repository, root):
    write(repository, {"._train.py": "", "lib/__pycache__/model.pyc": "", "lib/._x/f": ""})
    git(repository, "init", "--quiet", "vendored")
    write(repository, {"vendored/code.py": ""})

    assert packed(take(repository, root)) == ["data/big.bin", "lib/model.py", "train.py", "vendored/code.py"]


def test_uncommitted_and_new_files_are_packed_and_deleted_ones_are_not(repository, root):
    write(repository, {"train.py": "print(2)\n", "new.py": ""})
    (repository / "data/big.bin").unlink()

    made = take(repository, root)

    assert packed(made) == ["lib/model.py", "new.py", "train.py"]
    assert (made.path / "train.py").read_text() == "print(2)\n"


def test_a_project_in_an_ignored_corner_of_a_repository_is_packed(repository, root):
    write(
        repository, {".gitignore": "scratch/\n", "scratch/p/train.py": "", "scratch/p/.gitignore": "*.log\n"}
    )
    write(repository, {"scratch/p/a.log": ""})

    assert packed(take(repository / "scratch" / "p", root)) == [".gitignore", "train.py"]


@pytest.mark.parametrize("has_git", [True, False])
def test_links_are_kept_as_links_and_pipes_are_left_out(project, root, monkeypatch, has_git):
    if not has_git:
        monkeypatch.setattr(gitrepo, "is_installed", lambda: False)
    (project / "link.py").symlink_to("train.py")
    (project / "folder").symlink_to("lib")
    (project / "dead").symlink_to("nowhere")
    os.mkfifo(project / "pipe")

    made = take(project, root)

    assert (made.path / "link.py").readlink().name == "train.py"
    assert (made.path / "folder").is_symlink()
    assert (made.path / "dead").is_symlink()
    assert not (made.path / "pipe").exists()


def test_the_root_itself_is_never_packed(project):
    root = project / ".airflows"

    first = take(project, root)
    second = take(project, root)

    assert first.digest == second.digest
    assert packed(first) == ["data/big.bin", "lib/model.py", "train.py"]


def test_names_of_every_kind_survive(project, root):
    names = ["a b.py", "ü'\"$x.py", "new\nline.py", "-n"]
    write(project, dict.fromkeys(names, ""))

    assert set(names) <= set(packed(take(project, root)))


def test_only_included_paths_are_packed(project, root):
    assert packed(take(project, root, "include_paths: [lib, ' train.py ']")) == ["lib/model.py", "train.py"]


@pytest.mark.parametrize(
    ("path", "words"),
    [("nothing", "does not exist below"), ("empty", "no files to pack, or git ignores them")],
)
def test_an_included_path_without_files_is_an_error(project, root, path, words):
    (project / "empty").mkdir()

    with pytest.raises(SpecError, match=words) as caught:
        take(project, root, f"include_paths: [{path}]")

    assert caught.value.field == "code_source.snapshot.include_paths"


def test_a_project_without_files_is_an_error_and_leaves_nothing(tmp_path, root):
    (tmp_path / "empty").mkdir()

    with pytest.raises(SpecError, match="nothing to pack"):
        take(tmp_path / "empty", root)

    assert list((root / "snapshots").iterdir()) == []


# Commits


def test_a_commit_is_packed_whatever_the_work_tree_holds(repository, root):
    first = git(repository, "rev-parse", "HEAD")
    write(repository, {"train.py": "print(2)\n", "dirty.py": ""})

    made = take(repository, root, f"git: {{commit: {first[:10]}}}")

    assert packed(made) == ["data/big.bin", "lib/model.py", "train.py"]
    assert (made.path / "train.py").read_text() == "print(1)\n"
    assert json.loads((made.path.parent / "git_state.json").read_text())["tip_commit"] == first


def test_a_name_that_moves_means_the_commit_of_now(repository, root):
    git(repository, "tag", "release")
    before = take(repository, root, "git: {commit: release}")
    write(repository, {"train.py": "print(2)\n"})
    commit(repository, "second")
    git(repository, "tag", "--force", "release")

    assert take(repository, root, "git: {commit: release}").digest != before.digest
    assert take(repository, root, "git: {commit: HEAD~1}").digest == before.digest


def test_a_commit_and_the_same_files_as_they_are_have_one_digest(repository, root):
    assert take(repository, root, "git: {branch: main}").digest == take(repository, root).digest


def test_a_commit_is_packed_from_the_root_path_down_and_as_included(repository, root):
    made = snapshot(config("git: {commit: HEAD}", root_path="lib"), repository, root)
    assert made.path.name == "lib"
    assert packed(made) == ["model.py"]

    assert packed(take(repository, root, "git: {commit: HEAD}\n    include_paths: [lib]")) == ["lib/model.py"]


@pytest.mark.parametrize(
    ("extra", "field", "words"),
    [
        ("git: {commit: 0123abc}", "git.commit", "commit 0123abc is not in the repository"),
        ("git: {commit: --help}", "git.commit", "is not in the repository"),
        ("git: {branch: other}", "git.branch", "no local branch other"),
        (
            "git: {commit: HEAD}\n    include_paths: [lib, gone, away]",
            "include_paths",
            "gone, away does not exist at",
        ),
    ],
)
def test_what_git_does_not_have_is_an_error(repository, root, extra, field, words):
    with pytest.raises(SpecError, match=words) as caught:
        take(repository, root, extra)

    assert caught.value.field == f"code_source.snapshot.{field}"


def test_a_branch_with_uncommitted_changes_is_an_error_unless_they_are_elsewhere(repository, root):
    write(repository, {"lib/model.py": "x = 2\n"})

    with pytest.raises(SpecError, match="uncommitted changes"):
        take(repository, root, "git: {branch: main}")
    take(repository, root, "git: {branch: main}\n    include_paths: [train.py]")


def test_a_commit_of_no_repository_is_an_error(project, root):
    with pytest.raises(SpecError, match="not in a git repository"):
        take(project, root, "git: {commit: HEAD}")


# Sidecars


def test_the_state_of_the_repository_is_told(repository, root):
    git(repository, "remote", "add", "origin", "https://kim:hidden@example.com/p.git")
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "work")
    write(repository, {"train.py": "print(2)\n"})

    made = take(repository, root)

    state = json.loads((made.path.parent / "git_state.json").read_text())
    assert state == {
        "schema_version": 1,
        "packaging_mode": "plain_tar",
        "base_commit": first,
        "tip_commit": first,
        "branch": "work",
        "repo_url": "https://example.com/p.git",
        "dirty": True,
        "diff_status": "captured",
        "diff_path": "git_diff.patch",
        "generated_at_utc": "2026-01-31T08:00:00.000000Z",
    }
    patch = made.path.parent / "git_diff.patch"
    assert "+print(2)" in patch.read_text()
    assert patch.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in made.sidecars] == ["git_state.json", "git_diff.patch"]


def test_the_patch_is_gits_own_whatever_is_configured(repository, root):
    git(repository, "config", "color.ui", "always")
    git(repository, "config", "diff.external", "false")
    write(repository, {"train.py": "print(2)\n"})

    made = take(repository, root)

    patch = (made.path.parent / "git_diff.patch").read_text()
    assert patch.startswith("diff --git a/train.py b/train.py\n")
    assert "\n+print(2)\n" in patch


def test_a_clean_repository_and_a_huge_change_have_no_patch(repository, root):
    made = take(repository, root)
    assert json.loads((made.path.parent / "git_state.json").read_text())["diff_status"] == "clean"

    write(repository, {"train.py": "x" * (2 << 20)})
    made = take(repository, root)
    assert json.loads((made.path.parent / "git_state.json").read_text())["diff_status"] == "size_exceeded"
    assert [path.name for path in made.sidecars] == ["git_state.json"]


def test_outside_a_repository_there_are_no_sidecars(project, root):
    assert take(project, root).sidecars == []


def test_a_repository_without_a_commit_is_no_trouble(project, root):
    git(project, "init", "--quiet")

    state = json.loads((take(project, root).path.parent / "git_state.json").read_text())

    assert state["tip_commit"] is None
    assert state["base_commit"] is None


def test_a_git_directory_of_somebody_else_does_not_mislead(repository, root, monkeypatch, tmp_path):
    git(tmp_path, "init", "--quiet", "hook")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hook" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "hook" / "index"))

    assert packed(take(repository, root)) == ["data/big.bin", "lib/model.py", "train.py"]


# Where and whether


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".", "base"),
        ("sub", "base/sub"),
        ("project_root/sub", "base/sub"),
        ("../other", "other"),
        ("$WHERE/x", "where/x"),
        ("${WHERE}/x", "where/x"),
        ("a$UNSET/b", "base/a/b"),
        ("~/code", "user/code"),
        ("~", "user"),
        ("a~b", "base/a~b"),
    ],
)
def test_a_root_path_is_resolved(tmp_path, monkeypatch, text, expected):
    monkeypatch.setenv("WHERE", str(tmp_path / "where"))
    monkeypatch.delenv("UNSET", raising=False)

    assert root_directory(text, tmp_path / "base") == tmp_path / expected


@pytest.mark.parametrize(
    ("name", "words"), [("missing", "does not exist"), ("train.py", "is not a directory")]
)
def test_a_root_path_must_be_a_directory(project, root, name, words):
    with pytest.raises(SpecError, match=words) as caught:
        snapshot(config(root_path=name), project, root)

    assert caught.value.field == "code_source.snapshot.root_path"
    assert not root.exists()


def test_a_disk_that_cannot_be_written_is_one_plain_error(project, tmp_path):
    (tmp_path / "root").write_text("a file")

    with pytest.raises(AirflowsError, match="cannot be kept in") as caught:
        take(project, tmp_path / "root")

    assert "AIRFLOWS_HOME" in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_disk_that_fills_up_leaves_nothing_behind(project, root, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(AirflowsError, match="No space left on device"):
        take(project, root)

    assert list((root / "snapshots").iterdir()) == []


def test_much_data_is_noticed(project, root, monkeypatch):
    monkeypatch.setattr("airflows.snapshot._LARGE_BYTES", 1)

    (notice,) = take(project, root).notices

    assert "3 files" in notice
    assert "include_paths" in notice
