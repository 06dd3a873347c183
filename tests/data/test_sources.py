"""Data sets in archives and at addresses: the samples, the record and the errors of the same files in folders."""

import io
import os
import pickle
import shutil
import stat
import tarfile
import zipfile
from itertools import product
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest

from tests.helpers import drawn, layouts, packs
from tests.helpers.cli import call_zoo
from tests.helpers.prepared import all_samples, assert_equal_samples, image_folders, serial_prepare, unreadable
from tests.helpers.sources import CONTAINERS, shards, tar, uploaded, write_folder, zipped
from tests.helpers.training import same, weights
from zoo.data import addresses, archives, sources
from zoo.data.datasets import common, imagenet
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import archive_members

KINDS = {  # name -> kind of data
    "prepared clips": "clip",
    "clip": "clip",
    "scene": "scene",
    "face folders": "face",
    "face pack": "face",
}


@pytest.mark.parametrize(
    "name, container",
    [*(("image", each) for each in CONTAINERS), *product(KINDS, ("deflated", "address", "tar at an address"))],
)
def test_samples_and_record_are_those_of_folders(name, container, tmp_path, monkeypatch):
    serial_prepare(monkeypatch)
    folder = write_folder(tmp_path / "set", name)
    kind, root = KINDS.get(name, name), CONTAINERS[container](folder, tmp_path)
    before, now = (layouts.load(kind, each) for each in (folder, root))
    assert_equal_samples(all_samples(now), all_samples(before))
    describe = layouts.MODULES[kind].describe
    assert describe(*now).checksum == describe(*before).checksum
    again = pickle.loads(pickle.dumps(now))  # as a worker process gets it
    assert_equal_samples(all_samples(again), all_samples(before))


@pytest.mark.slow
def test_runs_on_shards_have_the_weights_of_runs_on_folders(tmp_path):
    folder, written = image_folders(tmp_path / "set"), []
    small = ("model.pretrained=null", "model.depth=18", "model.width=8", "data.size=16", "data.workers=2")
    keys = (*small, "train.batch=2", "train.global_batch=null", "train.epochs=2", "optim.warmup=0")
    for root in (folder, shards(folder, tmp_path / "shards")):
        out = tmp_path / str(len(written))
        words = [word for key in (*keys, f"data.root={root}") for word in ("-o", key)]
        assert call_zoo("train", "-c", "resnet50_imagenet", *words, "--out", out, "--device", "cpu") == 0
        written.append(weights(out, 10))
    assert same(*written)


@pytest.mark.parametrize("inner", ["", "data/"])
def test_shards_of_webdataset(inner, tmp_path):
    folder, labels = tmp_path / "files", {"train": (1, 0, 2), "val": (2, 1)}
    for split, numbers in labels.items():
        drawn.photo(folder / split / inner, *(f"{split}{number}.jpg" for number in range(len(numbers))))
        for number, label in enumerate(numbers):
            (folder / split / inner / f"{split}{number}.cls").write_text(f"{label}\n")
            (folder / split / inner / f"{split}{number}.json").write_text("{}")
    tar(folder / "train", tmp_path / "set-train-0.tar")
    tar(folder / "val", tmp_path / "set-validation-0.tar")
    settings = imagenet.Settings(root=f"{tmp_path}/set-{{train-{{0..0}},validation-{{0..0}}}}.tar")
    train, val = imagenet.load(settings)
    assert (train.labels.tolist(), val.labels.tolist()) == ([1, 0, 2], [2, 1])
    assert train.classes == ("class 0", "class 1", "class 2") and train.name(0) == f"train/{inner}train0.jpg"
    assert_equal_samples(all_samples([val]), all_samples([imagenet.load(imagenet.Settings(root=str(folder)))[1]]))
    os.remove(folder / "train" / inner / "train1.cls")
    with pytest.raises(UserError, match="train1.cls: cannot read the label of train1.jpg"):
        imagenet.load(imagenet.Settings(root=str(folder)))


