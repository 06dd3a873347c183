"""Files at addresses: ranges, marks, outages, secrets and names, of servers and of stores."""

import asyncio
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest

from tests.helpers import drawn, layouts
from tests.helpers.cli import call_zoo
from tests.helpers.prepared import all_samples, assert_equal_samples, image_folders
from tests.helpers.server import serving
from tests.helpers.sources import CONTAINERS, shards, tar, uploaded, write_folder
from zoo.commands import finetune
from zoo.data import addresses, archives, contents, sources, stream
from zoo.data.datasets import imagenet
from zoo.data.errors import BadSample, UserError
from zoo.predict import classify
from zoo.predict.results import find_inputs
from zoo.predict.urls import is_url, local_path


def test_requests_are_repeated_and_what_fails_for_good_is_a_bad_sample(tmp_path, monkeypatch):
    root = uploaded(image_folders(tmp_path / "set"), f"memory://{tmp_path.name}/again")
    train, _ = layouts.load("image", root)
    expected = all_samples([train])
    files, pauses, failures = fsspec.filesystem("memory"), [], iter([TimeoutError(), ConnectionError("reset")] * 2)
    cat_file, monkeypatched = files.cat_file, monkeypatch.setattr

    def fail_first(path, **words):
        if error := next(failures, None):
            raise error
        return cat_file(path, **words)

    monkeypatched(addresses.time, "sleep", pauses.append)
    monkeypatched(files, "cat_file", fail_first)
    with pytest.raises(BadSample, match="4 requests failed, the last with ConnectionError: reset"):
        train.sample(0, np.random.default_rng(0))
    assert pauses == [0.5, 1.0, 2.0]
    assert_equal_samples(all_samples([train]), expected)
    monkeypatched(files, "cat_file", lambda path, **words: cat_file(path, **words)[:-1])
    with pytest.raises(BadSample, match=r"it gives \d+ bytes of \d+"):
        train.sample(0, np.random.default_rng(0))


