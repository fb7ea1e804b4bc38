"""Directives as sbatch reads them: lines, options, values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.migrate import grammar, options
from airflows.migrate.directives import read_header, split_line
from airflows.migrate.report import Report
from airflows.migrate.resources import resources


def header_of(*lines: str):
    report = Report()
    return read_header(["#!/bin/bash", *lines], report), report


def options_of(*lines: str) -> list[tuple[str, str]]:
    header, _ = header_of(*lines)
    return [(each.name, each.value) for each in header.components[0]]


def asked(*lines: str):
    header, report = header_of(*lines)
    return resources(header.components[0], report)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90), ("1:30", 2), ("01:30:00", 90), ("1-12", 2160), ("1-2:3", 1563), ("1-2:3:1", 1564),
        ("01:90:00", 150), ("100:00:00", 6000), ("0", 0), ("-1", 0), ("UNLIMITED", 0), ("infinite", 0),
        ("1-", 1440), ("1d", None), ("24h", None), ("1.5", None), ("1-2-3", None), ("", None), ("1:2:3:4", None),
    ],
)  # fmt: skip
def test_times(text, minutes):
    assert grammar.minutes(text) == minutes


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("2G", 2048), ("2GB", 2048), ("2g", 2048), ("1500K", 2), ("300", 300), ("1T", 1 << 20), ("0", 0),
        ("1.5G", None), ("G", None), ("", None), ("2GiB", None),
    ],
)  # fmt: skip
def test_memory(text, mebibytes):
    assert grammar.mebibytes(text) == mebibytes


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("2", (2, 2)), ("2-4", (2, 4)), ("1k", (1024, 1024)), ("1,2,4-8:2", (1, 8)), ("4-2", None), ("0", (1, 1)), ("x", None)],
)  # fmt: skip
def test_node_counts(text, nodes):
    assert grammar.node_range(text) == nodes


@pytest.mark.parametrize(
    ("text", "indices", "throttle"),
    [
        ("0-9", "0-9", None), ("3,1,2", "1-3", None), ("0-9,5-12", "0-12", None), ("[1-3]", "1-3", None),
        ("1-10:2%4,15", "1,3,5,7,9,15", 4), ("1-3%0", "1-3", None), ("7", "7", None), ("0-4:4", "0,4", None),
        ("1,2,", "1-2", None), (",1", "1", None), ("1-3%", "1-3", None),
    ],
)  # fmt: skip
def test_arrays(text, indices, throttle):
    found = grammar.array(text)
    assert (found.text, found.throttle) == (indices, throttle)


@pytest.mark.parametrize("text", ["10-1", "", "a", ",", "1-", "1-3:0", "1;2", "0-99999999", "-1"])
def test_arrays_that_are_refused(text):
    assert grammar.array(text) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=6))
def test_an_array_is_the_set_of_its_parts(parts):
    text = ",".join(f"{first}-{first + length}:{step}" for first, length, step in parts)
    wanted = {index for first, length, step in parts for index in range(first, first + length + 1, step)}
    found = grammar.array(text)
    assert list(found.indices) == sorted(wanted)
    assert found.count == len(wanted)
    assert list(grammar.array(found.text).indices) == sorted(wanted)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", (4, None)), ("gpu", (1, None)), ("gpu:A100:2", (2, "a100")), ("gpu:a100", (1, "a100")),
        ("nvme:1", (0, None)), ("gpu:a100:2,nvme:1", (2, "a100")), ("gpu:a100_80gb:1(S:0)", (1, "a100_80gb")),
        ("gpu:x:y:z", None), ("none", (0, None)),
    ],
)  # fmt: skip
def test_generic_resources(text, gpus):
    assert grammar.gpus_of_gres(text) == gpus


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("B:USR1@120", ("USR1", 120, True)), ("SIGTERM", ("TERM", 60, False)), ("R:10@5", ("10", 5, False)),
        ("USR1@99999", None), ("FOO", None), ("@5", None),
    ],
)  # fmt: skip
def test_signals(text, signal):
    assert grammar.signal(text) == signal


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gpus-per-n", "gpus-per-node"), ("job-n", "job-name"), ("cpus-per-t", "cpus-per-task"), ("time", "time"),
        ("tasks-per-node", "ntasks-per-node"), ("node", None), ("gpus-p", None), ("", None), ("nonsense", None),
        ("container-image", "container-image"), ("mem", "mem"), ("part", "partition"),
    ],
)  # fmt: skip
def test_long_names_and_their_beginnings(text, name):
    assert options.by_beginning(text) == name


def test_values_by_equals_sign_blank_or_glued():
    wanted = [("nodes", "2"), ("nodes", "3"), ("nodes", "4"), ("nodes", "5")]
    assert options_of("#SBATCH --nodes=2 --nodes 3\t-N4 -N 5") == wanted


def test_flags_in_one_word():
    assert options_of("#SBATCH -HOs --requeue --exclusive=user") == [
        ("hold", ""), ("overcommit", ""), ("oversubscribe", ""), ("requeue", ""), ("exclusive", "user"),
    ]  # fmt: skip


def test_a_directive_needs_no_blank_behind_the_mark():
    assert options_of("#SBATCH--nodes=2") == [("nodes", "2")]


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCHx", "#SBATCH --nodes = 2", "#SBATCH --no-such-thing=1", "#SBATCH -N", "#SBATCH stray",
        "#SBATCH -y", '#SBATCH --job-name="open', "#SBATCH -J a\\ b", "#SBATCH --hold=1",
    ],
)  # fmt: skip
def test_what_sbatch_refuses_is_told_with_its_line(line):
    _, report = header_of("# comment", line)
    assert [(finding.line, finding.kind) for finding in report.warnings] == [(3, "invalid")]


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --time=1d",
        "#SBATCH --ntasks=0",
        "#SBATCH --mem=1.5G",
        "#SBATCH --nodes=4-2",
        "#SBATCH -n x",
        "#SBATCH -G a:b:c",
    ],
)
def test_a_value_that_sbatch_refuses_is_told_and_left_out(line):
    header, report = header_of(line)
    made = resources(header.components[0], report)
    assert [(finding.line, finding.kind) for finding in report.warnings] == [(2, "invalid")]
    assert (made.nodes, made.time_minutes, made.mem_per_node_mb, made.gpus_per_node) == (1, None, None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (' -J "a b" -N 2', ["-J", "a b", "-N", "2"]), (" -J a#b -N 2", ["-J", "a"]), (" -J 'a#b'", ["-J", "a#b"]),
        (' --comment=a" b"c', ["--comment=a bc"]), (" -N 2 \\", ["-N", "2"]), (' -J ""', ["-J"]), (' -J "a \\"b" c\\#d e\\ f', ["-J", 'a "b', "c#d", "e", "f"]),
    ],
)  # fmt: skip
def test_words_of_a_line(text, words):
    assert split_line(text) == (words, "")


def test_directives_end_at_the_first_command():
    header, report = header_of("#SBATCH -N 2", "", "  # note", "set -e", "#SBATCH -N 4")
    assert (header.body, len(header.components[0])) == (5, 1)
    assert [(finding.line, finding.kind) for finding in report.warnings] == [(6, "ignored-directive")]


def test_pbs_and_lsf_lines_win_unless_they_are_ignored():
    pbs = "#PBS -N other -l nodes=2:ppn=4,walltime=1:00:00 -q long"
    header, report = header_of("#SBATCH -J mine", pbs)
    assert header.last("job-name").value == "other"
    assert [header.last(name).value for name in ("nodes", "ntasks-per-node", "time", "partition")] == [
        "2", "4", "1:00:00", "long",
    ]  # fmt: skip
    assert report.kinds == {"pbs-directive"}
    header, report = header_of("#SBATCH -J mine --ignore-pbs", pbs)
    assert header.last("job-name").value == "mine"
    assert not report.kinds


@pytest.mark.parametrize(
    ("line", "nodes", "tasks", "gpus", "in_all"),
    [
        ("-n 8 --ntasks-per-node=4 --gres=gpu:2", 2, 4, 2, 4),
        ("-n 8 -N 4", 4, 2, None, None),
        ("-N 2 --ntasks-per-gpu=2 --gpus-per-node=4", 2, 8, 4, 8),
        ("-n 4 --gpus-per-task=a100:2", 1, 4, 8, 8),
        ("-N 3 -G 8", 3, 1, 3, 8),
        ("-N 2 -n 4 --tres-per-task=cpu=4,gres/gpu=1", 2, 2, 2, 4),
        ("-N 2 --gpus-per-socket=2", 2, 1, 2, 4),
        ("--gres=gpu:2 --gpus-per-node=3", 1, 1, 3, 3),
    ],
)
def test_nodes_tasks_and_gpus(line, nodes, tasks, gpus, in_all):
    made = asked(f"#SBATCH {line}")
    assert (made.nodes, made.tasks_per_node, made.gpus_per_node, made.total_gpus) == (
        nodes,
        tasks,
        gpus,
        in_all,
    )


@pytest.mark.parametrize(
    "line",
    [
        "--mem=1G --mem-per-cpu=1G",
        "--gpus-per-task=1",
        "--mem-per-gpu=1G",
        "-N 2 -G 1 --mem=1 --mem-per-gpu=1",
    ],
)
def test_options_that_exclude_each_other_are_told(line):
    header, report = header_of(f"#SBATCH {line}")
    resources(header.components[0], report)
    assert report.kinds == {"invalid"}


def test_cpus_and_memory_of_a_node():
    made = asked("#SBATCH -N 2 --ntasks-per-node=4 -c 3 --mem-per-cpu=2G")
    assert (made.cpus_per_node, made.mem_per_node_mb) == (12, 24 * 1024)


@given(st.text(max_size=80))
def test_no_directive_line_is_too_strange_to_read(text):
    line = f"#SBATCH {text}".splitlines()[0]
    header, report = header_of(line)
    resources(header.components[0], report)
    assert all(finding.line >= 1 for finding in report)
