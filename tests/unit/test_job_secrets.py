import pytest

from airflows.errors import SpecError
from airflows.job_secrets import FILE_NAME, resolve, variable

SECRETS = {"HF": "nlp/hf-token", "DB": "ops/db.password"}


@pytest.fixture
def keep(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / FILE_NAME
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


@pytest.mark.parametrize(
    ("reference", "name"),
    [("nlp/hf-token", "NLP__HF_TOKEN"), ("a.b/c d", "A_B__C_D"), ("S/k_1", "S__K_1"), ("team/ö", "TEAM___")],
)
def test_a_reference_has_one_variable(reference, name):
    assert variable(reference) == name


def test_the_environment_comes_before_the_file(tmp_path, keep):
    keep("NLP__HF_TOKEN=file\nOPS__DB_PASSWORD=from file\n")

    found = resolve(SECRETS, tmp_path, {"NLP__HF_TOKEN": "environment"})

    assert found == {"HF": "environment", "DB": "from file"}


def test_the_file_takes_comments_quotes_and_export(tmp_path, keep):
    keep("# mine\n\nexport NLP__HF_TOKEN='a # b'\nOPS__DB_PASSWORD = p=\"q\" \n")

    assert resolve(SECRETS, tmp_path, {}) == {"HF": "a # b", "DB": 'p="q"'}


def test_an_empty_value_is_a_value(tmp_path):
    assert resolve({"HF": "nlp/hf-token"}, tmp_path, {"NLP__HF_TOKEN": ""}) == {"HF": ""}


def test_what_is_missing_is_named_with_both_ways_to_give_it(tmp_path):
    with pytest.raises(SpecError) as caught:
        resolve(SECRETS, tmp_path, {"OPS__DB_PASSWORD": "hidden"})

    text = str(caught.value)
    assert "HF (secret nlp/hf-token)" in text
    assert "environment variable NLP__HF_TOKEN" in text
    assert f"NLP__HF_TOKEN=… into {tmp_path / FILE_NAME} (mode 0600)" in text
    assert "DB" not in text
    assert "hidden" not in text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path, keep, mode):
    path = keep("NLP__HF_TOKEN=hidden\n", mode)

    with pytest.raises(SpecError, match=f"its mode is {mode:04o}") as caught:
        resolve({"HF": "nlp/hf-token"}, tmp_path, {})

    assert f"chmod 600 {path}" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_not_needed_is_not_looked_at(tmp_path, keep):
    keep("NLP__HF_TOKEN=x\n", 0o644)

    assert resolve({}, tmp_path, {}) == {}
    assert resolve({"HF": "nlp/hf-token"}, tmp_path, {"NLP__HF_TOKEN": "v"}) == {"HF": "v"}


def test_a_line_of_another_form_is_named_by_its_number_and_never_shown(tmp_path, keep):
    keep("# first\nNLP__HF_TOKEN=part one\nhidden second part\n")

    with pytest.raises(SpecError) as caught:
        resolve({"HF": "nlp/hf-token"}, tmp_path, {})

    assert caught.value.line == 3
    assert "hidden" not in str(caught.value)


def test_a_directory_instead_of_the_file_is_one_paragraph(tmp_path):
    (tmp_path / FILE_NAME).mkdir(mode=0o700)

    with pytest.raises(SpecError, match="cannot be read"):
        resolve({"HF": "nlp/hf-token"}, tmp_path, {})