def test_shards_of_a_server_that_cuts_stalls_and_knows_no_ranges(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    folder = image_folders(tmp_path / "set")
    shards(folder, tmp_path / "shards")
    expected = all_samples(layouts.load("image", folder))
    monkeypatch.setattr(addresses, "PAUSE", 0.01)
    monkeypatch.setattr(addresses, "TIMEOUT", 0.5)
    with serving() as server:
        server.files = {f"{n:02d}.tar": (tmp_path / f"shards/{n:02d}.tar").read_bytes() for n in range(3)}
        server.cut = [10, 100]  # of the requests for the index, too
        train, val = layouts.load("image", f"{server.url}{{00..02}}.tar")
        assert server.cut == []
        server.cut = [10, 0, 100]
        assert_equal_samples(all_samples([train, val]), expected)
        server.cut = [10] * 4
        with pytest.raises(BadSample, match="4 requests failed"):
            train.sample(0, np.random.default_rng(0))
        server.ranges = False
        with pytest.raises(BadSample, match="the server gives whole files alone, no ranges of them"):
            train.sample(0, np.random.default_rng(0))
        server.slow = "headers"
        with pytest.raises(BadSample, match="4 requests failed"):
            train.sample(0, np.random.default_rng(0))


def test_folders_behind_the_index_pages_of_a_server(tmp_path):
    pytest.importorskip("aiohttp")
    folder = image_folders(tmp_path / "set", classes=("hot dog", "50% ü#"))
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        before, now = (layouts.load("image", each) for each in (folder, f"http://127.0.0.1:{server.server_port}/set/"))
        assert [now[0].name(index) for index in range(len(now[0]))] == [
            before[0].name(n) for n in range(len(before[0]))
        ]
        assert_equal_samples(all_samples(now), all_samples(before))
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


def anew():
    """Forget what this process knows of addresses and archives, as the next one does."""
    addresses._remote.cache_clear()
    addresses._known.clear()
    archives._opened.clear()


def read_all(split):
    """Return the number of readable samples, and the reasons of the others."""
    reasons = []
    for index in range(len(split)):
        try:
            split.sample(index, np.random.default_rng(0))
        except BadSample as error:
            reasons.append(str(error))
    return len(split) - len(reasons), reasons


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A server of an archive of images, t.tar, whose requests are repeated at once."""
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(addresses, "PAUSE", 0.001)
    path = tar(image_folders(tmp_path / "set"), tmp_path / "t.tar")
    with serving() as server:
        with open(path, "rb") as file:
            server.files = {"t.tar": file.read()}
        anew()
        yield server
        anew()


@pytest.mark.parametrize("mark", ["ETag", "Last-Modified"])
def test_a_shard_on_a_server_that_changes_is_refused_and_indexed_again_by_the_next_run(served, mark):
    served.mark, root = mark, f"{served.url}t.tar"
    train, _ = layouts.load("image", root)
    expected = all_samples([train])
    names, content = sources.names(f"{root}/train/cat"), served.files["t.tar"]
    served.files["t.tar"] = content.replace(b"train/cat/0.png", b"train/cat/x.png")
    read, reasons = read_all(train)
    assert read == 0 and set(reasons) == {"cannot be read (it has changed since the run began)"}
    with pytest.raises(UserError, match="no checksum, because it has changed since the run began"):
        imagenet.describe(train, train)
    served.files["t.tar"] = content
    assert_equal_samples(all_samples([train]), expected)
    served.files["t.tar"] = content[:-512]
    assert read_all(train)[0] == 0
    served.files["t.tar"] = content.replace(b"train/cat/0.png", b"train/cat/x.png")
    anew()
    with pytest.raises(UserError, match="cannot be read"):  # the checksum of the header: it is read again
        sources.names(root)
    assert "0.png" in names


def test_a_shard_that_changes_before_a_worker_opens_it_is_refused(served):
    train, _ = layouts.load("image", f"{served.url}t.tar", workers=1)
    served.files["t.tar"] += bytes(10240)
    found = list(stream.open_evaluation(train, 0, 4))
    assert sum(len(unreadable) for _, unreadable in found) == len(train)


def test_a_range_that_was_not_asked_for_is_refused(served):
    train, _ = layouts.load("image", f"{served.url}t.tar")
    served.shift = 512
    read, reasons = read_all(train)
    assert read == 0 and all("4 requests failed, the last with OSError: it gives the bytes" in each for each in reasons)


def test_nothing_is_kept_of_files_without_a_mark(served, tmp_path):
    served.mark, addresses._warn_unmarked = None, addresses._warn_unmarked.__wrapped__
    root, home = f"{served.url}t.tar", tmp_path / "home"
    with pytest.warns(UserWarning, match="states no ETag, time or other mark of its files"):
        train, _ = layouts.load("image", root, cache=str(tmp_path / "cache"))
    assert read_all(train) == (len(train), []) and not (home / "archives").exists()
    assert not list((tmp_path / "cache").rglob("*.png"))
    served.files["t.parquet"] = b"PAR1"
    with pytest.raises(UserError, match=r"t.parquet: is unpacked once, but its server states no ETag"):
        sources.names(f"{served.url}t.parquet")


def test_marks_of_file_systems():
    stamps = [addresses._stamp({key: value}) for key in addresses.MARKS for value in (1, 2)]
    assert len(set(stamps)) == 2 and addresses.UNMARKED not in stamps
    assert addresses._stamp({"ETag": 'W/"a"', "LastModified": 1}) == addresses._stamp({"ETag": '"a"'})
    assert addresses._stamp({"size": 3, "ETag": ""}) == addresses.UNMARKED


def test_files_of_other_stores_are_compared_after_they_are_read(tmp_path, monkeypatch):
    folder = image_folders(tmp_path / "set")
    root = CONTAINERS["tar at an address"](folder, tmp_path)
    train, _ = layouts.load("image", root)
    assert read_all(train)[1] == []
    uploaded(tmp_path / "shards", f"memory://{tmp_path.name}/shards")  # the same, at another time
    assert read_all(train)[1] == []  # asked for a moment ago
    monkeypatch.setattr(addresses, "RECHECK", 0.0)
    assert read_all(train)[0] == 0


def test_what_is_remembered_of_files_is_limited(tmp_path, monkeypatch):
    train, _ = layouts.load("image", uploaded(image_folders(tmp_path / "set"), f"memory://{tmp_path.name}/many"))
    monkeypatch.setattr(addresses, "MAX_KNOWN", 4)
    remote = addresses.remote("memory://")
    remote._checked.clear()
    assert read_all(train) == (10, []) and len(remote._checked) == 2


class Bucket:
    """What of s3fs reads a range."""

    async_impl, loop = True, None

    def split_path(self, path):
        return *path.split("/", 1), "v1"

    async def _call_s3(self, method, **words):
        self.asked = method, words
        body = SimpleNamespace(read=self.read, close=lambda: None)
        return {"ContentRange": "bytes 2-4/9", "ETag": '"a"', "Body": body}

    async def read(self):
        return b"cde"


def test_a_range_of_s3_comes_with_its_mark():
    bucket = Bucket()
    content, info = asyncio.run(addresses._s3_range(bucket, "b/k/x", 2, 5))
    words = {"Bucket": "b", "Key": "k/x", "Range": "bytes=2-4", "VersionId": "v1"}
    assert bucket.asked == ("get_object", words)
    assert content == b"cde" and (info["size"], info["ETag"]) == (9, '"a"')


def test_a_server_that_stalls_while_an_index_is_made(served, monkeypatch):
    monkeypatch.setattr(addresses, "TIMEOUT", 0.1)
    served.slow = "headers"
    with pytest.raises(UserError, match="t.tar: cannot be read .4 requests failed, the last with FSTimeoutError"):
        sources.names(f"{served.url}t.tar")
    assert len(served.requests) == 4


@pytest.mark.parametrize("command", ["train", "data check", "finetune", "data prepare"])
def test_commands_end_where_no_server_answers(served, capsys, command):
    root = "http://127.0.0.1:1/set"
    words = {"finetune": [root], "data prepare": ["imagenet", root, "--out", "x"]}
    assert call_zoo(*command.split(), *words.get(command, ["-c", "resnet50_imagenet", "-o", f"data.root={root}"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: http://127.0.0.1:1/set") and "4 requests failed, the last with Client" in error


def test_an_outage_is_no_contents(served, tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "WORTH_KEEPING", -1.0)
    train, val = layouts.load("image", f"{served.url}t.tar")
    served.refused = {"t.tar"}
    with pytest.raises(UserError, match="train/cat/0.png: no checksum, because the server answers 403 Forbidden"):
        imagenet.describe(train, val)
    served.refused = set()
    whole = imagenet.describe(*layouts.load("image", tmp_path / "set"))
    assert imagenet.describe(train, val).checksum == whole.checksum
    missing = contents.Content(str(tmp_path / "missing"))
    assert contents._digest_files(np.zeros((0, 3), np.uint64), False, [missing])[1].tolist() == [False]


def test_messages_have_no_signatures(served):
    served.redirects = {"t.tar": f"{served.url}signed?X-Amz-Signature=abc", "set": "signed?X-Amz-Signature=abc"}
    served.refused = {"signed"}
    messages = []
    for request in (sources.names, lambda path: addresses.remote(path).names(path)):
        for name in ("t.tar", "set"):
            with pytest.raises((UserError, OSError)) as error:
                request(f"{served.url}{name}")
            messages.append(str(error.value))
    assert "403" in messages[0] and "abc" not in "".join(messages)
    assert addresses.shown("a 'https://me:abc@h/x?k=abc' http://h/a#abc.") == "a 'https://h/x' http://h/a"


@pytest.mark.parametrize("key", ["root", "train_list", "names", "cache"])
def test_secrets_in_any_key_are_refused(key):
    for secret in ("http://me:word@h/x", "http://h/x?sig=abc", "simplecache::https://me:word@h/x", "https://h/x#a=abc"):
        with pytest.raises(UserError, match=f"^data.{key}: an address with a password or a signature"):
            imagenet.Settings(**{key: secret})
    for address in ("abfs://box@account.dfs.core.windows.net/x", "sftp://me@host/x", "s3://b/a#1", "s3://b/a@b:c/x"):
        imagenet.Settings(**{key: address})


def test_names_at_addresses(served, tmp_path):
    names = ("my%20set.tar", "100%25.tar", "a.TAR")
    served.files |= dict.fromkeys(names, served.files["t.tar"])
    for name in (*names, "my set.tar", "100%.tar"):
        assert list(sources.names(f"{served.url}{name}")) == ["train", "val"], name
    assert addresses._decoded("50%2520") == "50%2520" and addresses._decoded("50%25%20") == "50% "
    root = uploaded(tmp_path / "set", f"memory://{tmp_path.name}/named")
    assert sources.names(f"{root}/train/cat/0.png") == {} and not sources.is_folder(f"{root}/train/cat/0.png")


def test_a_marker_of_a_folder_is_no_file(monkeypatch):
    remote = addresses.remote("memory://x")
    listed = [{"name": "/x/set", "type": "file"}, {"name": "/x/set/", "type": "file"}]
    monkeypatch.setattr(remote.files, "ls", lambda *_, **__: [*listed, {"name": "/x/set/a", "type": "directory"}])
    assert remote.names("memory://x/set/") == {"a": True}


def test_patterns_at_addresses_name_brackets_and_fail_where_a_folder_cannot_be_listed(tmp_path, monkeypatch):
    for folder in ("p [1]", "q"):
        (tmp_path / folder).mkdir()
        for name in ("a.tar", "b.tar", "c.txt"):
            (tmp_path / folder / name).write_text("")
    root = uploaded(tmp_path, f"memory://{tmp_path.name}/patterns")
    for base in (root, str(tmp_path)):
        assert archives.matching(f"{base}/p [1]/*.tar") == [f"{base}/p [1]/{name}.tar" for name in "ab"]
        assert archives.matching(f"{base}/*/b.tar") == [f"{base}/{folder}/b.tar" for folder in ("p [1]", "q")]
    monkeypatch.setattr(addresses, "PAUSE", 0.001)
    monkeypatch.setattr(addresses.remote(root).files, "ls", lambda *_, **__: 1 / 0)
    with pytest.raises(addresses.RemoteError, match="4 requests failed"):
        archives.matching(f"{root}/q/*.tar")


def test_the_status_of_a_file_is_asked_for_once_and_its_copy_does_not_depend_on_the_folder(tmp_path, monkeypatch):
    root = uploaded(image_folders(tmp_path / "set"), f"memory://{tmp_path.name}/once")
    train, _ = layouts.load("image", root, cache=str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    copy = train.local(train.path(0))
    monkeypatch.chdir("/")
    assert train.local(train.path(0)) == copy != train.path(0)
    monkeypatch.setattr(addresses.Remote, "_ask", None)
    assert train.local(train.path(0)) == copy
    assert contents._kept_path(root, False) == (os.chdir(tmp_path), contents._kept_path(root, False))[1]


def test_a_clip_whose_server_fails_is_a_bad_sample(tmp_path, monkeypatch):
    root = uploaded(write_folder(tmp_path / "set", "clip"), f"memory://{tmp_path.name}/clips")
    train, _ = layouts.load("clip", root)
    monkeypatch.setattr(addresses, "PAUSE", 0.001)
    monkeypatch.setattr(fsspec.filesystem("memory"), "cat_file", lambda *_, **__: 1 / 0)
    with pytest.raises(BadSample, match="cannot be read .4 requests failed"):
        train.sample(0, np.random.default_rng(0))


def test_predictions_of_files_at_addresses(served, tmp_path):
    root = uploaded(tmp_path / "set", f"memory://{tmp_path.name}/predicted")
    archive = f"{served.url}t.tar"
    for place in (root, archive):
        found = find_inputs([f"{place}/val", f"{place}/val/cat/0.png"], (".png",), None)
        assert [each.missing for each in found] == [""] * len(found) and len(found) > 2
        settings = imagenet.Settings(size=16)
        with local_path(found[0].path) as path:
            classify.image_split(settings, (), path).sample(0, np.random.default_rng(0))
    (whole,) = find_inputs([f"{root}/val/cat/0.png"], (".png",), None)
    assert whole.path == f"{root}/val/cat/0.png" and is_url(f"{archive}?sig=a")


@pytest.mark.parametrize("place", ["address", "shards"])
def test_finetune_names_a_run_by_the_set(place, tmp_path, monkeypatch):
    root = CONTAINERS[place](image_folders(tmp_path / "set"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finetune, "execute", lambda job: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call_zoo("finetune", root, "--epochs", 1, "-o", "model.pretrained=null")
    assert os.listdir(tmp_path / "runs") == [f"{'set' if place == 'address' else 'shards'}.yaml"]


def test_labels_in_shards_elsewhere_come_with_their_index(tmp_path, monkeypatch):
    """One request for each would take hours."""
    drawn.photo(tmp_path / "set", "0.jpg", "1.jpg", "2.jpg", "3.jpg")
    for number in range(4):
        (tmp_path / f"set/{number}.cls").write_text(str(number % 2))
    (tmp_path / "shards").mkdir()
    for split in ("train", "val"):
        tar(tmp_path / "set", tmp_path / f"shards/{split}-0.tar")
    root = uploaded(tmp_path / "shards", f"memory://{tmp_path.name}/labeled")
    pattern = f"{root}/{{train,val}}-0.tar"
    archives.open_archives(pattern)
    monkeypatch.setattr(addresses.Remote, "read", lambda *words: pytest.fail("a request"))
    train, _ = imagenet.load(imagenet.Settings(root=pattern))
    assert train.labels.tolist() == [0, 1, 0, 1]
