import json
from importlib import metadata

import pytest
import typer
from typer.testing import CliRunner

from forebay.cli import inventory as gathering
from forebay.cli.doctor import doctor
from forebay.cuda.available import gpu_count, why_not
from forebay.tier.links import Links

app = typer.Typer()
app.command()(doctor)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """What the whole command says of this machine, measured once."""
    folder = tmp_path_factory.mktemp("disk")
    result = run("--json", "--directory", str(folder), "--save", str(folder / "machine.json"))
    assert result.exit_code == 0, result.output
    assert json.loads((folder / "machine.json").read_text()) == json.loads(result.stdout)
    return json.loads(result.stdout)


@pytest.mark.slow
def test_the_json_holds_everything(facts):
    assert set(facts) == {
        "forebay", "python", "platform", "cpus", "libraries", "missing",
        "gpus", "no_gpu", "directory", "memory", "links",
    }  # fmt: skip
    assert set(facts["memory"]) == {"device", "host", "disk"}
    assert set(facts["links"]) == set(Links.__dataclass_fields__)


def test_links_are_positive_or_absent(facts):
    speeds = [value for name, value in facts["links"].items() if name != "disk_method" and value is not None]
    assert speeds and all(value > 0 for value in speeds)
    assert facts["links"]["host_copy"] > 0
    assert (facts["links"]["pinned_up"] is None) == (gpu_count() == 0)


def test_memory_is_free_of_total(facts):
    for tier in ("host", "disk"):
        assert 0 < facts["memory"][tier]["free"] <= facts["memory"][tier]["total"]


def test_either_a_gpu_or_the_reason(facts):
    assert len(facts["gpus"]) == gpu_count()
    assert facts["no_gpu"] == (why_not() or None)


def test_libraries_are_those_of_the_project_file(facts):
    if facts["forebay"] is None:
        pytest.skip("Forebay is not installed here")
    named = {library["name"] for library in facts["libraries"]}
    extras = {library["extra"] for library in facts["libraries"]}
    assert {"numpy", "typer", "cuda-core", "zfpy"} <= named
    assert {None, "cuda13", "codecs", "torch"} <= extras and not {"all", "test"} & extras
    versions = {library["name"]: library["installed"] for library in facts["libraries"]}
    assert versions["numpy"] == metadata.version("numpy")


def test_what_is_missing_comes_with_a_command(facts):
    lacking = {(library["extra"], library["name"]) for library in facts["libraries"] if not library["ok"]}
    told = {(missing["extra"], name) for missing in facts["missing"] for name in missing["libraries"]}
    assert told == lacking
    for missing in facts["missing"]:
        assert missing["command"].startswith("pip install ")
        assert all(f'"{name}' in missing["command"] for name in missing["libraries"])


def distribution(monkeypatch, requires, installed, extras=("fast", "test")):
    """Pretend that Forebay asks for some libraries and that some are installed."""
    own = metadata.metadata("typer")
    del own["Requires-Dist"], own["Provides-Extra"]
    for text in requires:
        own["Requires-Dist"] = text
    for extra in extras:
        own["Provides-Extra"] = extra

    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(gathering.metadata, "metadata", lambda _name: own)
    monkeypatch.setattr(gathering.metadata, "version", version)


def test_old_missing_and_foreign_libraries(monkeypatch, tmp_path):
    requires = [
        "good>=2",
        "old>=2",
        'absent[part]>=1; extra == "fast"',
        'elsewhere; sys_platform == "win32"',
        'pytest; extra == "test"',
    ]
    distribution(monkeypatch, requires, {"forebay": "1.0", "good": "2.0.1+cpu", "old": "1.9"})
    found = gathering.gather(tmp_path, measure=False)
    assert [(library.name, library.extra, library.ok) for library in found.libraries] == [
        ("good", None, True),
        ("old", None, False),
        ("absent", "fast", False),
    ]
    assert [missing.command for missing in found.missing] == ['pip install "old>=2"', 'pip install "absent[part]>=1"']
    shown = run("--quick", "--directory", str(tmp_path)).stdout
    assert 'pip install "absent[part]>=1"' in shown and "1.9" in shown


@pytest.mark.parametrize(
    ("installed", "shown"), [({}, "cuda13"), ({"cupy-cuda12x": "14"}, "cuda12"), ({"cupy-cuda13x": "14"}, "cuda13")]
)
def test_libraries_of_one_cuda_are_enough(monkeypatch, tmp_path, installed, shown):
    requires = [f'cupy-{extra}x; extra == "{extra}"' for extra in ("cuda12", "cuda13")]
    requires += [f'cuda-core; extra == "{extra}"' for extra in ("cuda12", "cuda13")]
    distribution(monkeypatch, requires, {"forebay": "1.0", "cuda-core": "1.0"} | installed, ("cuda12", "cuda13"))
    assert {library.extra for library in gathering.gather(tmp_path, measure=False).libraries} == {shown}


def test_not_installed_at_all(monkeypatch, tmp_path):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(gathering.metadata, "metadata", unknown)
    monkeypatch.setattr(gathering.metadata, "version", unknown)
    shown = run("--quick", "--directory", str(tmp_path))
    assert shown.exit_code == 0
    assert "pip install ." in shown.stdout


def test_shown_to_people(monkeypatch, tmp_path):
    known = Links(host_copy=1.5e10, pinned_up=5.5e10, disk_write=2e9, disk_read=3e9, disk_method="O_DIRECT")
    monkeypatch.setattr(gathering, "measure_links", lambda _directory: known)
    shown = run("--directory", str(tmp_path))
    assert shown.exit_code == 0
    for text in ("15GB/s", "55GB/s", "2GB/s", "O_DIRECT", "Libraries", "host"):
        assert text in shown.stdout
    if gpu_count() == 0:
        assert "no GPU: " in shown.stdout


def test_quick_measures_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(gathering, "measure_links", lambda _directory: pytest.fail("it measured"))
    shown = run("--quick", "--json", "--directory", str(tmp_path))
    assert json.loads(shown.stdout)["links"] is None


@pytest.mark.parametrize("kind", ["absent", "file"])
def test_a_bad_directory_is_refused_before_measuring(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(gathering, "gather", lambda *_args, **_options: pytest.fail("it went on"))
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    shown = run("--json", "--directory", str(path))
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert "give a directory" in " ".join(shown.stderr.split())