def test_labels_beside_images_of_one_split_and_class_folders_of_the_other_say_nothing_of_each_other(tmp_path):
    image_folders(tmp_path / "set")
    for number, name in enumerate(("cat", "dog")):
        os.rename(tmp_path / f"set/val/{name}/0.png", tmp_path / f"set/val/{number}.png")
        shutil.rmtree(tmp_path / "set/val" / name)
        (tmp_path / f"set/val/{number}.cls").write_text(str(number))
    with pytest.raises(UserError, match="which label a folder stands for is unknown"):
        layouts.load("image", tmp_path / "set")


def test_a_folder_in_a_shard_is_a_split_or_a_class_for_all_shards_or_refused(tmp_path):
    def pack(**names):
        for shard, listed in names.items():
            with tarfile.open(tmp_path / f"v-{shard.replace('_', '-')}.tar", "w") as archive:
                for name in listed:
                    put(archive, f"{name}.jpg", packs.encoded_image(int(name[-1]), 24))
        archives._opened.clear()

    pack(train_0=["bus/1"], train_1=["bus/2", "train/1"], val_0=["bus/3"])
    with pytest.raises(UserError, match="v-train-1.tar: is its folder train/ a split, or a class such as bus?"):
        layouts.load("image", tmp_path / "v-*.tar")
    pack(train_0=["train/bus/1"], train_1=["train/bus/2", "train/train/1", "meta/1"])
    assert layouts.load("image", tmp_path / "v-*.tar")[0].classes == ("bus", "train")
    pack(train_0=["bus/1"], train_1=["bus/2", "tram/1"])
    assert layouts.load("image", tmp_path / "v-*.tar")[0].classes == ("bus", "tram")
    pack(train_0=["train/1"], train_1=["train/2"])
    assert sources.names(f"{tmp_path}/v-{{train-{{0..1}},val-0}}.tar/train") == {"1.jpg": False, "2.jpg": False}


def test_the_name_of_a_set_is_that_of_its_folder():
    names = ("a/photos", "a/photos/", "photos.tar", "b/photos.zip", "photos/{0..9}.tar", "s3://b/photos/in-*.tar")
    assert {common.root_name(SimpleNamespace(root=name)) for name in names} == {"photos"}


def test_an_address_behind_a_folder_is_a_file_that_does_not_exist(tmp_path):
    folder = image_folders(tmp_path / "set")
    (folder / "train_list.txt").write_text("train/cat/0.png 0\ns3://bucket/cat/0.png 0\ntrain/dog/0.png 1\n")
    train, _ = layouts.load("image", folder)
    with pytest.raises(BadSample, match="no such file"):
        train.sample(1, np.random.default_rng(0))


def test_patterns_are_those_of_a_shell():
    assert archives.expand("a/{08..11}.tar") == [f"a/{number:02d}.tar" for number in (8, 9, 10, 11)]
    nested = archives.expand("{train-{0..1},val}.tar")
    assert nested == ["train-0.tar", "train-1.tar", "val.tar"]
    assert archives.expand("{x}{1..2}{a,b}") == ["{x}1a", "{x}1b", "{x}2a", "{x}2b"]
    assert archives.expand("plain") == ["plain"] and archives.expand("{open") == ["{open"]
    with pytest.raises(UserError, match="names more than"):
        archives.expand("{0..9999999}.tar")


def test_names_in_archives(tmp_path):
    (tmp_path / "files").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "files" / name).write_text(name)
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("x/b.txt", "x/a.txt", "x-1/a.txt", "x.txt"):
            archive.add(tmp_path / "files" / os.path.basename(name.replace("x.txt", "a.txt")), name)
        archive.add(tmp_path / "files/b.txt", "x/a.txt")  # again: the last one counts
        archive.add(tmp_path / "files", "empty", recursive=False)
    assert sources.names(str(path)) == {"x": True, "x-1": True, "x.txt": False}
    assert sources.names(f"{path}/x") == {"a.txt": False, "b.txt": False}
    assert (
        sources.is_file(f"{path}/x/../x/a.txt") and not sources.is_file(f"{path}/x") and sources.is_folder(f"{path}/x")
    )
    assert not sources.exists(f"{path}/y") and not sources.exists(f"{path}/x/a") and sources.exists(f"{path}/")
    with sources.local_path(f"{path}/x/a.txt") as readable, open(readable) as file:
        assert file.read() == "b.txt"
    folder = tmp_path / "folder.tar"  # a folder that is called like an archive
    folder.mkdir()
    assert sources.locate(f"{folder}/a") is None


