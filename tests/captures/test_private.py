"""One list says what is private in a text; a name that a private field held is found elsewhere."""

import base64
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from captures.identity import device_salt
from captures.private import REMOVED, PrivateWords, clean, hashed
from captures.scrub.log import LogCleaner

LONG = 100_000
PIECES = (
    "token=",
    "token ",
    "a@",
    "/home/",
    "/u/a",
    "~",
    "C:\\",
    "\\\\",
    "10.",
    "eyJ",
    "ab:",
    "://",
)
PIECES += (
    "-aaaa",
    "//",
    "Users/a",
    "GPU-",
    '"host": "',
    "USER=a ",
    "%2Fa",
    "%25",
    "\\/",
    "\\u0061",
)
PIECES += (
    "&#47;",
    "user=",
    "user",
    "L2hvbWUv",
    "--host a1 ",
    "/home//",
    "a/home/b",
    "\\x2f ",
    "/home,",
    "/scratch/",
    "/scratch/a/",
    "/mnt/users/a",
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("cd /home/alice", "cd (path)"),
        ("/home/alice.smith/lab/model.py(3): main", "model.py(3): main"),
        ("/u/alice/x /ceph/a/y /global/homes/a/alice /Users/al", "(path) " * 3 + "(path)"),
        ("/mnt/nfs/alice/run.py", "run.py"),
        ("~alice/x ~/y/z.py", "(path) z.py"),
        ("saved C:\\Users\\Alice Liddell\\run\\x.pt", "saved x.pt"),
        ("\\\\server\\share\\alice\\x", "(path)"),
        (
            "/opt/v/lib/python3.12/site-packages/torch/nn/a.py(1): f",
            "site-packages/torch/nn/a.py(1): f",
        ),
        ("load https://alice:key@hf.co/m", "load https://(address)"),
        ("rank0@gpu-box mail alice@corp.example", "(removed) mail (removed)"),
        ("GPU-554a6988-03dd-6206-3dd1-f43fb60a3ed0", "(removed)"),
        ("link 00:1a:2b:3c:4d:5e at 10.1.2.3:29500", "link (removed) at (removed)"),
        ("run --token abc123def", "run --token (removed)"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=(removed)"),
        ("use sk-abcdefghijklmnopqrstuv now", "use (removed) now"),
    ],
)
def test_what_names_somebody_leaves_a_text(text, cleaned):
    assert clean(text) == cleaned


BASE64 = [base64.b64encode(b"x" * n + b"/home/alicesecret/x.py").decode() for n in range(3)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/homes/adalove/x", "adalove"),
        ("/home/a/adalove", "adalove"),
        ("/u/a/adalove/run", "adalove"),
        ("/scratch/a/adalove/run", "adalove"),
        ("/scratch/users/adalove", "adalove"),
        ("/ceph/home/adalove/run", "adalove"),
        ("/eos/user/a/adalove", "adalove"),
        ("/afs/cern.ch/user/a/adalove/x", "adalove"),
        ("/mnt/nfs/home/adalove/x.py", "adalove"),
        ("\\/scratch\\/users\\/adalove\\/x", "adalove"),
        ("/scratch/adalove/.cache/torch", "adalove"),
        ("/ceph/adalove/miniconda3/bin/python", "adalove"),
        ("/scratch/adalove/run1", None),
        ("/scratch/imagenet/.cache/x", None),
        ("/ceph/llama-3-8b/.cache", None),
        ("/mnt/data/users/dataset/x", None),
        ("/scratch/g/gpt2/x", None),
        ("/data/m/mixtral-8x7b/shard", None),
        ("/data/users/models.py", None),
        ("/torch/users/attend/x", None),
        ("/home/user/library/x", None),
        ("/scratch/project_4620/users", None),
    ],
)
def test_a_folder_that_a_path_says_is_a_persons_tells_a_name(path, name):
    from_log, from_trace = PrivateWords(), PrivateWords()
    from_log.learn(f"cd {path} now")
    from_trace.learn_from_paths(f'"{path}"')
    others = (
        "user layer, imagenet_loader llama-3-8b gpt2 mixtral-8x7b dataset models attend library"
    )

    for words in (from_log, from_trace):
        text = words.replaced(f"{others} adalove project_4620 run1")
        assert text == f"{others} {REMOVED if name else 'adalove'} project_4620 run1"


