"""Files and folders are whole or not there, and nobody else may read them."""

import os
import stat
import sys

import pytest

from forebay import files
from forebay.files import remove, whole


def write(path, folder, text):
    (path / "values" if folder else path).write_text(text)


def read(path, folder):
    return (path / "values" if folder else path).read_text()


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("moment", ["while it is written", "fsync", "replace"])
def test_who_is_interrupted_leaves_the_old_one_whole(tmp_path, monkeypatch, folder, moment):
    path = tmp_path / "image"
    with whole(path, folder=folder) as unfinished:
        write(unfinished, folder, "old")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "exchange", lambda one, other: False)
    if moment != "while it is written":
        monkeypatch.setattr(os, moment, interrupted)

    def rewrite():
        with whole(path, folder=folder) as unfinished:
            write(unfinished, folder, "half")
            if moment == "while it is written":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewrite()
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["image"] and read(path, folder) == "old"
    with whole(path, folder=folder) as unfinished:
        write(unfinished, folder, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["image"] and read(path, folder) == "new"


@pytest.mark.parametrize("folder", [False, True])
def test_it_is_brought_to_the_disk_unless_its_caller_does_that(tmp_path, monkeypatch, folder):
    synced = []
    monkeypatch.setattr(files, "sync", synced.append)
    for asked in (False, True):
        with whole(tmp_path / "image", folder=folder, synced=asked) as unfinished:
            write(unfinished, folder, f"synced: {asked}")
        assert read(tmp_path / "image", folder) == f"synced: {asked}"
        assert bool(synced) == asked and (tmp_path in synced) == asked


@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError])
def test_between_two_renames_the_old_folder_comes_back(tmp_path, monkeypatch, error):
    path, rename = tmp_path / "image", os.replace
    with whole(path, folder=True) as unfinished:
        write(unfinished, True, "old")

    def interrupted(source, target):
        if target == path and (source / "values").read_text() == "new":
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr(files, "exchange", lambda one, other: False)
    with pytest.raises(error), whole(path, folder=True) as unfinished:
        write(unfinished, True, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["image"] and read(path, True) == "old"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges folders")
def test_a_folder_takes_the_place_of_another_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "image"
    with whole(path, folder=True) as unfinished:
        write(unfinished, True, "old")
    if not files.exchange(path, path):
        pytest.skip("this file system does not")
    monkeypatch.setattr(os, "replace", None)
    with whole(path, folder=True) as unfinished:
        write(unfinished, True, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["image"] and read(path, True) == "new"


def test_a_file_never_replaces_a_folder(tmp_path):
    path = tmp_path / "image"
    with whole(path, folder=True) as unfinished:
        write(unfinished, True, "old")
    with pytest.raises(IsADirectoryError, match=r"a folder of this name: move it away.*image"), whole(path):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["image"] and read(path, True) == "old"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize("folder", [False, True])
def test_what_is_written_is_for_its_owner(tmp_path, folder):
    with whole(tmp_path / "it", folder=folder) as unfinished:
        assert mode_of(unfinished) == (0o700 if folder else 0o600)
    assert mode_of(tmp_path / "it") == (0o700 if folder else 0o600)


def test_of_a_link_to_a_folder_the_link_is_removed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    remove(tmp_path / "link")
    assert (tmp_path / "theirs").is_dir() and not (tmp_path / "link").is_symlink()