def test_an_archive_that_changes_is_indexed_again_and_refused_within_a_run(tmp_path, monkeypatch):
    for name in ("a", "bb"):
        (tmp_path / name).write_text(name * 100)
    path = tar(tmp_path, tmp_path / "set.tar", ["a"])
    place = sources.locate(f"{path}/a")
    assert place.read(0, 100) == b"a" * 100 and place.read(99, 1) == b"a"
    with pytest.raises(OSError, match="it gives 1 bytes of 2"):
        place.read(99, 2)
    tar(tmp_path, path, ["bb"])
    os.utime(path, (1, 1))
    with pytest.raises(OSError, match="has changed since the run began"):
        place.read(0, 100)
    monkeypatch.setattr(archives, "_opened", {})  # as in the next process
    assert sources.names(path) == {"bb": False}


def test_an_archive_in_whose_place_one_of_the_same_size_and_time_was_put_is_indexed_again(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 100)
    for names in (["a", "b"], ["b", "a"]):
        path = tar(tmp_path, tmp_path / "set.tar", names)
        os.utime(path, (1, 1))
        assert sources.locate(f"{path}/a").read(0, 100) == b"a" * 100
        monkeypatch.setattr(archives, "_opened", {})


@pytest.mark.parametrize("name", [*archives.ARRAYS, "paths.json"])
@pytest.mark.parametrize("damage", [None, lambda content: content[:-20], lambda content: content[:-20] + bytes(20)])
def test_a_damaged_index_is_made_again(name, damage, tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    path = tar(image_folders(tmp_path / "set"), tmp_path / "set.tar")
    expected = all_samples(layouts.load("image", path))
    (written,) = (tmp_path / "home/archives").glob(f"*/{name}")
    written.write_bytes(damage(written.read_bytes())) if damage else written.unlink()
    monkeypatch.setattr(archives, "_opened", {})
    assert_equal_samples(all_samples(layouts.load("image", path)), expected)


def damaged_zip(tmp_path, method, kind="image"):
    path = zipped(write_folder(tmp_path / "set", kind), tmp_path / "set.zip", method)
    content = bytearray((tmp_path / "set.zip").read_bytes())
    content[60] ^= 1  # within the first file
    (tmp_path / "set.zip").write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["image", "clip"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_bytes_that_are_not_those_of_a_checksum_are_a_bad_sample(kind, method, tmp_path, monkeypatch):
    path = damaged_zip(tmp_path, method, kind)
    train, _ = layouts.load(kind, path)
    with pytest.raises(BadSample, match="its checksum in .*set.zip is another one"):
        train.sample(0, np.random.default_rng(0))
    train.sample(1, np.random.default_rng(0))
    assert not train.remark(1, np.random.default_rng(0))
    assert serial_prepare(monkeypatch)("folder", path, "--out", tmp_path / "out") == 1
    assert list(unreadable(tmp_path / "out")) == [train.name(0)]


@pytest.mark.parametrize("kind, container", [*product(("image", "clip"), ("deflated", "tar at an address"))])
def test_prepared_samples_whose_files_stay_in_an_archive_are_those_of_it(kind, container, tmp_path, monkeypatch):
    source = CONTAINERS[container](write_folder(tmp_path / "set", kind), tmp_path)
    assert serial_prepare(monkeypatch)("folder", source, "--out", tmp_path / "out") == 0
    before, now = (layouts.load(kind, each) for each in (source, tmp_path / "out"))
    assert_equal_samples(all_samples(now), all_samples(before))


def test_one_that_cannot_be_fetched_is_left_out_and_several_in_a_row_stop_the_preparation(
    tmp_path, monkeypatch, capsys
):
    prepare, files = serial_prepare(monkeypatch), fsspec.filesystem("memory")
    root, cat_file, broken = (
        uploaded(image_folders(tmp_path / "set"), f"memory://{tmp_path.name}/set"),
        files.cat_file,
        [],
    )

    def fail(path, **words):
        if any(name in path for name in broken):
            raise ConnectionError("reset")
        return cat_file(path, **words)

    monkeypatch.setattr(addresses, "PAUSE", 0)
    monkeypatch.setattr(files, "cat_file", fail)
    broken[:] = ["train/"]
    assert prepare("folder", root, "--out", tmp_path / "out") == 2
    assert "and 4 before it: cannot be read (4 requests failed" in capsys.readouterr().err
    broken[:] = ["train/cat/1.png"]
    assert prepare("folder", root, "--out", tmp_path / "out") == 1
    assert list(unreadable(tmp_path / "out")) == broken


def checked_tar(tmp_path, names):
    tar(tmp_path, tmp_path / "whole.tar", names)
    return (tmp_path / "whole.tar").read_bytes()


def test_links_in_a_tar_archive_are_the_files_that_they_lead_to(tmp_path):
    folder = image_folders(tmp_path / "set")
    os.symlink("0.png", folder / "train/cat/link.png")
    os.link(folder / "train/dog/0.png", folder / "train/dog/same.png")
    before, now = (layouts.load("image", each) for each in (folder, tar(folder, tmp_path / "set.tar")))
    assert len(now[0]) == 12
    assert_equal_samples(all_samples(now), all_samples(before))


def put(archive, name, content=b"", link=None, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    if link:
        member.type, member.linkname = kind, link
    archive.addfile(member, io.BytesIO(content))


def test_of_files_and_links_of_one_name_the_last_counts_as_tar_unpacks_them(tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        put(archive, "x/link", link="a")
        put(archive, "x/a", b"old")
        put(archive, "x/hard", link="x/a", kind=tarfile.LNKTYPE)
        put(archive, "x/file", b"a file")
        put(archive, "x/a", b"new")
        put(archive, "x/link", b"no link any more")
        put(archive, "x/file", link="a")
    for name, content in {"a": "new", "hard": "old", "link": "no link any more", "file": "new"}.items():
        with sources.local_path(f"{tmp_path}/set.tar/x/{name}") as path, open(path) as file:
            assert file.read() == content


def test_a_tar_archive_that_does_not_end_as_tar_ends_it_is_refused(tmp_path):
    with tarfile.open(tmp_path / "whole.tar", "w") as archive:
        for _ in range(4):
            put(archive, "a", b"a" * 5000)
    whole = (tmp_path / "whole.tar").read_bytes()  # 4 * (512 + 5120) bytes, and zeros up to 30720
    for name, content, message in (
        ("cut", whole[:11264], "it is cut: no zeros mark its end at byte 11264"),
        ("half", whole[: 22528 + 511], "it is cut: no zeros mark its end at byte 22528"),
        ("joined", whole * 2, "it goes on behind its end at byte 22528"),
        ("zeros", whole[:11264] + bytes(51200 - 11264), "it has 39936 zeros from byte 11264 on"),
        ("one block", whole[: 22528 + 512], None),
        ("records of 64 KiB", whole.ljust(65536, b"\0"), None),
    ):
        (tmp_path / f"{name}.tar").write_bytes(content)
        if message:
            with pytest.raises(UserError, match=f"{name}.tar: cannot be read .{message}"):
                archives.list_archive(str(tmp_path / f"{name}.tar"))
        else:
            assert len(archives.list_archive(str(tmp_path / f"{name}.tar"))) == 1


def test_what_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("a")
    with tarfile.open(tmp_path / "out.tar", "w") as archive:
        archive.add(tmp_path / "a", "x/../../a")
    (tmp_path / "text.tar").write_text("no archive" * 100)
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        link = tarfile.TarInfo("train/cat/2.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "0.jpg"
        archive.addfile(link)
    whole = checked_tar(tmp_path, ["a", "a"])
    (tmp_path / "damaged.tar").write_bytes(whole[:1024] + b"x" * 512)
    (tmp_path / "checksum.tar").write_bytes(whole[:1024] + b"b" + whole[1025:])
    with zipfile.ZipFile(tmp_path / "large.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large", bytes(1000))
    monkeypatch.setattr(archive_members, "MAX_UNPACKED", 999)
    for number in (0, 1):
        tar(tmp_path, tmp_path / f"{number}.tar", ["a"])
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a", "train/cat/a.jpg")
    refused = {
        "out.tar": "leads out of it",
        "link.tar": "train/cat/2.jpg is a link to train/cat/0.jpg, which is no file in it",
        "damaged.tar": "it is damaged at byte 1024|invalid header",
        "checksum.tar": "it is damaged at byte 1024|bad checksum",
        "text.tar": "text.tar: cannot be read .*; it should be a tar archive",
        "{0..2}.tar": "there is no .*2.tar",
        "{0..1}.tar": "0.tar and .*1.tar have a file of the same name, a",
        "none.tar": "there is no folder .*none.tar",
        "set.tar.gz": "is compressed as a whole",
        "large.zip": "large has .* bytes, compressed; store it as it is",
    }
    for root, message in refused.items():
        with pytest.raises(UserError, match=message):
            layouts.load("image", tmp_path / root)
    for root, message in {
        "https://me:word@host/set": "with a password or a signature",
        "https://host/set?sig=abc": "with a password or a signature",
        "https://host/set#X-Amz-Signature=abc": "with a password or a signature",
        "simplecache::https://me:word@host/set": "with a password or a signature",
        "nonsense://host/set": "addresses of nonsense cannot be read",
    }.items():
        with pytest.raises(UserError, match=message) as error:
            layouts.load("image", root)
        assert "word" not in str(error.value).replace("password", "") and "abc" not in str(error.value)


def test_a_cache_keeps_what_comes_from_elsewhere(tmp_path, monkeypatch):
    root = uploaded(image_folders(tmp_path / "set"), f"memory://{tmp_path.name}/cached")
    splits = layouts.load("image", root, cache=str(tmp_path / "cache"))
    expected = all_samples(splits)
    monkeypatch.setattr(addresses.Remote, "read", None)
    assert_equal_samples(all_samples(splits), expected)


def test_links_in_a_zip_archive_are_the_files_that_they_lead_to(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for name, content in (("x/a", b"content"), ("x/link", b"../x/a"), ("x/file", b"a")):
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG if name == "x/a" else stat.S_IFLNK) << 16
            archive.writestr(info, content)
        archive.writestr("x/again", b"a")
    assert {name: sources.status(f"{tmp_path}/set.zip/x/{name}").size for name in ("link", "file", "again")} == {
        "link": 7,
        "file": 7,
        "again": 1,
    }
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        archive.writestr(info, b"../b")
    with pytest.raises(UserError, match="x/file is a link to b, which is no file in it; pack what it leads to"):
        sources.names(f"{tmp_path}/out.zip")


def test_parts_of_stored_files_in_a_zip_archive_are_read_alone(tmp_path, monkeypatch):
    content, read = np.random.default_rng(0).bytes(100_000), []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{method}.zip", "w", method) as archive:
            archive.writestr("a" * 2000, content)
            archive.writestr("b", content)
    monkeypatch.setattr(os, "pread", lambda *words, pread=os.pread: read.append(words[1]) or pread(*words))
    size = len(content)
    for method, name in product((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), ("a" * 2000, "b")):
        place = sources.locate(f"{tmp_path}/{method}.zip/{name}")
        for begin, count in ((0, size), (0, 10), (500, 100), (5000, 10), (size - 10, 10), (size - 1, 1), (size, 0)):
            read.clear()
            assert place.read(begin, count) == content[begin : begin + count]
            assert method or count == size or sum(read) < 2 * (archives.NAME_SIZE + 100)
        with pytest.raises(OSError, match="it gives 1 bytes of 2"):
            place.read(size - 1, 2)


def test_a_pack_is_read_record_by_record(tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    packs.write(tmp_path / "set", packs.face_pack([[packs.encoded_image(5)] * 3, [packs.encoded_image(9)] * 2]))
    address = uploaded(tmp_path / "set", f"memory://{tmp_path.name}/pack")
    from zoo.data.formats.face_packs import FacePack

    here, there = (FacePack(f"{each}/train.rec") for each in (tmp_path / "set", address))
    assert [here.encoded(n) for n in range(len(here))] == [there.encoded(n) for n in range(len(there))]