@pytest.mark.parametrize(
    "text",
    [
        *("%2Fhome%2Falicesecret%2Fx.py", "%252Fhome%252Falicesecret", "a=%2fu%2falicesecret"),
        *("file:%2F%2F%2Fhome%2Falicesecret", "https%3A%2F%2Fhf.co%2Falicesecret"),
        *(
            "\\/home\\/alicesecret\\/x.py",
            "\\\\\\/home\\\\\\/alicesecret",
            "https:\\/\\/hf.co\\/alicesecret",
        ),
        *("\\u002fhome\\u002falicesecret", "/home/\\u0061licesecret", "\\x2fhome\\x2falicesecret"),
        *("&#47;home&#47;alicesecret", "&#x2f;home&#x2F;alicesecret&#x2f;x", *BASE64),
        *('{\\"user\\": \\"alicesecret\\"}', '{\\\\\\"userName\\\\\\": \\\\\\"alicesecret\\\\\\"}'),
        *("-I/home/alicesecret/include", "mnt/home/alicesecret/x.py", "/nfs4/home/alicesecret/x"),
        *(
            "/home//alicesecret//x.py",
            "/home/./alicesecret/x",
            "/HOME/alicesecret",
            "/autofs/alicesecret",
        ),
        *("/import/alicesecret/x", "/lustre01/alicesecret", "/projappl/alicesecret/x.py"),
        *("User=alicesecret", "login=alicesecret", "--user alicesecret", "--user=alicesecret"),
        *("username: alicesecret", "token%3Dalicesecret123", "a%20alicesecret%40corp.example"),
        *("--host alicesecret42", "host=alicesecret42", "hostname: alicesecret-42 up"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "load {}, then", 'x "{}" y', "a;{};b"])
def test_what_names_somebody_in_another_spelling_leaves_a_text(text, around):
    cleaned = clean(around.format(text))

    assert "alicesecret" not in cleaned.lower()
    assert not any(text in cleaned for text in BASE64)
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        *(
            "warp occupancy 50%20",
            "a%2Bb",
            "user_annotation",
            "user: prompt",
            "host=pinned",
            "100%",
        ),
        *(
            "cudaHostAlloc(host=1)",
            "owner=kernel",
            "login",
            "\\alpha",
            "C\\+\\+",
            "&#8364; 5",
            "x\\/y",
        ),
        *(
            "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel",
            "layers/homes",
            "home/x",
        ),
    ],
)
def test_what_only_looks_encoded_or_named_stays(text):
    assert clean(text) == text


@pytest.mark.parametrize("text", ["server 10.1.2.3", "10.20.3.44:29500", "192.168.7.9"])
def test_an_address_in_a_table_is_no_number(text):
    assert "(removed)" in clean(text, has_numbers=True)
    assert clean("10.123.456.789", has_numbers=True) == "10.123.456.789"


@pytest.mark.parametrize(
    "text",
    ['"/home","alicesecret"', "/home/\talicesecret", '"base": "/home/", "rel": "alicesecret/x"'],
)
def test_a_home_cut_in_two_tells_whose_it_is(text):
    words = PrivateWords()
    words.learn(text)
    assert words.replaced("for alicesecret") == "for (removed)"


@pytest.mark.parametrize(
    "text",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, lambda(float)#1>>(T3)",
        "layers/0/attn",
        "/jit(f)/dot_general",
        "max_new_tokens: 128, num_tokens=4096",
        "token_embedding: Embedding(50257)",
        "cuDNN 9.10.1.4, driver 580.95.05",
        "a/b at ::operator~() 16:9",
        "aten::_scaled_dot_product_flash_attention",
    ],
)
def test_names_of_kernels_and_layers_stay(text):
    assert clean(text) == text


def test_a_name_learned_from_a_private_field_is_found_as_a_word_elsewhere():
    words = PrivateWords()
    words.learn("HOSTNAME=gpu-box-17\nWANDB_API_KEY=hunter2secret\nUSER=alicesmith")
    text = "step of alicesmith on gpu-box-17 with hunter2secret, not alicesmithy"
    assert words.replaced(text) == "step of (removed) on (removed) with (removed), not alicesmithy"


def test_common_words_are_nobodys_names():
    words = PrivateWords(["root", "train", "cuda", "123456", "abc"])
    assert len(words) == 0


UUID = "GPU-554a6988-03dd-6206-3dd1-f43fb60a3ed0"
OURS, THEIRS = b"o" * 32, b"t" * 32


def test_equal_devices_have_equal_hashes_that_are_hashed_no_further():
    once = hashed(UUID, OURS)
    assert once == hashed(UUID.upper().removeprefix("GPU-"), OURS) == hashed(once, OURS)
    assert once == hashed(once, THEIRS)
    assert "554" not in once[:6] and len(once) > 20


def test_no_other_installation_knows_a_device_by_its_hash():
    assert hashed(UUID, OURS) != hashed(UUID, THEIRS)
    assert hashed(UUID) == ""


def test_a_device_hashed_by_an_earlier_release_is_known_again():
    earlier = (
        "H-"
        + hashlib.sha256(b"warpboard gpu identity\n554A6988-03DD-6206-3DD1-F43FB60A3ED0")
        .hexdigest()[:24]
        .upper()
    )
    assert hashed(earlier, OURS) == hashed(UUID, OURS) != earlier


def test_an_installation_keeps_its_secret_to_itself_and_makes_it_once(tmp_path):
    folder = tmp_path / "data"
    with ThreadPoolExecutor(8) as pool:
        (salt,) = set(pool.map(device_salt, [folder] * 8))
    assert len(salt) == 32 and device_salt(folder) == salt != device_salt(tmp_path / "other")
    assert [p.name for p in folder.iterdir()] == ["gpu.salt"]
    assert (folder / "gpu.salt").stat().st_mode & 0o777 == 0o600


def test_without_a_place_for_the_secret_there_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    assert device_salt(tmp_path / "file" / "data") == b""


def test_a_log_keeps_folders_of_the_system_and_loses_those_of_people():
    line = "no /usr/lib/libcupti.so for /home/alicesmith/x/train.py on gpu-box-17"
    cleaned = LogCleaner(PrivateWords(["gpu-box-17"])).text(line)
    assert cleaned == "no /usr/lib/libcupti.so for train.py on (removed)"


@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_length_of_a_text_alone(piece):
    text = piece * (LONG // len(piece))
    started = time.process_time()
    clean(text)
    PrivateWords().learn(text)
    assert time.process_time() - started < 2
